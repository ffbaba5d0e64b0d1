"""A request on a `ThrottledRouter` is decided before anything of it is read."""

from typing import Annotated

import pytest
from fastapi import Body, Depends, FastAPI, HTTPException, Request, params
from starlette.types import Message

from tests.asgi import answers, app_of, fields_of, http_scope, statuses
from throttled_views import Limiter, MemoryStore, Throttle, ThrottledRouter


def once(_request: Request) -> str:
    """Choose a quota."""
    return "1/h"


SPENT: dict[str, Throttle] = {
    "one quota": "1/h",
    "two quotas": ["1/h", "100/h"],
    "a quota function": once,
}
"""Limits that a single request uses up; each is decided in another way."""

spent = pytest.mark.parametrize("throttle", SPENT.values(), ids=SPENT)


def router_of_item(throttle: Throttle, store: MemoryStore) -> ThrottledRouter:
    """Return a router with one route, which reads a number from the body."""
    router = ThrottledRouter(Limiter(throttle, store=store))

    @router.post("/")
    async def post(number: Annotated[int, Body()]) -> int:
        return number

    return router


@spent
async def test_malformed_json_of_a_refused_request_gives_a_429(
    throttle: Throttle, store: MemoryStore
) -> None:
    """Nobody looks at the body of a request that is over the limit."""
    app = app_of(router_of_item(throttle, store))

    admitted, refused = await answers(app, "POST /", "POST /", content=b'{"malformed')

    assert [422, 429] == [admitted.status_code, refused.status_code]


@spent
async def test_the_body_of_a_refused_request_is_not_read(
    throttle: Throttle, store: MemoryStore
) -> None:
    """The server is never asked for it, so a slow upload holds nothing up."""
    app = app_of(router_of_item(throttle, store))
    assert [422] == await statuses(app, "POST /")
    outgoing: list[Message] = []

    async def receive() -> Message:
        pytest.fail("the body was read")

    async def send(message: Message) -> None:
        outgoing.append(message)

    await app(http_scope(method="POST"), receive, send)

    assert 429 == outgoing[0]["status"]


@spent
async def test_no_dependency_runs_for_a_refused_request(
    throttle: Throttle, store: MemoryStore
) -> None:
    """Neither those of the application, nor the router's, nor the handler's."""
    ran: list[str] = []

    def noting(name: str) -> params.Depends:
        async def dependency() -> None:
            ran.append(name)

        return params.Depends(dependency)

    app = FastAPI(dependencies=[noting("app")])
    router = ThrottledRouter(
        Limiter(throttle, store=store), dependencies=[noting("router")]
    )

    @router.get("/", dependencies=[noting("route")])
    async def get(_: Annotated[None, noting("parameter")]) -> None:
        ran.append("handler")

    app.include_router(router)

    assert [200, 429] == await statuses(app, "GET /", "GET /")
    assert ["app", "handler", "parameter", "route", "router"] == sorted(ran)


async def test_what_a_dependency_refuses_is_charged_and_told() -> None:
    """Guessing passwords is limited: a 401 counts, and says so."""
    router = ThrottledRouter(Limiter("2/h"))

    async def nobody() -> None:
        raise HTTPException(401)

    router.add_api_route("/", nobody, dependencies=[Depends(nobody)])

    received = await answers(app_of(router), *["GET /"] * 3)

    assert [(401, "1"), (401, "0"), (429, "0")] == [
        (answer.status_code, answer.headers["RateLimit-Remaining"])
        for answer in received
    ]


async def test_what_does_not_validate_is_charged_and_told(store: MemoryStore) -> None:
    """A 422 costs what a 200 does."""
    app = app_of(router_of_item("2/h", store))

    received = await answers(app, *["POST /"] * 3, content=b'"no number"')

    assert [(422, "1"), (422, "0"), (429, "0")] == [
        (answer.status_code, answer.headers["RateLimit-Remaining"])
        for answer in received
    ]


async def test_an_error_of_the_handler_is_charged_and_not_told() -> None:
    """A 500 is made outside of all routes, so no field is on it; it counts."""
    router = ThrottledRouter(Limiter("2/h"))

    @router.get("/")
    async def get(request: Request) -> None:
        if "fail" in request.query_params:
            raise ZeroDivisionError

    failed, served = await answers(app_of(router), "GET /?fail", "GET /", raising=False)

    assert (500, {}) == (failed.status_code, fields_of(failed))
    assert (200, "0") == (served.status_code, served.headers["RateLimit-Remaining"])
