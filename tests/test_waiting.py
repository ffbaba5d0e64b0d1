"""Requests that wait for their turn: `Limit.max_delay`."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import ceil
from typing import NamedTuple

import httpx
import pytest
from fastapi import APIRouter, Depends, FastAPI, Request
from hypothesis import given
from hypothesis import strategies as st

from tests.asgi import Relay, answers, fields_of
from tests.clock import ManualClock
from tests.noted import Notes
from tests.strategies import quotas
from tests.virtual import run
from throttled_views import (
    Algorithm,
    ConfigurationError,
    CurrentRateLimit,
    InvalidAnswerError,
    Limit,
    Limiter,
    MemoryStore,
    Quota,
    RateLimitMiddleware,
    RateLimitResult,
    RegistrationError,
    Store,
    Throttled,
    ThrottledRouter,
)

US_PER_S = 1_000_000
DAY_US = 86_400 * US_PER_S
ONE_A_SECOND = Quota.per_second(1)


# --- a model --------------------------------------------------------------------------


class Arrival(NamedTuple):
    """A request, so many microseconds after the one before, that costs something."""

    gap_us: int
    cost: int


@dataclass
class Line:
    """
    Whoever waits, as a clerk would have it: when each arrival is served, exactly.

    A token is worth a time. Of each that was taken it is known when it is there again;
    who takes tokens is served as soon as all of them are.
    """

    quota: Quota
    max_delay_us: int

    def __post_init__(self) -> None:
        self.token_us = Fraction(self.quota.period_us, self.quota.limit)
        self.spent_until_us = Fraction(0)

    def served_at(self, now_us: int, cost: int) -> Fraction | None:
        """Return when it is served; None if it is refused, which changes nothing."""
        spent_until_us = max(self.spent_until_us, Fraction(now_us))
        spent_until_us += cost * self.token_us
        wait_us = spent_until_us - now_us - self.quota.burst * self.token_us
        if wait_us > self.max_delay_us or cost > self.quota.burst:
            return None
        self.spent_until_us = spent_until_us
        return now_us + max(Fraction(0), wait_us)


@st.composite
def arrivals(draw: st.DrawFn, quota: Quota, max_delay_us: int) -> list[Arrival]:
    """Draw requests that come at times which matter."""
    token_us = quota.period_us // quota.limit
    spans = st.sampled_from([0, 0, 1, token_us, token_us + 1, max_delay_us])
    gaps = spans | st.integers(0, 2 * token_us + 2)
    costs = st.integers(0, 2) | st.sampled_from([quota.burst, quota.burst + 1])
    return draw(st.lists(st.builds(Arrival, gaps, costs), min_size=5, max_size=25))


def short_quotas() -> st.SearchStrategy[Quota]:
    """Draw quotas of which a token takes hours at most."""
    return quotas().filter(lambda each: each.period_us <= DAY_US * each.limit // 4)


async def started(
    clock: ManualClock, throttled: Throttled, history: Sequence[Arrival]
) -> list[tuple[RateLimitResult, int]]:
    """Let all arrive in time; return what each was told, and when it went on."""

    async def arrive(cost: int) -> tuple[RateLimitResult, int]:
        result = await throttled.limit("alice", cost)
        return result, clock()

    tasks: list[asyncio.Task[tuple[RateLimitResult, int]]] = []
    for gap_us, cost in history:
        await asyncio.sleep(gap_us / US_PER_S)
        tasks.append(asyncio.ensure_future(arrive(cost)))
        await asyncio.sleep(0)  # it is charged before the next one arrives
    return list(await asyncio.gather(*tasks))


@given(st.data(), short_quotas(), st.integers(0, 3_600 * US_PER_S))
def test_turns_come_exactly_as_the_quota_allows(
    data: st.DataObject, quota: Quota, max_delay_us: int
) -> None:
    """Each goes on in its turn, in order, or is refused if that is too far away."""
    max_delay_us = min(max_delay_us, 10**12 * quota.period_us // quota.limit)
    history = data.draw(arrivals(quota, max_delay_us))
    clock, line = ManualClock(), Line(quota, max_delay_us)
    limit = Limit(quota, max_delay=max_delay_us / US_PER_S)
    throttled = Throttled(limit, store=MemoryStore(clock=clock))

    told = run(clock, started(clock, throttled, history))

    now_us, last_us = 0, 0
    for (gap_us, cost), (result, started_us) in zip(history, told, strict=True):
        now_us += gap_us
        served_us = line.served_at(now_us, cost)
        assert result.limited == (served_us is None)
        if served_us is None:
            assert started_us == now_us
            continue
        # Whole microseconds, rounded up; the loop may be one late.
        assert 0 <= started_us - ceil(served_us) <= 1
        assert round(result.delay * US_PER_S) == ceil(served_us - now_us)
        if result.delay:
            assert last_us <= started_us
            last_us = started_us


@given(st.data(), short_quotas(), st.integers(1, 3_600 * US_PER_S))
def test_no_more_start_in_any_span_than_a_burst_and_what_came_back(
    data: st.DataObject, quota: Quota, max_delay_us: int
) -> None:
    """Between any two starts no more is done than the quota allows."""
    max_delay_us = min(max_delay_us, 10**12 * quota.period_us // quota.limit)
    history = data.draw(arrivals(quota, max_delay_us))
    clock = ManualClock()
    limit = Limit(quota, max_delay=max_delay_us / US_PER_S)
    throttled = Throttled(limit, store=MemoryStore(clock=clock))
    told = run(clock, started(clock, throttled, history))

    starts = sorted(
        (started_us, cost)
        for (_, cost), (result, started_us) in zip(history, told, strict=True)
        if not result.limited
    )
    rate = Fraction(quota.limit, quota.period_us)
    for first, (since_us, _) in enumerate(starts):
        done = 0
        for until_us, cost in starts[first:]:
            done += cost
            # Starts are told in whole microseconds, and the loop may be one late.
            assert done <= quota.burst + (until_us - since_us + 2) * rate


# --- of a route -----------------------------------------------------------------------


def serving(limiter: Limiter, *limits: Limit) -> FastAPI:
    """Return an application that tells in its answers when it served them."""
    router = ThrottledRouter(limiter)

    @router.get("/")
    @limiter.limit(list(limits))
    async def get(rate_limit: CurrentRateLimit) -> dict[str, float]:
        now = asyncio.get_running_loop().time()
        return {"at": now, "delay": max(each.delay for each in rate_limit.results)}

    app = FastAPI()
    app.include_router(router)
    return app


async def at_once(app: FastAPI, number: int) -> list[httpx.Response]:
    """Send requests at the same time; return the answers in order of arrival."""

    async def one() -> httpx.Response:
        [answer] = await answers(app, "GET /")
        return answer

    return list(await asyncio.gather(*(one() for _ in range(number))))


def test_requests_are_served_one_after_the_other(clock: ManualClock) -> None:
    """What would be refused waits; what would wait too long is refused, and told so."""
    limiter = Limiter(store=MemoryStore(clock=clock))
    app = serving(limiter, Limit(ONE_A_SECOND, max_delay=2.5))

    told = run(clock, at_once(app, 5))

    assert [200, 200, 200, 429, 429] == [each.status_code for each in told]
    assert [0.0, 1.0, 2.0] == [round(each.json()["at"], 4) for each in told[:3]]
    assert [0.0, 1.0, 2.0] == [each.json()["delay"] for each in told[:3]]
    assert {
        "RateLimit-Limit": "1",
        "RateLimit-Remaining": "0",
        "RateLimit-Reset": "3",
    } == fields_of(told[2])
    assert "1" == told[3].headers["Retry-After"]  # half a second, rounded up


def test_who_is_refused_may_wait_when_it_was_told_to_come_back(
    clock: ManualClock,
) -> None:
    """After `retry_after` the request is admitted, and waits as long as it may."""
    throttled = Throttled(
        Limit(ONE_A_SECOND, max_delay=2.5), store=MemoryStore(clock=clock)
    )

    async def main() -> list[tuple[bool, float | None, float]]:
        waiting = [asyncio.ensure_future(throttled.limit("alice")) for _ in range(3)]
        await asyncio.sleep(0)
        refused = await throttled.limit("alice")
        assert refused.state.retry_after is not None
        clock.advance(refused.state.retry_after - 0.000_001)
        early = await throttled.peek("alice")
        clock.advance(0.000_001)
        looked, admitted = await throttled.peek("alice"), await throttled.limit("alice")
        await asyncio.gather(*waiting)
        return [
            (each.limited, each.state.retry_after, each.delay)
            for each in (refused, early, looked, admitted)
        ]

    assert [
        (True, 0.5, 0.0),
        (True, 0.000_001, 0.0),
        (False, 0.0, 2.5),
        (False, 0.0, 2.5),
    ] == run(clock, main())


def test_the_longest_of_several_waits_counts(clock: ManualClock) -> None:
    """A request waits once, until all its limits have their turn."""
    limiter = Limiter(store=MemoryStore(clock=clock))
    app = serving(
        limiter, Limit("1/s", max_delay=10), Limit("1/3s", max_delay=10), Limit("9/h")
    )

    told = run(clock, at_once(app, 3))

    assert [0.0, 3.0, 6.0] == [round(each.json()["at"], 4) for each in told]


def test_who_waits_in_both_phases_waits_twice_at_most(clock: ManualClock) -> None:
    """A late limit is decided after an early one's turn, and has a turn of its own."""

    async def late(page: int = 1) -> str:
        return f"page {page}"

    limiter = Limiter(store=MemoryStore(clock=clock))
    app = serving(
        limiter,
        Limit("1/s", max_delay=10),
        Limit("1/3s", max_delay=10, key_func=late),
    )

    told = run(clock, at_once(app, 3))

    assert [0.0, 3.0, 6.0] == [round(each.json()["at"], 4) for each in told]


