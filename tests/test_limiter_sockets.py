"""WebSockets are limited before they are accepted."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from fastapi import APIRouter, Depends, FastAPI, HTTPException, Request, WebSocket
from starlette.applications import Starlette
from starlette.requests import HTTPConnection
from starlette.responses import PlainTextResponse, Response
from starlette.testclient import TestClient, WebSocketDenialResponse
from starlette.types import Message

from tests.asgi import Relay, app_of, handshake
from throttled_views import (
    InvalidKeyError,
    Limit,
    Limiter,
    MemoryStore,
    RateLimitExceededError,
    Throttle,
    ThrottledRouter,
    ThrottledView,
    ViewDefinitionError,
    route,
)

DENIAL: Mapping[str, object] = {"websocket.http.response": {}}
"""What a server says that can refuse a handshake with a response."""


async def accept(websocket: WebSocket) -> None:
    """Accept, and be done."""
    await websocket.accept()
    await websocket.close()


# --- the ways to limit one ------------------------------------------------------------


def on_a_throttled_router(limiter: Limiter) -> FastAPI:
    """Put the function on a router that limits everything."""
    router = ThrottledRouter(limiter)
    router.add_api_websocket_route("/", accept)
    return app_of(router)


def decorated_on_a_throttled_router(limiter: Limiter) -> FastAPI:
    """Decorate the function, and put it on a router that limits everything."""
    router = ThrottledRouter(limiter)
    router.websocket("/")(limiter.limit()(accept))
    return app_of(router)


def in_a_view(limiter: Limiter) -> FastAPI:
    """Write it as a method of a view."""

    class Socket(ThrottledView):
        @route.websocket("/")
        async def talk(self, websocket: WebSocket) -> None:
            await accept(websocket)

    return app_of(Socket.as_router(limiter))


def decorated_on_an_application(limiter: Limiter) -> FastAPI:
    """Decorate the function, and put it on the application."""
    app = FastAPI()
    app.websocket("/")(limiter.limit()(accept))
    return app


def decorated_on_a_plain_router(limiter: Limiter) -> FastAPI:
    """Decorate the function, and put it on a router that limits nothing."""
    router = APIRouter()
    router.websocket("/")(limiter.limit()(accept))
    return app_of(router)


def with_a_dependency_of_the_route(limiter: Limiter) -> FastAPI:
    """Leave the function as it is, and let its route have a dependency."""
    app = FastAPI()
    app.websocket("/", dependencies=[Depends(limiter.dependency())])(accept)
    return app


def with_a_dependency_of_the_router(limiter: Limiter) -> FastAPI:
    """Leave the function as it is, and let its router have a dependency."""
    router = APIRouter(dependencies=[Depends(limiter.dependency())])
    router.websocket("/")(accept)
    return app_of(router)


def with_a_dependency_of_the_application(limiter: Limiter) -> FastAPI:
    """Leave the function as it is, and let the application have a dependency."""
    app = FastAPI(dependencies=[Depends(limiter.dependency())])
    app.websocket("/")(accept)
    return app


WAYS: dict[str, Callable[[Limiter], FastAPI]] = {
    "on a ThrottledRouter": on_a_throttled_router,
    "decorated on a ThrottledRouter": decorated_on_a_throttled_router,
    "in a view": in_a_view,
    "decorated on an application": decorated_on_an_application,
    "decorated on an APIRouter": decorated_on_a_plain_router,
    "with a dependency of the route": with_a_dependency_of_the_route,
    "with a dependency of the router": with_a_dependency_of_the_router,
    "with a dependency of the application": with_a_dependency_of_the_application,
}
ways = pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)


def kinds(messages: list[Message]) -> list[str]:
    """Return what kinds of messages there are."""
    return [message["type"] for message in messages]


ACCEPTED = ["websocket.accept", "websocket.close"]
DENIED = ["websocket.http.response.start", "websocket.http.response.body"]
CLOSED = {
    "type": "websocket.close",
    "code": 1008,
    "reason": "Rate limit exceeded",
}

# --- refusals -------------------------------------------------------------------------


@ways
async def test_a_refused_handshake_is_answered_with_a_429(
    way: Callable[[Limiter], FastAPI], store: MemoryStore
) -> None:
    """Where the server can, it says why, and when to come back."""
    app = way(Limiter("2/h", store=store))

    for _ in range(2):
        assert ACCEPTED == kinds(await handshake(app, "/", DENIAL))
    start, body = await handshake(app, "/", DENIAL)

    assert DENIED == kinds([start, body])
    assert (429, b'{"detail":"Rate limit exceeded"}') == (start["status"], body["body"])
    headers = dict(start["headers"])
    assert (b"1800", b"0") == (headers[b"retry-after"], headers[b"ratelimit-remaining"])


@ways
@pytest.mark.parametrize(
    "extensions", [None, {}, {"tls": {}}], ids=["not said", "none", "another"]
)
async def test_a_refused_handshake_is_closed_where_no_response_can_be_sent(
    way: Callable[[Limiter], FastAPI], extensions: Mapping[str, object] | None
) -> None:
    """It is never accepted: a close that comes first is what servers make a 403 of."""
    app = way(Limiter("1/h"))

    assert ACCEPTED == kinds(await handshake(app, "/", extensions))
    assert [CLOSED] == await handshake(app, "/", extensions)


@ways
def test_a_client_sees_the_denial(way: Callable[[Limiter], FastAPI]) -> None:
    """Starlette's test client raises it as the response that it is."""
    client = TestClient(way(Limiter("1/h")))
    with client.websocket_connect("/"):
        pass

    with (
        pytest.raises(WebSocketDenialResponse) as caught,
        client.websocket_connect("/"),
    ):
        pass

    assert (429, "0") == (
        caught.value.status_code,
        caught.value.headers["RateLimit-Remaining"],
    )


