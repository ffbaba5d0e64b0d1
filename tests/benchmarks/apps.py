"""Our application, and the same without limits: ``GET /items`` on a router."""

from __future__ import annotations

from collections.abc import Sequence

from fastapi import APIRouter, FastAPI, Request
from fastapi.responses import JSONResponse, Response

from throttled_views import (
    Hook,
    Limiter,
    MemoryStore,
    RateLimitExceededError,
    Store,
    Throttle,
    ThrottledRouter,
    ThrottledView,
)
from throttled_views.stores.redis import RedisStore

PLENTY = "100000000/m"  # more than any benchmark sends
ONE = "1/day"


class Items(ThrottledView):
    """A view as it is in the tutorial."""

    path = "/items"
    throttle: Throttle | None = PLENTY

    async def get(self) -> dict[str, list[int]]:
        """Return what costs as little as possible."""
        return {"items": []}


class Scarce(Items):
    """The same, which refuses all but the first request."""

    throttle = ONE


async def items() -> dict[str, list[int]]:
    """Return the same, from a function."""
    return {"items": []}


def bare(*prefixes: str) -> FastAPI:
    """Return an application without limits."""
    app, router = FastAPI(), APIRouter()
    for prefix in prefixes or ("",):
        router.add_api_route(f"{prefix}/items", items)
    app.include_router(router)
    return app


def ours(
    store: Store | None = None,
    view: type[Items] = Items,
    *prefixes: str,
    hooks: Sequence[Hook] = (),
) -> FastAPI:
    """Return the application with *view*."""
    app = FastAPI()
    router = ThrottledRouter(Limiter(store=store or MemoryStore(), hooks=hooks))
    for prefix in prefixes or ("",):
        router.add_view(view, prefix=prefix)
    app.include_router(router)
    return app


def with_limits(count: int) -> type[Items]:
    """Return a view that each request is held to *count* quotas of."""

    class Several(Items):
        throttle = [
            f"{PLENTY.partition('/')[0]}/{period}m" for period in range(1, count + 1)
        ]

    return Several


def with_handler(app: FastAPI) -> FastAPI:
    """Return *app*, which renders refusals by itself."""

    async def refused(_request: Request, error: Exception) -> Response:
        return JSONResponse({"error": str(error)}, status_code=429)

    app.add_exception_handler(RateLimitExceededError, refused)
    return app


def store_at(url: str | None) -> Store:
    """Return the store that is at *url*, in memory without one."""
    return MemoryStore() if url is None else RedisStore(url)
