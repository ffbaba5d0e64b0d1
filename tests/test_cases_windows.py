"""Scenarios from public bug reports, by number: what windows and logs answer."""

import gc
import tracemalloc
from collections.abc import Iterator, Sequence
from datetime import timedelta
from fractions import Fraction

import pytest

from tests.asgi import answers as responses
from tests.asgi import app_of
from tests.clock import ManualClock
from tests.coroutines import at_once
from tests.letters import answers, burst, letter, remaining, retry_after
from throttled_views import (
    Algorithm,
    Charge,
    Limit,
    Limiter,
    MemoryStore,
    Quota,
    Throttled,
    ThrottledRouter,
    ThrottledView,
    limit,
)

WINDOWS = (Algorithm.FIXED_WINDOW, Algorithm.SLIDING_WINDOW, Algorithm.SLIDING_LOG)
FIXED, SLIDING, LOG = WINDOWS
HOUR = 3600


@pytest.fixture(name="using", params=WINDOWS)
def using_fixture(request: pytest.FixtureRequest) -> Algorithm:
    """Give each algorithm that counts in windows in turn."""
    using: Algorithm = request.param
    return using


def by_hand(quota: str, using: Algorithm, store: MemoryStore) -> Throttled:
    """Return what holds keys to *quota* by *using*."""
    return Throttled(quota, using=using, store=store)


# --- counting


@pytest.mark.parametrize(
    ("using", "admitted"), [(FIXED, 100), (SLIDING, 91), (LOG, 100)]
)
async def test_case_7_refusals_are_not_counted(
    store: MemoryStore, clock: ManualClock, using: Algorithm, admitted: int
) -> None:
    """A client that asks for 12 a minute for ten minutes is not shut out."""
    throttled = by_hand("10/m", using, store)
    letters = await answers(throttled, clock, range(0, 600, 5))

    assert admitted == letters.count("A")


async def test_case_8_the_block_ends_when_the_oldest_hit_leaves(
    store: MemoryStore, clock: ManualClock
) -> None:
    """Half a second before that is told as half a second, and as 1 in the field."""
    throttled = by_hand("10 per 10 s", LOG, store)

    assert "A" * 10 == await answers(throttled, clock, range(10))
    clock.set(9.5)
    refused = await throttled.limit("alice")
    assert ("D", 0.5, "1") == (
        letter(refused),
        refused.state.retry_after,
        retry_after(refused),
    )
    assert "A" == await answers(throttled, clock, [10])


@pytest.mark.parametrize(
    ("using", "after"), [(FIXED, "A" * 60), (SLIDING, "D" * 60), (LOG, "D" * 60)]
)
async def test_case_10_around_the_edge_of_a_window(
    store: MemoryStore, clock: ManualClock, using: Algorithm, after: str
) -> None:
    """A fixed window lets twice its limit through, and never more; the others once."""
    throttled = by_hand("60/m", using, store)
    clock.set(59.9)

    assert "A" * 60 + "D" == await burst(throttled, 61)
    clock.set(60.1)
    assert after + "D" == await burst(throttled, 61)


async def test_case_11_what_remains_is_what_would_be_admitted(
    store: MemoryStore, clock: ManualClock
) -> None:
    """Nine tenths of the former window count, in what is told as in what is done."""
    throttled = by_hand("100/m", SLIDING, store)
    clock.set(30)
    await burst(throttled, 50)
    clock.set(66)
    await burst(throttled, 10)

    assert 45 == await remaining(throttled)
    assert "A" * 45 + "D" == await burst(throttled, 46)


@pytest.mark.parametrize(("using", "admitted"), [(FIXED, 9), (SLIDING, 1), (LOG, 2)])
async def test_case_13_what_is_kept_lives_as_long_as_it_counts(
    store: MemoryStore, clock: ManualClock, using: Algorithm, admitted: int
) -> None:
    """A key is not forgotten a period after it was made, with all its recent hits."""
    throttled = by_hand("10/h", using, store)
    await throttled.limit("alice")
    clock.set(3540)
    await throttled.limit("alice", 8)
    clock.set(3660)
    for number in range(1_000):  # which looks for keys that may be forgotten
        await throttled.limit(f"k{number}")

    assert admitted == (await burst(throttled, 9)).count("A")