@pytest.mark.parametrize("is_first", [True, False], ids=["first", "last"])
def test_a_refusal_by_another_limit_gives_the_turn_back(
    clock: ManualClock, *, is_first: bool
) -> None:
    """Who is refused takes no turn from others, and is told so at once."""
    limiter = Limiter(store=MemoryStore(clock=clock))
    limits = [Limit("1/s", max_delay=10, name="turns"), Limit("2/h", name="strict")]
    app = serving(limiter, *(limits if is_first else limits[::-1]))
    alone = Throttled(limits[0], store=limiter.store)

    async def main() -> tuple[list[httpx.Response], float]:
        told = await at_once(app, 5)
        now = asyncio.get_running_loop().time()
        for _ in range(3):  # it has one turn a second, as if nobody had been refused
            await alone.limit("alice")
        return told, now

    told, now = run(clock, main())

    assert [200, 200, 429, 429, 429] == [each.status_code for each in told]
    assert 1.0 == round(now, 4)
    assert "1800" == told[4].headers["Retry-After"]


def test_a_turn_comes_back_from_another_limiter(clock: ManualClock) -> None:
    """Of two limiters on one function the second refuses: the first gives it back."""
    store = MemoryStore(clock=clock)
    first, second = Limiter(store=store), Limiter(store=store, prefix="second")
    router = ThrottledRouter(first)

    @router.get("/")
    @second.limit("2/h")
    @first.limit("1/s", max_delay=60)
    async def get() -> None: ...

    app = FastAPI()
    app.include_router(router)

    async def main() -> float:
        assert [200, 200, 429, 429] == [
            each.status_code for each in await at_once(app, 4)
        ]
        return asyncio.get_running_loop().time()

    assert 1.0 == round(run(clock, main()), 4)


