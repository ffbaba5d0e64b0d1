"""What is known to be refused is answered without the server, and exactly."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from tests.clock import ManualClock
from tests.redis.servers import Server
from tests.redis.stores import PATIENT_S, forget_denials, scripts_run
from throttled_views import Algorithm, Charge, MemoryStore, Quota, RateLimitResult
from throttled_views.algorithms.kernels import kernel_of
from throttled_views.results import decision_of
from throttled_views.stores.deciding import told
from throttled_views.stores.redis import RedisStore
from throttled_views.stores.statistics import StoreStatistics

FIVE = Quota.per_minute(5)
TEN = Quota.per_hour(10)


@pytest.fixture(name="store")
async def store_fixture(
    redis_url: str, clock: ManualClock
) -> AsyncIterator[RedisStore]:
    """Give a store without keys that goes by a clock that stands still."""
    store = RedisStore(redis_url, timeout=PATIENT_S, clock=clock)
    yield store
    await store.aclose()


@pytest.fixture(name="other")
async def other_fixture(
    redis_url: str, clock: ManualClock
) -> AsyncIterator[RedisStore]:
    """Give a store of another process: the same server, and nothing known."""
    store = RedisStore(redis_url, timeout=PATIENT_S, clock=clock)
    yield store
    await store.aclose()


async def spend(store: RedisStore, *charges: Charge) -> None:
    """Charge each on its own, until it is refused."""
    for charge in charges:
        while not (await store.acquire([charge]))[0].limited:
            pass


async def trips(store: RedisStore, server: Server, *charges: Charge) -> int:
    """Return how often the server is asked for a call."""
    before = scripts_run(server)
    await store.acquire(charges)
    return scripts_run(server) - before


async def test_a_refused_key_costs_a_trip_a_second(
    store: RedisStore, server: Server, clock: ManualClock
) -> None:
    """However often it asks; the server is asked again after a second."""
    charge = Charge("alice", FIVE)
    await spend(store, charge)
    seen: list[int] = []
    for _ in range(5):
        seen.append(sum([await trips(store, server, charge) for _ in range(20)]))
        clock.advance(1)

    assert [0, 1, 1, 1, 1] == seen


@pytest.mark.parametrize("using", Algorithm)
async def test_answers_are_those_of_a_store_that_knows_nothing(
    store: RedisStore, other: RedisStore, clock: ManualClock, using: Algorithm
) -> None:
    """Each result is what the server, and a store in memory, would tell."""
    memory = MemoryStore(clock=clock)
    charge, more = Charge("alice", FIVE, using), Charge("alice", FIVE, using, 2)
    refused = 0
    for _ in range(400):
        [looked] = await other.peek([charge])
        [answered] = await store.acquire([charge])
        assert [answered] == list(await memory.acquire([charge]))
        refused += answered.limited
        if answered.limited:
            assert looked == answered
            assert list(await memory.acquire([more])) == list(
                await store.acquire([more])
            )
        clock.advance(0.25)

    assert refused > 300


@pytest.mark.parametrize("using", Algorithm)
async def test_the_quick_way_knows_too(
    store: RedisStore, server: Server, clock: ManualClock, using: Algorithm
) -> None:
    """A key that is refused there is answered at once, as the server would."""
    kernel, charge = kernel_of(FIVE, using), Charge("alice", FIVE, using)
    take = store.taker("ali", str, "", kernel, 1)
    for _ in range(6):
        answer = take("ce")
        assert not isinstance(answer, tuple)
        await answer
    before = scripts_run(server)
    clock.advance(0.5)
    known = take("ce")
    assert isinstance(known, tuple)
    [result] = await store.acquire([charge])

    assert before == scripts_run(server)
    forget_denials(store, "alice")
    [asked] = await store.acquire([charge])

    assert asked.state == result.state
    # A refusal does not say when it was.
    assert told(known, kernel, 1)._replace(at_us=0) == decision_of(asked)


@pytest.mark.parametrize(("cost", "asks"), [(1, 1), (2, 1), (3, 0), (4, 0), (5, 0)])
async def test_only_as_much_or_more_is_known_to_be_refused(
    store: RedisStore, server: Server, cost: int, asks: int
) -> None:
    """What costs less may have room; what costs more has not."""
    await store.acquire([Charge("alice", FIVE, cost=3)])
    await store.acquire([Charge("alice", FIVE, cost=3)])

    assert asks == await trips(store, server, Charge("alice", FIVE, cost=cost))


async def test_what_is_charged_since_is_told(
    store: RedisStore, other: RedisStore
) -> None:
    """A refusal tells of what cheaper requests took after it was first known."""
    dear = Charge("alice", FIVE, cost=4)
    await store.acquire([dear])
    [refused] = await store.acquire([dear])
    await store.acquire([Charge("alice", FIVE)])
    [later] = await store.acquire([dear])

    assert [36.0, 48.0] == [refused.state.retry_after, later.state.retry_after]
    assert [later] == list(await other.acquire([dear]))


async def test_another_quota_is_not_known(store: RedisStore, server: Server) -> None:
    """What one quota refuses another may admit."""
    await spend(store, Charge("alice", FIVE))

    assert 1 == await trips(store, server, Charge("alice", Quota.per_minute(6)))


@pytest.mark.parametrize("first", [0, 1])
async def test_several_limits_are_known_together(
    store: RedisStore, server: Server, first: int
) -> None:
    """A call that one of its limits refused is refused again, in whichever order."""
    spent, rich = Charge("alice", FIVE), Charge("all", TEN)
    await spend(store, spent)
    await store.acquire([rich, spent])
    call = [rich, spent] if first else [spent, rich]
    before = scripts_run(server)
    results = await store.acquire(call)

    assert before == scripts_run(server)
    assert {5: True, 10: False} == {r.state.limit: r.limited for r in results}
    assert 1 == await trips(store, server, rich)


async def test_a_reset_is_seen_at_once(store: RedisStore) -> None:
    """Whoever resets a key here can use it here."""
    await spend(store, Charge("alice", FIVE))
    await store.reset(["alice"])

    assert [False] == [r.limited for r in await store.acquire([Charge("alice", FIVE)])]


async def test_a_refund_is_seen_at_once(store: RedisStore) -> None:
    """What is given back here can be used here."""
    [first] = await store.acquire([Charge("alice", FIVE)])
    await spend(store, Charge("alice", FIVE))
    await store.refund(first.receipts)

    assert [False] == [r.limited for r in await store.acquire([Charge("alice", FIVE)])]


async def test_others_are_seen_within_a_second(
    store: RedisStore, other: RedisStore, clock: ManualClock
) -> None:
    """What another process gives back is used here a second later at most."""
    await spend(store, Charge("alice", FIVE))
    await other.reset(["alice"])
    [early] = await store.acquire([Charge("alice", FIVE)])
    clock.advance(1)
    [later] = await store.acquire([Charge("alice", FIVE)])

    assert [True, False] == [early.limited, later.limited]


async def test_a_reset_is_seen_by_what_is_on_its_way(store: RedisStore) -> None:
    """A refusal that is heard after the reset of its key is not kept."""
    await spend(store, Charge("alice", FIVE, cost=5))
    results: list[RateLimitResult] = []
    for _ in range(20):
        await store.acquire([Charge("alice", FIVE, cost=5)])
        forget_denials(store, "alice")
        await asyncio.gather(
            store.acquire([Charge("alice", FIVE)]), store.reset(["alice"])
        )
        results += await store.acquire([Charge("alice", FIVE)])

    assert [False] * 20 == [each.limited for each in results]


@pytest.mark.parametrize("by", ["reset", "refund"])
async def test_who_is_refused_while_a_key_is_given_back_is_not_remembered(
    store: RedisStore, by: str
) -> None:
    """What is given back on a slow connection is seen once that has ended."""
    [first] = await store.acquire([Charge("alice", FIVE, cost=5)])  # opens one of two
    busy = asyncio.create_task(_acquired(store, Charge("bob", FIVE)))
    await asyncio.sleep(0)
    given_back = asyncio.create_task(_given_back(store, first, by))  # opens the other
    await asyncio.sleep(0)
    await busy
    await store.acquire([Charge("alice", FIVE)])
    await given_back
    [after] = await store.acquire([Charge("alice", FIVE)])

    assert not after.limited


async def _acquired(store: RedisStore, charge: Charge) -> None:
    await store.acquire([charge])


async def _given_back(store: RedisStore, result: RateLimitResult, by: str) -> None:
    if by == "reset":
        await store.reset(["alice"])
    else:
        await store.refund(result.receipts)


async def test_a_clock_that_is_set_back_is_noticed(
    store: RedisStore, server: Server, clock: ManualClock
) -> None:
    """What was known of a later time is asked again."""
    clock.set(100)
    await spend(store, Charge("alice", FIVE))
    clock.set(50)

    assert 1 == await trips(store, server, Charge("alice", FIVE))


async def test_only_so_much_is_known(
    store: RedisStore, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who floods the store with refused keys makes it forget the oldest."""
    monkeypatch.setattr("throttled_views.stores.denials._MOST_KEYS", 3)
    charges = [Charge(f"client {number}", FIVE) for number in range(9)]
    await spend(store, *charges)
    asked = [await trips(store, server, each) for each in reversed(charges[-4:])]

    assert [0, 0, 0, 1] == asked


async def test_what_is_never_admitted_is_asked(
    store: RedisStore, server: Server
) -> None:
    """A cost above the capacity has no wait to be known."""
    charge = Charge("alice", FIVE, cost=6)
    await store.acquire([charge])

    assert 1 == await trips(store, server, charge)


async def test_statistics_count_what_was_refused_without_the_server(
    store: RedisStore,
) -> None:
    """By either way to ask, and only where the server was not asked."""
    take = store.taker("", str, "", kernel_of(FIVE, Algorithm.GCRA), 1)
    await spend(store, Charge("alice", FIVE))
    told = [store.statistics]
    await store.acquire([Charge("alice", FIVE)])
    told.append(store.statistics)
    take("alice")
    told.append(store.statistics)

    assert [StoreStatistics(cached_refusals=count) for count in range(3)] == told
