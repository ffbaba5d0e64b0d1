"""What a request gets back once it is known how it ended: `Limit.refund_when`."""

import asyncio
import gc
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any

import anyio
import pytest
from fastapi import (
    APIRouter,
    BackgroundTasks,
    FastAPI,
    HTTPException,
    Request,
    WebSocket,
)
from fastapi.responses import (
    JSONResponse,
    PlainTextResponse,
    RedirectResponse,
    Response,
    StreamingResponse,
)
from hypothesis import given
from hypothesis import strategies as st
from starlette.middleware.base import BaseHTTPMiddleware, RequestResponseEndpoint
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tests.asgi import (
    Relay,
    answers,
    app_of,
    fields_of,
    frozen,
    frozen_store,
    handshake,
    http_scope,
    sent,
    statuses,
)
from tests.noted import Notes
from throttled_views import (
    Charge,
    ConfigurationError,
    Limit,
    Limiter,
    RateLimitMiddleware,
    RateLimitResult,
    Receipt,
    RefundWhen,
    Store,
    StoreUnavailableError,
    ThrottledRouter,
    ThrottledView,
    limit,
)

CAPACITY = 100


class Recorder:
    """A `refund_when` that gives all back, and notes what it is asked."""

    def __init__(self, *, gives_back: bool = True) -> None:
        self.statuses: list[int] = []
        self._gives_back = gives_back

    def __call__(self, status: int) -> bool:
        """Note *status*."""
        self.statuses.append(status)
        return self._gives_back


async def ok() -> dict[str, str]:
    """Succeed."""
    return {}


async def created() -> Response:
    """Return a response with a status of its own."""
    return JSONResponse({}, 201)


async def redirected() -> Response:
    """Send elsewhere."""
    return RedirectResponse("/")


async def missing() -> None:
    """Raise what FastAPI answers."""
    raise HTTPException(404)


async def broken() -> None:
    """Raise what nobody answers."""
    raise ZeroDivisionError


class TakenError(Exception):
    """Answered by a handler of the application."""


async def taken() -> None:
    """Raise what the application answers."""
    raise TakenError


async def chosen(response: Response) -> dict[str, str]:
    """Choose a status on FastAPI's response."""
    response.status_code = 202
    return {}


async def streamed() -> Response:
    """Begin to stream, and fail in the middle."""

    async def parts() -> AsyncIterator[bytes]:
        yield b"a"
        raise ZeroDivisionError

    return StreamingResponse(parts())


async def in_background(tasks: BackgroundTasks) -> dict[str, str]:
    """Succeed, and fail in the background."""

    def fail() -> None:
        raise ZeroDivisionError

    tasks.add_task(fail)
    return {}


async def invalid(number: int) -> int:
    """Want what is not given."""
    return number


async def nonsense() -> int:
    """Return what cannot be a response."""
    return "nonsense"  # type: ignore[return-value] # pyright: ignore[reportReturnType]


ENDINGS: dict[str, tuple[Callable[..., Any], int]] = {
    "a model": (ok, 200),
    "a response": (created, 201),
    "a redirect": (redirected, 307),
    "an HTTPException": (missing, 404),
    "an error": (broken, 500),
    "a handler of the application": (taken, 409),
    "a chosen status": (chosen, 202),
    "a stream that breaks": (streamed, 200),
    "a background task that fails": (in_background, 200),
    "a request that is invalid": (invalid, 422),
    "a response that is invalid": (nonsense, 500),
}
# What the guard of a plain function cannot see: what others make of it further out.
SEEN_BY_A_GUARD = {taken: 500, nonsense: 200, invalid: None}


async def answer_taken(_request: Request, _error: Exception) -> Response:
    """Answer as an application may."""
    return PlainTextResponse("taken", 409)


def application(router: APIRouter) -> FastAPI:
    """Return an application that includes *router*."""
    app = FastAPI(exception_handlers={TakenError: answer_taken})
    app.include_router(router)
    return app


