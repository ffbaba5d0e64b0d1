"""
What each route of an application is limited to, and which are not limited.

It asks the application as it is, through routers, mounts and middleware. What it cannot
look into is a route without limits: nothing is left out.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple, TypeAlias

from fastapi import FastAPI
from starlette.routing import Host, Mount, WebSocketRoute
from starlette.types import ASGIApp

from throttled_views._binding import is_same, name_of
from throttled_views._declaration import (
    WEBSOCKET,
    Declaration,
    declaration_of,
    is_decorated,
    joined,
    limiting_dependencies,
)
from throttled_views._early import called
from throttled_views._functions import check_connection
from throttled_views._plan import Plan
from throttled_views.errors import ViewDefinitionError
from throttled_views.limiter import default_limiter
from throttled_views.limits import Exempt
from throttled_views.middleware import RateLimitMiddleware
from throttled_views.quotas import Algorithm, Quota
from throttled_views.results import OnStoreError
from throttled_views.route_keys import flat
from throttled_views.routing import LIMITS_MARK, ThrottledRoute
from throttled_views.throttled import Rule

__all__ = ["AuditedLimit", "AuditedRoute", "DecisionPhase", "audit"]

DecisionPhase: TypeAlias = Literal["app", "early", "dependency", "late"]
"""When a limit is decided: phases in the order in which a request meets them."""

_ORDER: tuple[DecisionPhase, ...] = ("app", "early", "dependency", "late")


@dataclass(frozen=True, slots=True)
class AuditedLimit:
    """
    A limit of a route.

    Attributes:
        name: Its name, or its position among the limits of its handler.
        quota: Its quota as text, or ``"dynamic"`` if a function chooses it.
        using: The algorithm that counts.
        cost: What a request costs; None if a function tells.
        key: The key function that names clients.
        phase: When it is decided.
        identity: What it counts: the handler, as keys have it, or the bucket.
        bucket: The bucket that it shares with other handlers, if it does.
        on_store_error: What is done with a request while the store is unavailable.
        enabled: Whether its limiter limits at the moment.
    """

    name: str
    quota: str
    using: Algorithm
    cost: int | None
    key: str
    phase: DecisionPhase
    identity: str
    bucket: str | None
    on_store_error: OnStoreError
    enabled: bool


@dataclass(frozen=True, slots=True)
class AuditedRoute:
    """
    A route of an application, and what limits it.

    Attributes:
        path: Its path as a template, with the prefixes of routers and mounts. That of a
            host begins with ``//`` and its name.
        methods: Its methods, sorted; ``WEBSOCKET`` for a socket, and none for an
            application that cannot be looked into.
        name: Its name.
        limits: Its limits, in the order in which they are decided.
        exempt: What makes it unlimited on purpose, as it is written; None if nothing
            does.
        problem: What is wrong with it, and what to write instead; None if nothing is.
    """

    path: str
    methods: tuple[str, ...]
    name: str
    limits: tuple[AuditedLimit, ...] = ()
    exempt: str | None = None
    problem: str | None = None

    @property
    def is_unlimited(self) -> bool:
        """Whether nothing limits it, and nothing says that this is meant."""
        return not self.limits and self.exempt is None


def audit(app: ASGIApp) -> tuple[AuditedRoute, ...]:
    """
    Return every route of *app*, with what limits it.

    In a test it keeps an application from becoming unlimited unnoticed::

        assert [] == [each.path for each in audit(app) if each.is_unlimited]

    Args:
        app: An application of FastAPI or Starlette, a router, or middleware around one.
    """
    found = [*_found_in(app, "", (), _Root())]
    limited = [each.endpoint for each in found if each.declaration.parts]
    return tuple(_audited(each, limited) for each in found)


# --- where routes are -----------------------------------------------------------------


class _Root(NamedTuple):
    """
    The ``root_path`` that requests have somewhere, as far as the application knows.

    Attributes:
        path: All of it, with the mounts.
        outermost: What the outermost application is given; None before there is one.
        parameters: Those of mounts and hosts.
    """

    path: str = ""
    outermost: str | None = None
    parameters: tuple[str, ...] = ()

    def of(self, app: Any) -> _Root:
        """Return what requests have in *app*, which may have been given one."""
        path = getattr(app, "root_path", "") or self.path
        outermost = path if self.outermost is None else self.outermost
        return self._replace(path=path, outermost=outermost)

    def below(self, node: Any) -> _Root:
        """Return what requests have below *node*, a mount or a host."""
        path = self.path + (getattr(node, "path", None) or "")
        names = [each for each in node.param_convertors if each != "path"]
        return self._replace(path=path, parameters=(*self.parameters, *names))


class _Found(NamedTuple):
    """
    A route, and where it was found.

    Attributes:
        route: The route, as it was registered.
        here: The same, as it is where its routers are included.
        path: The whole path.
        app: The application that it is of.
        outer: The middleware that limits it from outside.
        root: What is before the template of its path, in keys that have that.
    """

    route: Any
    here: Any
    path: str
    app: Any
    outer: Sequence[RateLimitMiddleware]
    root: _Root

    @property
    def endpoint(self) -> Any:
        """What serves it."""
        return getattr(self.route, "endpoint", self.route)

    @property
    def declaration(self) -> Declaration:
        """What its endpoint says of itself."""
        return declaration_of(self.endpoint)

    def place(self, route_key: Any) -> str:
        """Return what keys have by template, without what a server adds."""
        root = self.root.path
        if not route_key.root_path:
            root = root.removeprefix(self.root.outermost or "")
        return f"{root}{self.here.path_format}"

    @property
    def is_socket(self) -> bool:
        """Whether it serves WebSockets."""
        return isinstance(self.route, WebSocketRoute)

    @property
    def methods(self) -> tuple[str, ...]:
        """Its methods, sorted."""
        if self.is_socket:
            return (WEBSOCKET,)
        return tuple(sorted(getattr(self.here, "methods", None) or ()))

    @property
    def name(self) -> str:
        """Its name."""
        return getattr(self.here, "name", None) or name_of(self.route)


def _found_in(
    app: Any, prefix: str, outer: Sequence[RateLimitMiddleware], root: _Root
) -> Iterator[_Found]:
    limits = [*outer]
    while not isinstance(getattr(app, "routes", None), Sequence):
        limits += [app] if isinstance(app, RateLimitMiddleware) else []
        if not hasattr(app, "app"):
            yield _Found(app, app, prefix, None, limits, root)
            return
        app = app.app
    root = root.of(app)
    for each in getattr(app, "user_middleware", ()):
        if isinstance(each.cls, type) and issubclass(each.cls, RateLimitMiddleware):
            # Around the routes alone: whether the order is right is not for us to say.
            limits.append(each.cls(app.router, *each.args, **each.kwargs))
    for route, here in flat(app.routes):
        path = prefix + (getattr(here, "path", None) or "")
        if isinstance(route, Mount):
            yield from _found_in(route.app, path, limits, root.below(here))
        elif isinstance(route, Host):
            yield from _found_in(
                route.app, f"//{here.host}{prefix}", limits, root.below(here)
            )
        else:
            yield _Found(route, here, path, app, limits, root)


# --- what limits them -----------------------------------------------------------------


def _audited(found: _Found, limited: Sequence[Any]) -> AuditedRoute:
    """Return what there is to tell of a route; *limited* are endpoints with limits."""
    own = _own_limits(found)
    exemption = None if own else _exemption(found)
    limits = [
        _limit(rule, each.limiter, "app") for each in found.outer for rule in each.rules
    ]
    limits += [*own, *_of_plans(found, _plans_of_dependencies(found), "dependency")]
    limits.sort(key=lambda limit: _ORDER.index(limit.phase))
    return AuditedRoute(
        found.path,
        found.methods,
        found.name,
        tuple(limits),
        exemption,
        _problem(found, limited),
    )


def _own_limits(found: _Found) -> Sequence[AuditedLimit]:
    early: list[Rule] = []
    if isinstance(found.route, ThrottledRoute):
        early += [rule for plan in found.route.plans for rule in plan.rules]
    return _of_plans(found, _own_plans(found), "late", early)


def _own_plans(found: _Found) -> Sequence[Plan]:
    route, declaration = found.route, found.declaration
    if isinstance(route, ThrottledRoute):
        return route.all_plans
    methods = joined(found.methods)
    for limiter in filter(None, (part.limiter for part in declaration.parts)):
        return declaration.plans(limiter, methods)
    # Of a socket on a router of ours, which has made them when it was registered.
    return declaration.made(methods)


def _plans_of_dependencies(found: _Found) -> Sequence[Plan]:
    dependencies = limiting_dependencies(getattr(found.here, "dependant", None))
    methods = joined(found.methods)
    return [
        plan for each in dependencies for plan in each.plans_on(found.endpoint, methods)
    ]


def _exemption(found: _Found) -> str | None:
    """Return what makes a route without limits of its own one that is meant so."""
    route, declaration = found.route, found.declaration
    if _serves_document(found):
        return "FastAPI's documentation"
    if declaration.handler and declaration.exempt:
        raw = inspect.getattr_static(declaration.owner, declaration.handler)
        return "@exempt" if hasattr(raw, LIMITS_MARK) else "throttle = EXEMPT"
    if declaration.exempt:
        return "@limiter.exempt"
    limiter = isinstance(route, ThrottledRoute) and (route.limiter or default_limiter())
    if limiter and isinstance(limiter.default, Exempt):
        return "Limiter(EXEMPT)"
    return None


def _serves_document(found: _Found) -> bool:
    app, module = found.app, getattr(found.endpoint, "__module__", "")
    if not isinstance(app, FastAPI) or module != FastAPI.__module__:
        return False
    return found.route.path in (
        app.openapi_url,
        app.docs_url,
        app.redoc_url,
        app.swagger_ui_oauth2_redirect_url,
    )


def _problem(found: _Found, limited: Sequence[Any]) -> str | None:
    """Return what is wrong with a route; *limited* are endpoints with limits."""
    return (
        _problem_of_mounts(found)
        or _problem_of_sockets(found)
        or _problem_of_decorators(found, limited)
    )


def _problem_of_mounts(found: _Found) -> str | None:
    plans = [*_own_plans(found), *_plans_of_dependencies(found)]
    if not found.root.parameters or not any(plan.is_placed for plan in plans):
        return None
    return (
        f"It is below a mount, or a host, with the parameter "
        f"{found.root.parameters[0]!r}, and every request is an error: "
        "route_key=by_template refuses its values. Leave it at route_key=by_endpoint"
    )


def _problem_of_sockets(found: _Found) -> str | None:
    rules = [rule for each in found.outer for rule in each.rules if found.is_socket]
    try:
        for rule in rules:
            functions = rule.key_func, rule.limit.quota, rule.limit.cost
            check_connection(WEBSOCKET, *functions)
    except ViewDefinitionError as error:
        return f"RateLimitMiddleware fails here. {error}"
    return None


def _problem_of_decorators(found: _Found, limited: Sequence[Any]) -> str | None:
    declaration = found.declaration
    if declaration.parts or not is_decorated(declaration.owner):
        return None
    if any(is_same(declaration.owner, each) for each in limited):
        return None  # another route serves it with its limits, so this one is meant
    return (
        f"{declaration.name} is decorated with @limiter.limit above the decorator of "
        "the route, which limits nothing here. Write it below"
    )


def _of_plans(
    found: _Found,
    plans: Iterable[Plan],
    phase: DecisionPhase,
    early: Sequence[Rule] = (),
) -> list[AuditedLimit]:
    return [
        replace(
            _limit(rule, plan.machinery, "early" if rule in early else phase),
            identity=found.place(plan.machinery.route_key)
            if plan.is_placed and rule.limit.bucket is None
            else rule.route,
        )
        for plan in plans
        for rule in plan.rules
    ]


def _limit(rule: Rule, limiter: Any, phase: DecisionPhase) -> AuditedLimit:
    limit = rule.limit
    return AuditedLimit(
        name=rule.name,
        quota=str(limit.quota) if isinstance(limit.quota, Quota) else "dynamic",
        using=rule.using,
        cost=limit.cost if isinstance(limit.cost, int) else None,
        key=called(rule.key_func),
        phase=phase,
        identity=rule.route,
        bucket=limit.bucket,
        on_store_error=limit.on_store_error or limiter.on_store_error,
        enabled=limiter.enabled,
    )
