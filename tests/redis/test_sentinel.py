"""The Redis store behind a sentinel, which replaces a primary that is lost."""

import time
from typing import Any

import pytest
import redis.asyncio

from tests.redis.servers import Sentinel
from tests.redis.stores import PATIENT_S, ask, asked_until_up
from throttled_views import Charge, Quota, StoreUnavailableError
from throttled_views.stores.redis import RedisStore

TEN = Quota.per_day(10)
FEW_SECONDS = 5.0


async def test_a_lost_primary_is_replaced(sentinel: Sentinel) -> None:
    """The store fails, and decides again on the replica without a restart."""
    library: Any = redis.asyncio  # Its annotations differ between versions.
    watchers = library.Sentinel(sentinel.sentinels)
    store = RedisStore(lambda: watchers.master_for(sentinel.service), timeout=PATIENT_S)
    await ask(store, "alice", TEN, 4)
    lost = sentinel.primary
    lost.kill()
    with pytest.raises(StoreUnavailableError):
        await ask(store, "alice", TEN)
    sentinel.fail_over()
    began = time.monotonic()
    result = await asked_until_up(store, Charge("bob", TEN))

    assert time.monotonic() - began < FEW_SECONDS
    assert 9 == result.state.remaining

    sentinel.heal()
    assert 8 == (await ask(store, "bob", TEN)).state.remaining
    assert lost is sentinel.replica
    await store.aclose()
    for watcher in watchers.sentinels:
        await watcher.aclose()
