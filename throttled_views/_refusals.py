"""
How a request is answered that is refused, or that no store could decide.

The application's exception handlers decide how it looks. They are asked here, as
Starlette asks them, because the limits of a route are decided around its endpoint.
"""

from __future__ import annotations

from collections.abc import Mapping
from inspect import iscoroutinefunction
from itertools import takewhile
from types import SimpleNamespace
from typing import Any

from fastapi import HTTPException
from fastapi.exception_handlers import http_exception_handler
from starlette.exceptions import HTTPException as StarletteHTTPException
from starlette.middleware.exceptions import ExceptionMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from throttled_views._scopes import (
    context_of,
    has_problem_details,
    is_told,
    telling,
    with_fields,
)
from throttled_views.outcome import (
    TOO_MANY_REQUESTS,
    DecidedError,
    RateLimitExceededError,
    problem_response,
)

__all__ = ["fail", "own_response", "refuse"]

_BODY = b'{"detail":"Rate limit exceeded"}'
_BODY_HEADERS = [
    (b"content-length", b"%d" % len(_BODY)),
    (b"content-type", b"application/json"),
]
_REFUSAL = {"type": "http.response.start", "status": TOO_MANY_REQUESTS}


def _asked(kind: type[HTTPException], status: int) -> tuple[object, ...]:
    """Return what is asked for an answer, in order; FastAPI's handler is the last's."""
    own = takewhile(lambda each: each is not StarletteHTTPException, kind.__mro__)
    return status, *own, StarletteHTTPException


_ASKED = _asked(RateLimitExceededError, TOO_MANY_REQUESTS)
_ASKED_FIRST = frozenset(_ASKED[:-1])

# Serves in place of an application where a router is served without one.
_OF_FASTAPI = SimpleNamespace(
    exception_handlers={StarletteHTTPException: http_exception_handler}
)


async def refuse(scope: Scope, receive: Receive, send: Send) -> None:
    """
    Answer the request with the 429 of its outcome.

    The application's exception handlers decide how it looks. If only FastAPI's own
    would be asked, its response is sent without asking: the same bytes, much sooner.
    """
    handlers = _handlers_of(scope)
    is_plain = not has_problem_details(scope)
    if is_plain and _is_left_to_fastapi(handlers, _ASKED_FIRST):
        fields = [] if is_told(scope) else with_fields((), scope)
        await send({**_REFUSAL, "headers": fields + _BODY_HEADERS})
        await send({"type": "http.response.body", "body": _BODY})
        return
    error = RateLimitExceededError(context_of(scope))
    send = telling(send, scope)
    handler = handlers.get(next(filter(handlers.__contains__, _ASKED), None))
    if not iscoroutinefunction(handler):  # in a thread, or by Starlette's own
        await fail(error, scope, receive, send)
        return
    response = None if is_plain else own_response(error, scope)
    response = response or await handler(Request(scope, receive, send), error)
    if response is not None:  # as Starlette has it
        await response(scope, receive, send)


async def fail(error: Exception, scope: Scope, receive: Receive, send: Send) -> None:
    """
    Answer the request as the application answers one whose endpoint raises *error*.

    Where FastAPI would answer, and the limiter is to give problem details, they are.
    """
    response = own_response(error, scope) if isinstance(error, DecidedError) else None
    handling = ExceptionMiddleware(_raiser(error), _handlers_of_exceptions(scope))
    await (response or handling)(scope, receive, send)


def own_response(error: DecidedError, scope: Scope) -> Response | None:
    """
    Return the answer to *error* that is not left to the application; None if it is.

    It has problem details, where the limiter is to give them and nobody else but
    FastAPI, which has none, would be asked for an answer.
    """
    handlers, asked = _handlers_of(scope), _asked(type(error), error.status_code)
    is_left = _is_left_to_fastapi(handlers, frozenset(asked[:-1]))
    return problem_response(error) if is_left and scope["type"] == "http" else None


def _handlers_of(scope: Scope) -> dict[Any, Any]:
    # Around something else than an application of Starlette's there are none.
    app = scope.get("app", _OF_FASTAPI)
    handlers: dict[Any, Any] = getattr(
        app, "exception_handlers", _OF_FASTAPI.exception_handlers
    )
    return handlers


def _is_left_to_fastapi(
    handlers: Mapping[Any, Any], asked_first: frozenset[object]
) -> bool:
    """Tell whether FastAPI's own handler answers: no other is registered."""
    return handlers.get(
        StarletteHTTPException
    ) is http_exception_handler and asked_first.isdisjoint(handlers)


def _handlers_of_exceptions(scope: Scope) -> dict[Any, Any]:
    """Return the handlers but that of errors, which Starlette asks further out."""
    handlers = _handlers_of(scope)
    return {each: handlers[each] for each in handlers if each not in (500, Exception)}


def _raiser(error: Exception) -> ASGIApp:
    async def raise_it(_scope: Scope, _receive: Receive, _send: Send) -> None:
        raise error

    return raise_it
