"""Turns and refunds through a server: keys live as long as they matter, in all ways."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from datetime import timedelta

import pytest

from tests.asgi import answers, app_of, statuses
from tests.clock import ManualClock
from tests.noted import Notes
from tests.redis.servers import Server
from tests.redis.stores import PATIENT_S, scripts_run
from throttled_views import (
    Algorithm,
    Charge,
    Limiter,
    Quota,
    ThrottledRouter,
)
from throttled_views.stores.redis import RedisStore

SPARE_MS = 60_000  # that keys live longer with a clock of a test
TEN = Quota.per_minute(10)


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


@pytest.mark.parametrize(
    ("quota", "max_delay"),
    [
        (Quota.per_minute(5), 0.0),
        (Quota.per_minute(5), 30.0),
        (Quota.per_day(1), 1.0),
        (Quota.per_hour(7), 0.000_001),
        (Quota(3, timedelta(days=30), burst=1), 86_400.0),
    ],
    ids=str,
)
async def test_a_key_lives_until_it_is_whole(
    store: RedisStore, server: Server, quota: Quota, max_delay: float
) -> None:
    """Not longer than that, however far away the turns are that it gave."""
    charge = Charge("alice", quota, max_delay=max_delay)
    for _ in range(quota.burst + 3):
        [result] = await store.acquire([charge])
        left_ms = int(str(server.ask("PTTL", "alice"))) - SPARE_MS
        whole_ms = result.state.reset_after * 1_000

        assert whole_ms - 1_000 <= left_ms <= whole_ms


async def test_a_turn_that_is_given_back_does_not_shorten_the_life_of_a_key(
    store: RedisStore, server: Server
) -> None:
    """Others may wait behind it, who were told theirs."""
    charge = Charge("alice", Quota.per_minute(5), cost=5, max_delay=60.0)
    await store.acquire([charge])
    [result] = await store.acquire([charge])
    await store.refund(result.receipts)

    left_ms = int(str(server.ask("PTTL", "alice"))) - SPARE_MS
    assert 119_000 <= left_ms <= 120_000


async def test_a_refund_by_another_process_is_seen_at_once(
    store: RedisStore, other: RedisStore
) -> None:
    """What may come back at any time is not remembered as refused."""
    for using in Algorithm:
        charge = Charge(f"alice {using}", TEN, using, 10, refundable=True)
        [result] = await store.acquire([charge])
        one = Charge(charge.key, TEN, using, refundable=True)
        before = [(await store.acquire([one]))[0].limited for _ in range(3)]
        await other.refund(result.receipts)
        after = (await store.acquire([one]))[0].limited

        assert ([True] * 3, False) == (before, after)


async def test_what_may_come_back_is_asked_for_each_time(
    store: RedisStore, server: Server
) -> None:
    """Also on a route: its limit has `refund_when`, so the server is asked."""
    limiter = Limiter(store=store)
    router = ThrottledRouter(limiter)

    @router.get("/")
    @limiter.limit("2/h", refund_when=lambda _: False)
    async def get() -> None: ...

    app = app_of(router)
    assert [200, 200, 429] == await statuses(app, *["GET /"] * 3)
    before = scripts_run(server)
    assert [429] * 5 == await statuses(app, *["GET /"] * 5)

    assert 5 == scripts_run(server) - before


async def test_a_shared_turn_is_one_line(store: RedisStore, other: RedisStore) -> None:
    """Processes that share a server give turns one after the other."""
    charge = Charge("alice", TEN, cost=10, max_delay=120.0)
    one = Charge("alice", TEN, max_delay=120.0)
    await store.acquire([charge])
    calls = [process.acquire([one]) for _ in range(10) for process in (store, other)]
    results = [result for [result] in await asyncio.gather(*calls)]

    assert [6.0 * turn for turn in range(1, 21)] == sorted(r.delay for r in results)


@pytest.mark.parametrize("way", ["one", "several"])
async def test_hooks_are_told_of_what_a_server_decides(
    store: RedisStore, way: str
) -> None:
    """On the quick way, which waits for the server, and with several limits."""
    notes = Notes()
    limiter = Limiter(store=store, hooks=[notes])
    router = ThrottledRouter(limiter)
    limits: Sequence[str] = ["2/h"] if way == "one" else ["2/h", "9/h"]

    @router.get("/")
    @limiter.limit([*limits])
    async def get() -> None: ...

    told = await answers(app_of(router), *["GET /"] * 4)

    assert [200, 200, 429, 429] == [each.status_code for each in told]
    checks = [each for each in notes.checks if each.limit.quota == "2/h"]
    assert ["admitted"] * 2 + ["refused"] * 2 == [each.outcome for each in checks]
    assert [1, 0, 0, 0] == [
        each.result.state.remaining for each in checks if each.result is not None
    ]
    assert {"early"} == {each.phase for each in notes.checks}
