"""The memory store, whatever algorithm counts its keys."""

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import replace
from datetime import timedelta
from typing import NamedTuple, TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.clock import ManualClock
from tests.coroutines import at_once
from tests.model import BucketModel
from tests.window_models import (
    FixedWindowModel,
    SlidingLogModel,
    SlidingWindowModel,
    WindowModel,
)
from throttled_views import (
    Algorithm,
    Charge,
    MemoryStore,
    Quota,
    RateLimitResult,
    RateLimitState,
    Receipt,
)
from throttled_views.algorithms.kernels import kernel_of
from throttled_views.results import result_of
from throttled_views.stores.deciding import told

TEN = Quota.per_minute(10)
WINDOWS = (Algorithm.FIXED_WINDOW, Algorithm.SLIDING_WINDOW, Algorithm.SLIDING_LOG)
# When a key counts no more that was charged once, at zero, to ten a minute.
WHOLE_AFTER_S = {
    Algorithm.TOKEN_BUCKET: 6,
    Algorithm.GCRA: 6,
    Algorithm.LEAKY_BUCKET: 6,
    Algorithm.FIXED_WINDOW: 60,
    Algorithm.SLIDING_WINDOW: 120,
    Algorithm.SLIDING_LOG: 60,
}

each_algorithm = pytest.mark.parametrize("using", Algorithm)
each_window = pytest.mark.parametrize("using", WINDOWS)


def charge(
    store: MemoryStore, key: str, using: Algorithm, cost: int = 1, quota: Quota = TEN
) -> RateLimitResult:
    """Charge one key, and return the answer."""
    [result] = at_once(store.acquire([Charge(key, quota, using, cost)]))
    return result


def state(
    store: MemoryStore, key: str, using: Algorithm, quota: Quota = TEN
) -> RateLimitState:
    """Return where a key stands."""
    [result] = at_once(store.peek([Charge(key, quota, using, cost=0)]))
    return result.state


def remaining(
    store: MemoryStore, key: str, using: Algorithm, quota: Quota = TEN
) -> int:
    """Return how many requests a key could make now."""
    return state(store, key, using, quota).remaining


# --- all or nothing -------------------------------------------------------------------

Model: TypeAlias = BucketModel | WindowModel


class Held(NamedTuple):
    """How a key is counted, and by what it should be."""

    using: Algorithm
    quota: Quota
    model: type[Model]


HELD = {
    "bucket": Held(Algorithm.TOKEN_BUCKET, Quota(7, 60), BucketModel),
    "fixed": Held(Algorithm.FIXED_WINDOW, TEN, FixedWindowModel),
    "sliding": Held(Algorithm.SLIDING_WINDOW, Quota(5, 7), SlidingWindowModel),
    "log": Held(Algorithm.SLIDING_LOG, Quota.per_second(3), SlidingLogModel),
}

calls = st.tuples(
    st.integers(0, 2_000_000) | st.integers(0, 120_000_000),
    st.lists(
        st.tuples(st.sampled_from(list(HELD)), st.integers(0, 4)),
        min_size=1,
        max_size=5,
    ),
)


@given(st.lists(calls, min_size=5, max_size=10))
def test_limits_of_all_kinds_are_exact_together(
    history: list[tuple[int, list[tuple[str, int]]]],
) -> None:
    """However calls name their keys, they pass if all do, and then all are charged."""
    clock = ManualClock()
    store = MemoryStore(clock=clock)
    models = {key: held.model(held.quota, 0) for key, held in HELD.items()}
    for gap_us, asked in history:
        clock.advance(gap_us / 1_000_000)
        for model in models.values():
            model.at(clock())
        trial = deepcopy(models)
        refused = [trial[key].take(cost).limited for key, cost in asked]
        models = models if any(refused) else trial
        charges = [
            Charge(key, HELD[key].quota, HELD[key].using, cost) for key, cost in asked
        ]

        results = at_once(store.acquire(charges))

        assert refused == [result.limited for result in results]
        assert [result_of(model.take(0)) for model in models.values()] == [
            result
            for key, held in HELD.items()
            for result in at_once(
                store.peek([Charge(key, held.quota, held.using, cost=0)])
            )
        ]


