"""
What each route of an application is limited to, and which are not limited.

It asks the application as it is, through routers, mounts and middleware. What it cannot
look into is a route without limits: nothing is left out.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from fastapi import FastAPI
from starlette.types import ASGIApp

from throttled_views._early import called
from throttled_views._found import Found
from throttled_views._marks import LIMITS_MARK
from throttled_views._plan import Plan
from throttled_views._problems import problem_of
from throttled_views._rules import Rule
from throttled_views._walk import walk
from throttled_views.hooks import CheckPhase
from throttled_views.limiter import default_limiter
from throttled_views.limits import Exempt
from throttled_views.quotas import Algorithm, Quota
from throttled_views.results import OnStoreError
from throttled_views.routing import ThrottledRoute

__all__ = ["AuditedLimit", "AuditedRoute", "audit"]

# As a request meets them; what is checked by hand is of no route.
_ORDER: tuple[CheckPhase, ...] = ("app", "early", "late")


@dataclass(frozen=True, slots=True)
class AuditedLimit:
    """
    A limit of a route.

    Attributes:
        name: Its name, or its position among the limits of its handler.
        quota: Its quota as text, or ``"dynamic"`` if a function chooses it.
        algorithm: How it is counted.
        cost: What a request costs; None if a function tells.
        key_func: The key function that names clients.
        phase: When it is checked; that of a dependency is late.
        route: What is counted: the identity of the handler, or the template of its
            path where those count; or the name of a bucket.
        bucket: The bucket that it shares with other handlers, if it does.
        on_store_error: What is done with a request while the store is unavailable.
        enabled: Whether its limiter limits at the moment.
        shadow: Whether it is only observed, and never enforced.
        max_delay: Seconds that a request may wait for its turn.
        refunds: Whether the response decides if a request is charged.
    """

    name: str
    quota: str
    algorithm: Algorithm
    cost: int | None
    key_func: str
    phase: CheckPhase
    route: str
    bucket: str | None
    on_store_error: OnStoreError
    enabled: bool
    shadow: bool
    max_delay: float
    refunds: bool


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
        """
        Whether nothing limits it, and nothing says that this is meant.

        What is only observed limits nothing.
        """
        return all(each.shadow for each in self.limits) and self.exempt is None


def audit(app: ASGIApp) -> tuple[AuditedRoute, ...]:
    """
    Return every route of *app*, with what limits it.

    In a test it keeps an application from becoming unlimited unnoticed::

        assert [] == [each.path for each in audit(app) if each.is_unlimited]

    Args:
        app: An application of FastAPI or Starlette, a router, or middleware around one.
    """
    found = [*walk(app)]
    limited = [each.endpoint for each in found if each.declaration.parts]
    return tuple(_audited(each, limited) for each in found)


def _audited(found: Found, limited: Sequence[Any]) -> AuditedRoute:
    """Return what there is to tell of a route; *limited* are endpoints with limits."""
    own = [*_own_limits(found)]
    # Dependencies are solved before their handler is limited, of what is late.
    limits = [*_limits_of_application(found), *_limits_of_dependencies(found), *own]
    limits.sort(key=lambda limit: _ORDER.index(limit.phase))
    return AuditedRoute(
        found.path,
        found.methods,
        found.name,
        tuple(limits),
        None if own else _exemption(found),
        problem_of(found, limited),
    )


def _limits_of_application(found: Found) -> Iterator[AuditedLimit]:
    for each in found.outer:
        for rule in each.rules:
            yield _limit(rule, each.limiter, "app", rule.route)


def _own_limits(found: Found) -> Iterator[AuditedLimit]:
    early: list[Rule] = []
    if isinstance(found.route, ThrottledRoute):
        early += [rule for plan in found.route.plans for rule in plan.rules]
    for plan in found.own_plans():
        for rule in plan.rules:
            phase: CheckPhase = "early" if rule in early else "late"
            yield _limit(rule, plan.machinery, phase, _route(found, plan, rule))


def _limits_of_dependencies(found: Found) -> Iterator[AuditedLimit]:
    for plan in found.plans_of_dependencies():
        for rule in plan.rules:
            yield _limit(rule, plan.machinery, "late", _route(found, plan, rule))


def _route(found: Found, plan: Plan, rule: Rule) -> str:
    if plan.is_placed and rule.limit.bucket is None:
        return found.place(plan.machinery.route_key)
    return rule.route


def _exemption(found: Found) -> str | None:
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


def _serves_document(found: Found) -> bool:
    app, module = found.app, getattr(found.endpoint, "__module__", "")
    if not isinstance(app, FastAPI) or module != FastAPI.__module__:
        return False
    return found.route.path in (
        app.openapi_url,
        app.docs_url,
        app.redoc_url,
        app.swagger_ui_oauth2_redirect_url,
    )


def _limit(rule: Rule, limiter: Any, phase: CheckPhase, route: str) -> AuditedLimit:
    limit = rule.limit
    return AuditedLimit(
        name=rule.name,
        quota=str(limit.quota) if isinstance(limit.quota, Quota) else "dynamic",
        algorithm=rule.using,
        cost=limit.cost if isinstance(limit.cost, int) else None,
        key_func=called(rule.key_func),
        phase=phase,
        route=route,
        bucket=limit.bucket,
        on_store_error=limit.on_store_error or limiter.on_store_error,
        enabled=limiter.enabled,
        shadow=limit.shadow,
        max_delay=limit.max_delay,
        refunds=limit.refund_when is not None,
    )
