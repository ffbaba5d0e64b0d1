"""
Limits that are decided right before a handler, and told without a `ThrottledRoute`.

That is so for plain functions on any router, for WebSockets, and for dependencies.
Nothing of the user's is changed: a response or an error that tells is a copy.
"""

from __future__ import annotations

import copy
from asyncio import CancelledError
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from types import MemberDescriptorType
from typing import Any, cast

from starlette.exceptions import HTTPException, WebSocketException
from starlette.responses import Response
from starlette.types import Scope
from starlette.websockets import WebSocketState

from throttled_views._exchange import Exchange, Guard
from throttled_views._plan import Plan, decide_all
from throttled_views._refusals import own_response
from throttled_views._rules import NOTHING_SOLVED, Solved
from throttled_views._scopes import context_of, fields_of, is_told, outcome_of
from throttled_views._settlement import ERROR, settle, settle_soon
from throttled_views._statuses import status_by_default
from throttled_views.headers import merged
from throttled_views.hooks import CheckPhase
from throttled_views.outcome import RateLimitExceededError, RateLimitUnavailableError

__all__ = ["decide", "guard_of", "write"]

_DENIAL = "websocket.http.response"  # ASGI's extension for a refused handshake
_WRITTEN = "throttled_views.written"
_POLICY_VIOLATION = 1008  # RFC 6455, section 7.4.1
_TRY_AGAIN_LATER = 1013  # of the registry of close codes, for a server in trouble
_OK = 200  # RFC 9110, section 15.3.1


def guard_of(plans: Callable[[Scope], Sequence[Plan]]) -> Guard:
    """
    Return a guard that decides *plans* right before a handler.

    It tells the outcome on whatever the handler returns or raises, unless the route
    does so anyway.
    """

    async def guard(exchange: Exchange, call: Callable[[], Awaitable[Any]]) -> Any:
        scope = exchange.connection.scope
        try:
            await decide(plans(scope), scope, exchange.solved)
        except (RateLimitExceededError, RateLimitUnavailableError) as error:
            response = own_response(error, scope) if exchange.may_answer else None
            if response is None:
                raise
            return response
        try:
            result = await call()
        except HTTPException as error:
            await _settle(exchange, error.status_code)
            told = _told_by_error(error, scope)
            if told is error:
                raise
        except Exception:
            await _settle(exchange, ERROR)
            raise
        except BaseException:
            _settle_cancelled(exchange)
            raise
        else:
            await _settle_result(exchange, result)
            if isinstance(result, Response):
                return _told_by_response(result, scope)
            write(exchange.response, scope)
            return result
        raise told  # out here, where it keeps the cause and the context that it has

    return guard


async def decide(
    plans: Sequence[Plan],
    scope: Scope,
    solved: Solved = NOTHING_SOLVED,
    *,
    phase: CheckPhase = "late",
) -> None:
    """
    Charge the request by *plans*; if it is refused, all charged here comes back.

    What was charged in an earlier phase is not charged here, and stays charged.

    Raises:
        RateLimitExceededError: It is refused.
        RateLimitUnavailableError: The store is unavailable, and the policy is to deny.
        WebSocketException: Either, and the server cannot say so with a response.
    """
    cannot_deny = scope["type"] == "websocket" and _DENIAL not in (
        scope.get("extensions") or ()
    )
    try:
        is_refused = await decide_all(plans, scope, solved, phase=phase)
    except RateLimitUnavailableError as error:
        if cannot_deny:
            raise WebSocketException(_TRY_AGAIN_LATER, error.detail) from error
        raise
    except CancelledError:  # while it waited
        settle_soon(outcome_of(scope))
        raise
    if not is_refused:
        return
    if cannot_deny:
        raise WebSocketException(_POLICY_VIOLATION, "Rate limit exceeded")
    raise RateLimitExceededError(context_of(scope))


async def _settle(exchange: Exchange, status: int) -> None:
    """Settle the request, unless that is done when its response starts."""
    if _is_open(exchange):
        await settle(outcome_of(exchange.connection.scope), status)


def _settle_cancelled(exchange: Exchange) -> None:
    """Settle a request that was cancelled, where that is to be done here."""
    if _is_open(exchange):
        settle_soon(outcome_of(exchange.connection.scope))


