"""
What limits cost, measured: ``python -m tests.benchmarks``.

Rules of this package:

1. Times of different runs are never compared. Contenders take turns in short rounds, in
   a new order each time; what counts is the ratio to the base of the same round.
2. Nothing is measured before it was seen to answer as it should.
3. It is no test: pytest collects nothing here. `tests/test_benchmarks.py` holds the
   tables of the documentation to the results that are stored beside them.
"""
