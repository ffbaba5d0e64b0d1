"""The memory store: the contract of every store, and its own bounds."""

import asyncio
import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from dataclasses import replace
from itertools import pairwise
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.clock import ManualClock
from tests.coroutines import at_once
from tests.model import BucketModel
from throttled_views import (
    Charge,
    ConfigurationError,
    MemoryStore,
    Quota,
    RateLimitResult,
    RateLimitState,
    Receipt,
    Store,
)
from throttled_views.algorithms.bucket import Bucket
from throttled_views.algorithms.kernels import kernel_of
from throttled_views.results import result_of
from throttled_views.stores.base import Clock
from throttled_views.stores.statistics import StoreStatistics

FIVE = Quota.per_minute(5)  # one back every 12 s
TEN = Quota.per_minute(10)  # one back every 6 s


def charge(store: Store, key: str, quota: Quota, cost: int = 1) -> RateLimitResult:
    """Charge one key, and return the answer."""
    [result] = at_once(store.acquire([Charge(key, quota, cost=cost)]))
    return result


def state(store: Store, key: str, quota: Quota) -> RateLimitState:
    """Return where a key stands."""
    [result] = at_once(store.peek([Charge(key, quota)]))
    return result.state


def remaining(store: Store, key: str, quota: Quota) -> int:
    """Return how many requests a key could make now."""
    return state(store, key, quota).remaining


# --- the contract of every store


def test_it_is_a_store(store: MemoryStore) -> None:
    """A memory store can be given wherever a store is wanted."""
    as_store: Store = store

    assert isinstance(as_store, MemoryStore)


async def test_an_admitted_call_tells_where_the_key_stands(store: MemoryStore) -> None:
    """The state is the one after the charge, and there is a receipt."""
    [result] = await store.acquire([Charge("alice", TEN, cost=3)])

    assert not result.limited
    assert RateLimitState(10, 7, reset_after=18.0, retry_after=0.0) == result.state
    assert (Receipt(Charge("alice", TEN, cost=3), at_us=0),) == result.receipts


async def test_a_refused_call_tells_how_long_to_wait(store: MemoryStore) -> None:
    """A refusal has the exact wait, and nothing to refund."""
    await store.acquire([Charge("alice", TEN, cost=9)])
    [result] = await store.acquire([Charge("alice", TEN, cost=3)])

    assert result.limited
    assert RateLimitState(10, 1, reset_after=54.0, retry_after=12.0) == result.state
    assert () == result.receipts


async def test_several_charges_are_answered_in_order(store: MemoryStore) -> None:
    """Each charge gets a result of its own, in the order they were given."""
    results = await store.acquire(
        [Charge("alice", FIVE), Charge("all", TEN, cost=2), Charge("bob", FIVE, cost=4)]
    )

    assert [4, 8, 1] == [result.state.remaining for result in results]
    assert ["alice", "all", "bob"] == [
        result.receipts[0].charge.key for result in results
    ]


@pytest.mark.parametrize("refused_first", [True, False])
async def test_a_call_that_one_limit_refuses_charges_none(
    store: MemoryStore, *, refused_first: bool
) -> None:
    """All or nothing: the limits that would have admitted the call are not charged."""
    await store.acquire([Charge("spent", FIVE, cost=5)])
    both = [Charge("spent", FIVE), Charge("rich", TEN)]
    results = await store.acquire(both if refused_first else both[::-1])
    limited = {result.state.limit: result.limited for result in results}
    left = {result.state.limit: result.state.remaining for result in results}

    assert {5: True, 10: False} == limited
    assert {5: 0, 10: 10} == left
    assert [(), ()] == [result.receipts for result in results]
    assert 10 == remaining(store, "rich", TEN)


async def test_every_limit_that_refuses_says_so(store: MemoryStore) -> None:
    """If several limits refuse a call, each tells its own wait."""
    await store.acquire([Charge("alice", FIVE, cost=5), Charge("all", TEN, cost=10)])
    results = await store.acquire([Charge("alice", FIVE), Charge("all", TEN)])

    assert [True, True] == [result.limited for result in results]
    assert [12.0, 6.0] == [result.state.retry_after for result in results]


