"""What all algorithms have in common: the contract of a kernel."""

from __future__ import annotations

from typing import Any, Protocol, Self, TypeAlias, TypeVar

from throttled_views.quotas import Quota
from throttled_views.results import Decision

__all__ = ["AnyKernel", "Kernel"]

_StateT = TypeVar("_StateT")


class Kernel(Protocol[_StateT]):
    """
    One algorithm, held to one quota.

    Pure: time is an argument, in microseconds, and a state goes in and comes out. A
    state is a value; it is never changed. Whole numbers only, and none is ever rounded
    in a way that admits a request too many.

    All states that come out are *settled*: at the time they were made for they are
    where they can be. A state may be from a later time than now, if a clock was set
    back; settling pulls it back, so that a key is usable again within the time in
    which it becomes whole.
    """

    @classmethod
    def of(cls, quota: Quota) -> Self:
        """Return the kernel that holds a key to *quota*."""
        ...

    def __hash__(self) -> int:
        """Return a hash: a kernel is a value."""
        ...

    @property
    def capacity(self) -> int:
        """Requests that a fresh key could make at once."""
        ...

    def settle(self, state: _StateT | None, now_us: int) -> _StateT:
        """Bring a stored *state*, None if there is none, to where it is at *now_us*."""
        ...

    def take(
        self, state: _StateT | None, now_us: int, cost: int
    ) -> tuple[bool, _StateT]:
        """
        Charge *cost*, if there is room for it; 0 charges nothing and is admitted.

        Returns:
            Whether the request is refused, and the settled state after it. A refusal
            is free: but for being settled, the state is what it was.
        """
        ...

    def tell(
        self,
        limited: bool,  # noqa: FBT001 - the first of the two that `take` returns
        state: _StateT,
        now_us: int,
        cost: int,
    ) -> Decision:
        """
        Tell where a key stands with a settled *state*, to a request that costs *cost*.

        If it is refused, it would be admitted `Decision.retry_us` later, and no sooner.
        """
        ...

    def refund(self, state: _StateT, now_us: int, cost: int, at_us: int, /) -> _StateT:
        """
        Give back *cost*, which was charged at *at_us*; never more than is charged.

        What was charged to a time that no longer counts does not come back.
        """
        ...

    def rebase(self, state: _StateT, now_us: int, old: Self) -> _StateT:
        """
        Carry *state* over from a kernel of the same kind, made for another quota.

        What is spent stays spent, so that no change of quota gives anything; a key that
        was whole again is as good as new.
        """
        ...

    def whole_at(self, state: _StateT) -> int:
        """Return the microsecond from which on *state* is as good as none."""
        ...

    def whole_below(self, now_us: int) -> int:
        """Return the number below which what `pack` made is as good as none."""
        ...

    def fullness(self, state: _StateT, now_us: int) -> tuple[bool, int]:
        """
        Tell whether a request has room, and how much room there is, of 2**32.

        *state* need not be settled.
        """
        ...

    def pack(self, state: _StateT) -> int | _StateT:
        """Return *state* as one whole number, if it can be one, for `MemoryStore`."""
        ...

    def unpack(self, packed: int) -> _StateT:
        """Return what was packed."""
        ...


AnyKernel: TypeAlias = Kernel[Any]
"""
A kernel of whatever kind.

Whoever keeps states of all kinds gives each only to the kernel that it came from.
"""