@pytest.mark.parametrize(("handler", "status"), ENDINGS.values(), ids=ENDINGS)
async def test_a_route_is_settled_by_the_status_of_its_response(
    handler: Callable[..., Any], status: int
) -> None:
    """It is asked once, with what the client is sent, or 500 for an error."""
    limiter, when = frozen(), Recorder()
    router = ThrottledRouter(limiter)
    router.get("/")(limiter.limit("5/h", refund_when=when)(handler))

    with suppress(ZeroDivisionError):
        await answers(application(router), "GET /", raising=False)

    assert [status] == when.statuses


async def late_key(page: int = 1) -> str:
    """Name a client by what FastAPI solves."""
    return f"page {page}"


@pytest.mark.parametrize(("handler", "status"), ENDINGS.values(), ids=ENDINGS)
async def test_a_late_limit_beside_a_quick_one_is_settled(
    handler: Callable[..., Any], status: int
) -> None:
    """Also where the route has an early limit that is decided on the quick way."""
    limiter, when = frozen(), Recorder()
    router = ThrottledRouter(limiter)
    late = Limit("5/h", key_func=late_key, refund_when=when)
    router.get("/")(limiter.limit(["9/h", late])(handler))

    with suppress(ZeroDivisionError):
        await answers(application(router), "GET /", raising=False)

    # A request that is invalid does not get as far as to a late limit.
    assert ([] if handler is invalid else [status]) == when.statuses


@pytest.mark.parametrize(("handler", "status"), ENDINGS.values(), ids=ENDINGS)
async def test_a_middleware_is_settled_by_the_status_of_the_response(
    handler: Callable[..., Any], status: int
) -> None:
    """Whatever made the response, it has one status."""
    when = Recorder()
    router = APIRouter()
    router.get("/")(handler)
    app = application(router)
    throttle = Limit("5/h", refund_when=when)
    app.add_middleware(RateLimitMiddleware, limiter=frozen(), throttle=throttle)

    with suppress(ZeroDivisionError):
        await answers(app, "GET /", raising=False)

    assert [status] == when.statuses


@pytest.mark.parametrize("is_kept", [False, True], ids=["both", "one"])
async def test_what_a_middleware_and_a_route_charge_comes_back_if_both_give_it_back(
    *, is_kept: bool
) -> None:
    """A bucket of both is charged once; one that keeps it rests on that charge."""
    limiter, back = frozen(), Recorder()
    shared = Limit("5/h", bucket="b", refund_when=back)
    own = Limit("5/h", bucket="b") if is_kept else shared
    router = ThrottledRouter(limiter)
    router.get("/")(limiter.limit(own)(ok))
    app = application(router)
    app.add_middleware(RateLimitMiddleware, limiter=limiter, throttle=shared)

    received = await answers(app, *["GET /"] * 3)

    left = ["4", "3", "2"] if is_kept else ["5", "5", "5"]
    assert left == [each.headers["RateLimit-Remaining"] for each in received]


@pytest.mark.parametrize(("handler", "status"), ENDINGS.values(), ids=ENDINGS)
@pytest.mark.parametrize("is_told", [False, True], ids=["plain", "in a middleware"])
async def test_a_plain_function_is_settled_by_what_it_returns(
    handler: Callable[..., Any], status: int, *, is_told: bool
) -> None:
    """Without a middleware that sees the response it is by what the function does."""
    limiter, when = frozen(), Recorder()
    router = APIRouter()
    router.get("/")(limiter.limit("5/h", refund_when=when)(handler))
    app = application(router)
    if is_told:
        app.add_middleware(RateLimitMiddleware, limiter=limiter)

    with suppress(ZeroDivisionError):
        await answers(app, "GET /", raising=False)

    seen = status if is_told else SEEN_BY_A_GUARD.get(handler, status)
    # An invalid request does not get as far as to the function.
    assert ([] if seen is None or handler is invalid else [seen]) == when.statuses


@pytest.mark.parametrize(
    ("options", "status"),
    [
        ({"status_code": 201}, 201),
        ({"response_class": PlainTextResponse}, 200),
        ({"response_class": RedirectResponse}, 307),
    ],
    ids=["declared", "of a class", "a redirect"],
)
@pytest.mark.parametrize("kind", [APIRouter, ThrottledRouter])
async def test_the_status_is_what_the_route_says(
    kind: type[APIRouter], options: dict[str, Any], status: int
) -> None:
    """A declared status counts, and that of a response class."""
    limiter, when = frozen("9/h"), Recorder()
    router = kind() if kind is APIRouter else ThrottledRouter(limiter)

    @router.get("/", **options)
    @limiter.limit("5/h", refund_when=when)
    async def get() -> str:
        return "/"

    [answer] = await answers(app_of(router), "GET /")

    assert (status, [status]) == (answer.status_code, when.statuses)


