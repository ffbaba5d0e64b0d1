"""Corners of the work with FastAPI, each of which let something through once."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Generic, TypeVar

import fastapi
import pytest
from fastapi import APIRouter, Depends, FastAPI, HTTPException
from fastapi.exception_handlers import http_exception_handler
from fastapi.exceptions import FastAPIError
from starlette.requests import HTTPConnection, Request
from starlette.requests import Request as StarletteRequest
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

import throttled_views
from tests.asgi import Relay, answers, app_of, statuses
from throttled_views import (
    Algorithm,
    Charge,
    ConfigurationError,
    Limit,
    Limiter,
    RateLimitMiddleware,
    RateLimitResult,
    RegistrationError,
    StoreUnavailableError,
    ThrottledRouter,
    ThrottledView,
    ViewDefinitionError,
    audit,
    everyone,
    route,
)
from throttled_views._binding import includes_by_endpoint
from throttled_views._endpoints import is_guarded
from throttled_views._plan import wait_for_turn
from throttled_views.context import Outcome

if TYPE_CHECKING:

    class Unknown(str):
        """Exists for type checkers only."""

        __slots__ = ()


ItemT = TypeVar("ItemT")


async def user() -> str:
    """Be a dependency."""
    return "alice"


async def by_user(name: Annotated[str, Depends(user)]) -> str:
    """Name a client late: FastAPI has to solve it."""
    return name


def name_of_type(thing: object) -> str:
    """Return what a parameter is called."""
    return type(thing).__name__


# --- routes


class Taken(ThrottledView):
    """A view whose endpoint is taken to another router."""

    path = "/view"
    throttle = "2/h"

    async def get(self) -> int:
        """Be limited."""
        return 1


def taken_to(router: APIRouter) -> FastAPI:
    """Return an application with *router*, and another one with its endpoints."""
    other = APIRouter(prefix="/taken")
    for each in router.routes:
        endpoint: Any = getattr(each, "endpoint", None)
        other.add_api_route(getattr(each, "path", ""), endpoint)
    return app_of(router, other)


def three_on(limiter: Limiter) -> ThrottledRouter:
    """Return a router with a view, a limited function, and one by the default."""
    router = ThrottledRouter(limiter)
    router.add_view(Taken)

    @router.get("/function")
    @limiter.limit("2/h")
    async def function() -> int:
        return 1

    @router.get("/default")
    async def default() -> int:
        return 1

    return router


@pytest.mark.parametrize("path", ["/view", "/function", "/default"])
async def test_an_endpoint_that_is_taken_along_is_limited_or_found(path: str) -> None:
    """Libraries make routes of their own of an endpoint; an audit tells the truth."""
    app = taken_to(three_on(Limiter("2/h")))
    requests = (f"GET /taken{path}", f"GET {path}", f"GET /taken{path}", f"GET {path}")
    is_limited = [200, 200, 429, 429] == await statuses(app, *requests)

    assert includes_by_endpoint() == is_limited
    [taken] = [each for each in audit(app) if each.path == f"/taken{path}"]
    assert is_limited == (not taken.is_unlimited)
    if path != "/default":  # which says nothing of itself
        assert is_limited == (taken.problem is None)


def test_a_route_without_methods_is_refused() -> None:
    """Starlette takes no methods for all there are."""
    router = ThrottledRouter(Limiter("2/h"))

    with pytest.raises(RegistrationError, match="it has no methods"):
        router.add_api_route("/", user, methods=[], operation_id="x")


async def test_a_plain_route_without_methods_has_one_budget() -> None:
    """No client chooses a budget by the name of its method."""
    app = FastAPI()
    endpoint = Limiter().limit("2/h")(user)
    app.router.add_api_route("/", endpoint, methods=[], operation_id="x")
    requests = [f"M{number} /" for number in range(4)]

    assert [200, 200, 429, 429] == await statuses(app, *requests)


@pytest.mark.parametrize(
    ("earlier", "later"),
    [
        ("/{tenant}/{id}", "/{tenant}/health"),
        ("/{x}", "/{y:int}"),
        ("/{rest:path}", "/{id}/meta"),
        ("/{x:float}", "/{y:int}"),
    ],
)
def test_a_path_that_an_earlier_one_takes_is_refused(earlier: str, later: str) -> None:
    """Also below a parameter, and where a parameter takes all that another does."""
    router = ThrottledRouter(Limiter("2/h"))
    router.add_api_route(earlier, user, name="first")

    with pytest.raises(RegistrationError, match="the earlier first"):
        router.add_api_route(later, by_user, name="second")


@pytest.mark.parametrize(
    ("earlier", "later"),
    [
        ("/{tenant}/me", "/{tenant}/{id}"),
        ("/{x:int}", "/{y}"),
        ("/{id}", "/{name}"),
        ("/{x}", "/{rest:path}"),
        ("/{x:int}", "/{y:float}"),
    ],
)
def test_a_path_that_is_reached_is_not_refused(earlier: str, later: str) -> None:
    """A function may be registered twice, and what is left over may be served."""
    router = ThrottledRouter(Limiter("2/h"))
    router.add_api_route(earlier, user, name="first")
    router.add_api_route(later, by_user, name="second")

    assert 2 == len(router.routes)


# --- what is charged


@pytest.mark.parametrize("outer", ["dependency", "middleware"])
async def test_the_dearest_limit_of_a_bucket_is_what_is_charged(outer: str) -> None:
    """A budget of the application does not hide what an endpoint costs."""
    limiter = Limiter()
    app = FastAPI()
    if outer == "middleware":
        app.add_middleware(
            RateLimitMiddleware, limiter=limiter, throttle=Limit("10/h", bucket="api")
        )
    depends = Depends(limiter.dependency("10/h", bucket="api"))
    extra = [depends] if outer == "dependency" else []

    @app.get("/", dependencies=extra)
    @limiter.limit("10/h", bucket="api", cost=4)
    async def get() -> int:
        return 1

    received = await answers(app, *["GET /"] * 3)

    assert [200, 200, 429] == [each.status_code for each in received]
    assert ["6", "2"] == [each.headers["RateLimit-Remaining"] for each in received[:2]]


async def test_what_a_later_function_raises_is_not_charged() -> None:
    """The charge of one limiter comes back if the key function of another raises."""

    def refuse(_request: Request) -> str:
        raise HTTPException(400)

    one, two = Limiter(), Limiter()
    router = ThrottledRouter(one)

    @router.get("/")
    @two.limit("2/h", key_func=refuse)
    @one.limit("2/h")
    async def get() -> int:
        return 1

    assert [400] * 4 == await statuses(app_of(router), *["GET /"] * 4)


async def test_requests_in_a_request_are_charged_each() -> None:
    """A handler that dispatches a copy of its scope makes another request of it."""
    limiter = Limiter()
    app = FastAPI()
    app.add_middleware(RateLimitMiddleware, limiter=limiter, throttle="3/h")

    @app.get("/one")
    async def one() -> int:
        return 1

    @app.get("/batch")
    async def batch(request: Request) -> list[int]:
        found: list[int] = []

        async def send(message: Message) -> None:
            if message["type"] == "http.response.start":
                found.append(message["status"])

        async def receive() -> Message:
            return {"type": "http.request"}

        for _ in range(4):
            inner = {**request.scope, "path": "/one", "raw_path": b"/one"}
            await app(inner, receive, send)
        return found

    [received] = await answers(app, "GET /batch")

    assert [200, 200, 429, 429] == received.json()


@pytest.mark.skipif(not hasattr(APIRouter, "frontend"), reason="FastAPI has none")
async def test_the_files_of_a_frontend_are_limited(tmp_path: Path) -> None:
    """They have no endpoint, and one budget."""
    (tmp_path / "index.html").write_text("hello")
    app = FastAPI(dependencies=[Depends(Limiter().dependency("2/h"))])
    frontend: Any = getattr(app, "frontend", None)
    frontend("/site", directory=tmp_path)

    requests = ["GET /site/index.html"] * 3
    assert [200, 200, 429] == await statuses(app, *requests)


@pytest.mark.parametrize(
    "limits",
    [
        [
            Limit("2/h", name="a fixed_window"),
            Limit("2/h", name="a", using=Algorithm.FIXED_WINDOW),
        ],
        [Limit("2/h", name="a shadow"), Limit("2/h", name="a", shadow=True)],
    ],
    ids=["an algorithm", "a shadow"],
)
async def test_no_name_is_what_we_add_to_another(limits: list[Limit]) -> None:
    """Two limits that shared a key by different algorithms would forget each other."""
    router = ThrottledRouter(Limiter(limits))
    router.add_api_route("/", user)

    assert [200, 200, 429] == await statuses(app_of(router), *["GET /"] * 3)


class Buffering:
    """Middleware that sends a response once it has all of it."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Collect, and send."""
        messages: list[Message] = []

        async def collect(message: Message) -> None:
            messages.append(message)

        await self._app(scope, receive, collect)
        for message in messages:
            await send(message)