def test_who_is_cancelled_while_waiting_stays_charged(clock: ManualClock) -> None:
    """Those behind keep their turns: they do not move up."""
    throttled = Throttled(
        Limit(ONE_A_SECOND, max_delay=10), store=MemoryStore(clock=clock)
    )

    async def main() -> tuple[float, int]:
        tasks = [asyncio.ensure_future(throttled.limit("alice")) for _ in range(3)]
        await asyncio.sleep(0.25)
        tasks[1].cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        return asyncio.get_running_loop().time(), (
            await throttled.peek("alice")
        ).state.remaining

    ended, remaining = run(clock, main())

    assert (2.0, 0) == (round(ended, 4), remaining)


def test_who_may_wait_shares_a_bucket_with_those_who_may_not(
    clock: ManualClock,
) -> None:
    """They have one count: while somebody waits, the others are refused."""
    limiter = Limiter(store=MemoryStore(clock=clock))
    patient = limiter.throttled("1/s", bucket="shared", max_delay=10)
    hasty = limiter.throttled("1/s", bucket="shared")

    async def main() -> list[bool]:
        tasks = [asyncio.ensure_future(patient.limit("alice")) for _ in range(3)]
        await asyncio.sleep(0.5)
        refused = [(await hasty.limit("alice")).limited]
        await asyncio.gather(*tasks)
        refused.append((await hasty.limit("alice")).limited)
        clock.advance(1)
        refused.append((await hasty.limit("alice")).limited)
        return refused

    assert [True, True, False] == run(clock, main())


