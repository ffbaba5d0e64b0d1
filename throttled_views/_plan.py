"""
The request path: what each request to one handler is charged, compiled beforehand.

A plan is made when a route is registered. It belongs to one limiter; of a request it
knows no more than the ASGI scope, and it records what it decided in the context there.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

from starlette.types import Scope

from throttled_views._answers import give_back
from throttled_views._charging import acquired, charge_in_shadow
from throttled_views._rules import MOST_TEMPLATES, NOTHING_SOLVED, Rule, Solved
from throttled_views._scopes import Machinery, outcome_of
from throttled_views._settlement import hold
from throttled_views._single import Single
from throttled_views._together import Together
from throttled_views.context import Outcome
from throttled_views.hooks import CheckPhase
from throttled_views.results import Charge
from throttled_views.route_keys import ByTemplate
from throttled_views.stores.base import quick_store
from throttled_views.stores.deciding import Share

__all__ = ["Plan", "decide_all", "early_plans", "plan_of"]

_logger = logging.getLogger("throttled_views")


class Plan:
    """
    What each request to one handler is charged by one limiter.

    Attributes:
        machinery: That of the limiter.
        rules: The limits.
        shadows: Those of them that are observed, and not enforced.
        quick: Decides as `decide` does, at less cost. None where that is not
            possible: it takes limits whose numbers are known beforehand, a store of
            ours, and a client that the scope names for all of them.
    """

    __slots__ = (
        "_direct",
        "_enforced",
        "machinery",
        "quick",
        "rules",
        "shadows",
    )

    is_placed = False
    """Whether it counts for the template of a route, and not for its handler."""

    def __init__(self, machinery: Machinery, rules: Sequence[Rule]) -> None:
        self.machinery = machinery
        self.rules = rules
        self.shadows = [rule for rule in rules if rule.limit.shadow]
        self._enforced = [rule for rule in rules if not rule.limit.shadow]
        direct = self._direct = self._made_direct()
        self.quick = None if direct is None or self.shadows else direct.quick

    def early(self, *, spends_late: bool) -> Plan:
        """
        Return a plan of what is decided before anything is read.

        Args:
            spends_late: Whether what counts all clients together is decided late.
        """
        early = [
            rule
            for rule in self.rules
            if not rule.is_late and not (spends_late and rule.is_for_all)
        ]
        return plan_of(self.machinery, early)

    async def decide(self, scope: Scope, solved: Solved, outcome: Outcome) -> bool:
        """
        Charge the request, once; tell whether it is refused.

        All limits are one decision, all or nothing. What was decided for this request
        before, by whatever way, is not decided again.
        """
        if not self.machinery.enabled:
            return False
        direct = self._direct
        if direct is not None and (direct.decides_more or outcome.is_empty):
            return await direct.decide(scope, solved, outcome)
        charged: list[tuple[Rule, Charge]] = []
        known: dict[int, str | None] = {}
        for rule in [each for each in self._enforced if each not in outcome.decided]:
            principal = await _principal(rule, known, scope, solved)
            charge = await self._charge(rule, principal, scope, solved, outcome)
            if charge is not None:
                charged.append((rule, charge))
        return await acquired(self.machinery, charged, outcome)

    async def observe(self, scope: Scope, solved: Solved, outcome: Outcome) -> None:
        """
        Charge what is observed only, each limit by itself.

        Whatever comes of it is told to hooks, and changes nothing.
        """
        if not self.machinery.enabled:
            return
        known: dict[int, str | None] = {}
        for rule in [each for each in self.shadows if each not in outcome.decided]:
            try:
                principal = await _principal(rule, known, scope, solved)
                charge = await self._charge(rule, principal, scope, solved, outcome)
                if charge is not None:
                    await charge_in_shadow(self.machinery, rule, charge, outcome)
            except Exception:
                _logger.exception("A limit in shadow failed; nothing is refused by it")

    async def _charge(
        self,
        rule: Rule,
        principal: str | None,
        scope: Scope,
        solved: Solved,
        outcome: Outcome,
    ) -> Charge | None:
        """Return what is charged by *rule*; None if that is nothing, or was already."""
        charge = None
        if principal is not None:
            charge = await rule.charge(principal, scope, solved)
        outcome.decided.append(rule)
        if charge is None:
            return None
        owed = outcome.take_on(
            self.machinery.store,
            charge.key,
            charge.cost,
            refundable=charge.refundable,
        )
        return None if owed is None else replace(charge, cost=owed)

    def _made_direct(self) -> Single | Together | None:
        """Return what decides as `decide` does, at less cost; None if nothing can."""
        rules, shares = self._enforced, self._shares()
        store = quick_store(self.machinery.store)
        if store is None or not rules or len(shares) < len(rules):
            return None
        if len(rules) == 1:
            [rule], [share] = rules, shares
            return Single(self.machinery, store, rule, share.kernel, share.cost)
        if not _are_apart(rules, shares):
            return None
        return Together(self.machinery, store, rules, shares)

    def _shares(self) -> list[Share]:
        """Return what each limit charges, as far as that is known beforehand."""
        return [
            Share(rule.head, rule.tail, rule.kernel, rule.limit.cost)
            for rule in self._enforced
            if rule.kernel is not None
            and rule.kernel.capacity
            and not callable(rule.limit.cost)
            and not rule.limit.max_delay
            and rule.limit.refund_when is None
        ]


def _are_apart(rules: Sequence[Rule], shares: Sequence[Share]) -> bool:
    """Tell whether *rules* charge one client, each under a key and name of its own."""
    return (
        len({(share.head, share.tail) for share in shares}) == len(rules)
        and len({rule.name for rule in rules}) == len(rules)
        and all(rule.key_func is rules[0].key_func for rule in rules)
    )


async def _principal(
    rule: Rule, known: dict[int, str | None], scope: Scope, solved: Solved
) -> str | None:
    """
    Return who is charged by *rule*; None if it does not apply to the request.

    A key function is asked once for all limits that it is the key of: the clients that
    are *known* already stand by the `id` of theirs.
    """
    asked = id(rule.key_func)
    if asked not in known:
        known[asked] = await rule.principal(scope, solved)
    return known[asked]


class _PlacedPlan(Plan):
    """A plan that counts for the template of a route: it is another for each."""

    __slots__ = ("_at", "_route_key")

    is_placed = True

    def __init__(
        self, machinery: Machinery, rules: Sequence[Rule], route_key: ByTemplate
    ) -> None:
        super().__init__(machinery, rules)
        self._route_key = route_key
        self._at = lru_cache(maxsize=MOST_TEMPLATES)(self._made_at)

    def _made_direct(self) -> None:
        """Return nothing: the plans for the templates decide."""

    def _made_at(self, template: str) -> Plan:
        return Plan(self.machinery, [rule.at(template) for rule in self.rules])

    async def decide(self, scope: Scope, solved: Solved, outcome: Outcome) -> bool:
        """Charge the request, once; see `Plan.decide`."""
        if not self.machinery.enabled:
            return False
        plan = self._at(self._route_key.template_of(scope))
        return await plan.decide(scope, solved, outcome)

    async def observe(self, scope: Scope, solved: Solved, outcome: Outcome) -> None:
        """Charge what is observed only; see `Plan.observe`."""
        if self.machinery.enabled:
            plan = self._at(self._route_key.template_of(scope))
            await plan.observe(scope, solved, outcome)


def plan_of(machinery: Machinery, rules: Sequence[Rule]) -> Plan:
    """Return the plan of a handler that is held to *rules*."""
    if isinstance(machinery.route_key, ByTemplate):
        return _PlacedPlan(machinery, rules, machinery.route_key)
    return Plan(machinery, rules)


def early_plans(plans: Sequence[Plan]) -> Sequence[Plan]:
    """
    Return *plans* without what is decided right before the handler.

    That is what is late; and if anything that is enforced is, then also what counts all
    clients together, so that nobody spends it who does not get as far as the handler.
    """
    late = [rule for plan in plans for rule in plan.rules if rule.is_late]
    if not late:
        return plans
    spends_late = any(not rule.limit.shadow for rule in late)
    early = [plan.early(spends_late=spends_late) for plan in plans]
    return [plan for plan in early if plan.rules]


async def decide_all(
    plans: Sequence[Plan],
    scope: Scope,
    solved: Solved = NOTHING_SOLVED,
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
        solved: What FastAPI got from the functions that it solves.
        phase: When this is.
    """
    outcome = outcome_of(scope)
    outcome.enter(phase)
    if phase != "app":
        outcome.belong_to(id(scope), scope.get("endpoint"))
    try:
        for plan in plans:
            if await plan.decide(scope, solved, outcome):
                await _give_all_back(outcome)
                return True
    except Exception:
        await _give_all_back(outcome)
        raise
    except BaseException:  # who is cancelled cannot wait for anything
        _ = hold(give_back([*outcome.charged]))
        raise
    for plan in plans:
        if plan.shadows:
            await plan.observe(scope, solved, outcome)
    if outcome.turn_at:
        await wait_for_turn(outcome)
    return False


async def _give_all_back(outcome: Outcome) -> None:
    """Refund all that was charged in this decision; nobody waits for a turn."""
    outcome.turn_at = 0.0
    charged = [each for each in outcome.charged if each.result.receipts]
    outcome.charged.clear()
    if charged:  # to the end, also if the client hangs up meanwhile
        await asyncio.shield(hold(give_back(charged)))


async def wait_for_turn(outcome: Outcome) -> None:
    """
    Wait until the latest turn that the request was given comes.

    Whoever is cancelled meanwhile stays charged: others may have got later turns.
    """
    wait_s = outcome.turn_at - asyncio.get_running_loop().time()
    outcome.turn_at = 0.0
    if wait_s > 0:
        await asyncio.sleep(wait_s)
