"""Exception handlers of the user decide how a refusal looks."""

from collections.abc import Callable

import pytest
from fastapi import FastAPI, HTTPException, Request, Response
from fastapi.exception_handlers import http_exception_handler
from fastapi.responses import JSONResponse, PlainTextResponse
from starlette.applications import Starlette
from starlette.exceptions import HTTPException as StarletteHTTPException
from starlette.routing import Mount
from starlette.types import Message

from tests.asgi import (
    answers,
    app_of,
    fields_of,
    frozen_store,
    http_scope,
    sent,
    statuses,
)
from tests.ways import DECORATED, DEPENDENT, EARLY, WAYS, Way
from throttled_views import (
    LimitedError,
    Limiter,
    MemoryStore,
    RateLimitExceededError,
    ThrottledRouter,
    ThrottledViewsError,
    rate_limit_exceeded_handler,
)

REFUSED = {
    "RateLimit-Limit": "1",
    "RateLimit-Remaining": "0",
    "RateLimit-Reset": "3600",
    "Retry-After": "3600",
}
BY_HANDLER = "by a handler of the user"


async def hello() -> str:
    """Be a handler."""
    return "hello"


def in_a_thread(_request: Request, _error: Exception) -> Response:
    """Answer without any field, as a function that FastAPI runs in a thread."""
    return PlainTextResponse(BY_HANDLER, 503)


async def on_the_loop(_request: Request, _error: Exception) -> Response:
    """Answer without any field."""
    return PlainTextResponse(BY_HANDLER, 503)


REGISTERED: dict[str, int | type[Exception]] = {
    "RateLimitExceededError": RateLimitExceededError,
    "LimitedError": LimitedError,
    "ThrottledViewsError": ThrottledViewsError,
    "HTTPException": HTTPException,
    "HTTPException of Starlette": StarletteHTTPException,
    "429": 429,
}

registered = pytest.mark.parametrize("what", REGISTERED.values(), ids=REGISTERED)
handled = pytest.mark.parametrize(
    "handler", [in_a_thread, on_the_loop], ids=["sync", "async"]
)


@registered
@handled
@pytest.mark.parametrize("way", EARLY.values(), ids=EARLY)
async def test_a_handler_of_the_user_wins_and_the_fields_stay(
    way: Way,
    handler: Callable[[Request, Exception], Response],
    what: int | type[Exception],
    store: MemoryStore,
) -> None:
    """It answers as it likes, and forgetting the fields loses none."""
    app = way(Limiter("1/h", store=store), hello)
    app.add_exception_handler(what, handler)

    _, refused = await answers(app, "GET /", "GET /")

    assert (503, BY_HANDLER) == (refused.status_code, refused.text)
    assert REFUSED == fields_of(refused)


LATER = {**DECORATED, **DEPENDENT}


@registered
@handled
@pytest.mark.parametrize("way", LATER.values(), ids=LATER)
async def test_a_handler_of_the_user_wins_on_any_router(
    way: Way,
    handler: Callable[[Request, Exception], Response],
    what: int | type[Exception],
) -> None:
    """Where the response is not ours, a handler has to send the fields itself."""
    app = way(Limiter("1/h"), hello)
    app.add_exception_handler(what, handler)

    _, refused = await answers(app, "GET /", "GET /")

    assert (503, BY_HANDLER) == (refused.status_code, refused.text)
    assert {} == fields_of(refused)


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
async def test_a_handler_finds_the_fields_in_the_exception(
    way: Way, store: MemoryStore
) -> None:
    """`headers` has what a response needs; sending it writes no field twice."""
    app = way(Limiter("1/h", store=store), hello)

    @app.exception_handler(HTTPException)
    async def render(_request: Request, error: HTTPException) -> Response:
        return PlainTextResponse(error.detail, error.status_code, error.headers)

    _, refused = await answers(app, "GET /", "GET /")

    assert (429, "Rate limit exceeded") == (refused.status_code, refused.text)
    assert REFUSED == fields_of(refused)


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
async def test_a_handler_finds_what_was_decided_in_the_exception(
    way: Way, store: MemoryStore
) -> None:
    """The context of the refusal tells what no header field can: parts of seconds."""
    app = way(Limiter("8/s burst 1", store=store), hello)

    @app.exception_handler(RateLimitExceededError)
    async def render(_request: Request, error: RateLimitExceededError) -> Response:
        context = error.rate_limit_context
        return JSONResponse(
            {
                "limited": context.result.limited,
                "retry_after": context.result.state.retry_after,
                "headers": {**context.headers},
            }
        )

    _, refused = await answers(app, "GET /", "GET /")

    told = {
        "RateLimit-Limit": "1",
        "RateLimit-Remaining": "0",
        "RateLimit-Reset": "1",
        "Retry-After": "1",
    }
    assert {"limited": True, "retry_after": 0.125, "headers": told} == refused.json()


