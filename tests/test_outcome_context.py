"""`CurrentRateLimit`: what was decided for a request, for those who serve it."""

from typing import Annotated

import pytest
from fastapi import Depends, FastAPI, WebSocket
from starlette.testclient import TestClient

from tests.asgi import answers, app_of, fields_of
from tests.ways import DECORATED, WAYS, Way
from throttled_views import (
    CurrentRateLimit,
    Limit,
    Limiter,
    MemoryStore,
    NoRateLimitError,
    RateLimitContext,
    ThrottledRouter,
)
from throttled_views.context import Outcome


async def tell(rate_limit: CurrentRateLimit) -> dict[str, object]:
    """Return what can be known of the limits."""
    return {
        "limited": rate_limit.result.limited,
        "remaining": rate_limit.result.state.remaining,
        "results": [(each.name, each.state.limit) for each in rate_limit.results],
        "headers": {**rate_limit.headers},
    }


async def count(rate_limit: CurrentRateLimit) -> int:
    """Return how many limits applied."""
    return len(rate_limit.results)


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
async def test_a_handler_sees_what_the_client_is_told(
    way: Way, store: MemoryStore
) -> None:
    """However a route is limited, the result is there when the handler runs."""
    app = way(Limiter(Limit("2/h", name="hourly"), store=store), tell)

    (answer,) = await answers(app, "GET /")

    assert {
        "limited": False,
        "remaining": 1,
        "results": [["hourly", 2]],
        "headers": fields_of(answer),
    } == answer.json()


async def test_results_are_in_the_order_of_the_limits() -> None:
    """The result that governs is the nearest to exhaustion; all are there."""
    limiter = Limiter(["100/h", Limit("2/h", name="tight"), "50/h"])
    router = ThrottledRouter(limiter)
    router.add_api_route("/", tell)

    (answer,) = await answers(app_of(router), "GET /")

    assert [["1", 100], ["tight", 2], ["3", 50]] == answer.json()["results"]
    assert 1 == answer.json()["remaining"]


async def test_without_a_limit_there_is_no_result() -> None:
    """Asking for the result of an unlimited request is an error; there are none."""
    app = FastAPI()
    app.add_api_route("/tell", tell)
    app.add_api_route("/count", count)

    with pytest.raises(NoRateLimitError, match="Look at `results`, which is empty"):
        await answers(app, "GET /tell")
    (counted,) = await answers(app, "GET /count")

    assert 0 == counted.json()


async def test_without_a_limit_there_are_no_fields() -> None:
    """The headers of an unlimited request are empty, as a mapping that is readable."""
    app = FastAPI()

    @app.get("/")
    async def get(rate_limit: CurrentRateLimit) -> dict[str, str]:
        return {**rate_limit.headers}

    (answer,) = await answers(app, "GET /")

    assert {} == answer.json()


@pytest.mark.parametrize("way", DECORATED.values(), ids=DECORATED)
async def test_what_a_dependency_was_given_shows_what_is_decided_later(
    way: Way, store: MemoryStore
) -> None:
    """The context is a live view: a decision after the dependencies is in it."""
    seen: list[int] = []

    async def look(rate_limit: CurrentRateLimit) -> RateLimitContext:
        seen.append(len(rate_limit.results))
        return rate_limit

    async def get(context: Annotated[RateLimitContext, Depends(look)]) -> None:
        seen.append(len(context.results))

    app = way(Limiter("2/h", store=store), get)

    await answers(app, "GET /")

    assert [0, 1] == seen


async def test_each_request_has_a_context_of_its_own() -> None:
    """What was decided for one request is not in the context of the next."""
    router = ThrottledRouter(Limiter("5/h"))
    router.add_api_route("/", count)

    received = await answers(app_of(router), *["GET /"] * 3)

    assert [1, 1, 1] == [answer.json() for answer in received]


async def test_a_limiting_dependency_gives_the_context() -> None:
    """Who has the dependency as a parameter needs no other."""
    limiter = Limiter()
    app = FastAPI()
    limited = Depends(limiter.dependency("5/h"))

    @app.get("/")
    def get(context: Annotated[RateLimitContext, limited]) -> int:
        return context.result.state.remaining

    (answer,) = await answers(app, "GET /")

    assert 4 == answer.json()


def test_a_socket_sees_what_was_decided_for_its_handshake() -> None:
    """The parameter works for WebSockets."""
    router = ThrottledRouter(Limiter("5/h"))

    @router.websocket("/")
    async def socket(websocket: WebSocket, rate_limit: CurrentRateLimit) -> None:
        await websocket.accept()
        await websocket.send_json(rate_limit.result.state.remaining)

    with TestClient(app_of(router)).websocket_connect("/") as client:
        assert 4 == client.receive_json()


async def test_the_context_shows_its_results() -> None:
    """In a log line it says what was decided."""
    router = ThrottledRouter(Limiter("5/h"))

    @router.get("/")
    async def get(rate_limit: CurrentRateLimit) -> str:
        return repr(rate_limit)

    (answer,) = await answers(app_of(router), "GET /")

    assert answer.json().startswith("RateLimitContext(results=(RateLimitResult(")


def test_contexts_of_one_request_are_equal() -> None:
    """A context is a view of its request, and two of another are not the same."""
    outcome = Outcome()

    assert RateLimitContext(outcome) == RateLimitContext(outcome)
    assert 1 == len({RateLimitContext(outcome), RateLimitContext(outcome)})
    assert RateLimitContext(outcome) != RateLimitContext(Outcome())
