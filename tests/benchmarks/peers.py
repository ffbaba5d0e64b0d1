"""
The same application under other rate limiters, as their own documentation writes it.

They are imported by name, so that those that are not installed are left out; what is
unknown to type checkers stays here.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from importlib import import_module
from itertools import count
from typing import Any, TypeAlias

from fastapi import APIRouter, Depends, FastAPI, Request, Response

Make: TypeAlias = Callable[[str | None], FastAPI]
Endpoint: TypeAlias = Callable[..., Awaitable[dict[str, list[int]]]]

_PLENTY = 100_000_000  # requests per minute
_NUMBERS = count()


async def _items(request: Request) -> dict[str, list[int]]:
    return {"items": []}


def _app(endpoint: Endpoint, backend: Any = None, *limits: Any) -> FastAPI:
    lifespan = None if backend is None else backend.lifespan
    app, router = FastAPI(lifespan=lifespan), APIRouter(dependencies=limits)
    router.add_api_route("/items", endpoint)
    app.include_router(router)
    return app


def throttled_py(url: str | None) -> FastAPI:
    """Limit by throttled-py: a decorator, a middleware and an exception handler."""
    core = import_module("throttled.asyncio")
    fastapi = import_module("throttled.asyncio.contrib.fastapi")
    store = None if url is None else core.RedisStore(server=url)
    limiter = fastapi.Limiter(
        f"{_PLENTY}/m", store=store, key_func=fastapi.get_remote_address
    )
    app = _app(limiter.limit()(_items))
    app.add_middleware(fastapi.RateLimitMiddleware)
    app.add_exception_handler(
        fastapi.RateLimitExceededError, fastapi.rate_limit_exceeded_handler
    )
    return app


def slowapi(url: str | None) -> FastAPI:
    """Limit by slowapi: a decorator; it asks Redis while the loop stands still."""
    core = import_module("slowapi")
    limiter = core.Limiter(
        key_func=import_module("slowapi.util").get_remote_address,
        headers_enabled=True,
        storage_uri=url or "memory://",
    )

    async def told(request: Request, response: Response) -> dict[str, list[int]]:
        return {"items": []}

    app = _app(limiter.limit(f"{_PLENTY}/minute")(told))
    app.state.limiter = limiter
    return app


def traffik(url: str | None) -> FastAPI:
    """Limit by traffik: a dependency."""
    core = import_module("traffik")
    backend: Any
    if url is None:
        memory = import_module("traffik.backends.inmemory")
        backend = memory.InMemoryBackend(namespace="benchmark")
    else:
        redis = import_module("traffik.backends.redis.aioredis")
        backend = redis.RedisBackend(connection=url, namespace="benchmark")
    # Its names may be used once in a process.
    throttle = core.HTTPThrottle(f"items-{next(_NUMBERS)}", rate=f"{_PLENTY}/min")
    return _app(_items, backend, Depends(throttle))


def fastapi_limiter(_url: str | None) -> FastAPI:
    """Limit by fastapi-limiter: a dependency, and on the application itself."""
    core = import_module("pyrate_limiter")
    depends = import_module("fastapi_limiter.depends")
    limiter = core.Limiter(core.Rate(_PLENTY, core.Duration.MINUTE))
    app = FastAPI()  # it fails on an included router
    limit = Depends(depends.RateLimiter(limiter=limiter))
    app.add_api_route("/items", _items, dependencies=[limit])
    return app


IN_MEMORY: dict[str, Make] = {
    "throttled-py": throttled_py,
    "slowapi": slowapi,
    "traffik": traffik,
    "fastapi-limiter": fastapi_limiter,
}
IN_REDIS: dict[str, Make] = {
    name: make for name, make in IN_MEMORY.items() if make is not fastapi_limiter
}


def installed(
    peers: dict[str, Make], url: str | None
) -> tuple[dict[str, FastAPI], list[str]]:
    """Return an application under each of *peers*, and why some are missing."""
    apps: dict[str, FastAPI] = {}
    missing: list[str] = []
    for name, make in peers.items():
        try:
            apps[name] = make(url)
        except ModuleNotFoundError as error:
            missing.append(f"{name}: {error}")
    return apps, missing