async def test_a_response_that_is_sent_later_is_what_settles() -> None:
    """Between a route and a middleware of ours something may hold a response back."""
    limiter = Limiter()
    app = FastAPI()
    app.add_middleware(Buffering)
    app.add_middleware(RateLimitMiddleware, limiter=limiter, throttle="99/h")
    router = ThrottledRouter(limiter)
    kept = Limit("2/h", refund_when=lambda status: status >= 500)
    router.add_api_route("/", limiter.limit(kept)(user))
    app.include_router(router)

    assert [200, 200, 429] == await statuses(app, *["GET /"] * 3)


class Slow(Relay):
    """A store that answers when it is let."""

    def __init__(self, *, fails: bool = False) -> None:
        super().__init__()
        self.asked, self.let = asyncio.Event(), asyncio.Event()
        self._fails = fails

    async def acquire(self, charges: Sequence[Charge], /) -> Sequence[RateLimitResult]:
        """Charge, and answer later."""
        results = await super().acquire(charges)
        self.asked.set()
        await self.let.wait()
        if self._fails:
            msg = "no answer"
            raise StoreUnavailableError(msg)
        return results


@pytest.mark.parametrize(("fails", "left"), [(False, 5), (True, 4)])
async def test_who_hangs_up_while_the_store_is_asked_is_settled(
    *, fails: bool, left: int
) -> None:
    """The charge may be on its way; it comes back when it is known, if it should."""
    store = Slow(fails=fails)
    router = ThrottledRouter(Limiter(store=store))
    back = Limit(
        "5/h",
        refund_when=lambda status: status == 499,
        on_store_error="deny" if fails else None,
    )

    @router.get("/")
    @Limiter(store=store).limit(back)
    async def get() -> int:
        return 1

    request = asyncio.create_task(answers(app_of(router), "GET /"))
    await store.asked.wait()
    request.cancel()
    with pytest.raises(asyncio.CancelledError):
        await request
    store.let.set()
    for _ in range(10):  # turns of the loop, for all that is left to do
        await asyncio.sleep(0)

    [[charge]] = store.calls
    [state] = await store.peek([charge])
    assert left == state.state.remaining


