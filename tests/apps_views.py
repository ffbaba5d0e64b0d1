"""Applications made of views, and short ways to ask them."""

import types
from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar, cast

from fastapi import FastAPI

from tests.asgi import FIELDS, answers, frozen_store, statuses
from throttled_views import (
    KeyFunc,
    Limiter,
    Throttle,
    ThrottledRouter,
    ThrottledView,
    client_ip,
)

HandlerT = TypeVar("HandlerT", bound=Callable[..., Any])


def wrapped(handler: HandlerT) -> HandlerT:
    """Decorate a handler in a module that does not know the names of its own."""

    @wraps(handler)
    async def wrapper(*args: object, **kwargs: object) -> object:
        return await handler(*args, **kwargs)

    return cast("HandlerT", wrapper)


def limiter_of(
    default: Throttle | None = None, *, key_func: KeyFunc = client_ip
) -> Limiter:
    """Make a limiter with counts of its own, at an instant that does not pass."""
    return Limiter(default, store=frozen_store(), key_func=key_func)


def app_of(
    *views: type[ThrottledView], limiter: Limiter | None = None, prefix: str = "/v"
) -> FastAPI:
    """Serve *views* below *prefix*, since most views of the tests have no path."""
    router = ThrottledRouter(limiter or limiter_of())
    for view in views:
        router.add_view(view)
    app = FastAPI()
    app.include_router(router, prefix=prefix)
    return app


async def body(app: FastAPI, request: str = "GET /v") -> object:
    """Return what *request* is answered, as JSON; it must be admitted."""
    [answer] = await answers(app, request)
    answer.raise_for_status()
    value: object = answer.json()
    return value


async def admitted(app: FastAPI, request: str = "GET /v", *, of: int = 8) -> int:
    """Return how many of equal requests are not refused."""
    return sum(status != 429 for status in await statuses(app, *[request] * of))


def operation(app: FastAPI, method: str = "get", path: str = "/v") -> dict[str, Any]:
    """Return what the OpenAPI document of *app* says of a route."""
    found: dict[str, Any] = app.openapi()["paths"][path][method]
    return found


def unlimited_document(app: FastAPI) -> dict[str, Any]:
    """Return the OpenAPI document of *app* without what it says of limits."""
    document: dict[str, Any] = app.openapi()
    for each in [each for path in document["paths"].values() for each in path.values()]:
        each.pop("x-throttle", None)
        each["responses"].pop("429", None)
        for response in each["responses"].values():
            for name in FIELDS:
                response.get("headers", {}).pop(name, None)
            if not response.get("headers", {"any"}):
                del response["headers"]
    return document


def view_of(
    *attributes: tuple[str, object], bases: tuple[type, ...] = (ThrottledView,)
) -> Any:  # noqa: ANN401 - checkers cannot know it
    """
    Make a view from what would stand in the body of its class statement, in order.

    For what type checkers refuse, as they should.

    Args:
        attributes: The names and values.
        bases: The bases of the view.
    """

    def fill(body: dict[str, object]) -> None:
        for name, value in [("__module__", __name__), *attributes]:
            body[name] = value  # noqa: PERF403 - the namespace looks at each

    return types.new_class("Made", bases, {}, fill)