def test_a_clock_that_is_set_back_gives_no_turns_away(clock: ManualClock) -> None:
    """All turns are taken then, and come back as the quota has it."""
    clock.set(36_000)
    throttled = Throttled(
        Limit(ONE_A_SECOND, max_delay=2), store=MemoryStore(clock=clock)
    )

    async def main() -> list[tuple[bool, float | None]]:
        tasks = [asyncio.ensure_future(throttled.limit("alice")) for _ in range(2)]
        await asyncio.sleep(0)
        clock.advance(-28_800)
        seen = [await throttled.limit("alice")]
        for task in tasks:
            task.cancel()  # their loop goes by that clock, too
        clock.advance(1)
        seen.append(await throttled.peek("alice"))
        return [(each.limited, each.state.retry_after) for each in seen]

    assert [(True, 1.0), (False, 0.0)] == run(clock, main())


@pytest.mark.parametrize("way", ["ours", "decorated", "dependency", "middleware"])
def test_every_kind_of_limit_lets_wait(clock: ManualClock, way: str) -> None:
    """Routes of ours, plain functions, dependencies and middleware wait alike."""
    limiter = Limiter(store=MemoryStore(clock=clock))
    router = ThrottledRouter(limiter) if way == "ours" else APIRouter()
    limit = Limit(ONE_A_SECOND, max_delay=1)
    app = FastAPI()

    async def get() -> float:
        return asyncio.get_running_loop().time()

    if way in {"ours", "decorated"}:
        get = limiter.limit(limit)(get)
    depends = [Depends(limiter.dependency(limit))] if way == "dependency" else []
    router.get("/", dependencies=depends)(get)
    app.include_router(router)
    if way == "middleware":
        app.add_middleware(RateLimitMiddleware, limiter=limiter, throttle=limit)

    told = run(clock, at_once(app, 3))

    assert [200, 200, 429] == [each.status_code for each in told]
    assert [0.0, 1.0] == [round(each.json(), 4) for each in told[:2]]


def test_a_quota_function_may_let_wait(clock: ManualClock) -> None:
    """Turns are those of the quota that it chose."""

    def by_plan(request: Request) -> str:
        return request.headers.get("X-Plan", "1/s")

    limiter = Limiter(store=MemoryStore(clock=clock))
    app = serving(limiter, Limit(by_plan, max_delay=2))

    told = run(clock, at_once(app, 4))

    assert [200, 200, 200, 429] == [each.status_code for each in told]


def test_a_quota_function_may_not_choose_what_lets_too_many_wait(
    clock: ManualClock,
) -> None:
    """It is told as any answer that is no quota."""

    def by_plan() -> Quota:
        return Quota(10**12, 0.000_01)

    limiter = Limiter(store=MemoryStore(clock=clock))
    app = serving(limiter, Limit(by_plan, max_delay=60))

    with pytest.raises(InvalidAnswerError, match="Write a shorter delay"):
        run(clock, at_once(app, 1))


def relay(clock: ManualClock) -> Relay:
    """Return a store that is not ours."""
    return Relay(MemoryStore(clock=clock))


