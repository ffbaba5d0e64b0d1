"""The memory store: what it adds to a request, and what keys take."""

from __future__ import annotations

import asyncio
import gc
import multiprocessing
import os
from array import array
from concurrent.futures import ProcessPoolExecutor
from contextlib import AsyncExitStack
from pathlib import Path
from time import thread_time_ns

from fastapi import FastAPI
from prometheus_client import CollectorRegistry

from tests.benchmarks import apps, peers
from tests.benchmarks.measuring import Effort, checked_answer, race_of_apps, running
from tests.benchmarks.results import Row, Section, Table, rows_of
from throttled_views import Algorithm, MemoryStore, Quota
from throttled_views.algorithms.kernels import kernel_of
from throttled_views.contrib.prometheus import PrometheusHook

OURS = "throttled_views"
_TARGETS = {
    OURS: 1.12,
    f"{OURS}, PrometheusHook": 1.25,
    f"{OURS}, refused": 0.55,
    f"{OURS}, refused, own handler": 0.90,
}
_KEY_LENGTH = 48


def measure(effort: Effort) -> Section:
    """Measure requests, one at a time, and a flood of keys."""
    requests, missing = asyncio.run(_requests(effort))
    return Section([requests, _keys(effort)], missing=missing)


async def _requests(effort: Effort) -> tuple[Table, list[str]]:
    hook = PrometheusHook(registry=CollectorRegistry())
    contenders = {
        "bare": apps.bare(),
        OURS: apps.ours(),
        f"{OURS}, PrometheusHook": apps.ours(hooks=[hook]),
    }
    refused = {
        f"{OURS}, refused": apps.ours(None, apps.Scarce),
        f"{OURS}, refused, own handler": apps.with_handler(
            apps.ours(None, apps.Scarce)
        ),
    }
    others, missing = peers.installed(peers.IN_MEMORY, None)
    async with AsyncExitStack() as stack:
        everyone: dict[str, FastAPI] = {**contenders, **refused, **others}
        notes: dict[str, str] = {}
        for name, app in everyone.items():
            await stack.enter_async_context(running(app))
            notes[name] = await checked_answer(app, 200)
            if name in refused:
                await checked_answer(app, 429)
        notes["bare"] = "no limits"
        taken = await race_of_apps(everyone, effort)
    rows = rows_of(taken, "bare", _TARGETS, notes)
    return Table("In memory, one request at a time", rows, base="bare"), missing


# --- keys -----------------------------------------------------------------------------


def _keys(effort: Effort) -> Table:
    """Measure in a process of its own, where nothing else takes memory."""
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=spawn) as pool:
        rows = pool.submit(flood, effort.largest).result()
    return Table(
        f"{effort.largest:,} keys, then as many new ones",
        rows,
        unit="",
        note="Of the time that the processor spends on a check, so that what else runs "
        "on the machine is not in it.",
    )


def flood(count: int) -> list[Row]:
    """Fill a store with *count* keys, and then with as many others."""
    store = MemoryStore(max_keys=count)
    kernel = kernel_of(Quota.per_hour(100), Algorithm.TOKEN_BUCKET)
    take = store.taker("", str, "", kernel, 1)
    took = array("q", [0]) * (2 * count)
    gc.collect()
    before = _resident_bytes()
    size = 0.0
    for number in range(2 * count):
        key = f"{number:0{_KEY_LENGTH}d}"
        began = thread_time_ns()
        take(key)
        took[number] = thread_time_ns() - began
        if number == count - 1:
            gc.collect()
            size = (_resident_bytes() - before) / count
    ordered = sorted(took)

    def at(share: float) -> float:
        return round(ordered[int(share * (len(ordered) - 1))] / 1e6, 4)

    rows = [
        Row("bytes for a key of 48 characters", round(size), target=200),
        Row("ms of a check, median", at(0.5)),
        Row("ms of a check, 99.9 %", at(0.999), target=1),
        Row("ms of a check, the longest", at(1), target=10),
    ]
    return rows if size else rows[1:]


def _resident_bytes() -> int:
    """Return what this process takes of memory; 0 where Linux does not tell."""
    told = Path("/proc/self/statm")
    pages = int(told.read_text("ascii").split()[1]) if told.exists() else 0
    return pages * os.sysconf("SC_PAGESIZE")
