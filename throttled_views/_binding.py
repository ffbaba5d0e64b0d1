"""
All work on functions: what they are, and decorators with FastAPI's own parameters.

What a user's function takes and returns is FastAPI's business, and `Any` here.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from copy import copy
from functools import partial, partialmethod, update_wrapper
from types import FunctionType
from typing import Any, Concatenate, NamedTuple, ParamSpec, Protocol, TypeVar, cast

import fastapi
from fastapi import APIRouter

from throttled_views.errors import ViewDefinitionError

__all__ = [
    "HandlerDecorator",
    "HandlerT",
    "RouteCall",
    "call_of",
    "can_stream",
    "copied",
    "globals_of",
    "in_class_body",
    "includes_by_endpoint",
    "is_async",
    "is_method",
    "is_same",
    "is_stream",
    "mirror",
    "name_of",
    "not_async",
    "origin_of",
    "return_annotation_of",
    "where",
    "with_globals_of",
]

P = ParamSpec("P")
HandlerT = TypeVar(
    "HandlerT", bound=Callable[..., Coroutine[Any, Any, Any] | AsyncIterator[Any]]
)
"""A handler: a coroutine function, or an async generator that streams."""

_NOTHING = inspect.Parameter.empty


# --- functions, as their authors see them ---------------------------------------------


def is_async(function: object) -> bool:
    """Tell whether Python itself takes *function* for async."""
    if isinstance(function, partialmethod):
        function = function.func
    return inspect.iscoroutinefunction(function) or is_stream(function)


def is_stream(function: object) -> bool:
    """Tell whether *function* is an async generator function."""
    if isinstance(function, partialmethod):
        function = function.func
    return inspect.isasyncgenfunction(function)


def in_class_body(function: object) -> bool:
    """Tell whether *function* was written in the body of a class."""
    parent = getattr(function, "__qualname__", "").rpartition(".")[0]
    return bool(parent) and not parent.endswith("<locals>")


def is_method(function: Any) -> bool:
    """Tell whether *function* belongs on a class, as far as can be seen from it."""
    if in_class_body(function) or isinstance(function, partialmethod):
        return True
    return next(iter(inspect.signature(function).parameters), "") == "self"


def can_stream() -> bool:
    """Tell whether this FastAPI serves async generators: since 0.134."""
    return _version() >= (0, 134)


def includes_by_endpoint() -> bool:
    """
    Tell whether this FastAPI makes new routes of those that are included.

    Since 0.137 it asks the endpoint of the one route for its parameters instead.
    """
    return _version() < (0, 137)


def _version() -> tuple[int, int]:
    major, minor = fastapi.__version__.split(".")[:2]
    return int(major), int(minor)


def origin_of(function: Any) -> Any:
    """Return what the author wrote: *function* without wrappers and partials."""
    while True:
        inner: Any = inspect.unwrap(function)
        if isinstance(inner, (partial, partialmethod)):
            inner = inner.func
        if inner is function:
            return function
        function = inner


def copied(function: HandlerT) -> HandlerT:
    """Return a copy of *function*, to be marked without marking that of others."""
    if not isinstance(function, FunctionType):
        return copy(function)
    code, namespace = function.__code__, function.__globals__
    again = FunctionType(
        code, namespace, function.__name__, function.__defaults__, function.__closure__
    )
    again.__kwdefaults__ = function.__kwdefaults__
    update_wrapper(again, function)
    vars(again).pop("__wrapped__", None)  # it wraps nothing; it is the same
    vars(again).update(vars(function))
    return cast("HandlerT", again)


def is_same(one: Any, other: Any) -> bool:
    """Tell whether two functions are one, copied or decorated."""
    return _code_of(one) is _code_of(other)


def _code_of(function: Any) -> object:
    origin = origin_of(function)
    return getattr(origin, "__code__", origin)


def globals_of(function: Any) -> dict[str, Any]:
    """Return the names of the module that *function* was written in."""
    function = origin_of(function)
    if not hasattr(function, "__globals__"):
        function = origin_of(call_of(function))
    return getattr(function, "__globals__", {})


def call_of(thing: object) -> Any:
    """Return the method that makes an object one that can be called."""
    return inspect.getattr_static(type(thing), "__call__", None)


def with_globals_of(handler: Any, endpoint: FunctionType) -> Any:
    """
    Return *endpoint* with the globals of *handler*.

    That is where FastAPI before 0.123 looks the names of postponed annotations up. So
    our endpoints use no globals, which would be the user's.
    """
    namespace = globals_of(handler)
    if not namespace:
        return endpoint
    return FunctionType(
        endpoint.__code__,
        namespace,
        endpoint.__name__,
        endpoint.__defaults__,
        endpoint.__closure__,
    )


def name_of(thing: object) -> str:
    """Return ``module.qualname`` of a class or a function, of others their type's."""
    named: Any = thing if hasattr(thing, "__qualname__") else type(thing)
    if isinstance(thing, (partial, partialmethod)):
        named = origin_of(thing.func)
    return f"{named.__module__}.{named.__qualname__}"


