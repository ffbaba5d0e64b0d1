"""
All work on signatures and annotations: user functions in, FastAPI endpoints out.

Rules of this file:

1. Nothing of the user's is changed. Every endpoint is a new function, with a signature
   of its own; a class or a function may be registered any number of times.
2. Annotations are evaluated where they were written, one by one, as late as possible. A
   name that exists for type checkers only is left to FastAPI, which has its own answer.
3. `Any` lives here: what a user's function takes and returns is FastAPI's business.
"""

from __future__ import annotations

import inspect
import logging
import sys
import typing
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Coroutine,
    Iterator,
    Mapping,
)
from contextlib import aclosing
from copy import copy
from functools import partial, partialmethod, update_wrapper, wraps
from types import (
    FunctionType,
    MemberDescriptorType,
    NoneType,
    SimpleNamespace,
    UnionType,
)
from typing import (
    Annotated,
    Any,
    ClassVar,
    Concatenate,
    NamedTuple,
    ParamSpec,
    Protocol,
    TypeAlias,
    TypeVar,
    Union,
    cast,
)

import fastapi
from fastapi import APIRouter, BackgroundTasks, Depends, params
from fastapi.security import SecurityScopes
from starlette.background import BackgroundTasks as StarletteBackgroundTasks
from starlette.requests import HTTPConnection
from starlette.responses import Response

from throttled_views.errors import ViewDefinitionError

__all__ = [
    "SETTINGS",
    "Exchange",
    "Guard",
    "HandlerDecorator",
    "HandlerT",
    "RouteCall",
    "can_stream",
    "copied",
    "guarded",
    "in_class_body",
    "is_async",
    "is_guarded",
    "is_method",
    "is_same",
    "is_stream",
    "mirror",
    "name_of",
    "not_async",
    "origin_of",
    "return_annotation_of",
    "view_endpoint",
    "where",
]

_logger = logging.getLogger("throttled_views")

P = ParamSpec("P")
HandlerT = TypeVar(
    "HandlerT", bound=Callable[..., Coroutine[Any, Any, Any] | AsyncIterator[Any]]
)
"""A handler: a coroutine function, or an async generator that streams."""

_NOTHING = inspect.Parameter.empty
_BY_KEYWORD = inspect.Parameter.KEYWORD_ONLY
_VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
SETTINGS = ("path", "tags", "dependencies", "throttle", "key_func", "using", "bucket")
"""The attributes by which a view declares."""

_EXCHANGE = "throttled_views_exchange"
_INJECTED_TYPES = (
    HTTPConnection,
    Response,
    BackgroundTasks,
    StarletteBackgroundTasks,
    SecurityScopes,
)
_SLOT = MemberDescriptorType
_INJECTED_VALUES = (params.Depends, params.Param, params.Body)


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


def is_guarded(endpoint: Callable[..., Any]) -> bool:
    """Tell whether *endpoint* was made by `guarded`."""
    return _EXCHANGE in inspect.signature(endpoint).parameters


def can_stream() -> bool:
    """Tell whether this FastAPI serves async generators: since 0.134."""
    major, minor = fastapi.__version__.split(".")[:2]
    return (int(major), int(minor)) >= (0, 134)


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


# --- endpoints of function routes -----------------------------------------------------


class Exchange(NamedTuple):
    """A request, and the response that FastAPI will merge into the handler's."""

    connection: HTTPConnection
    response: Response


Guard: TypeAlias = Callable[[Exchange, Callable[[], Awaitable[Any]]], Awaitable[Any]]
"""Runs right before a handler, and calls it."""


async def _exchange(connection: HTTPConnection, response: Response) -> Exchange:
    return Exchange(connection, response)


def guarded(handler: HandlerT, guard: Guard) -> HandlerT:
    """
    Return an endpoint that serves as *handler* does, with *guard* around it.

    FastAPI sees the parameters of *handler* and one dependency more, which the guard
    gets its request from. Called from Python, without a request, it is just *handler*.
    An async generator is guarded when its dependencies are solved: once it runs, the
    response has started.
    """
    endpoint = _guarded_stream if is_stream(handler) else _guarded_coroutine
    return cast("HandlerT", endpoint(handler, guard))


