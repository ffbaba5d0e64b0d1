"""
The request path: what each request to one handler is charged, compiled beforehand.

A plan is made when a route is registered. It belongs to one limiter; of a request it
knows no more than the ASGI scope, and it records what it decided in the context there.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from time import perf_counter
from typing import TypeVar, cast

from starlette.types import Scope

from throttled_views._kinds import scope_reader_of
from throttled_views._principals import encoded_principal
from throttled_views.algorithms.base import AnyKernel
from throttled_views.context import Answer, Builder, Outcome, give_back
from throttled_views.errors import StoreUnavailableError
from throttled_views.headers import Told
from throttled_views.hooks import CheckEvent, CheckOutcome, CheckPhase
from throttled_views.outcome import (
    Machinery,
    Quick,
    RateLimitUnavailableError,
    outcome_of,
)
from throttled_views.quotas import Quota
from throttled_views.results import Charge, RateLimitResult, decision_of
from throttled_views.route_keys import ByTemplate
from throttled_views.stores.base import QuickStore, quick_store
from throttled_views.stores.deciding import Taken, told
from throttled_views.throttled import NO_ANSWERS, Answers, Rule

__all__ = ["Plan", "decide_all", "early_plans", "plan_of"]

_logger = logging.getLogger("throttled_views")
_US_PER_S = 1_000_000
_SubjectT = TypeVar("_SubjectT")


class Plan:
    """
    What each request to one handler is charged by one limiter.

    Attributes:
        machinery: That of the limiter.
        rules: The limits.
        shadows: Those of them that are observed, and not enforced.
        quick: Decides as `decide` does, at less cost. None where that is not
            possible: it takes one limit, whose numbers are known beforehand, a store
            of ours, and a key that the scope gives.
    """

    __slots__ = ("_enforced", "_single", "machinery", "quick", "rules", "shadows")

    is_placed = False
    """Whether it counts for the template of a route, and not for its handler."""

    def __init__(self, machinery: Machinery, rules: Sequence[Rule]) -> None:
        self.machinery = machinery
        self.rules = rules
        self.shadows = [rule for rule in rules if rule.limit.shadow]
        self._enforced = [rule for rule in rules if not rule.limit.shadow]
        self._single = self._one()
        single = None if self.shadows else self._single
        self.quick = None if single is None else single.quick

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
        charged: list[tuple[Rule, Charge]] = []
        for rule in [each for each in self._enforced if each not in outcome.decided]:
            charge = await self._charge(rule, scope, answers, outcome)
            if charge is not None:
                charged.append((rule, charge))
        return await _acquired(self.machinery, charged, outcome)

    async def observe(self, scope: Scope, answers: Answers, outcome: Outcome) -> None:
        """
        Charge what is observed only, each limit by itself.

        Whatever comes of it is told to hooks, and changes nothing.
        """
        if not self.machinery.enabled:
            return
        for rule in [each for each in self.shadows if each not in outcome.decided]:
            try:
                charge = await self._charge(rule, scope, answers, outcome)
                if charge is not None:
                    await _observed(self.machinery, rule, charge, outcome)
            except Exception:
                _logger.exception("A limit in shadow failed; nothing is refused by it")

    async def _charge(
        self, rule: Rule, scope: Scope, answers: Answers, outcome: Outcome
    ) -> Charge | None:
        """Return what is charged by *rule*; None if that is nothing, or was already."""
        charge = await rule.charge(scope, answers)
        outcome.decided.append(rule)
        if charge is None:
            return None
        owed = outcome.owed(self.machinery.store, charge.key, charge.cost)
        return None if owed is None else replace(charge, cost=owed)

    def _one(self) -> _Single | None:
        store = quick_store(self.machinery.store)
        if len(self._enforced) != 1 or store is None:
            return None
        [rule] = self._enforced
        limit = rule.limit
        if rule.kernel is None or not rule.kernel.capacity or callable(limit.cost):
            return None
        if limit.max_delay or limit.refund_when is not None:
            return None
        return _Single(self.machinery, store, rule, rule.kernel, limit.cost)


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

    async def observe(self, scope: Scope, answers: Answers, outcome: Outcome) -> None:
        """Charge what is observed only; see `Plan.observe`."""
        if self.machinery.enabled:
            plan = self._at(self._route_key.template_of(scope))
            await plan.observe(scope, answers, outcome)


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
        "_take_of_scope",
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
        self._take_of_scope = self._taker(principal_of)
        return Quick(self._machinery, self._telling_taker(), self._builder)

    def _telling_taker(
        self,
    ) -> Callable[[Scope], Taken | Awaitable[Taken] | None]:
        """Return what charges a request, and tells hooks if there are any."""
        take, tell = self._take_of_scope, self._tell
        if not self._machinery.audience:
            return take

        async def tell_later(taking: Awaitable[Taken], began: float) -> Taken:
            taken = await taking
            tell(taken, "early", began)
            return taken

        def take_and_tell(scope: Scope) -> Taken | Awaitable[Taken] | None:
            began = perf_counter()
            taken = take(scope)
            if isinstance(taken, tuple):
                tell(taken, "early", began)
            elif taken is not None:
                return tell_later(taken, began)
            return taken

        return take_and_tell

    async def decide(self, scope: Scope, answers: Answers, outcome: Outcome) -> bool:
        """Charge the request, once; see `Plan.decide`."""
        rule, store = self._rule, self._machinery.store
        if self.quick is not None and outcome.is_empty:
            began = perf_counter()
            taken = self._take_of_scope(scope)
            if not isinstance(taken, tuple):
                taken = await self._taken(taken)
            if taken is not None:
                return self._added(taken, outcome, began)
        if rule in outcome.decided:
            return False
        principal = await rule.principal(scope, answers)
        key = "" if principal is None else rule.key(principal)
        owed = outcome.owed(store, key, self._cost)
        if principal is None or owed is None:
            outcome.decided.append(rule)
            return False
        began = perf_counter()
        taken = None
        if owed == self._cost:
            taken = await self._taken(self._take(principal))
        if taken is not None:
            return self._added(taken, outcome, began)
        outcome.decided.append(rule)
        charge = replace(rule.charge_to(key), cost=owed)
        return await _acquired(self._machinery, [(rule, charge)], outcome)

    def _added(self, taken: Taken, outcome: Outcome, began: float) -> bool:
        """Add what was *taken* to *outcome*; tell whether it is a refusal."""
        outcome.add(self._builder, taken)
        if self._machinery.audience:
            self._tell(taken, outcome.phase, began)
        return taken[0]

    def _tell(self, taken: Taken, phase: CheckPhase, began: float) -> None:
        duration = perf_counter() - began
        name: CheckOutcome = "refused" if taken[0] else "admitted"
        event = CheckEvent(
            self._rule.observed,
            phase,
            name,
            self._cost,
            duration,
            make_result=lambda: self._rule.result(taken[3], self._told(taken).decision),
        )
        self._machinery.audience.on_check(event)

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
        answer = Answer(told_of_it, self._rule, self._machinery, outcome.phase, result)
        outcome.add_answer(answer)
        outcome.decided.append(self._rule)
        outcome.note(self._machinery.store, key, self._cost)


async def _acquired(
    machinery: Machinery, charged: Sequence[tuple[Rule, Charge]], outcome: Outcome
) -> bool:
    """Charge all of *charged*, or none; tell whether the request is refused."""
    if not charged:
        return False
    for _, charge in charged:
        outcome.note(machinery.store, charge.key, charge.cost)
    began = perf_counter()
    try:
        results = await machinery.failover.acquire([charge for _, charge in charged])
    except StoreUnavailableError as error:
        for rule, charge in charged:
            _tell(machinery, rule, charge, outcome.phase, "unavailable", began)
        problem_details = machinery.renderer.problem_details
        raise RateLimitUnavailableError(problem_details=problem_details) from error
    is_refused = any(result.limited for result in results)
    otherwise: CheckOutcome = "spared" if is_refused else "admitted"
    for result, (rule, charge) in zip(results, charged, strict=True):
        named = replace(result, name=rule.name)
        name = "refused" if result.limited else otherwise
        _tell(machinery, rule, charge, outcome.phase, name, began, named)
        seen = Told(decision_of(result), rule.name, charge.quota)
        make_result = partial(_given, named)
        answer = Answer(seen, rule, machinery, outcome.phase, make_result)
        outcome.add_answer(answer)
    return is_refused


async def _observed(
    machinery: Machinery, rule: Rule, charge: Charge, outcome: Outcome
) -> None:
    """Charge a limit in shadow, and tell what it would have done."""
    began, phase = perf_counter(), outcome.phase
    try:
        [result] = await machinery.failover.acquire([charge])
    except StoreUnavailableError:
        _tell(machinery, rule, charge, phase, "unavailable", began)
        return
    named = replace(result, name=rule.name)
    if not result.limited:
        _tell(machinery, rule, charge, phase, "admitted", began, named)
        seen = Told(decision_of(result), rule.name, charge.quota)
        outcome.observe(Answer(seen, rule, machinery, phase, partial(_given, named)))
        return
    _tell(machinery, rule, charge, phase, "would_refuse", began, named)
    _logger.info(
        "In shadow: %s (%s) would have refused a request", rule.route, rule.name
    )


def _given(result: RateLimitResult) -> RateLimitResult:
    return result


def _tell(  # noqa: PLR0913, PLR0917 - each is a part of the event
    machinery: Machinery,
    rule: Rule,
    charge: Charge,
    phase: CheckPhase,
    name: CheckOutcome,
    began: float,
    result: RateLimitResult | None = None,
) -> None:
    """Tell hooks what came out for *rule*; that takes nothing where there are none."""
    if not machinery.audience:
        return
    event = CheckEvent(
        rule.observed,
        phase,
        name,
        charge.cost,
        perf_counter() - began,
        0.0 if result is None else result.delay,
        None if result is None else partial(_given, result),
    )
    machinery.audience.on_check(event)


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
    phase: CheckPhase = "early",
) -> bool:
    """
    Charge a request by *plans*, one limiter after the other.

    Returns:
        Whether it is refused. If so, all that was charged in this decision came back: a
        refusal is free.

    Raises:
        RateLimitUnavailableError: A store is unavailable, and a limit denies then. That
            is free, too, and so is what a function of the user raises.

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
                await _give_all_back(outcome)
                return True
    except Exception:
        await _give_all_back(outcome)
        raise
    for plan in plans:
        if plan.shadows:
            await plan.observe(scope, answers, outcome)
    if outcome.delay_us:
        await _wait_for_turn(outcome)
    return False


async def _give_all_back(outcome: Outcome) -> None:
    """Refund all that was charged in this decision; nobody waits for a turn."""
    outcome.delay_us = 0
    await give_back(outcome.charged)
    outcome.charged.clear()


async def _wait_for_turn(outcome: Outcome) -> None:
    """
    Wait until the latest turn that the request was given comes.

    Whoever is cancelled meanwhile stays charged: others may have got later turns.
    """
    delay_us, outcome.delay_us = outcome.delay_us, 0
    await asyncio.sleep(delay_us / _US_PER_S)
