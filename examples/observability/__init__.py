"""
An application that is observed: Prometheus scrapes it, and Grafana shows it.

Serve it with ``uvicorn examples.observability.main:app``, or all three with ``docker
compose up`` in its directory.
"""
