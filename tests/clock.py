"""A clock for stores under test: it moves when it is told to."""

_US_PER_S = 1_000_000


class ManualClock:
    """
    Stand still, except when told to move.

    It is called for the time in microseconds, as stores do. Tests move it in seconds,
    which are taken to the nearest microsecond.
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