async def _settle_result(exchange: Exchange, result: object) -> None:
    """Settle a request by the status of the response that FastAPI will make."""
    scope = exchange.connection.scope
    if _is_open(exchange) and scope["type"] == "http":
        status = _status_of(result, exchange.response, scope)
        await settle(outcome_of(scope), status)


def _is_open(exchange: Exchange) -> bool:
    """
    Tell whether the request is to be settled here.

    It is not where that is done as its response starts; a socket that was accepted has
    none, and stays charged.
    """
    scope = exchange.connection.scope
    if not outcome_of(scope).open or _is_told(scope):
        return False
    state = getattr(exchange.connection, "application_state", None)
    return state in {None, WebSocketState.CONNECTING}


def _status_of(result: object, response: Response, scope: Scope) -> int:
    """Return the status of the response that FastAPI will make of *result*."""
    if isinstance(result, Response):
        return result.status_code
    return response.status_code or status_by_default(scope.get("route")) or _OK


def write(response: Response, scope: Scope) -> None:
    """
    Put the fields of the outcome onto FastAPI's *response* of this request.

    A field of the user is kept; one that we wrote, before more was decided, is not.
    """
    if _is_told(scope):
        return
    raw, ours = response.raw_headers, fields_of(scope)
    present, written = dict(raw), scope.get(_WRITTEN, {})
    for name, value in ours:
        if name not in present:
            raw.append((name, value))
        elif present[name] == written.get(name):
            raw[raw.index((name, present[name]))] = (name, value)
    scope[_WRITTEN] = dict(ours)


def _is_told(scope: Scope) -> bool:
    """Tell whether the route, a `ThrottledRoute`, or a middleware tells the outcome."""
    return bool(getattr(scope.get("route"), "tells", False)) or is_told(scope)


def _told_by_response(response: Response, scope: Scope) -> Response:
    """Return *response* with the fields of the outcome; it is not changed itself."""
    fields = fields_of(scope)
    if not fields or _is_told(scope):
        return response
    told = copy.copy(response)
    told.raw_headers = merged(response.raw_headers, fields)
    # Where `headers` keeps its view of the old list; the copy makes its own.
    vars(told).pop("_headers", None)
    return told


def _told_by_error(error: HTTPException, scope: Scope) -> HTTPException:
    """
    Return *error* with the fields of the outcome; it is not changed itself.

    An error that cannot be made again is returned as it is, without them.
    """
    fields = context_of(scope).headers
    if not fields or isinstance(error, RateLimitExceededError) or _is_told(scope):
        return error
    try:
        own = {
            name.lower(): (name, each) for name, each in (error.headers or {}).items()
        }
        ours = {name.lower(): (name, each) for name, each in fields.items()}
        told = _twin_of(error)
        _set(told, "headers", dict({**ours, **own}.values()))
    except Exception:  # noqa: BLE001 - whatever a class of the user has in its way
        return error
    return told


_set = object.__setattr__  # a class may refuse to be set
_OF_ALL = ("args", "__cause__", "__context__", "__suppress_context__", "__traceback__")


def _twin_of(error: HTTPException) -> HTTPException:
    """
    Return an error that is as *error* is.

    `copy.copy` would call its class with `args`, which Starlette's errors do not keep;
    and a class may be made in a way of its own.
    """
    told: HTTPException = _of_python(type(error)).__new__(type(error), *error.args)
    vars(told).update(vars(error))
    for name in (*_slots_of(type(error)), *_OF_ALL):
        if hasattr(error, name):
            with suppress(AttributeError):  # what cannot be set was given when made
                _set(told, name, getattr(error, name))
    return told


def _of_python(kind: type[Any]) -> type[Any]:
    """Return the class of Python's own that alone can make instances of *kind*."""
    while kind.__module__ != "builtins":
        kind = cast("type[Any]", kind.__base__)
    return kind


def _slots_of(kind: type) -> Iterator[str]:
    """Yield the names of the attributes that instances of *kind* have in slots."""
    for each in kind.__mro__:
        for name, member in vars(each).items():
            if isinstance(member, MemberDescriptorType):
                yield name
