"""Scenarios from public bug reports, by number: what limits of applications answer."""

import asyncio
from collections.abc import AsyncGenerator

import httpx
import pytest
from fastapi import APIRouter, FastAPI, Request, Response, WebSocket
from fastapi.middleware.cors import CORSMiddleware
from fastapi.responses import JSONResponse, StreamingResponse
from fastapi.testclient import TestClient
from starlette.background import BackgroundTask
from starlette.testclient import WebSocketDenialResponse
from starlette.types import Message

from tests.asgi import Relay, answers, app_of, fields_of, frozen, http_scope, statuses
from throttled_views import (
    EXPOSED_HEADERS,
    IETFHeaders,
    Limit,
    Limiter,
    RateLimitHeaderPolicy,
    RateLimitMiddleware,
    Throttle,
    ThrottledRouter,
    everyone,
)


async def hello() -> str:
    """Be a handler."""
    return "hello"


def app_with(limiter: Limiter, of_app: Throttle, of_route: Throttle) -> FastAPI:
    """Return an application with a limit of its own, and one on its only route."""
    router = ThrottledRouter(limiter)
    router.add_api_route("/items", limiter.limit(of_route)(hello))
    app = app_of(router)
    app.add_middleware(RateLimitMiddleware, limiter=limiter, throttle=of_app)
    return app


def by_user(request: Request) -> str:
    """Name a user."""
    return f"user {request.headers['X-User']}"


async def test_case_28_a_denial_by_the_route_leaves_the_application_alone() -> None:
    """A flood that its own limit stops leaves the limit of all to the others."""
    limiter = frozen()
    of_app = Limit("100/min", key_func=everyone)
    app = app_with(limiter, of_app, Limit("1/min", key_func=by_user))

    flood = await answers(app, *["GET /items"] * 200, headers={"X-User": "a"})
    (other,) = await answers(app, "GET /items", headers={"X-User": "b"})
    lost = await answers(app, *["GET /lost"] * 99)

    assert [200] + [429] * 199 == [answer.status_code for answer in flood]
    assert 200 == other.status_code
    assert [404] * 98 + [429] == [answer.status_code for answer in lost]


async def test_case_31_limits_of_application_and_route_are_charged_once_each() -> None:
    """They stack: the route's own does not replace that of the application."""
    store = Relay()
    limiter = Limiter("5/min", store=store)
    app = app_with(limiter, "20/10s", "1/min")

    assert [200] == await statuses(app, "GET /items")
    assert 2 == len(store.keys) == len({*store.keys})


async def test_case_31_a_counter_that_is_met_twice_is_charged_once() -> None:
    """An application and its route that name one bucket count a request once."""
    shared = Limit("3/min", bucket="shared")
    app = app_with(frozen(), shared, shared)

    assert [200] * 3 + [429] == await statuses(app, *["GET /items"] * 4)


async def test_case_50_a_redirect_is_a_request_to_the_application() -> None:
    """Whoever follows it spends two there, and one of the route's own."""
    app = app_with(frozen(), "100/min", "3/min")
    followed = await answers(app, *["GET /items/"] * 4, follow_redirects=True)
    (lost,) = await answers(app, "GET /lost")

    assert [200, 200, 200, 429] == [answer.status_code for answer in followed]
    assert "3" == followed[-1].headers["RateLimit-Limit"]
    # Four redirects, three of them followed with success, and this one.
    assert ("100", "92") == _told(lost)


async def test_case_56_background_tasks_hold_nothing_up() -> None:
    """The body is out before the task ends, and three tasks of three requests end."""
    ending = asyncio.Event()
    done: list[str] = []

    async def task() -> None:
        await ending.wait()
        done.append("task")

    async def get() -> Response:
        return JSONResponse("body", background=BackgroundTask(task))

    app = FastAPI()
    app.add_api_route("/", get)
    app.add_middleware(RateLimitMiddleware, limiter=frozen(), throttle="5/min")
    bodies: asyncio.Queue[bytes] = asyncio.Queue()

    async def receive() -> Message:
        await ending.wait()
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        if message["type"] == "http.response.body" and not message.get("more_body"):
            await bodies.put(message["body"])

    requests = [asyncio.create_task(app(http_scope(), receive, send)) for _ in range(3)]
    assert [b'"body"'] * 3 == [await bodies.get() for _ in range(3)]
    assert [] == done

    ending.set()
    await asyncio.gather(*requests)
    assert ["task"] * 3 == done


