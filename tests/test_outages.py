"""What clients are answered while a store is down, by every way to limit."""

from collections.abc import Callable
from typing import Any

import pytest
from fastapi import Depends, FastAPI, Request
from starlette.exceptions import HTTPException as StarletteHTTPException
from starlette.responses import JSONResponse, Response

from tests.asgi import FIELDS, answers, app_of, fields_of, handshake, statuses
from tests.clock import ManualClock
from tests.outages import Outage, QuickOutage, limiter_of
from tests.test_limiter_sockets import WAYS as SOCKET_WAYS
from tests.ways import WAYS, Way, on_a_throttled_router
from throttled_views import (
    EXEMPT,
    ConfigurationError,
    CurrentRateLimit,
    Limit,
    Limiter,
    StoreUnavailableError,
    Throttled,
    ThrottledRouter,
    ThrottledView,
    ThrottledViewsError,
    limit,
)
from throttled_views.results import OnStoreError


async def hello() -> str:
    """Be a handler."""
    return "hello"


def in_a_view(limiter: Limiter, endpoint: Callable[..., Any]) -> FastAPI:
    """Let a view call the function."""

    class View(ThrottledView):
        path = "/"

        async def get(self) -> str:
            answer: str = await endpoint()
            return answer

    return app_of(View.as_router(limiter))


ALL_WAYS: dict[str, Way] = {**WAYS, "in a view": in_a_view}
ways = pytest.mark.parametrize("way", ALL_WAYS.values(), ids=ALL_WAYS)
stores = pytest.mark.parametrize("kind", [Outage, QuickOutage], ids=["plain", "quick"])
SOCKETS = pytest.mark.parametrize("way", SOCKET_WAYS.values(), ids=SOCKET_WAYS)

UNAVAILABLE = b'{"detail":"Rate limits are unavailable"}'


# --- policies -------------------------------------------------------------------------


@ways
@stores
async def test_local_holds_clients_to_the_same_quota(
    way: Way, kind: type[Outage], clock: ManualClock
) -> None:
    """What one process may admit passes, with the fields that tell so."""
    app = way(limiter_of(kind(is_down=True), clock, "2/h"), hello)

    received = await answers(app, *["GET /"] * 3)

    assert [200, 200, 429] == [answer.status_code for answer in received]
    assert [("2", "1"), ("2", "0"), ("2", "0")] == [
        (answer.headers["RateLimit-Limit"], answer.headers["RateLimit-Remaining"])
        for answer in received
    ]
    assert "1800" == received[2].headers["Retry-After"]


@ways
@stores
async def test_deny_answers_503(
    way: Way, kind: type[Outage], clock: ManualClock
) -> None:
    """It says when to come back, and nothing about limits; the handler does not run."""
    ran: list[str] = []

    async def handler() -> str:
        ran.append("handler")
        return "hello"

    app = way(limiter_of(kind(is_down=True), clock, on_store_error="deny"), handler)

    for answer in await answers(app, *["GET /"] * 3):
        assert (503, UNAVAILABLE) == (answer.status_code, answer.content)
        assert {"Retry-After": "1"} == fields_of(answer)
    assert [] == ran


@ways
@stores
async def test_allow_admits_with_the_fields_of_a_fresh_key(
    way: Way, kind: type[Outage], clock: ManualClock
) -> None:
    """However many come, each is told of a limit that nothing was charged to."""
    app = way(limiter_of(kind(is_down=True), clock, on_store_error="allow"), hello)

    for answer in await answers(app, *["GET /"] * 5):
        assert (200, dict(zip(FIELDS, ("2", "2", "0"), strict=False))) == (
            answer.status_code,
            fields_of(answer),
        )


@ways
@stores
async def test_the_store_decides_again_when_it_is_up(
    way: Way, kind: type[Outage], clock: ManualClock
) -> None:
    """What it had counted before is still counted, and it is asked for each request."""
    store = kind(is_down=False)
    app = way(limiter_of(store, clock, "3/h"), hello)

    before = await statuses(app, "GET /")
    store.is_down = True
    during = await statuses(app, *["GET /"] * 4)
    asked_during = len(store.asked) - 1
    store.is_down = False
    clock.advance(1)
    after = await statuses(app, *["GET /"] * 3)

    assert ([200], [200, 200, 200, 429], [200, 200, 429]) == (before, during, after)
    assert 1 == asked_during
    assert 5 == len(store.asked)


