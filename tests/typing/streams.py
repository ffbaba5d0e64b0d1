"""Handlers that stream: what a checker makes of them."""

from collections.abc import AsyncGenerator, AsyncIterator
from typing import assert_type

from throttled_views import ThrottledView, limit


class Lines(ThrottledView):
    """A verb may be an async generator, whichever way it says so."""

    path = "/lines"
    throttle = "5/m"

    @limit("100/m")
    async def get(self, count: int) -> AsyncIterator[str]:
        """Yield lines."""
        for number in range(count):
            yield f"line {number}"

    async def post(self) -> AsyncGenerator[bytes, None]:
        """Yield bytes."""
        yield b""


class MoreLines(Lines):
    """A stream can be overridden by a stream."""

    async def get(self, count: int) -> AsyncIterator[str]:
        """Yield the lines of the base class, and another."""
        async for line in super().get(count):
            yield assert_type(line, str)
        yield "the end"


class Waiting(ThrottledView):
    """A handler that is neither is refused."""

    throttle = "5/m"

    def get(self) -> list[str]:  # type: ignore[override]  # pyright: ignore[reportIncompatibleMethodOverride]
        """Wait for nothing."""
        return []