def return_annotation_of(function: Any) -> Any:
    """Return what *function* is annotated to return; str if nothing is said."""
    try:
        annotation = inspect.signature(function).return_annotation
    except (TypeError, ValueError):
        return str
    return str if annotation in (_NOTHING, "str") else annotation


def where(function: Any) -> str:
    """Return a place to look at, as ``(file:line)``, empty if there is none."""
    code = getattr(origin_of(getattr(function, "fget", function)), "__code__", None)
    return f" ({code.co_filename}:{code.co_firstlineno})" if code else ""


def not_async(subject: str, function: Any) -> ViewDefinitionError:
    """Return the error for a *function* that cannot be awaited."""
    name = getattr(function, "__name__", "handler").replace("<lambda>", "handler")
    remedy = f"Write 'async def {name}(…)'"
    if callable(function) and hasattr(function, "__wrapped__"):
        problem = "it is a sync wrapper around a handler"
        remedy += " in the decorator too, and await the handler there"
    elif isinstance(function, partial):
        problem = "a functools.partial is no method"
        remedy = "Use functools.partialmethod of an async function"
    elif callable(function):
        problem = "it is not async, and a limit could not be awaited before it"
        remedy += "; await fastapi.concurrency.run_in_threadpool(…) for blocking work"
    else:
        problem = f"it is {function!r}, not an async method"
    return ViewDefinitionError(subject + where(function), problem, remedy)


# --- decorators with FastAPI's own parameters -----------------------------------------


class HandlerDecorator(Protocol):
    """Decorates a handler and returns it with its type."""

    def __call__(self, handler: HandlerT, /) -> HandlerT:
        """Return *handler*, decorated."""
        ...


class RouteCall(NamedTuple):
    """A call of a router's method, to be made when the view is registered."""

    verb: str
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]

    @property
    def path(self) -> str:
        """The path, relative to the view's."""
        return cast("str", self.args[0] if self.args else self.kwargs["path"])

    @property
    def methods(self) -> frozenset[str]:
        """The HTTP methods; none for a WebSocket."""
        if self.verb == "websocket":
            return frozenset()
        if self.verb == "api_route":
            return frozenset(
                method.upper() for method in self.kwargs.get("methods") or ["GET"]
            )
        return frozenset((self.verb.upper(),))


def mirror(
    method: Callable[Concatenate[APIRouter, P], Any],
    mark: Callable[[RouteCall], HandlerDecorator],
) -> Callable[P, HandlerDecorator]:
    """Return a decorator factory that takes what *method* of a router takes."""

    def take(*args: P.args, **kwargs: P.kwargs) -> HandlerDecorator:
        if args and callable(args[0]):
            raise ViewDefinitionError(
                name_of(args[0]) + where(args[0]),
                f"@route.{method.__name__} is given no path",
                f"Write @route.{method.__name__}('/…')",
            )
        try:
            inspect.signature(method).bind(None, *args, **kwargs)
        except TypeError as error:
            raise ViewDefinitionError(
                f"@route.{method.__name__}",
                f"{error}",
                f"Write what APIRouter.{method.__name__} of this FastAPI takes",
            ) from None
        return mark(RouteCall(method.__name__, args, kwargs))

    return take
