"""Applications in this process: requests to them, and what they send."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import TypeAlias

import httpx
from fastapi import APIRouter, FastAPI
from starlette.types import ASGIApp, Message, Scope

from tests.clock import ManualClock
from throttled_views import (
    Charge,
    KeyFunc,
    Limiter,
    MemoryStore,
    RateLimitResult,
    Receipt,
    Throttle,
    client_ip,
)

App: TypeAlias = ASGIApp

CLIENT = "192.0.2.1"
FIELDS = ("RateLimit-Limit", "RateLimit-Remaining", "RateLimit-Reset", "Retry-After")


def app_of(*routers: APIRouter) -> FastAPI:
    """Return an application that includes *routers*."""
    app = FastAPI()
    for router in routers:
        app.include_router(router)
    return app


async def answers(  # noqa: PLR0913 - each is a part of a request
    app: App,
    *requests: str,
    client: str = CLIENT,
    headers: Mapping[str, str] | None = None,
    content: bytes | None = None,
    raising: bool = True,
    follow_redirects: bool = False,
) -> list[httpx.Response]:
    """
    Send *requests*, each as in "GET /items", one by one; return the answers.

    The *content* of each, if there is any, is said to be JSON.
    """
    json = {} if content is None else {"Content-Type": "application/json"}
    transport = httpx.ASGITransport(
        app=app, client=(client, 50_000), raise_app_exceptions=raising
    )
    received: list[httpx.Response] = []
    async with httpx.AsyncClient(
        transport=transport,
        base_url="http://example.test",
        follow_redirects=follow_redirects,
    ) as connection:
        for request in requests:
            method, _, path = request.partition(" ")
            received.append(
                await connection.request(
                    method, path, headers={**json, **(headers or {})}, content=content
                )
            )
    return received


async def statuses(app: App, *requests: str, client: str = CLIENT) -> list[int]:
    """Send *requests* one by one; return the status codes, 500 for an error."""
    received = await answers(app, *requests, client=client, raising=False)
    return [answer.status_code for answer in received]


def fields_of(answer: httpx.Response) -> dict[str, str]:
    """Return the fields about limits; a field that is there twice reads "1, 1"."""
    return {name: answer.headers[name] for name in FIELDS if name in answer.headers}


def http_scope(path: str = "/", method: str = "GET", client: str = CLIENT) -> Scope:
    """Return the scope of an HTTP request, as a server gives it."""
    return {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "scheme": "http",
        "method": method,
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "root_path": "",
        "headers": [(b"host", b"example.test")],
        "client": (client, 50_000),
        "server": ("example.test", 80),
    }


def websocket_scope(
    path: str = "/", extensions: Mapping[str, object] | None = None
) -> Scope:
    """Return the scope of a handshake; *extensions* are left out if they are None."""
    scope = http_scope(path)
    del scope["method"]
    scope.update(type="websocket", scheme="ws", subprotocols=[])
    return scope if extensions is None else {**scope, "extensions": extensions}


async def sent(app: App, scope: Scope, *incoming: Message) -> list[Message]:
    """
    Serve *scope*, let the client say *incoming*; return what *app* said.

    After that an HTTP client stays, and that of a WebSocket leaves.
    """
    waiting = [*incoming]
    outgoing: list[Message] = []

    async def receive() -> Message:
        if waiting:
            return waiting.pop(0)
        if scope["type"] == "http":
            await asyncio.Event().wait()
        return {"type": "websocket.disconnect"}

    async def send(message: Message) -> None:
        outgoing.append(message)

    await app(scope, receive, send)
    return outgoing


async def handshake(
    app: App, path: str = "/", extensions: Mapping[str, object] | None = None
) -> list[Message]:
    """Ask for a WebSocket; return what the application said."""
    scope = websocket_scope(path, extensions)
    return await sent(app, scope, {"type": "websocket.connect"})


def frozen_store() -> MemoryStore:
    """Return a store in which no time passes."""
    return MemoryStore(clock=ManualClock())


def frozen(default: Throttle | None = None, key_func: KeyFunc = client_ip) -> Limiter:
    """Return a limiter that counts in a store in which no time passes."""
    return Limiter(default, key_func=key_func, store=frozen_store())


class Relay:
    """A store that is not ours: it notes what it is asked, and asks a MemoryStore."""

    def __init__(self, store: MemoryStore | None = None) -> None:
        self._store = frozen_store() if store is None else store
        self.calls: list[list[Charge]] = []

    @property
    def keys(self) -> list[str]:
        """The keys that were charged, in order."""
        return [charge.key for charges in self.calls for charge in charges]

    async def acquire(self, charges: Sequence[Charge], /) -> Sequence[RateLimitResult]:
        """Charge all or none."""
        self.calls.append([*charges])
        return await self._store.acquire(charges)

    async def peek(self, charges: Sequence[Charge], /) -> Sequence[RateLimitResult]:
        """Look."""
        return await self._store.peek(charges)

    async def refund(self, receipts: Sequence[Receipt], /) -> None:
        """Give back."""
        await self._store.refund(receipts)

    async def reset(self, keys: Sequence[str], /) -> None:
        """Forget."""
        await self._store.reset(keys)

    async def aclose(self) -> None:
        """Do nothing."""
