"""
What decorators of methods leave on them, until the class of the methods is made.

A decorator cannot know its class. It leaves a mark on a copy of the method; who reads
the class body finds the marks, and those that another decorator has hidden.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any
from weakref import WeakKeyDictionary

from fastapi import APIRouter

from throttled_views._binding import (
    HandlerDecorator,
    HandlerT,
    RouteCall,
    copied,
    is_method,
    mirror,
    name_of,
)
from throttled_views._functions import check_functions
from throttled_views.errors import ConfigurationError, ViewDefinitionError
from throttled_views.limits import (
    EXEMPT,
    Limit,
    LimitOptions,
    Throttle,
    check_distinct,
    limits_of,
)

__all__ = [
    "LIMITS_MARK",
    "ROUTES_MARK",
    "RouteDecorators",
    "forget_marked",
    "limits_given",
    "marked_in",
    "with_limits",
]

LIMITS_MARK = "__throttled_views_limits__"
ROUTES_MARK = "__throttled_views_routes__"

# What was marked in class bodies, and how, until the class is checked.
_marked: WeakKeyDictionary[Any, set[str]] = WeakKeyDictionary()


def marked_in(body: str) -> Iterator[tuple[Any, str]]:
    """Yield what was marked in a class body of this name, and how."""
    for handler, marks in list(_marked.items()):
        if name_of(handler).rpartition(".")[0] == body:
            yield from ((handler, mark) for mark in sorted(marks))


def forget_marked(body: str) -> None:
    """Forget what was marked in a class body of this name."""
    for handler, _ in list(marked_in(body)):
        _marked.pop(handler, None)


def limits_given(
    throttles: Sequence[Throttle], options: LimitOptions
) -> tuple[Limit, ...]:
    """
    Return the limits that ``@limit`` is given, checked.

    Raises:
        InvalidQuotaError: A text is not a quota.
        ConfigurationError: There is nothing to limit to, or an option is out of bounds.
    """
    if not throttles:
        msg = "@limit() limits nothing. Write for example @limit('5/m')"
        raise ConfigurationError(msg)
    if len(throttles) > 1 and EXEMPT in throttles:
        msg = "EXEMPT stands alone. Write @exempt instead, or remove it"
        raise ConfigurationError(msg)
    limits = tuple(each for one in throttles for each in limits_of(one, **options))
    check_distinct(limits)
    for each in limits:
        check_functions(each)
    return limits


def with_limits(
    handler: HandlerT, limits: tuple[Limit, ...], decorator: str
) -> HandlerT:
    """
    Return *handler* with *limits*, which *decorator* gave it; none for an exempt one.

    Raises:
        ViewDefinitionError: It is no method, or has such a mark already.
    """
    _check_is_method(handler, f"@{decorator}", f"@limiter.{decorator}")
    if hasattr(handler, LIMITS_MARK):
        raise ViewDefinitionError(
            name_of(handler),
            "it has two of @limit and @exempt",
            "Write one; several limits go into one @limit('5/m', '100/h')",
        )
    return _marked_copy(handler, LIMITS_MARK, limits)


def _with_route(call: RouteCall) -> HandlerDecorator:
    def decorate(handler: HandlerT, /) -> HandlerT:
        decorator = f"@route.{call.verb}(…)"
        _check_is_method(handler, decorator, f"@router.{call.verb}(…)")
        calls = (call, *getattr(handler, ROUTES_MARK, ()))
        return _marked_copy(handler, ROUTES_MARK, calls)

    return decorate


def _marked_copy(handler: HandlerT, mark: str, value: object) -> HandlerT:
    """Return *handler* with *mark*. It is a copy: others may have the function, too."""
    marked = copied(handler)
    setattr(marked, mark, value)
    _marked[marked] = {*_marked.pop(handler, ()), mark}
    return marked


def _check_is_method(handler: object, decorator: str, instead: str) -> None:
    if not is_method(handler):
        raise ViewDefinitionError(
            name_of(handler),
            f"{decorator} is for methods of a ThrottledView, and this is none",
            f"Write {instead} on a function",
        )


class RouteDecorators:
    """
    Route decorators for methods of views: ``@route.get("/{id}")``.

    They take what the methods of the installed FastAPI's `APIRouter` take. The path is
    relative to the view's. Several on one method are several paths to it.
    """

    def __init__(self) -> None:
        self.get = mirror(APIRouter.get, _with_route)
        self.post = mirror(APIRouter.post, _with_route)
        self.put = mirror(APIRouter.put, _with_route)
        self.patch = mirror(APIRouter.patch, _with_route)
        self.delete = mirror(APIRouter.delete, _with_route)
        self.head = mirror(APIRouter.head, _with_route)
        self.options = mirror(APIRouter.options, _with_route)
        self.trace = mirror(APIRouter.trace, _with_route)
        self.api_route = mirror(APIRouter.api_route, _with_route)
        self.websocket = mirror(APIRouter.websocket, _with_route)
