"""
What users must not write, and both type checkers refuse.

Each line below that is marked is wrong. The marks are assertions: mypy reports a
`type: ignore` and pyright a `pyright: ignore` that nothing needs. Checked, never run.
"""

from fastapi import Request

from throttled_views import (
    EXEMPT,
    Limit,
    Limiter,
    Quota,
    Throttled,
    ThrottledRouter,
    ThrottledView,
    exempt,
    limit,
    route,
)

limiter = Limiter()


def number(request: Request) -> int:
    """Return what cannot be a key."""
    return len(request.url.path)


def sync() -> int:
    """Be a function that cannot be decorated."""
    return 0


class SyncHandler(ThrottledView):
    """A handler must be async."""

    throttle = "5/m"

    def get(self) -> int:
        """Be sync."""
        return 0


class SyncDecorated(ThrottledView):
    """No decorator takes a sync method."""

    throttle = "5/m"

    @route.get("/a")
    def routed(self) -> int:
        """Be sync."""
        return 0

    @limit("5/m")
    @route.get("/b")
    def limited(self) -> int:
        """Be sync."""
        return 0

    @exempt
    @route.get("/c")
    def unlimited(self) -> int:
        """Be sync."""
        return 0


class NumberThrottle(ThrottledView):
    """A number is no throttle."""

    throttle = 5


class BytesPath(ThrottledView):
    """Bytes are no path."""

    path = b"/items"


class NumberKey(ThrottledView):
    """A key is a text."""

    throttle = "5/m"
    key_func = number


class TextKey(ThrottledView):
    """A key function is a function."""

    throttle = "5/m"
    key_func = "X-Tenant"


class Misspelt(ThrottledView):
    """Decorators know their parameters."""

    throttle = "5/m"

    @route.get("/a", respons_model=int)
    async def routed(self) -> int:
        """Misspell an option of a route."""
        return 0

    @limit("5/m", kost=2)
    async def get(self) -> int:
        """Misspell an option of a limit."""
        return 0


limiter.limit("5/m")(sync)
limiter.limit(5)
limiter.limit("5/m", key_func=number)
limiter.limit("5/m", kost=2)
limiter.exempt(sync)

Quota("5/m")
Quota.per_minute("5")
Quota.per_minute(5, 10)
Quota.per_minute(5).limit = 6

Limit(5)
Limit("5/m", cost="2")
Limit("5/m", using="token bucket")

ThrottledRouter(limiter).add_view(Request)
ThrottledRouter(limiter).add_view(SyncHandler())
ThrottledRouter("5/m")
SyncHandler.as_router(limiter, prefx="/v1")

wrong_exemption: type[ThrottledView] = EXEMPT


async def gates(throttled: Throttled) -> None:
    """Every short way to ask lets everybody in."""
    if await throttled.limit("alice"):
        return
    if throttled.limit("alice"):
        return
    if not (await throttled.peek("alice")):
        return
    throttled.limit("alice")
    await throttled.limit("alice", "2")
    await throttled.limit(5)