# --- what is counted ------------------------------------------------------------------


async def test_failed_logins_only_are_counted() -> None:
    """Whoever logs in is not charged; whoever fails five times has to wait."""

    class Login(ThrottledView):
        path = "/login"

        @limit("5/m", refund_when=lambda status: status < 400)
        async def post(self, password: str) -> str:
            if password != "secret":  # noqa: S105
                raise HTTPException(401)
            return "welcome"

    app = app_of(Login.as_router(frozen()))
    right, wrong = "POST /login?password=secret", "POST /login?password=guess"

    assert [200] * 10 == await statuses(app, *[right] * 10)
    told = await answers(app, *[wrong, right] * 5, wrong, right)
    assert [401, 200] * 4 + [401, 429, 429, 429] == [each.status_code for each in told]
    assert ["4", "4", "3", "3"] == [
        each.headers["RateLimit-Remaining"] for each in told[:4]
    ]


async def test_the_fields_tell_what_is_there_afterwards() -> None:
    """As if nothing had been charged: the capacity is whole again."""
    app = app_of(ThrottledView_of(Limit("5/m", refund_when=Recorder(), cost=3)))

    [answer] = await answers(app, "GET /")

    assert {
        "RateLimit-Limit": "5",
        "RateLimit-Remaining": "5",
        "RateLimit-Reset": "0",
    } == fields_of(answer)


def ThrottledView_of(*limits: Limit, limiter: Limiter | None = None) -> ThrottledRouter:  # noqa: N802
    """Return a router of a view that is held to *limits*."""

    class Things(ThrottledView):
        path = "/"
        throttle = [*limits]

        async def get(self, status: int = 200) -> Response:
            return Response(status_code=status)

    return Things.as_router(frozen() if limiter is None else limiter)


async def test_each_of_several_limits_is_asked_for_itself() -> None:
    """What one gives back another one keeps."""
    limiter = frozen()
    failures = Limit("2/h", name="failures", refund_when=lambda status: status < 400)
    successes = Limit("2/h", name="ok", refund_when=lambda status: status >= 400)
    app = app_of(
        ThrottledView_of(failures, successes, Limit("9/h", name="all"), limiter=limiter)
    )

    told = await statuses(app, "GET /", "GET /?status=404", "GET /", "GET /?status=404")

    # Two successes are counted, so nobody knows what the fourth would be.
    assert [200, 404, 200, 429] == told


async def test_what_is_refused_is_not_asked_for() -> None:
    """A request that was charged nothing gets nothing back."""
    when = Recorder(gives_back=False)
    app = app_of(
        ThrottledView_of(Limit("1/h", name="a"), Limit("9/h", refund_when=when))
    )

    assert [200, 429] == await statuses(app, "GET /", "GET /")
    assert [200] == when.statuses


async def test_an_early_charge_is_settled_by_a_late_refusal() -> None:
    """The response is a 429 then, and it is the limit's to say what that costs."""
    limiter, when = frozen(), Recorder()
    router = ThrottledRouter(limiter)

    @router.get("/")
    @limiter.limit([Limit("9/h", refund_when=when), Limit("1/h", key_func=late_key)])
    async def get() -> None: ...

    assert [200, 429] == await statuses(app_of(router), "GET /", "GET /")
    assert [200, 429] == when.statuses


@pytest.mark.parametrize("kind", [APIRouter, ThrottledRouter])
async def test_stacked_limits_are_settled_once_each(kind: type[APIRouter]) -> None:
    """Whichever guard sees the end first."""
    limiter, other = frozen(), frozen()
    whens = [Recorder(gives_back=False) for _ in range(3)]
    router = kind() if kind is APIRouter else ThrottledRouter(limiter)

    @router.get("/")
    @other.limit("9/h", refund_when=whens[2])
    @limiter.limit("8/h", refund_when=whens[1])
    @limiter.limit("7/h", refund_when=whens[0])
    async def get() -> None: ...

    await answers(app_of(router), "GET /", "GET /")

    assert [[200, 200]] * 3 == [each.statuses for each in whens]


