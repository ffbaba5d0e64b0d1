"""Several limits of one client on the quick way: one call, and the same answers."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.clock import ManualClock
from tests.redis.servers import Server
from tests.redis.stores import PATIENT_S, forget_denials, scripts_run
from throttled_views import Algorithm, Charge, MemoryStore, Quota, RateLimitResult
from throttled_views.algorithms.kernels import kernel_of
from throttled_views.results import RateLimitState, result_of
from throttled_views.stores.base import QuickStore
from throttled_views.stores.deciding import Share, told_together
from throttled_views.stores.redis import RedisStore

Answers: TypeAlias = list[tuple[bool, RateLimitState]]

QUOTAS = (Quota.per_second(2), Quota.per_minute(7), Quota.per_hour(9))


@pytest.fixture(name="store")
async def store_fixture(
    redis_url: str, clock: ManualClock
) -> AsyncIterator[RedisStore]:
    """Give a store without keys that goes by a clock that stands still."""
    store = RedisStore(redis_url, timeout=PATIENT_S, clock=clock)
    yield store
    await store.aclose()


def shares_of(using: Algorithm, *costs: int) -> list[Share]:
    """Return limits of different quotas, counted by one algorithm."""
    return [
        Share("app{", f"}}|{number}", kernel_of(quota, using), cost)
        for number, (quota, cost) in enumerate(zip(QUOTAS, costs, strict=False))
    ]


async def take(
    store: QuickStore, shares: Sequence[Share], client: str = "alice"
) -> tuple[bool, Answers]:
    """Charge *client*; return whether it is refused, and what each limit answered."""
    answer = store.taker_together(str, shares)(client)
    taken = answer if isinstance(answer, tuple) else await answer
    assert [f"{head}{client}{tail}" for head, tail, *_ in shares] == [*taken[3]]
    results = [result_of(each) for each in told_together(taken, shares)]
    return taken[0], answers_of(results)


def answers_of(results: Sequence[RateLimitResult]) -> Answers:
    """Return what *results* tell a client."""
    return [(each.limited, each.state) for each in results]


def charges_of(shares: Sequence[Share], using: Algorithm) -> list[Charge]:
    """Return the same as charges."""
    return [
        Charge(f"{share.head}alice{share.tail}", quota, using, share.cost)
        for share, quota in zip(shares, QUOTAS, strict=False)
    ]


@pytest.mark.parametrize("using", Algorithm)
async def test_each_answer_is_that_of_acquire(
    store: RedisStore, clock: ManualClock, using: Algorithm
) -> None:
    """In memory and in the server, whether it knows of a refusal or asks again."""
    acquiring, memory = MemoryStore(clock=clock), MemoryStore(clock=clock)
    shares = shares_of(using, 1, 2, 1)
    refused = 0
    for _ in range(60):
        results = await acquiring.acquire(charges_of(shares, using))
        wanted = any(each.limited for each in results), answers_of(results)
        assert wanted == await take(memory, shares)
        assert wanted == await take(store, shares)
        refused += wanted[0]
        clock.advance(0.3)

    assert 10 < refused < 60


STEPS = st.lists(
    st.tuples(st.integers(0, 5_000_000), st.integers(1, 2), st.integers(1, 7)),
    max_size=12,
)


@pytest.mark.parametrize("using", Algorithm)
def test_whatever_is_asked_memory_answers_the_same(
    redis_url: str, using: Algorithm
) -> None:
    """However requests arrive, and whatever they cost."""
    clock = ManualClock()
    store = RedisStore(redis_url, timeout=PATIENT_S, clock=clock)
    keys = [charge.key for charge in charges_of(shares_of(using, 1, 1), using)]

    async def play(steps: Sequence[tuple[int, int, int]]) -> None:
        memory = MemoryStore(clock=clock)
        await store.reset(keys)
        for gap_us, *costs in steps:
            clock.advance(gap_us / 1_000_000)
            shares = shares_of(using, *costs)
            assert await take(memory, shares) == await take(store, shares)

    with asyncio.Runner() as runner:

        @given(STEPS)
        def check(steps: Sequence[tuple[int, int, int]]) -> None:
            runner.run(play(steps))

        check()
        runner.run(store.aclose())


async def test_a_refusal_is_known_for_a_second(
    store: RedisStore, server: Server, clock: ManualClock
) -> None:
    """It is told without the server, of all limits; what costs less is asked."""
    shares = shares_of(Algorithm.TOKEN_BUCKET, 2, 3)
    first = await take(store, shares)
    refused = await take(store, shares)
    before = scripts_run(server)

    assert (False, True) == (first[0], refused[0])
    assert [refused] * 3 == [await take(store, shares) for _ in range(3)]
    assert 0 == scripts_run(server) - before
    assert 3 == store.statistics.cached_refusals
    _ = await take(store, shares_of(Algorithm.TOKEN_BUCKET, 1, 3))
    assert 1 == scripts_run(server) - before
    clock.advance(1)
    assert not (await take(store, shares))[0]


async def test_who_is_admitted_is_not_known_to_be_refused(
    store: RedisStore, clock: ManualClock
) -> None:
    """What one limit of a client refuses says nothing once the client is charged."""
    one = shares_of(Algorithm.TOKEN_BUCKET, 2)
    both = shares_of(Algorithm.TOKEN_BUCKET, 1, 1)
    await take(store, one)
    refused = await take(store, one)
    clock.advance(0.5)
    admitted = await take(store, both)
    forgotten = await take(store, one)
    forget_denials(store, "app{alice}|0")

    assert (True, False) == (refused[0], admitted[0])
    assert forgotten == await take(store, one)


async def test_checks_of_an_iteration_travel_together(
    store: RedisStore, server: Server
) -> None:
    """Several limits of several clients are one call, as far as one has room."""
    shares = shares_of(Algorithm.TOKEN_BUCKET, 1, 1, 1)
    _ = await take(store, shares)  # the server knows the script from now on
    before = scripts_run(server)
    taken = await asyncio.gather(
        *(take(store, shares, f"client {number}") for number in range(10))
    )

    assert [False] * 10 == [is_refused for is_refused, _ in taken]
    assert 1 == scripts_run(server) - before
