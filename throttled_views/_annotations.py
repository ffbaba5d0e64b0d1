"""
What annotations stand for: strings evaluated, type variables replaced.

They are evaluated where they were written, one by one, as late as possible. A name that
exists for type checkers only is left to FastAPI, which has its own answer.
"""

from __future__ import annotations

import inspect
import sys
import typing
from collections.abc import (
    Collection,
    Mapping,
)
from types import (
    NoneType,
    UnionType,
)
from typing import (
    Annotated,
    Any,
    TypeVar,
    Union,
)

__all__ = [
    "evaluated",
    "is_open",
    "namespace_of",
    "substituted",
    "type_arguments",
    "type_parameters",
]

_NOTHING = inspect.Parameter.empty


def namespace_of(owner: type) -> dict[str, Any]:
    """Return the names of the module that *owner* was written in."""
    return getattr(sys.modules.get(owner.__module__), "__dict__", {})


def type_parameters(scope: object) -> tuple[Any, ...]:
    """Return the type parameters written in brackets after the name (PEP 695)."""
    return getattr(scope, "__type_params__", ())


def evaluated(
    annotation: Any, namespace: Mapping[str, Any], type_parameters: tuple[Any, ...]
) -> Any:
    """Return *annotation* with strings evaluated, as it is where that fails."""
    if annotation is _NOTHING:
        return annotation
    names = {each.__name__: each for each in type_parameters}
    holder = type("Holder", (), {"__annotations__": {"it": annotation}})
    try:
        hints = typing.get_type_hints(
            holder, dict(namespace), names, include_extras=True
        )
    except (NameError, AttributeError, TypeError):
        return annotation
    # FastAPI tells None, which is no body, from its type, which is a null.
    return None if hints["it"] is NoneType else hints["it"]


def type_arguments(view: type) -> dict[type, dict[Any, Any]]:
    """Return, for each class *view* derives from, what its type variables stand for."""
    found: dict[type, dict[Any, Any]] = {view: {}}

    def visit(owner: type) -> None:
        place = namespace_of(owner), type_parameters(owner)
        for base in vars(owner).get("__orig_bases__", owner.__bases__):
            origin = typing.get_origin(base) or base
            variables = getattr(origin, "__parameters__", ())
            given = [
                substituted(evaluated(each, *place), found[owner])
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
