"""The contract of every store."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import ClassVar, Protocol, TypeAlias, TypeVar, cast

from throttled_views.algorithms.base import AnyKernel
from throttled_views.errors import ConfigurationError, shown
from throttled_views.results import Charge, RateLimitResult, Receipt
from throttled_views.stores.deciding import Share, Taken, TakenTogether

__all__ = ["Clock", "QuickStore", "Store", "checked_clock", "quick", "quick_store"]

Clock: TypeAlias = Callable[[], int]
"""A clock: called without arguments it returns the time in microseconds."""


_SubjectT = TypeVar("_SubjectT")


def checked_clock(clock: Clock | None) -> Clock | None:
    """Return *clock* if it can be one."""
    if clock is not None and not callable(cast("object", clock)):
        msg = f"clock={shown(clock)} is no clock. Write clock=ManualClock()"
        raise ConfigurationError(msg)
    return clock


class Store(Protocol):
    """
    Where the state of keys lives.

    A store owns the clock as well as the state: processes that share a store share a
    clock, and no two of them can disagree about what time it is.

    Rules for every store: no floats decide anything. A refused call charges none of
    its keys. A key's state is kept until the key equals a fresh one, and no longer. If
    its quota changes it is kept too, clamped to the new capacity.
    """

    async def acquire(self, charges: Sequence[Charge], /) -> Sequence[RateLimitResult]:
        """
        Charge all of *charges*, or none if one of them is refused.

        Atomic: of any number of simultaneous callers, no more are admitted than the
        quotas permit. A key that is named twice is charged twice.

        Returns:
            One result for each charge, in order. If the call is refused, the charges
            that would have been admitted report their state as it stands.

        Raises:
            StoreUnavailableError: The store could not be asked.
        """
        ...

    async def peek(self, charges: Sequence[Charge], /) -> Sequence[RateLimitResult]:
        """
        Tell what `acquire` would answer to each of *charges*, and change nothing.

        `remaining` is what the key could still make now, before the charge.
        """
        ...

    async def refund(self, receipts: Sequence[Receipt], /) -> None:
        """
        Give charges back: never above full, and nothing to a key without state.

        A receipt is good for one refund; the store does not keep count.
        """
        ...

    async def reset(self, keys: Sequence[str], /) -> None:
        """Forget *keys*: each is as good as new."""
        ...

    async def aclose(self) -> None:
        """Give back what the store opened itself. May be called twice."""
        ...


class QuickStore(Protocol):
    """
    A store of ours, which decides on one client without building anything else.

    Attributes:
        may_be_down: Whether it can fail to answer.
    """

    may_be_down: ClassVar[bool]

    def taker(
        self,
        head: str,
        principal_of: Callable[[_SubjectT], str],
        tail: str,
        kernel: AnyKernel,
        cost: int,
    ) -> Callable[[_SubjectT], Taken | Awaitable[Taken]]:
        """Return what charges one key of a subject; see `MemoryStore.taker`."""
        ...

    def taker_together(
        self, principal_of: Callable[[_SubjectT], str], shares: Sequence[Share]
    ) -> Callable[[_SubjectT], TakenTogether | Awaitable[TakenTogether]]:
        """Return what charges several; see `MemoryStore.taker_together`."""
        ...


_quick: set[type] = set()
_QuickT = TypeVar("_QuickT", bound=QuickStore)


def quick(store: type[_QuickT]) -> type[_QuickT]:
    """Let a class of stores be asked by its `QuickStore.taker`; not its subclasses."""
    _quick.add(store)
    return store


def quick_store(store: Store) -> QuickStore | None:
    """Return *store* if it can be asked that way; a subclass may count otherwise."""
    return cast("QuickStore", store) if type(store) in _quick else None