@pytest.mark.parametrize(
    "make",
    [MemoryStore, relay],
    ids=["ours", "theirs"],
)
def test_hooks_are_told_of_the_wait(
    clock: ManualClock, make: Callable[..., Store]
) -> None:
    """Each check tells how long the request waits; who is refused does not."""
    notes = Notes()
    limiter = Limiter(store=make(clock=clock), hooks=[notes])
    app = serving(
        limiter, Limit("1/s", max_delay=1.5, name="a"), Limit("9/s", name="b")
    )

    run(clock, at_once(app, 3))

    assert [
        ("a", "admitted", 0.0),
        ("b", "admitted", 0.0),
        ("a", "admitted", 1.0),
        ("b", "admitted", 0.0),
        ("a", "refused", 0.0),
        ("b", "spared", 0.0),
    ] == [(each.limit.name, each.outcome, each.delay) for each in notes.checks]


def test_who_is_spared_waits_for_nothing(clock: ManualClock) -> None:
    """A refusal by hand is told at once, though others wait for their turns."""
    notes = Notes()
    limiter = Limiter(store=MemoryStore(clock=clock), hooks=[notes])
    both = limiter.throttled(
        [Limit("1/s", max_delay=9, bucket="turns"), Limit("2/h", bucket="strict")]
    )

    async def main() -> tuple[RateLimitResult, float]:
        waiting = [asyncio.ensure_future(both.limit("alice")) for _ in range(2)]
        await asyncio.sleep(0)
        refused = await both.limit("alice")
        now = asyncio.get_running_loop().time()
        await asyncio.gather(*waiting)
        return refused, now

    refused, now = run(clock, main())

    assert (True, 0.0, 0.0) == (refused.limited, refused.delay, now)
    assert [("spared", 0.0), ("refused", 0.0)] == [
        (each.outcome, each.delay) for each in notes.checks[-2:]
    ]


def test_by_hand_the_wait_is_over_when_the_result_is_there(clock: ManualClock) -> None:
    """The result of several limits tells the longest wait."""
    both = Throttled(
        [Limit("1/s", max_delay=9), Limit("1/2s", max_delay=9)],
        store=MemoryStore(clock=clock),
    )

    async def main() -> tuple[float, float]:
        await both.limit("alice")
        result = await both.limit("alice")
        return result.delay, round(asyncio.get_running_loop().time(), 4)

    assert (2.0, 2.0) == run(clock, main())


# --- what is refused at once ----------------------------------------------------------


@pytest.mark.parametrize(
    "delay",
    [-1, float("nan"), float("inf"), 86_401, True, "1", None],
    ids=str,
)
def test_a_delay_is_a_number_of_seconds(delay: float) -> None:
    """From none to a day; anything else is refused, with what to write."""
    with pytest.raises(ConfigurationError, match="Write for example max_delay"):
        Limit("5/m", max_delay=delay)


def dynamic() -> Quota:
    """Choose a quota."""
    return ONE_A_SECOND


async def dynamic_get() -> None:
    """Serve."""


@pytest.mark.parametrize("quota", [ONE_A_SECOND, dynamic], ids=["static", "dynamic"])
@pytest.mark.parametrize(
    "using",
    [Algorithm.FIXED_WINDOW, Algorithm.SLIDING_WINDOW, Algorithm.SLIDING_LOG],
)
def test_windows_know_no_turns(
    quota: Quota | Callable[[], Quota], using: Algorithm
) -> None:
    """They are refused where the limit is declared, or where it is registered."""
    with pytest.raises(ConfigurationError, match="knows no turns"):
        Limit(quota, using=using, max_delay=1)
    router = ThrottledRouter(Limiter(Limit(dynamic, max_delay=1), using=using))
    with pytest.raises((ConfigurationError, RegistrationError), match="knows no turns"):
        router.add_api_route("/", dynamic_get)


def test_not_too_many_may_wait() -> None:
    """A trillion is enough; a script could not count more."""
    assert 1.0 == Limit(Quota(10**12, 1), max_delay=1).max_delay
    with pytest.raises(ConfigurationError, match="Write a shorter delay"):
        Limit(Quota(10**12, 1), max_delay=1.000_01)