async def test_a_call_that_one_kind_refuses_charges_no_other(
    store: MemoryStore,
) -> None:
    """A window, two windows, a log and a bucket stay what they are, in any order."""
    charges = [Charge(f"by {using}", TEN, using, cost=2) for using in Algorithm]
    spent = Charge("spent", TEN, Algorithm.FIXED_WINDOW, cost=10)
    await store.acquire([spent])

    for place in range(len(charges) + 1):
        results = await store.acquire([*charges[:place], spent, *charges[place:]])

        assert [each == place for each in range(len(charges) + 1)] == [
            result.limited for result in results
        ]
        assert [()] * len(results) == [result.receipts for result in results]
    assert [10] * len(charges) == [
        result.state.remaining for result in await store.peek(charges)
    ]


@each_algorithm
async def test_a_key_named_twice_is_charged_twice(
    store: MemoryStore, using: Algorithm
) -> None:
    """Two charges of one call add up, and are refused for the sum."""
    results = await store.acquire([Charge("alice", TEN, using, cost=4)] * 2)
    refused = await store.acquire([Charge("alice", TEN, using, cost=2)] * 2)

    assert [6, 2] == [result.state.remaining for result in results]
    assert [False, True] == [result.limited for result in refused]
    assert [2, 2] == [result.state.remaining for result in refused]
    assert 2 == remaining(store, "alice", using)


@each_algorithm
async def test_the_wait_of_a_key_named_twice_is_for_both(
    store: MemoryStore, clock: ManualClock, using: Algorithm
) -> None:
    """Who comes back when told is admitted with all that was asked."""
    both = [Charge("alice", TEN, using, cost=3)] * 2
    charge(store, "alice", using, cost=7)
    refused = await store.acquire(both)
    wait_s = refused[1].state.retry_after

    assert wait_s
    clock.advance(wait_s - 0.000_001)
    assert [False, True] == [result.limited for result in await store.acquire(both)]
    clock.advance(0.000_001)
    assert [False, False] == [result.limited for result in await store.acquire(both)]


async def test_a_key_named_twice_may_have_two_quotas(store: MemoryStore) -> None:
    """The second window counts what was charged to the first."""
    five = Quota.per_minute(5)
    for using in WINDOWS:
        results = await store.acquire(
            [Charge(using, TEN, using), Charge(using, five, using)]
        )

        assert [9, 3] == [result.state.remaining for result in results]


async def test_a_key_named_by_two_algorithms_is_counted_by_the_last(
    store: MemoryStore,
) -> None:
    """One can make nothing of what the other counts, and a key has one state."""
    results = await store.acquire(
        [
            Charge("alice", TEN, Algorithm.FIXED_WINDOW, cost=4),
            Charge("alice", TEN, Algorithm.SLIDING_LOG),
        ]
    )

    assert [6, 9] == [result.state.remaining for result in results]
    assert 9 == remaining(store, "alice", Algorithm.SLIDING_LOG)
    assert 10 == remaining(store, "alice", Algorithm.FIXED_WINDOW)


# --- refunds --------------------------------------------------------------------------


@each_algorithm
async def test_a_refund_gives_back_what_still_counts(
    store: MemoryStore, using: Algorithm
) -> None:
    """What was charged a moment ago comes back, and no entry counts against anybody."""
    result = charge(store, "alice", using, cost=4)
    await store.refund(result.receipts)

    assert RateLimitState(10, 10, 0.0, 0.0) == state(store, "alice", using)


@each_window
async def test_a_refund_to_a_time_that_is_over_does_nothing(
    store: MemoryStore, clock: ManualClock, using: Algorithm
) -> None:
    """What counts no more is not given back from what was charged since."""
    old = charge(store, "alice", using, cost=4)
    clock.advance(120)
    charge(store, "alice", using, cost=3)
    await store.refund(old.receipts)

    assert 7 == remaining(store, "alice", using)


