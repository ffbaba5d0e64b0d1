"""
One limit, whose numbers are known beforehand.

It decides as `Plan.decide` does, at less cost; tests hold it to that.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace
from functools import partial
from time import perf_counter
from typing import TypeVar

from starlette.types import Scope

from throttled_views._answers import Answer
from throttled_views._charging import acquired
from throttled_views._direct import Direct
from throttled_views._rules import Rule, Solved
from throttled_views._scopes import Machinery
from throttled_views.algorithms.base import AnyKernel
from throttled_views.context import Outcome
from throttled_views.headers import RawHeaders, Told
from throttled_views.hooks import CheckEvent, CheckOutcome, CheckPhase
from throttled_views.stores.base import QuickStore
from throttled_views.stores.deciding import Taken, told

__all__ = ["Single"]

_SubjectT = TypeVar("_SubjectT")


class Single(Direct[Taken]):
    """The one limit of a plan."""

    decides_more = True

    __slots__ = ("_cost", "_kernel", "_quota", "_rule")

    def __init__(
        self,
        machinery: Machinery,
        store: QuickStore,
        rule: Rule,
        kernel: AnyKernel,
        cost: int,
    ) -> None:
        self._rule = rule
        self._kernel = kernel
        self._cost = cost
        self._quota = rule.quota
        super().__init__(machinery, store, [rule])

    async def decide(self, scope: Scope, solved: Solved, outcome: Outcome) -> bool:
        """Charge the request, once; see `Plan.decide`."""
        rule, store = self._rule, self._machinery.store
        if self._take_of_scope is not None and outcome.is_empty:
            began = perf_counter()
            taken = self._take_of_scope(scope)
            if not isinstance(taken, tuple):
                taken = await self._taken(taken)
            if taken is not None:
                return self._added(taken, outcome, began)
        if rule in outcome.decided:
            return False
        principal = await rule.principal(scope, solved)
        owed = None
        if principal is not None:
            owed = outcome.take_on(store, rule.key(principal), self._cost)
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
        charge = replace(rule.charge_to(rule.key(principal)), cost=owed)
        return await acquired(self._machinery, [(rule, charge)], outcome)

    def _store_taker(
        self, principal_of: Callable[[_SubjectT], str]
    ) -> Callable[[_SubjectT], Taken | Awaitable[Taken]]:
        rule = self._rule
        return self._store.taker(
            rule.head, principal_of, rule.tail, self._kernel, self._cost
        )

    def _merger(
        self,
    ) -> Callable[[Iterable[tuple[bytes, bytes]], Taken], RawHeaders]:
        return self._machinery.renderer.merger(self._kernel, self._cost, self._told)

    def _add_to(self, outcome: Outcome, taken: Taken) -> None:
        *_, key = taken
        told_of_it = self._told(taken)
        result = partial(self._rule.result, key, told_of_it.decision)
        answer = Answer(told_of_it, self._rule, self._machinery, outcome.phase, result)
        outcome.add_answer(answer)
        outcome.decided.append(self._rule)
        outcome.note_charge(self._machinery.store, key, self._cost)

    def _tell(self, taken: Taken, phase: CheckPhase, began: float) -> None:
        duration = perf_counter() - began
        name: CheckOutcome = "refused" if taken[0] else "admitted"
        # By position: by keyword it takes a third longer, for each request.
        event = CheckEvent(
            self._rule.label,
            phase,
            name,
            self._cost,
            duration,
            0.0,
            taken[3],
            lambda: self._rule.result(taken[3], self._told(taken).decision),
        )
        self._machinery.audience.on_check(event)

    def _told(self, taken: Taken) -> Told:
        decision = told(taken, self._kernel, self._cost)
        return Told(decision, self._rule.name, self._quota)
