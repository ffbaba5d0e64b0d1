"""
How an outcome reaches the client: on every response, and as a 429 where one is due.

The fields are added where the response starts, so that they are on models, streams,
files and error responses alike, and stay when a handler of the user renders the 429.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from inspect import iscoroutinefunction
from itertools import takewhile
from types import SimpleNamespace
from typing import Annotated, Any, Protocol, TypeAlias

from fastapi import Depends, HTTPException
from fastapi.exception_handlers import http_exception_handler
from starlette.exceptions import HTTPException as StarletteHTTPException
from starlette.middleware.exceptions import ExceptionMiddleware
from starlette.requests import HTTPConnection, Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from throttled_views._answers import Giver
from throttled_views._settlement import settle, settled
from throttled_views.context import Builder, Outcome, RateLimitContext
from throttled_views.errors import LimitedError, StoreUnavailableError
from throttled_views.headers import REDUCED_CAPACITY, RawHeaders
from throttled_views.route_keys import RouteKey
from throttled_views.stores.base import Store
from throttled_views.stores.deciding import AnyTaken
from throttled_views.stores.failover import Failover

__all__ = [
    "CurrentRateLimit",
    "RateLimitExceededError",
    "rate_limit_exceeded_handler",
]

SCOPE_KEY = "throttled_views"

_TOO_MANY_REQUESTS = 429  # RFC 6585, section 4
_SERVICE_UNAVAILABLE = 503  # RFC 9110, section 15.6.4
_DETAIL = "Rate limit exceeded"
_BODY = b'{"detail":"Rate limit exceeded"}'
_BODY_HEADERS = [
    (b"content-length", b"%d" % len(_BODY)),
    (b"content-type", b"application/json"),
]
# Of a response; the second is to a handshake that is refused.
_STARTS = frozenset(("http.response.start", "websocket.http.response.start"))
_REFUSAL = {"type": "http.response.start", "status": _TOO_MANY_REQUESTS}


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
        HTTPException.__init__(self, status_code=_TOO_MANY_REQUESTS, detail=_DETAIL)

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


def _asked(kind: type[HTTPException], status: int) -> tuple[object, ...]:
    """Return what is asked for an answer, in order; FastAPI's handler is the last's."""
    own = takewhile(lambda each: each is not StarletteHTTPException, kind.__mro__)
    return status, *own, StarletteHTTPException


_ASKED = _asked(RateLimitExceededError, _TOO_MANY_REQUESTS)
_ASKED_FIRST = frozenset(_ASKED[:-1])
# Serves in place of an application where a router is served without one.
_OF_FASTAPI = SimpleNamespace(
    exception_handlers={StarletteHTTPException: http_exception_handler}
)


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
    return _problem_response(exc) or JSONResponse(
        {"detail": exc.detail}, status_code=exc.status_code, headers=exc.headers
    )


class _ProblemResponse(JSONResponse):
    media_type = "application/problem+json"  # RFC 9457, section 3


_DecidedError: TypeAlias = RateLimitExceededError | RateLimitUnavailableError


def _problem_response(error: _DecidedError) -> Response | None:
    if error.problem_details is None:
        return None
    return _ProblemResponse(
        error.problem_details, status_code=error.status_code, headers=error.headers
    )


def own_response(error: _DecidedError, scope: Scope) -> Response | None:
    """
    Return the answer to *error* that is not left to the application; None if it is.

    It has problem details, where the limiter is to give them and nobody else but
    FastAPI, which has none, would be asked for an answer.
    """
    handlers, asked = _handlers_of(scope), _asked(type(error), error.status_code)
    is_left = _is_left_to_fastapi(handlers, frozenset(asked[:-1]))
    return _problem_response(error) if is_left and scope["type"] == "http" else None


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


class Machinery(Giver, Protocol):
    """What deciding needs of a limiter."""

    @property
    def store(self) -> Store:
        """Where the counts live."""
        ...

    @property
    def failover(self) -> Failover:
        """The store, and what decides while it cannot."""
        ...

    route_key: RouteKey
    """What of a route stands in keys."""

    enabled: bool
    """Whether anything is limited at all."""


class Quick(Builder):
    """
    Decides with nothing built that nobody asks for.

    Attributes:
        machinery: What it uses of its limiter.
        take: Decides, and charges. What it returns is to be awaited if a store has to
            be waited for; None means that the store is down.
    """

    __slots__ = ("machinery", "take")

    def __init__(
        self,
        machinery: Machinery,
        take: Callable[[Scope], AnyTaken | Awaitable[AnyTaken] | None],
        builder: Builder,
    ) -> None:
        super().__init__(builder.renderer, builder.add_to, builder.merged)
        self.machinery = machinery
        self.take = take


_Recorded: TypeAlias = Outcome | tuple[Builder, AnyTaken, int, object] | None
"""
What a scope holds: an outcome, or all that it takes to make one, or nothing yet.