async def test_case_14_stale_hits_are_dropped_before_anything_is_counted(
    store: MemoryStore, clock: ManualClock
) -> None:
    """The first request after the window passes, and so does each one after it."""
    throttled = by_hand("1/s", LOG, store)

    assert "AAAA" == await answers(throttled, clock, [0, 1.2, 2.4, 3.6])


async def test_case_16_count_and_window_are_renewed_together(
    store: MemoryStore, clock: ManualClock
) -> None:
    """At 150 requests a second exactly 100 of each second pass, the first leaves 99."""
    throttled = by_hand("100/s", FIXED, store)
    for second in range(20):
        instants = [second + Fraction(number, 150) for number in range(150)]
        clock.set(second)

        assert 100 == await remaining(throttled)
        assert "A" * 100 + "D" * 50 == await answers(throttled, clock, instants)

    clock.set(20)
    assert 99 == (await throttled.limit("alice")).state.remaining


class Rolling:
    """A clock that is told all its readings beforehand."""

    def __init__(self) -> None:
        self.readings: Iterator[int] = iter(())

    def __call__(self) -> int:
        """Return the next reading."""
        return next(self.readings)


@pytest.mark.parametrize("quick", [True, False], ids=["quick", "plain"])
async def test_case_17_a_decision_reads_the_clock_once(*, quick: bool) -> None:
    """A request is judged and counted in one window, whenever the second rolls."""
    clock = Rolling()
    store = MemoryStore(clock=clock)
    five = Limit("5/s", using=FIXED)
    rule = Throttled(five, store=store).rules[0]
    assert rule.kernel is not None
    take_one = store.taker(rule.head, str, rule.tail, rule.kernel, 1)

    def refused() -> bool:
        if quick:
            return take_one("{alice}")[0]
        charge = Charge(rule.key("{alice}"), Quota.per_second(5), FIXED)
        return at_once(store.acquire([charge]))[0].limited

    clock.readings = iter([999_900] * 6 + [1_000_100] * 6)

    assert [False] * 5 + [True] + [False] * 5 + [True] == [refused() for _ in range(12)]


@pytest.mark.parametrize(
    ("using", "millisecond", "microsecond"),
    [(FIXED, "AA", "AA"), (SLIDING, "AD", "AD"), (LOG, "AA", "AD")],
)
async def test_case_20_microseconds_are_a_number(
    store: MemoryStore,
    clock: ManualClock,
    using: Algorithm,
    millisecond: str,
    microsecond: str,
) -> None:
    """Between (100, 999) and (100, 1999) lies a millisecond, at (101, 0) a second."""
    throttled = by_hand("1/ms", using, store)
    first = await answers(throttled, clock, [100.000_999, 100.001_999])
    second = await answers(throttled, clock, [100.999_999, 101])

    assert (millisecond, microsecond) == (first, second)


async def test_case_22_a_very_fast_rate_limits(
    store: MemoryStore, using: Algorithm
) -> None:
    """At two in a microsecond, ten are ten while the clock stands."""
    throttled = Throttled(
        Quota(10, timedelta(microseconds=5)), store=store, using=using
    )

    assert "AAAAAAAAAAD" == await burst(throttled, 11)


@pytest.mark.parametrize(
    ("using", "wait"), [(FIXED, "82800"), (SLIDING, "157738"), (LOG, "85920")]
)
async def test_case_26_a_quota_that_shrinks_refuses_for_as_long_as_it_takes(
    store: MemoryStore, clock: ManualClock, using: Algorithm, wait: str
) -> None:
    """With 1500 of 2000 spent, none of 200 remain, and 500 do when it is raised."""
    large, small = Quota.per_day(2000), Quota.per_day(200)
    for number in range(1500):
        clock.set(number * 2.4)
        await store.acquire([Charge("k", large, using)])
    clock.set(HOUR)
    [refused] = await store.acquire([Charge("k", small, using)])
    [raised] = await store.peek([Charge("k", large, using)])

    assert ("D", 0, wait) == (
        letter(refused),
        refused.state.remaining,
        retry_after(refused),
    )
    assert 500 == raised.state.remaining
    assert refused.state.retry_after
    clock.advance(refused.state.retry_after - 0.000_001)
    [early] = await store.acquire([Charge("k", small, using)])
    clock.advance(0.000_001)
    [later] = await store.acquire([Charge("k", small, using)])
    assert "DA" == letter(early) + letter(later)


