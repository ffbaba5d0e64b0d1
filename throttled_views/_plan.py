"""
The request path: what each request to one handler is charged, compiled beforehand.

A plan is made when a route is registered. It belongs to one limiter; of a request it
knows no more than the ASGI scope, and it records what it decided in the context there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Protocol

from starlette.types import Scope

from throttled_views.headers import (
    Answer,
    HeaderRenderer,
    RateLimitContext,
    add_answers,
    is_decided,
)
from throttled_views.keys import ScopeKey
from throttled_views.outcome import SCOPE_KEY, context_of
from throttled_views.stores.base import Store
from throttled_views.stores.memory import MemoryStore
from throttled_views.throttled import Rule, Throttled

__all__ = ["Machinery", "Plan"]


class Machinery(Protocol):
    """What a plan uses of its limiter."""

    @property
    def store(self) -> Store:
        """Where the counts live."""
        ...

    @property
    def renderer(self) -> HeaderRenderer:
        """How decisions are shown."""
        ...

    enabled: bool
    """Whether anything is limited at all."""


class Plan:
    """
    What each request to one handler is charged by one limiter.

    Attributes:
        at_once: Decides as `decide` does, but without waiting, for a request of which
            nothing was decided before. None where that is not possible: it takes one
            limit, whose numbers are known beforehand, in memory, by a key that the
            scope gives.
    """

    __slots__ = ("_machinery", "_throttleds", "at_once")

    def __init__(self, machinery: Machinery, throttleds: Sequence[Throttled]) -> None:
        self._machinery = machinery
        self._throttleds = throttleds
        self.at_once = self._quick_decision()

    async def decide(self, scope: Scope) -> bool:
        """
        Charge the request, once; tell whether it is refused.

        All limits are one decision, all or nothing. What was decided for this request
        before, by whatever way, is not decided again.
        """
        if not self._machinery.enabled:
            return False
        context = context_of(scope)
        undecided = [each for each in self._throttleds if not is_decided(context, each)]
        rules, charges = [], []
        for throttled in undecided:
            for rule in throttled.rules:
                charge = await rule.charge(scope)
                if charge is not None and not is_decided(context, charge.key):
                    rules.append(rule)
                    charges.append(charge)
        results = await self._machinery.store.acquire(charges) if charges else []
        answers = [
            Answer.of(replace(result, name=rule.name), self._machinery.renderer)
            for result, rule in zip(results, rules, strict=True)
        ]
        add_answers(context, answers, [*undecided, *(each.key for each in charges)])
        return any(result.limited for result in results)

    def _quick_decision(self) -> Callable[[Scope], bool] | None:
        """Return the function that `at_once` is."""
        rules = [rule for throttled in self._throttleds for rule in throttled.rules]
        store = self._machinery.store
        if len(rules) != 1 or not isinstance(store, MemoryStore):
            return None
        rule = rules[0]
        bucket, cost, key_func = rule.bucket, rule.limit.cost, rule.key_func
        if bucket is None or callable(cost) or not isinstance(key_func, ScopeKey):
            return None
        machinery, renderer = self._machinery, self._machinery.renderer
        throttled = self._throttleds[0]
        acquire_one, key_of, principal_of = (
            store.acquire_one,
            rule.key,
            key_func.from_scope,
        )

        def decide_at_once(scope: Scope) -> bool:
            if not machinery.enabled:
                return False
            key = key_of(principal_of(scope))
            decision = acquire_one(key, bucket, cost)
            answer = Answer(decision, renderer, partial(rule.result, key, decision))
            scope[SCOPE_KEY] = RateLimitContext((answer,), (throttled, key))
            return decision.limited

        return decide_at_once