@ways
async def test_a_handler_does_not_run_for_a_refused_handshake(
    way: Callable[[Limiter], FastAPI],
) -> None:
    """Nothing is accepted that is over the limit, whatever the server can do."""
    app = way(Limiter("0/h"))

    assert DENIED == kinds(await handshake(app, "/", DENIAL))
    assert [CLOSED] == await handshake(app, "/", {})


@ways
async def test_a_handshake_is_charged_once(way: Callable[[Limiter], FastAPI]) -> None:
    """One socket is one charge, however often its limit is met."""
    store = Relay()
    app = way(Limiter("5/h", store=store))

    await handshake(app, "/", DENIAL)

    assert 1 == len(store.keys)
    assert "|WEBSOCKET|" in store.keys[0]


@ways
async def test_a_limiter_that_is_not_enabled_lets_sockets_in(
    way: Callable[[Limiter], FastAPI],
) -> None:
    """Also those that its quota would refuse."""
    app = way(Limiter("0/h", enabled=False))

    assert ACCEPTED == kinds(await handshake(app, "/", DENIAL))


# --- handlers of the user -------------------------------------------------------------


async def by_the_user(_connection: Any, _error: Exception) -> Response:  # noqa: ANN401
    """Answer as one likes."""
    return PlainTextResponse("later", 503)


@ways
async def test_an_exception_handler_may_answer_a_refused_handshake(
    way: Callable[[Limiter], FastAPI],
) -> None:
    """It is asked as for a request."""
    app = way(Limiter("0/h"))
    app.add_exception_handler(RateLimitExceededError, by_the_user)

    start, body = await handshake(app, "/", DENIAL)

    assert (503, b"later") == (start["status"], body["body"])


@ways
async def test_a_key_function_may_refuse_a_handshake(
    way: Callable[[Limiter], FastAPI],
) -> None:
    """An HTTPException of it is answered as one of a dependency."""

    def by_password(connection: HTTPConnection) -> str:
        if "Authorization" not in connection.headers:
            raise HTTPException(401)
        return connection.headers["Authorization"]

    app = way(Limiter("5/h", key_func=by_password))

    start, _ = await handshake(app, "/", DENIAL)

    assert 401 == start["status"]


@ways
async def test_what_is_no_key_accepts_no_socket(
    way: Callable[[Limiter], FastAPI],
) -> None:
    """A mistake of a key function opens nothing."""

    def by_mistake(_connection: HTTPConnection) -> str:
        return ""

    app = way(Limiter("5/h", key_func=by_mistake))

    with pytest.raises(InvalidKeyError):
        await handshake(app, "/", DENIAL)


def by_path(request: Request) -> str:
    """Want what a socket does not have."""
    return request.url.path


def once(_request: Request) -> str:
    """Choose a quota, wanting the same."""
    return "1/h"


def one(_request: Request) -> int:
    """Tell a cost, wanting the same."""
    return 1


WANTING_A_REQUEST: dict[str, Throttle] = {
    "a key function": Limit("5/h", key_func=by_path),
    "a quota function": once,
    "a cost function": Limit("5/h", cost=one),
}


@ways
@pytest.mark.parametrize("throttle", WANTING_A_REQUEST.values(), ids=WANTING_A_REQUEST)
async def test_what_wants_a_request_accepts_no_socket(
    way: Callable[[Limiter], FastAPI], throttle: Throttle
) -> None:
    """There is none to give it; the error says what to write instead."""
    with pytest.raises(ViewDefinitionError, match="Annotate its parameter HTTPConn"):
        await handshake(way(Limiter(throttle)), "/", DENIAL)


def test_the_key_function_of_a_router_of_sockets_wants_no_request() -> None:
    """What is known when a socket is registered is refused then."""
    router = ThrottledRouter(Limiter("5/h", key_func=by_path))

    with pytest.raises(ViewDefinitionError, match="a WebSocket has no Request"):
        router.add_api_websocket_route("/", accept)


