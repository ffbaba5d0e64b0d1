"""
Limits bound to a store: `Throttled`, and the `Rule` that each of its limits becomes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import replace
from functools import partial
from inspect import isawaitable
from itertools import compress
from time import perf_counter
from types import MappingProxyType
from typing import Any, Final, Self, TypeAlias, cast

from starlette.types import Scope

from throttled_views._early import called, early_reader_of
from throttled_views._principals import (
    checked_principal,
    encoded,
    encoded_principal,
)
from throttled_views.algorithms.base import AnyKernel
from throttled_views.algorithms.kernels import check_turns, counts_apart, kernel_of
from throttled_views.errors import (
    ConfigurationError,
    InvalidAnswerError,
    InvalidKeyError,
    StoreUnavailableError,
    shown,
)
from throttled_views.hooks import (
    Audience,
    CheckedLimit,
    CheckEvent,
    CheckOutcome,
)
from throttled_views.keys import KeyParts, compose_key, everyone
from throttled_views.limits import (
    Exempt,
    KeyFunc,
    Limit,
    Throttle,
    available,
    limits_of,
    names_of,
    slots_of,
)
from throttled_views.quotas import Algorithm, Quota
from throttled_views.results import (
    Charge,
    Decision,
    RateLimitResult,
    RateLimitState,
    Receipt,
    checked_cost,
    decision_of,
    result_of,
    urgency,
)
from throttled_views.stores.base import Store
from throttled_views.stores.failover import Failover
from throttled_views.stores.memory import MemoryStore

__all__ = ["Throttled"]

DEFAULT_PREFIX = "throttled_views"


Answers: TypeAlias = Mapping[int, object]
"""What FastAPI got from functions that it solves, by the `id` of the function."""

NO_ANSWERS: Final[Answers] = MappingProxyType({})

MOST_TEMPLATES = 1024

_Reader: TypeAlias = Callable[[Scope, Answers], object]


def is_late(function: object) -> bool:
    """Tell whether *function* is one that FastAPI has to solve."""
    return callable(function) and early_reader_of(function) is None


class Rule:
    """
    A limit with nothing left to look up: its name, its keys, its numbers.

    Attributes:
        limit: The limit.
        name: Its name among the limits of its handler.
        using: How it is counted.
        key_func: Names the client to charge, None if callers do.
        kernel: Counts by the quota, None if a function chooses that.
        observed: The limit, as hooks know it.
        is_late: Whether it is decided right before the handler: a function of it wants
            what FastAPI has to solve.
        is_for_all: Whether it counts all clients together.
        is_refundable: Whether how a request ends decides what it costs.
        route: What is counted: the identity of the handler, or the name of a bucket.
        head: All of a key before the principal.
        tail: All of a key after it.
    """

    __slots__ = (
        "_check_place",
        "_head_of",
        "_placed",
        "_read_cost",
        "_read_principal",
        "_read_quota",
        "head",
        "is_for_all",
        "is_late",
        "is_refundable",
        "kernel",
        "key_func",
        "limit",
        "name",
        "observed",
        "route",
        "tail",
        "using",
    )

    def __init__(  # noqa: PLR0913 - each is a part of the rule
        self,
        limit: Limit,
        *,
        name: str,
        slot: str,
        using: Algorithm,
        key_func: KeyFunc | None,
        prefix: str,
        method: str,
        route: str,
        by_dependency: bool = False,
        check_place: Callable[[Rule], None] | None = None,
    ) -> None:
        self.limit = limit
        self._check_place = check_place
        self.name = name
        self.using = limit.using or using
        self.key_func = limit.key_func or key_func
        if limit.bucket is not None:
            method, route = "*", limit.bucket
        self.route = route
        self._head_of = partial(_head, prefix, method)
        self.head = self._head_of(route)
        self._placed: dict[str, Rule] = {}
        # No name given by a user has the mark, which is no ASCII.
        mark = "·" if by_dependency and limit.bucket is None else ""
        check_turns(self.using, limit.max_delay)
        self.kernel: AnyKernel | None = None
        if isinstance(limit.quota, Quota):
            self.kernel = kernel_of(limit.quota, self.using, limit.max_delay)
        self.tail = f"}}|{encoded(mark + slot + _way(limit, self.using))}"
        quota = "dynamic" if self.kernel is None else str(limit.quota)
        self.observed = CheckedLimit(route, name, quota, self.using, limit.shadow)
        functions = (self.key_func, limit.quota, limit.cost)
        self.is_late = any(is_late(function) for function in functions)
        self.is_for_all = self.key_func is everyone
        self.is_refundable = limit.refund_when is not None
        self._read_principal = _reader_of(self.key_func)
        self._read_quota = _reader_of(limit.quota)
        self._read_cost = _reader_of(limit.cost)

    def at(self, template: str) -> Rule:
        """
        Return this rule, counted for a *template* and not for its handler.

        It is one object for each, by which a request knows what was decided. A bucket
        is the same everywhere.

        Raises:
            RegistrationError: Another quota counts for the *template*.
        """
        if self.limit.bucket is not None:
            return self
        if (placed := self._placed.get(template)) is None:
            placed = copy(self)
            placed.route, placed.head = template, self._head_of(template)
            placed.observed = replace(self.observed, route=template)
            if self._check_place is not None:
                self._check_place(placed)
            if len(self._placed) >= MOST_TEMPLATES:  # of a root_path that varies
                self._placed.clear()
            self._placed[template] = placed
        return placed

    def key(self, principal: str) -> str:
        """Return the key that *principal* is charged under."""
        return f"{self.head}{encoded_principal(principal)}{self.tail}"

    def has(self, key: str) -> bool:
        """Tell whether *key* is one that somebody is charged under."""
        return key.startswith(self.head) and key.endswith(self.tail)

    async def principal(self, scope: Scope, answers: Answers) -> str | None:
        """Return who is charged; see `charge`."""
        assert self._read_principal is not None  # noqa: S101 - for type checkers
        principal = await _settled(self._read_principal(scope, answers))
        if principal is None:
            return None
        return checked_principal(principal, self.key_func)

    async def charge(
        self, scope: Scope, answers: Answers = NO_ANSWERS
    ) -> Charge | None:
        """
        Return what the request that *scope* describes is charged.

        None if the limit does not apply to it.

        Args:
            scope: The request.
            answers: Those of the functions that FastAPI solved.

        Raises:
            InvalidKeyError: The key function returned what cannot be a key.
            InvalidAnswerError: Another function returned what it cannot answer.
            ConfigurationError: A function was to be solved, and nobody did.
        """
        principal = await self.principal(scope, answers)
        if principal is None:
            return None
        key = self.key(principal)
        quota: Any = self.limit.quota
        if self._read_quota is not None:
            quota = await _settled(self._read_quota(scope, answers))
            if isinstance(quota, Exempt):
                return None
            quota = _chosen_quota(quota, self.limit, self.using)
        cost: Any = self.limit.cost
        if self._read_cost is not None:
            told = await _settled(self._read_cost(scope, answers))
            cost = _told_cost(told, self.limit.cost)
        return self._charge_of(key, quota, cost)

    def charge_to(self, key: str) -> Charge:
        """Return what *key* is charged, by the numbers that are known beforehand."""
        quota, cost = self.limit.quota, self.limit.cost
        assert isinstance(quota, Quota)  # noqa: S101 - for type checkers
        assert isinstance(cost, int)  # noqa: S101
        return self._charge_of(key, quota, cost)

    def _charge_of(self, key: str, quota: Quota, cost: int) -> Charge:
        return Charge(
            key,
            quota,
            self.using,
            cost,
            self.limit.on_store_error,
            self.limit.max_delay,
            refundable=self.is_refundable,
        )

    def result(self, key: str, decision: Decision) -> RateLimitResult:
        """Return *decision*, which this rule got for *key*, as users see it."""
        if decision.limited:
            return result_of(decision, self.name)
        receipt = Receipt(self.charge_to(key), decision.at_us)
        return result_of(decision, self.name, (receipt,))


def _way(limit: Limit, using: Algorithm) -> str:
    """Return what tells apart, in keys, what is counted in another way."""
    apart = f" {using}" if counts_apart(using) else ""
    # What is only observed takes nothing from others that share a bucket with it.
    return f"{apart} in shadow" if limit.shadow else apart


def _head(prefix: str, method: str, route: str) -> str:
    # In braces the principal is what a cluster hashes: all limits of one client are in
    # one place, and those of different clients are spread.
    return f"{encoded(prefix)}|{compose_key(KeyParts(method, route, ''))}{{"


def _reader_of(function: object) -> _Reader | None:
    """Return what gets the answer of *function* for a request, None if it is none."""
    if not callable(function):
        return None
    early = early_reader_of(function)
    if early is None:
        return partial(_solved, function)
    return lambda scope, _answers: early(scope)


def _solved(function: object, _scope: Scope, answers: Answers) -> object:
    if id(function) not in answers:
        msg = (
            f"{called(function)} needs FastAPI to solve what it takes, and the route "
            "is not one of FastAPI's. Register the handler with @app.get(…) or the like"
        )
        raise ConfigurationError(msg)
    return answers[id(function)]


def checked_store(store: object) -> Store:
    """Return *store* if it is one, as far as can be seen."""
    if isinstance(store, type) or not callable(getattr(store, "acquire", None)):
        kind = store if isinstance(store, type) else type(store)
        is_for_redis = kind.__module__.partition(".")[0] == "redis" or kind is str
        redis = "RedisStore('redis://localhost:6379/0')"
        write = redis if is_for_redis else "MemoryStore()"
        msg = f"store={shown(store)} is no store. Write for example store={write}"
        raise ConfigurationError(msg)
    return cast("Store", store)


def checked_prefix(prefix: object) -> str:
    """Return *prefix* if it can be the first part of keys."""
    if not isinstance(prefix, str):
        msg = f"prefix={prefix!r} is no text. Write for example prefix='my_app'"
        raise ConfigurationError(msg)
    return prefix


def _chosen_quota(answer: object, limit: Limit, using: Algorithm) -> Quota:
    try:
        # A text is parsed; parsing tells if it is none.
        quota = (
            answer if isinstance(answer, Quota) else Quota.parse(cast("str", answer))
        )
        kernel_of(quota, using, limit.max_delay)
    except ConfigurationError as error:
        reason = getattr(error, "reason", str(error))
        raise InvalidAnswerError(
            answer,
            f"The quota function {called(limit.quota)}",
            f"It is not a quota: {reason}. Return a quota, its text, or EXEMPT",
        ) from None
    return quota


def _told_cost(answer: object, source: object) -> int:
    try:
        return checked_cost(answer)
    except ValueError:
        raise InvalidAnswerError(
            answer,
            f"The cost function {called(source)}",
            "Return a whole number of 0 or more",
        ) from None


def _checked_key(key: object) -> str:
    if not isinstance(key, str) or not key:
        raise InvalidKeyError(key, "The caller of Throttled")
    return key


async def _settled(value: Any) -> Any:
    """Return *value*, or what it gives when awaited."""
    return await value if isawaitable(value) else value


class Throttled:
    """
    One or more limits, bound to the store that counts them.

    Each view has one for each of its handlers, in ``View.throttled``. Made by hand, or
    by `Limiter.throttled`, it limits what is no route: the messages of a socket, a job.
    Its keys hold the quota's text, so that two with equal quotas on one store share
    their counts; give the limits a ``bucket`` to tell them apart.

    Args:
        quota: What to limit to: all that a view's ``throttle`` takes but `EXEMPT`.
        using: How the quotas are counted, where a limit does not say so itself.
        store: Where the counts live; a `MemoryStore` of its own unless given.
        prefix: First part of all keys, which keeps applications on one store apart.

    Raises:
        InvalidQuotaError: A text is not a quota.
        ConfigurationError: There is no limit, or one that needs a request to be known.

    Attributes:
        limits: The limits, in order.
        rules: The same, as they are counted.
    """

    rules: tuple[Rule, ...]

    __slots__ = ("_audience", "_is_enabled", "_store", "limits", "rules")

    def __init__(
        self,
        quota: Throttle,
        *,
        using: Algorithm = Algorithm.TOKEN_BUCKET,
        store: Store | None = None,
        prefix: str = DEFAULT_PREFIX,
    ) -> None:
        limits = limits_of(quota)
        if not limits:
            msg = "EXEMPT is no limit to check by hand. Leave the check out"
            raise ConfigurationError(msg)
        for limit in limits:
            _check_by_hand(limit)
        self.limits = limits
        self._audience, self._is_enabled = Audience(), _always
        self._store: Store | None = (
            MemoryStore() if store is None else checked_store(store)
        )
        self.rules = tuple(
            Rule(
                limit,
                name=name,
                slot=slot,
                using=available(using),
                key_func=None,
                prefix=checked_prefix(prefix),
                method="by hand",
                route=str(limit.quota),
            )
            for limit, name, slot in zip(
                limits, names_of(limits), slots_of(limits), strict=True
            )
        )

    @classmethod
    def declared(cls, limits: Sequence[Limit]) -> Self:
        """Return one that waits to be bound: a router does so at registration."""
        self = cls.__new__(cls)
        self.limits = tuple(limits)
        self._audience, self._is_enabled = Audience(), _always
        self._store = None
        self.rules = ()
        return self

    def told_to(self, audience: Audience, is_enabled: Callable[[], bool]) -> Self:
        """Tell *audience* of checks, and check only if *is_enabled*; return this."""
        self._audience, self._is_enabled = audience, is_enabled
        return self

    def bound(self, store: Store, rules: Sequence[Rule]) -> Self:
        """Return a copy that counts by *rules* in *store*."""
        copy = type(self).declared(self.limits)
        copy._store = store  # noqa: SLF001 - a copy of ourselves
        copy.rules = tuple(rules)
        return copy

    def __repr__(self) -> str:
        """Return the limits."""
        return f"Throttled({', '.join(str(limit.quota) for limit in self.limits)})"

    async def limit(self, key: str, cost: int = 1) -> RateLimitResult:
        """
        Charge *key* under all limits, or under none if one of them refuses.

        A limit with a `Limit.max_delay` lets the caller wait here for its turn. While
        the limiter that made this is off, nothing is charged, and all is admitted.

        Args:
            key: Who is charged: any non-empty string.
            cost: Units to charge, times the cost of each limit; 0 or more.

        Returns:
            The result of the limit that refuses, else of the one that is nearest to
            exhaustion. Ask its `limited`.

        Raises:
            InvalidKeyError: *key* is empty, or not a string.
            ValueError: *cost* is negative, or not a whole number.
            StoreUnavailableError: The store could not be asked.
        """
        charges, began = self._charges(key, cost), perf_counter()
        if not self._is_enabled():
            return self._unlimited()
        try:
            results = self._named(await self._bound_store().acquire(charges))
        except StoreUnavailableError:
            for rule, charge in zip(self.rules, charges, strict=True):
                self._tell(rule, "unavailable", charge.cost, began)
            raise
        otherwise: CheckOutcome = "admitted"
        if any(each.limited for each in results):
            otherwise = "spared"
        for rule, charge, each in zip(self.rules, charges, results, strict=True):
            outcome = "refused" if each.limited else otherwise
            self._tell(rule, outcome, charge.cost, began, each)
        delay = max(each.delay for each in results)
        if delay:
            await asyncio.sleep(delay)
        receipts = tuple(receipt for each in results for receipt in each.receipts)
        return replace(_governing(results), delay=delay, receipts=receipts)

    def _tell(
        self,
        rule: Rule,
        outcome: CheckOutcome,
        cost: int,
        began: float,
        result: RateLimitResult | None = None,
    ) -> None:
        """Tell hooks, if there are any, what came out for *rule*."""
        if not self._audience:
            return
        event = CheckEvent(
            rule.observed,
            "manual",
            outcome,
            cost,
            perf_counter() - began,
            0.0 if result is None else result.delay,
            None if result is None else partial(_given, result),
        )
        self._audience.on_check(event)

    async def peek(self, key: str, cost: int = 1) -> RateLimitResult:
        """Tell what `limit` would answer, and charge nothing; takes what it takes."""
        charges = self._charges(key, cost)
        if not self._is_enabled():
            return self._unlimited()
        results = await self._bound_store().peek(charges)
        return _governing(self._named(results))

    async def reset(self, key: str) -> None:
        """Forget *key* under all limits: it is as good as new."""
        await self._bound_store().reset(
            [charge.key for charge in self._charges(key, 1)]
        )

    async def refund(self, result: RateLimitResult) -> None:
        """
        Give back what `limit` charged for *result*; nothing, if it refused.

        Never more than the capacity comes back. A result is good for one refund.
        """
        store, began = self._bound_store(), perf_counter()
        receipts = result.receipts
        are_back: Sequence[bool] = [True] * len(receipts)
        if isinstance(store, Failover):
            are_back = await store.give_back(receipts)
        else:
            await store.refund(receipts)
        for receipt in compress(receipts, are_back):
            for rule in self.rules:
                if rule.has(receipt.charge.key):
                    self._tell(rule, "refunded", receipt.charge.cost, began)

    def _unlimited(self) -> RateLimitResult:
        """Return what is told where nothing is limited: that of a fresh key."""
        results: list[RateLimitResult] = []
        for rule in self.rules:
            burst = cast("Quota", rule.limit.quota).burst
            state = RateLimitState(burst, burst, reset_after=0.0, retry_after=0.0)
            results.append(RateLimitResult(limited=False, state=state, name=rule.name))
        return _governing(results)

    def _bound_store(self) -> Store:
        if self._store is None:
            msg = (
                f"{self!r} is a declaration and has no store yet. Include its view in "
                "a router, or write limiter.throttled(…) to check by hand"
            )
            raise ConfigurationError(msg)
        return self._store

    def _charges(self, key: str, cost: int) -> list[Charge]:
        key = _checked_key(key)
        checked_cost(cost)
        charges = [rule.charge_to(rule.key(key)) for rule in self.rules]
        return [replace(each, cost=cost * each.cost) for each in charges]

    def _named(self, results: Sequence[RateLimitResult]) -> list[RateLimitResult]:
        return [
            replace(result, name=rule.name)
            for result, rule in zip(results, self.rules, strict=True)
        ]


def _always() -> bool:
    return True


def _governing(results: Sequence[RateLimitResult]) -> RateLimitResult:
    return min(results, key=lambda result: urgency(decision_of(result)))


def _given(result: RateLimitResult) -> RateLimitResult:
    return result


def _check_by_hand(limit: Limit) -> None:
    """Raise ConfigurationError if *limit* says what needs a request to be known."""
    if not isinstance(limit.quota, Quota) or not isinstance(limit.cost, int):
        msg = (
            "A quota or cost function needs a request, and there is none here. Write "
            "a quota, for example Throttled('5/m')"
        )
        raise ConfigurationError(msg)
    if limit.refund_when is not None:
        msg = (
            "refund_when needs a response, and there is none here. Write "
            "'await throttled.refund(result)' where it is to be given back"
        )
        raise ConfigurationError(msg)
    if limit.shadow:
        msg = "shadow=True checks nothing by hand. Look at the result, and go on"
        raise ConfigurationError(msg)