async def test_no_charges_are_admitted(store: MemoryStore) -> None:
    """A call without charges is answered without results."""
    assert [] == list(await store.acquire([]))


async def test_a_key_named_twice_is_refused_for_the_sum(store: MemoryStore) -> None:
    """If one key cannot bear both charges, it bears none."""
    results = await store.acquire([Charge("alice", FIVE, cost=3)] * 2)

    assert [False, True] == [result.limited for result in results]
    assert 5 == remaining(store, "alice", FIVE)


async def test_a_refused_key_named_twice_reports_its_state_as_it_stands(
    store: MemoryStore,
) -> None:
    """Nothing was taken, so both results tell the same state."""
    results = await store.acquire([Charge("alice", FIVE, cost=3)] * 2)

    assert [5, 5] == [result.state.remaining for result in results]


async def test_a_key_named_twice_above_its_capacity_has_no_wait(
    store: MemoryStore,
) -> None:
    """If both charges together are above the capacity, no wait will ever be enough."""
    results = await store.acquire([Charge("alice", FIVE, cost=3)] * 2)

    assert None is results[1].state.retry_after


async def test_a_key_named_twice_may_have_two_quotas(store: MemoryStore) -> None:
    """The second quota counts what the first one left."""
    results = await store.acquire([Charge("alice", TEN), Charge("alice", FIVE)])

    assert [9, 4] == [result.state.remaining for result in results]


@pytest.mark.parametrize(
    "asked",
    [
        Charge("alice", FIVE, cost=0),
        Charge("alice", FIVE, cost=6),
        Charge("alice", Quota.per_hour(0)),
    ],
    ids=["of no cost", "above the capacity", "of a quota of zero"],
)
async def test_what_takes_nothing_makes_no_entry(
    store: MemoryStore, asked: Charge
) -> None:
    """Whether it is admitted or refused, its key is as good as new, and needs none."""
    await store.peek([asked, Charge("bob", FIVE)])
    await store.acquire([asked])

    assert 0 == len(store)


async def test_a_refusal_changes_nothing(
    store: MemoryStore, clock: ManualClock
) -> None:
    """Refused requests do not cost the time that has passed."""
    await store.acquire([Charge("alice", FIVE, cost=5)])
    refused: list[bool] = []
    for _ in range(11):
        clock.advance(1)
        refused.append(charge(store, "alice", FIVE).limited)
    clock.advance(1)

    assert [True] * 11 == refused
    assert not charge(store, "alice", FIVE).limited


async def test_a_refund_to_a_key_without_state_does_nothing(store: MemoryStore) -> None:
    """A forgotten key is full already, and gets no entry."""
    [result] = await store.acquire([Charge("alice", FIVE)])
    await store.reset(["alice"])
    await store.refund(result.receipts)

    assert 0 == len(store)


async def test_a_refund_of_nothing_does_nothing(store: MemoryStore) -> None:
    """The receipts of a refusal, of which there are none, can be refunded."""
    await store.acquire([Charge("alice", FIVE, cost=5)])
    [refused] = await store.acquire([Charge("alice", FIVE)])
    await store.refund(refused.receipts)

    assert 0 == remaining(store, "alice", FIVE)


async def test_a_refund_under_a_former_quota_takes_nothing_away(
    store: MemoryStore,
) -> None:
    """A key that has a larger quota by now keeps all it has."""
    hundred = Quota.per_hour(100)
    [former] = await store.acquire([Charge("alice", FIVE)])
    await store.reset(["alice"])
    await store.acquire([Charge("alice", hundred, cost=40)])
    await store.refund(former.receipts)

    assert 60 <= remaining(store, "alice", hundred)


async def test_reset_makes_a_key_as_good_as_new(store: MemoryStore) -> None:
    """A key that is reset is full; others stay as they are, known or not."""
    await store.acquire([Charge("alice", FIVE, cost=5), Charge("bob", FIVE)])
    await store.reset(["alice", "nobody"])

    assert 5 == remaining(store, "alice", FIVE)
    assert 4 == remaining(store, "bob", FIVE)
    assert 1 == len(store)


async def test_clear_forgets_every_key(store: MemoryStore) -> None:
    """After `clear` the store is as good as new."""
    await store.acquire([Charge(f"k{number}", FIVE, cost=5) for number in range(9)])
    store.clear()

    assert 0 == len(store)
    assert [5] * 9 == [remaining(store, f"k{number}", FIVE) for number in range(9)]


