"""
A plan past one machine: what carries how many decisions, and what keys do to it.

    python -m examples.scale

Edit the costs in `costs.py`: they are of one machine, and yours has others.
"""