async def test_a_limit_that_gives_nothing_back_keeps_what_it_shares() -> None:
    """A middleware that charged the same bucket does not take it back from a route."""
    limiter = Limiter()
    app = FastAPI()
    app.add_middleware(
        RateLimitMiddleware,
        limiter=limiter,
        throttle=Limit("2/h", bucket="b", refund_when=lambda status: status < 400),
    )

    @app.get("/kept")
    @limiter.limit("2/h", bucket="b")
    async def kept() -> int:
        return 1

    @app.get("/back")
    async def back() -> int:
        return 1

    requests = ["GET /back"] * 3 + ["GET /kept"] * 3
    assert [200] * 5 + [429] == await statuses(app, *requests)


async def test_a_limit_that_gives_back_lets_go_of_what_it_shares() -> None:
    """Where both would give it back, all that one of them charged comes back."""
    limiter = Limiter()
    back = Limit("2/h", bucket="b", refund_when=lambda status: status < 400)
    app = FastAPI()
    app.add_middleware(RateLimitMiddleware, limiter=limiter, throttle=back)

    @app.get("/")
    @limiter.limit(back)
    async def get() -> int:
        return 1

    received = await answers(app, *["GET /"] * 4)

    assert [200] * 4 == [each.status_code for each in received]
    assert {"2"} == {each.headers["RateLimit-Remaining"] for each in received}