async def test_a_refund_to_a_key_that_is_counted_otherwise_by_now(
    store: MemoryStore,
) -> None:
    """What the former count was charged is nothing to the new one."""
    former = charge(store, "alice", Algorithm.TOKEN_BUCKET, cost=9)
    charge(store, "alice", Algorithm.FIXED_WINDOW, cost=2)
    await store.refund(former.receipts)

    assert 8 == remaining(store, "alice", Algorithm.FIXED_WINDOW)


@each_algorithm
async def test_reset_makes_a_key_as_good_as_new(
    store: MemoryStore, using: Algorithm
) -> None:
    """A key that is reset is full, and has no entry."""
    charge(store, "alice", using, cost=10)
    await store.reset(["alice"])

    assert 10 == remaining(store, "alice", using)
    assert 0 == len(store)


# --- changes --------------------------------------------------------------------------


@pytest.mark.parametrize("new", Algorithm)
@pytest.mark.parametrize("old", Algorithm)
def test_a_key_whose_algorithm_changed_begins_anew(
    store: MemoryStore, old: Algorithm, new: Algorithm
) -> None:
    """What one kind counted says nothing to another; the bucket has three names."""
    charge(store, "alice", old, cost=8)
    is_one = WHOLE_AFTER_S[old] == 6 == WHOLE_AFTER_S[new] or old is new

    assert (2 if is_one else 10) == remaining(store, "alice", new)
    assert 2 == remaining(store, "alice", old)
    assert is_one == charge(store, "alice", new, cost=3).limited
    assert (2 if is_one else 7) == remaining(store, "alice", new)
    assert 1 == len(store)


@each_window
def test_a_smaller_quota_does_not_go_below_zero(
    store: MemoryStore, clock: ManualClock, using: Algorithm
) -> None:
    """With more spent than the new limit nothing remains, and the wait is exact."""
    charge(store, "alice", using, cost=8)
    five = Quota.per_minute(5)
    refused = charge(store, "alice", using, quota=five)

    assert (True, 0) == (refused.limited, refused.state.remaining)
    assert refused.state.retry_after
    clock.advance(refused.state.retry_after - 0.000_001)
    assert charge(store, "alice", using, quota=five).limited
    clock.advance(0.000_001)
    assert not charge(store, "alice", using, quota=five).limited


@each_window
def test_a_larger_quota_gives_no_jump(store: MemoryStore, using: Algorithm) -> None:
    """What was spent stays spent when the limit is raised."""
    charge(store, "alice", using, cost=8)

    assert 92 == remaining(store, "alice", using, Quota.per_minute(100))


@each_window
async def test_it_goes_on_after_its_clock_was_set_back(
    store: MemoryStore, clock: ManualClock, using: Algorithm
) -> None:
    """Eight hours back, nothing is given away, and nobody waits for the old time."""
    clock.set(8 * 3600 + 30)
    charge(store, "alice", using, cost=10)
    clock.set(30)
    refused = charge(store, "alice", using)
    clock.advance(WHOLE_AFTER_S[using])

    assert refused.limited
    assert RateLimitState(10, 10, 0.0, 0.0) == state(store, "alice", using)


@each_window
async def test_a_call_refused_by_another_limit_repairs_the_time(
    store: MemoryStore, clock: ManualClock, using: Algorithm
) -> None:
    """A time in the future is put right by any look at it, not by admissions alone."""
    clock.set(8 * 3600)
    charge(store, "alice", using, cost=10)
    clock.set(0)
    await store.acquire(
        [Charge("alice", TEN, using), Charge("shut", Quota.per_hour(0))]
    )
    clock.advance(120)

    assert 10 == remaining(store, "alice", using)


# --- bounds ---------------------------------------------------------------------------


