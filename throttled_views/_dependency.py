"""
Dependencies that limit what cannot be decorated: ``Depends(limiter.dependency(…))``.

One of them may be used on many endpoints, which it learns of by their first requests.
Each has counts of its own.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from threading import Lock

from throttled_views._binding import name_of
from throttled_views._declaration import (
    Declaration,
    declaration_of,
    declare,
    limiting_dependencies,
)
from throttled_views._exchange import Exchange, dependency_on
from throttled_views._guard import decide, write
from throttled_views._methods import methods_of
from throttled_views._parts import Binder, Part, late_functions
from throttled_views._plan import Plan, plan_of
from throttled_views._scopes import context_of
from throttled_views.context import RateLimitContext
from throttled_views.errors import ConfigurationError
from throttled_views.limits import Limit, limit_text
from throttled_views.route_keys import routes_below

__all__ = ["Names", "dependency_of"]


class Names:
    """
    What the limits of dependencies are called, by the endpoints that they are for.

    Attributes:
        lock: Held by who gives names: two threads would give a limit two, and counts.
    """

    def __init__(self) -> None:
        self.lock = Lock()
        self._taken: dict[str, set[str]] = {}

    def named(self, limits: Sequence[Limit], on: str) -> list[Limit]:
        """Return *limits* with names that no other dependency of an endpoint has."""
        taken = self._taken.setdefault(on, set())
        named: list[Limit] = []
        for limit in limits:
            name = wanted = limit.name or f"dependency {limit_text(limit)}"
            while name in taken:
                name = f"{wanted} #{len(taken) + 1}"
            if limit.bucket is None:
                taken.add(name)
                limit = replace(limit, name=name)  # noqa: PLW2901 - the same, named
            named.append(limit)
        return named


def dependency_of(
    limiter: Binder, limits: tuple[Limit, ...], names: Names
) -> Callable[..., Awaitable[RateLimitContext]]:
    """
    Return a dependency that holds what it is used on to *limits*.

    Args:
        limiter: The limiter that it is of.
        limits: The limits.
        names: Those of all dependencies of *limiter*.

    Raises:
        ConfigurationError: A limit wants to see the response.
    """
    if any(each.refund_when is not None for each in limits):
        msg = (
            "A dependency does not see the response, so it cannot refund_when. "
            "Write @limiter.limit(…, refund_when=…) on the function"
        )
        raise ConfigurationError(msg)
    plans = _Plans(limiter, limits, names)
    parts = [Part(limiter, limits)]
    dependency = dependency_on(late_functions(parts, limiter), plans.hold)
    declare(dependency, Declaration(dependency, parts=parts, plan_on=plans.plan_on))
    return dependency


async def _files() -> None:
    """Stand for what has dependencies and no endpoint: the files of a frontend."""


class _Plans:
    """The plans of one dependency, one for each endpoint that it is used on."""

    def __init__(
        self, limiter: Binder, limits: tuple[Limit, ...], names: Names
    ) -> None:
        self._limiter = limiter
        self._limits = limits
        self._names = names
        # With the endpoint, which may have no hash, so that its id stays its own.
        self._plans: dict[tuple[int, str], tuple[object, Plan]] = {}

    async def hold(self, exchange: Exchange) -> RateLimitContext:
        """Charge a request, and write the outcome on its response."""
        scope = exchange.connection.scope
        endpoint = scope.get("endpoint", _files)
        plan = self.plan_on(endpoint, methods_of(scope), scope.get("router"))
        await decide([plan], scope, exchange.solved)
        write(exchange.response, scope)
        return context_of(scope)

    def plan_on(self, endpoint: object, methods: str, router: object = None) -> Plan:
        """Return what *endpoint*, which is on *router*, is charged."""
        declaration = declaration_of(endpoint)
        methods = declaration.methods or methods
        key = id(endpoint), methods
        if key not in self._plans:
            with self._names.lock:
                if key not in self._plans:
                    self._number_all(router, name_of(declaration.owner))
                    self._plans[key] = endpoint, self._made(declaration, methods)
        return self._plans[key][1]

    def _made(self, declaration: Declaration, methods: str) -> Plan:
        limiter = self._limiter
        route = declaration.route(limiter, in_request=True)
        named = self._names.named(self._limits, f"{methods} {route}")
        rules = limiter.bind(named, method=methods, route=route, by_dependency=True)
        return plan_of(limiter, rules)

    def _number_all(self, router: object, name: str) -> None:
        """Number those of a *name* by order of registration, and not of requests."""
        for each in routes_below(router):
            owner = declaration_of(getattr(each, "endpoint", None)).owner
            if name_of(owner) == name and self._limits_route(each):
                self._limiter.number_of(owner, name, in_request=True)

    def _limits_route(self, route: object) -> bool:
        """Tell whether a dependency of this limiter limits *route*."""
        return any(
            part.limiter is self._limiter
            for dependency in limiting_dependencies(getattr(route, "dependant", None))
            for part in dependency.parts
        )
