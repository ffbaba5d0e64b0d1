"""
The request path: what each request to one handler is charged, compiled beforehand.

A plan is made when a route is registered. It belongs to one limiter; of a request it
knows no more than the ASGI scope, and it records what it decided in the context there.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial

from starlette.types import Scope

from throttled_views.algorithms.base import AnyKernel
from throttled_views.errors import StoreUnavailableError
from throttled_views.headers import (
    Answer,
    Outcome,
)
from throttled_views.keys import scope_reader_of
from throttled_views.outcome import (
    Machinery,
    Quick,
    RateLimitUnavailableError,
    outcome_of,
)
from throttled_views.results import Charge, Receipt, decision_of
from throttled_views.stores.base import Store, quick_store
from throttled_views.stores.deciding import Taken, told
from throttled_views.throttled import Rule, Throttled

__all__ = ["Plan", "decide_all"]


class Plan:
    """
    What each request to one handler is charged by one limiter.

    Attributes:
        quick: Decides as `decide` does, at less cost. None where that is not
            possible: it takes one limit, whose numbers are known beforehand, a store
            of ours, and a key that the scope gives.
    """

    __slots__ = ("_machinery", "_throttleds", "quick")

    def __init__(self, machinery: Machinery, throttleds: Sequence[Throttled]) -> None:
        self._machinery = machinery
        self._throttleds = throttleds
        self.quick = self._quick()

    @property
    def store(self) -> Store:
        """Where its counts live."""
        return self._machinery.failover

    async def decide(self, scope: Scope) -> bool:
        """
        Charge the request, once; tell whether it is refused.

        All limits are one decision, all or nothing. What was decided for this request
        before, by whatever way, is not decided again.
        """
        if not self._machinery.enabled:
            return False
        outcome, store = outcome_of(scope), self._machinery.store
        undecided = [each for each in self._throttleds if each not in outcome.decided]
        charged: list[tuple[Rule, Charge]] = []
        for throttled in undecided:
            for rule in throttled.rules:
                charge = await rule.charge(scope)
                if charge is not None and (store, charge.key) not in outcome.decided:
                    charged.append((rule, charge))
        outcome.decided += undecided
        if not charged:
            return False
        outcome.decided += [(store, charge.key) for _, charge in charged]
        try:
            results = await self._machinery.failover.acquire(
                [charge for _, charge in charged]
            )
        except StoreUnavailableError as error:
            raise RateLimitUnavailableError from error
        for result, (rule, _) in zip(results, charged, strict=True):
            named = partial(replace, result, name=rule.name)
            answer = Answer(decision_of(result), self._machinery.renderer, named)
            outcome.answers.append(answer)
        return any(result.limited for result in results)

    def _quick(self) -> Quick | None:
        rules = [rule for throttled in self._throttleds for rule in throttled.rules]
        store = quick_store(self._machinery.store)
        if len(rules) != 1 or store is None:
            return None
        rule = rules[0]
        kernel, cost = rule.kernel, rule.limit.cost
        principal_of = scope_reader_of(rule.key_func)
        if kernel is None or callable(cost) or principal_of is None:
            return None
        if not kernel.capacity:
            return None
        take = store.taker(rule.head, principal_of, rule.tail, kernel, cost)
        return Quick(
            self._machinery,
            self._if_up(take) if store.may_be_down else take,
            partial(self._outcome, rule, kernel, cost),
            self._machinery.renderer.merger(kernel, cost),
        )

    def _if_up(
        self, take: Callable[[Scope], Taken | Awaitable[Taken]]
    ) -> Callable[[Scope], Taken | Awaitable[Taken] | None]:
        """Return *take* for a store that may be down: it gives None then."""
        failover = self._machinery.failover
        return lambda scope: take(scope) if failover.is_up else None

    def _outcome(
        self, rule: Rule, kernel: AnyKernel, cost: int, taken: Taken, scope_id: int
    ) -> Outcome:
        *_, key = taken
        decision = told(taken, kernel, cost)
        outcome = Outcome(scope_id)
        outcome.answers.append(
            Answer(
                decision, self._machinery.renderer, partial(rule.result, key, decision)
            )
        )
        outcome.decided += [self._throttleds[0], (self._machinery.store, key)]
        return outcome


async def decide_all(
    plans: Sequence[Plan], scope: Scope, charged: list[tuple[Store, Sequence[Receipt]]]
) -> bool:
    """
    Charge a request by *plans*, one limiter after the other.

    Returns:
        Whether it is refused. If so, all that is in *charged* came back: a refusal is
        free.

    Raises:
        RateLimitUnavailableError: A store is unavailable, and a limit denies then. That
            is free, too.

    Args:
        plans: What to charge by.
        scope: The request.
        charged: What was charged in this phase so far; more is added.
    """
    outcome = outcome_of(scope)
    for plan in plans:
        known = len(outcome.answers)
        try:
            limited = await plan.decide(scope)
        except RateLimitUnavailableError:
            await _give_back(charged)
            raise
        added = [answer.result.receipts for answer in outcome.answers[known:]]
        charged.extend((plan.store, receipts) for receipts in added)
        if limited:
            await _give_back(charged)
            return True
    return False


async def _give_back(charged: list[tuple[Store, Sequence[Receipt]]]) -> None:
    for store, receipts in charged:
        await store.refund(receipts)
    charged.clear()
