"""What commands print: tables for people, JSON for programs, and how time reads."""

from __future__ import annotations

import json
import sys
from collections.abc import Generator
from contextlib import contextmanager, nullcontext
from datetime import UTC, datetime, timedelta

from rich import box
from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from rich.text import Text

__all__ = [
    "duration_text",
    "moment_text",
    "output",
    "print_json",
    "progress",
    "table_of",
    "warn",
]

_WIDE = 1_000  # columns, where nobody looks: a row is a line then, as `grep` wants it
_US_PER_S = 1_000_000
_UNITS_S = {"d": 86_400, "h": 3_600, "m": 60}
_DATED_US = 10 * 365 * 86_400 * _US_PER_S  # what is later than ten years is a date
_EPOCH = datetime.fromtimestamp(0, UTC)


def output() -> Console:
    """Return the console that results go to, whatever its encoding has letters for."""
    if (reconfigure := getattr(sys.stdout, "reconfigure", None)) is not None:
        reconfigure(errors="backslashreplace")
    width = None if sys.stdout.isatty() else _WIDE
    return Console(width=width, highlight=False)


def _errors() -> Console:
    """Return the console that everything else goes to."""
    return Console(stderr=True, highlight=False)


def warn(text: str) -> None:
    """Tell a person, beside the results, in a line."""
    _errors().print(Text(text), soft_wrap=True)


@contextmanager
def progress() -> Generator[Progress]:
    """Show how far it is, to somebody who looks."""
    console = _errors()
    bar = Progress(console=console, transient=True, disable=not console.is_terminal)
    # Older versions of Rich end the line of a bar that they do not show.
    with nullcontext() if bar.disable else bar:
        yield bar


def table_of(*columns: str) -> Table:
    """Return an empty table."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold")
    return table


def print_json(value: object) -> None:
    """Print *value* for programs."""
    sys.stdout.write(json.dumps(value, indent=2) + "\n")


def duration_text(duration_us: int) -> str:
    """Return microseconds as people read them: ``1h30m``, ``2.5s``, ``40ms``."""
    if 0 < duration_us < _US_PER_S:
        return f"{duration_us / 1_000:g}ms"
    seconds, rest_us = divmod(duration_us, _US_PER_S)
    parts: list[str] = []
    for unit, unit_s in _UNITS_S.items():
        many, seconds = divmod(seconds, unit_s)
        parts += [f"{many}{unit}"] if many else []
    if seconds or rest_us or not parts:
        text = f"{seconds + rest_us / _US_PER_S:.3f}"
        parts.append(f"{text.rstrip('0').rstrip('.')}s")
    return "".join(parts)


def moment_text(at_us: int) -> str:
    """Return an instant: a date in UTC, or how long it is after the start of time."""
    if at_us < _DATED_US:
        return duration_text(at_us)
    return f"{_EPOCH + timedelta(microseconds=at_us):%Y-%m-%d %H:%M:%S}"