# --- cancellations --------------------------------------------------------------------


class Waiting:
    """A route that waits until it is told, or for ever."""

    def __init__(self, *limits: Limit, limiter: Limiter | None = None) -> None:
        self.is_served = asyncio.Event()
        limiter = frozen() if limiter is None else limiter
        router = ThrottledRouter(limiter)

        @router.get("/")
        @limiter.limit([*limits])
        async def get() -> None:
            self.is_served.set()
            await asyncio.Event().wait()

        self.app: ASGIApp = app_of(router)

    async def cancel(self) -> None:
        """Begin a request, and cancel it while it is served."""
        task = asyncio.ensure_future(sent(self.app, http_scope()))
        await self.is_served.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await settling()


async def settling() -> None:
    """Let what was begun in the background come to its end."""
    for _ in range(5):
        await asyncio.sleep(0)


@pytest.mark.parametrize("is_late", [False, True], ids=["early", "late"])
async def test_who_hangs_up_is_settled_as_a_499(*, is_late: bool) -> None:
    """There is no response, so nobody else would settle it."""
    when = Recorder()
    late = Limit("9/h", key_func=late_key if is_late else None, refund_when=when)

    await Waiting(late, Limit("9/h", name="other")).cancel()

    assert [499] == when.statuses


async def test_a_plain_function_that_is_cancelled_is_settled() -> None:
    """Its guard sees that."""
    limiter, when = frozen(), Recorder()

    @limiter.limit("9/h", refund_when=when)
    async def get(request: Request) -> None:
        await asyncio.Event().wait()

    router = APIRouter()
    router.get("/")(get)
    task = asyncio.ensure_future(sent(app_of(router), http_scope()))
    await settling()
    await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await settling()

    assert [499] == when.statuses


async def through(request: Request, call_next: RequestResponseEndpoint) -> Response:
    """Pass a request on."""
    return await call_next(request)


async def test_a_middleware_of_starlette_may_cancel() -> None:
    """A request within a `BaseHTTPMiddleware` is settled when it is cancelled."""
    when = Recorder()
    waiting = Waiting(Limit("9/h", refund_when=when))
    waiting.app = BaseHTTPMiddleware(waiting.app, dispatch=through)

    await waiting.cancel()

    assert [499] == when.statuses


@pytest.mark.parametrize("kind", ["anyio", "asyncio"])
async def test_a_timeout_is_a_cancellation(kind: str) -> None:
    """Whatever the middleware makes of it further out, the route was cancelled."""
    when = Recorder()
    waiting = Waiting(Limit("9/h", refund_when=when))

    async def served_and(expire: Callable[[], object]) -> None:
        await waiting.is_served.wait()
        expire()

    async def in_time(scope: Scope, receive: Receive, send: Send) -> None:
        now = asyncio.get_running_loop().time
        expiring: list[asyncio.Task[None]] = []
        if kind == "anyio":
            with anyio.CancelScope() as tried:
                expiring.append(asyncio.create_task(served_and(tried.cancel)))
                await waiting.app(scope, receive, send)
        else:
            with suppress(TimeoutError):
                async with asyncio.timeout(None) as timeout:
                    late = served_and(lambda: timeout.reschedule(now()))
                    expiring.append(asyncio.create_task(late))
                    await waiting.app(scope, receive, send)
        await asyncio.gather(*expiring)
        await PlainTextResponse("late", 504)(scope, receive, send)

    [start, *_] = await sent(in_time, http_scope())
    await settling()

    assert (504, [499]) == (start["status"], when.statuses)


async def test_who_is_cancelled_while_waiting_for_a_turn_is_settled() -> None:
    """It has not been served, and gets its turn back if the limit says so."""
    when = Recorder()
    limiter = frozen()
    patient = Limit("1/h", max_delay=3_600, refund_when=when)
    app = app_of(ThrottledView_of(patient, limiter=limiter))
    assert [200] == await statuses(app, "GET /")

    first = asyncio.ensure_future(sent(app, http_scope()))
    await asyncio.sleep(0.01)
    second = asyncio.ensure_future(sent(app, http_scope()))
    for task in (first, second):
        await asyncio.sleep(0.01)
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
    await settling()

    assert [200] == await statuses(app, "GET /")


