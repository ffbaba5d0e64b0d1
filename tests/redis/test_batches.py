"""Requests that travel together are decided as if each had come alone, in turn."""

import asyncio
from collections.abc import Sequence
from contextlib import aclosing
from itertools import count

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.redis.stores import PATIENT_S, forget_denials
from throttled_views import Algorithm, Charge, MemoryStore, Quota
from throttled_views.stores.redis import RedisStore
from throttled_views.testing import ManualClock

HUNDRED, TEN = Quota.per_hour(100), Quota.per_hour(10)
QUOTAS = (HUNDRED, TEN, Quota.per_hour(10, burst=20), Quota(7, 1.5), Quota.per_day(3))

WINDOW = Algorithm.FIXED_WINDOW
BUCKETS = (Algorithm.TOKEN_BUCKET, Algorithm.GCRA, Algorithm.LEAKY_BUCKET)

Call = Sequence[Charge]


async def test_a_refusal_by_another_quota_changes_nothing_for_the_next(
    redis_url: str,
) -> None:
    """The smaller quota of a refused request does not clamp what the others see."""
    clock = ManualClock(1_000)
    store = RedisStore(redis_url, clock=clock, timeout=PATIENT_S)
    await store.acquire([Charge("spent", TEN, cost=10)])

    _, refused, last = await asyncio.gather(
        store.acquire([Charge("key", HUNDRED, cost=2)]),
        store.acquire([Charge("key", TEN), Charge("spent", TEN)]),
        store.acquire([Charge("key", HUNDRED)]),
    )
    await store.aclose()

    assert [False, True] == [each.limited for each in refused]
    assert 97 == last[0].state.remaining


async def test_a_refusal_by_another_algorithm_changes_nothing_for_the_next(
    redis_url: str,
) -> None:
    """What a key has by one algorithm is not lost to a refused request by another."""
    clock = ManualClock(1_000)
    store = RedisStore(redis_url, clock=clock, timeout=PATIENT_S)
    await store.acquire([Charge("spent", TEN, cost=10)])

    await asyncio.gather(
        store.acquire([Charge("key", HUNDRED, cost=60)]),
        store.acquire([Charge("key", TEN, WINDOW), Charge("spent", TEN)]),
    )
    [left] = await store.peek([Charge("key", HUNDRED)])
    await store.aclose()

    assert 40 == left.state.remaining


@st.composite
def calls(draw: st.DrawFn, prefix: str) -> Call:
    """Return a call for one or two keys, of which none costs more than it can."""
    charges: list[Charge] = []
    for name in draw(st.sampled_from([["a"], ["b"], ["a", "b"], ["c", "a"]])):
        quota, using = draw(st.sampled_from(QUOTAS)), draw(st.sampled_from(Algorithm))
        if using not in BUCKETS:
            quota = Quota(quota.limit, quota.period)
        cost = draw(st.integers(0, min(9, quota.limit)))
        charges.append(Charge(prefix + name, quota, using, cost))
    return charges


def test_batches_are_told_as_what_comes_in_turn(redis_url: str) -> None:
    """Each result of what travels together is that of a store that is asked in turn."""
    number = count()

    async def play(data: st.DataObject) -> None:
        prefix = f"{next(number)}:"
        clock = ManualClock(1_000_000)
        in_turn = MemoryStore(clock=clock)
        async with aclosing(
            RedisStore(redis_url, clock=clock, timeout=PATIENT_S)
        ) as together:
            for _ in range(4):
                batch = data.draw(st.lists(calls(prefix), min_size=2, max_size=5))
                # What is known to be refused would be answered before the others.
                forget_denials(together, *(each.key for call in batch for each in call))
                told = await asyncio.gather(*(together.acquire(call) for call in batch))

                assert [await in_turn.acquire(call) for call in batch] == told

                clock.advance(data.draw(st.sampled_from((0, 0.001, 2, 400, 3_600))))

    with asyncio.Runner() as runner:

        @settings(max_examples=150)
        @given(st.data())
        def check(data: st.DataObject) -> None:
            runner.run(play(data))

        check()
