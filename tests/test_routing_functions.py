"""Decorated functions on a `ThrottledRouter`: served as cheaply as a view is."""

import functools
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, ParamSpec, TypeVar

import pytest
from fastapi import HTTPException, Request, Response

from tests.asgi import answers, app_of, fields_of, frozen, statuses
from throttled_views import ThrottledRouter
from throttled_views.routing import ThrottledRoute

P = ParamSpec("P")
T = TypeVar("T")
AnyHandler = Callable[..., Coroutine[Any, Any, Any]]


def cached(
    handler: Callable[P, Awaitable[T]],
) -> Callable[P, Coroutine[Any, Any, T]]:
    """Stand for a decorator above the limit."""

    @functools.wraps(handler)
    async def wrapper(*args: P.args, **kwargs: P.kwargs) -> T:
        return await handler(*args, **kwargs)

    return wrapper


def marked(handler: AnyHandler) -> AnyHandler:
    """Stand for a decorator that marks a function, to be looked for on the endpoint."""
    vars(handler)["mark"] = "reports"
    return handler


async def tells_its_mark(request: Request) -> str:
    """Return the mark of the endpoint that serves this request."""
    return str(getattr(request.scope["endpoint"], "mark", None))


async def answers_itself() -> Response:
    """Return a response."""
    return Response("mine")


async def finds_nothing() -> None:
    """Raise what FastAPI answers with a 404."""
    raise HTTPException(404)


def routed(endpoint: AnyHandler) -> ThrottledRoute:
    """Return the route of *endpoint* on a router that limits everything."""
    router = ThrottledRouter(frozen())
    router.add_api_route("/", endpoint)
    [route] = router.routes
    assert isinstance(route, ThrottledRoute)
    return route


def test_the_route_solves_no_dependency_for_the_limit() -> None:
    """What the decorator asks FastAPI for is not asked where the route decides."""
    limiter = frozen()
    once = limiter.limit("5/m")(tells_its_mark)
    twice = limiter.limit("9/m")(once)

    assert [] == routed(once).dependant.dependencies
    assert [] == routed(twice).dependant.dependencies


async def test_the_function_itself_is_no_endpoint_of_ours() -> None:
    """The user's function is not marked: elsewhere it is as unlimited as it was."""
    limiter = frozen("1/m")
    limiter.limit("5/m")(tells_its_mark)

    assert {} == vars(tells_its_mark)


@pytest.mark.parametrize("path", ["/one", "/other"])
async def test_a_function_that_is_registered_twice_shares_its_counts(path: str) -> None:
    """Both routes have one endpoint, and so one count."""
    limiter = frozen()
    router = ThrottledRouter(limiter)
    endpoint = limiter.limit("1/m")(tells_its_mark)
    for each in ("/one", "/other"):
        router.add_api_route(each, endpoint)
    app = app_of(router)

    assert [200, 429] == await statuses(app, "GET /one", f"GET {path}")


async def test_marks_of_other_decorators_stay_on_the_endpoint() -> None:
    """A mark that was put on the function before or after is seen at request time."""
    limiter = frozen()
    router = ThrottledRouter(limiter)

    @router.get("/after")
    @marked
    @limiter.limit("1/m")
    async def after(request: Request) -> str:
        return await tells_its_mark(request)

    @router.get("/before")
    @limiter.limit("1/m")
    @marked
    async def before(request: Request) -> str:
        return await tells_its_mark(request)

    received = await answers(app_of(router), "GET /after", "GET /before")

    assert ["reports", "reports"] == [answer.json() for answer in received]


@pytest.mark.parametrize(
    ("handler", "status"), [(answers_itself, 200), (finds_nothing, 404)]
)
async def test_a_decorator_above_the_limit_sees_no_difference(
    handler: AnyHandler, status: int
) -> None:
    """The route decides, once, and tells; the decorated function runs as it is."""
    limiter = frozen()
    router = ThrottledRouter(limiter)
    router.add_api_route("/", cached(limiter.limit("2/m")(handler)))
    [first, *_, last] = await answers(app_of(router), *["GET /"] * 3)

    assert status == first.status_code
    assert "1" == fields_of(first)["RateLimit-Remaining"]
    assert 429 == last.status_code
