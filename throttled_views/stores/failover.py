"""
What decides while a store cannot: the failure policy, and when to ask the store again.

How it keeps its promises:

1. Either the store decides a call or the policy does, never both and never neither: a
   call that the store did not answer is not asked again.
2. From its first failure on the store is *down*. One call a second is still sent, as a
   probe; the others do not wait for it. The first that it answers puts it up again.
3. Each change is logged once, and told to whoever listens.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from itertools import compress
from typing import TypeAlias

from throttled_views.algorithms.kernels import counter_of
from throttled_views.errors import StoreUnavailableError
from throttled_views.results import (
    Charge,
    OnStoreError,
    RateLimitResult,
    Receipt,
    result_of,
)
from throttled_views.stores.base import Store
from throttled_views.stores.memory import MemoryStore

__all__ = ["Failover", "StoreListener"]

_logger = logging.getLogger("throttled_views")

_PROBE_EVERY_S = 1.0
_MOST_LOCAL_KEYS = 100_000

StoreListener: TypeAlias = Callable[[StoreUnavailableError | None], None]
"""Is told when a store goes down, and why; or, with None, that it is up again."""


_Ask: TypeAlias = Callable[[Sequence[Charge]], Awaitable[Sequence[RateLimitResult]]]


class _LocalReceipt(Receipt):
    """A receipt of what this process charged while the store was down."""

    __slots__ = ()


class Failover:
    """
    A store, and what decides while it cannot.

    Args:
        store: The store.
        policy: What to do with a charge that does not say so itself: ``"local"``
            counts in this process, by the same quotas; ``"deny"`` raises; ``"allow"``
            admits, and tells of a key that nothing was charged to.
        on_change: Is told when *store* goes down or up.
        clock: Seconds, for tests; the monotonic clock unless given.

    Attributes:
        is_up: Whether the store answered last time.
    """

    def __init__(
        self,
        store: Store,
        policy: OnStoreError,
        on_change: StoreListener,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._policy = policy
        self._on_change = on_change
        self._clock = clock
        self._local = MemoryStore(max_keys=_MOST_LOCAL_KEYS)
        self._error: StoreUnavailableError | None = None
        self._probe_at = 0.0
        self.is_up = True

    def failed(self, error: StoreUnavailableError) -> None:
        """Note that the store did not answer."""
        self._probe_at = self._clock() + _PROBE_EVERY_S
        if self.is_up:
            self.is_up, self._error = False, error
            _logger.warning(
                "The store is unavailable, on_store_error=%r decides: %s",
                self._policy,
                error,
            )
            self._on_change(error)

    def succeeded(self) -> None:
        """Note that the store answered."""
        if not self.is_up:
            self.is_up, self._error = True, None
            _logger.warning("The store is available again, and decides")
            self._on_change(None)

    async def acquire(self, charges: Sequence[Charge], /) -> Sequence[RateLimitResult]:
        """
        Charge all of *charges*, or none; see `Store.acquire`.

        Raises:
            StoreUnavailableError: The store is down, and a charge is to be denied then.
        """
        return await self._decided(charges, self._store.acquire, self._local.acquire)

    async def peek(self, charges: Sequence[Charge], /) -> Sequence[RateLimitResult]:
        """Tell what `acquire` would answer, and change nothing; see `Store.peek`."""
        return await self._decided(charges, self._store.peek, self._local.peek)

    async def refund(self, receipts: Sequence[Receipt], /) -> None:
        """Give charges back to what was charged; the store, if it is up."""
        await self.give_back(receipts)

    async def give_back(self, receipts: Sequence[Receipt], /) -> Sequence[bool]:
        """Do what `refund` does, and tell which of *receipts* came back."""
        is_local = [isinstance(each, _LocalReceipt) for each in receipts]
        await self._local.refund(list(compress(receipts, is_local)))
        others = list(compress(receipts, [not each for each in is_local]))
        is_back = False
        if others and self._is_asked([each.charge for each in others]):
            try:
                await self._store.refund(others)
            except StoreUnavailableError as error:
                self.failed(error)
            else:
                self.succeeded()
                is_back = True
        return [each or is_back for each in is_local]

    async def reset(self, keys: Sequence[str], /) -> None:
        """
        Forget *keys*, here and in the store.

        Raises:
            StoreUnavailableError: The store could not be asked.
        """
        await self._local.reset(keys)
        await self._store.reset(keys)

    async def aclose(self) -> None:
        """Close the store; see `Store.aclose`."""
        await self._store.aclose()

    def _is_asked(self, charges: Sequence[Charge]) -> bool:
        """
        Tell whether to ask the store: if it is up, or it is time for a probe.

        A quota of zero is no probe: a store may know the answer by itself.
        """
        if self.is_up:
            return True
        now = self._clock()
        if now < self._probe_at or not any(each.quota.limit for each in charges):
            return False
        self._probe_at = now + _PROBE_EVERY_S
        return True

    async def _decided(
        self, charges: Sequence[Charge], ask: _Ask, ask_local: _Ask
    ) -> Sequence[RateLimitResult]:
        """Return what the store answers; what the policy does, if it does not."""
        if self._is_asked(charges):
            try:
                results = await ask(charges)
            except StoreUnavailableError as error:
                self.failed(error)
            else:
                self.succeeded()
                return results
        return await self._by_policy(charges, ask_local)

    async def _by_policy(
        self, charges: Sequence[Charge], ask_local: _Ask
    ) -> Sequence[RateLimitResult]:
        policies = [each.on_store_error or self._policy for each in charges]
        if "deny" in policies:
            msg = "The store is unavailable, and a limit is to deny then"
            raise StoreUnavailableError(msg) from self._error
        is_local = [each == "local" for each in policies]
        told = {
            index: _untouched(charge)
            for index, charge in enumerate(charges)
            if not is_local[index]
        }
        if any(result.limited for result in told.values()):
            ask_local = self._local.peek  # all or nothing
        local = iter(await ask_local(list(compress(charges, is_local))))
        return [
            _marked(next(local)) if here else told[index]
            for index, here in enumerate(is_local)
        ]


def _marked(result: RateLimitResult) -> RateLimitResult:
    receipts = tuple(_LocalReceipt(each.charge, each.at_us) for each in result.receipts)
    return replace(result, receipts=receipts)


def _untouched(charge: Charge) -> RateLimitResult:
    """Return what is told of a charge that nobody counts; what can never be, is not."""
    kernel = counter_of(charge)
    limited, _ = kernel.take(None, 0, charge.cost)
    return result_of(kernel.tell(limited, kernel.settle(None, 0), 0, charge.cost))