async def test_closing_may_be_done_twice(store: MemoryStore) -> None:
    """A closed store can be closed again, and used again."""
    await store.aclose()
    await store.aclose()

    assert not charge(store, "alice", FIVE).limited


@pytest.mark.parametrize("key", ["", "0", "|", "a\0b", "例", "\ud800", "k" * 100_000])
async def test_any_text_is_a_key(store: MemoryStore, key: str) -> None:
    """The store asks nothing of its keys."""
    await store.acquire([Charge(key, FIVE)])

    assert 4 == remaining(store, key, FIVE)


HELD_TO = {"alice": Quota(7, 60), "bob": TEN, "all": Quota.per_second(3, burst=20)}


@given(
    st.lists(
        st.tuples(
            st.integers(0, 2_000_000) | st.integers(0, 60_000_000),
            st.lists(
                st.tuples(st.sampled_from(list(HELD_TO)), st.integers(0, 4)),
                min_size=1,
                max_size=4,
            ),
        ),
        min_size=5,
    )
)
def test_several_limits_are_exact_together(
    history: list[tuple[int, list[tuple[str, int]]]],
) -> None:
    """However calls name their keys, they pass if all do, and then all are charged."""
    clock = ManualClock()
    store = MemoryStore(clock=clock)
    models = {key: BucketModel(quota, 0) for key, quota in HELD_TO.items()}
    for gap_us, asked in history:
        clock.advance(gap_us / 1_000_000)
        for model in models.values():
            model.at(clock())
        trial = {key: copy(model) for key, model in models.items()}
        refused = [trial[key].take(cost).limited for key, cost in asked]
        models = models if any(refused) else trial

        results = at_once(
            store.acquire([Charge(key, HELD_TO[key], cost=cost) for key, cost in asked])
        )

        assert refused == [result.limited for result in results]
        assert [result_of(models[key].take(0)) for key in models] == list(
            at_once(store.peek([Charge(key, HELD_TO[key], cost=0) for key in models]))
        )


async def test_a_key_named_twice_under_two_quotas_is_refused_aloud(
    store: MemoryStore,
) -> None:
    """A call that charges nothing has a result that says so."""
    results = await store.acquire([Charge("alice", FIVE), Charge("alice", TEN, cost=6)])

    assert [False, True] == [result.limited for result in results]
    assert 0 == len(store)


# --- changed quotas


async def test_a_smaller_quota_clamps(store: MemoryStore) -> None:
    """A key with 80 of 100 left has 10 left when the burst becomes 10."""
    await store.acquire([Charge("alice", Quota.per_hour(100), cost=20)])

    assert 9 == charge(store, "alice", Quota.per_hour(10)).state.remaining


async def test_a_larger_quota_gives_no_jump(store: MemoryStore) -> None:
    """A key with 4 of 5 left has 3 left of 100 after one request more."""
    await store.acquire([Charge("alice", FIVE)])

    assert 3 == charge(store, "alice", Quota.per_minute(100)).state.remaining


async def test_a_smaller_quota_that_refuses_is_forgotten(
    store: MemoryStore,
) -> None:
    """A refusal under another quota does not change what the key holds."""
    await store.acquire([Charge("alice", TEN)])
    refused = charge(store, "alice", Quota.per_minute(1), cost=2)

    assert refused.limited
    assert 9 == remaining(store, "alice", TEN)


async def test_a_zero_quota_leaves_the_state_alone(store: MemoryStore) -> None:
    """A key that was shut for a while has what it had."""
    await store.acquire([Charge("alice", TEN, cost=4)])
    refused = charge(store, "alice", Quota.per_minute(0))

    assert refused.limited
    assert 6 == remaining(store, "alice", TEN)


async def test_more_quotas_than_a_shard_can_number() -> None:
    """Thousands of quotas in turn do not mix up what keys hold."""
    store = MemoryStore(max_keys=300, clock=ManualClock())
    quotas = [Quota.per_hour(limit) for limit in range(1, 2_500)]
    for number, quota in enumerate(quotas):
        key = f"k{number % 100}"
        await store.reset([key])
        await store.acquire([Charge(key, quota)])

    last = list(enumerate(quotas))[-100:]
    assert [quota.limit - 1 for _, quota in last] == [
        remaining(store, f"k{number % 100}", quota) for number, quota in last
    ]