async def test_a_response_that_started_is_settled_already() -> None:
    """Who hangs up in the middle of a stream was served."""
    limiter, when = frozen(), Recorder()
    router = ThrottledRouter(limiter)

    @router.get("/")
    @limiter.limit("5/h", refund_when=when)
    async def get() -> StreamingResponse:
        async def parts() -> AsyncIterator[bytes]:
            yield b"a"
            await asyncio.Event().wait()

        return StreamingResponse(parts())

    started = asyncio.Event()

    async def receive() -> Message:
        await asyncio.Event().wait()
        return {}

    async def send(message: Message) -> None:
        started.set()

    task = asyncio.ensure_future(app_of(router)(http_scope(), receive, send))
    await started.wait()
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    await settling()

    assert [200] == when.statuses


async def test_a_middleware_settles_although_the_scope_was_copied() -> None:
    """What is inside may serve a copy of the scope, with an endpoint in it."""
    when = Recorder()
    router = ThrottledRouter(frozen("9/h"))
    router.get("/")(broken)
    app = app_of(router)

    async def copying(scope: Scope, receive: Receive, send: Send) -> None:
        await app(dict(scope), receive, send)

    throttle = Limit("5/h", refund_when=when)
    limited = RateLimitMiddleware(copying, limiter=frozen(), throttle=throttle)
    with suppress(ZeroDivisionError):
        await sent(limited, http_scope())

    assert [500] == when.statuses


async def test_an_application_that_says_nothing_is_settled() -> None:
    """No response is an error."""
    when = Recorder()

    async def silent(scope: Scope, receive: Receive, send: Send) -> None: ...

    throttle = Limit("5/h", refund_when=when)
    await sent(
        RateLimitMiddleware(silent, limiter=frozen(), throttle=throttle), http_scope()
    )

    assert [500] == when.statuses


async def test_no_task_is_left_behind() -> None:
    """What settles in the background is done soon, and its loop can be closed."""
    before = asyncio.all_tasks()

    await Waiting(Limit("9/h", refund_when=lambda _: True)).cancel()

    assert before == asyncio.all_tasks()


# --- sockets --------------------------------------------------------------------------


def socket_app(handler: Callable[..., Any], *limits: Limit) -> FastAPI:
    """Return an application with a socket."""
    limiter = frozen()
    router = ThrottledRouter(limiter)
    router.websocket("/")(limiter.limit([*limits])(handler))
    return app_of(router)


async def accepting(websocket: WebSocket) -> None:
    """Accept, and go."""
    await websocket.accept()
    await websocket.close()


async def denying(websocket: WebSocket) -> None:
    """Refuse the handshake."""
    raise HTTPException(403)


async def failing_before(websocket: WebSocket) -> None:
    """Fail before the socket is accepted."""
    raise ZeroDivisionError


async def failing_after(websocket: WebSocket) -> None:
    """Fail after it."""
    await websocket.accept()
    raise ZeroDivisionError


async def cancelled_after(websocket: WebSocket) -> None:
    """Be cancelled after it."""
    await websocket.accept()
    raise asyncio.CancelledError


@pytest.mark.parametrize(
    ("handler", "asked"),
    [
        (accepting, []),
        (denying, [403]),
        (failing_before, [500]),
        (failing_after, []),
        (cancelled_after, []),
    ],
)
async def test_a_socket_that_was_accepted_stays_charged(
    handler: Callable[..., Any], asked: list[int]
) -> None:
    """A handshake that is refused is settled by its status; a socket has none."""
    when = Recorder()
    app = socket_app(handler, Limit("5/h", refund_when=when))

    with suppress(ZeroDivisionError, asyncio.CancelledError):
        await handshake(app, extensions={"websocket.http.response": {}})
    await settling()

    assert asked == when.statuses


