"""What it takes to import the package, next to what it takes to import FastAPI."""

from __future__ import annotations

import os
import subprocess
import sys
from tempfile import TemporaryDirectory

from tests.benchmarks.measuring import Effort
from tests.benchmarks.results import Section, Table, rows_of

_MOST_ROUNDS = 40
_CODE = (
    "import time; began = time.process_time(); import {}; "
    "print(time.process_time() - began)"
)
_MODULES = ("fastapi", "throttled_views")


def measure(effort: Effort) -> Section:
    """Measure new processes, in turn, of modules that are compiled."""
    with TemporaryDirectory() as compiled:
        for module in _MODULES:
            _ = _seconds_of(module, compiled)
        return _compared(effort, compiled)


def _compared(effort: Effort, compiled: str) -> Section:
    taken: dict[str, list[float]] = {module: [] for module in _MODULES}
    for _ in range(min(_MOST_ROUNDS, effort.rounds)):
        for module in _MODULES:
            taken[module].append(_seconds_of(module, compiled) * 1000)
    rows = rows_of(taken, "fastapi", {"throttled_views": 1.05})
    return Section([Table("Import, time of the processor", rows, "ms", "fastapi")])


def _seconds_of(module: str, compiled: str) -> float:
    # What is compiled is kept together: a checkout may have none, or an old one.
    environment = {**os.environ, "PYTHONPYCACHEPREFIX": compiled}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    ran = subprocess.run(
        [sys.executable, "-c", _CODE.format(module)],
        capture_output=True,
        text=True,
        check=True,
        env=environment,
    )
    return float(ran.stdout)