async def test_fields_of_a_handler_are_kept() -> None:
    """A handler that names a time of its own is not contradicted."""
    app = app_of(router_of_hello("0/h"))

    @app.exception_handler(429)
    async def later(_request: Request, _error: Exception) -> Response:
        return PlainTextResponse("", 429, {"Retry-After": "7", "Vary": "Accept"})

    (refused,) = await answers(app, "GET /")

    assert ("7", "Accept") == (refused.headers["Retry-After"], refused.headers["Vary"])


def router_of_hello(default: str, store: MemoryStore | None = None) -> ThrottledRouter:
    """Return a router with one route."""
    router = ThrottledRouter(Limiter(default, store=store))
    router.add_api_route("/", hello)
    return router


# --- the application that is asked ----------------------------------------------------


@registered
@handled
async def test_a_mounted_application_asks_its_own_handlers(
    handler: Callable[[Request, Exception], Response],
    what: int | type[Exception],
    store: MemoryStore,
) -> None:
    """The handlers of the application that the route is in are asked."""
    inner = app_of(router_of_hello("1/h", store))
    inner.add_exception_handler(what, handler)
    app = FastAPI()
    app.mount("/inner", inner)

    _, refused = await answers(app, "GET /inner/", "GET /inner/")

    assert (503, BY_HANDLER) == (refused.status_code, refused.text)
    assert REFUSED == fields_of(refused)


@registered
async def test_handlers_around_a_mounted_application_are_not_asked(
    what: int | type[Exception], store: MemoryStore
) -> None:
    """As with any HTTPException, the mounted application has handled it by itself."""
    app = FastAPI()
    app.add_exception_handler(what, on_the_loop)
    app.mount("/inner", app_of(router_of_hello("1/h", store)))

    _, refused = await answers(app, "GET /inner/", "GET /inner/")

    assert (429, {"detail": "Rate limit exceeded"}) == (
        refused.status_code,
        refused.json(),
    )
    assert REFUSED == fields_of(refused)


async def test_a_handler_that_is_registered_late_is_asked(store: MemoryStore) -> None:
    """A handler counts that was registered after the routes were included."""
    app = app_of(router_of_hello("1/h", store))
    app.add_exception_handler(RateLimitExceededError, on_the_loop)

    _, refused = await answers(app, "GET /", "GET /")

    assert (503, BY_HANDLER) == (refused.status_code, refused.text)


async def test_a_starlette_application_renders_as_it_renders_exceptions() -> None:
    """Where FastAPI has no handler the refusal is Starlette's, and has all fields."""
    app = Starlette(routes=[Mount("/", router_of_hello("0/h"))])

    (refused,) = await answers(app, "GET /")

    assert (429, "Rate limit exceeded") == (refused.status_code, refused.text)
    assert "0" == refused.headers["RateLimit-Limit"]


# --- the handler of ours --------------------------------------------------------------


async def as_fastapi_does(request: Request, error: Exception) -> Response:
    """Answer as FastAPI does; but it is not known that FastAPI does."""
    assert isinstance(error, StarletteHTTPException)
    return await http_exception_handler(request, error)


GENERAL = {
    "our handler": (RateLimitExceededError, rate_limit_exceeded_handler),
    "our handler for 429": (429, rate_limit_exceeded_handler),
    "FastAPI's handler, wrapped": (HTTPException, as_fastapi_does),
}


@pytest.mark.parametrize(("what", "handler"), GENERAL.values(), ids=GENERAL)
async def test_the_quick_refusal_is_the_general_one_byte_by_byte(
    what: int | type[Exception], handler: Callable[[Request, Exception], Response]
) -> None:
    """What is sent without asking any handler is what the handlers would have sent."""

    async def refusal(app: FastAPI) -> list[Message]:
        await sent(app, http_scope())
        return await sent(app, http_scope())

    quick = app_of(router_of_hello("1/h", frozen_store()))
    general = app_of(router_of_hello("1/h", frozen_store()))
    general.add_exception_handler(what, handler)

    assert await refusal(general) == await refusal(quick)


async def test_our_handler_is_for_our_exception_alone() -> None:
    """Registered for anything else it would hide what went wrong."""
    app = FastAPI()
    app.add_exception_handler(404, rate_limit_exceeded_handler)

    with pytest.raises(TypeError, match="for RateLimitExceededError alone"):
        await answers(app, "GET /missing")


async def test_the_headers_of_a_refusal_are_made_once() -> None:
    """Whoever asks for them twice gets the same."""
    app = FastAPI()
    asked: list[object] = []

    @app.exception_handler(RateLimitExceededError)
    async def refused(_request: Request, error: RateLimitExceededError) -> Response:
        asked.extend((error.headers, error.headers))
        return PlainTextResponse("", error.status_code)

    @app.get("/")
    @Limiter().limit("1/h")
    async def get() -> None: ...

    assert [200, 429] == await statuses(app, "GET /", "GET /")
    assert asked[0] is asked[1]
