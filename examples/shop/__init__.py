"""
A whole application: a bookshop in several modules, as it would be deployed.

Serve it with ``uvicorn examples.shop.main:app``, and with ``REDIS_URL`` in the
environment to share its counts between processes. The package imports itself by
relative names, so that a copy of it runs under any other.
"""
