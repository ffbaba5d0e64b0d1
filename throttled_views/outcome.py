"""
What is raised where a limit refuses, and what a handler is told of its request.

A route that refuses by itself raises nothing, unless somebody is to handle it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, TypeAlias

from fastapi import Depends, HTTPException
from starlette.requests import HTTPConnection
from starlette.responses import JSONResponse, Response

from throttled_views._scopes import context_of
from throttled_views.context import RateLimitContext
from throttled_views.errors import LimitedError, StoreUnavailableError
from throttled_views.headers import REDUCED_CAPACITY

__all__ = [
    "CurrentRateLimit",
    "RateLimitExceededError",
    "rate_limit_exceeded_handler",
]

TOO_MANY_REQUESTS = 429  # RFC 6585, section 4
_SERVICE_UNAVAILABLE = 503  # RFC 9110, section 15.6.4
_DETAIL = "Rate limit exceeded"


class RateLimitExceededError(LimitedError, HTTPException):
    """
    A limit refuses the request; FastAPI answers it with 429 and a JSON body.

    Register an exception handler for it, for `HTTPException` or for 429 to answer
    otherwise. On a `ThrottledRouter` the header fields are on the response in any case;
    elsewhere an answer of yours passes them on with ``headers=exc.headers``.

    Attributes:
        rate_limit_context: What was decided; its `result` is of the limit that refuses.
    """

    _headers: Mapping[str, str] | None

    def __init__(self, rate_limit_context: RateLimitContext) -> None:
        self.rate_limit_context = rate_limit_context
        HTTPException.__init__(self, status_code=TOO_MANY_REQUESTS, detail=_DETAIL)

    # Not made before a handler asks for them, which costs a third of a refusal.
    @property
    def headers(self) -> Mapping[str, str] | None:
        """The header fields that tell of the limit, for an answer of yours."""
        if self._headers is None:
            self._headers = dict(self.rate_limit_context.headers)
        return self._headers

    @headers.setter
    def headers(self, headers: Mapping[str, str] | None) -> None:
        """Give others in their place."""
        self._headers = headers

    @property
    def problem_details(self) -> Mapping[str, object] | None:
        """The body of the answer, if the limiter answers as RFC 9457 has it."""
        return self.rate_limit_context.problem_details


class RateLimitUnavailableError(StoreUnavailableError, HTTPException):
    """
    A limit denies the request, since its store is unavailable: FastAPI answers 503.

    Register an exception handler for `StoreUnavailableError`, for `HTTPException` or
    for 503 to answer otherwise.
    """

    def __init__(self, *, problem_details: bool = False) -> None:
        self.problem_details: Mapping[str, object] | None = None
        if problem_details:
            self.problem_details = {**REDUCED_CAPACITY, "violated-policies": []}
        HTTPException.__init__(
            self,
            status_code=_SERVICE_UNAVAILABLE,
            detail="Rate limits are unavailable",
            headers={"Retry-After": "1"},  # when the store is tried again
        )


class _ProblemResponse(JSONResponse):
    media_type = "application/problem+json"  # RFC 9457, section 3


DecidedError: TypeAlias = RateLimitExceededError | RateLimitUnavailableError
"""What we raise where a limit lets nobody through."""


def problem_response(error: DecidedError) -> Response | None:
    """Return the answer to *error* with problem details, if there are to be any."""
    if error.problem_details is None:
        return None
    return _ProblemResponse(
        error.problem_details, status_code=error.status_code, headers=error.headers
    )


async def rate_limit_exceeded_handler(
    _connection: HTTPConnection, exc: Exception
) -> Response:
    """
    Answer a `RateLimitExceededError` with 429 and ``{"detail": …}``.

    FastAPI does so by itself. This is for those who register their handlers one by one:
    ``app.add_exception_handler(RateLimitExceededError, rate_limit_exceeded_handler)``.
    If the limiter is to give problem details, so does this.

    Raises:
        TypeError: *exc* is another exception.
    """
    if not isinstance(exc, RateLimitExceededError):
        msg = "Register rate_limit_exceeded_handler for RateLimitExceededError alone"
        raise TypeError(msg) from exc
    return problem_response(exc) or JSONResponse(
        {"detail": exc.detail}, status_code=exc.status_code, headers=exc.headers
    )


async def _current_rate_limit(connection: HTTPConnection) -> RateLimitContext:
    return context_of(connection.scope)


CurrentRateLimit: TypeAlias = Annotated[RateLimitContext, Depends(_current_rate_limit)]
"""
What was decided for this request, as a parameter: ``rate_limit: CurrentRateLimit``.

It is a live view: a limit that is decided right before the handler is in it when the
handler runs. Its `result` raises `NoRateLimitError` if no limit applied.
"""