async def test_a_quick_answer_that_fails_is_not_asked_for_again(
    clock: ManualClock,
) -> None:
    """It may have been charged: the policy decides, and later requests do not ask."""
    store = QuickOutage(is_down=True)
    app = on_a_throttled_router(limiter_of(store, clock), hello)

    assert [200, 200, 429] == await statuses(app, *["GET /"] * 3)
    assert ["take"] == store.asked


async def test_a_quick_store_is_asked_quickly_again(clock: ManualClock) -> None:
    """The probe goes the long way, and what comes after it the short one."""
    store = QuickOutage(is_down=True)
    app = on_a_throttled_router(limiter_of(store, clock, "5/h"), hello)
    await statuses(app, "GET /")
    store.is_down = False
    clock.advance(1)

    received = await answers(app, *["GET /"] * 3)

    assert ["4", "3", "2"] == [
        answer.headers["RateLimit-Remaining"] for answer in received
    ]
    assert ["take", "acquire", "take", "take"] == store.asked


async def test_what_was_decided_without_the_store_is_in_the_context(
    clock: ManualClock,
) -> None:
    """A handler may ask for it as ever."""

    async def tell(rate_limit: CurrentRateLimit) -> int:
        return rate_limit.result.state.remaining

    app = on_a_throttled_router(limiter_of(QuickOutage(is_down=True), clock), tell)

    assert [1, 0] == [answer.json() for answer in await answers(app, *["GET /"] * 2)]


# --- policies of single limits --------------------------------------------------------


@pytest.mark.parametrize(
    ("policy", "expected"),
    [("local", [200, 429]), ("deny", [503, 503]), ("allow", [200, 200])],
)
@pytest.mark.parametrize("of_all", ["local", "deny", "allow"])
async def test_a_limit_may_have_a_policy_of_its_own(
    clock: ManualClock,
    policy: OnStoreError,
    of_all: OnStoreError,
    expected: list[int],
) -> None:
    """However it is declared, it goes before that of the limiter."""
    limiter = limiter_of(Outage(is_down=True), clock, on_store_error=of_all)
    router = ThrottledRouter(limiter)

    @router.get("/decorated")
    @limiter.limit("1/h", on_store_error=policy)
    async def decorated() -> None:
        """Do nothing."""

    @router.view
    class View(ThrottledView):
        path = "/view"
        throttle = Limit("1/h", on_store_error=policy)

        async def get(self) -> None:
            """Do nothing."""

        @limit("1/h", on_store_error=policy)
        async def post(self) -> None:
            """Do nothing."""

    app = app_of(router)

    for request in ("GET /decorated", "GET /view", "POST /view"):
        assert expected == await statuses(app, request, request)


async def test_one_limit_that_denies_denies_the_request(clock: ManualClock) -> None:
    """Its neighbours are not charged for that."""
    store = Outage(is_down=True)
    limiter = limiter_of(store, clock)
    router = ThrottledRouter(limiter)
    shared = Limit("3/h", bucket="shared", name="all")

    @router.get("/both")
    @limiter.limit([shared, Limit("5/h", on_store_error="deny")])
    async def both() -> None:
        """Do nothing."""

    @router.get("/one")
    @limiter.limit(shared)
    async def one() -> None:
        """Do nothing."""

    app = app_of(router)

    assert [503, 503] == await statuses(app, "GET /both", "GET /both")
    (answer,) = await answers(app, "GET /one")
    assert "2" == answer.headers["RateLimit-Remaining"]


STACKED = pytest.mark.parametrize("denies_first", [True, False])


@STACKED
@pytest.mark.parametrize("early", [True, False], ids=["early", "late"])
async def test_a_503_is_not_charged(
    clock: ManualClock, *, denies_first: bool, early: bool
) -> None:
    """What another limiter had charged to the request comes back."""
    up = Outage(is_down=False)
    charging = Limiter("5/h", store=up)
    denying = limiter_of(Outage(is_down=True), clock, on_store_error="deny")
    inner, outer = (charging, denying) if denies_first else (denying, charging)
    endpoint = outer.limit()(inner.limit()(hello))
    app: FastAPI | ThrottledRouter = ThrottledRouter() if early else FastAPI()
    app.add_api_route("/", endpoint)

    received = await statuses(app if isinstance(app, FastAPI) else app_of(app), "GET /")

    assert [503] == received
    for charges in up.calls:
        [result] = await up.peek(charges)
        assert 5 == result.state.remaining


