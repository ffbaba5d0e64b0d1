"""Limits of a whole application hold for the handshakes of WebSockets, too."""

from collections.abc import Mapping

import pytest
from fastapi import FastAPI, HTTPException, Request, Response, WebSocket
from fastapi.responses import PlainTextResponse
from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Message

from tests.asgi import Relay, answers, app_of, frozen, handshake
from tests.outages import Outage
from throttled_views import (
    CurrentRateLimit,
    Limit,
    Limiter,
    RateLimitMiddleware,
    Throttle,
    ThrottledRouter,
    ViewDefinitionError,
)

DENIAL: Mapping[str, object] = {"websocket.http.response": {}}
ACCEPTED = ["websocket.accept", "websocket.close"]
DENIED = ["websocket.http.response.start", "websocket.http.response.body"]
CLOSED = {
    "type": "websocket.close",
    "code": 1008,
    "reason": "Rate limit exceeded",
}


async def accept(websocket: WebSocket) -> None:
    """Accept, and be done."""
    await websocket.accept()
    await websocket.close()


def app_of_sockets(
    throttle: Throttle | None, limiter: Limiter | None = None
) -> FastAPI:
    """Return a limited application with one socket."""
    app = FastAPI()
    app.add_api_websocket_route("/", accept)
    app.add_middleware(
        RateLimitMiddleware, limiter=limiter or frozen(), throttle=throttle
    )
    return app


def kinds(messages: list[Message]) -> list[str]:
    """Return what kinds of messages there are."""
    return [message["type"] for message in messages]


def fields_of(start: Message) -> dict[str, str]:
    """Return the header fields about limits of a response."""
    return {
        name.decode(): value.decode()
        for name, value in start["headers"]
        if name.startswith((b"ratelimit-", b"retry-"))
    }


REFUSED = {
    "ratelimit-limit": "1",
    "ratelimit-remaining": "0",
    "ratelimit-reset": "3600",
    "retry-after": "3600",
}


async def test_a_refused_handshake_is_answered_with_a_429() -> None:
    """Where the server can, it says why, and when to come back."""
    app = app_of_sockets("1/h")

    assert ACCEPTED == kinds(await handshake(app, "/", DENIAL))
    start, body = await handshake(app, "/", DENIAL)

    assert DENIED == kinds([start, body])
    assert (429, b'{"detail":"Rate limit exceeded"}') == (start["status"], body["body"])
    assert REFUSED == fields_of(start)


async def test_elsewhere_a_refused_socket_is_closed_before_it_is_accepted() -> None:
    """Code 1008, as by a route."""
    app = app_of_sockets("1/h")

    assert ACCEPTED == kinds(await handshake(app))
    assert [CLOSED] == await handshake(app)


async def test_sockets_and_requests_share_one_count() -> None:
    """It is the application that is limited, however it is talked to."""
    app = app_of_sockets("2/h")

    assert ACCEPTED == kinds(await handshake(app, "/", DENIAL))
    (answer,) = await answers(app, "GET /missing")
    assert (404, "0") == (answer.status_code, answer.headers["RateLimit-Remaining"])
    assert DENIED == kinds(await handshake(app, "/", DENIAL))


async def test_a_path_without_a_socket_is_counted() -> None:
    """Whoever looks for one is counted as for any path."""
    app = app_of_sockets("1/h")

    (closed,) = await handshake(app, "/missing")
    assert "Rate limit exceeded" != closed["reason"]
    assert [CLOSED] == await handshake(app, "/missing")


async def test_a_handler_of_the_user_wins_and_the_fields_stay() -> None:
    """It answers as it likes, and forgetting the fields loses none."""

    async def teapot(_connection: HTTPConnection, _error: Exception) -> Response:
        return PlainTextResponse("short and stout", 418)

    app = app_of_sockets("0/h")
    app.add_exception_handler(429, teapot)

    start, body = await handshake(app, "/", DENIAL)

    assert (418, b"short and stout") == (start["status"], body["body"])
    assert "0" == fields_of(start)["ratelimit-limit"]


