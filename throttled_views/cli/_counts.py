"""``peek`` and ``reset``: where one client stands with one handler."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from copy import copy
from dataclasses import dataclass, replace
from functools import partial

from starlette.types import ASGIApp

from throttled_views._early import called
from throttled_views._rules import Rule
from throttled_views.cli._clients import Client
from throttled_views.cli._console import warn
from throttled_views.cli._handlers import Counted, counted_for
from throttled_views.cli._mistakes import CommandError
from throttled_views.cli._standings import Peek, Reset
from throttled_views.errors import InvalidKeyError, StoreUnavailableError
from throttled_views.quotas import Quota
from throttled_views.results import Charge
from throttled_views.stores.base import Store
from throttled_views.stores.memory import MemoryStore

__all__ = ["Counts"]

_PATIENCE_S = 5.0  # a person waits longer than a request
_ANY = Quota.per_day(1)  # for what is forgotten, whatever it was held to


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

    async def peek(self, quota: Quota | None, cost: int | None) -> list[Peek]:
        """
        Return where the client stands; nothing is charged.

        Args:
            quota: What it is held to where a function chooses that.
            cost: What its next request costs where a function tells that.

        Raises:
            CommandError: It is not known who is charged, or where, or how much.
            StoreUnavailableError: The server could not be asked.
        """
        peeks: list[Peek] = []
        charges = await self._charges(partial(_charge, quota=quota, cost=cost))
        if cost is not None and all(map(_is_of_one_cost, charges)):
            msg = (
                f"A request to {self.handler!r} costs what its limits say, and not "
                f"{cost}. Leave --cost out"
            )
            raise CommandError(msg)
        for counted, charge in charges:
            async with self._store_of(counted) as store:
                [result] = await store.peek([charge])
            peeks.append(Peek(counted.rule.name, charge.quota, charge.key, result))
        return peeks

    async def reset(self) -> list[Reset]:
        """Forget the client, and return what was forgotten."""
        resets: list[Reset] = []
        for counted, charge in await self._charges(_charge_of_any):
            async with self._store_of(counted) as store:
                [known] = await store.peek([charge])
                await store.reset([charge.key])
            # Another quota than the one that counted tells nothing of what it finds.
            is_its_own = charge.quota is not _ANY
            was_counted = known.state.reset_after > 0 if is_its_own else None
            resets.append(Reset(counted.rule.name, charge.key, was_counted))
        return resets

    async def _charges(
        self, charge_of: Callable[[Rule, str], Charge]
    ) -> list[tuple[Counted, Charge]]:
        """
        Return the limits that apply to the client, and what they charge.

        Those of which it is not known are told, and left out.

        Raises:
            CommandError: It is known of none.
        """
        charges: list[tuple[Counted, Charge]] = []
        unknown: list[str] = []
        for each in counted_for(self.app, self.handler, self.limit):
            try:
                principal = await self.client.principal_for(each.rule, each.found)
                if principal is not None:
                    charges.append((each, charge_of(each.rule, principal)))
            except (CommandError, InvalidKeyError) as error:
                unknown.append(str(error))
        if not charges:
            msg = (
                f"No limit of {self.handler!r} applies to such a client: the key "
                "function returns None"
            )
            raise CommandError(". ".join(unknown) or msg)
        for text in unknown:
            warn(f"Left out: {text}")
        return charges

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
        except StoreUnavailableError as error:
            if "MOVED" not in str(error):
                raise
            msg = (
                "The server is a node of a cluster, which only its own client finds: "
                f"{error}. Leave --redis out, and name an application whose limiter "
                "has RedisStore(cluster), a function that returns a RedisCluster"
            )
            raise CommandError(msg) from error
        finally:
            await store.aclose()


def _redis_store(url: str) -> Store:
    try:
        from throttled_views.stores.redis import RedisStore  # noqa: PLC0415 - an extra
    except ModuleNotFoundError as error:
        raise CommandError(str(error)) from None
    return RedisStore(url, timeout=_PATIENCE_S)


def _is_of_one_cost(charged: tuple[Counted, Charge]) -> bool:
    return isinstance(charged[0].rule.limit.cost, int)


def _charge(
    rule: Rule, principal: str, *, quota: Quota | None, cost: int | None
) -> Charge:
    """Return what *principal* is charged; with *quota* and *cost*, of functions."""
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
    charge = static.charge_to(rule.key(principal))
    if cost is None or isinstance(rule.limit.cost, int):
        return charge
    # Not of the limit: a request may cost nothing, or more than there ever is.
    return replace(charge, cost=cost)


def _charge_of_any(rule: Rule, principal: str) -> Charge:
    """Return what *principal* is charged, by whatever quota a function may choose."""
    if isinstance(rule.limit.quota, Quota):
        return _charge(rule, principal, quota=None, cost=None)
    return Charge(rule.key(principal), _ANY, rule.using)
