"""
The path of nearly every request: one limit, whose numbers are known beforehand.

It decides as `Plan.decide` does, at less cost; tests hold it to that.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from time import perf_counter
from typing import TypeVar, cast

from starlette.types import Scope

from throttled_views._answers import Answer
from throttled_views._charging import acquired
from throttled_views._kinds import scope_reader_of
from throttled_views._principals import encoded_principal
from throttled_views._rules import Answers, Rule
from throttled_views.algorithms.base import AnyKernel
from throttled_views.context import Builder, Outcome
from throttled_views.errors import StoreUnavailableError
from throttled_views.headers import Told
from throttled_views.hooks import CheckEvent, CheckOutcome, CheckPhase
from throttled_views.outcome import Machinery, Quick
from throttled_views.quotas import Quota
from throttled_views.stores.base import QuickStore
from throttled_views.stores.deciding import Taken, told

__all__ = ["Single"]

_SubjectT = TypeVar("_SubjectT")


class Single:
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
                return taken
            return None if taken is None else tell_later(taken, began)

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
        if owed != self._cost:
            outcome.keep(key)
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
        return await acquired(self._machinery, [(rule, charge)], outcome)

    def _added(self, taken: Taken, outcome: Outcome, began: float) -> bool:
        """Add what was *taken* to *outcome*; tell whether it is a refusal."""
        outcome.add(self._builder, taken)
        if self._machinery.audience:
            self._tell(taken, outcome.phase, began)
        return taken[0]

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
