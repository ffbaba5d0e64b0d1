"""Handlers, as a person calls them, and what counts their requests."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from starlette.types import ASGIApp

from throttled_views._found import Found
from throttled_views._rules import Rule
from throttled_views._walk import walk
from throttled_views.cli._mistakes import CommandError
from throttled_views.stores.base import Store

__all__ = ["Counted", "counted_for"]

_APP = "APP"  # what stands for the handler where a middleware limits the application


_PARAMETER = re.compile(r"\{[^{}]*\}")


class Counted(NamedTuple):
    """A limit of a route, the store that counts it, and the route."""

    rule: Rule
    store: Store
    found: Found


def counted_for(app: ASGIApp, handler: str, limit: str | None) -> Sequence[Counted]:
    """
    Return what counts the requests to a handler, each limit once.

    Args:
        app: The application.
        handler: What a person calls it: its name, with or without the module, or its
            path, with or without the method; ``APP`` for the application as a whole.
        limit: Name of the one limit that is meant; None for all.

    Raises:
        CommandError: There is no such handler or limit, or more than one.
    """
    counted = {
        (each.rule.head, each.rule.tail, id(each.store)): each
        for found in _found(app, handler)
        for each in _counted(found, handler)
    }.values()
    if not counted:
        msg = f"{handler!r} has no limits. `throttled-views routes` tells why"
        raise CommandError(msg)
    meant = [each for each in counted if limit in (None, each.rule.name)]
    if not meant:
        names = ", ".join(repr(each.rule.name) for each in counted)
        msg = f"{handler!r} has no limit {limit!r}. Write one of {names}"
        raise CommandError(msg)
    return meant


def _found(app: ASGIApp, handler: str) -> Sequence[Found]:
    """Return the routes of *app* that *handler* serves; all of them for `_APP`."""
    found = [*walk(app)]
    if handler == _APP:  # whose requests are for no route
        of_http = [each for each in found if not each.is_socket]
        return [each._replace(path="/") for each in of_http or found]
    named = [each for each in found if _is_called(each, handler)]
    names = sorted({each.declaration.name for each in named})
    if not names:
        templates = [each for each in found if _is_of_template(each, handler)]
        if templates:
            method, _, _ = handler.rpartition(" ")
            [first, *_] = templates
            msg = (
                f"{handler!r} is one of many paths, which count together. Write the "
                f"template, {f'{method} {first.path}'.strip()!r}"
            )
            raise CommandError(msg)
        msg = (
            f"No route is called {handler!r}. Write Class.handler, function, "
            "'GET /path', or APP for what limits the application as a whole; "
            "`throttled-views routes` lists them"
        )
        raise CommandError(msg)
    if len(names) > 1:
        msg = f"{handler!r} may be any of {', '.join(names)}. Write one of them"
        raise CommandError(msg)
    return named


def _is_called(found: Found, handler: str) -> bool:
    names = found.name, found.path, *(f"{each} {found.path}" for each in found.methods)
    return handler in names or f".{found.declaration.name}".endswith(f".{handler}")


def _is_of_template(found: Found, handler: str) -> bool:
    """Tell whether *handler* is a path, with or without a method, that *found* has."""
    method, _, path = handler.rpartition(" ")
    texts = map(re.escape, _PARAMETER.split(found.path))
    is_of_method = not method or method in found.methods
    return is_of_method and re.fullmatch(".+".join(texts), path) is not None


def _counted(found: Found, handler: str) -> Iterator[Counted]:
    if handler == _APP:
        for each in found.outer:
            yield from (Counted(rule, each.limiter.store, found) for rule in each.rules)
        return
    for plan in (*found.own_plans(), *found.plans_of_dependencies()):
        for rule in plan.rules:
            placed = rule
            if plan.is_placed:
                placed = rule.at(found.place(plan.machinery.route_key))
            yield Counted(placed, plan.machinery.store, found)