# --- its clock


async def test_its_own_clock_is_monotonic(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unless a clock is given, the store goes by the system's monotonic one."""
    now_ns = 0
    monkeypatch.setattr(time, "monotonic_ns", lambda: now_ns)
    store = MemoryStore()
    await store.acquire([Charge("alice", FIVE, cost=5)])
    now_ns = 11_999_999_000

    assert 0.000_001 == state(store, "alice", FIVE).retry_after


async def test_it_goes_on_after_its_clock_was_set_back(
    store: MemoryStore, clock: ManualClock
) -> None:
    """A clock set back by hours shuts nobody out for longer than the time to full."""
    clock.set(8 * 3600)
    await store.acquire([Charge("alice", FIVE, cost=5)])
    clock.set(0)
    refused = charge(store, "alice", FIVE)
    clock.advance(12)

    assert 12.0 == refused.state.retry_after
    assert not charge(store, "alice", FIVE).limited


async def test_a_call_refused_by_another_limit_repairs_the_time(
    store: MemoryStore, clock: ManualClock
) -> None:
    """A time in the future is put right by any look at it, not by admissions alone."""
    clock.set(8 * 3600)
    await store.acquire([Charge("alice", FIVE, cost=5)])
    clock.set(0)
    await store.acquire([Charge("alice", FIVE), Charge("shut", Quota.per_hour(0))])
    clock.advance(60)

    assert 5 == remaining(store, "alice", FIVE)


# --- threads and event loops


def in_threads(count: int, work: Callable[[], int]) -> list[int]:
    """Run *work* in *count* threads that start together, and list what it returned."""
    barrier = threading.Barrier(count)

    def run() -> int:
        barrier.wait(timeout=60)
        return work()

    with ThreadPoolExecutor(count) as pool:
        tasks = [pool.submit(run) for _ in range(count)]
        return [task.result(timeout=60) for task in tasks]


def test_threads_share_a_quota_exactly(store: MemoryStore) -> None:
    """Of all that several threads ask, exactly the quota is admitted."""
    quota = Quota.per_hour(500)

    def work() -> int:
        return sum(not charge(store, "alice", quota).limited for _ in range(200))

    assert 500 == sum(in_threads(8, work))


def test_threads_take_all_or_nothing(store: MemoryStore) -> None:
    """Two keys charged together are always charged as often as each other."""
    large, small = Quota.per_hour(1_000), Quota.per_hour(300)
    charges = [Charge("all", large), Charge("alice", small)]

    def work() -> int:
        return sum(
            not any(result.limited for result in at_once(store.acquire(charges)))
            for _ in range(100)
        )

    assert 300 == sum(in_threads(8, work))
    assert (700, 0) == (
        remaining(store, "all", large),
        remaining(store, "alice", small),
    )


def test_threads_keep_the_bound() -> None:
    """Threads that bring new keys at once do not lose count of them."""
    store = MemoryStore(max_keys=50, clock=ManualClock())
    names = iter(range(10**6))

    def work() -> int:
        return sum(
            not charge(store, f"k{next(names)}", TEN).limited for _ in range(300)
        )

    assert 8 * 300 == sum(in_threads(8, work))
    assert (50, 8 * 300 - 50) == (len(store), store.evictions)


def test_event_loops_share_the_counts(store: MemoryStore) -> None:
    """A store is not bound to the loop that used it first."""

    async def ask_twice() -> int:
        calls = [await store.acquire([Charge("alice", FIVE)]) for _ in range(2)]
        return sum(not result.limited for [result] in calls)

    # In a thread, as the main one has a loop that belongs to pytest.
    admitted = [in_threads(1, lambda: asyncio.run(ask_twice())) for _ in range(3)]

    assert [[2], [2], [1]] == admitted


def test_event_loops_in_threads_share_the_counts(store: MemoryStore) -> None:
    """Loops that run at the same time, each in a thread, share one quota exactly."""
    quota = Quota.per_hour(100)

    async def ask(count: int) -> int:
        calls = [store.acquire([Charge("alice", quota)]) for _ in range(count)]
        return sum(not result.limited for [result] in await asyncio.gather(*calls))

    assert 100 == sum(in_threads(4, lambda: asyncio.run(ask(50))))


# --- bounds: eviction


@pytest.mark.parametrize("max_keys", [0, -1, "3"])
def test_a_store_for_no_keys_is_refused(max_keys: int) -> None:
    """A bound below one key is an error, as it could hold nothing."""
    with pytest.raises(ConfigurationError, match=f"1 or more, not {max_keys!r}"):
        MemoryStore(max_keys=max_keys)


def test_what_is_no_clock_is_refused() -> None:
    """A clock is a function."""
    with pytest.raises(ConfigurationError, match=r"clock=1 is no clock"):
        MemoryStore(clock=cast("Clock", 1))


def filled(levels: dict[str, int], clock: ManualClock) -> MemoryStore:
    """Make a store that is at its bound, with keys that have so many left of ten."""
    store = MemoryStore(max_keys=len(levels), clock=clock)
    for key, level in levels.items():
        charge(store, key, TEN, cost=10 - level)
    return store


@given(st.permutations(range(10)), st.integers(1, 10))
def test_the_key_nearest_to_full_is_evicted(levels: list[int], count: int) -> None:
    """At the bound of a small store, of all keys exactly the fullest makes room."""
    held = {f"k{level}": level for level in levels[:count]}
    fullest = max(held, key=lambda key: held[key])
    store = filled(held, ManualClock())

    assert not charge(store, "new", TEN).limited

    assert {**held, fullest: 10, "new": 9} == {
        key: remaining(store, key, TEN) for key in [*held, "new"]
    }
    assert (count, 1) == (len(store), store.evictions)


async def test_fullness_is_a_share_of_the_capacity(clock: ManualClock) -> None:
    """Half of a small quota is nearer to full than a third of a large one."""
    store = MemoryStore(max_keys=2, clock=clock)
    large = Quota.per_hour(900)
    await store.acquire(
        [Charge("small", TEN, cost=5), Charge("large", large, cost=600)]
    )
    await store.acquire([Charge("new", TEN)])

    assert 300 == remaining(store, "large", large)
    assert 10 == remaining(store, "small", TEN)


async def test_a_key_nears_full_as_time_passes(clock: ManualClock) -> None:
    """What counts is how full a key is now, not when it was last charged."""
    store = MemoryStore(max_keys=2, clock=clock)
    await store.acquire([Charge("slow", Quota.per_hour(10), cost=3)])
    await store.acquire([Charge("quick", TEN, cost=9)])
    clock.advance(50)
    await store.acquire([Charge("new", TEN)])

    assert 7 == remaining(store, "slow", Quota.per_hour(10))
    assert 10 == remaining(store, "quick", TEN)


async def test_a_key_that_is_full_again_goes_first(clock: ManualClock) -> None:
    """Keys that equal fresh ones make room, which is not counted as an eviction."""
    store = MemoryStore(max_keys=2, clock=clock)
    await store.acquire([Charge("idle", TEN, cost=2)])
    clock.advance(12)
    await store.acquire([Charge("busy", TEN)])
    await store.acquire([Charge("new", TEN)])

    assert (2, 0) == (len(store), store.evictions)
    assert 9 == remaining(store, "busy", TEN)


async def test_a_key_that_is_known_needs_no_room(clock: ManualClock) -> None:
    """Charging a key that has an entry evicts nothing."""
    store = filled({"alice": 5, "bob": 6}, clock)
    await store.acquire([Charge("alice", TEN), Charge("bob", TEN)])

    assert (2, 0) == (len(store), store.evictions)


@pytest.mark.parametrize("max_keys", [10, 300, 1_000], ids="max_keys={}".format)
def test_exhausted_keys_survive_a_flood(max_keys: int, clock: ManualClock) -> None:
    """Nobody can push an exhausted key out with new ones, and so start afresh."""
    store = MemoryStore(max_keys=max_keys, clock=clock)
    exhausted = [f"spent{number}" for number in range(max_keys // 5)]
    for key in exhausted:
        charge(store, key, TEN, cost=10)
    for number in range(3 * max_keys):
        charge(store, f"new{number}", TEN)

        assert max_keys >= len(store)

    assert [0] * len(exhausted) == [remaining(store, key, TEN) for key in exhausted]
    assert 0 == store.exhausted_evictions
    assert len(exhausted) + 3 * max_keys - len(store) == store.evictions


async def test_an_exhausted_key_stays_while_another_has_requests_left(
    clock: ManualClock,
) -> None:
    """Half a request of one makes no room as long as another has ten of a hundred."""
    store = MemoryStore(max_keys=2, clock=clock)
    one, hundred = Quota.per_minute(1), Quota.per_hour(100)
    await store.acquire([Charge("spent", one), Charge("rich", hundred, cost=90)])
    clock.advance(30)
    await store.acquire([Charge("new", TEN)])

    assert 0 == remaining(store, "spent", one)
    assert 0 == store.exhausted_evictions


@pytest.mark.parametrize("max_keys", [3, 1_000], ids="max_keys={}".format)
def test_new_clients_are_admitted_when_all_keys_are_exhausted(
    max_keys: int, clock: ManualClock
) -> None:
    """If nothing better is found an exhausted key goes, which is counted by itself."""
    store = MemoryStore(max_keys=max_keys, clock=clock)
    for number in range(max_keys):
        charge(store, f"spent{number}", TEN, cost=10)
    admitted = [
        not charge(store, f"new{number}", TEN, cost=10).limited for number in range(20)
    ]

    assert [True] * 20 == admitted
    assert (max_keys, 20, 20) == (
        len(store),
        store.evictions,
        store.exhausted_evictions,
    )


async def test_of_exhausted_keys_the_nearest_to_full_goes(clock: ManualClock) -> None:
    """Who waits longest for the next request is kept longest."""
    store = MemoryStore(max_keys=2, clock=clock)
    await store.acquire([Charge("early", TEN, cost=10)])
    clock.advance(3)
    await store.acquire([Charge("late", TEN, cost=10)])
    await store.acquire([Charge("new", TEN, cost=10)])

    assert 10 == remaining(store, "early", TEN)
    assert 0 == remaining(store, "late", TEN)


async def test_statistics_tell_what_is_kept_and_what_was_evicted(
    clock: ManualClock,
) -> None:
    """They are those of the moment, and of a store that is asked by nobody else."""
    store = MemoryStore(max_keys=2, clock=clock)
    told = [store.statistics]
    for key, cost in (("alice", 10), ("bob", 9), ("carol", 10), ("dave", 10)):
        await store.acquire([Charge(key, TEN, cost=cost)])
        told.append(store.statistics)

    assert [
        StoreStatistics(keys, evictions, exhausted)
        for keys, evictions, exhausted in (
            (0, 0, 0),
            (1, 0, 0),
            (2, 0, 0),
            (2, 1, 0),
            (2, 2, 1),
        )
    ] == told


async def test_evictions_are_logged_once(
    clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    """One warning says that the bound is too low, and what to do."""
    store = filled({"alice": 5, "bob": 6}, clock)

    assert [] == caplog.records

    for number in range(10):
        await store.acquire([Charge(f"new{number}", TEN)])
    [record] = caplog.records

    assert ("throttled_views", logging.WARNING) == (record.name, record.levelno)
    assert "max_keys=2" in record.getMessage()


def test_keys_that_hash_alike_are_bounded_too(clock: ManualClock) -> None:
    """A store whose keys crowd into one part of it makes room as any other."""
    store = MemoryStore(max_keys=600, clock=clock)
    alike = [key for key in (f"k{number}" for number in range(9_999)) if hash(key) % 2]
    for key in alike:
        charge(store, key, TEN)

        assert 600 >= len(store)

    assert len(alike) == len(store) + store.evictions


# --- bounds: sweeping


async def test_keys_that_are_full_again_are_forgotten(clock: ManualClock) -> None:
    """After as many new keys as there were old ones, no old one is left."""
    store = MemoryStore(max_keys=5_000, clock=clock)
    for number in range(2_000):
        charge(store, f"old{number}", TEN)
    clock.advance(6)
    for number in range(2_000):
        charge(store, f"new{number}", TEN)

    assert (2_000, 0) == (len(store), store.evictions)


async def test_keys_that_are_not_full_are_kept(clock: ManualClock) -> None:
    """Sweeping drops nobody who still has something to wait for."""
    store = MemoryStore(max_keys=5_000, clock=clock)
    for number in range(1_000):
        charge(store, f"old{number}", TEN)
    clock.advance(5.999_999)
    for number in range(1_000):
        charge(store, f"new{number}", TEN)

    assert (2_000, 0) == (len(store), store.evictions)


@pytest.mark.parametrize("full", [True, False], ids=["at the bound", "below the bound"])
def test_no_single_call_pays_for_many(clock: ManualClock, *, full: bool) -> None:
    """However many keys are to be forgotten, a call forgets a few hundred at most."""
    store = MemoryStore(max_keys=6_000 if full else 12_000, clock=clock)
    for number in range(6_000):
        charge(store, f"old{number}", TEN)
    clock.advance(6)
    lengths = [len(store)]
    for number in range(6_000):
        charge(store, f"new{number}", TEN)
        lengths.append(len(store))
    forgotten = [before + 1 - after for before, after in pairwise(lengths)]

    assert 1_000 > max(forgotten)
    assert 6_000 == sum(forgotten)


# --- the quick path; that it is exact is in test_memory_algorithms.py


def itself(key: str) -> str:
    """Return *key*."""
    return key


async def test_the_quick_path_refuses_by_a_changed_quota(store: MemoryStore) -> None:
    """What a key has spent under another quota counts, and refuses."""
    await store.acquire([Charge("alice", TEN, cost=10)])
    take_one = store.taker("", itself, "", Bucket.of(FIVE), 1)

    limited, *_ = take_one("alice")

    assert limited


def test_on_the_quick_path_a_key_that_rests_holds_no_more_than_the_burst(
    store: MemoryStore, clock: ManualClock
) -> None:
    """After an hour it is full, and not fuller."""
    take_one = store.taker("", itself, "", kernel_of(FIVE), 5)
    first, *_ = take_one("alice")
    clock.advance(3600)
    second, *_ = take_one("alice")
    third, *_ = take_one("alice")

    assert [False, False, True] == [first, second, third]


async def test_the_quick_path_makes_its_key_of_parts(store: MemoryStore) -> None:
    """It charges its beginning, the principal and its end as one key."""
    take_one = store.taker("app|", str.upper, "|1", Bucket.of(FIVE), 2)

    assert "app|ALICE|1" == take_one("alice")[-1]
    assert 3 == remaining(store, "app|ALICE|1", FIVE)


async def test_any_number_of_quotas_fits_in_one_place() -> None:
    """More quotas than a shard can number are counted, too, and forgotten in time."""
    clock = ManualClock()
    store = MemoryStore(max_keys=300, clock=clock)
    store.max_keys = 9_000  # all of them in one shard, which no hash would do
    charges = [
        Charge(f"k{each}", Quota.per_hour(1_000 + each), cost=1_000 + each)
        for each in range(1_100)
    ]

    for _ in range(2):
        await store.acquire(charges)
        again = [await store.acquire([charge]) for charge in charges]
        clock.advance(7_200)
        for each in range(1_100):  # new keys pay for looking at old ones
            await store.acquire([Charge(f"new {clock()} {each}", FIVE)])

        assert all(result.limited for [result] in again)


def test_an_empty_store_is_true(store: MemoryStore) -> None:
    """So that ``store or another`` is the store, whether it has keys or not."""
    assert 0 == len(store)
    assert store


async def test_parts_of_a_microsecond_are_pulled_back(
    store: MemoryStore, clock: ManualClock
) -> None:
    """A clock that is set back leaves no key half a microsecond in the future."""
    two_a_microsecond = Quota(2, 1e-6, burst=1)
    twice = Charge("alice", two_a_microsecond, max_delay=1e-6)
    clock.advance(1e-6)
    await store.acquire([twice])
    await store.acquire([twice])
    clock.set(0)
    [refused] = await store.acquire([twice])
    clock.advance(1e-6)
    [looked] = await store.peek([replace(twice, cost=0)])

    assert (True, 0.0) == (refused.limited, looked.delay)
