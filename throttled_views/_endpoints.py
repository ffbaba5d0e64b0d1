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
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing
from functools import partial, wraps
from typing import Annotated, Any, NamedTuple, TypeAlias, TypeVar, cast

from fastapi import Depends
from fastapi.concurrency import run_in_threadpool
from starlette.requests import HTTPConnection
from starlette.responses import Response

from throttled_views._binding import (
    is_async,
    is_same,
    is_stream,
    name_of,
    with_globals_of,
)
from throttled_views._functions import solvable
from throttled_views.throttled import NO_ANSWERS, Answers

__all__ = ["Exchange", "Guard", "dependency_on", "guarded", "is_guarded"]

_logger = logging.getLogger("throttled_views")

T = TypeVar("T")

_EXCHANGE = "throttled_views_exchange"


class Exchange(NamedTuple):
    """
    A request, and what FastAPI made of it.

    Attributes:
        connection: The request.
        response: The response that FastAPI will merge into the handler's.
        answers: Those of the functions that were to be solved.
        may_answer: Whether what the guard returns is the answer.
    """

    connection: HTTPConnection
    response: Response
    answers: Answers = NO_ANSWERS
    may_answer: bool = True


Guard: TypeAlias = Callable[[Exchange, Callable[[], Awaitable[Any]]], Awaitable[Any]]
"""Runs right before a handler, and calls it."""


def dependency_on(
    functions: Sequence[Any], use: Callable[[Exchange], Awaitable[T]]
) -> Callable[..., Awaitable[T]]:
    """Return a dependency that has *functions* solved, and gives what *use* does."""
    names = {f"answer_{number}": id(each) for number, each in enumerate(functions)}

    async def dependency(
        connection: HTTPConnection, response: Response, **answers: Any
    ) -> T:
        by_function = {names[name]: answer for name, answer in answers.items()}
        return await use(Exchange(connection, response, by_function))

    def injected(name: str, annotation: Any) -> inspect.Parameter:
        return inspect.Parameter(
            name, inspect.Parameter.KEYWORD_ONLY, annotation=annotation
        )

    cast("Any", dependency).__signature__ = inspect.Signature(
        [
            injected("connection", HTTPConnection),
            injected("response", Response),
            *(
                injected(name, Annotated[Any, Depends(solvable(each))])
                for name, each in zip(names, functions, strict=True)
            ),
        ]
    )
    return dependency


async def _exchanged(exchange: Exchange) -> Exchange:
    return exchange


def guarded(handler: Any, guard: Guard, functions: Sequence[Any] = ()) -> Any:
    """
    Return an endpoint that serves as *handler* does, with *guard* around it.

    FastAPI sees the parameters of *handler* and one dependency more, the last, which
    has *functions* solved and gives the guard its request. Called from Python, without
    a request, it is just *handler*. A generator is guarded when its dependencies are
    solved: once it runs, the response has started.
    """
    if is_stream(handler) or inspect.isgeneratorfunction(handler):
        return _guarded_stream(handler, guard, functions)
    return _guarded_coroutine(handler, guard, functions)


def _guarded_coroutine(handler: Any, guard: Guard, functions: Sequence[Any]) -> Any:
    name, inner_too, direct = _EXCHANGE, is_guarded(handler), _DirectCalls(handler)
    serve = handler if is_async(handler) else partial(_served_in_thread, handler)

    async def endpoint(*args: Any, **kwargs: Any) -> Any:
        exchange = kwargs.get(name) if inner_too else kwargs.pop(name, None)
        exchange = exchange or direct.exchange_of(args)
        if exchange is None:
            return await serve(*args, **kwargs)
        return await guard(exchange, lambda: serve(*args, **kwargs))

    return _as_endpoint_of(handler, endpoint, dependency_on(functions, _exchanged))


async def _served_in_thread(handler: Any, *args: Any, **kwargs: Any) -> Any:
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


def _guarded_stream(handler: Any, guard: Guard, functions: Sequence[Any]) -> Any:
    name, inner_too = _EXCHANGE, is_guarded(handler)
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

    return _as_endpoint_of(
        handler,
        endpoint if is_stream(handler) else endpoint_in_thread,
        dependency_on(functions, decide_first),
    )


async def _nothing() -> None:
    """Stand in for a handler that runs later."""


def _as_endpoint_of(handler: Any, endpoint: Any, dependency: Any) -> Any:
    """Return *endpoint* with the face of *handler*, and *dependency* as a parameter."""
    signature = inspect.signature(handler)
    parameters = [
        each for each in signature.parameters.values() if each.name != _EXCHANGE
    ]
    extra = inspect.Parameter(
        _EXCHANGE,
        inspect.Parameter.KEYWORD_ONLY,
        annotation=Annotated[Exchange, Depends(dependency)],
    )
    last = parameters[-1:] and parameters[-1].kind is inspect.Parameter.VAR_KEYWORD
    parameters.insert(len(parameters) - 1 if last else len(parameters), extra)
    function: Any = wraps(handler)(with_globals_of(handler, endpoint))
    function.__signature__ = signature.replace(parameters=parameters)
    return function


def is_guarded(endpoint: Callable[..., Any]) -> bool:
    """Tell whether *endpoint* was made by `guarded`."""
    return _EXCHANGE in inspect.signature(endpoint).parameters
