"""``peek`` and ``reset``: where one client stands with one handler."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from copy import copy
from dataclasses import dataclass, replace
from typing import NamedTuple

from rich.text import Text
from starlette.types import ASGIApp

from throttled_views._early import called
from throttled_views._principals import checked_principal
from throttled_views.cli._clients import Client
from throttled_views.cli._console import duration_text, output, print_json, table_of
from throttled_views.cli._handlers import Counted, counted_for
from throttled_views.cli._mistakes import CommandError
from throttled_views.quotas import Quota
from throttled_views.results import Charge, RateLimitResult
from throttled_views.stores.base import Store
from throttled_views.stores.memory import MemoryStore
from throttled_views.throttled import Rule

__all__ = ["Counts", "print_peeks", "print_resets"]

_US_PER_S = 1_000_000
_PATIENCE_S = 5.0  # a person waits longer than a request


class Peek(NamedTuple):
    """Where a key stands."""

    name: str
    quota: Quota
    key: str
    result: RateLimitResult


class Reset(NamedTuple):
    """A key that was reset."""

    name: str
    key: str


@dataclass(frozen=True)
class Counts:
    """
    The counts of one client with one handler.

    Attributes:
        app: The application.
        handler: The handler, as a person calls it.
        client: The client.
        limit: Name of the one limit that is meant; None for all of the handler.
        redis: URL of the server with the counts; None if the application's limiters
            know it themselves.
    """

    app: ASGIApp
    handler: str
    client: Client
    limit: str | None = None
    redis: str | None = None

    async def peek(self, quota: Quota | None) -> list[Peek]:
        """
        Return where the client stands; nothing is charged.

        Args:
            quota: What it is held to where a function chooses that.
        """
        peeks: list[Peek] = []
        async for counted, principal in self._keys():
            charge = _charge(counted.rule, principal, quota)
            async with self._store_of(counted) as store:
                [result] = await store.peek([charge])
            peeks.append(Peek(counted.rule.name, charge.quota, charge.key, result))
        return peeks

    async def reset(self) -> list[Reset]:
        """Forget the client, and return what was forgotten."""
        resets: list[Reset] = []
        async for counted, principal in self._keys():
            key = counted.rule.key(principal)
            async with self._store_of(counted) as store:
                await store.reset([key])
            resets.append(Reset(counted.rule.name, key))
        return resets

    async def _keys(self) -> AsyncGenerator[tuple[Counted, str]]:
        """Yield the limits that apply to the client, and whom they charge."""
        applying = 0
        for each in counted_for(self.app, self.handler, self.limit):
            principal = await self.client.principal_for(each.rule, each.found)
            if principal is not None:
                applying += 1
                yield each, checked_principal(principal, each.rule.key_func)
        if not applying:
            msg = (
                f"No limit of {self.handler!r} applies to such a client: the key "
                "function returns None"
            )
            raise CommandError(msg)

    @asynccontextmanager
    async def _store_of(self, counted: Counted) -> AsyncGenerator[Store]:
        store = counted.store
        if self.redis is not None:
            store = _redis_store(self.redis)
        elif isinstance(store, MemoryStore):
            msg = (
                "The limiter counts in the memory of the process that serves, where no "
                "other can look. Give the server that it counts in with --redis, or "
                "Limiter(store=RedisStore(…))"
            )
            raise CommandError(msg)
        try:
            yield store
        finally:
            await store.aclose()


def _redis_store(url: str) -> Store:
    try:
        from throttled_views.stores.redis import RedisStore  # noqa: PLC0415 - an extra
    except ModuleNotFoundError as error:
        raise CommandError(str(error)) from None
    return RedisStore(url, timeout=_PATIENCE_S)


def _charge(rule: Rule, principal: str, quota: Quota | None) -> Charge:
    """Return what *principal* is charged; with *quota*, where a function chooses it."""
    limit = rule.limit
    if not isinstance(limit.quota, Quota):
        if quota is None:
            msg = (
                f"The quota of limit {rule.name!r} is dynamic: {called(limit.quota)} "
                "chooses it for each request. Give the one to look by: --quota 100/m"
            )
            raise CommandError(msg)
        limit = replace(limit, quota=quota)
    if not isinstance(limit.cost, int):
        limit = replace(limit, cost=1)  # which no request here tells
    static = copy(rule)
    static.limit = limit
    return static.charge_to(rule.key(principal))


# --- what is printed ------------------------------------------------------------------


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
    for name, key in resets:
        output().print(Text(f"Reset limit {name!r}: {key}"), soft_wrap=True)
