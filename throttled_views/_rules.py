"""Limits with nothing left to look up: a `Rule` tells what a request is charged."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import copy
from functools import partial
from inspect import isawaitable
from types import MappingProxyType
from typing import Any, Final, TypeAlias, cast

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
)
from throttled_views.hooks import (
    CheckedLimit,
)
from throttled_views.keys import KeyParts, compose_key, everyone
from throttled_views.limits import (
    Exempt,
    KeyFunc,
    Limit,
)
from throttled_views.quotas import Algorithm, Quota
from throttled_views.results import (
    Charge,
    Decision,
    RateLimitResult,
    Receipt,
    checked_cost,
    result_of,
)

__all__ = ["MOST_TEMPLATES", "NOTHING_SOLVED", "Rule", "Solved", "is_late"]

Solved: TypeAlias = Mapping[int, object]
"""What FastAPI got from functions that it solves, by the `id` of the function."""

NOTHING_SOLVED: Final[Solved] = MappingProxyType({})

MOST_TEMPLATES = 1024

_MARK = "·"  # of what is ours in keys: no name that a user may give has it

_Reader: TypeAlias = Callable[[Scope, Solved], object]


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
        label: The limit, as hooks know it.
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
        "label",
        "limit",
        "name",
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
        mark = _MARK if by_dependency and limit.bucket is None else ""
        check_turns(self.using, limit.max_delay)
        self.kernel: AnyKernel | None = None
        if isinstance(limit.quota, Quota):
            self.kernel = kernel_of(limit.quota, self.using, limit.max_delay)
        self.tail = f"}}|{encoded(mark + slot + _way(limit, self.using))}"
        quota = "dynamic" if self.kernel is None else str(limit.quota)
        self.label = CheckedLimit(route, name, quota, self.using, limit.shadow)
        functions = (self.key_func, limit.quota, limit.cost)
        self.is_late = any(is_late(function) for function in functions)
        self.is_for_all = self.key_func is everyone
        self.is_refundable = limit.refund_when is not None
        self._read_principal = _reader_of(self.key_func)
        self._read_quota = _reader_of(limit.quota)
        self._read_cost = _reader_of(limit.cost)

    @property
    def quota(self) -> Quota:
        """The quota, where it is known beforehand."""
        assert isinstance(self.limit.quota, Quota)  # noqa: S101 - for type checkers
        return self.limit.quota

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

    async def principal(self, scope: Scope, solved: Solved) -> str | None:
        """
        Return who is charged; None if the limit does not apply to the request.

        Args:
            scope: The request.
            solved: What FastAPI got from the functions that it solves.

        Raises:
            InvalidKeyError: The key function returned what cannot be a key.
            ConfigurationError: The key function was to be solved, and nobody did.
        """
        assert self._read_principal is not None  # noqa: S101 - for type checkers
        principal = await _awaited(self._read_principal(scope, solved))
        if principal is None:
            return None
        return checked_principal(principal, self.key_func)

    async def charge(
        self, principal: str, scope: Scope, solved: Solved
    ) -> Charge | None:
        """
        Return what the request that *scope* describes costs *principal*.

        None if the limit does not apply to it.

        Args:
            principal: Who is charged.
            scope: The request.
            solved: What FastAPI got from the functions that it solves.

        Raises:
            InvalidAnswerError: A function returned what it cannot answer.
            ConfigurationError: A function was to be solved, and nobody did.
        """
        key = self.key(principal)
        quota: Any = self.limit.quota
        if self._read_quota is not None:
            quota = await _awaited(self._read_quota(scope, solved))
            if isinstance(quota, Exempt):
                return None
            quota = _chosen_quota(quota, self.limit, self.using)
        cost: Any = self.limit.cost
        if self._read_cost is not None:
            told = await _awaited(self._read_cost(scope, solved))
            cost = _told_cost(told, self.limit.cost)
        return self._charge_of(key, quota, cost)

    def charge_to(self, key: str) -> Charge:
        """Return what *key* is charged, by the numbers that are known beforehand."""
        assert isinstance(self.limit.cost, int)  # noqa: S101 - for type checkers
        return self._charge_of(key, self.quota, self.limit.cost)

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
    way = f"{_MARK}{using}" if counts_apart(using) else ""
    # What is only observed takes nothing from others that share a bucket with it.
    return f"{way}{_MARK}shadow" if limit.shadow else way


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
        return partial(_answer_solved, function)
    return lambda scope, _: early(scope)


def _answer_solved(function: object, _scope: Scope, solved: Solved) -> object:
    if id(function) not in solved:
        msg = (
            f"{called(function)} needs FastAPI to solve what it takes, and the route "
            "is not one of FastAPI's. Register the handler with @app.get(…) or the like"
        )
        raise ConfigurationError(msg)
    return solved[id(function)]


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


async def _awaited(value: Any) -> Any:
    """Return *value*, or what it gives when awaited."""
    return await value if isawaitable(value) else value