async def test_case_28_a_long_window_counts_what_passed(
    store: MemoryStore, clock: ManualClock
) -> None:
    """What the short window refuses is not charged to the long one."""
    throttled = by_hand("10/m; 30 per 30 m", FIXED, store)

    assert "A" * 10 + "D" * 6 == await burst(throttled, 16)
    clock.set(60)
    assert "A" * 10 + "D" * 5 == await burst(throttled, 15)
    clock.set(120)
    assert "A" * 10 == await burst(throttled, 10)
    clock.set(180)
    refused = await throttled.limit("alice")
    assert ("D", "1620") == (letter(refused), retry_after(refused))
    assert "DDA" == await answers(throttled, clock, [240, 1799.999_999, 1800])


async def test_case_28_a_denial_by_one_limit_charges_none(
    store: MemoryStore, using: Algorithm
) -> None:
    """A flood that its own limit stops leaves the limit of all to the others."""
    hundred = Quota.per_minute(100)

    async def ask(user: str) -> str:
        results = await store.acquire(
            [Charge(user, Quota.per_minute(1), using), Charge("app", hundred, using)]
        )
        return max(letter(result) for result in results)

    assert ["A"] + ["D"] * 199 == [await ask("flooder") for _ in range(200)]
    assert "A" == await ask("other")
    [app] = await store.peek([Charge("app", hundred, using)])
    assert 98 == app.state.remaining


async def test_case_28_the_largest_wait_is_told(
    store: MemoryStore, using: Algorithm
) -> None:
    """Of several limits that refuse, the one that takes longest sets Retry-After."""
    throttled = by_hand("1/s; 1/h; 1/m", using, store)
    await throttled.limit("alice")
    wait = {FIXED: "3600", SLIDING: "7200", LOG: "3600"}[using]

    assert wait == retry_after(await throttled.limit("alice"))


async def test_case_31_a_limit_of_a_handler_replaces_that_of_all(
    store: MemoryStore, using: Algorithm
) -> None:
    """One request is one unit of its own limit, and none of the one it replaces."""
    router = ThrottledRouter(Limiter("20 per 10 s", store=store, using=using))

    @router.view
    class Items(ThrottledView):
        path = "/"

        async def get(self) -> None:
            """Be held to the limiter's default."""

        @limit("1/m")
        async def post(self) -> None:
            """Be held to a limit of its own."""

    app = app_of(router)

    admitted, refused, other = await responses(app, "POST /", "POST /", "GET /")

    assert [204, 429, 204] == [
        204 if answer.is_success else answer.status_code
        for answer in (admitted, refused, other)
    ]
    assert ["1", "1", "20"] == [
        answer.headers["RateLimit-Limit"] for answer in (admitted, refused, other)
    ]
    assert "19" == other.headers["RateLimit-Remaining"]


async def test_case_31_a_limiter_that_is_met_twice_charges_once(
    store: MemoryStore, using: Algorithm
) -> None:
    """A function that is decorated for a router which limits anyway is one limit."""
    limiter = Limiter("5/h", store=store, using=using)
    router = ThrottledRouter(limiter)

    @router.get("/")
    @limiter.limit()
    async def get() -> None:
        """Do nothing."""

    (answer,) = await responses(app_of(router), "GET /")

    assert "4" == answer.headers["RateLimit-Remaining"]
    assert 1 == len(store)


async def test_case_32_equal_limits_of_two_scopes_are_two_counters(
    store: MemoryStore, using: Algorithm
) -> None:
    """Two limits of 5 a minute admit five requests, and not two and a half."""
    limits = [Limit("5/m", name="class"), Limit("5/m", name="route")]
    throttled = Throttled(limits, store=store, using=using)

    assert "AAAAAD" == await burst(throttled, 6)


