"""
The request path: what each request to one handler is charged, compiled beforehand.

A plan is made when a route is registered. It belongs to one limiter; of a request it
knows no more than the ASGI scope, and it records what it decided in the context there.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeVar, cast

from starlette.types import Scope

from throttled_views.algorithms.base import AnyKernel
from throttled_views.errors import StoreUnavailableError
from throttled_views.headers import Answer, Outcome, Told
from throttled_views.keys import encoded_principal, scope_reader_of
from throttled_views.outcome import (
    SCOPE_KEY,
    Builder,
    Machinery,
    Quick,
    RateLimitUnavailableError,
    outcome_of,
)
from throttled_views.quotas import Quota
from throttled_views.results import Charge, decision_of
from throttled_views.stores.base import QuickStore, Store, quick_store
from throttled_views.stores.deciding import Taken, told
from throttled_views.throttled import NO_ANSWERS, Answers, Rule

__all__ = ["Plan", "decide_all", "early_plans"]

_SubjectT = TypeVar("_SubjectT")


class Plan:
    """
    What each request to one handler is charged by one limiter.

    Attributes:
        rules: The limits.
        single: Decides as `decide` does, at less cost. None where that is not
            possible: it takes one limit, whose numbers are known beforehand, and a
            store of ours.
        quick: Does so without waiting for the key: it takes one that the scope gives.
    """

    __slots__ = ("_machinery", "quick", "rules", "single")

    def __init__(self, machinery: Machinery, rules: Sequence[Rule]) -> None:
        self._machinery = machinery
        self.rules = rules
        self.single = self._single()
        self.quick = None if self.single is None else self.single.quick()

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
        return await _acquired(self._machinery, charged, outcome)

    def _single(self) -> _Single | None:
        store = quick_store(self._machinery.store)
        if len(self.rules) != 1 or store is None:
            return None
        [rule] = self.rules
        if rule.kernel is None or not rule.kernel.capacity or callable(rule.limit.cost):
            return None
        return _Single(self._machinery, store, rule, rule.kernel, rule.limit.cost)


class _Single:
    """
    The one limit of a plan, with numbers that are known beforehand.

    A store of ours decides it, and nothing is built that nobody may ask for.
    """

    __slots__ = (
        "_cost",
        "_early",
        "_kernel",
        "_late",
        "_machinery",
        "_merged",
        "_rule",
        "_store",
        "_take",
    )

    def __init__(
        self,
        machinery: Machinery,
        store: QuickStore,
        rule: Rule,
        kernel: AnyKernel,
        cost: int,
    ) -> None:
        self._machinery = machinery
        self._store = store
        self._rule = rule
        self._kernel = kernel
        self._cost = cost
        self._take = self._taker(encoded_principal)
        self._merged = machinery.renderer.merger(kernel, cost, self._told)
        self._early = Builder(machinery, self._outcome, self._merged)
        self._late = Builder(machinery, self._late_outcome, self._merged)

    def quick(self) -> Quick | None:
        """Return what decides by the scope alone, None if the key is not in it."""
        principal_of = scope_reader_of(self._rule.key_func)
        if principal_of is None:
            return None
        take = self._taker(principal_of)
        return Quick(self._machinery, take, self._outcome, self._merged)

    async def decide(self, scope: Scope, answers: Answers, *, late: bool) -> bool:
        """
        Charge a request for which nothing was decided before, as `Plan.decide` does.

        Args:
            scope: The request.
            answers: Those of the functions that FastAPI solved.
            late: Whether this is right before the handler.
        """
        if not self._machinery.enabled:
            return False
        principal = await self._rule.principal(scope, answers)
        taken = None if principal is None else await self._taken(principal)
        if taken is not None:
            builder = self._late if late else self._early
            scope[SCOPE_KEY] = builder, taken, id(scope), scope.get("endpoint")
            return taken[0]
        outcome = outcome_of(scope)
        outcome.decided.append(self._rule)
        if principal is None:
            return False
        charge = self._rule.charge_to(self._rule.key(principal))
        is_refused = await _acquired(self._machinery, [(self._rule, charge)], outcome)
        if late:
            outcome.charged_late += self._charged(outcome)
        return is_refused

    async def _taken(self, principal: str) -> Taken | None:
        """Return what the store decides, None if it is down."""
        taking = self._take(principal)
        if taking is None or isinstance(taking, tuple):
            return taking
        try:
            return await taking
        except StoreUnavailableError as error:
            self._machinery.failover.failed(error)
            return None

    def _taker(
        self, principal_of: Callable[[_SubjectT], str]
    ) -> Callable[[_SubjectT], Taken | Awaitable[Taken] | None]:
        """Return what charges a subject; where the store is down, it gives None."""
        rule, failover = self._rule, self._machinery.failover
        take = self._store.taker(
            rule.head, principal_of, rule.tail, self._kernel, self._cost
        )
        if not self._store.may_be_down:
            return take
        return lambda subject: take(subject) if failover.is_up else None

    def _told(self, taken: Taken) -> Told:
        quota = cast("Quota", self._rule.limit.quota)  # since there is a kernel for it
        return Told(told(taken, self._kernel, self._cost), self._rule.name, quota)

    def _outcome(self, taken: Taken, scope_id: int) -> Outcome:
        *_, key = taken
        told_of_it = self._told(taken)
        result = partial(self._rule.result, key, told_of_it.decision)
        outcome = Outcome(scope_id)
        outcome.answers.append(Answer(told_of_it, self._machinery.renderer, result))
        outcome.decided += [self._rule, (self._machinery.store, key)]
        return outcome

    def _late_outcome(self, taken: Taken, scope_id: int) -> Outcome:
        outcome = self._outcome(taken, scope_id)
        outcome.charged_late += self._charged(outcome)
        return outcome

    def _charged(self, outcome: Outcome) -> list[tuple[Store, Answer]]:
        return [(self._machinery.failover, answer) for answer in outcome.answers]


async def _acquired(
    machinery: Machinery, charged: Sequence[tuple[Rule, Charge]], outcome: Outcome
) -> bool:
    """Charge all of *charged*, or none; tell whether the request is refused."""
    if not charged:
        return False
    outcome.decided += [(machinery.store, charge.key) for _, charge in charged]
    try:
        results = await machinery.failover.acquire([charge for _, charge in charged])
    except StoreUnavailableError as error:
        problem_details = machinery.renderer.problem_details
        raise RateLimitUnavailableError(problem_details=problem_details) from error
    for result, (rule, charge) in zip(results, charged, strict=True):
        named = partial(replace, result, name=rule.name)
        seen = Told(decision_of(result), rule.name, charge.quota)
        outcome.answers.append(Answer(seen, machinery.renderer, named))
    return any(result.limited for result in results)


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
    answers: Answers = NO_ANSWERS,
    *,
    late: bool = False,
) -> bool:
    """
    Charge a request by *plans*, one limiter after the other.

    Returns:
        Whether it is refused. If so, all that was charged in this phase came back: a
        refusal is free.

    Raises:
        RateLimitUnavailableError: A store is unavailable, and a limit denies then. That
            is free, too.

    Args:
        plans: What to charge by.
        scope: The request.
        answers: Those of the functions that FastAPI solved.
        late: Whether this is right before the handler.
    """
    if len(plans) == 1 and plans[0].single is not None and SCOPE_KEY not in scope:
        return await plans[0].single.decide(scope, answers, late=late)
    outcome = outcome_of(scope)
    charged: list[tuple[Store, Answer]] = outcome.charged_late if late else []
    for plan in plans:
        known = len(outcome.answers)
        try:
            limited = await plan.decide(scope, answers)
        except RateLimitUnavailableError:
            await _give_back(charged)
            raise
        charged.extend((plan.store, answer) for answer in outcome.answers[known:])
        if limited:
            await _give_back(charged)
            return True
    return False


async def _give_back(charged: list[tuple[Store, Answer]]) -> None:
    for store, answer in charged:
        await store.refund(answer.result.receipts)
    charged.clear()