@pytest.mark.parametrize("throttle", [None, "9/h"], ids=["no limit", "a limit"])
async def test_the_limit_of_a_socket_is_told_with_that_of_the_application(
    throttle: Throttle | None,
) -> None:
    """There is one set of fields, that of the limit that refuses."""
    router = ThrottledRouter(frozen("1/h"))
    router.add_api_websocket_route("/limited", accept)
    app = app_of_sockets(throttle)
    app.include_router(router)

    assert ACCEPTED == kinds(await handshake(app, "/limited", DENIAL))
    start, _ = await handshake(app, "/limited", DENIAL)

    assert (429, REFUSED) == (start["status"], fields_of(start))
    assert 1 == [name for name, _ in start["headers"]].count(b"retry-after")


async def test_whatever_refuses_a_socket_tells() -> None:
    """A 401 of the handler has the fields of the application."""

    async def refuse(websocket: WebSocket) -> None:
        raise HTTPException(401)

    app = app_of_sockets("5/h")
    app.add_api_websocket_route("/private", refuse)

    start, _ = await handshake(app, "/private", DENIAL)

    assert (401, "4") == (start["status"], fields_of(start)["ratelimit-remaining"])


async def test_a_socket_sees_the_results_of_both() -> None:
    """The context is one, the application's limits first."""
    seen: list[int] = []

    async def look(websocket: WebSocket, rate_limit: CurrentRateLimit) -> None:
        seen.extend(each.state.limit for each in rate_limit.results)
        await accept(websocket)

    router = ThrottledRouter(frozen("3/h"))
    router.add_api_websocket_route("/limited", look)
    app = app_of(router)
    app.add_middleware(RateLimitMiddleware, limiter=frozen(), throttle="5/h")

    assert ACCEPTED == kinds(await handshake(app, "/limited"))
    assert [5, 3] == seen


def by_path(request: Request) -> str:
    """Want a request, which a socket has none of."""
    return request.url.path


def by_host(connection: HTTPConnection) -> str:
    """Want no more than there is."""
    return connection.headers["host"]


async def test_a_function_that_wants_a_request_accepts_no_socket() -> None:
    """Requests are limited, and the error of a handshake says what to write."""
    app = app_of_sockets(Limit("1/h", key_func=by_path))

    (answer,) = await answers(app, "GET /missing")
    assert 404 == answer.status_code
    for _ in range(2):
        with pytest.raises(
            ViewDefinitionError, match="Annotate its parameter HTTPConn"
        ):
            await handshake(app, "/", DENIAL)


async def test_a_function_that_wants_a_connection_serves_both() -> None:
    """That is what an application is limited by that has sockets."""
    store = Relay()
    app = app_of_sockets(Limit("5/h", key_func=by_host), Limiter(store=store))

    assert ACCEPTED == kinds(await handshake(app))
    await answers(app, "GET /missing")

    assert 1 == len(set(store.keys))
    assert "|{example.test}|" in store.keys[0]


async def test_a_socket_is_denied_while_the_store_is_unavailable() -> None:
    """With a 503 where the server can send it, else by code 1013."""
    store = Outage(is_down=True)
    app = app_of_sockets("5/h", Limiter(store=store, on_store_error="deny"))

    start, _ = await handshake(app, "/", DENIAL)
    (closed,) = await handshake(app)

    assert (503, {"retry-after": "1"}) == (start["status"], fields_of(start))
    assert 1013 == closed["code"]


async def test_an_application_around_no_application_is_limited() -> None:
    """A socket of plain ASGI is refused in the same way."""

    async def app(*_: object) -> None:
        raise AssertionError

    served: ASGIApp = RateLimitMiddleware(app, limiter=frozen(), throttle="0/h")

    start, _ = await handshake(served, "/", DENIAL)

    assert 429 == start["status"]
