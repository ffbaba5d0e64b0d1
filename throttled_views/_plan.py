"""
The request path: what each request to one handler is charged, compiled beforehand.

A plan is made when a route is registered. It belongs to one limiter; of a request it
knows no more than the ASGI scope, and it records what it decided in the context there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Protocol

from starlette.types import Scope

from throttled_views.algorithms.bucket import Bucket, tell
from throttled_views.headers import Answer, HeaderRenderer, Outcome, RawHeaders
from throttled_views.keys import ScopeKey
from throttled_views.outcome import SCOPE_KEY, outcome_of
from throttled_views.results import Charge, decision_of
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
        outcome, store = outcome_of(scope), self._machinery.store
        undecided = [each for each in self._throttleds if each not in outcome.decided]
        charged: list[tuple[Rule, Charge]] = []
        for throttled in undecided:
            for rule in throttled.rules:
                charge = await rule.charge(scope)
                if charge is not None and (store, charge.key) not in outcome.decided:
                    charged.append((rule, charge))
        outcome.decided += undecided
        if not charged:
            return False
        outcome.decided += [(store, charge.key) for _, charge in charged]
        results = await store.acquire([charge for _, charge in charged])
        for result, (rule, _) in zip(results, charged, strict=True):
            named = replace(result, name=rule.name)
            answer = Answer(named, decision_of(named), self._machinery.renderer)
            outcome.answers.append(answer)
        return any(result.limited for result in results)

    def _quick_decision(self) -> Callable[[Scope], bool] | None:
        """Return the function that `at_once` is."""
        rules = [rule for throttled in self._throttleds for rule in throttled.rules]
        store = self._machinery.store
        if len(rules) != 1 or not isinstance(store, MemoryStore):
            return None
        rule = rules[0]
        bucket, cost, key_func = rule.bucket, rule.limit.cost, rule.key_func
        if bucket is None or not bucket.scale:
            return None
        if callable(cost) or not isinstance(key_func, ScopeKey):
            return None
        machinery, throttled = self._machinery, self._throttleds[0]
        take_one = store.taker(bucket, cost)
        head, tail, principal_of = rule.head, rule.tail, key_func.encoded_from_scope
        quick = _Quick(machinery, throttled, rule, bucket, cost)

        def decide_at_once(scope: Scope) -> bool:
            if not machinery.enabled:
                return False
            key = f"{head}{principal_of(scope)}{tail}"
            taken = take_one(key)
            scope[SCOPE_KEY] = quick, key, taken
            return taken[0]

        return decide_at_once


class _Quick:
    """Makes of what `decide_at_once` found whatever somebody asks for."""

    __slots__ = (
        "_bucket",
        "_cost",
        "_renderer",
        "_rule",
        "_second",
        "_store",
        "_throttled",
    )

    def __init__(
        self,
        machinery: Machinery,
        throttled: Throttled,
        rule: Rule,
        bucket: Bucket,
        cost: int,
    ) -> None:
        self._renderer = machinery.renderer
        self._store = machinery.store
        self._throttled = throttled
        self._rule = rule
        self._bucket = bucket
        self._cost = cost
        self._second = bucket.scale * 1_000_000  # in ticks

    def raw_headers(self, taken: tuple[bool, int, int]) -> RawHeaders:
        """Return what rendering the decision would, from ticks to seconds directly."""
        limited, empty_at, now_us = taken
        bucket, second = self._bucket, self._second
        level = now_us * bucket.scale - empty_at
        return self._renderer.fields(
            bucket.capacity,
            level // bucket.token,
            -((level - bucket.full) // second),
            -((level - self._cost * bucket.token) // second) if limited else None,
        )

    def outcome(self, key: str, taken: tuple[bool, int, int]) -> Outcome:
        """Return the outcome that would have been made at once."""
        decision = tell(*taken, self._bucket, self._cost)
        result = self._rule.result(key, decision)
        outcome = Outcome()
        outcome.answers.append(Answer(result, decision, self._renderer))
        outcome.decided += [self._throttled, (self._store, key)]
        return outcome
