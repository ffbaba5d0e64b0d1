"""
Views in, FastAPI endpoints out: signatures, injection, one instance for each request.

Nothing of the user's is changed. Every endpoint is a new function, with a signature of
its own, and a class may be registered any number of times.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import (
    Iterator,
)
from contextlib import aclosing
from types import (
    MemberDescriptorType,
    SimpleNamespace,
)
from typing import (
    Annotated,
    Any,
    ClassVar,
    cast,
)

from fastapi import BackgroundTasks, Depends
from fastapi.security import SecurityScopes
from starlette.background import BackgroundTasks as StarletteBackgroundTasks
from starlette.requests import HTTPConnection
from starlette.responses import Response

from throttled_views._annotations import (
    evaluated,
    is_open,
    namespace_of,
    substituted,
    type_arguments,
    type_parameters,
)
from throttled_views._binding import (
    is_stream,
    name_of,
    origin_of,
    where,
    with_globals_of,
)
from throttled_views._functions import FASTAPI_VALUES
from throttled_views.errors import ViewDefinitionError

__all__ = ["SETTINGS", "view_endpoint"]

_NOTHING = inspect.Parameter.empty
_BY_KEYWORD = inspect.Parameter.KEYWORD_ONLY
_VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
SETTINGS = ("path", "tags", "dependencies", "throttle", "key_func", "using", "bucket")
"""The attributes by which a view declares."""

_INJECTED_TYPES = (
    HTTPConnection,
    Response,
    BackgroundTasks,
    StarletteBackgroundTasks,
    SecurityScopes,
)
_SLOT = MemberDescriptorType


def view_endpoint(view: type, name: str, *, made_first: bool = False) -> Any:
    """
    Return an endpoint that makes an instance of *view* and awaits its handler *name*.

    Its parameters are those of the handler, by keyword, with the type variables of
    generic bases replaced by the types *view* gives for them; and, if *view* has
    anything to inject, a dependency that makes the instance.

    Args:
        view: The view.
        name: The name of the handler.
        made_first: Whether a constructor of the view's own is to run with the
            dependencies, also if there is nothing to inject into it.

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
    factory = _factory(view, made_first=made_first)
    if factory is not None:
        parameters.append(
            inspect.Parameter(
                self_parameter.name,
                _BY_KEYWORD,
                annotation=Annotated[view, Depends(factory)],
            )
        )
    make = _stream_endpoint if is_stream(raw) else _coroutine_endpoint
    endpoint = with_globals_of(
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
        self._arguments = type_arguments(view).get(owner, {})
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
        annotation = evaluated(
            annotation,
            getattr(function, "__globals__", {}),
            (*type_parameters(self._owner), *type_parameters(function)),
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


def _factory(view: Any, *, made_first: bool) -> Any:
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
    made_first = made_first and constructor is not object.__init__
    if not parameters and not attributes and not made_first:
        return None

    set_attribute = object.__setattr__  # also of a frozen dataclass

    # A coroutine function: FastAPI would make instances of a class in a thread.
    async def factory(**values: Any) -> Any:
        instance = view.__new__(view)
        for name in attributes:
            if name in values:  # a socket has no Request
                set_attribute(instance, name, values.pop(name))
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
        module = SimpleNamespace(__globals__=namespace_of(owner))
        annotations = inspect.get_annotations(owner)
        for name in [each for each in found if each in vars(owner)]:
            if not isinstance(vars(owner)[name], (*FASTAPI_VALUES, _SLOT)):
                found.pop(name)  # a value of the subclass's own
        for name, annotation in annotations.items():
            found.pop(name, None)
            default = inspect.getattr_static(view, name, _NOTHING)
            if isinstance(default, _SLOT):
                default = _NOTHING
            known = evaluated(annotation, module.__globals__, type_parameters(owner))
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
    if isinstance(default, FASTAPI_VALUES):
        return True
    if typing.get_origin(annotation) is Annotated:
        if any(isinstance(each, FASTAPI_VALUES) for each in annotation.__metadata__):
            return True
        annotation = annotation.__origin__
    return isinstance(annotation, type) and issubclass(annotation, _INJECTED_TYPES)
