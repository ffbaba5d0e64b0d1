"""`@limiter.limit()` on plain functions: it limits them and is not seen otherwise."""

import functools
import inspect
from collections.abc import Awaitable, Callable
from typing import Annotated, Any, NamedTuple, Self

import pytest
from fastapi import (
    BackgroundTasks,
    Body,
    Depends,
    FastAPI,
    Header,
    HTTPException,
    Query,
    Request,
    Response,
)
from fastapi.responses import JSONResponse
from pydantic import BaseModel
from starlette.requests import HTTPConnection

from tests import postponed
from tests.asgi import Relay, answers, fields_of, frozen_store, statuses
from tests.ways import DECORATED, EARLY, Endpoint, Way
from throttled_views import (
    EXEMPT,
    ConfigurationError,
    Limit,
    Limiter,
    MemoryStore,
    ViewDefinitionError,
)

OURS = {**EARLY, **DECORATED}
ours = pytest.mark.parametrize("way", OURS.values(), ids=OURS)


async def hello() -> str:
    """Be a handler."""
    return "hello"


# --- FastAPI sees the same function ---------------------------------------------------


class Item(BaseModel):
    """A body."""

    name: str


class Shown(BaseModel):
    """A model that is returned."""

    path: str


async def no_parameters() -> dict[str, str]:
    """Take nothing."""
    return {}


async def a_request(request: Request) -> Shown:
    """Take the request."""
    return Shown(path=request.url.path)


async def a_response(response: Response) -> str:
    """Take the response."""
    response.headers["X-Mine"] = "kept"
    return ""


async def a_connection(connection: HTTPConnection) -> str:
    """Take the connection."""
    return connection.url.path


async def all_three(
    first: Request, second: Response, third: HTTPConnection
) -> list[bool]:
    """Take all of them, under names of its own."""
    second.status_code = 202
    return [first.url == third.url]


async def positional(b: int, a: int, c: int = 3) -> list[int]:
    """Take parameters in an order that is not that of their names."""
    return [a, b, c]


async def by_keyword(*, a: int, b: Annotated[int, Query(alias="bee")] = 2) -> list[int]:
    """Take parameters by keyword alone."""
    return [a, b]


async def any_keyword(a: int, **kwargs: str) -> dict[str, object]:
    """Take what FastAPI makes of `**kwargs`: one parameter of that name."""
    return {"a": a, **kwargs}


async def agent(user_agent: Annotated[str, Header()]) -> str:
    """Be a dependency with a parameter of its own."""
    return user_agent.partition("/")[0]


async def a_dependency(who: Annotated[str, Depends(agent)]) -> str:
    """Take a dependency."""
    return who


async def a_default_dependency(who: str = Depends(agent)) -> str:
    """Take a dependency, as it was written once."""
    return who


async def a_body(item: Item, embedded: Annotated[int, Body()] = 0) -> Item:
    """Take a body of two parts."""
    return Item(name=f"{item.name}{embedded}")


async def tasks(later: BackgroundTasks) -> None:
    """Take background tasks."""
    later.add_task(str, "later")


async def raising() -> None:
    """Raise what FastAPI renders."""
    raise HTTPException(409, {"why": "because"})


class Call(NamedTuple):
    """A function, and a request to it."""

    endpoint: Endpoint
    request: str = "GET /"
    content: bytes | None = None


CALLS: dict[str, Call] = {
    "no parameters": Call(no_parameters),
    "a Request": Call(a_request),
    "a Response": Call(a_response),
    "an HTTPConnection": Call(a_connection),
    "all three": Call(all_three),
    "by position": Call(positional, "GET /?a=1&b=2"),
    "by keyword": Call(by_keyword, "GET /?a=1&bee=5"),
    "a wrong value": Call(by_keyword, "GET /?a=one"),
    "any keyword": Call(any_keyword, "GET /?a=1&kwargs=x"),
    "a dependency": Call(a_dependency),
    "a dependency as default": Call(a_default_dependency),
    "a body": Call(a_body, "POST /", b'{"item": {"name": "x"}, "embedded": 7}'),
    "a body that does not parse": Call(a_body, "POST /", b"{"),
    "background tasks": Call(tasks),
    "an exception": Call(raising),
    "postponed annotations": Call(postponed.look, "GET /?page=3"),
    "postponed annotations of a body": Call(
        postponed.write, "POST /?draft=1", b'{"number": 1, "owner": "me"}'
    ),
}

calls = pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)


def app_with(endpoint: Endpoint, call: Call) -> FastAPI:
    """Return an application with *endpoint* on it, that is ready for *call*."""
    app = FastAPI()
    app.add_api_route("/", endpoint, methods=[call.request.partition(" ")[0]])
    return app


