"""What the tests of the Redis store share: short ways to ask and to look."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import redis.asyncio
from redis.asyncio import Redis, RedisCluster

from tests.redis.servers import PATIENCE_SECONDS, Server
from throttled_views import Charge, Quota, RateLimitResult, Store, StoreUnavailableError
from throttled_views.stores.redis import RedisStore

PATIENT_S = 10.0  # a machine under load is not what these tests are about

_POLL_S = 0.005
_SCRIPT_CALLS = ("cmdstat_eval", "cmdstat_evalsha")
# Its annotations differ between versions.
_library: Any = redis.asyncio


def client_of(url: str, **options: object) -> Redis:
    """Return a client of the user's own."""
    client: Redis = _library.from_url(url, **options)
    return client


def cluster_client_of(url: str, **options: object) -> RedisCluster:
    """Return a client of the user's own, for a cluster."""
    client: RedisCluster = _library.RedisCluster.from_url(url, **options)
    return client


async def ask(store: Store, key: str, quota: Quota, cost: int = 1) -> RateLimitResult:
    """Charge one key."""
    [result] = await store.acquire([Charge(key, quota, cost=cost)])
    return result


async def remaining(store: Store, key: str, quota: Quota) -> int:
    """Return what a key could still make."""
    [result] = await store.peek([Charge(key, quota)])
    return result.state.remaining


async def asked_until_up(store: Store, charge: Charge) -> RateLimitResult:
    """Ask until a store answers that was unavailable a moment ago."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            with suppress(StoreUnavailableError):
                [result] = await store.acquire([charge])
                return result
            await asyncio.sleep(_POLL_S)


async def until(holds: Callable[[], Awaitable[bool]]) -> None:
    """Look every few milliseconds until it *holds*; raise TimeoutError if not."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            if await holds():
                return
            await asyncio.sleep(_POLL_S)


async def settled(*others: asyncio.Task[Any]) -> None:
    """Let all tasks but the one that asks, and *others*, come to their end."""

    async def is_alone() -> bool:
        return len(asyncio.all_tasks() - {*others}) == 1

    await until(is_alone)


def scripts_run(server: Server) -> int:
    """Return how often the server was asked to run a script."""
    stats = server.info("commandstats")
    return sum(
        int(stats[name].removeprefix("calls=").partition(",")[0])
        for name in _SCRIPT_CALLS
        if name in stats
    )


def connections(server: Server) -> int:
    """Return how many clients a server has, beside the one that asks."""
    return len(str(server.ask("CLIENT", "LIST")).splitlines()) - 1


def forget_denials(store: RedisStore, *keys: str) -> None:
    """Let a store ask the server of *keys* again, whatever it knows of them."""
    store._denials.drop(keys)  # pyright: ignore[reportPrivateUsage]
