"""
What a router makes of a view: an endpoint for each handler, which says its limits.
"""

from __future__ import annotations

import inspect
from typing import Any, ClassVar, Protocol, cast, get_origin

from throttled_views._binding import can_stream, is_stream, name_of
from throttled_views._declaration import Declaration, declare
from throttled_views._functions import check_connection
from throttled_views._handlers import Definition, Handler
from throttled_views._parts import Binder, Part
from throttled_views._view_binding import view_endpoint
from throttled_views.errors import RegistrationError

__all__ = ["View", "check_is_complete", "endpoint_of"]


class View(Protocol):
    """What a router needs of a view class."""

    __throttled_definition__: ClassVar[Definition]


def endpoint_of(view: type[View], handler: Handler, limiter: Binder) -> Any:
    """
    Return a new endpoint that serves as *handler* of *view* does.

    Args:
        view: The class.
        handler: One of its handlers.
        limiter: The limiter of the router.

    Raises:
        RegistrationError: The installed FastAPI cannot serve it.
        ViewDefinitionError: The class wants what the handler's requests do not have.
    """
    throttled = handler.throttled
    parts = () if throttled is None else (Part(None, throttled.limits),)
    declaration = Declaration(
        view,
        handler=handler.name,
        parts=parts,
        exempt=throttled is not None and not throttled.limits,
        methods=handler.methods,
        complete=handler.completed,
    )
    late = declaration.late_functions(limiter)
    if view.__init__ is not object.__init__:
        check_connection(handler.methods, view.__init__)
    endpoint = view_endpoint(view, handler.name, made_first=bool(late))
    if is_stream(endpoint) and not can_stream():
        raise RegistrationError(
            name_of(endpoint),
            "this FastAPI does not serve async generators",
            "Install fastapi>=0.134, or return a StreamingResponse",
        )
    declare(endpoint, declaration)
    return endpoint


def check_is_complete(view: type[View]) -> None:
    """Raise RegistrationError if *view* cannot be registered."""
    definition: Definition | None = getattr(view, "__throttled_definition__", None)
    if isinstance(get_origin(view), type):
        raise RegistrationError(
            str(view), "it is no class of its own", f"Write 'class Books({view}): …'"
        )
    if not isinstance(cast("object", view), type):
        raise RegistrationError(
            name_of(view), "it is an instance", "Give the class itself"
        )
    if definition is None or not definition.handlers:
        raise RegistrationError(
            name_of(view),
            "it has no handlers",
            "Subclass ThrottledView and write 'async def get(self)'",
        )
    if inspect.isabstract(view):
        missing = ", ".join(sorted(getattr(view, "__abstractmethods__", ())))
        raise RegistrationError(
            name_of(view),
            f"it is abstract: {missing} is not implemented",
            "Register a subclass that implements it",
        )