def _guarded_coroutine(handler: Any, guard: Guard) -> Any:
    name, inner_too, direct = _EXCHANGE, is_guarded(handler), _DirectCalls(handler)

    async def endpoint(*args: Any, **kwargs: Any) -> Any:
        exchange = kwargs.get(name) if inner_too else kwargs.pop(name, None)
        exchange = exchange or direct.exchange_of(args)
        if exchange is None:
            return await handler(*args, **kwargs)
        return await guard(exchange, lambda: handler(*args, **kwargs))

    return _as_endpoint_of(handler, endpoint, _exchange)


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
            return Exchange(args[0], Response())
        if not self._warned:
            self._warned = True
            _logger.warning(
                "%s was called without a request, so it was not limited. If a route "
                "calls it, a decorator above @limiter.limit lacks functools.wraps",
                name_of(self._handler),
            )
        return None


def _guarded_stream(handler: Any, guard: Guard) -> Any:
    name, inner_too = _EXCHANGE, is_guarded(handler)
    closing: Any = aclosing

    async def decide_first(connection: HTTPConnection, response: Response) -> Exchange:
        exchange = Exchange(connection, response)
        await guard(exchange, _nothing)
        return exchange

    async def endpoint(*args: Any, **kwargs: Any) -> Any:
        if not inner_too:
            kwargs.pop(name, None)
        async with closing(handler(*args, **kwargs)) as items:
            async for item in items:
                yield item

    return _as_endpoint_of(handler, endpoint, decide_first)


async def _nothing() -> None:
    """Stand in for a handler that runs later."""


def _as_endpoint_of(handler: Any, endpoint: Any, dependency: Any) -> Any:
    """Return *endpoint* with the face of *handler*, and *dependency* as a parameter."""
    signature = inspect.signature(handler)
    parameters = [
        each for each in signature.parameters.values() if each.name != _EXCHANGE
    ]
    extra = inspect.Parameter(
        _EXCHANGE, _BY_KEYWORD, annotation=Annotated[Exchange, Depends(dependency)]
    )
    last = parameters[-1:] and parameters[-1].kind is inspect.Parameter.VAR_KEYWORD
    parameters.insert(len(parameters) - 1 if last else len(parameters), extra)
    function: Any = wraps(handler)(_with_globals_of(handler, endpoint))
    function.__signature__ = signature.replace(parameters=parameters)
    return function


def _with_globals_of(handler: Any, endpoint: FunctionType) -> Any:
    """
    Return *endpoint* with the globals of *handler*.

    That is where FastAPI before 0.123 looks the names of postponed annotations up. So
    the endpoints of this file use no globals, which would be the user's.
    """
    namespace = getattr(origin_of(handler), "__globals__", None)
    if namespace is None:
        return endpoint
    return FunctionType(
        endpoint.__code__,
        namespace,
        endpoint.__name__,
        endpoint.__defaults__,
        endpoint.__closure__,
    )


# --- endpoints of views ---------------------------------------------------------------


def view_endpoint(view: type, name: str) -> Any:
    """
    Return an endpoint that makes an instance of *view* and awaits its handler *name*.

    Its parameters are those of the handler, by keyword, with the type variables of
    generic bases replaced by the types *view* gives for them; and, if *view* has
    anything to inject, a dependency that makes the instance.

    Raises:
        ViewDefinitionError: A type variable is left open, or a parameter can only be
            given by position.
    """
    owner = next(each for each in view.__mro__ if name in vars(each))
    scene = _Scene(view, owner, name)
    raw, method = vars(owner)[name], getattr(view, name)
    function = origin_of(raw)
    signature = inspect.signature(method)
    self_parameter, *parameters = signature.parameters.values()
    parameters = [scene.resolved(each, function) for each in parameters]
    factory = _factory(view)
    if factory is not None:
        parameters.append(
            inspect.Parameter(
                self_parameter.name,
                _BY_KEYWORD,
                annotation=Annotated[view, Depends(factory)],
            )
        )
    make = _stream_endpoint if is_stream(raw) else _coroutine_endpoint
    endpoint = _with_globals_of(
        function, make(view, method, self_parameter.name if factory else None)
    )
    endpoint.__name__ = name
    endpoint.__qualname__ = f"{view.__qualname__}.{name}"
    endpoint.__module__ = view.__module__
    endpoint.__doc__ = function.__doc__
    endpoint.__signature__ = inspect.Signature(
        parameters,
        return_annotation=scene.resolved_annotation(
            signature.return_annotation, function, "return"
        ),
    )
    return endpoint


def _coroutine_endpoint(view: type, method: Any, self_name: str | None) -> Any:
    if self_name is None:

        async def endpoint(**kwargs: Any) -> Any:
            return await method(view(), **kwargs)

        return endpoint

    async def endpoint_with_instance(**kwargs: Any) -> Any:
        return await method(kwargs.pop(self_name), **kwargs)

    return endpoint_with_instance


