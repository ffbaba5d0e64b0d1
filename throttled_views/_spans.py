"""Equal lengths of time, one after the other, that people read well."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

__all__ = ["spans_of"]

_SECOND_US = 1_000_000
_MINUTE_US = 60 * _SECOND_US
_HOUR_US = 60 * _MINUTE_US
_DAY_US = 24 * _HOUR_US
_ROUND_US = (
    *(digit * 10**power for power in range(6) for digit in (1, 2, 5)),
    *(many * _SECOND_US for many in (1, 2, 5, 10, 15, 30)),
    *(many * _MINUTE_US for many in (1, 2, 5, 10, 15, 30)),
    *(many * _HOUR_US for many in (1, 2, 3, 6, 12)),
)


def spans_of(first_us: int, last_us: int, most: int) -> range:
    """
    Return when each span starts, and when the last one ends.

    They are of the shortest length by which they are not too many.

    Args:
        first_us: What the first of them has in it, in microseconds.
        last_us: What the last of them has in it.
        most: How many there are at most, 1 or more.
    """
    span_us = next(
        length_us
        for length_us in _lengths_us()
        if last_us // length_us - first_us // length_us < most
    )
    first, last = first_us // span_us, last_us // span_us
    return range(first * span_us, (last + 2) * span_us, span_us)


def _lengths_us() -> Iterator[int]:
    yield from _ROUND_US
    yield from (days * _DAY_US for days in count(1))
