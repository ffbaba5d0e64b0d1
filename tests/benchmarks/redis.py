"""The Redis store: what it adds to a request, and what it asks of the server."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

from fastapi import FastAPI
from starlette.types import ASGIApp, Receive, Scope, Send

from tests.benchmarks import apps, peers
from tests.benchmarks.measuring import (
    CLIENT_CORE,
    Effort,
    checked_answer,
    pin,
    race_of_apps,
    running,
)
from tests.benchmarks.memory import OURS
from tests.benchmarks.results import Row, Section, Table, rows_of
from tests.benchmarks.servers import kinds, script_us, server_of
from tests.redis.servers import Kind, Server
from tests.redis.stores import client_of
from throttled_views import Charge, Quota
from throttled_views.stores.redis import RedisStore

BASE = "bare + evalsha"
_CONCURRENT = 64
_PIPELINED = 64
_REFUSED = f"{OURS}, one refused key"
_GCRA = (Path(__file__).parent / "gcra.lua").read_text("utf-8")


def measure(effort: Effort) -> Section:
    """Measure with each kind of server that is on this machine."""
    found, missing = kinds()
    tables: list[Table] = []
    for kind in found[-1:] if effort.is_smoke else found:
        with server_of(kind) as server:
            pin(CLIENT_CORE)
            for concurrency in (1, _CONCURRENT):
                server.flushall()
                requests = _requests(effort, kind, server.url, concurrency)
                table, not_there = asyncio.run(requests)
                tables.append(table)
                missing += not_there
            tables.append(asyncio.run(_server_time(effort, kind, server)))
    return Section(tables, missing=[*dict.fromkeys(missing)])


# --- requests -------------------------------------------------------------------------


async def _requests(
    effort: Effort, kind: Kind, url: str, concurrency: int
) -> tuple[Table, list[str]]:
    ours = {
        OURS: apps.ours(RedisStore(url)),
        _REFUSED: apps.ours(RedisStore(url), apps.Scarce),
    }
    others, missing = peers.installed(peers.IN_REDIS, url)
    async with AsyncExitStack() as stack:
        started: dict[str, FastAPI] = {"bare": apps.bare(), **ours, **others}
        notes: dict[str, str] = {}
        for name, app in started.items():
            await stack.enter_async_context(running(app))
            notes[name] = await checked_answer(app, 200)
        await checked_answer(ours[_REFUSED], 429)
        notes |= {"bare": "no limits", BASE: "and one script call of redis-py"}
        contenders: dict[str, ASGIApp] = {"bare": started["bare"]}
        contenders[BASE] = await _with_evalsha(started["bare"], url)
        contenders |= started
        taken = await race_of_apps(contenders, effort, concurrency)
    if concurrency == 1:
        base, targets = BASE, {OURS: 1.05}
    else:
        base, targets = "bare", {OURS: 1.35, _REFUSED: 0.55}
    title = f"{kind.name.capitalize()}, {concurrency} at a time"
    rows = rows_of(taken, base, targets, notes)
    return Table(title.replace(", 1 at", ", one at"), rows, base=base), missing


async def _with_evalsha(app: ASGIApp, url: str) -> ASGIApp:
    """Return *app* with a call to Redis before each request: what any limiter pays."""
    client = client_of(url)
    digest = await client.script_load("return 1")

    async def wrapped(scope: Scope, receive: Receive, send: Send) -> None:
        called: Awaitable[str] = client.evalsha(digest, 1, "benchmark", "6", "1", "1")
        await called
        await app(scope, receive, send)

    return wrapped


# --- the time of the server -----------------------------------------------------------


async def _server_time(effort: Effort, kind: Kind, server: Server) -> Table:
    """Measure microseconds in scripts, next to the simplest script there is."""
    store, client = RedisStore(server.url, timeout=5), client_of(server.url)
    digest = await client.script_load(_GCRA)
    quota = Quota.per_minute(1_000_000)

    async def ours(count: int) -> None:
        await asyncio.gather(
            *(store.acquire([Charge(f"key-{each}", quota)]) for each in range(count))
        )

    async def simplest(count: int) -> None:
        pipeline = client.pipeline(transaction=False)
        for each in range(count):
            _ = pipeline.evalsha(digest, 1, f"plain-{each}", "60", "1000000", "1")
        await pipeline.execute()

    rows: list[Row] = []
    for count, target in ((_PIPELINED, 0.7), (1, 1.45)):
        mine: list[float] = []
        plain: list[float] = []
        for _ in range(max(3, effort.rounds)):
            mine.append(await _script_us(server, ours, count, effort))
            plain.append(await _script_us(server, simplest, count, effort))
        together = "64 together" if count > 1 else "alone"
        base, us = f"the simplest, {together}", f"{OURS}, {together}"
        rows += rows_of({base: plain, us: mine}, base, {us: target})
    await store.aclose()
    await client.aclose()
    return Table(
        f"{kind.name.capitalize()}: time in scripts for a decision",
        rows,
        base="the simplest GCRA script, pipelined",
        note="As the server counts it (`INFO commandstats`).",
    )


async def _script_us(
    server: Server,
    ask: Callable[[int], Awaitable[None]],
    count: int,
    effort: Effort,
) -> float:
    turns = max(1, effort.requests // count)
    before = script_us(server)
    for _ in range(turns):
        await ask(count)
    return max(0.01, script_us(server) - before) / (turns * count)
