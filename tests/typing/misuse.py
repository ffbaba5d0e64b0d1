"""
What users must not write, and both type checkers refuse.

Each line below that is marked is wrong. The marks are assertions: mypy reports a
`type: ignore` and pyright a `pyright: ignore` that nothing needs. Checked, never run.
"""

from fastapi import FastAPI, Request

from throttled_views import (
    EXEMPT,
    CheckEvent,
    ClientIP,
    Limit,
    Limiter,
    Quota,
    RateLimitContext,
    RateLimitMiddleware,
    StoreStateEvent,
    Throttled,
    ThrottledRouter,
    ThrottledView,
    exempt,
    first_of,
    limit,
    route,
)
from throttled_views.testing import assert_throttled, no_limits

limiter = Limiter()


def number(request: Request) -> int:
    """Return what cannot be a key."""
    return len(request.url.path)


async def number_of(user: str) -> int:
    """Return what can be neither a key nor a quota."""
    return len(user)


def sync() -> int:
    """Be a function that cannot be decorated."""
    return 0


class SyncHandler(ThrottledView):
    """A handler must be async."""

    throttle = "5/m"

    def get(self) -> int:  # type: ignore[override]  # pyright: ignore[reportIncompatibleMethodOverride]
        """Be sync."""
        return 0


class SyncDecorated(ThrottledView):
    """No decorator takes a sync method."""

    throttle = "5/m"

    @route.get("/a")  # type: ignore[type-var]  # pyright: ignore[reportArgumentType, reportUntypedFunctionDecorator]
    def routed(self) -> int:
        """Be sync."""
        return 0

    @limit("5/m")  # type: ignore[type-var]  # pyright: ignore[reportArgumentType]
    @route.get("/b")  # pyright: ignore[reportArgumentType, reportUntypedFunctionDecorator]
    def limited(self) -> int:
        """Be sync."""
        return 0

    @exempt  # type: ignore[type-var]  # pyright: ignore[reportArgumentType]
    @route.get("/c")  # pyright: ignore[reportArgumentType, reportUntypedFunctionDecorator]
    def unlimited(self) -> int:
        """Be sync."""
        return 0


class NumberThrottle(ThrottledView):
    """A number is no throttle."""

    throttle = 5  # type: ignore[assignment]  # pyright: ignore[reportAssignmentType]


class BytesPath(ThrottledView):
    """Bytes are no path."""

    path = b"/items"  # type: ignore[assignment]  # pyright: ignore[reportAssignmentType]


class NumberKey(ThrottledView):
    """A key is a text."""

    throttle = "5/m"
    key_func = number  # type: ignore[assignment]  # pyright: ignore[reportAssignmentType]


class LateNumber(ThrottledView):
    """No quota is a number, whoever solves it."""

    throttle = number_of  # type: ignore[assignment]  # pyright: ignore[reportAssignmentType]
    key_func = number_of  # type: ignore[assignment]  # pyright: ignore[reportAssignmentType]


class TextKey(ThrottledView):
    """A key function is a function."""

    throttle = "5/m"
    key_func = "X-Tenant"  # type: ignore[assignment]  # pyright: ignore[reportAssignmentType]


class Misspelt(ThrottledView):
    """Decorators know their parameters."""

    throttle = "5/m"

    @route.get("/a", respons_model=int)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue, reportUntypedFunctionDecorator]
    async def routed(self) -> int:
        """Misspell an option of a route."""
        return 0

    @limit("5/m", kost=2)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue, reportUntypedFunctionDecorator]
    async def get(self) -> int:
        """Misspell an option of a limit."""
        return 0


class AsyncHook:
    """Nobody would await it."""

    def on_check(self, event: CheckEvent) -> None:
        """Read nothing of it."""

    async def on_store_state(self, event: StoreStateEvent) -> None:
        """Be async."""


class NoStore:
    """Has one method of a store, and none of the others."""

    async def aclose(self) -> None:
        """Do nothing."""


limiter.limit("5/m")(sync)  # type: ignore[type-var]  # pyright: ignore[reportArgumentType]
limiter.limit(5)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
limiter.limit("5/m", key_func=number)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
ClientIP(header="X-Real-IP")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
first_of(number)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
limiter.limit("5/m", kost=2)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
limiter.exempt(5)  # type: ignore[type-var]  # pyright: ignore[reportArgumentType]

Quota("5/m")  # type: ignore[arg-type, call-arg]  # pyright: ignore[reportCallIssue]
Quota.per_minute("5")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
Quota.per_minute(5, 10)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
Quota.pers_minute(5)  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
Quota.per_minute(5).limit = 6  # type: ignore[misc]  # pyright: ignore[reportAttributeAccessIssue]

Limiter(hooks=[AsyncHook()])  # type: ignore[list-item]  # pyright: ignore[reportArgumentType]
Limiter(hooks=[print])  # type: ignore[list-item]  # pyright: ignore[reportArgumentType]
Limiter(store=NoStore())  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
Limiter(store="redis://localhost")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
Throttled("5/m", store=NoStore())  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
Limiter(headers="X-RateLimit")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]

Limit(5)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
Limit("5/m", cost="2")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
Limit("5/m", on_store_error="open")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
Limiter(on_store_error="open")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
Limiter(on_store_error=None)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
Limiter(using="fixed_window")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
limiter.limit("5/m", on_store_error="open")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
Limit("5/m", shadow="yes")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
Limit("5/m", max_delay="2")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
Limit("5/m", refund_when=400)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
Limit("5/m", refund_when=lambda: True)  # type: ignore[arg-type, misc]  # pyright: ignore[reportArgumentType]
Limit("5/m", using="token bucket")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]

ThrottledRouter(limiter).add_view(Request)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
ThrottledRouter(limiter).add_view(SyncHandler())  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
ThrottledRouter("5/m")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]

wrong_exemption: type[ThrottledView] = EXEMPT  # type: ignore[assignment]  # pyright: ignore[reportAssignmentType]


# Each short way to ask would let everybody in.


async def truth_of_a_result(throttled: Throttled) -> None:
    """Take a result for an answer."""
    if await throttled.limit("alice"):  # type: ignore[truthy-bool]  # pyright: ignore[reportGeneralTypeIssues]
        return


async def truth_of_no_result(throttled: Throttled) -> None:
    """Take a result for the opposite answer."""
    if not await throttled.peek("alice"):  # type: ignore[truthy-bool]  # pyright: ignore[reportGeneralTypeIssues]
        return


async def truth_of_a_coroutine(throttled: Throttled) -> None:
    """Forget to wait."""
    if throttled.limit("alice"):  # type: ignore[truthy-bool]  # pyright: ignore[reportUnnecessaryComparison]
        return


async def no_question_at_all(throttled: Throttled) -> None:
    """Forget to wait, and to look."""
    throttled.limit("alice")  # type: ignore[unused-coroutine]  # pyright: ignore[reportUnusedCoroutine]


async def wrong_arguments(throttled: Throttled) -> None:
    """Ask with what is no key and no cost."""
    await throttled.limit(5)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    await throttled.limit("alice", cost="2")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


async def a_refund_is_awaited(rate_limit: RateLimitContext) -> None:
    """Forget to wait, and give back parts of a unit."""
    rate_limit.refund(2)  # type: ignore[unused-coroutine]  # pyright: ignore[reportUnusedCoroutine]
    await rate_limit.refund(2.5)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


assert_throttled(429)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
no_limits("5/m")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


# Applications -------------------------------------------------------------------

FastAPI().add_middleware(RateLimitMiddleware, throttle=5)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
FastAPI().add_middleware(RateLimitMiddleware, quota="100/m")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