async def test_a_lambda_is_given_the_connection() -> None:
    """It has no annotation that could ask for a request, which there is none."""
    keys: list[Callable[[HTTPConnection], str]] = [
        lambda connection: connection.headers["host"]
    ]
    store = Relay()
    app = on_a_throttled_router(Limiter("5/h", store=store, key_func=keys[0]))

    assert ACCEPTED == kinds(await handshake(app, "/", DENIAL))
    assert "|{example.test}|" in store.keys[0]


# --- beside requests ------------------------------------------------------------------


async def test_a_socket_and_a_request_on_one_path_are_two_buckets() -> None:
    """Who may not ask any more may still talk, and the other way round."""
    router = ThrottledRouter(Limiter("1/h"))
    router.add_api_websocket_route("/", accept)

    @router.get("/")
    async def get() -> None:
        """Do nothing."""

    client = TestClient(app_of(router))

    assert [200, 429] == [client.get("/").status_code for _ in range(2)]
    with client.websocket_connect("/"):
        pass
    with pytest.raises(WebSocketDenialResponse), client.websocket_connect("/"):
        pass


async def test_it_is_decided_after_the_dependencies() -> None:
    """What a dependency refuses is not charged."""
    refusing = [True]

    async def refuse() -> None:
        if refusing.pop():
            raise HTTPException(401)

    router = ThrottledRouter(Limiter("1/h"), dependencies=[Depends(refuse)])
    router.add_api_websocket_route("/", accept)
    app = app_of(router)

    start, _ = await handshake(app, "/", DENIAL)
    assert 401 == start["status"]

    refusing += [False, False]
    assert ACCEPTED == kinds(await handshake(app, "/", DENIAL))
    assert DENIED == kinds(await handshake(app, "/", DENIAL))


# --- wherever it is included ----------------------------------------------------------


def included_with_a_prefix(router: ThrottledRouter) -> FastAPI:
    """Include it under a prefix."""
    app = FastAPI()
    app.include_router(router, prefix="/v1")
    return app


def nested(router: ThrottledRouter) -> FastAPI:
    """Include it in routers of both kinds."""
    outer, middle = APIRouter(), ThrottledRouter(Limiter("100/h"), prefix="/v1")
    middle.include_router(router)
    outer.include_router(middle)
    return app_of(outer)


def mounted(router: ThrottledRouter) -> FastAPI:
    """Include it in an application that is mounted."""
    app = FastAPI()
    app.mount("/v1", app_of(router))
    return app


PLACES = {
    "included with a prefix": included_with_a_prefix,
    "nested": nested,
    "in a mounted application": mounted,
}


@pytest.mark.parametrize("put", PLACES.values(), ids=PLACES)
async def test_a_socket_is_limited_wherever_it_is_included(
    put: Callable[[ThrottledRouter], Starlette],
) -> None:
    """No inclusion loses the limit, or charges it twice."""
    store = Relay()
    router = ThrottledRouter(Limiter("1/h", store=store))
    router.add_api_websocket_route("/socket", accept)
    app = put(router)

    assert ACCEPTED == kinds(await handshake(app, "/v1/socket", DENIAL))
    assert DENIED == kinds(await handshake(app, "/v1/socket", DENIAL))
    assert 2 == len(store.keys)


async def test_an_exempt_socket_is_not_limited() -> None:
    """`@limiter.exempt` lifts the default, as for requests."""
    limiter = Limiter("0/h")
    router = ThrottledRouter(limiter)
    outer = ThrottledRouter(Limiter("0/h"))
    router.websocket("/")(limiter.exempt(accept_freely))
    outer.include_router(router)

    assert ACCEPTED == kinds(await handshake(app_of(outer), "/", DENIAL))


async def accept_freely(websocket: WebSocket) -> None:
    """Accept, and be done."""
    await accept(websocket)


# --- messages -------------------------------------------------------------------------


def test_the_messages_of_a_socket_are_limited_by_hand() -> None:
    """A `Throttled` counts what is no route."""
    messages = Limiter().throttled(Limit("2/h", name="messages"))
    app = FastAPI()

    @app.websocket("/")
    async def talk(websocket: WebSocket) -> None:
        await websocket.accept()
        while True:
            await websocket.receive_text()
            result = await messages.limit("somebody")
            if result.limited:
                await websocket.close(1008, f"{result.name}: {result.state.limit}")
                return
            await websocket.send_text("heard")

    with TestClient(app).websocket_connect("/") as client:
        heard: list[Message] = []
        for _ in range(3):
            client.send_text("hello")
            heard.append(client.receive())

    assert ["heard", "heard", None] == [message.get("text") for message in heard]
    assert (1008, "messages: 2") == (heard[2]["code"], heard[2]["reason"])
