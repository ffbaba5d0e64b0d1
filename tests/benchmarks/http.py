"""Over HTTP: uvicorn on one core, wrk on another, next to the in-process figure."""

from __future__ import annotations

import random
import re
import shutil
import subprocess
import sys
import urllib.request
from contextlib import ExitStack
from importlib.util import find_spec
from urllib.error import HTTPError

from tests.benchmarks import peers
from tests.benchmarks.measuring import CLIENT_CORE, SERVER_CORE, Effort, pin
from tests.benchmarks.memory import OURS
from tests.benchmarks.results import Section, Table, rows_of
from tests.benchmarks.served import NAME, URL
from tests.benchmarks.servers import kinds, server_of
from tests.serving import serving

_CONNECTIONS = 64
_MOST_ROUNDS = 10
_PEERS = {
    "throttled-py": "throttled",
    "slowapi": "slowapi",
    "traffik": "traffik",
    "fastapi-limiter": "fastapi_limiter",
}


def measure(effort: Effort) -> Section:
    """Measure in memory, and with the first kind of server that is there."""
    if shutil.which("wrk") is None:
        return Section(
            [], missing=["wrk was not found; Debian has it in the package wrk"]
        )
    found, missing = kinds()
    others = [name for name in _PEERS if find_spec(_PEERS[name])]
    if effort.is_smoke:
        return Section([_table(effort, "uvicorn and wrk, in memory", [], None)])
    tables = [_table(effort, "uvicorn and wrk, in memory", ["refused", *others], None)]
    if found:
        others = [name for name in others if name in peers.IN_REDIS]
        with server_of(found[-1]) as server:
            pin(CLIENT_CORE, server.pid)
            title = f"uvicorn and wrk, {found[-1].name.capitalize()}"
            tables.append(_table(effort, title, others, server.url))
    return Section(tables, missing=missing)


def _table(effort: Effort, title: str, others: list[str], url: str | None) -> Table:
    names = ["bare", OURS]
    names += [f"{OURS}, refused" if each == "refused" else each for each in others]
    with ExitStack() as stack:
        urls = {name: _served(stack, name, url) for name in names}
        taken: dict[str, list[float]] = {name: [] for name in names}
        for _ in range(min(_MOST_ROUNDS, effort.rounds // 2)):
            for name in random.sample(names, len(names)):
                may_fail = "refused" in name
                taken[name].append(1e6 / _wrk(urls[name], may_fail=may_fail))
    note = f"{_CONNECTIONS} connections; the server of keys shares the core of wrk."
    return Table(title, rows_of(taken, "bare"), base="bare", note=note)


def _served(stack: ExitStack, name: str, url: str | None) -> str:
    """Serve an application; return where, once it answered as it should."""
    variables = [f"{NAME}={name}", *([] if url is None else [f"{URL}={url}"])]
    module = "tests.benchmarks.served:app"
    command = [sys.executable, "-m", "uvicorn", "--factory", module]
    quiet = ["--no-access-log", "--log-level=warning"]
    server = stack.enter_context(serving("env", *variables, *command, *quiet))
    pin(SERVER_CORE, server.process.pid)
    where = f"{server.url}/items"
    expected = [200, 429] if "refused" in name else [200, 200]
    if [_status(where), _status(where)] != expected:
        msg = f"{name} does not answer as it should"
        raise AssertionError(msg)
    return where


def _status(url: str) -> int:
    try:
        with urllib.request.urlopen(url) as answer:  # noqa: S310 - of ours
            status: int = answer.status
            return status
    except HTTPError as error:
        with error:
            return error.code


def _wrk(url: str, *, may_fail: bool) -> float:
    """Return the requests that are answered in a second, as they should be."""
    pinned = ["taskset", "-c", str(CLIENT_CORE)] if shutil.which("taskset") else []
    command = ["wrk", "-t1", f"-c{_CONNECTIONS}", "-d1s", url]
    ran = subprocess.run(
        [*pinned, *command], capture_output=True, text=True, check=True
    )
    found = re.search(r"Requests/sec:\s+([\d.]+)", ran.stdout)
    if found is None or ("Non-2xx" in ran.stdout and not may_fail):
        raise AssertionError(ran.stdout)
    return float(found[1])
