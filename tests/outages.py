"""A store that fails when it is told to, and a failover with a clock of its own."""

from collections.abc import Awaitable, Callable, Sequence
from typing import ClassVar, TypeVar

from tests.asgi import Relay
from tests.clock import ManualClock
from throttled_views import (
    Charge,
    Limiter,
    MemoryStore,
    RateLimitResult,
    Receipt,
    StoreUnavailableError,
    Throttle,
)
from throttled_views.algorithms.base import AnyKernel
from throttled_views.results import OnStoreError
from throttled_views.stores.base import quick
from throttled_views.stores.deciding import Share, Taken, TakenTogether
from throttled_views.stores.failover import Failover, StoreListener

T = TypeVar("T")


class Outage(Relay):
    """
    A store that is not ours, which is down while it is told to be.

    Attributes:
        is_down: Whether it fails.
        asked: The names of the methods that were called, in order.
    """

    def __init__(self, store: MemoryStore | None = None, *, is_down: bool) -> None:
        super().__init__(store)
        self.is_down = is_down
        self.asked: list[str] = []

    def ask(self, method: str) -> None:
        """Note that *method* is called, and fail if the store is down."""
        self.asked.append(method)
        if self.is_down:
            msg = "no route to host"
            raise StoreUnavailableError(msg)

    async def acquire(self, charges: Sequence[Charge], /) -> Sequence[RateLimitResult]:
        """Charge all or none."""
        self.ask("acquire")
        return await super().acquire(charges)

    async def peek(self, charges: Sequence[Charge], /) -> Sequence[RateLimitResult]:
        """Look."""
        self.ask("peek")
        return await super().peek(charges)

    async def refund(self, receipts: Sequence[Receipt], /) -> None:
        """Give back."""
        self.ask("refund")
        await super().refund(receipts)

    async def reset(self, keys: Sequence[str], /) -> None:
        """Forget."""
        self.ask("reset")
        await super().reset(keys)

    async def aclose(self) -> None:
        """Note that it is closed."""
        self.asked.append("aclose")


@quick
class QuickOutage(Outage):
    """The same, but it can decide without building anything, after a wait."""

    may_be_down: ClassVar[bool] = True

    def taker(
        self,
        head: str,
        principal_of: Callable[[T], str],
        tail: str,
        kernel: AnyKernel,
        cost: int,
    ) -> Callable[[T], Awaitable[Taken]]:
        """Return what charges one key."""
        take_one = self._store.taker(head, principal_of, tail, kernel, cost)

        async def take_later(subject: T) -> Taken:
            self.ask("take")
            return take_one(subject)

        return take_later

    def taker_together(
        self, principal_of: Callable[[T], str], shares: Sequence[Share]
    ) -> Callable[[T], Awaitable[TakenTogether]]:
        """Return what charges several keys."""
        take_all = self._store.taker_together(principal_of, shares)

        async def take_later(subject: T) -> TakenTogether:
            self.ask("take")
            return take_all(subject)

        return take_later


def ignored(_error: StoreUnavailableError | None) -> None:
    """Be told, and do nothing."""


def failover_of(
    store: Outage,
    clock: ManualClock,
    policy: OnStoreError = "local",
    on_change: StoreListener = ignored,
) -> Failover:
    """Return a failover that goes by *clock*."""
    return Failover(store, policy, on_change, clock=lambda: clock() / 1_000_000)


def limiter_of(
    store: Outage,
    clock: ManualClock,
    default: Throttle = "2/h",
    on_store_error: OnStoreError = "local",
) -> Limiter:
    """Return a limiter whose failover goes by *clock*."""
    limiter = Limiter(default, store=store, on_store_error=on_store_error)
    object.__setattr__(limiter, "failover", failover_of(store, clock, on_store_error))
    return limiter
