"""A clock that tests move."""

from __future__ import annotations

__all__ = ["ManualClock"]

_US_PER_S = 1_000_000


class ManualClock:
    """
    A clock that stands still until it is told to move.

    Give it to a store as its clock, which calls it for the time in microseconds. Tests
    move it in seconds, which are taken to the nearest microsecond.

    Args:
        start: What it shows at first, in seconds.
    """

    def __init__(self, start: float = 0.0) -> None:
        self._now_us = round(start * _US_PER_S)

    def __call__(self) -> int:
        """Return the time in microseconds."""
        return self._now_us

    def advance(self, seconds: float) -> None:
        """Let *seconds* pass; a negative number is a clock that is set back."""
        self._now_us += round(seconds * _US_PER_S)

    def set(self, seconds: float) -> None:
        """Make it *seconds* after the clock's zero."""
        self._now_us = round(seconds * _US_PER_S)