async def test_a_turn_that_has_come_is_not_waited_for() -> None:
    """What else a decision takes is part of the wait."""
    outcome = Outcome()
    outcome.turn_at = asyncio.get_running_loop().time() - 1
    before = asyncio.get_running_loop().time()
    await wait_for_turn(outcome)

    assert (0.0, True) == (
        outcome.turn_at,
        asyncio.get_running_loop().time() - before < 1,
    )


def test_a_limiter_is_what_it_was_made() -> None:
    """What is set later would change nothing, but for `enabled`."""
    limiter = Limiter()
    limiter.enabled = False

    with pytest.raises(ConfigurationError, match=r"Write Limiter\(…, prefix=…\)"):
        limiter.prefix = "other"


def test_what_does_not_tell_what_it_takes_has_no_guard() -> None:
    """An audit asks it of whatever is an endpoint."""
    assert not is_guarded(max)


def test_what_is_seldom_asked_for_is_there() -> None:
    """It is imported late, and listed all the same."""
    assert {"audit", "document_limits"} <= {*dir(throttled_views)}
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = throttled_views.nonsense


async def test_an_observed_limit_leaves_the_others_where_they_are() -> None:
    """A limit of all clients is decided early, whatever somebody tries beside it."""
    observed = Limit("9/h", key_func=by_user, shadow=True)
    router = ThrottledRouter(Limiter([Limit("2/h", key_func=everyone), observed]))
    router.add_api_route("/", user)

    [found] = [each for each in audit(app_of(router)) if each.limits]
    assert {"2/h": "early", "9/h": "late"} == {
        each.quota: each.phase for each in found.limits
    }
    app = app_of(router)
    assert [200, 200, 429] == await statuses(app, *["GET /"] * 3)


# --- what a guard is around


async def test_a_sync_function_may_call_a_parameter_handler() -> None:
    """No name of ours is in the way of a user's."""
    router = ThrottledRouter(Limiter(Limit("2/h", key_func=by_user)))

    @router.get("/")
    def get(handler: str) -> str:
        return handler

    [received] = await answers(app_of(router), "GET /?handler=x")
    assert "x" == received.json()


async def test_a_handler_may_take_what_a_guard_takes() -> None:
    """FastAPI gives the connection, and the response, to one parameter only."""
    app = FastAPI()

    @app.get("/")
    @Limiter().limit("2/h", key_func=by_user)
    async def get(
        mine: Annotated[HTTPConnection, "mine"], answer: Response, q: int = 0
    ) -> list[object]:
        answer.headers["X-Mine"] = mine.url.path
        return [q, mine.url.path]

    [received] = await answers(app, "GET /?q=3")

    assert [3, "/"] == received.json()
    assert ("/", "1") == (
        received.headers["X-Mine"],
        received.headers["RateLimit-Remaining"],
    )


class Streamer:
    """An object that streams when it is called."""

    async def __call__(self) -> AsyncIterator[int]:
        """Yield."""
        for number in range(3):
            yield number


class SyncStreamer:
    """An object that streams in a thread."""

    def __call__(self) -> Iterator[int]:
        """Yield."""
        yield from range(3)


@pytest.mark.skipif(
    tuple(map(int, fastapi.__version__.split(".")[:2])) < (0, 134),
    reason="FastAPI does not stream what is yielded",
)
@pytest.mark.parametrize(
    "streamer", [Streamer(), SyncStreamer()], ids=["async", "sync"]
)
async def test_an_object_that_streams_is_served(streamer: Callable[..., Any]) -> None:
    """What FastAPI takes for a stream is one for a guard, too, and keeps its name."""
    router = ThrottledRouter(Limiter(Limit("2/h", key_func=by_user)))
    router.add_api_route("/", streamer)
    app = app_of(router)
    received = await answers(app, "GET /", "GET /", "GET /")

    assert [200, 200, 429] == [each.status_code for each in received]
    assert ["0", "1", "2"] == received[0].text.split()
    assert "/" == app.url_path_for(type(streamer).__name__)


