"""
The request path: what each request to one handler is charged, compiled beforehand.

A plan is made when a route is registered. It belongs to one limiter; of a request it
knows no more than the ASGI scope, and it records what it decided in the context there.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from typing import TypeVar, cast

from starlette.types import Scope

from throttled_views._kinds import scope_reader_of
from throttled_views._principals import encoded_principal
from throttled_views.algorithms.base import AnyKernel
from throttled_views.errors import StoreUnavailableError
from throttled_views.headers import Answer, Builder, Outcome, Phase, Told
from throttled_views.outcome import (
    Machinery,
    Quick,
    RateLimitUnavailableError,
    outcome_of,
)
from throttled_views.quotas import Quota
from throttled_views.results import Charge, Receipt, decision_of
from throttled_views.route_keys import ByTemplate
from throttled_views.stores.base import QuickStore, Store, quick_store
from throttled_views.stores.deciding import Taken, told
from throttled_views.throttled import NO_ANSWERS, Answers, Rule

__all__ = ["Plan", "decide_all", "early_plans", "plan_of"]

_SubjectT = TypeVar("_SubjectT")


class Plan:
    """
    What each request to one handler is charged by one limiter.

    Attributes:
        machinery: That of the limiter.
        rules: The limits.
        quick: Decides as `decide` does, at less cost. None where that is not
            possible: it takes one limit, whose numbers are known beforehand, a store
            of ours, and a key that the scope gives.
    """

    __slots__ = ("_single", "machinery", "quick", "rules")

    is_placed = False
    """Whether it counts for the template of a route, and not for its handler."""

    def __init__(self, machinery: Machinery, rules: Sequence[Rule]) -> None:
        self.machinery = machinery
        self.rules = rules
        self._single = self._one()
        self.quick = None if self._single is None else self._single.quick

    def early(self) -> Plan:
        """Return a plan of what can be decided before anything is read."""
        early = [rule for rule in self.rules if not rule.is_late]
        return plan_of(self.machinery, [each for each in early if not each.is_for_all])

    async def decide(self, scope: Scope, answers: Answers, outcome: Outcome) -> bool:
        """
        Charge the request, once; tell whether it is refused.

        All limits are one decision, all or nothing. What was decided for this request
        before, by whatever way, is not decided again.
        """
        if not self.machinery.enabled:
            return False
        if self._single is not None:
            return await self._single.decide(scope, answers, outcome)
        store = self.machinery.store
        undecided = [rule for rule in self.rules if rule not in outcome.decided]
        charged: list[tuple[Rule, Charge]] = []
        for rule in undecided:
            charge = await rule.charge(scope, answers)
            if charge is not None and (store, charge.key) not in outcome.decided:
                charged.append((rule, charge))
        outcome.decided.extend(undecided)
        return await _acquired(self.machinery, charged, outcome)

    def _one(self) -> _Single | None:
        store = quick_store(self.machinery.store)
        if len(self.rules) != 1 or store is None:
            return None
        [rule] = self.rules
        if rule.kernel is None or not rule.kernel.capacity or callable(rule.limit.cost):
            return None
        return _Single(self.machinery, store, rule, rule.kernel, rule.limit.cost)


class _PlacedPlan(Plan):
    """A plan that counts for the template of a route: it is another for each."""

    __slots__ = ("_at", "_route_key")

    is_placed = True

    def __init__(
        self, machinery: Machinery, rules: Sequence[Rule], route_key: ByTemplate
    ) -> None:
        super().__init__(machinery, rules)
        self.quick = None
        self._route_key = route_key
        self._at = lru_cache(maxsize=1024)(self._made_at)

    def _made_at(self, template: str) -> Plan:
        return Plan(self.machinery, [rule.at(template) for rule in self.rules])

    async def decide(self, scope: Scope, answers: Answers, outcome: Outcome) -> bool:
        """Charge the request, once; see `Plan.decide`."""
        if not self.machinery.enabled:
            return False
        plan = self._at(self._route_key.template_of(scope))
        return await plan.decide(scope, answers, outcome)


def plan_of(machinery: Machinery, rules: Sequence[Rule]) -> Plan:
    """Return the plan of a handler that is held to *rules*."""
    if isinstance(machinery.route_key, ByTemplate):
        return _PlacedPlan(machinery, rules, machinery.route_key)
    return Plan(machinery, rules)


class _Single:
    """
    The one limit of a plan, with numbers that are known beforehand.

    A store of ours decides it, and nothing is built that nobody may ask for.

    Attributes:
        quick: Decides by the scope alone; None if the key is not in it.
    """

    __slots__ = (
        "_builder",
        "_cost",
        "_kernel",
        "_machinery",
        "_rule",
        "_store",
        "_take",
        "quick",
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
        merged = machinery.renderer.merger(kernel, cost, self._told)
        self._builder = Builder(machinery.renderer, self._add_to, merged)
        self.quick = self._quicker()

    def _quicker(self) -> Quick | None:
        principal_of = scope_reader_of(self._rule.key_func)
        if principal_of is None:
            return None
        return Quick(self._machinery, self._taker(principal_of), self._builder)

    async def decide(self, scope: Scope, answers: Answers, outcome: Outcome) -> bool:
        """Charge the request, once; see `Plan.decide`."""
        rule, store = self._rule, self._machinery.store
        if self.quick is not None and outcome.is_empty:
            taken = self.quick.take(scope)
            if not isinstance(taken, tuple):
                taken = await self._taken(taken)
            if taken is not None:
                outcome.add(self._builder, taken)
                return taken[0]
        if rule in outcome.decided:
            return False
        principal = await rule.principal(scope, answers)
        if principal is None or (store, rule.key(principal)) in outcome.decided:
            outcome.decided.append(rule)
            return False
        taken = await self._taken(self._take(principal))
        if taken is not None:
            outcome.add(self._builder, taken)
            return taken[0]
        outcome.decided.append(rule)
        charge = rule.charge_to(rule.key(principal))
        return await _acquired(self._machinery, [(rule, charge)], outcome)

    async def _taken(self, taking: Taken | Awaitable[Taken] | None) -> Taken | None:
        """Return what the store decides, None if it is down."""
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

    def _add_to(self, outcome: Outcome, taken: Taken) -> None:
        *_, key = taken
        told_of_it = self._told(taken)
        result = partial(self._rule.result, key, told_of_it.decision)
        answer = Answer(told_of_it, self._machinery.renderer, result)
        outcome.answers.append(answer)
        outcome.charged.append((self._machinery.failover, answer))
        outcome.decided.extend((self._rule, (self._machinery.store, key)))


async def _acquired(
    machinery: Machinery, charged: Sequence[tuple[Rule, Charge]], outcome: Outcome
) -> bool:
    """Charge all of *charged*, or none; tell whether the request is refused."""
    if not charged:
        return False
    outcome.decided.extend((machinery.store, charge.key) for _, charge in charged)
    try:
        results = await machinery.failover.acquire([charge for _, charge in charged])
    except StoreUnavailableError as error:
        problem_details = machinery.renderer.problem_details
        raise RateLimitUnavailableError(problem_details=problem_details) from error
    for result, (rule, charge) in zip(results, charged, strict=True):
        named = partial(replace, result, name=rule.name)
        seen = Told(decision_of(result), rule.name, charge.quota)
        answer = Answer(seen, machinery.renderer, named)
        outcome.answers.append(answer)
        outcome.charged.append((machinery.failover, answer))
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
    phase: Phase = "early",
) -> bool:
    """
    Charge a request by *plans*, one limiter after the other.

    Returns:
        Whether it is refused. If so, all that was charged in this decision came back: a
        refusal is free.

    Raises:
        RateLimitUnavailableError: A store is unavailable, and a limit denies then. That
            is free, too.

    Args:
        plans: What to charge by.
        scope: The request.
        answers: Those of the functions that FastAPI solved.
        phase: When this is.
    """
    outcome = outcome_of(scope)
    outcome.enter(phase)
    if phase != "app":
        outcome.serve(id(scope), scope.get("endpoint"))
    try:
        for plan in plans:
            if await plan.decide(scope, answers, outcome):
                await _give_back(outcome.charged)
                return True
    except RateLimitUnavailableError:
        await _give_back(outcome.charged)
        raise
    return False


async def _give_back(charged: list[tuple[Store, Answer]]) -> None:
    """Refund all of *charged*, each store's in one call."""
    receipts: dict[Store, list[Receipt]] = {}
    for store, answer in charged:
        receipts.setdefault(store, []).extend(answer.result.receipts)
    charged.clear()
    for store, some in receipts.items():
        if some:
            await store.refund(some)
