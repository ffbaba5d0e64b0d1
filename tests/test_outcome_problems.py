"""Refusals as RFC 9457 has them, for whom a limiter gives problem details."""

from collections.abc import AsyncIterator
from typing import Annotated

import httpx
import pytest
from fastapi import (
    Header,
    HTTPException,
    Request,
    Response,
)
from fastapi.responses import JSONResponse, PlainTextResponse
from starlette.applications import Starlette
from starlette.types import Message

from tests.asgi import (
    Relay,
    answers,
    app_of,
    fields_of,
    frozen_store,
    handshake,
    http_scope,
    sent,
)
from tests.outages import Outage
from tests.ways import DECORATED, DEPENDENT, EARLY, WAYS, Way
from throttled_views import (
    IETFHeaders,
    Limit,
    Limiter,
    RateLimitExceededError,
    Store,
    Throttle,
    ThrottledRouter,
    ThrottledView,
    rate_limit_exceeded_handler,
)

OURS = {**EARLY, **DECORATED}
ALL = {**OURS, **DEPENDENT}
PROBLEM = {
    "type": "https://iana.org/assignments/http-problem-types#quota-exceeded",
    "title": "Request cannot be satisfied as assigned quota has been exceeded",
    "status": 429,
    "detail": "Rate limit exceeded",
    "violated-policies": ["hour"],
}
PLAIN = {"detail": "Rate limit exceeded"}


async def hello() -> str:
    """Be a handler."""
    return "hello"


HOURLY = Limit("1/h", name="hour")


def giving(throttle: Throttle = HOURLY, store: Store | None = None) -> Limiter:
    """Return a limiter that gives problem details."""
    return Limiter(throttle, store=store or frozen_store(), problem_details=True)


def assert_is_problem(answer: httpx.Response) -> None:
    """Check that *answer* is the problem of one limit, with all fields."""
    assert 429 == answer.status_code
    assert "application/problem+json" == answer.headers["Content-Type"]
    assert PROBLEM == answer.json()
    assert {
        "RateLimit-Limit": "1",
        "RateLimit-Remaining": "0",
        "RateLimit-Reset": "3600",
        "Retry-After": "3600",
    } == fields_of(answer)


# --- where they are given -------------------------------------------------------------


@pytest.mark.parametrize("way", OURS.values(), ids=OURS)
@pytest.mark.parametrize("store", [frozen_store, Relay], ids=["ours", "another"])
async def test_a_refusal_is_a_problem(way: Way, store: type[Relay]) -> None:
    """It has the type of the draft, and names the limits that refuse."""
    app = way(giving(store=store()), hello)

    _, refused = await answers(app, "GET /", "GET /")

    assert_is_problem(refused)


@pytest.mark.parametrize("way", DEPENDENT.values(), ids=DEPENDENT)
async def test_a_dependency_leaves_the_answer_to_fastapi(way: Way) -> None:
    """It can only raise, and FastAPI's own handler knows no problem details."""
    app = way(giving(), hello)

    _, refused = await answers(app, "GET /", "GET /")

    assert (429, PLAIN) == (refused.status_code, refused.json())


@pytest.mark.parametrize("way", ALL.values(), ids=ALL)
async def test_our_handler_gives_them_everywhere(way: Way) -> None:
    """Registered by hand, it answers for whatever raises."""
    app = way(giving(), hello)
    app.add_exception_handler(RateLimitExceededError, rate_limit_exceeded_handler)

    _, refused = await answers(app, "GET /", "GET /")

    assert_is_problem(refused)


@pytest.mark.parametrize("problem_details", [False, True])
async def test_both_ways_to_answer_send_the_same(*, problem_details: bool) -> None:
    """An answer that is sent without asking is what our handler gives, byte by byte."""
    messages: list[list[Message]] = []
    for is_registered in (False, True):
        limiter = Limiter("0/h", problem_details=problem_details)
        app = WAYS["on a ThrottledRouter"](limiter, hello)
        if is_registered:
            app.add_exception_handler(
                RateLimitExceededError, rate_limit_exceeded_handler
            )
        messages.append(await sent(app, http_scope()))

    assert messages[0] == messages[1]


async def by_user(user: Annotated[str, Header()]) -> str:
    """Name a client by what FastAPI reads."""
    return user


class Late(ThrottledView):
    """A view whose limit is decided after its dependencies."""

    path = "/"
    throttle = HOURLY
    key_func = by_user

    async def get(self) -> str:
        """Answer."""
        return "hello"


async def test_a_late_refusal_is_a_problem_too() -> None:
    """What is decided right before the handler is answered like all else."""
    app = app_of(Late.as_router(giving()))

    _, refused = await answers(app, "GET /", "GET /", headers={"User": "alice"})

    assert_is_problem(refused)


async def a_stream() -> AsyncIterator[str]:
    """Be a handler that streams."""
    yield "hello"