class Slotted(HTTPException):
    """An error with an attribute in a slot, and one that is not set."""

    __slots__ = ("code", "unset")

    def __init__(self) -> None:
        super().__init__(404)
        self.code = 7


class MadeOtherwise(HTTPException):
    """An error whose class takes what Python does not give it again."""

    def __new__(cls, *, code: int = 7) -> MadeOtherwise:  # noqa: PYI034 - for 3.11
        """Be made by keyword only."""
        self = super().__new__(cls)
        self.code = code
        return self

    def __init__(self, *, code: int = 7) -> None:
        super().__init__(404)
        self.code = code


class OfTheSystemError(HTTPException, FileNotFoundError):
    """An error that Python makes in a way of its own, for what the system tells."""


class ToldByTheSystemError(HTTPException, OSError):
    """An error that knows what the system told."""

    def __init__(self) -> None:
        HTTPException.__init__(self, 404)
        OSError.__init__(self, 2, "No such book", "emma.txt")


class WrittenOnce(HTTPException):
    """An error that sets no attribute twice."""

    def __setattr__(self, name: str, value: object) -> None:
        """Set what is not set yet."""
        if name in vars(self):
            raise AttributeError(name)
        super().__setattr__(name, value)


class OfItsOwn(HTTPException):
    """An error that makes its header fields itself."""

    def __init__(self) -> None:
        self.status_code, self.detail = 404, "Not found"

    @property
    def headers(self) -> Mapping[str, str]:  # type: ignore[override]
        """The fields."""
        return {"X-Own": "1"}


async def test_an_error_that_cannot_be_made_again_is_answered_as_it_is() -> None:
    """Without the fields: that is better than a 500 for what the handler has done."""
    app = FastAPI()

    @app.get("/")
    @Limiter().limit("5/h")
    async def get() -> int:
        raise OfItsOwn

    [received] = await answers(app, "GET /")

    assert (404, "1") == (received.status_code, received.headers["X-Own"])


@pytest.mark.parametrize(
    "error",
    [
        Slotted(),
        MadeOtherwise(),
        OfTheSystemError(404),
        ToldByTheSystemError(),
        WrittenOnce(404),
        HTTPException(404),
    ],
    ids=lambda e: type(e).__name__,
)
async def test_an_error_of_the_user_is_never_changed(error: HTTPException) -> None:
    """It may be raised for each request; the fields are of that request."""
    app = FastAPI()

    @app.get("/")
    @Limiter().limit("5/h")
    async def get() -> int:
        raise error

    raised: list[HTTPException] = []

    @app.exception_handler(HTTPException)
    async def answer(request: Request, exc: HTTPException) -> Response:
        raised.append(exc)
        return await http_exception_handler(request, exc)

    received = await answers(app, *["GET /"] * 3)

    assert [404] * 3 == [each.status_code for each in received]
    assert ["4", "3", "2"] == [each.headers["RateLimit-Remaining"] for each in received]
    assert error.headers is None
    assert [7] * 3 == [getattr(each, "code", 7) for each in raised]
    assert [error.args] * 3 == [each.args for each in raised]
    assert [str(error)] * 3 == [str(each) for each in raised]


async def test_a_middleware_raises_again_what_starlette_would() -> None:
    """A handler of `Exception` answers, and the server still gets to see the error."""

    def fail(_request: Request) -> str:
        raise ZeroDivisionError

    app = FastAPI()
    limiter = Limiter(key_func=fail)
    app.add_middleware(RateLimitMiddleware, limiter=limiter, throttle="3/h")

    @app.exception_handler(Exception)
    async def answer(_request: Request, _error: Exception) -> Response:
        return Response("sorry", 500)

    with pytest.raises(ZeroDivisionError):
        await answers(app, "GET /")
    assert [500] == await statuses(app, "GET /")


