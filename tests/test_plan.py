"""The request path: one answer, whatever store gives it and whatever goes wrong."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from fastapi import FastAPI, Request, Response
from hypothesis import given
from hypothesis import strategies as st
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tests.asgi import Relay, answers, app_of, fields_of, http_scope, sent, statuses
from tests.clock import ManualClock
from tests.ways import WAYS, Way, on_a_throttled_router
from throttled_views import (
    Algorithm,
    Charge,
    CurrentRateLimit,
    Limit,
    Limiter,
    MemoryStore,
    Quota,
    RateLimitResult,
    Throttle,
    ThrottledRouter,
    everyone,
)

ways = pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)


async def hello() -> str:
    """Be a handler."""
    return "hello"


async def tell(rate_limit: CurrentRateLimit) -> str:
    """Return all that is known of the limits."""
    return repr(rate_limit)


# --- one answer by every store --------------------------------------------------------

# Seconds after which requests come; they meet full, half-full, empty and refilled
# buckets, and the last moment before a token is back.
GAPS = (0, 0, 0.1, 0.25, 0, 0.000001, 0.499999, 0.5, 1, 0, 0, 59.9, 0, 3600, 0, 0, 0, 0)

THROTTLES: dict[str, Throttle] = {
    "whole seconds": "2/s burst 5",
    "parts of seconds": "8/s burst 1",
    "a fraction": "7/m",
    "microseconds": Quota.per_second(2_000_000, burst=2),
    "hours": "3/h",
    "nothing at all": "0/h",
    "a cost": Limit("5/s", cost=2),
    "another name": Limit("2/s", using=Algorithm.GCRA),
    "a bucket": Limit("2/s", bucket="shared", name="all"),
    "everyone": Limit("2/s", key_func=everyone),
    "two": ["2/s", "100/h"],
    "five, of which the third refuses": ["9/s", "8/m", "2/h", "7/day", "50/week"],
    "by all algorithms": [Limit("6/m", using=each, name=each) for each in Algorithm],
    "of different costs": [Limit("9/m", cost=2), Limit("6/s", cost=3), "5/m"],
    "of which one admits nothing": ["3/s", "0/h"],
    "in one bucket": [Limit("3/m", bucket="b", name=name) for name in ("a", "b")],
    "of one name": [Limit("3/m", bucket=each, name="both") for each in ("b", "c")],
    "of which all clients share one": ["3/s", Limit("9/m", key_func=everyone)],
    "some of which wait": ["3/s", Limit("2/m", max_delay=0.001)],
    "some of which are observed": ["3/s", "5/m", Limit("2/m", shadow=True)],
}


async def course(
    way: Way, throttle: Throttle, gaps: Sequence[float], *, relayed: bool
) -> list[list[Message]]:
    """Return all that is sent to requests that come after *gaps*."""
    clock = ManualClock()
    store = MemoryStore(clock=clock)
    limiter = Limiter(throttle, store=Relay(store) if relayed else store)
    app = way(limiter, tell)
    course: list[list[Message]] = []
    for gap in gaps:
        clock.advance(gap)
        course.append(await sent(app, http_scope()))
    return course


@ways
@pytest.mark.parametrize("throttle", THROTTLES.values(), ids=THROTTLES)
async def test_a_store_of_others_is_asked_for_the_same_answers(
    way: Way, throttle: Throttle
) -> None:
    """What is decided at once, in memory, is what any store would have answered."""
    at_once = await course(way, throttle, GAPS, relayed=False)
    by_relay = await course(way, throttle, GAPS, relayed=True)

    assert by_relay == at_once


@given(
    quota=st.sampled_from(["2/s burst 5", "7/m", "3/s", "1000/s burst 1"]),
    cost=st.integers(1, 3),
    gaps_us=st.lists(st.integers(0, 3_000_000), max_size=12),
)
async def test_no_course_of_requests_is_answered_otherwise_by_another_store(
    quota: str, cost: int, gaps_us: list[int]
) -> None:
    """However requests arrive, whatever they cost, each byte is the same."""
    limits = Limit(Quota.parse(quota), cost=cost if "burst 1" not in quota else 1)
    gaps = [gap_us / 1_000_000 for gap_us in gaps_us]

    by_relay, at_once = [
        await course(on_a_throttled_router, limits, gaps, relayed=relayed)
        for relayed in (True, False)
    ]

    assert by_relay == at_once


@given(
    quotas=st.lists(
        st.sampled_from(["2/s burst 5", "7/m", "3/s", "4/h"]), min_size=2, max_size=4
    ),
    usings=st.lists(st.sampled_from(list(Algorithm)), min_size=4, max_size=4),
    costs=st.lists(st.integers(1, 3), min_size=4, max_size=4),
    gaps_us=st.lists(st.integers(0, 30_000_000), max_size=12),
)
async def test_no_limits_together_are_answered_otherwise_by_another_store(
    quotas: Sequence[str],
    usings: Sequence[Algorithm],
    costs: Sequence[int],
    gaps_us: Sequence[int],
) -> None:
    """All or nothing, whatever counts them and whatever they cost."""
    limits = [
        Limit(
            quota,
            cost=cost,
            using=Algorithm.TOKEN_BUCKET if "burst" in quota else using,
            name=str(number),
        )
        for number, (quota, using, cost) in enumerate(
            zip(quotas, usings, costs, strict=False)
        )
    ]
    gaps = [gap_us / 1_000_000 for gap_us in gaps_us]

    by_relay, at_once = [
        await course(on_a_throttled_router, limits, gaps, relayed=relayed)
        for relayed in (True, False)
    ]

    assert by_relay == at_once


async def test_a_memory_store_of_the_user_is_asked() -> None:
    """Nothing goes around the methods that a subclass overrides."""

    class Counting(MemoryStore):
        asked = 0

        async def acquire(
            self, charges: Sequence[Charge], /
        ) -> Sequence[RateLimitResult]:
            self.asked += 1
            return await super().acquire(charges)

    store = Counting()
    app = on_a_throttled_router(Limiter("5/h", store=store), hello)

    assert [200, 200] == await statuses(app, "GET /", "GET /")
    assert 2 == store.asked


# --- stores that fail -----------------------------------------------------------------


class Failing(Relay):
    """A store that cannot be asked."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self._error = error

    async def acquire(self, charges: Sequence[Charge], /) -> Sequence[RateLimitResult]:
        """Fail."""
        raise self._error


