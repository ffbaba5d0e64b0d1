"""
What endpoints are given, one decorator at a time: limits, and who is to hold them.

A part is bound by its own limiter, or by that of the router the endpoint is put on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, Protocol

from throttled_views._rules import Rule, is_late
from throttled_views._scopes import Machinery
from throttled_views.limits import KeyFunc, Limit, Throttle
from throttled_views.quotas import Quota
from throttled_views.results import OnStoreError

__all__ = ["Binder", "Held", "Part", "late_functions"]


class Binder(Machinery, Protocol):
    """What declaring uses of a limiter."""

    default: Throttle | None
    key_func: KeyFunc
    on_store_error: OnStoreError

    def bind(
        self,
        limits: Sequence[Limit],
        *,
        method: str,
        route: str,
        after: Sequence[Limit] = (),
        by_dependency: bool = False,
    ) -> tuple[Rule, ...]:
        """Return *limits* as they are counted for one handler."""
        ...

    def number_of(self, owner: object, name: str, *, in_request: bool = False) -> int:
        """Return which object of its *name* *owner* is, from 1."""
        ...


class Part:
    """Limits that one decorator gave; a limiter of None is the router's."""

    def __init__(self, limiter: Binder | None, limits: tuple[Limit, ...]) -> None:
        self.limiter = limiter
        self.limits = limits
        self._bound: dict[str, tuple[Rule, ...]] = {}

    def bound(
        self, limiter: Binder, *, method: str, route: str, after: Sequence[Limit]
    ) -> tuple[Rule, ...]:
        """
        Return the limits as they are counted for one handler.

        Stacked decorators share their parts. One that is decided by the outer decorator
        is known to the inner one as decided.
        """
        if self.limiter is None:
            return limiter.bind(self.limits, method=method, route=route, after=after)
        if (bound := self._bound.get(method)) is None:
            bound = self.limiter.bind(
                self.limits, method=method, route=route, after=after
            )
            self._bound[method] = bound
        return bound


def late_functions(
    parts: Iterable[Part], limiter: Binder
) -> list[Callable[..., object]]:
    """
    Return the functions of *parts* that FastAPI has to solve, each once.

    Args:
        parts: The limits.
        limiter: The limiter of the router.
    """
    functions: list[Any] = [
        function
        for part in parts
        for limit in part.limits
        for function in (
            limit.key_func or (part.limiter or limiter).key_func,
            limit.quota,
            limit.cost,
        )
    ]
    return [*{id(each): each for each in functions if is_late(each)}.values()]


class Held(NamedTuple):
    """
    A limit that an endpoint is held to.

    Attributes:
        limit: The limit.
        limiter: Who holds it to that.
        by_dependency: Whether a dependency does.
    """

    limit: Limit
    limiter: Binder
    by_dependency: bool

    @property
    def text(self) -> str:
        """The quota, or ``"dynamic"`` if a function chooses it."""
        return str(self.limit.quota) if self.is_static else "dynamic"

    @property
    def is_static(self) -> bool:
        """Whether the quota is known beforehand."""
        return isinstance(self.limit.quota, Quota)

    @property
    def denies(self) -> bool:
        """Whether requests are denied while the store is unavailable."""
        return (self.limit.on_store_error or self.limiter.on_store_error) == "deny"