@each_algorithm
@given(levels=st.permutations(range(10)), count=st.integers(1, 10))
def test_the_key_nearest_to_full_is_evicted(
    using: Algorithm, levels: list[int], count: int
) -> None:
    """At the bound of a small store, of all keys exactly the fullest makes room."""
    held = {f"k{level}": level for level in levels[:count]}
    fullest = max(held, key=lambda key: held[key])
    store = MemoryStore(max_keys=count, clock=ManualClock())
    for key, level in held.items():
        charge(store, key, using, cost=10 - level)

    assert not charge(store, "new", using).limited

    assert {**held, fullest: 10, "new": 9} == {
        key: remaining(store, key, using) for key in [*held, "new"]
    }
    assert (count, 1) == (len(store), store.evictions)


def test_fullness_is_compared_between_algorithms(clock: ManualClock) -> None:
    """Whatever counts a key, the one with the larger share of its capacity goes."""
    for fullest in Algorithm:
        store = MemoryStore(max_keys=len(Algorithm), clock=clock)
        for using in Algorithm:
            charge(store, using, using, cost=1 if using is fullest else 6)
        charge(store, "new", Algorithm.TOKEN_BUCKET)

        assert {using: 10 if using is fullest else 4 for using in Algorithm} == {
            using: remaining(store, using, using) for using in Algorithm
        }


