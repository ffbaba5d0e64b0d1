"""Limits bound to a store: `Throttled`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import compress
from time import perf_counter
from typing import Self

from throttled_views._given import (
    DEFAULT_PREFIX,
    checked_key,
    checked_prefix,
    checked_store,
    limits_by_hand,
)
from throttled_views._rules import Rule
from throttled_views.errors import ConfigurationError, StoreUnavailableError
from throttled_views.hooks import Audience, CheckOutcome
from throttled_views.limits import Limit, Throttle, available, names_of, slots_of
from throttled_views.quotas import Algorithm
from throttled_views.results import (
    Charge,
    RateLimitResult,
    RateLimitState,
    checked_cost,
    decision_of,
    urgency,
)
from throttled_views.stores.base import Store
from throttled_views.stores.failover import Failover
from throttled_views.stores.memory import MemoryStore

__all__ = ["Throttled"]


class Throttled:
    """
    One or more limits, bound to the store that counts them.

    Each view has one for each of its handlers, in ``View.throttled``. Made by hand, or
    by `Limiter.throttled`, it limits what is no route: the messages of a socket, a job.
    Its keys hold the quota's text, so that two with equal quotas on one store share
    their counts; give the limits a ``bucket`` to tell them apart.

    Args:
        quota: What to limit to: all that a view's ``throttle`` takes but `EXEMPT`.
        using: How the quotas are counted, where a limit does not say so itself.
        store: Where the counts live; a `MemoryStore` of its own unless given.
        prefix: First part of all keys, which keeps applications on one store apart.

    Raises:
        InvalidQuotaError: A text is not a quota.
        ConfigurationError: There is no limit, or one that needs a request to be known.

    Attributes:
        limits: The limits, in order.
        rules: The same, as they are counted.
    """

    rules: tuple[Rule, ...]

    __slots__ = ("_audience", "_is_enabled", "_store", "limits", "rules")

    def __init__(
        self,
        quota: Throttle,
        *,
        using: Algorithm = Algorithm.TOKEN_BUCKET,
        store: Store | None = None,
        prefix: str = DEFAULT_PREFIX,
    ) -> None:
        self.limits = limits = limits_by_hand(quota)
        self._audience, self._is_enabled = Audience(), _always
        self._store: Store | None = (
            MemoryStore() if store is None else checked_store(store)
        )
        self.rules = tuple(
            Rule(
                limit,
                name=name,
                slot=slot,
                using=available(using),
                key_func=None,
                prefix=checked_prefix(prefix),
                method="by hand",
                route=str(limit.quota),
            )
            for limit, name, slot in zip(
                limits, names_of(limits), slots_of(limits), strict=True
            )
        )

    @classmethod
    def declared(cls, limits: Sequence[Limit]) -> Self:
        """Return one that no store counts: routers make rules of its limits."""
        self = cls.__new__(cls)
        self.limits = tuple(limits)
        self._audience, self._is_enabled = Audience(), _always
        self._store = None
        self.rules = ()
        return self

    def told_to(self, audience: Audience, is_enabled: Callable[[], bool]) -> Self:
        """Tell *audience* of checks, and check only if *is_enabled*; return this."""
        self._audience, self._is_enabled = audience, is_enabled
        return self

    def __repr__(self) -> str:
        """Return the limits."""
        return f"Throttled({', '.join(str(limit.quota) for limit in self.limits)})"

    async def limit(self, key: str, cost: int = 1) -> RateLimitResult:
        """
        Charge *key* under all limits, or under none if one of them refuses.

        A limit with a `Limit.max_delay` lets the caller wait here for its turn. While
        the limiter that made this is off, nothing is charged, and all is admitted.

        Args:
            key: Who is charged: any non-empty string.
            cost: Units to charge, times the cost of each limit; 0 or more.

        Returns:
            The result of the limit that refuses, else of the one that is nearest to
            exhaustion. Ask its `limited`.

        Raises:
            InvalidKeyError: *key* is empty, or not a string.
            ValueError: *cost* is negative, or not a whole number.
            StoreUnavailableError: The store could not be asked.
        """
        charges, began = self._charges(key, cost), perf_counter()
        if not self._is_enabled():
            return self._unlimited()
        try:
            results = self._named(await self._bound_store().acquire(charges))
        except StoreUnavailableError:
            for rule, charge in zip(self.rules, charges, strict=True):
                self._tell(rule, "unavailable", charge, began)
            raise
        otherwise: CheckOutcome = "admitted"
        if any(each.limited for each in results):
            otherwise = "spared"
        for rule, charge, each in zip(self.rules, charges, results, strict=True):
            outcome = "refused" if each.limited else otherwise
            self._tell(rule, outcome, charge, began, each)
        delay = max(each.delay for each in results)
        if delay:
            await asyncio.sleep(delay)
        receipts = tuple(receipt for each in results for receipt in each.receipts)
        return replace(_governing(results), delay=delay, receipts=receipts)

    def _tell(
        self,
        rule: Rule,
        outcome: CheckOutcome,
        charge: Charge,
        began: float,
        result: RateLimitResult | None = None,
    ) -> None:
        """Tell hooks, if there are any, what came out for *rule*."""
        self._audience.checked(rule.label, "manual", outcome, charge, began, result)

    async def peek(self, key: str, cost: int = 1) -> RateLimitResult:
        """Tell what `limit` would answer, and charge nothing; takes what it takes."""
        charges = self._charges(key, cost)
        if not self._is_enabled():
            return self._unlimited()
        results = await self._bound_store().peek(charges)
        return _governing(self._named(results))

    async def reset(self, key: str) -> None:
        """Forget *key* under all limits: it is as good as new."""
        await self._bound_store().reset(
            [charge.key for charge in self._charges(key, 1)]
        )

    async def refund(self, result: RateLimitResult) -> None:
        """
        Give back what `limit` charged for *result*; nothing, if it refused.

        Never more than the capacity comes back. A result is good for one refund.
        """
        store, began = self._bound_store(), perf_counter()
        receipts = result.receipts
        are_back: Sequence[bool] = [True] * len(receipts)
        if isinstance(store, Failover):
            are_back = await store.give_back(receipts)
        else:
            await store.refund(receipts)
        for receipt in compress(receipts, are_back):
            for rule in self.rules:
                if rule.has(receipt.charge.key):
                    self._tell(rule, "refunded", receipt.charge, began)

    def _unlimited(self) -> RateLimitResult:
        """Return what is told where nothing is limited: that of a fresh key."""
        results: list[RateLimitResult] = []
        for rule in self.rules:
            burst = rule.quota.burst
            state = RateLimitState(burst, burst, reset_after=0.0, retry_after=0.0)
            results.append(RateLimitResult(limited=False, state=state, name=rule.name))
        return _governing(results)

    def _bound_store(self) -> Store:
        if self._store is None:
            msg = (
                f"{self!r} is a declaration and has no store yet. Include its view in "
                "a router, or write limiter.throttled(…) to check by hand"
            )
            raise ConfigurationError(msg)
        return self._store

    def _charges(self, key: str, cost: int) -> list[Charge]:
        key = checked_key(key)
        checked_cost(cost)
        charges = [rule.charge_to(rule.key(key)) for rule in self.rules]
        return [replace(each, cost=cost * each.cost) for each in charges]

    def _named(self, results: Sequence[RateLimitResult]) -> list[RateLimitResult]:
        return [
            replace(result, name=rule.name)
            for result, rule in zip(results, self.rules, strict=True)
        ]


def _always() -> bool:
    return True


def _governing(results: Sequence[RateLimitResult]) -> RateLimitResult:
    return min(results, key=lambda result: urgency(decision_of(result)))
