"""
What is inside an endpoint with a guard around it.

A route that decides its limits itself serves that, and not the guard. What another
decorator has made of the endpoint since is not passed over.
"""

from __future__ import annotations

from types import FunctionType
from typing import Any
from weakref import WeakSet

from throttled_views._binding import copied
from throttled_views._declaration import (
    DECLARED,
    Declaration,
    Inside,
    declaration_of,
    declare,
)

__all__ = ["declare_guarded", "declare_inside", "is_decorated", "unguarded"]

# Functions that were decorated with limits, which they have not themselves.
_decorated: WeakSet[FunctionType] = WeakSet()


def is_decorated(function: Any) -> bool:
    """Tell whether *function* has limits in another place: decorated, it is another."""
    return isinstance(function, FunctionType) and function in _decorated


def declare_guarded(endpoint: Any, handler: Any, declaration: Declaration) -> None:
    """Let *endpoint*, which guards *handler*, say *declaration* of itself."""
    declare(endpoint, declaration)
    if isinstance(handler, FunctionType):
        _decorated.add(handler)
    handler = unguarded(handler)
    if isinstance(handler, FunctionType):  # a copy, to be declared for itself
        handler = copied(handler)
        declare(handler, declaration)
        declare_inside(endpoint, handler, declaration)


def declare_inside(endpoint: Any, handler: Any, declaration: Declaration) -> None:
    """Let *endpoint* say *declaration* of itself, and that *handler* is inside."""
    declare(endpoint, declaration)
    declaration.inside = Inside(endpoint, _face(endpoint), handler)


def unguarded(endpoint: Any) -> Any:
    """
    Return *endpoint* without its guard, for a route that decides its limits itself.

    What another decorator has made of it since, or changed on it, stays as it is.
    """
    inside = declaration_of(endpoint).inside
    if inside is None or inside.endpoint is not endpoint:
        return endpoint
    return inside.handler if inside.face == _face(endpoint) else endpoint


def _face(endpoint: Any) -> object:
    own: dict[str, Any] = endpoint.__dict__
    marks = {name: id(mark) for name, mark in own.items() if name != DECLARED}
    return endpoint.__name__, endpoint.__doc__, marks