async def answer_to(
    call: Call, endpoint: Endpoint
) -> tuple[int, bytes, dict[str, str]]:
    """Return what *endpoint* answers to *call*, but for fields about limits."""
    app = app_with(endpoint, call)
    (answer,) = await answers(app, call.request, content=call.content)
    ours = {name.lower() for name in fields_of(answer)}
    theirs = {name: answer.headers[name] for name in answer.headers if name not in ours}
    return answer.status_code, answer.content, theirs


@calls
async def test_a_decorated_function_is_served_as_it_was(call: Call) -> None:
    """Status, body and headers are what they are without the decorator."""
    limited = Limiter().limit("5/h")(call.endpoint)

    assert await answer_to(call, call.endpoint) == await answer_to(call, limited)


@calls
def test_a_decorated_function_is_documented_as_it_was(call: Call) -> None:
    """The OpenAPI document is what it is without the decorator."""
    limiter = Limiter()
    limited = limiter.limit("5/h")(limiter.limit("6/h")(call.endpoint))

    plain, decorated = app_with(call.endpoint, call), app_with(limited, call)

    assert plain.openapi() == decorated.openapi()


def test_a_decorated_function_keeps_its_face() -> None:
    """Its name, its place and its documentation are those of the function."""
    limited = Limiter().limit("5/h")(hello)

    assert (hello.__name__, hello.__qualname__, hello.__module__, hello.__doc__) == (
        limited.__name__,
        limited.__qualname__,
        limited.__module__,
        limited.__doc__,
    )
    assert inspect.iscoroutinefunction(limited)
    assert hello is inspect.unwrap(limited)


async def test_a_call_from_python_is_not_charged() -> None:
    """Whoever calls the function calls what was decorated, and nothing else."""
    limiter = Limiter()
    limited = limiter.limit("1/h")(positional)
    app = FastAPI()
    app.add_api_route("/", limited)

    assert [[1, 2, 3]] * 3 == [await limited(2, a=1) for _ in range(3)]
    assert [200, 429] == await statuses(app, *["GET /?a=1&b=2"] * 2)


async def test_a_call_of_a_handler_by_another_is_not_charged() -> None:
    """What serves a request is charged, not what it calls."""
    limiter = Limiter()
    inner = limiter.limit("1/h")(hello)
    app = FastAPI()

    @app.get("/")
    @limiter.limit("2/h")
    async def outer() -> str:
        return await inner()

    app.add_api_route("/inner", inner)

    assert [200, 200, 429] == await statuses(app, *["GET /"] * 3)
    assert [200, 429] == await statuses(app, *["GET /inner"] * 2)


# --- it is decided right before the function ------------------------------------------


async def refuse(authorization: Annotated[str, Header()] = "") -> None:
    """Refuse who has no password."""
    if not authorization:
        raise HTTPException(401)


@pytest.mark.parametrize("way", DECORATED.values(), ids=DECORATED)
async def test_what_ends_before_the_function_is_neither_charged_nor_told(
    way: Way,
) -> None:
    """On other routers than ours a 401 and a 422 come first, and cost nothing."""

    async def get(n: int, _: Annotated[None, Depends(refuse)]) -> int:
        return n

    app = way(Limiter("1/h"), get)

    unauthorized, invalid = [
        *await answers(app, "GET /?n=1"),
        *await answers(app, "GET /?n=one", headers={"Authorization": "me"}),
    ]
    first, second = await answers(
        app, *["GET /?n=1"] * 2, headers={"Authorization": "me"}
    )

    assert (401, {}) == (unauthorized.status_code, fields_of(unauthorized))
    assert (422, {}) == (invalid.status_code, fields_of(invalid))
    assert [200, 429] == [first.status_code, second.status_code]


@ours
async def test_what_the_function_raises_is_charged(way: Way) -> None:
    """A function that always fails is limited like any other."""
    app = way(Limiter("2/h"), raising)

    assert [409, 409, 429] == await statuses(app, *["GET /"] * 3)


@ours
async def test_an_error_of_the_function_stays_what_it_is(way: Way) -> None:
    """An exception that nobody handles reaches the server, unchanged and charged."""

    async def fail() -> None:
        raise ZeroDivisionError

    app = way(Limiter("1/h"), fail)

    with pytest.raises(ZeroDivisionError):
        await answers(app, "GET /")
    assert [429] == await statuses(app, "GET /")


# --- what cannot be decorated ---------------------------------------------------------


def blocking() -> None:
    """Block."""


def wrapping(handler: Endpoint) -> Endpoint:
    """Decorate *handler* with a sync wrapper, as one should not."""

    @functools.wraps(handler)
    def wrapper(*args: object, **kwargs: object) -> object:
        return handler(*args, **kwargs)

    return wrapper


