"""
Where each microsecond goes: the admitted path, put together step by step.

Each step does what the one before does, and one thing more, with the functions of the
package itself; the last is the package. What a step adds is what that thing costs.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import AsyncExitStack
from functools import partial
from typing import Any, ClassVar

from fastapi import APIRouter, FastAPI
from fastapi.routing import APIRoute
from redis.asyncio import ConnectionPool, Redis
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tests.benchmarks import apps
from tests.benchmarks.measuring import (
    CLIENT_CORE,
    Effort,
    checked_answer,
    pin,
    race_of_apps,
    request_scope,
    running,
)
from tests.benchmarks.results import Row, Section, Table, rows_of
from tests.benchmarks.servers import kinds, server_of
from throttled_views import Limiter, ThrottledRouter, client_ip
from throttled_views._kinds import scope_reader_of
from throttled_views._scopes import SCOPE_KEY, Quick, send_with_headers
from throttled_views.routing import ThrottledRoute
from throttled_views.stores.deciding import Taken
from throttled_views.stores.redis import RedisStore

_CONCURRENT = 64
_CLIENTS = [(f"203.0.113.{last}", 1234) for last in range(_CONCURRENT)]


def measure(effort: Effort) -> Section:
    """Measure the steps of both stores."""
    many = effort._replace(rounds=2 * effort.rounds)
    tables = [asyncio.run(_in_memory(many))]
    found, missing = kinds()
    if found:
        with server_of(found[-1]) as server:
            pin(CLIENT_CORE)
            name = found[-1].name.capitalize()
            tables.append(asyncio.run(_in_redis(many, name, server.url)))
    return Section(tables, missing=missing)


async def _steps(
    title: str, steps: Mapping[str, ASGIApp], effort: Effort, concurrency: int
) -> Table:
    taken = await race_of_apps(steps, effort, concurrency, clients=_CLIENTS)
    before, rows = 1.0, list[Row]()
    for row in rows_of(taken, "bare"):
        ratio = row.ratio or 1.0
        rows.append(
            Row(
                *(row.name, row.value, row.quiet, ratio, row.quiet_ratio),
                note=f"{ratio - before:+.3f}",
            )
        )
        before = ratio
    note = "Each step does what the one before does, too; the note is what it adds."
    return Table(title, rows, base="bare", note=note)


# --- in memory ------------------------------------------------------------------------


_READER = scope_reader_of(client_ip) or str


class _Asked(APIRoute):
    """A route that is asked before FastAPI's own."""

    quick: ClassVar[Quick]
    taken: ClassVar[Taken]

    def __init__(self, path: str, endpoint: Callable[..., Any], **kwargs: Any) -> None:
        super().__init__(path, endpoint, **kwargs)
        self.path_of_requests = frozenset(self.methods or ()), super().handle

    def handle(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, scope: Scope, receive: Receive, send: Send
    ) -> Coroutine[Any, Any, None]:
        """Look at the method, and pass the request on."""
        methods, serve = self.path_of_requests
        if scope["method"] not in methods:
            return serve(scope, receive, send)
        return serve(scope, receive, self.sender(scope, send))

    def sender(self, scope: Scope, send: Send) -> Send:
        """Return what sends the response."""
        return send


def _pass_on(send: Send, scope: Scope, message: Message) -> Awaitable[None]:
    return send(message)


class _Wrapping(_Asked):
    """And what is sent goes through a function."""

    def sender(self, scope: Scope, send: Send) -> Send:
        return partial(_pass_on, send, scope)


class _Telling(_Asked):
    """And that function writes the header fields of a decision."""

    def sender(self, scope: Scope, send: Send) -> Send:
        taken = self.take(scope)
        scope[SCOPE_KEY] = self.quick, taken, id(scope), scope.get("endpoint")
        return partial(send_with_headers, send, scope)

    def take(self, scope: Scope) -> Taken:
        """Return a decision that was made before."""
        return self.taken


class _Naming(_Telling):
    """And the key is made."""

    def take(self, scope: Scope) -> Taken:
        _ = f"GET|module.Class.get|{_READER(scope)}|0"
        return self.taken


