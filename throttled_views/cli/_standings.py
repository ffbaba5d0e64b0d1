"""Where keys stand, and which were reset, as ``peek`` and ``reset`` print it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rich.text import Text

from throttled_views.cli._console import duration_text, output, print_json, table_of
from throttled_views.quotas import Quota
from throttled_views.results import RateLimitResult

__all__ = ["Peek", "Reset", "print_peeks", "print_resets"]

_US_PER_S = 1_000_000


class Peek(NamedTuple):
    """Where a key stands."""

    name: str
    quota: Quota
    key: str
    result: RateLimitResult


class Reset(NamedTuple):
    """A key that was reset, and whether it was counted; None if that is not known."""

    name: str
    key: str
    was_counted: bool | None


def print_peeks(peeks: Sequence[Peek], *, as_json: bool) -> None:
    """Print where a client stands, a row for each limit."""
    if as_json:
        print_json([_peek_data(each) for each in peeks])
        return
    table = table_of("Limit", "Quota", "Remaining", "Full in", "Next request", "Key")
    for name, quota, key, result in peeks:
        state = result.state
        table.add_row(
            Text(name),
            Text(str(quota)),
            Text(f"{state.remaining} of {state.limit}"),
            Text(_seconds_text(state.reset_after)),
            _next_request(state.retry_after, result.delay),
            Text(key),
        )
    output().print(table)


def _peek_data(peek: Peek) -> dict[str, object]:
    state = peek.result.state
    return {
        "name": peek.name,
        "quota": str(peek.quota),
        "key": peek.key,
        "limited": peek.result.limited,
        "limit": state.limit,
        "remaining": state.remaining,
        "reset_after": state.reset_after,
        "retry_after": state.retry_after,
        "delay": peek.result.delay,
    }


def _next_request(retry_after: float | None, delay: float) -> Text:
    if retry_after is None:
        return Text("never", "red")
    if retry_after:
        return Text(f"in {_seconds_text(retry_after)}", "yellow")
    if delay:
        return Text(f"waits {_seconds_text(delay)}", "yellow")
    return Text("now", "green")


def _seconds_text(seconds: float) -> str:
    return duration_text(round(seconds * _US_PER_S))


def print_resets(resets: Sequence[Reset], *, as_json: bool) -> None:
    """Print what was reset, a line for each limit."""
    if as_json:
        print_json([each._asdict() for each in resets])
        return
    for name, key, was_counted in resets:
        is_new = was_counted is False
        done = "Nothing was counted for limit" if is_new else "Reset limit"
        output().print(Text(f"{done} {name!r}: {key}"), soft_wrap=True)