async def test_a_middleware_settles_the_handshake_that_is_refused() -> None:
    """It sees the response to it."""
    when = Recorder()
    app = FastAPI()
    app.websocket("/")(denying)
    throttle = Limit("5/h", refund_when=when)
    app.add_middleware(RateLimitMiddleware, limiter=frozen(), throttle=throttle)

    await handshake(app, extensions={"websocket.http.response": {}})

    assert [403] == when.statuses


# --- functions that do not do as they should ------------------------------------------


def failing(_status: int) -> bool:
    """Fail."""
    raise ZeroDivisionError


async def later(_status: int) -> bool:
    """Answer too late."""
    return True


def as_coroutine(status: int) -> Awaitable[bool]:
    """Answer too late, and not say so."""
    return later(status)


def one(_status: int) -> int:
    """Answer with a number."""
    return 1


@pytest.mark.parametrize(
    ("when", "said"),
    [
        (failing, "ZeroDivisionError"),
        (one, "neither True nor False"),
        (hex, "neither True nor False"),
        (print, "neither True nor False"),
        (as_coroutine, "neither True nor False"),
    ],
    ids=["raises", "a number", "text", "nothing", "a coroutine"],
)
async def test_a_function_that_does_not_answer_keeps_the_charge(
    caplog: pytest.LogCaptureFixture, when: RefundWhen, said: str
) -> None:
    """It is logged; the response is what it was going to be."""
    app = app_of(ThrottledView_of(Limit("2/h", refund_when=when)))

    with caplog.at_level(logging.ERROR, "throttled_views"):
        told = await answers(app, *["GET /"] * 3)
    gc.collect()

    assert [200, 200, 429] == [each.status_code for each in told]
    assert said in caplog.text


class AskedLater:
    """An object that answers when it is awaited."""

    async def __call__(self, status: int) -> bool:
        """Answer."""
        return status < 400


def of_nothing() -> bool:
    """Take nothing."""
    return True


def of_two(status: int, method: str) -> bool:
    """Take more than there is."""
    return (status, method) == (200, "GET")


def test_a_function_that_does_not_tell_what_it_takes_is_taken() -> None:
    """Some of C do not."""
    untold: Any = max
    limit = Limit("5/h", refund_when=untold)

    assert limit.refund_when is not None


@pytest.mark.parametrize(
    ("when", "said"),
    [
        (later, "is async, and nobody would await it"),
        (400, "is no function"),
        (int, "is no function"),
        (of_nothing, "does not take the status alone"),
        (of_two, "does not take the status alone"),
        (AskedLater(), "is async, and nobody would await it"),
    ],
    ids=["async", "a number", "a class", "of nothing", "of two", "async object"],
)
def test_what_cannot_answer_is_refused(when: Callable[..., Any], said: str) -> None:
    """At once, with what to write."""
    with pytest.raises(ConfigurationError, match=said):
        Limit("5/h", refund_when=when)


def test_a_dependency_does_not_see_the_response() -> None:
    """It is refused there, and by hand, where there is none."""
    limiter = frozen()
    with pytest.raises(ConfigurationError, match="does not see the response"):
        limiter.dependency("5/h", refund_when=Recorder())
    with pytest.raises(ConfigurationError, match="refund_when needs a response"):
        limiter.throttled("5/h", refund_when=Recorder())


# --- stores ---------------------------------------------------------------------------


