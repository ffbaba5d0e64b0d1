"""A quota that changes keeps what it tells: who waits as long as told is admitted."""

from collections.abc import Awaitable, Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.clock import ManualClock
from throttled_views import Algorithm, Charge, MemoryStore, Quota, RateLimitState
from throttled_views.algorithms.kernels import kernel_of
from throttled_views.results import result_of
from throttled_views.stores.deciding import Share, told, told_together

QUOTAS = (
    Quota.per_hour(1),
    Quota.per_minute(60),
    Quota.per_hour(100),
    Quota.per_second(3),
    Quota.per_day(7),
    Quota(11, 0.000_7),
)


async def by_acquire(
    store: MemoryStore, quota: Quota, using: Algorithm, cost: int
) -> tuple[bool, RateLimitState]:
    """Charge a key as any store does."""
    [result] = await store.acquire([Charge("k", quota, using, cost)])
    return result.limited, result.state


async def alone(
    store: MemoryStore, quota: Quota, using: Algorithm, cost: int
) -> tuple[bool, RateLimitState]:
    """Charge it on the quick way of one limit."""
    kernel = kernel_of(quota, using)
    taken = store.taker("", str, "", kernel, cost)("k")
    return taken[0], result_of(told(taken, kernel, cost)).state


async def together(
    store: MemoryStore, quota: Quota, using: Algorithm, cost: int
) -> tuple[bool, RateLimitState]:
    """Charge it on that of several, the other of which has room."""
    other = kernel_of(Quota.per_second(10**6), using)
    shares = [
        Share("", "", kernel_of(quota, using), cost),
        Share("", " of another", other, 1),
    ]
    taken = store.taker_together(str, shares)("k")
    first, _ = told_together(taken, shares)
    return first.limited, result_of(first).state


WAYS: dict[str, Callable[..., Awaitable[tuple[bool, RateLimitState]]]] = {
    "by acquire": by_acquire,
    "alone": alone,
    "together": together,
}
ways = pytest.mark.parametrize("ask", WAYS.values(), ids=WAYS)


@ways
@pytest.mark.parametrize("using", Algorithm)
@given(
    steps=st.lists(
        st.tuples(
            st.sampled_from(QUOTAS), st.integers(1, 12), st.integers(0, 4_000_000_000)
        ),
        max_size=20,
    )
)
async def test_who_waits_as_long_as_told_is_admitted(
    ask: Callable[..., Awaitable[tuple[bool, RateLimitState]]],
    using: Algorithm,
    steps: Sequence[tuple[Quota, int, int]],
) -> None:
    """Whatever held the key before, and in whatever way it is asked."""
    clock = ManualClock(1_000_000)
    store = MemoryStore(clock=clock)
    for quota, most, gap_us in steps:
        cost = min(most, quota.limit)
        clock.advance(gap_us / 1_000_000)
        limited, state = await ask(store, quota, using, cost)
        if limited:
            assert state.retry_after is not None
            clock.advance(state.retry_after)
            limited, _ = await ask(store, quota, using, cost)
        assert not limited


@ways
@pytest.mark.parametrize("using", [Algorithm.TOKEN_BUCKET, Algorithm.GCRA])
async def test_a_client_whose_quota_is_raised_need_not_wait_for_the_old_one(
    ask: Callable[..., Awaitable[tuple[bool, RateLimitState]]], using: Algorithm
) -> None:
    """Polling as told, one a second by the new quota; an hour by the old one."""
    clock = ManualClock()
    store = MemoryStore(clock=clock)
    await ask(store, Quota.per_hour(1), using, 1)
    admitted = 0
    for _ in range(60):
        limited, _ = await ask(store, Quota.per_minute(60), using, 1)
        admitted += not limited
        clock.advance(1)

    assert 59 == admitted


async def test_quotas_in_turn_do_not_stop_a_key_from_coming_back() -> None:
    """While an application is deployed two configurations ask, and neither is lost."""
    clock = ManualClock()
    store = MemoryStore(clock=clock)
    old, new = Quota.per_minute(6), Quota.per_minute(7)
    await by_acquire(store, old, Algorithm.TOKEN_BUCKET, 6)
    waited = 0
    while (await by_acquire(store, old, Algorithm.TOKEN_BUCKET, 1))[0]:
        limited, _ = await by_acquire(store, new, Algorithm.TOKEN_BUCKET, 1)
        assert limited
        clock.advance(0.1)
        waited += 1

    assert 85 <= waited <= 101
