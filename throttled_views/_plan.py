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

from throttled_views.errors import StoreUnavailableError
from throttled_views.headers import Answer, Outcome, Told
from throttled_views.keys import scope_reader_of
from throttled_views.outcome import (
    Machinery,
    Quick,
    RateLimitUnavailableError,
    outcome_of,
)
from throttled_views.quotas import Quota
from throttled_views.results import Charge, Receipt, decision_of
from throttled_views.stores.base import Store, quick_store
from throttled_views.stores.deciding import Taken, told
from throttled_views.throttled import NO_ANSWERS, Answers, Rule

__all__ = ["Plan", "decide_all", "early_plans"]


class Plan:
    """
    What each request to one handler is charged by one limiter.

    Attributes:
        rules: The limits.
        quick: Decides as `decide` does, at less cost. None where that is not
            possible: it takes one limit, whose numbers are known beforehand, a store
            of ours, and a key that the scope gives.
    """

    __slots__ = ("_machinery", "quick", "rules")

    def __init__(self, machinery: Machinery, rules: Sequence[Rule]) -> None:
        self._machinery = machinery
        self.rules = rules
        self.quick = self._quick()

    @property
    def store(self) -> Store:
        """Where its counts live."""
        return self._machinery.failover

    def early(self) -> Plan:
        """Return a plan of what can be decided before anything is read."""
        early = [rule for rule in self.rules if not rule.is_late]
        return Plan(self._machinery, [rule for rule in early if not rule.is_for_all])

    async def decide(self, scope: Scope, answers: Answers) -> bool:
        """
        Charge the request, once; tell whether it is refused.

        All limits are one decision, all or nothing. What was decided for this request
        before, by whatever way, is not decided again.
        """
        if not self._machinery.enabled:
            return False
        outcome, store = outcome_of(scope), self._machinery.store
        undecided = [rule for rule in self.rules if rule not in outcome.decided]
        charged: list[tuple[Rule, Charge]] = []
        for rule in undecided:
            charge = await rule.charge(scope, answers)
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
            problem_details = self._machinery.renderer.problem_details
            raise RateLimitUnavailableError(problem_details=problem_details) from error
        for result, (rule, charge) in zip(results, charged, strict=True):
            named = partial(replace, result, name=rule.name)
            seen = Told(decision_of(result), rule.name, charge.quota)
            outcome.answers.append(Answer(seen, self._machinery.renderer, named))
        return any(result.limited for result in results)

    def _quick(self) -> Quick | None:
        store = quick_store(self._machinery.store)
        if len(self.rules) != 1 or store is None:
            return None
        [rule] = self.rules
        kernel, quota, cost = rule.kernel, rule.limit.quota, rule.limit.cost
        principal_of = scope_reader_of(rule.key_func)
        if not isinstance(quota, Quota) or callable(cost) or principal_of is None:
            return None
        if kernel is None or not kernel.capacity:
            return None

        def told_of(taken: Taken) -> Told:
            return Told(told(taken, kernel, cost), rule.name, quota)

        take = store.taker(rule.head, principal_of, rule.tail, kernel, cost)
        return Quick(
            self._machinery,
            self._if_up(take) if store.may_be_down else take,
            partial(self._outcome, rule, told_of),
            self._machinery.renderer.merger(kernel, cost, told_of),
        )

    def _if_up(
        self, take: Callable[[Scope], Taken | Awaitable[Taken]]
    ) -> Callable[[Scope], Taken | Awaitable[Taken] | None]:
        """Return *take* for a store that may be down: it gives None then."""
        failover = self._machinery.failover
        return lambda scope: take(scope) if failover.is_up else None

    def _outcome(
        self, rule: Rule, told_of: Callable[[Taken], Told], taken: Taken, scope_id: int
    ) -> Outcome:
        *_, key = taken
        seen = told_of(taken)
        result = partial(rule.result, key, seen.decision)
        outcome = Outcome(scope_id)
        outcome.answers.append(Answer(seen, self._machinery.renderer, result))
        outcome.decided += [rule, (self._machinery.store, key)]
        return outcome


def early_plans(plans: Sequence[Plan]) -> Sequence[Plan]:
    """
    Return *plans* without what is decided right before the handler.

    That is what is late; and if anything is, then also what counts all clients
    together, so that nobody spends it who does not get as far as to the handler.
    """
    if not any(rule.is_late for plan in plans for rule in plan.rules):
        return plans
    early = [plan.early() for plan in plans]
    return [plan for plan in early if plan.rules]


async def decide_all(
    plans: Sequence[Plan],
    scope: Scope,
    charged: list[tuple[Store, Sequence[Receipt]]],
    answers: Answers = NO_ANSWERS,
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
        answers: Those of the functions that FastAPI solved.
    """
    outcome = outcome_of(scope)
    for plan in plans:
        known = len(outcome.answers)
        try:
            limited = await plan.decide(scope, answers)
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
