"""
Windows: the kernels that count what was spent in one.

Rules of this file:

1. Integers only, and none is ever rounded in a way that admits a request too many.
2. Windows are *aligned*: one starts at each multiple of the period, on the clock of the
   store, so that all who share it agree on them. Time is cut by `%`, never measured
   from a first request.
3. Whatever is asked comes down to two questions, which each kind answers in closed
   form: how much is spent by now, and how long until no more than so much is.
4. A window that starts later than now's means that the clock was set back. It becomes
   now's, with its counts: nothing is given away, and no key waits for the old time.

Counts stay below 2**40 and times below 2**53. Products do not; Python has no bound.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Generic, NamedTuple, Self, TypeVar

from throttled_views.quotas import Quota
from throttled_views.results import Decision

__all__ = ["Counter", "FixedWindow", "SlidingWindow", "Window", "Windows"]

_COUNT_BITS = 40  # the largest quota there is, 10**12, fits
_COUNT_MASK = (1 << _COUNT_BITS) - 1

_StateT = TypeVar("_StateT")


class Counter(ABC, Generic[_StateT]):
    """
    What all kernels that count have in common; see `Kernel`.

    Attributes:
        capacity: Units that one window has room for; 0 refuses everything.
        period_us: Length of a window in microseconds.
    """

    __slots__ = ("capacity", "period_us")

    def __init__(self, capacity: int, period_us: int) -> None:
        self.capacity = capacity
        self.period_us = period_us

    def __eq__(self, other: object) -> bool:
        """Tell whether *other* counts in the same way, by the same numbers."""
        if not isinstance(other, type(self)):
            return NotImplemented
        return self._numbers() == other._numbers()

    def __hash__(self) -> int:
        """Return a hash of the numbers."""
        return hash(self._numbers())

    def _numbers(self) -> tuple[int, int]:
        return self.capacity, self.period_us

    @classmethod
    def of(cls, quota: Quota) -> Self:
        """Return the counter that *quota* describes. Its burst says nothing here."""
        return cls(quota.limit, quota.period_us)

    @abstractmethod
    def settle(self, state: _StateT | None, now_us: int) -> _StateT:
        """Bring a stored *state* to *now_us*; None is a key that spent nothing."""

    @abstractmethod
    def spent(self, state: _StateT, now_us: int, /) -> int:
        """Return the units that a settled *state* has spent by now, rounded up."""

    @abstractmethod
    def wait_us(self, state: _StateT, now_us: int, most: int) -> int:
        """
        Return how long it takes until a settled *state* has spent *most* or less.

        Args:
            state: The settled state.
            now_us: Now in microseconds.
            most: Units, 0 or more.

        Returns:
            Microseconds, rounded up, if nothing more is charged; 0 if it is so now.
        """

    @abstractmethod
    def charged(self, state: _StateT, now_us: int, cost: int, /) -> _StateT:
        """Return a settled *state* to which *cost*, 1 or more, is charged now."""

    def room(self, state: _StateT, now_us: int) -> int:
        """Return the units that can still be charged; 0 if too many are spent."""
        return max(0, self.capacity - self.spent(state, now_us))

    def take(
        self, state: _StateT | None, now_us: int, cost: int
    ) -> tuple[bool, _StateT]:
        """Charge *cost* if there is room for it; see `Kernel.take`."""
        settled = self.settle(state, now_us)
        if cost > self.room(settled, now_us) or not self.capacity:
            return True, settled
        return False, self.charged(settled, now_us, cost) if cost else settled

    def tell(
        self,
        limited: bool,  # noqa: FBT001 - the first of the two that `take` returns
        state: _StateT,
        now_us: int,
        cost: int,
    ) -> Decision:
        """Tell what there is room for, and when there is more; see `Kernel.tell`."""
        if not self.capacity:  # a quota of zero admits nothing, ever
            return Decision(limited, 0, 0, 0, None, now_us)
        retry_us: int | None = 0
        if limited:
            most = self.capacity - cost
            retry_us = None if most < 0 else self.wait_us(state, now_us, most)
        return Decision(
            limited,
            self.capacity,
            self.room(state, now_us),
            self.wait_us(state, now_us, 0),
            retry_us,
            now_us,
        )

    def fullness(self, state: _StateT, now_us: int) -> tuple[bool, int]:
        """Tell whether a unit has room, and how much room there is, of 2**32."""
        room = self.room(self.settle(state, now_us), now_us)
        return room > 0, (room << 32) // max(1, self.capacity)

    def start_us(self, at_us: int) -> int:
        """Return when the aligned window that *at_us* lies in starts."""
        return at_us - at_us % self.period_us


class Window(NamedTuple):
    """
    The state of a key that is counted by `FixedWindow`.

    Attributes:
        start_us: When the window started, in microseconds.
        used: Units charged in it.
    """

    start_us: int
    used: int


class FixedWindow(Counter[Window]):
    """
    A count that starts anew with each aligned window.

    Around an edge twice the capacity can pass in little time: one at the end of a
    window and one at the start of the next. `SlidingWindow` does not allow that.
    """

    __slots__ = ()

    def settle(self, state: Window | None, now_us: int) -> Window:
        """Return now's window: a later one becomes it, an earlier one is over."""
        start_us = self.start_us(now_us)
        if state is None or state.start_us < start_us:
            return Window(start_us, 0)
        return state if state.start_us == start_us else Window(start_us, state.used)

    def spent(self, state: Window, _now_us: int, /) -> int:
        """Return what was charged in the window."""
        return state.used

    def wait_us(self, state: Window, now_us: int, most: int) -> int:
        """Return how long the window lasts, if more than *most* is charged in it."""
        if state.used <= most:
            return 0
        return state.start_us + self.period_us - now_us

    def charged(self, state: Window, _now_us: int, cost: int, /) -> Window:
        """Return the window with *cost* charged in it."""
        return Window(state.start_us, state.used + cost)

    def refund(self, state: Window, now_us: int, cost: int, at_us: int) -> Window:
        """Give *cost* back, if it was charged in the window that still counts."""
        settled = self.settle(state, now_us)
        if self.start_us(at_us) != settled.start_us:
            return settled
        return Window(settled.start_us, max(0, settled.used - cost))

    def rebase(self, state: Window, now_us: int, old: Self) -> Window:
        """Carry a count over: it is now's window, of whatever length, that has it."""
        return Window(self.start_us(now_us), old.settle(state, now_us).used)

    def whole_at(self, state: Window) -> int:
        """Return when the window ends, 0 if nothing was charged in it."""
        return state.start_us + self.period_us if state.used else 0

    def whole_below(self, now_us: int) -> int:
        """Return what is above all that was packed of windows that are over by now."""
        return (now_us - self.period_us + 1) << _COUNT_BITS

    def pack(self, state: Window) -> int:
        """Return the start and, in the lowest 40 bits, the count."""
        return state.start_us << _COUNT_BITS | state.used

    def unpack(self, packed: int) -> Window:
        """Return what was packed."""
        return Window(packed >> _COUNT_BITS, packed & _COUNT_MASK)


