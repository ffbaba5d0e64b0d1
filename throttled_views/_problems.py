"""What is wrong with a route that is registered all the same, and what to write."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from throttled_views._binding import is_same
from throttled_views._captures import captor_of, captured_methods
from throttled_views._endpoints import is_guarded
from throttled_views._found import Found
from throttled_views._functions import check_connection
from throttled_views._insides import is_decorated
from throttled_views._kinds import members_of
from throttled_views._methods import WEBSOCKET
from throttled_views.errors import ViewDefinitionError
from throttled_views.keys import ClientIP
from throttled_views.limiter import Limiter
from throttled_views.routing import ThrottledRoute

__all__ = ["problem_of"]


def problem_of(found: Found, limited: Sequence[Any]) -> str | None:
    """Return what is wrong with a route; *limited* are endpoints with limits."""
    return (
        _problem_of_mounts(found)
        or _problem_of_sockets(found)
        or _problem_of_addresses(found)
        or _problem_of_kind(found)
        or _problem_of_decorators(found, limited)
        or _problem_of_order(found)
    )


def _problem_of_mounts(found: Found) -> str | None:
    plans = [*found.own_plans(), *found.plans_of_dependencies()]
    if not found.root.parameters or not any(plan.is_placed for plan in plans):
        return None
    return (
        f"It is below a mount, or a host, with the parameter "
        f"{found.root.parameters[0]!r}, and every request is an error: "
        "route_key=by_template refuses its values. Leave it at route_key=by_endpoint"
    )


def _problem_of_sockets(found: Found) -> str | None:
    rules = [rule for each in found.outer for rule in each.rules if found.is_socket]
    try:
        for rule in rules:
            functions = rule.key_func, rule.limit.quota, rule.limit.cost
            check_connection(WEBSOCKET, *functions)
    except ViewDefinitionError as error:
        return f"RateLimitMiddleware fails here. {error}"
    return None


def _problem_of_addresses(found: Found) -> str | None:
    """Tell of a limit that takes proxies, which its limiter knows, for clients."""
    plans = [*found.own_plans(), *found.plans_of_dependencies()]
    rules = [(plan.machinery, rule) for plan in plans for rule in plan.rules]
    rules += [(each.limiter, rule) for each in found.outer for rule in each.rules]
    for limiter, rule in rules:
        key_func = cast("Limiter", limiter).key_func
        if not isinstance(key_func, ClientIP) or not key_func.trusted_proxies:
            continue
        if rule.key_func and any(map(_knows_no_proxies, members_of(rule.key_func))):
            return (
                f"Limit {rule.name!r} has client_ip, which knows no proxies, while its "
                "limiter trusts some: all clients behind one share its count. Give it "
                "the ClientIP of the limiter, also as header_key(…, otherwise=…)"
            )
    return None


def _knows_no_proxies(key_func: object) -> bool:
    return isinstance(key_func, ClientIP) and not key_func.trusted_proxies


def _problem_of_kind(found: Found) -> str | None:
    """Tell of what was taken from a router of ours, whose routes decide its limits."""
    is_of_ours = isinstance(found.route, ThrottledRoute) or is_guarded(found.endpoint)
    if is_of_ours or not found.declaration.parts or found.declaration.limits_others:
        return None
    return (
        f"{found.declaration.name} says what it is limited to, and this route is none "
        "of a ThrottledRouter, which would decide it. Register it on one"
    )


def _problem_of_decorators(found: Found, limited: Sequence[Any]) -> str | None:
    declaration = found.declaration
    if declaration.parts or not is_decorated(declaration.owner):
        return None
    if any(is_same(declaration.owner, each) for each in limited):
        return None  # another route serves it with its limits, so this one is meant
    return (
        f"{declaration.name} is decorated with @limiter.limit above the decorator of "
        "the route, which limits nothing here. Write it below"
    )


def _problem_of_order(found: Found) -> str | None:
    captor = found.captor
    if captor is None:
        return None
    methods = "+".join(sorted(captured_methods(found, captor)))
    advice = f"Register {captor.name} after it, or give one of them another path"
    if captor_of(captor, [found]):  # in another order it would be the other way round
        advice = "Give one of them another path"
    return (
        f"{methods if found.methods else 'All'} requests to {found.name} at "
        f"{found.path!r} come to the earlier {captor.name} at {captor.path!r}. {advice}"
    )
