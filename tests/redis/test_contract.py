"""The Redis store keeps every promise of a store, on one server and on several."""

from collections.abc import AsyncIterator

import pytest
from redis.asyncio import RedisCluster

from tests.clock import ManualClock
from throttled_views.stores.redis import RedisStore
from throttled_views.testing import StoreContract


class TestRedisStore(StoreContract):
    """One server, by its URL."""

    @pytest.fixture
    async def store(
        self, redis_url: str, clock: ManualClock
    ) -> AsyncIterator[RedisStore]:
        """Give a store without keys, and close it."""
        store = RedisStore(redis_url, timeout=5, clock=clock)
        yield store
        await store.aclose()


class TestRedisStoreInACluster(StoreContract):
    """Three servers, by a function that makes a client."""

    @pytest.fixture
    async def store(
        self, cluster_urls: list[str], clock: ManualClock
    ) -> AsyncIterator[RedisStore]:
        """Give a store without keys, and close it."""
        store = RedisStore(
            lambda: RedisCluster.from_url(cluster_urls[0]), timeout=5, clock=clock
        )
        yield store
        await store.aclose()