def wrapping_badly(handler: Endpoint) -> Endpoint:
    """Do so without functools.wraps."""

    def wrapper(*args: object, **kwargs: object) -> object:
        return handler(*args, **kwargs)

    return wrapper


class Callables:
    """An object that can be called."""

    async def __call__(self) -> None:
        """Do nothing."""


SYNC: dict[str, tuple[Any, str]] = {
    "a function": (blocking, r"Write 'async def blocking\(…\)'; await fastapi"),
    "a sync wrapper": (wrapping(hello), "in the decorator too, and await the handler"),
    "a sync wrapper without wraps": (wrapping_badly(hello), "Write 'async def wrapper"),
    "a lambda": (lambda: None, r"Write 'async def "),
    "a partial of a sync function": (functools.partial(blocking), "Use functools"),
    "an object": (Callables(), "it is not async"),
    "what cannot be called": (5, "it is 5, not an async"),
}


@pytest.mark.parametrize(("function", "says"), SYNC.values(), ids=SYNC)
def test_what_is_not_async_is_refused_at_decoration(
    function: Any,  # noqa: ANN401 - that is the point
    says: str,
) -> None:
    """A limit could not be awaited before it; the TypeError says what to write."""
    with pytest.raises(TypeError, match=says) as caught:
        Limiter().limit("5/h")(function)

    assert isinstance(caught.value, ViewDefinitionError)


class Service:
    """A class that is no view."""

    async def method(self) -> None:
        """Do nothing."""

    @staticmethod
    async def static() -> None:
        """Do nothing."""


METHODS: dict[str, Any] = {
    "a method": Service.method,
    "a static method": Service.static,
    "a bound method": Service().method,
}


@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
def test_methods_are_referred_to_the_other_decorators(
    method: Callable[..., Awaitable[None]],
) -> None:
    """Decorators of functions would never see the class."""
    limiter = Limiter()
    decorators: list[Any] = [limiter.limit("5/h"), limiter.exempt]
    messages: list[str] = []

    for decorate in decorators:
        with pytest.raises(TypeError) as caught:
            decorate(method)
        messages.append(str(caught.value))

    assert "Write @limit(…) from throttled_views on methods" in messages[0]
    assert "Write @exempt from throttled_views on methods" in messages[1]


def limited_then_exempt(limiter: Limiter, endpoint: Endpoint) -> Endpoint:
    """Decorate with both."""
    return limiter.exempt(limiter.limit("5/h")(endpoint))


def exempt_then_limited(limiter: Limiter, endpoint: Endpoint) -> Endpoint:
    """Decorate with both, the other way round."""
    return limiter.limit("5/h")(limiter.exempt(endpoint))


def limited_to_exempt(limiter: Limiter, endpoint: Endpoint) -> Endpoint:
    """Say both in one decorator."""
    return limiter.limit(EXEMPT)(endpoint)


BOTH = [limited_then_exempt, exempt_then_limited, limited_to_exempt]


@pytest.mark.parametrize("decorate", BOTH)
def test_a_function_is_either_limited_or_exempt(
    decorate: Callable[[Limiter, Endpoint], Endpoint],
) -> None:
    """Whichever was meant, the other one is to be removed."""

    async def handler() -> None:
        """Do nothing."""

    with pytest.raises(ViewDefinitionError, match="exempt"):
        decorate(Limiter(), handler)


# --- options --------------------------------------------------------------------------


@ours
async def test_a_cost_is_charged_for_each_request(way: Way, store: MemoryStore) -> None:
    """A request that costs two leaves two less."""
    app = way(Limiter(Limit("5/h", cost=2), store=store), hello)

    received = await answers(app, *["GET /"] * 3)

    assert [(200, "3"), (200, "1"), (429, "1")] == [
        (answer.status_code, answer.headers["RateLimit-Remaining"])
        for answer in received
    ]
    assert "720" == received[2].headers["Retry-After"]


def test_options_are_not_for_a_finished_limit() -> None:
    """They are in the `Limit` already, or belong there."""
    with pytest.raises(
        ConfigurationError, match=r"Write it in the Limit: Limit\(…, cost"
    ):
        Limiter().limit(Limit("5/h"), cost=2)


async def test_options_are_for_each_quota_of_a_text() -> None:
    """One text can be a list of quotas, one decorator a list of limits."""
    store = Relay()
    app = FastAPI()
    app.add_api_route("/", Limiter(store=store).limit("5/h; 50/d", cost=2)(hello))

    assert [200] == await statuses(app, "GET /")

    assert [("5/h", 2), ("50/d", 2)] == [
        (str(charge.quota), charge.cost) for charge in store.calls[0]
    ]