class Windows(NamedTuple):
    """
    The state of a key that is counted by `SlidingWindow`.

    Attributes:
        start_us: When the current window started, in microseconds.
        used: Units charged in it.
        before: Units charged in the window before it.
    """

    start_us: int
    used: int
    before: int


class SlidingWindow(Counter[Windows]):
    """
    Two counts that stand for a window which ends now.

    That window covers all of the current aligned one so far, and the end of the one
    before it. What was charged in that one is taken to be spread evenly over it, and
    weighs as much as is still covered: ``before * (period - elapsed) / period``. It is
    held against the capacity as this fraction, not as a rounded one.

    Source:
        "How we built rate limiting capable of scaling to millions of domains",
        https://blog.cloudflare.com/counting-things-a-lot-of-different-things/
    """

    __slots__ = ()

    def settle(self, state: Windows | None, now_us: int) -> Windows:
        """Return now's window and the one before: later ones become them."""
        start_us = self.start_us(now_us)
        if state is None or state.start_us < start_us - self.period_us:
            return Windows(start_us, 0, 0)
        if state.start_us < start_us:
            return Windows(start_us, 0, state.used)
        if state.start_us == start_us:
            return state
        return Windows(start_us, state.used, state.before)

    def spent(self, state: Windows, now_us: int, /) -> int:
        """
        Return what was charged in the window, and what the one before weighs.

        Units are whole. So there is room for *cost* beside the exact sum if and only if
        there is beside the one that is rounded up.
        """
        covered_us = state.start_us + self.period_us - now_us
        return state.used - (-state.before * covered_us // self.period_us)

    def wait_us(self, state: Windows, now_us: int, most: int) -> int:
        """
        Return how long it takes until what counts has come down to *most*.

        It comes down as the part of the earlier window that is still covered shrinks.
        If that does not do, because `used` alone is more than *most*, then the part
        that shrinks is the current window's, from the start of the next one on.
        """
        if self.spent(state, now_us) <= most:
            return 0
        end_us = state.start_us + self.period_us
        if state.used <= most:
            covered_us = (most - state.used) * self.period_us // state.before
            return end_us - covered_us - now_us
        covered_us = most * self.period_us // state.used
        return end_us + self.period_us - covered_us - now_us

    def charged(self, state: Windows, _now_us: int, cost: int, /) -> Windows:
        """Return the windows with *cost* charged in the current one."""
        return Windows(state.start_us, state.used + cost, state.before)

    def refund(self, state: Windows, now_us: int, cost: int, at_us: int) -> Windows:
        """Give *cost* back to the window it was charged in, if that one counts."""
        start_us, used, before = self.settle(state, now_us)
        charged_us = self.start_us(at_us)
        if charged_us == start_us:
            used = max(0, used - cost)
        elif charged_us == start_us - self.period_us:
            before = max(0, before - cost)
        return Windows(start_us, used, before)

    def rebase(self, state: Windows, now_us: int, old: Self) -> Windows:
        """
        Carry counts over; with another period their sum is now's window's.

        The sum is cut off where it would not fit, above the largest quota there is.
        """
        settled = old.settle(state, now_us)
        if old.period_us == self.period_us:
            return settled
        spent = min(old.spent(settled, now_us), _COUNT_MASK)
        return Windows(self.start_us(now_us), spent, 0)

    def whole_at(self, state: Windows) -> int:
        """Return when nothing charged in either window counts, 0 if nothing was."""
        if state.used:
            return state.start_us + 2 * self.period_us
        return state.start_us + self.period_us if state.before else 0

    def whole_below(self, now_us: int) -> int:
        """Return what is above all that was packed of windows that count no more."""
        return (now_us - 2 * self.period_us + 1) << 2 * _COUNT_BITS

    def pack(self, state: Windows) -> int:
        """Return the start and, in 40 bits each, the two counts."""
        counts = state.used << _COUNT_BITS | state.before
        return state.start_us << 2 * _COUNT_BITS | counts

    def unpack(self, packed: int) -> Windows:
        """Return what was packed."""
        start_us, used = packed >> 2 * _COUNT_BITS, packed >> _COUNT_BITS
        return Windows(start_us, used & _COUNT_MASK, packed & _COUNT_MASK)
