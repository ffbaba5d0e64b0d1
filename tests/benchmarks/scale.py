"""How the cost grows: with routes, with limits and keys, and with concurrency."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from typing import Any

from fastapi import FastAPI

from tests.benchmarks import apps
from tests.benchmarks.measuring import (
    CLIENT_CORE,
    Effort,
    Work,
    checked_answer,
    pin,
    race,
    race_of_apps,
    running,
)
from tests.benchmarks.results import Row, Section, Table, rows_of
from tests.benchmarks.servers import kinds, server_of
from tests.redis.servers import Kind, Server
from throttled_views import Algorithm, MemoryStore, Quota, Store
from throttled_views.algorithms.kernels import kernel_of
from throttled_views.stores.redis import RedisStore

_CONCURRENCY = (1, 4, 16, 64, 256, 1024)
_LIMITS = (1, 2, 5, 10)
_ROUTES = (1, 10, 100, 1_000)
_KEYS = (1_000, 10_000, 100_000, 1_000_000)
CONCURRENT = 64
_TOUCHED = 512  # keys in a round
CLIENTS = [(f"203.0.113.{last}", 1234) for last in range(CONCURRENT)]


def measure(effort: Effort) -> Section:
    """Measure in memory, and with the first kind of server that is there."""
    tables = asyncio.run(_in_memory(effort))
    found, missing = kinds()
    if found:
        kind = found[-1]
        with server_of(kind) as server:
            pin(CLIENT_CORE)
            tables += asyncio.run(_with_server(effort, kind, server))
    return Section(tables, missing=missing)


async def _in_memory(effort: Effort) -> list[Table]:
    return [
        await _routes(effort),
        await _limits(effort, "In memory", MemoryStore, 1),
        await _concurrency(effort, "In memory", MemoryStore),
        await _keys_in_memory(effort),
    ]


async def _with_server(effort: Effort, kind: Kind, server: Server) -> list[Table]:
    name = kind.name.capitalize()

    def store() -> Store:
        return RedisStore(server.url, timeout=5)

    return [
        await _limits(effort, name, store, CONCURRENT),
        await _concurrency(effort, name, store),
        await _keys_in_redis(effort, name, server),
    ]


async def against_bare(
    apps_by_name: Mapping[str, FastAPI], effort: Effort, concurrency: int, path: str
) -> dict[str, list[float]]:
    """Start applications, and let them take turns; many clients ask them."""
    async with AsyncExitStack() as stack:
        for app in apps_by_name.values():
            await stack.enter_async_context(running(app))
            await checked_answer(app, 200, path)
        return await race_of_apps(
            apps_by_name, effort, concurrency, path=path, clients=CLIENTS
        )


async def _routes(effort: Effort) -> Table:
    rows: list[Row] = []
    for count in effort.up_to(*_ROUTES):
        prefixes = [f"/{number}" for number in range(count)]
        contenders = {
            "bare": apps.bare(*prefixes),
            _counted(count, "route"): apps.ours(None, apps.Items, *prefixes),
        }
        few = effort._replace(rounds=max(2, effort.rounds * 10 // max(10, count)))
        taken = await against_bare(contenders, few, 1, f"/{count - 1}/items")
        rows += rows_of(taken, "bare")[1:]
    return Table("Routes, of which the last is asked", rows, base="bare, as many")


async def _limits(
    effort: Effort, name: str, store: Callable[[], Store], concurrency: int
) -> Table:
    contenders = {"bare": apps.bare()} | {
        _counted(count, "limit"): apps.ours(store(), apps.with_limits(count))
        for count in _LIMITS
    }
    taken = await against_bare(contenders, effort, concurrency, "/items")
    title = f"{name}: limits of a request, {concurrency} at a time"
    return Table(title, rows_of(taken, "bare")[1:], base="bare")


async def _concurrency(effort: Effort, name: str, store: Callable[[], Store]) -> Table:
    rows: list[Row] = []
    for concurrency in effort.up_to(*_CONCURRENCY):
        contenders = {
            "bare": apps.bare(),
            f"{concurrency} at a time": apps.ours(store()),
        }
        taken = await against_bare(contenders, effort, concurrency, "/items")
        rows += rows_of(taken, "bare")[1:]
    return Table(f"{name}: requests at the same time", rows, base="bare")


def _counted(count: int, what: str) -> str:
    return f"{count:,} {what}" + "s" * (count > 1)


# --- keys -----------------------------------------------------------------------------


async def _keys_in_memory(effort: Effort) -> Table:
    """Measure the check alone: a request would hide what the dicts do."""
    kernel = kernel_of(Quota.per_hour(1_000_000), Algorithm.TOKEN_BUCKET)
    works: dict[str, Work] = {}
    for count in effort.up_to(*_KEYS):
        take = MemoryStore().taker("", str, "", kernel, 1)
        for number in range(count):
            take(number)

        async def work(
            take: Callable[[object], object] = take, count: int = count
        ) -> None:
            for number in _some(count):
                take(number)

        works[f"{count:,} keys"] = work
    return _keys_table(
        "In memory: keys, the check alone", works, await _race(works, effort)
    )


async def _keys_in_redis(effort: Effort, name: str, server: Server) -> Table:
    kernel = kernel_of(Quota.per_hour(1_000_000), Algorithm.TOKEN_BUCKET)
    works: dict[str, Work] = {}
    store = RedisStore(server.url, timeout=5)
    for count in effort.up_to(*_KEYS):
        take = store.taker(f"{count}-", str, "", kernel, 1)

        async def work(take: Callable[[int], Any] = take, count: int = count) -> None:
            await _ask(take, _some(count))

        for first in range(0, count, _TOUCHED):
            await _ask(take, range(first, min(count, first + _TOUCHED)))
        works[f"{count:,} keys"] = work
    taken = await _race(works, effort)
    await store.aclose()
    return _keys_table(f"{name}: keys, the check alone", works, taken)


async def _ask(take: Callable[[int], Any], keys: range | list[int]) -> None:
    await asyncio.gather(*map(take, keys))


def _some(count: int) -> list[int]:
    return random.choices(range(count), k=_TOUCHED)


async def _race(works: Mapping[str, Work], effort: Effort) -> dict[str, list[float]]:
    taken = await race(works, effort.rounds)
    return {
        name: [seconds * 1e6 / _TOUCHED for seconds in rounds]
        for name, rounds in taken.items()
    }


def _keys_table(
    title: str, works: Mapping[str, Work], taken: Mapping[str, list[float]]
) -> Table:
    first = next(iter(works))
    return Table(title, rows_of(taken, first), base=first)