class _Deciding(_Telling):
    """And the store decides, as it does for every request."""

    def take(self, scope: Scope) -> Taken:
        taken: Any = self.quick.take(scope)
        decided: Taken = taken
        return decided


async def _in_memory(effort: Effort) -> Table:
    limited = _limited_function()
    route = next(each for each in limited[1].routes if isinstance(each, ThrottledRoute))
    quick = route.plans[0].quick
    assert quick is not None
    taken: Any = quick.take(request_scope("/items"))
    _Asked.quick, _Asked.taken = quick, taken
    steps: dict[str, FastAPI] = {
        "bare": apps.bare(),
        "a route of our own, asked first": _app_of(_Asked),
        "a function around `send`": _app_of(_Wrapping),
        "three header fields, written": _app_of(_Telling),
        "the key of the client": _app_of(_Naming),
        "the decision of the store": _app_of(_Deciding),
        "all of a `ThrottledRoute`": limited[0],
        "an instance of a view": apps.ours(),
    }
    async with AsyncExitStack() as stack:
        for app in steps.values():
            await stack.enter_async_context(running(app))
            await checked_answer(app, 200)
        return await _steps("In memory, one at a time", steps, effort, 1)


def _app_of(route_class: type[APIRoute]) -> FastAPI:
    app, router = FastAPI(), APIRouter(route_class=route_class)
    router.add_api_route("/items", apps.items)
    app.include_router(router)
    return app


def _limited_function() -> tuple[FastAPI, ThrottledRouter]:
    app, router = FastAPI(), ThrottledRouter(Limiter(apps.PLENTY))
    router.add_api_route("/items", apps.items)
    app.include_router(router)
    return app, router


# --- in Redis -------------------------------------------------------------------------


class _Transport(asyncio.Transport):
    """Answers at once what a server would: that all is admitted."""

    def __init__(self) -> None:
        super().__init__()
        self._protocol: Any = None

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol

    def write(self, data: Any) -> None:
        decisions = int(bytes(data).split(b"\r\n", 7)[6])  # EVALSHA digest numkeys
        told = (1_000_000_000, *(1, 1_000_000, 0) * decisions)
        reply = struct.pack(f"<{len(told)}q", *told)
        loop = asyncio.get_running_loop()
        whole = b"$%d\r\n%b\r\n" % (len(reply), reply)
        loop.call_soon(self._protocol.data_received, whole)

    def abort(self) -> None:
        self._protocol = None


class _Writer:
    def __init__(self) -> None:
        self.transport = _Transport()


class _Connection:
    """A connection of redis-py's, as far as a store looks at it, to no server."""

    def __init__(self, **_options: object) -> None:
        self._reader = self._writer = _Writer()

    async def connect(self) -> None:
        """Be there."""

    async def disconnect(self, **_options: object) -> None:
        """Be gone."""


def _resumed(app: ASGIApp) -> ASGIApp:
    """Return *app* after a wait of each request until the loop comes by again."""
    waiting: list[asyncio.Future[None]] = []

    def resume() -> None:
        for future in waiting:
            future.set_result(None)
        waiting.clear()

    async def wrapped(scope: Scope, receive: Receive, send: Send) -> None:
        loop = asyncio.get_running_loop()
        if not waiting:
            loop.call_soon(resume)
        future = loop.create_future()
        waiting.append(future)
        await future
        await app(scope, receive, send)

    return wrapped


async def _in_redis(effort: Effort, name: str, url: str) -> Table:
    pool: Any = ConnectionPool
    nowhere = Redis(connection_pool=pool(connection_class=_Connection))
    bare = apps.bare()
    served = {
        "no socket": apps.ours(RedisStore(nowhere)),
        "all": apps.ours(RedisStore(url)),
    }
    steps: dict[str, ASGIApp] = {
        "bare": bare,
        "a request waits, and is resumed": _resumed(bare),
        "all but the socket": served["no socket"],
        f"sockets, and {name} on another core": served["all"],
    }
    async with AsyncExitStack() as stack:
        for app in served.values():
            await stack.enter_async_context(running(app))
            await checked_answer(app, 200)
        title = f"{name}, {_CONCURRENT} at a time"
        return await _steps(title, steps, effort, _CONCURRENT)