@each_window
@pytest.mark.parametrize("max_keys", [10, 600], ids="max_keys={}".format)
def test_exhausted_keys_survive_a_flood(
    clock: ManualClock, using: Algorithm, max_keys: int
) -> None:
    """Nobody can push an exhausted key out with new ones, and so start afresh."""
    store = MemoryStore(max_keys=max_keys, clock=clock)
    exhausted = [f"spent{number}" for number in range(max_keys // 5)]
    for key in exhausted:
        charge(store, key, using, cost=10)
    for number in range(3 * max_keys):
        charge(store, f"new{number}", using)

        assert max_keys >= len(store)

    assert [0] * len(exhausted) == [remaining(store, key, using) for key in exhausted]
    assert 0 == store.exhausted_evictions


@each_algorithm
def test_keys_that_are_whole_again_are_forgotten(
    clock: ManualClock, using: Algorithm
) -> None:
    """From that moment on they make room, and they are no evictions."""
    store = MemoryStore(max_keys=5_000, clock=clock)
    for number in range(1_000):
        charge(store, f"old{number}", using)
    clock.advance(WHOLE_AFTER_S[using])
    for number in range(1_000):
        charge(store, f"new{number}", using)

    assert (1_000, 0) == (len(store), store.evictions)


@each_algorithm
def test_keys_that_are_not_whole_are_kept(clock: ManualClock, using: Algorithm) -> None:
    """A microsecond earlier nobody is forgotten who still has something to wait for."""
    store = MemoryStore(max_keys=5_000, clock=clock)
    for number in range(1_000):
        charge(store, f"old{number}", using)
    clock.advance(WHOLE_AFTER_S[using] - 0.000_001)
    for number in range(1_000):
        charge(store, f"new{number}", using)

    assert (2_000, 0) == (len(store), store.evictions)


@each_algorithm
def test_a_charge_of_nothing_makes_no_entry(
    store: MemoryStore, using: Algorithm
) -> None:
    """Neither what costs nothing nor what is refused is kept."""
    assert not charge(store, "alice", using, cost=0).limited
    assert charge(store, "alice", using, cost=11).limited
    assert charge(store, "alice", using, quota=Quota.per_hour(0)).limited
    assert 0 == len(store)


async def test_all_kinds_live_in_one_place_through_a_tidying(
    clock: ManualClock,
) -> None:
    """What is kept when others go is what it was, whatever counts it."""
    store = MemoryStore(max_keys=20, clock=clock)
    for using in Algorithm:
        charge(store, using, using, cost=9)
    for number in range(200):
        charge(store, f"k{number}", list(Algorithm)[number % 6])

    assert [1] * 6 == [remaining(store, using, using) for using in Algorithm]
    assert 20 == len(store)


# --- the quick path -------------------------------------------------------------------

NAMES = ("alice", "bob", "carol", "dave")

plain_quotas = st.sampled_from(
    [
        TEN,
        Quota(7, 60),
        Quota(1, 30),
        Quota(10, timedelta(microseconds=5)),
        Quota.per_second(0),
    ]
)
quotas_of_buckets = plain_quotas | st.sampled_from(
    [Quota.per_minute(10, burst=2), Quota.per_second(2_000_000, burst=10)]
)


@st.composite
def charges(draw: st.DrawFn, *, mixed: bool) -> Charge:
    """Draw charges of one key, quota and algorithm, or *mixed* with all others."""
    keys = st.shared(st.sampled_from(NAMES), key="key")
    algorithms = st.shared(st.sampled_from(Algorithm), key="using")
    using = draw(algorithms | st.sampled_from(Algorithm) if mixed else algorithms)
    quotas = plain_quotas if using in WINDOWS else quotas_of_buckets
    quota = draw(quotas if mixed else st.shared(quotas, key=f"quota of {using}"))
    return Charge(
        draw(keys | st.sampled_from(NAMES) if mixed else keys),
        quota,
        using,
        draw(st.integers(0, 3) | st.just(11)),
    )


class Ask(NamedTuple):
    """Charge a key, and compare the answers."""

    charge: Charge


class GiveBack(NamedTuple):
    """Refund a charge that may have been made *ago* seconds before."""

    charge: Charge
    ago: int


class Forget(NamedTuple):
    """Reset a key."""

    key: str


class Move(NamedTuple):
    """Move the clock, or set it back."""

    seconds: float


gaps = st.floats(0, 60) | st.sampled_from([-30.0, -8 * 3600.0, 6.0, 3600.0])


def operations(
    *, mixed: bool
) -> st.SearchStrategy[list[Ask | Move | GiveBack | Forget]]:
    """Draw what happens to a store."""
    asked = charges(mixed=mixed)
    one = (
        st.builds(Ask, asked)
        | st.builds(Ask, asked)
        | st.builds(Move, gaps)
        | st.builds(GiveBack, asked, st.integers(0, 90))
        | st.builds(Forget, st.sampled_from(NAMES))
    )
    return st.lists(one, min_size=10, max_size=40)


def charge_quickly(store: MemoryStore, charge: Charge) -> RateLimitResult:
    """Charge one key the way nearly every request does."""
    kernel = kernel_of(charge.quota, charge.algorithm)
    taken = store.taker("", str, "", kernel, charge.cost)(charge.key)
    limited, _, now_us, key = taken
    receipts = () if limited else (Receipt(replace(charge, key=key), now_us),)
    return result_of(told(taken, kernel, charge.cost), receipts=receipts)


def all_that_is_seen(store: MemoryStore) -> Sequence[object]:
    """Return the counts of *store*, and where all keys stand."""
    counts = (len(store), store.evictions, store.exhausted_evictions)
    looks = [Charge(name, TEN, using) for name in NAMES for using in Algorithm]
    return [*counts, *at_once(store.peek(looks))]


@given(operations(mixed=True) | operations(mixed=False))
def test_the_quick_path_answers_as_the_plain_one(
    history: list[Ask | Move | GiveBack | Forget],
) -> None:
    """Whatever happens, `taker` leads to the answers and the state of `acquire`."""
    clock = ManualClock()
    quick, plain = (MemoryStore(max_keys=3, clock=clock) for _ in range(2))
    for operation in history:
        match operation:
            case Ask(asked):
                [answer] = at_once(plain.acquire([asked]))

                assert answer == charge_quickly(quick, asked)
            case Move(seconds):
                clock.advance(seconds)
            case GiveBack(charged, ago):
                receipt = Receipt(charged, clock() - ago * 1_000_000)
                at_once(plain.refund([receipt]))
                at_once(quick.refund([receipt]))
            case Forget(key):
                at_once(plain.reset([key]))
                at_once(quick.reset([key]))

        assert all_that_is_seen(plain) == all_that_is_seen(quick)
