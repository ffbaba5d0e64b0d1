"""
Several limits of one client, all or nothing, whose numbers are known beforehand.

It decides as `Plan.decide` does, at less cost; tests hold it to that.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from time import perf_counter
from typing import TypeVar

from starlette.types import Scope

from throttled_views._answers import Answer
from throttled_views._charging import acquired
from throttled_views._direct import Direct
from throttled_views._rules import Rule, Solved
from throttled_views._scopes import Machinery
from throttled_views.context import Outcome
from throttled_views.headers import RawHeaders, Told, merged
from throttled_views.hooks import CheckEvent, CheckOutcome, CheckPhase
from throttled_views.results import Decision, RateLimitResult, result_of
from throttled_views.stores.base import QuickStore
from throttled_views.stores.deciding import Share, TakenTogether, told_together

__all__ = ["Together"]

_SubjectT = TypeVar("_SubjectT")


class Together(Direct[TakenTogether]):
    """
    The limits of a plan, if one key function names whom all of them charge.

    Args:
        shares: What each of the rules charges; no two of the same key.
    """

    decides_more = False

    __slots__ = ("_quotas", "_shares")

    def __init__(
        self,
        machinery: Machinery,
        store: QuickStore,
        rules: Sequence[Rule],
        shares: Sequence[Share],
    ) -> None:
        self._shares = shares
        self._quotas = [rule.quota for rule in rules]
        super().__init__(machinery, store, rules)

    async def decide(self, scope: Scope, solved: Solved, outcome: Outcome) -> bool:
        """Charge a request of which nothing was decided yet; see `Plan.decide`."""
        principal = await self._rules[0].principal(scope, solved)
        if principal is None:
            outcome.decided.extend(self._rules)
            return False
        began = perf_counter()
        taken = await self._taken(self._take(principal))
        if taken is not None:
            return self._added(taken, outcome, began)
        outcome.decided.extend(self._rules)
        charged = [(rule, rule.charge_to(rule.key(principal))) for rule in self._rules]
        return await acquired(self._machinery, charged, outcome)

    def _store_taker(
        self, principal_of: Callable[[_SubjectT], str]
    ) -> Callable[[_SubjectT], TakenTogether | Awaitable[TakenTogether]]:
        return self._store.taker_together(principal_of, self._shares)

    def _merger(
        self,
    ) -> Callable[[Iterable[tuple[bytes, bytes]], TakenTogether], RawHeaders]:
        render = self._machinery.renderer.render
        return lambda headers, taken: merged(headers, render(self._told(taken)))

    def _add_to(self, outcome: Outcome, taken: TakenTogether) -> None:
        is_refused, _, _, keys = taken
        for rule, told, key, share in zip(
            self._rules, self._told(taken), keys, self._shares, strict=True
        ):
            result = partial(_result, rule, key, told.decision, is_refused=is_refused)
            answer = Answer(told, rule, self._machinery, outcome.phase, result)
            outcome.add_answer(answer)
            outcome.decided.append(rule)
            outcome.note_charge(self._machinery.store, key, share.cost)

    def _tell(self, taken: TakenTogether, phase: CheckPhase, began: float) -> None:
        duration = perf_counter() - began
        is_refused, _, _, keys = taken
        otherwise: CheckOutcome = "spared" if is_refused else "admitted"
        for rule, told, key, share in zip(
            self._rules, self._told(taken), keys, self._shares, strict=True
        ):
            decision = told.decision
            name = "refused" if decision.limited else otherwise
            result = partial(_result, rule, key, decision, is_refused=is_refused)
            event = CheckEvent(
                rule.label, phase, name, share.cost, duration, 0.0, key, result
            )
            self._machinery.audience.on_check(event)

    def _told(self, taken: TakenTogether) -> list[Told]:
        decisions = told_together(taken, self._shares)
        return [
            Told(decision, rule.name, quota)
            for decision, rule, quota in zip(
                decisions, self._rules, self._quotas, strict=True
            )
        ]


def _result(
    rule: Rule, key: str, decision: Decision, *, is_refused: bool
) -> RateLimitResult:
    """Return what a limit answered, as users see it; a refusal charges nothing."""
    return result_of(decision, rule.name) if is_refused else rule.result(key, decision)