def _stream_endpoint(view: type, method: Any, self_name: str | None) -> Any:
    closing: Any = aclosing

    async def endpoint(**kwargs: Any) -> Any:
        instance = view() if self_name is None else kwargs.pop(self_name)
        async with closing(method(instance, **kwargs)) as items:
            async for item in items:
                yield item

    return endpoint


class _Scene:
    """Where annotations are read: a class, for the sake of a concrete view."""

    def __init__(self, view: type, owner: type, member: str) -> None:
        self._view = view
        self._owner = owner
        self._member = member
        self._arguments = _type_arguments(view).get(owner, {})
        self._open = {*getattr(owner, "__parameters__", ())} - {*self._arguments}

    def resolved(
        self, parameter: inspect.Parameter, function: Any
    ) -> inspect.Parameter:
        """Return *parameter* by keyword, with its annotation evaluated."""
        if parameter.kind is inspect.Parameter.POSITIONAL_ONLY:
            raise ViewDefinitionError(
                f"{name_of(self._view)}.{self._member}{where(function)}",
                f"the parameter {parameter.name!r} can only be given by position",
                "Remove the '/' before which it stands",
            )
        annotation = self.resolved_annotation(
            parameter.annotation, function, parameter.name
        )
        return parameter.replace(kind=_BY_KEYWORD, annotation=annotation)

    def resolved_annotation(self, annotation: Any, function: Any, name: str) -> Any:
        """Return *annotation* of *name* evaluated, without type variables."""
        annotation = _evaluated(
            annotation,
            getattr(function, "__globals__", {}),
            (*_type_parameters(self._owner), *_type_parameters(function)),
        )
        annotation = substituted(annotation, self._arguments)
        if is_open(annotation, self._open):
            raise ViewDefinitionError(
                f"{name_of(self._view)}.{self._member}{where(function)}",
                f"the type of {name!r} is still {annotation!r}",
                f"Subclass with the types filled in, for example "
                f"'class Books({self._owner.__name__}[Book])', and register that",
            )
        return annotation


def _factory(view: Any) -> Any:
    """Return a dependency that makes a *view*, None if nothing is injected."""
    constructor = view.__init__
    parameters: dict[str, inspect.Parameter] = {}
    attributes = {each.name: each for each in _injected_attributes(view)}
    if constructor is not object.__init__:
        owner = next(each for each in view.__mro__ if "__init__" in vars(each))
        scene = _Scene(view, owner, "__init__")
        for parameter in list(inspect.signature(constructor).parameters.values())[1:]:
            # An annotated setting of a dataclass is a parameter, but not a client's.
            if parameter.kind not in _VARIADIC and parameter.name not in SETTINGS:
                resolved = scene.resolved(parameter, origin_of(constructor))
                parameters[parameter.name] = resolved
                attributes.pop(parameter.name, None)
    if not parameters and not attributes:
        return None

    # A coroutine function: FastAPI would make instances of a class in a thread.
    async def factory(**values: Any) -> Any:
        instance = view.__new__(view)
        for name in attributes:
            if name in values:  # a socket has no Request
                setattr(instance, name, values.pop(name))
        instance.__init__(**values)
        return instance

    cast("Any", factory).__signature__ = inspect.Signature(
        [*attributes.values(), *parameters.values()]
    )
    return factory


def _injected_attributes(view: type) -> Iterator[inspect.Parameter]:
    """Yield a parameter for each annotated attribute that FastAPI is to fill."""
    found: dict[str, inspect.Parameter] = {}
    for owner in reversed(view.__mro__):
        scene = _Scene(view, owner, "__init__")
        module = SimpleNamespace(__globals__=_namespace(owner))
        annotations = inspect.get_annotations(owner)
        for name in [each for each in found if each in vars(owner)]:
            if not isinstance(vars(owner)[name], (*_INJECTED_VALUES, _SLOT)):
                found.pop(name)  # a value of the subclass's own
        for name, annotation in annotations.items():
            found.pop(name, None)
            default = inspect.getattr_static(view, name, _NOTHING)
            if isinstance(default, _SLOT):
                default = _NOTHING
            known = _evaluated(annotation, module.__globals__, _type_parameters(owner))
            known = getattr(known, "__value__", known)  # of a `type` statement
            if isinstance(known, str) and "Annotated[" in known:
                raise ViewDefinitionError(
                    f"{name_of(view)}.{name}",
                    f"its annotation {known!r} names what cannot be looked up",
                    "Import the names it uses where the module runs, too",
                )
            if _is_injected(known, default):
                found[name] = inspect.Parameter(
                    name,
                    _BY_KEYWORD,
                    default=default,
                    annotation=scene.resolved_annotation(known, module, name),
                )
    yield from found.values()


