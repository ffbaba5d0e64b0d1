"""An application for a server: ``uvicorn --factory tests.benchmarks.served:app``."""

from __future__ import annotations

import os

from fastapi import FastAPI

from tests.benchmarks import apps, peers

NAME, URL = "BENCHMARK_APPLICATION", "BENCHMARK_REDIS_URL"
_REFUSED = "throttled_views, refused"


def app() -> FastAPI:
    """Return the application that the environment names."""
    name, url = os.environ[NAME], os.environ.get(URL)
    if name in peers.IN_MEMORY:
        return peers.IN_MEMORY[name](url)
    if name == "bare":
        return apps.bare()
    view = apps.Scarce if name == _REFUSED else apps.Items
    return apps.ours(apps.store_at(url), view)