A route that decided in a hurry leaves a tuple, and most requests need no more: what
builds the outcome, what was decided, the `id` of the scope that it was decided for, and
the endpoint that serves that scope. See `outcome_of`.
"""


def begin(scope: Scope) -> None:
    """
    Begin to serve *scope* by a route of ours.

    Its outcome is there from the beginning, so that copies of the scope have it, too.
    One that came with a copy of another scope, which an application dispatches by
    itself, is of another request.
    """
    outcome = outcome_of(scope)
    outcome.serve(id(scope), scope.get("endpoint"))
    if outcome.scope_id != id(scope):
        scope[SCOPE_KEY] = Outcome(id(scope), scope.get("endpoint"))


def begin_app(scope: Scope, send: Send, rules: Iterable[object]) -> Send:
    """
    Begin to serve *scope* before there is a route; return what sends and tells.

    Of several who do so, the first tells. Where one has decided its *rules* already,
    for another scope than this, it is a copy: another request, which an application
    dispatches by itself.
    """
    if SCOPE_KEY in scope:
        outcome = outcome_of(scope)
        if outcome.began == id(scope) or outcome.decided_none_of(rules):
            return send
    scope[SCOPE_KEY] = Outcome(began=id(scope))
    return partial(send_with_headers, send, scope)


def is_told(scope: Scope) -> bool:
    """Tell whether what began before there was a route tells the outcome."""
    recorded: _Recorded = scope.get(SCOPE_KEY)
    return isinstance(recorded, Outcome) and recorded.is_told


def telling(send: Send, scope: Scope) -> Send:
    """Return what sends and tells the outcome of *scope*."""
    return send if is_told(scope) else partial(send_with_headers, send, scope)


def outcome_of(scope: Scope) -> Outcome:
    """
    Return the outcome of the request of *scope*, making it if need be.

    What a copy of a scope brings along is of the same request as long as the same
    endpoint serves it, or none yet: routes and middleware may copy a scope on its way.
    """
    recorded: _Recorded = scope.get(SCOPE_KEY)
    if isinstance(recorded, tuple):
        builder, taken, scope_id, endpoint = recorded
        recorded = Outcome(scope_id, endpoint)
        recorded.add(builder, taken)
    endpoint = scope.get("endpoint")
    if recorded is None or (
        recorded.scope_id not in {0, id(scope)} and recorded.endpoint is not endpoint
    ):
        recorded = Outcome(id(scope), endpoint)
    scope[SCOPE_KEY] = recorded
    return recorded


def context_of(scope: Scope) -> RateLimitContext:
    """Return what users see of the outcome of a request."""
    return RateLimitContext(outcome_of(scope))


def fields_of(scope: Scope) -> RawHeaders:
    """Return the header fields that tell the outcome, names in lower case."""
    return _merged((), scope)


def _merged(headers: Iterable[tuple[bytes, bytes]], scope: Scope) -> RawHeaders:
    """Return *headers* and those that tell the outcome, as a new list."""
    recorded: _Recorded = scope.get(SCOPE_KEY)
    if isinstance(recorded, tuple):
        return recorded[0].merged(headers, recorded[1])
    return [*headers] if recorded is None else recorded.merged(headers)


async def _current_rate_limit(connection: HTTPConnection) -> RateLimitContext:
    return context_of(connection.scope)


CurrentRateLimit: TypeAlias = Annotated[RateLimitContext, Depends(_current_rate_limit)]
"""
What was decided for this request, as a parameter: ``rate_limit: CurrentRateLimit``.

It is a live view: a limit that is decided right before the handler is in it when the
handler runs. Its `result` raises `NoRateLimitError` if no limit applied.
"""


# Not a coroutine function: one would cost a coroutine more for each message.
def send_with_headers(send: Send, scope: Scope, message: Message) -> Awaitable[None]:
    """Send *message*; if a response starts with it, with the fields of the outcome."""
    if message["type"] not in _STARTS:
        return send(message)
    message = dict(message)  # it may be a constant of the application
    headers = message.get("headers", ())
    recorded: _Recorded = scope.get(SCOPE_KEY)
    if type(recorded) is tuple:
        message["headers"] = recorded[0].merged(headers, recorded[1])
        return send(message)
    if isinstance(recorded, Outcome) and recorded.open:
        return _settle_and_send(recorded, send, scope, message)
    message["headers"] = _merged(headers, scope)
    return send(message)


async def _settle_and_send(
    outcome: Outcome, send: Send, scope: Scope, message: Message
) -> None:
    await settle(outcome, message["status"])
    await send_with_headers(send, scope, message)


async def serve_and_settle(serving: Awaitable[None], scope: Scope) -> None:
    """
    Wait for *serving* the request of *scope*; settle it if no response started.

    A socket that was accepted has none, and stays charged.
    """
    if scope["type"] == "http":
        # Its own, whatever stands in the scope by then: routes may copy it.
        await settled(serving, outcome_of(scope))
    else:
        await serving


async def refuse(scope: Scope, receive: Receive, send: Send) -> None:
    """
    Answer the request with the 429 of its outcome.

    The application's exception handlers decide how it looks. If only FastAPI's own
    would be asked, its response is sent without asking: the same bytes, much sooner.
    """
    handlers = _handlers_of(scope)
    is_plain = not _has_problem_details(scope)
    if is_plain and _is_left_to_fastapi(handlers, _ASKED_FIRST):
        fields = [] if is_told(scope) else _merged((), scope)
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


def _has_problem_details(scope: Scope) -> bool:
    recorded: _Recorded = scope.get(SCOPE_KEY)
    if isinstance(recorded, tuple):
        return recorded[0].renderer.problem_details
    return outcome_of(scope).problem_details() is not None


async def fail(error: Exception, scope: Scope, receive: Receive, send: Send) -> None:
    """
    Answer the request as the application answers one whose endpoint raises *error*.

    Where FastAPI would answer, and the limiter is to give problem details, they are.
    """
    response = own_response(error, scope) if isinstance(error, _DecidedError) else None
    handling = ExceptionMiddleware(_raiser(error), _handlers_of_exceptions(scope))
    await (response or handling)(scope, receive, send)


def _handlers_of_exceptions(scope: Scope) -> dict[Any, Any]:
    """Return the handlers but that of errors, which Starlette asks further out."""
    handlers = _handlers_of(scope)
    return {each: handlers[each] for each in handlers if each not in (500, Exception)}


def _raiser(error: Exception) -> ASGIApp:
    async def raise_it(_scope: Scope, _receive: Receive, _send: Send) -> None:
        raise error

    return raise_it