@STACKED
async def test_a_dependency_that_denies_gives_back_what_others_charged(
    clock: ManualClock, *, denies_first: bool
) -> None:
    """Dependencies and decorators of one request are one phase."""
    up = Outage(is_down=False)
    charging = Limiter("5/h", store=up)
    denying = limiter_of(Outage(is_down=True), clock, on_store_error="deny")
    first, second = (denying, charging) if denies_first else (charging, denying)
    app = FastAPI()

    app.add_api_route(
        "/", second.limit()(hello), dependencies=[Depends(first.dependency())]
    )

    assert [503] == await statuses(app, "GET /")
    for charges in up.calls:
        [result] = await up.peek(charges)
        assert 5 == result.state.remaining


# --- what else an application does ----------------------------------------------------


@pytest.mark.parametrize("policy", ["local", "deny", "allow"])
@stores
async def test_case_79_other_routes_do_not_notice(
    clock: ManualClock, kind: type[Outage], policy: OnStoreError
) -> None:
    """Nothing is a 500, and what is not limited is answered as ever."""
    limiter = limiter_of(kind(is_down=True), clock, "2/h", policy)
    router = ThrottledRouter(limiter)
    app = FastAPI()

    @router.get("/limited")
    async def limited() -> None:
        """Do nothing."""

    @router.get("/health")
    @limiter.exempt
    async def health() -> None:
        """Do nothing."""

    @router.view
    class View(ThrottledView):
        path = "/exempt"
        throttle = EXEMPT

        async def get(self) -> None:
            """Do nothing."""

    @app.get("/unlimited")
    async def unlimited() -> None:
        """Do nothing."""

    app.include_router(router)
    expected = {"local": [200, 200, 429], "deny": [503] * 3, "allow": [200] * 3}

    assert expected[policy] == await statuses(app, *["GET /limited"] * 3)
    for path in ("/health", "/exempt", "/unlimited"):
        (answer,) = await answers(app, f"GET {path}")
        assert (200, {}) == (answer.status_code, fields_of(answer))
    assert [405] == await statuses(app, "POST /limited")


@ways
async def test_case_95_the_fallback_is_left_again(way: Way, clock: ManualClock) -> None:
    """Ten pass here while the store is down; then it decides again, with 3 used."""
    store = QuickOutage(is_down=False)
    app = way(limiter_of(store, clock, "10/h"), hello)

    before = await answers(app, *["GET /"] * 3)
    store.is_down = True
    during = await statuses(app, *["GET /"] * 12)
    store.is_down = False
    clock.advance(1)
    after = await statuses(app, *["GET /"] * 12)

    assert "7" == before[-1].headers["RateLimit-Remaining"]
    assert [200] * 10 + [429] * 2 == during
    assert [200] * 7 + [429] * 5 == after


@ways
async def test_a_limiter_that_is_not_enabled_does_not_ask(
    way: Way, clock: ManualClock
) -> None:
    """Nothing is decided, so nothing can be denied."""
    store = QuickOutage(is_down=True)
    limiter = limiter_of(store, clock, on_store_error="deny")
    limiter.enabled = False

    assert [200] == await statuses(way(limiter, hello), "GET /")
    assert [] == store.asked


async def render(request: Request, error: Exception) -> Response:
    """Answer as the user wants it."""
    assert isinstance(error, StoreUnavailableError)
    return JSONResponse({"mine": type(error).__name__}, status_code=418)


@ways
@pytest.mark.parametrize(
    "kind", [StoreUnavailableError, ThrottledViewsError, StarletteHTTPException, 503]
)
async def test_a_handler_of_the_user_wins(
    way: Way, clock: ManualClock, kind: int | type[Exception]
) -> None:
    """Whether it is for the error, a base class, an HTTP error or the status."""
    limiter = limiter_of(QuickOutage(is_down=True), clock, on_store_error="deny")
    app = way(limiter, hello)
    app.add_exception_handler(kind, render)

    (answer,) = await answers(app, "GET /")

    assert (418, {"mine": "RateLimitUnavailableError"}) == (
        answer.status_code,
        answer.json(),
    )


async def test_a_handler_passes_the_wait_on(clock: ManualClock) -> None:
    """The error has the field that says when to come back."""

    async def render(request: Request, error: Exception) -> Response:
        assert isinstance(error, StarletteHTTPException)
        return Response(status_code=error.status_code, headers=error.headers)

    limiter = limiter_of(Outage(is_down=True), clock, on_store_error="deny")
    app = on_a_throttled_router(limiter, hello)
    app.add_exception_handler(StoreUnavailableError, render)

    (answer,) = await answers(app, "GET /")

    assert (503, "1") == (answer.status_code, answer.headers["Retry-After"])


