"""``routes``: what each route of an application is limited to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from rich.text import Text

from throttled_views.auditing import AuditedLimit, AuditedRoute
from throttled_views.cli._console import lines, output, print_json, table_of
from throttled_views.quotas import Algorithm

__all__ = ["is_fine", "print_routes"]


def is_fine(route: AuditedRoute) -> bool:
    """Tell whether *route* is limited, or meant not to be, and nothing is wrong."""
    return not route.is_unlimited and route.problem is None


def print_routes(routes: Sequence[AuditedRoute], *, as_json: bool) -> None:
    """Print *routes*, a row for each."""
    if as_json:
        print_json(
            [{**asdict(each), "is_unlimited": each.is_unlimited} for each in routes]
        )
        return
    table = table_of("Methods", "Path", "Name", "Limits", "Keys", "Phases", "Notes")
    for each in routes:
        table.add_row(
            Text("+".join(each.methods) or "any"),
            Text(each.path or "/"),
            Text(each.name),
            _limits(each),
            lines(limit.key for limit in each.limits),
            lines(limit.phase for limit in each.limits),
            _notes(each),
        )
    output().print(table)


def _limits(route: AuditedRoute) -> Text:
    if route.is_unlimited:
        return Text("UNLIMITED", "bold red")
    return lines(_limit(each) for each in route.limits)


def _limit(limit: AuditedLimit) -> Text:
    """Return a limit, with whatever of it is not as usual."""
    notes = [
        limit.quota,
        "" if limit.name.isdecimal() else f"({limit.name})",
        "" if limit.using is Algorithm.TOKEN_BUCKET else f"by {limit.using}",
        "" if limit.cost == 1 else f"cost {limit.cost or 'dynamic'}",
        f"bucket {limit.bucket}" if limit.bucket else "",
        "" if limit.enabled else "switched off",
    ]
    return Text(" ".join(filter(None, notes)), "" if limit.enabled else "yellow")


def _notes(route: AuditedRoute) -> Text:
    notes = [Text(route.exempt, "yellow")] if route.exempt else []
    notes += [Text(route.problem, "red")] if route.problem else []
    return lines(notes)