async def test_the_default_of_the_limiter_is_taken_when_the_decorator_is_written() -> (
    None
):
    """`@limiter.limit()` is the default; options of the decorator complete it."""
    store = Relay()
    app = FastAPI()
    app.add_api_route("/", Limiter("5/h", store=store).limit(cost=3)(hello))

    assert [200] == await statuses(app, "GET /")

    assert [("5/h", 3)] == [(str(each.quota), each.cost) for each in store.calls[0]]


async def test_one_decorator_limits_each_function_it_decorates() -> None:
    """A limit that is kept under a name is no bucket that functions share."""
    once = Limiter().limit("1/h")
    app = FastAPI()
    app.add_api_route("/hello", once(hello))
    app.add_api_route("/other", once(no_parameters))

    assert [200, 200, 429, 429] == await statuses(
        app, "GET /hello", "GET /other", "GET /hello", "GET /other"
    )


class Teapot(HTTPException):
    """Is made in a way of its own."""

    def __new__(cls, *, kind: str) -> Self:
        """Take what others do not."""
        return super().__new__(cls, kind)

    def __init__(self, *, kind: str) -> None:
        super().__init__(418, kind)


async def test_an_error_that_is_made_in_its_own_way_has_the_fields() -> None:
    """It is told on itself where no copy can be made."""
    limiter = Limiter()
    app = FastAPI()

    @app.get("/")
    @limiter.limit("5/h")
    async def brew() -> None:
        raise Teapot(kind="green")

    [answer] = await answers(app, "GET /")

    assert (418, "4") == (answer.status_code, answer.headers["RateLimit-Remaining"])


class Kettle(HTTPException):
    """Keeps what it knows in a slot."""

    __slots__ = ("kind",)

    def __init__(self, *, kind: str) -> None:
        super().__init__(418)
        self.kind = kind


async def test_an_error_comes_to_its_handler_as_it_was_raised() -> None:
    """With all that it carries, and with its own cause."""
    limiter = Limiter()
    app = FastAPI()

    @app.exception_handler(418)
    async def explain(_request: Request, error: HTTPException) -> JSONResponse:
        kind = error.kind if isinstance(error, Kettle) else None
        content = [kind, repr(error.__cause__), error.__suppress_context__]
        return JSONResponse(content, 418, error.headers)

    @app.get("/slot")
    @limiter.limit("5/h")
    async def brew() -> None:
        raise Kettle(kind="black") from KeyError("cup")

    @app.get("/plain")
    @limiter.limit("5/h")
    async def other() -> None:
        raise HTTPException(418) from KeyError("spoon")

    slot, plain = await answers(app, "GET /slot", "GET /plain")

    assert ["black", "KeyError('cup')", True] == slot.json()
    assert [None, "KeyError('spoon')", True] == plain.json()
    assert ["4", "4"] == [
        answer.headers["RateLimit-Remaining"] for answer in (slot, plain)
    ]


async def test_a_route_of_starlette_limits_too() -> None:
    """It gives the request by position, and needs nothing else."""
    limiter = Limiter()

    async def plain(_request: Request) -> Response:
        return Response("plain")

    app = FastAPI()
    app.add_route("/", limiter.limit("1/h")(plain))

    first, second = await answers(app, "GET /", "GET /")

    assert (200, "0") == (first.status_code, first.headers["RateLimit-Remaining"])
    assert 429 == second.status_code


async def test_a_call_without_a_request_is_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It is a call from Python; or a decorator in between hides the limit."""
    limited = Limiter().limit("1/h")(hello)

    assert [await limited(), await limited()] == [await hello(), await hello()]
    [message] = caplog.messages
    assert "hello was called without a request, so it was not limited" in message
    assert "lacks functools.wraps" in message


async def test_head_is_no_second_budget() -> None:
    """A function that is registered for GET and then for HEAD is one handler."""
    limiter = Limiter()
    limited = limiter.limit("1/h")(hello)
    app = FastAPI()
    app.get("/")(limited)
    app.head("/")(limited)

    assert [200, 429] == await statuses(app, "GET /", "HEAD /")


async def test_a_function_under_two_quotas_has_two_counts() -> None:
    """Each decoration makes a route of its own, named by its order."""
    limiter = Limiter(store=frozen_store())
    app = FastAPI()
    app.get("/a")(limiter.limit("2/m")(hello))
    with pytest.warns(UserWarning, match="2 different objects named"):
        app.get("/b")(limiter.limit("100/m")(hello))

    received = await answers(app, "GET /b", "GET /a", "GET /b")

    remaining = [each.headers["RateLimit-Remaining"] for each in received]
    assert ["99", "1", "98"] == remaining


def test_a_decorator_without_parentheses_is_refused() -> None:
    """It would take the function for one that chooses a quota."""
    bare: Any = Limiter().limit

    async def find(_request: Request) -> dict[str, str]:
        return {}

    with pytest.raises(ViewDefinitionError, match=r"limit\('5/m'\) with parentheses"):
        bare(find)