def _is_injected(annotation: Any, default: object) -> bool:
    if typing.get_origin(annotation) is ClassVar:
        return False
    if isinstance(default, _INJECTED_VALUES):
        return True
    if typing.get_origin(annotation) is Annotated:
        return any(
            isinstance(each, _INJECTED_VALUES) for each in annotation.__metadata__
        )
    return isinstance(annotation, type) and issubclass(annotation, _INJECTED_TYPES)


# --- annotations ----------------------------------------------------------------------


def _namespace(owner: type) -> dict[str, Any]:
    """Return the names of the module that *owner* was written in."""
    return getattr(sys.modules.get(owner.__module__), "__dict__", {})


def _type_parameters(scope: object) -> tuple[Any, ...]:
    """Return the type parameters written in brackets after the name (PEP 695)."""
    return getattr(scope, "__type_params__", ())


def _evaluated(
    annotation: Any, namespace: Mapping[str, Any], type_parameters: tuple[Any, ...]
) -> Any:
    """Return *annotation* with strings evaluated, as it is if a name is unknown."""
    if annotation is _NOTHING:
        return annotation
    names = {each.__name__: each for each in type_parameters}
    holder = type("Holder", (), {"__annotations__": {"it": annotation}})
    try:
        hints = typing.get_type_hints(
            holder, dict(namespace), names, include_extras=True
        )
    except (NameError, AttributeError):
        return annotation
    # FastAPI tells None, which is no body, from its type, which is a null.
    return None if hints["it"] is NoneType else hints["it"]


def _type_arguments(view: type) -> dict[type, dict[Any, Any]]:
    """Return, for each class *view* derives from, what its type variables stand for."""
    found: dict[type, dict[Any, Any]] = {view: {}}

    def visit(owner: type) -> None:
        place = _namespace(owner), _type_parameters(owner)
        for base in vars(owner).get("__orig_bases__", owner.__bases__):
            origin = typing.get_origin(base) or base
            variables = getattr(origin, "__parameters__", ())
            given = [
                substituted(_evaluated(each, *place), found[owner])
                for each in typing.get_args(base)
            ]
            if origin not in found or given:
                found[origin] = dict(zip(variables, given, strict=False))
            visit(origin)

    visit(view)
    return found


def substituted(  # noqa: PLR0911 - one for each kind of annotation
    annotation: Any, arguments: Mapping[Any, Any]
) -> Any:
    """Return *annotation* with type variables replaced by *arguments*."""
    if isinstance(annotation, TypeVar):
        return arguments.get(annotation, annotation)
    if isinstance(annotation, list):  # the parameters of a Callable
        return [substituted(each, arguments) for each in _listed(annotation)]
    if isinstance(annotation, type):
        variables = _model_variables(annotation)
        if not any(each in arguments for each in variables):
            return annotation
        model: Any = annotation
        return model[tuple(arguments.get(each, each) for each in variables)]
    origin: Any = typing.get_origin(annotation)
    inner = typing.get_args(annotation)
    if origin is Annotated:
        return Annotated[(substituted(inner[0], arguments), *inner[1:])]
    replaced = tuple(substituted(each, arguments) for each in inner)
    if origin is None or replaced == inner:
        return annotation
    if origin is UnionType:
        return Union[replaced]  # noqa: UP007 - of a tuple
    return origin[replaced]


def _listed(annotations: Any) -> list[Any]:
    return list(annotations)


def _model_variables(model: type) -> tuple[Any, ...]:
    """
    Return the type variables of a Pydantic model.

    One made generic by its own variable, ``Page[T]``, is the bare ``Page`` again; only
    its metadata tells what is open.
    """
    metadata: Mapping[str, Any] = getattr(model, "__pydantic_generic_metadata__", {})
    return tuple(metadata.get("parameters", ()))


def is_open(annotation: Any, variables: Collection[Any]) -> bool:
    """Tell whether a type variable is left, of a Pydantic model one of *variables*."""
    if isinstance(annotation, TypeVar):
        return True
    if isinstance(annotation, type):
        return any(each in variables for each in _model_variables(annotation))
    if isinstance(annotation, list):  # the parameters of a Callable
        return any(is_open(each, variables) for each in _listed(annotation))
    inner = typing.get_args(annotation)
    if typing.get_origin(annotation) is Annotated:
        inner = inner[:1]
    return any(is_open(each, variables) for each in inner)
