"""
What one limit answered to a request: in numbers, as users see it, and what comes back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import compress
from time import perf_counter
from typing import Protocol

from throttled_views._rules import Rule
from throttled_views.algorithms.kernels import counts_apart
from throttled_views.headers import (
    HeaderRenderer,
    Told,
)
from throttled_views.hooks import Audience, CheckPhase
from throttled_views.results import (
    RateLimitResult,
    Receipt,
)
from throttled_views.stores.failover import Failover

__all__ = ["Answer", "Giver", "give_back"]

_US_PER_S = 1_000_000


class Giver(Protocol):
    """What an answer needs of the limiter that gave it."""

    @property
    def failover(self) -> Failover:
        """Where it was charged, and where charges are given back to."""
        ...

    @property
    def renderer(self) -> HeaderRenderer:
        """How it is shown."""
        ...

    @property
    def audience(self) -> Audience:
        """Who is told."""
        ...


class Answer:
    """
    What one limit answered, in numbers and as users see it, and how to show it.

    Attributes:
        told: The answer in numbers, and what it is about.
        rule: What answered.
        giver: The limiter that answered.
        phase: When that was.
    """

    __slots__ = ("_make_result", "_result", "giver", "phase", "rule", "told")

    def __init__(
        self,
        told: Told,
        rule: Rule,
        giver: Giver,
        phase: CheckPhase,
        make_result: Callable[[], RateLimitResult],
    ) -> None:
        self.told = told
        self.rule = rule
        self.giver = giver
        self.phase: CheckPhase = phase
        self._make_result = make_result
        self._result: RateLimitResult | None = None

    @property
    def result(self) -> RateLimitResult:
        """The answer as users see it, made when somebody asks."""
        if self._result is None:
            self._result = self._make_result()
        return self._result

    def take_back(self, units: int | None = None) -> Receipt | None:
        """
        Return what gives back *units* of the charge, all of it unless given.

        None if nothing is charged. What was taken back once is not taken again, whether
        it came back or not.
        """
        if not self.result.receipts:
            return None
        [receipt] = self.result.receipts
        charged = receipt.charge.cost
        units = charged if units is None else min(units, charged)
        left = _parts(receipt, charged - units)
        self._result = replace(self.result, receipts=left)
        return next(iter(_parts(receipt, units)), None)

    def is_charged_to(self, key: str) -> bool:
        """Tell whether *key* was charged, and not everything came back."""
        return any(each.charge.key == key for each in self.result.receipts)

    def came_back(self, units: int) -> None:
        """Tell of what was there at the decision, and of *units* more."""
        decision, result = self.told.decision, self.result
        remaining = min(decision.limit, decision.remaining + units)
        if decision.delay_us:  # it went to those who wait
            remaining = decision.remaining
        sooner_us = self._time_of(units)
        reset_us = max(0, decision.reset_us - sooner_us)
        if remaining == decision.limit:
            reset_us = 0
        decision = decision._replace(remaining=remaining, reset_us=reset_us)
        self.told = self.told._replace(decision=decision)
        state = replace(
            result.state, remaining=remaining, reset_after=reset_us / _US_PER_S
        )
        self._result = replace(result, state=state)

    def _time_of(self, units: int) -> int:
        """Return the microseconds, rounded down, that a key is whole sooner by."""
        if counts_apart(self.rule.label.algorithm):
            return 0  # a window ends when it ends
        quota = self.told.quota
        return units * quota.period_us // quota.limit


def _parts(receipt: Receipt, units: int) -> tuple[Receipt, ...]:
    """Return the receipt of *units* of what *receipt* is of; of none there is none."""
    charge = replace(receipt.charge, cost=units)
    return (replace(receipt, charge=charge),) if units else ()


async def give_back(answers: Iterable[Answer], units: int | None = None) -> None:
    """Refund *units* of each of *answers*, all unless given; each store in one call."""
    receipts: dict[Failover, list[tuple[Answer, Receipt]]] = {}
    for answer in answers:
        if (receipt := answer.take_back(units)) is not None:
            receipts.setdefault(answer.giver.failover, []).append((answer, receipt))
    for store, some in receipts.items():
        began = perf_counter()
        are_back = await store.give_back([receipt for _, receipt in some])
        for answer, receipt in compress(some, are_back):
            answer.came_back(receipt.charge.cost)
            answer.giver.audience.checked(
                answer.rule.label, answer.phase, "refunded", receipt.charge, began
            )
