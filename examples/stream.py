"""
Streams: a handler that yields is counted when it starts, or refused as a whole.

It needs ``fastapi>=0.135``. Serve it with ``uvicorn examples.stream:app``.
"""

from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import FastAPI, Query
from fastapi.responses import StreamingResponse
from fastapi.sse import EventSourceResponse
from pydantic import BaseModel

from throttled_views import CurrentRateLimit, Limiter, ThrottledView, limit, route

Count = Annotated[int, Query(ge=1, le=100)]

limiter = Limiter()


class Tick(BaseModel):
    """What is streamed."""

    number: int


async def length(count: Count = 10) -> int:
    """Let a stream cost what it sends."""
    return count


class Ticks(ThrottledView):
    """Streams numbers, as lines of JSON or as events of a browser's EventSource."""

    path = "/ticks"
    throttle = "3/m"

    @route.get("")
    @limit("100/m", cost=length)
    async def lines(self, count: Count = 10) -> AsyncIterator[Tick]:
        """Stream as many as are asked for; long streams cost more than short ones."""
        for number in range(count):
            yield Tick(number=number)

    @route.get("/events", response_class=EventSourceResponse)
    async def events(self, rate_limit: CurrentRateLimit) -> AsyncIterator[Tick]:
        """Count down to the number of streams that are left."""
        for number in range(3, rate_limit.result.state.remaining - 1, -1):
            yield Tick(number=number)


app = FastAPI(title="throttled_views: streams")
app.include_router(Ticks.as_router(limiter))


@app.get("/log", response_class=StreamingResponse)
@limiter.limit("2/m")
async def log() -> AsyncIterator[str]:
    """Stream text as it is; a function is limited as a handler is."""
    for number in range(3):
        yield f"line {number}\n"