# --- what a declaration takes


def by_alias(request: StarletteRequest) -> Unknown:
    """Be annotated with a name that exists for type checkers only."""
    return request.headers["X-Name"]  # type: ignore[return-value] # pyright: ignore[reportReturnType]


async def test_an_annotation_that_is_unknown_leaves_the_others_alone() -> None:
    """A key function that takes the request is early, whatever it returns."""
    router = ThrottledRouter(Limiter(Limit("2/h", key_func=by_alias)))
    router.add_api_route("/", user)
    app = app_of(router)

    assert [("early", 1)] == [
        (each.limits[0].phase, len(each.limits)) for each in audit(app) if each.limits
    ]


def yields(request: Request) -> Iterator[str]:
    """Yield a key."""
    yield request.url.path


async def yields_async(request: Request) -> AsyncIterator[str]:
    """Yield a key."""
    yield request.url.path


@pytest.mark.parametrize("function", [yields, yields_async], ids=["sync", "async"])
def test_a_function_that_yields_is_refused(function: Callable[..., Any]) -> None:
    """Nobody would go on with it: it is called once for each request."""
    with pytest.raises(ConfigurationError, match="yields"):
        Limiter(Limit("2/h", key_func=function))


def test_a_constructor_that_takes_a_request_cannot_serve_a_socket() -> None:
    """That is told at registration, not at the first handshake."""

    class Chat(ThrottledView):
        path = "/chat"
        throttle = "2/h"

        def __init__(self, request: Request) -> None:
            self.request = request

        @route.websocket("/")
        async def talk(self) -> None: ...

    with pytest.raises(ViewDefinitionError, match="has no Request to give"):
        Chat.as_router()


async def test_a_frozen_dataclass_may_have_what_is_injected() -> None:
    """An attribute is injected before the constructor of a dataclass runs."""

    @dataclasses.dataclass(frozen=True)
    class Frozen(ThrottledView):
        path: ClassVar[str] = "/"  # type: ignore[misc]  # pyright: ignore[reportIncompatibleVariableOverride]
        throttle: ClassVar[Any] = "2/h"  # type: ignore[misc]
        request: Annotated[Request, "of this request"] = dataclasses.field(init=False)

        async def get(self) -> str:
            return self.request.url.path

    [received] = await answers(app_of(Frozen.as_router()), "GET /")
    assert "/" == received.json()


def test_a_route_is_not_added_to_a_finished_view() -> None:
    """A class decorator that does so would change nothing."""

    @route.get("/extra")
    async def extra(self: Taken) -> int:
        return 1

    with pytest.raises(ViewDefinitionError, match="when the class was made"):
        Taken.extra = extra


def without_parentheses(limiter: Limiter, app: FastAPI) -> None:
    """Give a decorator the function that it is to decorate, for a quota."""
    unchecked: Any = limiter.limit
    app.add_api_route("/", unchecked(user))


def as_a_dependency(limiter: Limiter, app: FastAPI) -> None:
    """Depend on a decorator."""
    app.add_api_route("/", user, dependencies=[Depends(limiter.limit("5/h"))])


@pytest.mark.parametrize("write", [without_parentheses, as_a_dependency])
def test_a_decorator_is_neither_an_endpoint_nor_a_dependency(
    write: Callable[[Limiter, FastAPI], None],
) -> None:
    """FastAPI would answer each request 422, for want of a handler."""
    with pytest.raises(FastAPIError, match="LimitIsADecorator"):
        write(Limiter(), FastAPI())


class Collection(ThrottledView, Generic[ItemT]):
    """A view with a type variable."""

    throttle = "2/h"

    async def get(self) -> ItemT:
        """Return one."""
        raise NotImplementedError


def test_a_generic_view_with_arguments_is_no_class() -> None:
    """The message says what to write."""
    router = ThrottledRouter(Limiter())

    with pytest.raises(RegistrationError, match="it is no class of its own"):
        router.add_view(Collection[int])
