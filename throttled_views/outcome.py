"""
How an outcome reaches the client: on every response, and as a 429 where one is due.

The fields are added where the response starts, so that they are on models, streams,
files and error responses alike, and stay when a handler of the user renders the 429.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from typing import Annotated, NoReturn, Protocol, TypeAlias

from fastapi import Depends, HTTPException
from fastapi.exception_handlers import http_exception_handler
from starlette.requests import HTTPConnection, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import request_response
from starlette.types import Message, Receive, Scope, Send

from throttled_views.errors import LimitedError
from throttled_views.headers import Outcome, RateLimitContext, RawHeaders, merged

__all__ = [
    "CurrentRateLimit",
    "RateLimitExceededError",
    "rate_limit_exceeded_handler",
]

SCOPE_KEY = "throttled_views"

_TOO_MANY_REQUESTS = 429  # RFC 6585, section 4
_DETAIL = "Rate limit exceeded"
_BODY = b'{"detail":"Rate limit exceeded"}'
_BODY_HEADERS = [
    (b"content-length", b"%d" % len(_BODY)),
    (b"content-type", b"application/json"),
]
_REFUSAL = {"type": "http.response.start", "status": _TOO_MANY_REQUESTS}


class RateLimitExceededError(LimitedError, HTTPException):
    """
    A limit refuses the request; FastAPI answers it with 429 and a JSON body.

    Register an exception handler for it, for `HTTPException` or for 429 to answer
    otherwise. The header fields are on the response in any case.

    Attributes:
        rate_limit_context: What was decided; its `result` is of the limit that refuses.
    """

    def __init__(self, rate_limit_context: RateLimitContext) -> None:
        self.rate_limit_context = rate_limit_context
        HTTPException.__init__(
            self,
            status_code=_TOO_MANY_REQUESTS,
            detail=_DETAIL,
            headers=dict(rate_limit_context.headers),
        )


async def rate_limit_exceeded_handler(_request: Request, exc: Exception) -> Response:
    """
    Answer a `RateLimitExceededError` with 429 and ``{"detail": …}``.

    FastAPI does so by itself. This is for those who register their handlers one by one:
    ``app.add_exception_handler(RateLimitExceededError, rate_limit_exceeded_handler)``.

    Raises:
        TypeError: *exc* is another exception.
    """
    if not isinstance(exc, RateLimitExceededError):
        msg = "Register rate_limit_exceeded_handler for RateLimitExceededError alone"
        raise TypeError(msg) from exc
    return JSONResponse(
        {"detail": exc.detail}, status_code=exc.status_code, headers=exc.headers
    )


class _Quick(Protocol):
    """Makes what somebody asks for, of an outcome that was decided at once."""

    def outcome(self, key: str, taken: tuple[bool, int, int], /) -> Outcome:
        """Return the outcome that was not made at once."""
        ...

    def raw_headers(self, taken: tuple[bool, int, int], /) -> RawHeaders:
        """Return the header fields of that outcome, without making it."""
        ...


_Recorded: TypeAlias = Outcome | tuple[_Quick, str, tuple[bool, int, int]] | None
"""What a scope holds: an outcome, or all that it takes to make one."""


def outcome_of(scope: Scope) -> Outcome:
    """Return the outcome of the request that *scope* describes, making it if need be."""
    recorded: _Recorded = scope.get(SCOPE_KEY)
    if recorded is None:
        recorded = Outcome()
    elif isinstance(recorded, tuple):
        quick, key, taken = recorded
        recorded = quick.outcome(key, taken)
    scope[SCOPE_KEY] = recorded
    return recorded


def context_of(scope: Scope) -> RateLimitContext:
    """Return what users see of the outcome of a request."""
    return RateLimitContext(outcome_of(scope))


def _raw_headers_of(scope: Scope) -> RawHeaders:
    recorded: _Recorded = scope.get(SCOPE_KEY)
    if recorded is None:  # the limiter is not enabled
        return []
    if isinstance(recorded, tuple):
        quick, _, taken = recorded
        return quick.raw_headers(taken)
    return recorded.raw_headers()


async def _current_rate_limit(connection: HTTPConnection) -> RateLimitContext:
    return context_of(connection.scope)


CurrentRateLimit: TypeAlias = Annotated[RateLimitContext, Depends(_current_rate_limit)]
"""
What was decided for this request, as a parameter: ``rate_limit: CurrentRateLimit``.

It is a live view: a limit that is decided right before the handler is in it when the
handler runs. Its `result` raises `NoRateLimitError` if no limit applied.
"""


def with_headers(send: Send, scope: Scope) -> Send:
    """Return *send* such that the response starts with the fields of the outcome."""

    # Not a coroutine function: one would cost a coroutine more for each message.
    def send_with_headers(message: Message) -> Awaitable[None]:
        if message["type"] == "http.response.start":
            headers = merged(message.get("headers", ()), _raw_headers_of(scope))
            message = {**message, "headers": headers}
        return send(message)

    return send_with_headers


async def refuse(scope: Scope, receive: Receive, send: Send) -> None:
    """
    Answer the request with the 429 of its outcome.

    The application's exception handlers decide how it looks. If only FastAPI's own would
    be asked, its response is sent without asking: the same bytes for a third of the time.
    """
    if _only_fastapi_answers(scope):
        headers = _raw_headers_of(scope) + _BODY_HEADERS
        await send({**_REFUSAL, "headers": headers})
        await send({"type": "http.response.body", "body": _BODY})
        return
    raise_it = _raiser(RateLimitExceededError(context_of(scope)))
    await request_response(raise_it)(scope, receive, with_headers(send, scope))


def _only_fastapi_answers(scope: Scope) -> bool:
    app = scope.get("app")
    if app is None:  # a router served without an application
        return True
    handlers = app.exception_handlers
    if _TOO_MANY_REQUESTS in handlers:
        return False
    for kind in RateLimitExceededError.__mro__:
        if kind in handlers:
            return handlers[kind] is http_exception_handler
    return False


def _raiser(
    error: RateLimitExceededError,
) -> Callable[[Request], Coroutine[None, None, NoReturn]]:
    async def raise_it(_request: Request) -> NoReturn:
        raise error

    return raise_it
