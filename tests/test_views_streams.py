"""Handlers that yield: FastAPI streams them from 0.134 on."""

import functools
import inspect
import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from typing import Annotated, Any

import fastapi
import pytest
from fastapi import APIRouter, Depends, FastAPI, Request
from fastapi.responses import StreamingResponse
from fastapi.routing import APIRoute
from pydantic import BaseModel

from tests.apps_views import app_of, limiter_of, operation, unlimited_document, view_of
from tests.asgi import answers
from throttled_views import RegistrationError, ThrottledView, limit, route

OLD = tuple(map(int, fastapi.__version__.split(".")[:2])) < (0, 134)
since_0_134 = pytest.mark.skipif(OLD, reason="this FastAPI does not stream")


class Item(BaseModel):
    """What is streamed."""

    number: int


def handlers() -> type[ThrottledView]:
    """Define a view with all kinds of streams."""

    class Streams(ThrottledView):
        throttle = "2/m"
        request: Request

        @route.get("")
        async def items(self, count: int = 2) -> AsyncIterator[Item]:
            for number in range(count):
                yield Item(number=number)

        @route.get("/raw", response_class=StreamingResponse)
        async def raw(self) -> AsyncIterator[bytes]:
            yield self.request.url.path.encode()
            yield b" is streamed"

    return Streams


@since_0_134
async def test_a_handler_that_yields_is_streamed() -> None:
    """Models that are yielded are lines of JSON, below the fields of the limit."""
    [answer] = await answers(app_of(handlers()), "GET /v?count=3")

    assert [{"number": number} for number in range(3)] == [
        json.loads(line) for line in answer.text.splitlines()
    ]
    assert "1" == answer.headers["RateLimit-Remaining"]


@since_0_134
async def test_a_stream_is_refused_as_a_whole() -> None:
    """Over the limit nothing is streamed: the answer is the usual 429."""
    *_, answer = await answers(app_of(handlers()), *["GET /v"] * 3)

    assert (429, {"detail": "Rate limit exceeded"}) == (
        answer.status_code,
        answer.json(),
    )


@since_0_134
async def test_a_stream_may_be_raw() -> None:
    """With a response class FastAPI sends what is yielded as it is."""
    [answer] = await answers(app_of(handlers()), "GET /v/raw")

    assert "/v/raw is streamed" == answer.text
    assert "1" == answer.headers["RateLimit-Remaining"]


@since_0_134
async def test_a_stream_may_be_of_events() -> None:
    """Server-sent events, which FastAPI knows since 0.135, are streams too."""
    sse: Any = pytest.importorskip("fastapi.sse")

    class View(ThrottledView):
        throttle = "2/m"

        @route.get("", response_class=sse.EventSourceResponse)
        async def events(self) -> AsyncIterator[Item]:
            yield Item(number=7)

    [answer] = await answers(app_of(View), "GET /v")

    assert {"number": 7} == json.loads(answer.text.removeprefix("data: "))
    assert "text/event-stream" in answer.headers["Content-Type"]
    assert "1" == answer.headers["RateLimit-Remaining"]


@since_0_134
async def test_a_dependency_is_open_while_a_handler_streams() -> None:
    """What is injected is closed after the last item."""
    events: list[str] = []

    async def get_session() -> AsyncIterator[str]:
        yield "session"
        events.append("close")

    class View(ThrottledView):
        throttle = "2/m"
        session: Annotated[str, Depends(get_session)]

        @route.get("")
        async def items(self) -> AsyncIterator[str]:
            for number in range(2):
                events.append(f"{self.session} {number}")
                yield str(number)

    await answers(app_of(View), "GET /v")

    assert ["session 0", "session 1", "close"] == events


@since_0_134
async def test_a_stream_that_is_left_is_closed() -> None:
    """When FastAPI closes the endpoint, the handler's finally runs at once."""
    events: list[str] = []

    class View(ThrottledView):
        throttle = "2/m"

        @route.get("", response_class=StreamingResponse)
        async def items(self) -> AsyncGenerator[bytes]:
            try:
                while True:
                    yield b"item"
            finally:
                events.append("closed")

    [added] = View.as_router(limiter_of()).routes
    assert isinstance(added, APIRoute)
    stream = added.endpoint()
    first = await anext(stream)
    await stream.aclose()

    assert (b"item", ["closed"]) == (first, events)


