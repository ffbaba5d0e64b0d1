"""
The sliding log: every hit that counts, with its time.

Rules of this file:

1. Integers only; nothing here is ever rounded.
2. The window is half-open: what is charged at *t* counts from *t* on, and no more at
   *t* plus the period.
3. Hits are in the order of their times, all of one microsecond are one, and none counts
   nothing. They are dropped before anything is decided.
4. A hit later than now means that the clock was set back. It becomes one of now.
"""

from __future__ import annotations

from bisect import bisect_left
from itertools import accumulate
from typing import NamedTuple, NoReturn, Self, TypeAlias

from throttled_views.algorithms.windows import Counter

__all__ = ["Hit", "Log", "SlidingLog"]

Hit: TypeAlias = tuple[int, int]
"""When units were charged, in microseconds, and how many."""


class Log(NamedTuple):
    """
    The state of a key that is counted by `SlidingLog`.

    Attributes:
        used: Units charged by all hits together.
        hits: What was charged when, the oldest first.
    """

    used: int
    hits: tuple[Hit, ...]


_EMPTY = Log(0, ())


class SlidingLog(Counter[Log]):
    """
    All that was charged in the window that ends now, exactly.

    This exactness has a price: a key takes memory for each hit that counts, up to the
    capacity, and a request takes time in proportion. A cost above 1 is one hit, and so
    is all that is charged in one microsecond; a refusal is none. For capacities above
    some hundreds use `SlidingWindow`, which keeps two counts.
    """

    __slots__ = ()

    def settle(self, state: Log | None, now_us: int) -> Log:
        """Return the hits that count at *now_us*; later ones become hits of now."""
        if state is None or not state.hits:
            return _EMPTY
        oldest_us = now_us - self.period_us + 1
        if oldest_us <= state.hits[0][0] and state.hits[-1][0] <= now_us:
            return state
        log = _up_to(now_us, state)
        gone = _first(oldest_us, log.hits)
        return Log(log.used - _sum(log.hits[:gone]), log.hits[gone:])

    def spent(self, state: Log, _now_us: int, /) -> int:
        """Return what all hits have charged."""
        return state.used

    def wait_us(self, state: Log, now_us: int, most: int) -> int:
        """Return how long it takes until enough of the oldest hits have left."""
        short = state.used - most
        if short <= 0:
            return 0
        gone = accumulate(count for _, count in state.hits)
        last = next(index for index, units in enumerate(gone) if units >= short)
        return state.hits[last][0] + self.period_us - now_us

    def charged(self, state: Log, now_us: int, cost: int, /) -> Log:
        """Return the log with a hit of *cost* at *now_us*."""
        return _with_hit(state, now_us, cost)

    def refund(self, state: Log, now_us: int, cost: int, at_us: int) -> Log:
        """Take *cost* from the hit made at *at_us*, if that one is still there."""
        settled = self.settle(state, now_us)
        hits = settled.hits
        index, after = _first(at_us, hits), _first(at_us + 1, hits)
        back = min(cost, _sum(hits[index:after]))
        left = tuple(
            (at, count - back) for at, count in hits[index:after] if count > back
        )
        return Log(settled.used - back, hits[:index] + left + hits[after:])

    def rebase(self, state: Log, now_us: int, old: Self) -> Log:
        """Carry hits over that counted until now, and count by the new period."""
        return self.settle(old.settle(state, now_us), now_us)

    def whole_at(self, state: Log) -> int:
        """Return when the newest hit counts no more, 0 if there is none."""
        return state.hits[-1][0] + self.period_us if state.hits else 0

    def whole_below(self, now_us: int) -> int:  # noqa: ARG002 - the contract's
        """Return 0: no log is packed."""
        return 0

    def pack(self, state: Log) -> Log:
        """Return *state* as it is: a log is many numbers."""
        return state

    def unpack(self, packed: int) -> NoReturn:
        """Refuse: no number was ever a log."""
        msg = f"{packed} is no packed log: pack() returns a log as it is"
        raise TypeError(msg)


def _first(from_us: int, hits: tuple[Hit, ...]) -> int:
    """Return the index of the first hit that was made at *from_us* or later."""
    return bisect_left(hits, (from_us, 0))


def _sum(hits: tuple[Hit, ...]) -> int:
    return sum(count for _, count in hits)


def _up_to(now_us: int, log: Log) -> Log:
    """Return *log* with what was charged later than *now_us* charged then."""
    known = _first(now_us + 1, log.hits)
    if not (ahead := _sum(log.hits[known:])):
        return log
    return _with_hit(Log(log.used - ahead, log.hits[:known]), now_us, ahead)


def _with_hit(log: Log, at_us: int, count: int) -> Log:
    """Return *log* with *count* charged at *at_us*, which no hit is later than."""
    used, hits = log.used + count, log.hits
    if hits and hits[-1][0] == at_us:
        return Log(used, (*hits[:-1], (at_us, hits[-1][1] + count)))
    return Log(used, (*hits, (at_us, count)))