class Forgetful(Relay):
    """A store that does not answer what it was asked."""

    async def acquire(self, charges: Sequence[Charge], /) -> Sequence[RateLimitResult]:
        """Answer nothing."""
        return []


BROKEN: dict[str, tuple[Relay, type[Exception]]] = {
    "no connection": (Failing(OSError("refused")), OSError),
    "a mistake": (Failing(KeyError("key")), KeyError),
    "no answer": (Forgetful(), ValueError),
}


@ways
@pytest.mark.parametrize(("store", "error"), BROKEN.values(), ids=BROKEN)
async def test_a_store_that_fails_lets_nobody_in(
    way: Way, store: Relay, error: type[Exception]
) -> None:
    """Its error reaches the server, and the handler does not run."""
    ran: list[str] = []

    async def handler() -> None:
        ran.append("handler")

    app = way(Limiter("5/h", store=store), handler)

    with pytest.raises(error):
        await answers(app, "GET /")
    assert [500, 500] == await statuses(app, "GET /", "GET /")
    assert [] == ran


# --- requests at the same time, and requests that are cancelled -----------------------


class Slow(Relay):
    """A store that has to be waited for, before or after it charges."""

    def __init__(self, *, before: bool) -> None:
        super().__init__()
        self.before = before
        self.asked = asyncio.Event()
        self.answering = asyncio.Event()

    async def acquire(self, charges: Sequence[Charge], /) -> Sequence[RateLimitResult]:
        """Charge all or none, some time."""
        self.asked.set()
        if self.before:
            await self.answering.wait()
        results = await super().acquire(charges)
        await self.answering.wait()
        return results