@since_0_134
async def test_a_view_without_injection_streams() -> None:
    """An instance is made for each stream, as for any request."""

    class View(ThrottledView):
        throttle = "9/m"
        visits = 0

        @limit("2/m")
        @route.get("")
        async def count(self) -> AsyncIterator[int]:
            self.visits += 1
            yield self.visits

    answered = await answers(app_of(View), "GET /v", "GET /v", "GET /v")

    assert [(200, "1"), (200, "1"), (429, '{"detail":"Rate limit exceeded"}')] == [
        (answer.status_code, answer.text.strip()) for answer in answered
    ]


@since_0_134
def test_the_document_of_a_stream_is_that_of_a_function() -> None:
    """OpenAPI knows a handler that yields as it knows a function that does."""
    router, app = APIRouter(), FastAPI()

    @router.get("", name="Streams.items")
    async def items(count: int = 2) -> AsyncIterator[Item]:
        for number in range(count):
            yield Item(number=number)

    app.include_router(router, prefix="/v")

    limited = unlimited_document(app_of(handlers()))
    assert operation(app) == limited["paths"]["/v"]["get"]


async def repeat(self: object, text: str, count: int = 2) -> AsyncIterator[str]:
    """Stream a text some times."""
    for _ in range(count):
        yield text


@since_0_134
async def test_a_partialmethod_may_stream() -> None:
    """A handler made of an async generator streams as that does."""
    get = functools.partialmethod(repeat, "a")
    view = view_of(("throttle", "2/m"), ("get", get))
    [answer] = await answers(app_of(view), "GET /v?count=3")

    assert ['"a"'] * 3 == answer.text.splitlines()


def collected(handler: Callable[..., Any]) -> Any:  # noqa: ANN401
    """Return what a handler streams in one list."""

    @functools.wraps(handler)
    async def wrapper(*args: object, **kwargs: object) -> list[object]:
        return [item async for item in handler(*args, **kwargs)]

    return wrapper


def streamed(handler: Callable[..., Any]) -> Any:  # noqa: ANN401
    """Stream what a handler returns."""

    @functools.wraps(handler)
    async def wrapper(*args: object, **kwargs: object) -> AsyncIterator[object]:
        for item in await handler(*args, **kwargs):
            yield item

    return wrapper


async def test_a_wrapper_that_collects_a_stream_is_no_stream() -> None:
    """What counts is the function that Python calls; every FastAPI can await it."""

    async def items(self: object):  # type: ignore[no-untyped-def]  # noqa: ANN202
        yield 1
        yield 2

    view = view_of(("throttle", "2/m"), ("get", collected(items)))
    [added] = view.as_router(limiter_of()).routes
    assert inspect.iscoroutinefunction(added.endpoint)
    [answer] = await answers(app_of(view), "GET /v")

    assert [1, 2] == answer.json()


@since_0_134
async def test_a_wrapper_that_streams_is_a_stream() -> None:
    """A decorator may stream what its handler returns."""

    async def items(self: object):  # type: ignore[no-untyped-def]  # noqa: ANN202
        return [1, 2]

    view = view_of(("throttle", "2/m"), ("get", streamed(items)))
    [answer] = await answers(app_of(view), "GET /v")

    assert ["1", "2"] == answer.text.splitlines()


def test_a_stream_is_refused_where_fastapi_does_not_stream(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Before 0.134 a handler that yields is an error of its registration."""
    monkeypatch.setattr(fastapi, "__version__", "0.133.9")

    with pytest.raises(RegistrationError) as caught:
        app_of(handlers())

    assert caught.value.subject.endswith("<locals>.Streams.items")
    assert "this FastAPI does not serve async generators" in str(caught.value)
    assert "Install fastapi>=0.134, or return a StreamingResponse" in str(caught.value)


if OLD:

    def test_this_fastapi_does_not_stream() -> None:
        """The version at hand is the one that is looked at."""
        with pytest.raises(RegistrationError, match=r"Install fastapi>=0\.134"):
            app_of(handlers())


async def test_a_streaming_response_may_be_returned() -> None:
    """Every FastAPI streams a response that the handler makes, below the fields."""

    class View(ThrottledView):
        throttle = "2/m"

        async def get(self) -> StreamingResponse:
            return StreamingResponse(self.items())

        async def items(self) -> AsyncIterator[str]:
            yield "a"
            yield "b"

    [answer] = await answers(app_of(View), "GET /v")

    assert ("ab", "1") == (answer.text, answer.headers["RateLimit-Remaining"])
