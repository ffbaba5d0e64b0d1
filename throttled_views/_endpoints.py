"""
User functions in, FastAPI endpoints out: what runs right before a handler.

Rules of this file:

1. Nothing of the user's is changed. Every endpoint is a new function, with a signature
   of its own; a function may be registered any number of times.
2. The endpoints use no globals, which are those of the user's module.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Sequence
from contextlib import aclosing
from functools import partial, wraps
from typing import Annotated, Any, get_args, get_origin

from fastapi import Depends
from fastapi.concurrency import run_in_threadpool
from starlette.requests import HTTPConnection, Request
from starlette.responses import Response
from starlette.routing import get_name
from starlette.websockets import WebSocket

from throttled_views._binding import (
    call_of,
    is_async,
    is_same,
    is_stream,
    name_of,
    with_globals_of,
)
from throttled_views._early import parameters_of
from throttled_views._exchange import (
    CONNECTION,
    RESPONSE,
    Exchange,
    Guard,
    Inputs,
    dependency_on,
    parameter,
)

__all__ = ["guarded", "is_guarded"]

_logger = logging.getLogger("throttled_views")

_OF_ONE_KIND = (Request, WebSocket)  # which FastAPI gives for themselves


def guarded(handler: Any, guard: Guard, functions: Sequence[Any] = ()) -> Any:
    """
    Return an endpoint that serves as *handler* does, with *guard* around it.

    FastAPI sees the parameters of *handler* and more, the last ones, for what the guard
    needs: the request, the response, and the answers of *functions*. Called from
    Python, without a request, it is just *handler*. A generator is guarded when its
    dependencies are solved: once it runs, the response has started.
    """
    if any(is_stream(each) for each in _faces_of(handler)):
        return _guarded_stream(handler, guard, functions)
    if any(inspect.isgeneratorfunction(each) for each in _faces_of(handler)):
        return _guarded_stream(handler, guard, functions, in_thread=True)
    return _guarded_coroutine(handler, guard, functions)


def _faces_of(handler: Any) -> tuple[Any, ...]:
    """Return all that FastAPI looks at to tell what *handler* is."""
    inner: Any = inspect.unwrap(handler)
    return handler, call_of(handler), inner, call_of(inner)


def _guarded_coroutine(handler: Any, guard: Guard, functions: Sequence[Any]) -> Any:
    name, inputs, direct = CONNECTION, Inputs(functions), _DirectCalls(handler)
    serve = handler if is_async(handler) else partial(_served_in_thread, handler)
    signature = inspect.signature(handler)
    ours = [each.name for each in inputs.parameters]
    own = [each for each in ours if each not in signature.parameters]
    taken = _taken_by(handler)

    async def endpoint(*args: Any, **kwargs: Any) -> Any:
        exchange: Exchange | None
        if name in kwargs:
            exchange = inputs.exchange_of(kwargs)
            for theirs, source in taken.items():
                kwargs[theirs] = kwargs[source]
            for each in own:
                del kwargs[each]
        else:
            exchange = direct.exchange_of(args)
        if exchange is None:
            return await serve(*args, **kwargs)
        return await guard(exchange, lambda: serve(*args, **kwargs))

    left_out = {*ours, *taken}
    parameters = [
        each for each in signature.parameters.values() if each.name not in left_out
    ]
    return _with_face_of(handler, endpoint, parameters, inputs.parameters)


def _taken_by(handler: Any) -> dict[str, str]:
    """
    Return which parameters of *handler* are for what a guard asks for, too.

    FastAPI gives the connection, and the response, to one parameter only.
    """
    taken: dict[str, str] = {}
    for each in parameters_of(handler) or ():
        kind = each.annotation
        if get_origin(kind) is Annotated:
            kind = get_args(kind)[0]
        if not isinstance(kind, type) or each.name in {CONNECTION, RESPONSE}:
            continue
        if issubclass(kind, Response):
            taken[each.name] = RESPONSE
        elif issubclass(kind, HTTPConnection) and not issubclass(kind, _OF_ONE_KIND):
            taken[each.name] = CONNECTION
    return taken


async def _served_in_thread(handler: Any, /, *args: Any, **kwargs: Any) -> Any:
    """Serve as FastAPI does where *handler* is not async, as far as can be seen."""
    result = await run_in_threadpool(handler, *args, **kwargs)
    return await result if inspect.isawaitable(result) else result


class _DirectCalls:
    """Calls of a limited function that do not come from FastAPI."""

    def __init__(self, handler: Any) -> None:
        self._handler = handler
        self._warned = False

    def exchange_of(self, args: tuple[Any, ...]) -> Exchange | None:
        """
        Return what a call with *args* is limited by.

        Starlette gives its routes the connection by position. Without one it is a call
        from Python, which is not limited; or a decorator in between hides the limit.
        """
        if args and isinstance(args[0], HTTPConnection):
            served_by = args[0].scope.get("endpoint")
            if served_by is not None and is_same(served_by, self._handler):
                return Exchange(args[0], Response())
        if not self._warned:
            self._warned = True
            _logger.warning(
                "%s was called without a request, so it was not limited. If a route "
                "calls it, a decorator above @limiter.limit lacks functools.wraps",
                name_of(self._handler),
            )
        return None


def _guarded_stream(
    handler: Any, guard: Guard, functions: Sequence[Any], *, in_thread: bool = False
) -> Any:
    name, inner_too = CONNECTION, is_guarded(handler)
    closing: Any = aclosing

    async def decide_first(exchange: Exchange) -> Exchange:
        await guard(exchange._replace(may_answer=False), _nothing)
        return exchange

    async def endpoint(*args: Any, **kwargs: Any) -> Any:
        if not inner_too:
            kwargs.pop(name, None)
        async with closing(handler(*args, **kwargs)) as items:
            async for item in items:
                yield item

    def endpoint_in_thread(**kwargs: Any) -> Any:
        kwargs.pop(name)
        yield from handler(**kwargs)

    signature = inspect.signature(handler)
    dependency = dependency_on(functions, decide_first)
    return _with_face_of(
        handler,
        endpoint_in_thread if in_thread else endpoint,
        [each for each in signature.parameters.values() if each.name != name],
        [parameter(name, Annotated[Exchange, Depends(dependency)])],
    )


async def _nothing() -> None:
    """Stand in for a handler that runs later."""


def _with_face_of(
    handler: Any,
    endpoint: Any,
    parameters: list[inspect.Parameter],
    more: list[inspect.Parameter],
) -> Any:
    """Return *endpoint* with the face of *handler*, and with parameters of its own."""
    last = parameters[-1:] and parameters[-1].kind is inspect.Parameter.VAR_KEYWORD
    place = len(parameters) - 1 if last else len(parameters)
    function: Any = wraps(handler)(with_globals_of(handler, endpoint))
    function.__name__ = get_name(handler)  # also of an object that can be called
    function.__signature__ = inspect.signature(handler).replace(
        parameters=[*parameters[:place], *more, *parameters[place:]]
    )
    return function


def is_guarded(endpoint: Callable[..., Any]) -> bool:
    """Tell whether *endpoint* was made by `guarded`, or is around one that was."""
    try:
        return CONNECTION in inspect.signature(endpoint).parameters
    except (TypeError, ValueError):  # it does not tell
        return False
