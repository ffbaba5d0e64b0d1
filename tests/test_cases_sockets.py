"""Scenarios from public bug reports, by number: what limits of WebSockets answer."""

from collections.abc import Callable

import pytest
from fastapi import Depends, FastAPI, Request, WebSocket
from fastapi.testclient import TestClient

from tests.asgi import app_of, frozen, frozen_store, handshake
from tests.clock import ManualClock
from throttled_views import (
    Limiter,
    MemoryStore,
    ThrottledRouter,
    ThrottledView,
    ViewDefinitionError,
    client_ip,
    route,
)

DENIAL: dict[str, object] = {"websocket.http.response": {}}


async def accept(websocket: WebSocket) -> None:
    """Be a socket that has nothing to say."""
    await websocket.accept()
    await websocket.close()


def on_a_throttled_router(limiter: Limiter) -> FastAPI:
    """Put the function on a router that limits everything."""
    router = ThrottledRouter(limiter)
    router.add_api_websocket_route("/", accept)
    return app_of(router)


def in_a_view(limiter: Limiter) -> FastAPI:
    """Write it as a method of a view."""

    class Socket(ThrottledView):
        @route.websocket("/")
        async def talk(self, websocket: WebSocket) -> None:
            await accept(websocket)

    return app_of(Socket.as_router(limiter))


def decorated(limiter: Limiter) -> FastAPI:
    """Decorate the function, and put it on the application."""
    app = FastAPI()
    app.websocket("/")(limiter.limit()(accept))
    return app


def dependent(limiter: Limiter) -> FastAPI:
    """Leave the function as it is, and let its route have a dependency."""
    app = FastAPI()
    app.websocket("/", dependencies=[Depends(limiter.dependency())])(accept)
    return app


WAYS = [on_a_throttled_router, in_a_view, decorated, dependent]
ways = pytest.mark.parametrize("way", WAYS)


@ways
async def test_case_68_the_third_handshake_is_told_why_and_when(
    way: Callable[[Limiter], FastAPI],
) -> None:
    """Where the server can say it, a refusal is a 429 with the time to wait."""
    app = way(frozen("2/min"))

    first, second, third = [(await handshake(app, "/", DENIAL))[0] for _ in range(3)]

    assert ["websocket.accept"] * 2 == [first["type"], second["type"]]
    assert ("websocket.http.response.start", 429) == (third["type"], third["status"])
    assert (b"retry-after", b"30") in third["headers"]


@ways
async def test_case_68_the_third_handshake_is_never_accepted(
    way: Callable[[Limiter], FastAPI],
) -> None:
    """Where the server cannot, it is closed before anything else is said."""
    app = way(frozen("2/min"))

    _, _, third = [await handshake(app, "/") for _ in range(3)]

    assert [("websocket.close", 1008)] == [
        (message["type"], message["code"]) for message in third
    ]


def by_path(request: Request) -> str:
    """Want what a socket does not have."""
    return request.url.path


async def test_case_68_a_dependency_for_requests_lets_no_socket_in() -> None:
    """One that asks for a request raises and says what to write, on any socket."""
    limiter = Limiter(key_func=by_path, store=frozen_store())
    app = FastAPI()
    limited = Depends(limiter.dependency("5/min"))
    app.websocket("/", dependencies=[limited])(accept)

    with pytest.raises(ViewDefinitionError, match="Annotate its parameter HTTPConn"):
        await handshake(app, "/", DENIAL)


def test_case_68_the_sixth_message_within_ten_seconds_is_told_so(
    clock: ManualClock, store: MemoryStore
) -> None:
    """Five are heard; what becomes of the sixth is the handler's, which is told."""
    limiter = Limiter("2/min", store=store)
    messages = limiter.throttled("5/10s", bucket="messages")
    router = ThrottledRouter(limiter)

    @router.websocket("/")
    async def talk(websocket: WebSocket) -> None:
        await websocket.accept()
        async for text in websocket.iter_text():
            result = await messages.limit(client_ip(websocket))
            wait_s = result.state.retry_after
            await websocket.send_text(f"wait {wait_s}" if result.limited else text)

    heard: list[str] = []
    with TestClient(app_of(router)).websocket_connect("/") as socket:
        for text in ("1", "2", "3", "4", "5", "6"):
            socket.send_text(text)
            heard.append(socket.receive_text())
        clock.advance(2)
        socket.send_text("7")
        heard.append(socket.receive_text())

    assert ["1", "2", "3", "4", "5", "wait 2.0", "7"] == heard