@ways
@pytest.mark.parametrize("before", [True, False], ids=["before", "after"])
async def test_requests_at_the_same_time_are_all_counted(
    way: Way, *, before: bool
) -> None:
    """Of a hundred that wait for the store together, as many pass as may."""
    store = Slow(before=before)
    app = way(Limiter("40/h", store=store), hello)
    requests = [asyncio.create_task(sent(app, http_scope())) for _ in range(100)]

    await store.asked.wait()
    store.answering.set()

    started = [(await request)[0] for request in requests]
    assert [200] * 40 + [429] * 60 == sorted(start["status"] for start in started)


@ways
async def test_a_request_that_is_cancelled_in_its_handler_was_charged(way: Way) -> None:
    """What was decided stays decided, once."""
    started = asyncio.Event()

    async def hang() -> None:
        started.set()
        await asyncio.Event().wait()

    store = Relay()
    app = way(Limiter("5/h", store=store), hang)
    request = asyncio.create_task(sent(app, http_scope()))
    await started.wait()

    request.cancel()
    with pytest.raises(asyncio.CancelledError):
        await request

    (result,) = await store.peek(store.calls[0])
    assert (1, 4) == (len(store.calls), result.state.remaining)


@ways
@pytest.mark.parametrize(("before", "used"), [(True, 0), (False, 1)])
async def test_a_request_that_is_cancelled_at_the_store_is_charged_once_or_not(
    way: Way, *, before: bool, used: int
) -> None:
    """Nothing is charged later, or again; the next request finds exact counts."""
    store = Slow(before=before)
    app = way(Limiter("5/h", store=store), hello)
    request = asyncio.create_task(sent(app, http_scope()))
    await store.asked.wait()

    request.cancel()
    with pytest.raises(asyncio.CancelledError):
        await request
    store.answering.set()

    (answer,) = await answers(app, "GET /")
    assert str(4 - used) == answer.headers["RateLimit-Remaining"]


# --- what stands around and behind a route --------------------------------------------


class Copying:
    """A middleware that gives copies of scopes on, as some do."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Give a copy on."""
        await self.app({**scope}, receive, send)


class Buffering(BaseHTTPMiddleware):
    """A middleware of Starlette's own kind."""

    async def dispatch(
        self, request: Request, call_next: Callable[[Request], Any]
    ) -> Response:
        """Call, and add a field."""
        response: Response = await call_next(request)
        response.headers["X-Mine"] = "kept"
        return response


@ways
@pytest.mark.parametrize("middleware", [Copying, Buffering])
async def test_a_middleware_is_not_in_the_way(
    way: Way, middleware: type[Copying | Buffering], store: MemoryStore
) -> None:
    """Limits are kept and told within it."""
    app: FastAPI = way(Limiter("1/h", store=store), hello)
    app.add_middleware(middleware)

    admitted, refused = await answers(app, "GET /", "GET /")

    assert (200, "0") == (
        admitted.status_code,
        admitted.headers["RateLimit-Remaining"],
    )
    assert (429, "3600") == (refused.status_code, refused.headers["Retry-After"])


async def test_a_request_that_is_handed_on_is_held_to_both_limits() -> None:
    """An application that serves the request of another counts for itself."""
    inner = on_a_throttled_router(Limiter("1/h"), hello)

    class HandedOn(Response):
        async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
            await inner(scope, receive, send)

    async def outer() -> Response:
        return HandedOn()

    router = ThrottledRouter(Limiter("2/h"))
    router.add_api_route("/", outer)
    app = app_of(router)

    first, second, third = await answers(app, *["GET /"] * 3)

    assert [200, 429, 429] == [answer.status_code for answer in (first, second, third)]
    assert ["1", "1", "2"] == [
        fields_of(answer)["RateLimit-Limit"] for answer in (first, second, third)
    ]
