"""`@limiter.limit()` on async generator functions, which FastAPI serves since 0.134."""

from collections.abc import AsyncGenerator, AsyncIterator, Callable
from typing import Annotated, Any

import fastapi
import pytest
from fastapi import Depends, FastAPI, Header, HTTPException
from fastapi.exceptions import FastAPIError

from tests.asgi import answers, fields_of, http_scope, sent
from tests.ways import (
    DECORATED,
    EARLY,
    WAYS,
    Way,
    decorated_on_a_throttled_router,
)
from throttled_views import CurrentRateLimit, Limit, Limiter, MemoryStore

SERVED = tuple(map(int, fastapi.__version__.split(".")[:2])) >= (0, 134)

OURS = {**EARLY, **DECORATED}
ours = pytest.mark.parametrize("way", OURS.values(), ids=OURS)

THREE = "0\n1\n2\n"


async def numbers(count: int = 3) -> AsyncIterator[int]:
    """Stream numbers."""
    for number in range(count):
        yield number


def served(serve: Callable[[], FastAPI]) -> FastAPI | None:
    """Return what *serve* returns; None if this FastAPI says it does not stream."""
    if SERVED:
        return serve()
    with pytest.raises(FastAPIError, match="Invalid args for response field"):
        serve()
    return None


@ours
async def test_a_stream_is_limited(way: Way, store: MemoryStore) -> None:
    """It comes as it is, with the fields, or not at all; old FastAPIs refuse it."""
    app = served(lambda: way(Limiter("1/h", store=store), numbers))
    if app is None:
        return

    first, second = await answers(app, "GET /", "GET /")

    told = {
        "RateLimit-Limit": "1",
        "RateLimit-Remaining": "0",
        "RateLimit-Reset": "3600",
    }
    assert (200, THREE, told) == (first.status_code, first.text, fields_of(first))
    assert (429, {"detail": "Rate limit exceeded"}) == (
        second.status_code,
        second.json(),
    )
    assert {**told, "Retry-After": "3600"} == fields_of(second)


async def test_a_call_of_a_stream_from_python_is_not_charged() -> None:
    """Called without a request it is just the generator."""
    limiter = Limiter()
    limited = limiter.limit("6/h")(limiter.limit("5/h")(numbers))

    called = [[number async for number in limited(2)] for _ in range(9)]

    assert [[0, 1]] * 9 == called


@pytest.mark.parametrize("way", [*DECORATED.values(), decorated_on_a_throttled_router])
async def test_stacked_limits_of_a_stream_charge_all_or_none(way: Way) -> None:
    """Whatever refuses, it is one decision, made once."""
    limiter = Limiter("1/h")
    app = served(lambda: way(limiter, limiter.limit("100/h")(numbers)))
    if app is None:
        return

    first, second = await answers(app, "GET /", "GET /")

    assert [(200, "1"), (429, "1")] == [
        (answer.status_code, answer.headers["RateLimit-Limit"])
        for answer in (first, second)
    ]


@pytest.mark.parametrize("way", DECORATED.values(), ids=DECORATED)
async def test_a_refusal_before_a_stream_is_neither_charged_nor_told(way: Way) -> None:
    """A 401 of a dependency comes first, and costs nothing."""
    refusing = [True]

    async def refuse() -> None:
        if refusing.pop():
            raise HTTPException(401)

    async def get(_: Annotated[None, Depends(refuse)]) -> AsyncIterator[int]:
        yield 1

    app = served(lambda: way(Limiter("1/h"), get))
    if app is None:
        return

    (unauthorized,) = await answers(app, "GET /")
    refusing += [False, False]
    first, second = await answers(app, "GET /", "GET /")

    assert (401, {}) == (unauthorized.status_code, fields_of(unauthorized))
    assert [200, 429] == [first.status_code, second.status_code]


@ours
async def test_a_stream_sees_what_was_decided(way: Way, store: MemoryStore) -> None:
    """When the generator starts, the result is there."""

    async def get(rate_limit: CurrentRateLimit) -> AsyncIterator[int]:
        yield rate_limit.result.state.remaining

    app = served(lambda: way(Limiter("5/h", store=store), get))
    if app is None:
        return

    (answer,) = await answers(app, "GET /")

    assert "4\n" == answer.text


async def test_a_stream_ends_with_the_one_around_it() -> None:
    """When FastAPI closes the stream, the function's own is closed at once."""
    events: list[str] = []

    async def get() -> AsyncGenerator[int]:
        try:
            while True:
                yield 1
        finally:
            events.append("closed")

    limiter = Limiter()
    stream = limiter.limit("6/h")(limiter.limit("5/h")(get))()
    await anext(stream)

    await stream.aclose()

    assert ["closed"] == events


@ours
async def test_a_stream_has_one_start(way: Way) -> None:
    """The start goes out before the first item, and each item by itself."""
    app = served(lambda: way(Limiter("5/h"), numbers))
    if app is None:
        return

    messages = await sent(app, http_scope(), {"type": "http.request", "body": b""})

    assert ["http.response.start"] == [
        message["type"]
        for message in messages
        if message["type"] != "http.response.body"
    ]
    assert THREE.splitlines(keepends=True) == [
        message["body"].decode() for message in messages[1:] if message["body"]
    ]


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
async def test_a_stream_of_events_is_limited(way: Way, store: MemoryStore) -> None:
    """FastAPI knows them since 0.135; whoever waits for events is told, too."""
    sse: Any = pytest.importorskip("fastapi.sse")
    limiter = Limiter("1/h", store=store)
    app = way(limiter, numbers, response_class=sse.EventSourceResponse)

    first, second = await answers(app, "GET /", "GET /")

    assert (200, "data: 0\n\ndata: 1\n\ndata: 2\n\n") == (
        first.status_code,
        first.text,
    )
    assert "text/event-stream" in first.headers["Content-Type"]
    assert "0" == first.headers["RateLimit-Remaining"]
    assert (429, {"detail": "Rate limit exceeded"}) == (
        second.status_code,
        second.json(),
    )


async def current_user(x_user: Annotated[str, Header()]) -> str:
    """Find out who asks."""
    return x_user


async def by_user(user: Annotated[str, Depends(current_user)]) -> str:
    """Name who asks."""
    return user


@ours
async def test_a_late_limit_refuses_a_stream_before_it_starts(
    way: Way, store: MemoryStore
) -> None:
    """What FastAPI solves names the client, and nothing is streamed to who is over."""
    limiter = Limiter(Limit("1/h", key_func=by_user), store=store)
    app = served(lambda: way(limiter, numbers))
    if app is None:
        return

    first, second = await answers(app, *["GET /"] * 2, headers={"X-User": "a"})
    (another,) = await answers(app, "GET /", headers={"X-User": "b"})

    assert [200, 429, 200] == [each.status_code for each in (first, second, another)]
    assert [THREE, "0"] == [another.text, second.headers["RateLimit-Remaining"]]