async def test_case_58_a_stream_ends_when_its_client_leaves() -> None:
    """Its generator is closed, there is one start, and one charge."""
    left = asyncio.Event()
    events: list[str] = []

    async def chunks() -> AsyncGenerator[str]:
        try:
            yield "chunk"
            await asyncio.Event().wait()
        finally:
            events.append("closed")

    async def get() -> Response:
        return StreamingResponse(chunks(), media_type="text/event-stream")

    async def receive() -> Message:
        await left.wait()
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        events.append(message["type"])
        if message["type"] == "http.response.body":
            left.set()

    store = Relay()
    app = FastAPI()
    app.add_api_route("/", get)
    limiter = Limiter(store=store)
    app.add_middleware(RateLimitMiddleware, limiter=limiter, throttle="5/min")

    await app(http_scope(), receive, send)

    assert ["http.response.start", "http.response.body", "closed"] == events
    assert 1 == len(store.keys)


@pytest.mark.parametrize("prefix", ["", "/x"])
async def test_case_61_no_inclusion_makes_a_route_exempt(prefix: str) -> None:
    """What serves a request does not matter, nor whether anything does."""
    inner, outer = APIRouter(prefix="/own"), APIRouter()
    inner.add_api_route("/items", hello)
    outer.include_router(inner, prefix=prefix)
    app = app_of(outer)
    app.add_middleware(RateLimitMiddleware, limiter=frozen(), throttle="3/min")
    path = f"{prefix}/own/items"
    requests = [f"GET {path}", f"POST {path}", "GET /lost", f"GET {path}"]

    assert [200, 405, 404, 429] == await statuses(app, *requests)


def test_case_68_sockets_do_not_bypass_it() -> None:
    """A handshake is a request to the application, as any other."""
    router = ThrottledRouter(frozen("100/min"))

    @router.websocket("/")
    async def talk(websocket: WebSocket) -> None:
        await websocket.accept()
        await websocket.close()

    app = app_of(router)
    app.add_middleware(RateLimitMiddleware, limiter=frozen(), throttle="2/min")
    client = TestClient(app)
    for _ in range(2):
        with client.websocket_connect("/"):
            pass
    with (
        pytest.raises(WebSocketDenialResponse) as caught,
        client.websocket_connect("/"),
    ):
        pass

    refusal = caught.value
    assert (429, "30") == (refusal.status_code, refusal.headers["Retry-After"])


async def test_case_101_the_tightest_limit_is_told() -> None:
    """First that of the route, which also denies; then that of the application."""
    app = app_with(frozen(), Limit("20/min", key_func=everyone), "2/min")

    first, _, third = await answers(app, *["GET /items"] * 3)
    lost = await answers(app, *["GET /lost"] * 17)
    (fresh,) = await answers(app, "GET /items", client="192.0.2.2")
    (denied,) = await answers(app, "GET /items", client="192.0.2.2")

    assert ("2", "1") == _told(first)
    assert ("2", "0") == _told(third)
    assert "30" == third.headers["Retry-After"]
    assert ("20", "1") == _told(lost[-1])
    assert ("20", "0") == _told(fresh)
    assert ("20", "0", "3") == (*_told(denied), denied.headers["Retry-After"])


def _told(answer: httpx.Response) -> tuple[str, str]:
    fields = fields_of(answer)
    return fields["RateLimit-Limit"], fields["RateLimit-Remaining"]


async def test_case_101_each_policy_is_told_once() -> None:
    """The IETF's fields name both, with the numbers of each."""
    limiter = Limiter(store=Relay(), headers=IETFHeaders())
    app = app_with(limiter, Limit("20/min", name="app"), Limit("2/min", name="route"))

    (answer,) = await answers(app, "GET /items")

    assert ['"app";r=19;t=3', '"route";r=1;t=30'] == sorted(
        answer.headers["RateLimit"].split(", ")
    )


@pytest.mark.parametrize("policy", [RateLimitHeaderPolicy(), IETFHeaders()])
async def test_case_103_a_denial_has_the_fields_of_cors(
    policy: RateLimitHeaderPolicy,
) -> None:
    """A browser may read it, with all that `EXPOSED_HEADERS` lists."""
    limiter = Limiter(store=Relay(), headers=policy)
    app = app_with(limiter, "1/min", "5/min")
    app.add_middleware(
        CORSMiddleware,
        allow_origins=["http://shop.test"],
        expose_headers=EXPOSED_HEADERS,
    )
    origin = {"Origin": "http://shop.test"}

    admitted, denied = await answers(app, *["GET /items"] * 2, headers=origin)

    assert [200, 429] == [admitted.status_code, denied.status_code]
    exposed = denied.headers["Access-Control-Expose-Headers"].split(", ")
    for answer in (admitted, denied):
        assert "http://shop.test" == answer.headers["Access-Control-Allow-Origin"]
        told = {name for name in answer.headers if "ratelimit" in name}
        assert told
        assert told <= {name.lower() for name in exposed}
    assert "Retry-After" in exposed
    assert "60" == denied.headers["Retry-After"]