async def test_case_32_equal_limits_by_two_algorithms_are_two_counters(
    store: MemoryStore,
) -> None:
    """In one bucket, too: what is counted in another way has another key."""
    one, other = (
        Throttled(Limit("5/m", bucket="shared", using=each), store=store)
        for each in (FIXED, LOG)
    )

    assert "AAAAAD" == await burst(one, 6)
    assert "AAAAAD" == await burst(other, 6)
    assert 2 == len(store)


# --- the size of what is kept


def kept_bytes(store: MemoryStore, charges: Sequence[Charge]) -> int:
    """Return by how much memory grows when all of *charges* are made, one by one."""
    tracemalloc.start()
    try:
        for charge in charges:
            at_once(store.acquire([charge]))
        gc.collect()
        # Ours alone: other threads of the tests may keep something meanwhile.
        ours = tracemalloc.Filter(inclusive=True, filename_pattern="*throttled_views*")
        kept = tracemalloc.take_snapshot().filter_traces([ours])
        return sum(trace.size for trace in kept.traces)
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("using", [FIXED, SLIDING])
def test_case_91_a_counter_is_small_whatever_its_limit(
    store: MemoryStore, using: Algorithm
) -> None:
    """The same key takes less than a kilobyte, after one hit as after thousands."""
    charge = Charge("alice", Quota.per_day(70_000), using)
    at_once(store.acquire([charge]))

    assert 1_000 > kept_bytes(store, [charge] * 2_000)


def test_case_91_a_refusal_is_not_kept(store: MemoryStore, using: Algorithm) -> None:
    """A key that is full stays as large as it is, however often it refuses."""
    hit = Charge("alice", Quota.per_day(200), using)
    for _ in range(200):
        at_once(store.acquire([hit]))

    assert 1_000 > kept_bytes(store, [hit] * 2_000)
    assert 1 == len(store)


# --- headers


async def test_case_100_the_wait_is_not_that_of_the_newest_hit(
    store: MemoryStore, clock: ManualClock
) -> None:
    """At 50 s it is 10 s until the oldest hit, of zero, leaves the window."""
    throttled = by_hand("5 per 60 s", LOG, store)
    await answers(throttled, clock, range(0, 50, 10))
    clock.set(50)
    refused = await throttled.limit("alice")

    assert ("D", 10.0, 50.0, "10") == (
        letter(refused),
        refused.state.retry_after,
        refused.state.reset_after,
        retry_after(refused),
    )


# --- memory


async def test_case_106_keys_that_never_come_back_are_forgotten(
    clock: ManualClock, using: Algorithm
) -> None:
    """What is kept follows the keys that still count, and not all ever seen."""
    store = MemoryStore(max_keys=100_000, clock=clock)
    ten = Quota(10, 2)
    lives_s = 4 if using is SLIDING else 2
    longest = 0
    for number in range(10_000):  # 500 new keys in a second
        clock.advance(0.002)
        await store.acquire([Charge(f"k{number}", ten, using)])
        longest = max(longest, len(store))

    assert 2 * 500 * lives_s + 1_000 > longest

    clock.advance(120)
    for number in range(2 * longest):
        await store.acquire([Charge(f"later{number}", ten, using)])

    assert (2 * longest, 0) == (len(store), store.evictions)


async def test_case_109_an_attacker_cannot_push_itself_out(
    clock: ManualClock, using: Algorithm
) -> None:
    """After a flood of keys, who was at its limit still is, and others are let in."""
    store = MemoryStore(max_keys=1_000, clock=clock)
    throttled = by_hand("5/m", using, store)
    await burst(throttled, 5, "attacker")
    for number in range(10_000):
        await throttled.limit(f"thrown away {number}")

    assert "D" == await burst(throttled, 1, "attacker")
    assert "A" == await burst(throttled, 1, "honest")
    assert 1_000 >= len(store)
    assert (10_002 - len(store), 0) == (store.evictions, store.exhausted_evictions)