async def test_a_late_refusal_of_a_stream_is_left_to_fastapi() -> None:
    """It is decided among the dependencies, so that it is as with any of them."""
    router = ThrottledRouter(Limiter(store=frozen_store(), problem_details=True))
    router.add_api_route(
        "/",
        giving(Limit("0/h", key_func=by_user)).limit()(a_stream),
        response_model=None,
    )

    (refused,) = await answers(app_of(router), "GET /", headers={"User": "alice"})

    assert (429, PLAIN) == (refused.status_code, refused.json())


# --- who decides ----------------------------------------------------------------------


async def own(_request: Request, error: Exception) -> Response:
    """Answer otherwise, with what the exception tells."""
    assert isinstance(error, RateLimitExceededError)
    return JSONResponse(error.problem_details, 418)


@pytest.mark.parametrize(
    "what", [RateLimitExceededError, HTTPException, 429], ids=["ours", "all", "429"]
)
@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
async def test_a_handler_of_the_user_wins(
    way: Way, what: int | type[Exception]
) -> None:
    """It finds the problem in the exception, and answers as it likes."""
    app = way(giving(), hello)
    app.add_exception_handler(what, own)

    _, refused = await answers(app, "GET /", "GET /")

    assert (418, PROBLEM) == (refused.status_code, refused.json())


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
async def test_without_problem_details_there_are_none(way: Way) -> None:
    """A limiter gives them if it is told to."""
    app = way(Limiter("1/h"), hello)
    app.add_exception_handler(HTTPException, own)

    _, refused = await answers(app, "GET /", "GET /")

    assert refused.json() is None


async def test_an_application_of_starlette_answers_itself() -> None:
    """Where FastAPI does not answer, whoever does is asked."""
    router = ThrottledRouter(giving("0/h"))
    router.add_api_route("/", hello)
    app = Starlette(routes=router.routes)

    (refused,) = await answers(app, "GET /")

    assert (429, "Rate limit exceeded") == (refused.status_code, refused.text)


# --- what they say --------------------------------------------------------------------


@pytest.mark.parametrize("way", OURS.values(), ids=OURS)
async def test_only_limits_that_refuse_are_violated(way: Way) -> None:
    """They are named as in the fields, and in the order of decision."""
    limits = [
        Limit("1/h", name="hour"),
        Limit("100/h", name="more"),
        Limit("1/d", name='the "day"'),
    ]
    limiter = Limiter(
        limits, store=frozen_store(), headers=IETFHeaders(), problem_details=True
    )
    app = way(limiter, hello)

    _, refused = await answers(app, "GET /", "GET /")

    assert ["hour", 'the "day"'] == refused.json()["violated-policies"]
    assert (
        '"hour";r=0;t=3600, "more";r=99;t=36, "the \\"day\\"";r=0;t=86400'
        == (refused.headers["RateLimit"])
    )
    assert "86400" == refused.headers["Retry-After"]


# --- while the store is down ----------------------------------------------------------

REDUCED: dict[str, object] = {
    "type": "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity",
    "title": "Request cannot be satisfied due to temporary server capacity constraints",
    "status": 503,
    "detail": "Rate limits are unavailable",
    "violated-policies": [],
}


@pytest.mark.parametrize("way", OURS.values(), ids=OURS)
async def test_a_denial_in_an_outage_is_a_problem(way: Way) -> None:
    """It has another type, and no limit is violated."""
    limiter = Limiter(
        "5/h", store=Outage(is_down=True), on_store_error="deny", problem_details=True
    )

    (denied,) = await answers(way(limiter, hello), "GET /")

    assert (503, "1") == (denied.status_code, denied.headers["Retry-After"])
    assert "application/problem+json" == denied.headers["Content-Type"]
    assert REDUCED == denied.json()


@pytest.mark.parametrize("way", OURS.values(), ids=OURS)
async def test_a_handler_of_the_user_wins_in_an_outage(way: Way) -> None:
    """Whoever is registered for the status answers."""
    limiter = Limiter(
        "5/h", store=Outage(is_down=True), on_store_error="deny", problem_details=True
    )
    app = way(limiter, hello)

    @app.exception_handler(503)
    async def answer(_request: Request, _error: Exception) -> Response:
        return PlainTextResponse("down", 418)

    (denied,) = await answers(app, "GET /")

    assert (418, "down") == (denied.status_code, denied.text)


async def test_a_refused_socket_is_answered_by_fastapi() -> None:
    """The denial of a handshake is an exception, which a handler may render."""
    router = ThrottledRouter(giving("0/h"))

    @router.websocket("/")
    async def socket() -> None:
        """Be a handler that is never asked."""

    start, body = await handshake(
        app_of(router), extensions={"websocket.http.response": {}}
    )

    assert 429 == start["status"]
    assert b'{"detail":"Rate limit exceeded"}' == body["body"]
