"""Processes that share a server, and nodes of a cluster that share the keys."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
from collections.abc import Awaitable, Callable
from concurrent.futures import ProcessPoolExecutor
from time import perf_counter
from typing import NamedTuple

from tests.benchmarks import apps
from tests.benchmarks.measuring import (
    CLIENT_CORE,
    Effort,
    checked_answer,
    ignore,
    pin,
    receive,
    request_scope,
    running,
)
from tests.benchmarks.results import Row, Section, Table, rows_of
from tests.benchmarks.scale import CLIENTS, CONCURRENT, against_bare
from tests.benchmarks.servers import busy_us, cluster_of, kinds, server_of
from tests.redis.servers import Cluster
from tests.redis.stores import cluster_client_of
from throttled_views.stores.redis import RedisStore

_SHARES = ((1, 1), (1, CONCURRENT), (2, CONCURRENT))  # processes, requests in each


class _Serving(NamedTuple):
    """
    What each process does.

    Attributes:
        url: The server that has the keys.
        is_cluster: Whether that is one node of several.
        concurrency: Requests at the same time.
        seconds: For how long.
    """

    url: str
    is_cluster: bool
    concurrency: int
    seconds: float


def measure(effort: Effort) -> Section:
    """Measure with the first kind of server that is there."""
    found, missing = kinds()
    if not found:
        return Section([], missing=missing)
    kind, rows = found[-1], list[Row]()
    with server_of(kind) as server:
        for processes, concurrency in _SHARES[-1:] if effort.is_smoke else _SHARES:
            serving = _Serving(server.url, False, concurrency, effort.seconds)  # noqa: FBT003 - named above
            rows += _shared(serving, processes, lambda: busy_us(server))
    with cluster_of(kind) as cluster:
        serving = _Serving(cluster.urls[0], True, CONCURRENT, effort.seconds)  # noqa: FBT003 - named above
        rows += _shared(serving, 1, lambda: sum(map(busy_us, cluster.nodes)))
        pin(CLIENT_CORE)
        nodes = asyncio.run(_cluster(effort, cluster))
    name = kind.name.capitalize()
    cores = f"{os.cpu_count()} cores carry the processes and the servers."
    title = f"{name}: processes that share a server"
    return Section([Table(title, rows, "", note=cores), nodes], missing=missing)


def _shared(
    serving: _Serving, processes: int, busy: Callable[[], float]
) -> tuple[Row, Row]:
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, mp_context=spawn) as pool:
        warming = serving._replace(seconds=serving.seconds / 10)
        _ = [*pool.map(requests_served, [warming] * processes)]
        busy_before, began = busy(), perf_counter()
        served = sum(pool.map(requests_served, [serving] * processes))
        elapsed, spent = perf_counter() - began, busy() - busy_before
    who = "1 process" if processes == 1 else f"{processes} processes"
    name = f"{who}, {serving.concurrency} at a time"
    where = "cluster of three" if serving.is_cluster else "server"
    note = f"{where} busy {spent / elapsed / 1e4:.0f} % of the time"
    return (
        Row(f"{where}, {name}: requests/s", round(served / elapsed), note=note),
        Row(f"{where}, {name}: its µs for each", round(spent / served, 2)),
    )


def requests_served(serving: _Serving) -> int:
    """Serve for some time; return how many requests that were."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, range(os.cpu_count() or 1))
    return asyncio.run(_requests_served(serving))


async def _requests_served(serving: _Serving) -> int:
    client = cluster_client_of(serving.url) if serving.is_cluster else None
    app = apps.ours(RedisStore(serving.url if client is None else client, timeout=5))
    served, until = 0, perf_counter() + serving.seconds

    async def ask_again_and_again(first: int) -> None:
        nonlocal served
        number = first
        while perf_counter() < until:
            scope = request_scope("/items", CLIENTS[number % len(CLIENTS)])
            await app(scope, receive, ignore)
            served, number = served + 1, number + 1

    async with running(app):
        await checked_answer(app, 200)
        await asyncio.gather(*map(ask_again_and_again, range(serving.concurrency)))
    if client is not None:
        closing: Awaitable[None] = client.aclose()
        await closing
    return served


async def _cluster(effort: Effort, cluster: Cluster) -> Table:
    rows: list[Row] = []
    for concurrency in (1, CONCURRENT):
        client = cluster_client_of(cluster.urls[0])
        limited = apps.ours(RedisStore(client, timeout=5))
        contenders = {"bare": apps.bare(), f"{concurrency} at a time": limited}
        taken = await against_bare(contenders, effort, concurrency, "/items")
        rows += rows_of(taken, "bare")[1:]
        closing: Awaitable[None] = client.aclose()
        await closing
    title = f"A cluster of three nodes, {CONCURRENT} clients"
    note = "All nodes share one core."
    return Table(title, rows, base="bare", note=note)
