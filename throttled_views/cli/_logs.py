"""
Requests, as servers log them.

A line has a time, and may say who asked: seconds since 1970, or ISO 8601, with a word
after it; or it is in the Common Log Format, which Apache and nginx write, or a longer
one that begins alike, with the address in front.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from pathlib import Path

from rich.progress import Progress

from throttled_views.cli._console import warn
from throttled_views.cli._mistakes import CommandError
from throttled_views.keys import client_ip
from throttled_views.simulation import Arrival

__all__ = ["read"]

_MICROSECOND = timedelta(microseconds=1)
_EPOCH = datetime.fromtimestamp(0, UTC)
_US_PER_S = 1_000_000
_END_US = (datetime.max.replace(tzinfo=UTC) - _EPOCH) // _MICROSECOND
_MONTHS = "JanFebMarAprMayJunJulAugSepOctNovDec"
# https://httpd.apache.org/docs/2.4/logs.html#common
_COMMON = re.compile(
    r"(?P<host>\S+) .*?\[(?P<time>\d\d/[A-Z][a-z]{2}/\d{4}:\d\d:\d\d:\d\d [+-]\d{4})\]"
)
_PLAIN = re.compile(
    r"\s*(?:(?P<seconds>\d{1,12}(?:\.\d*)?)|(?P<date>\d{4}-\d\d-\d\d(?:[T ]\d\d:\S+)?))"
    r"(?:\s+(?P<key>\S+))?\s*"
)


def read(path: Path, bar: Progress) -> list[Arrival]:
    """
    Return the requests that the lines of a file tell of; ``-`` is standard input.

    Raises:
        CommandError: No line does, or there is no such file.
    """
    if str(path) == "-":
        # Not as the locale says: no line is to end the others.
        texts = (line.decode("utf-8", "replace") for line in sys.stdin.buffer)
        return _read(bar.track(texts, description="reading"))
    try:
        with path.open(encoding="utf-8", errors="replace") as lines:
            return _read(bar.track(lines, description="reading"))
    except OSError as error:
        msg = f"{str(path)!r} cannot be read: {error.strerror}"
        raise CommandError(msg) from None


def _read(lines: Iterable[str]) -> list[Arrival]:
    found = [_arrival_of(line) for line in lines if line.strip()]
    arrivals = [each for each in found if each is not None]
    unread = len(found) - len(arrivals)
    if not arrivals:
        msg = (
            "No line tells a time. Give one a line, in seconds since 1970, not parts "
            "of them, or as ISO 8601, or a log in the common or combined format"
        )
        raise CommandError(msg)
    if unread:
        warn(f"{unread:,} of {len(found):,} lines tell no time: left out")
    return arrivals


# --- lines ----------------------------------------------------------------------------


def _arrival_of(line: str) -> Arrival | None:
    """Return the request that *line* tells of; None if it tells of none."""
    try:
        arrival = _common(line) if "[" in line else _plain(line)
    except ValueError:  # of the 30th of February, say
        return None
    # Later than any date are milliseconds, which say nothing of what they are.
    return arrival if arrival and 0 <= arrival.at_us <= _END_US else None


def _common(line: str) -> Arrival | None:
    found = _COMMON.match(line)
    return found and Arrival(_common_us(found["time"]), _client(found["host"]))


@lru_cache(maxsize=1024)
def _common_us(text: str) -> int:
    """Return the time of a log in the common format; its months are English always."""
    day, month, rest = text.split("/")
    number = _MONTHS.index(month) // len(month) + 1
    iso = f"{rest[:4]}-{number:02}-{day}T{rest[5:13]}{rest[14:]}"
    return _since_epoch(datetime.fromisoformat(iso))


@lru_cache(maxsize=4096)
def _client(host: str) -> str:
    """Return what the client at *host* is called in keys."""
    return client_ip.from_scope({"client": (host, 0)})


def _plain(line: str) -> Arrival | None:
    found = _PLAIN.fullmatch(line)
    if found is None:
        return None
    if found["seconds"]:
        at_us = round(float(found["seconds"]) * _US_PER_S)
    else:
        at_us = _since_epoch(datetime.fromisoformat(found["date"]))
    return Arrival(at_us, found["key"] or "")


def _since_epoch(moment: datetime) -> int:
    """Return microseconds since 1970; what names no zone is UTC."""
    zoned = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return (zoned - _EPOCH) // _MICROSECOND