class Failing(Relay):
    """A store that cannot give back."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self._error = error

    async def refund(self, receipts: Sequence[Receipt], /) -> None:
        """Fail."""
        raise self._error


@pytest.mark.parametrize(
    "error",
    [StoreUnavailableError("down"), ZeroDivisionError()],
    ids=["down", "broken"],
)
async def test_a_store_that_cannot_give_back_changes_no_response(
    caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    """The charge stays; that is logged, and no hook is told that it came back."""
    notes = Notes()
    limiter = Limiter(store=Failing(error), hooks=[notes])
    app = app_of(
        ThrottledView_of(Limit("5/h", refund_when=Recorder()), limiter=limiter)
    )

    with caplog.at_level(logging.WARNING, "throttled_views"):
        assert [200] == await statuses(app, "GET /")

    assert ["admitted"] == [each.outcome for each in notes.checks]
    assert caplog.records


class Down(Relay):
    """A store that is down."""

    async def acquire(self, charges: Sequence[Charge], /) -> Sequence[RateLimitResult]:
        """Fail."""
        msg = "down"
        raise StoreUnavailableError(msg)


async def test_what_was_counted_here_comes_back_here() -> None:
    """While the store is down this process counts, and gives back."""
    notes = Notes()
    limiter = Limiter(store=Down(), hooks=[notes])
    app = app_of(
        ThrottledView_of(Limit("1/h", refund_when=Recorder()), limiter=limiter)
    )

    assert [200, 200] == await statuses(app, "GET /", "GET /")
    assert ["admitted", "refunded"] * 2 == [each.outcome for each in notes.checks]


async def test_what_nobody_counted_does_not_come_back() -> None:
    """Under "allow" there is nothing to give back, and nobody is asked."""
    when = Recorder()
    limiter = Limiter(store=Down(), on_store_error="allow")
    app = app_of(ThrottledView_of(Limit("1/h", refund_when=when), limiter=limiter))

    assert [200, 200] == await statuses(app, "GET /", "GET /")
    assert [] == when.statuses


# --- exactly once ---------------------------------------------------------------------

HOW = st.sampled_from(["ok", "created", "missing", "broken", "cancelled", "streamed"])


def anything(store: Store, notes: Notes) -> tuple[ASGIApp, asyncio.Event]:
    """Return an application whose requests end as they are told to."""
    limiter = Limiter(store=store, hooks=[notes])
    kept = Limit(f"{CAPACITY}/h", name="kept", refund_when=lambda _: False)
    back = Limit(f"{CAPACITY}/h", name="back", refund_when=lambda _: True)
    failures = Limit(
        f"{CAPACITY}/h", name="failures", refund_when=lambda status: status < 400
    )
    late = Limit(
        f"{CAPACITY}/h",
        name="late",
        key_func=late_key,
        refund_when=lambda status: status == 499,
    )
    router = ThrottledRouter(limiter)
    waits = asyncio.Event()

    @router.get("/{how}")
    @limiter.limit([kept, back, failures, late])
    async def get(how: str) -> Response:
        match how:
            case "missing":
                raise HTTPException(404)
            case "broken":
                raise ZeroDivisionError
            case "cancelled":
                waits.set()
                await asyncio.Event().wait()
            case "created":
                return Response(status_code=201)
            case "streamed":
                return StreamingResponse(iter(["a", "b"]))
            case _:
                pass
        return Response()

    return app_of(router), waits


async def _end(app: ASGIApp, how: str, waits: asyncio.Event) -> None:
    waits.clear()
    task = asyncio.ensure_future(sent(app, http_scope(f"/{how}")))
    if how == "cancelled":
        await waits.wait()
        task.cancel()
    with suppress(asyncio.CancelledError, ZeroDivisionError):
        await task


async def _counts(store: Store, notes: Notes) -> dict[str, int]:
    """Return what each limit has charged by now, and not given back."""
    charges: dict[str, Charge] = {}
    for each in notes.checks:
        if each.outcome == "admitted" and each.result is not None:
            [receipt] = each.result.receipts
            charges[each.limit.name] = receipt.charge
    results = await store.peek([*charges.values()])
    left = [each.state.remaining for each in results]
    return {name: CAPACITY - each for name, each in zip(charges, left, strict=True)}


@pytest.mark.parametrize("make", [frozen_store, Relay], ids=["quick", "general"])
@given(ends=st.lists(HOW, min_size=1, max_size=40))
def test_each_request_is_settled_exactly_once(
    make: Callable[[], Store], ends: list[str]
) -> None:
    """However requests end, at the end each limit has charged those that it keeps."""

    async def main() -> dict[str, int]:
        store, notes = make(), Notes()
        app, waits = anything(store, notes)
        for how in ends:
            await _end(app, how, waits)
        await settling()
        return await _counts(store, notes)

    cancelled = ends.count("cancelled")
    assert {
        "kept": len(ends),
        "back": 0,
        "failures": ends.count("missing") + ends.count("broken") + cancelled,
        "late": len(ends) - cancelled,
    } == asyncio.run(main())