# --- sockets --------------------------------------------------------------------------

DENIAL: dict[str, object] = {"websocket.http.response": {}}


def kinds(messages: list[Any]) -> list[str]:
    """Return what kinds of messages there are."""
    return [message["type"] for message in messages]


ACCEPTED = ["websocket.accept", "websocket.close"]


@SOCKETS
async def test_deny_denies_a_handshake_with_503(
    way: Callable[[Limiter], FastAPI], clock: ManualClock
) -> None:
    """Where the server can, it says why, and when to come back."""
    limiter = limiter_of(Outage(is_down=True), clock, on_store_error="deny")

    start, body = await handshake(way(limiter), "/", DENIAL)

    assert (503, UNAVAILABLE) == (start["status"], body["body"])
    assert b"1" == dict(start["headers"])[b"retry-after"]


@SOCKETS
async def test_deny_closes_a_handshake_where_no_response_can_be_sent(
    way: Callable[[Limiter], FastAPI], clock: ManualClock
) -> None:
    """It is closed before it is accepted, with the code that says to try again."""
    limiter = limiter_of(Outage(is_down=True), clock, on_store_error="deny")

    closed = {
        "type": "websocket.close",
        "code": 1013,
        "reason": "Rate limits are unavailable",
    }
    assert [closed] == await handshake(way(limiter), "/", {})


@SOCKETS
async def test_local_and_allow_decide_about_sockets(
    way: Callable[[Limiter], FastAPI], clock: ManualClock
) -> None:
    """One counts in this process, and the other lets everybody in."""
    local, allow = (
        way(limiter_of(Outage(is_down=True), clock, "1/h", policy))
        for policy in ("local", "allow")
    )

    assert ACCEPTED == kinds(await handshake(local))
    assert 1008 == (await handshake(local))[0]["code"]
    for _ in range(3):
        assert ACCEPTED == kinds(await handshake(allow))


# --- by hand --------------------------------------------------------------------------


async def test_what_is_checked_by_hand_has_the_policy_of_its_limiter(
    clock: ManualClock,
) -> None:
    """The messages of a socket, and jobs, are limited as routes are."""
    limiter = limiter_of(Outage(is_down=True), clock)
    local, allow, deny = (
        limiter.throttled("1/h", on_store_error=policy)
        for policy in (None, "allow", "deny")
    )

    assert [False, True] == [(await local.limit("alice")).limited for _ in range(2)]
    assert [False, False] == [(await allow.limit("alice")).limited for _ in range(2)]
    with pytest.raises(StoreUnavailableError):
        await deny.limit("alice")


async def test_a_result_by_hand_can_be_given_back(clock: ManualClock) -> None:
    """What this process charged comes back, though the store is still down."""
    throttled = limiter_of(Outage(is_down=True), clock).throttled("5/h")
    result = await throttled.limit("alice", 3)

    await throttled.refund(result)

    assert 5 == (await throttled.peek("alice")).state.remaining


async def test_a_throttled_of_its_own_has_no_policy() -> None:
    """Without a limiter an unavailable store is an error, for the caller to answer."""
    throttled = Throttled("5/h", store=Outage(is_down=True))

    with pytest.raises(StoreUnavailableError, match="no route to host"):
        await throttled.limit("alice")


# --- declarations ---------------------------------------------------------------------

WRONG: Any = "fail open"
DECLARATIONS: dict[str, Callable[[], object]] = {
    "a limiter": lambda: Limiter(on_store_error=WRONG),
    "a limit": lambda: Limit("5/m", on_store_error=WRONG),
    "a decorator of functions": lambda: Limiter().limit("5/m", on_store_error=WRONG),
    "a decorator of methods": lambda: limit("5/m", on_store_error=WRONG),
    "a dependency": lambda: Limiter().dependency("5/m", on_store_error=WRONG),
    "by hand": lambda: Limiter().throttled("5/m", on_store_error=WRONG),
}


@pytest.mark.parametrize("declare", DECLARATIONS.values(), ids=DECLARATIONS)
def test_a_policy_that_is_none_is_refused(declare: Callable[[], object]) -> None:
    """It fails where it is written, and the message lists what can be written."""
    with pytest.raises(
        ConfigurationError,
        match=r"on_store_error='fail open' is none\. Write 'local', 'deny' or 'allow'",
    ):
        declare()
