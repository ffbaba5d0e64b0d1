"""``routes``: what each route of an application is limited to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from rich.text import Text

from throttled_views.auditing import AuditedLimit, AuditedRoute
from throttled_views.cli._console import output, print_json, table_of
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
        # A row for each limit, so that all of it stays in a line in any width.
        first, *further = _limits(each)
        methods = "+".join(each.methods) or "any"
        table.add_row(
            methods, Text(each.path or "/"), Text(each.name), *first, _notes(each)
        )
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
