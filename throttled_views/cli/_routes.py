"""``routes``: what each route of an application is limited to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from rich.text import Text

from throttled_views.auditing import AuditedLimit, AuditedRoute
from throttled_views.cli._console import output, print_json, table_of
from throttled_views.quotas import Algorithm

__all__ = ["faults_of", "print_routes"]


def faults_of(routes: Sequence[AuditedRoute]) -> str:
    """Return which *routes* are unlimited or have a problem; nothing if all is well."""
    unlimited = [each for each in routes if each.is_unlimited]
    faulty = [each for each in routes if each.problem is not None]
    faults = (
        _named(unlimited, "route is unlimited", "routes are unlimited"),
        _named(faulty, "route has a problem", "routes have a problem"),
    )
    return "; ".join(filter(None, faults))


def _named(routes: Sequence[AuditedRoute], one: str, many: str) -> str:
    names = ", ".join(f"{_methods(each)} {_path(each)}" for each in routes)
    what = one if len(routes) == 1 else many
    return f"{len(routes)} {what}: {names}" if routes else ""


def _methods(route: AuditedRoute) -> str:
    return "+".join(route.methods) or "any"


def _path(route: AuditedRoute) -> str:
    return route.path or "/"


def print_routes(routes: Sequence[AuditedRoute], *, as_json: bool) -> None:
    """Print *routes*, a row for each."""
    if as_json:
        print_json(
            [{**asdict(each), "is_unlimited": each.is_unlimited} for each in routes]
        )
        return
    table = table_of("Methods", "Path", "Name", "Limits", "Keys", "Phases", "Notes")
    for each in routes:
        # A row for each limit, so that all of it stays in a line in any width.
        first, *further = _limits(each)
        route = _methods(each), Text(_path(each)), Text(each.name)
        table.add_row(*route, *first, _notes(each))
        for limit in further:
            table.add_row("", "", "", *limit)
    output().print(table)


def _limits(route: AuditedRoute) -> list[tuple[Text, Text, str]]:
    """Return a limit of *route*, its key function and its phase for each row."""
    if not route.limits:
        text = Text("UNLIMITED", "bold red") if route.is_unlimited else Text()
        return [(text, Text(), "")]
    return [(_limit(each), Text(each.key_func), each.phase) for each in route.limits]


def _limit(limit: AuditedLimit) -> Text:
    """Return a limit, with whatever of it is not as usual."""
    notes = [
        limit.quota,
        "" if limit.name.isdecimal() else f"({limit.name})",
        "" if limit.algorithm is Algorithm.TOKEN_BUCKET else f"by {limit.algorithm}",
        "" if limit.cost == 1 else f"cost {limit.cost or 'dynamic'}",
        f"bucket {limit.bucket}" if limit.bucket else "",
        f"waits up to {limit.max_delay:g} s" if limit.max_delay else "",
        "refunded by status" if limit.refunds else "",
        "in shadow" if limit.shadow else "",
        "" if limit.enabled else "switched off",
    ]
    is_enforced = limit.enabled and not limit.shadow
    return Text(" ".join(filter(None, notes)), "" if is_enforced else "yellow")


def _notes(route: AuditedRoute) -> Text:
    notes = [Text(route.exempt, "yellow")] if route.exempt else []
    notes += [Text(route.problem, "red")] if route.problem else []
    return Text("\n").join(notes)
