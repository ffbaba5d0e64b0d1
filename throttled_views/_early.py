"""
Functions that can be called before anything of a request is read.

They take the connection, or nothing.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeAlias

from starlette.requests import HTTPConnection, Request
from starlette.types import Scope

from throttled_views._annotations import evaluated, type_parameters
from throttled_views._binding import globals_of, origin_of

__all__ = [
    "Reader",
    "called",
    "early_parameter",
    "early_reader_of",
    "parameters_of",
]

_VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def early_parameter(
    function: Callable[..., object],
) -> Callable[[Scope], HTTPConnection] | None:
    """
    Return what makes of a scope the one argument that *function* wants.

    That is `Request` or `HTTPConnection`, as the one parameter is annotated; a lambda,
    which cannot be annotated, gets what fits. None if *function* wants anything else,
    so that it cannot be called before something is read.
    """
    parameters = parameters_of(function) or ()
    if len(parameters) != 1 or parameters[0].kind in _VARIADIC:
        return None
    wanted = parameters[0].annotation
    if wanted is inspect.Parameter.empty:
        is_lambda = getattr(function, "__name__", "") == "<lambda>"
        return _what_fits if is_lambda else None
    if isinstance(wanted, str):  # a name that exists for type checkers only
        name = wanted.rpartition(".")[2]
        return {"Request": Request, "HTTPConnection": HTTPConnection}.get(name)
    return wanted if wanted in (Request, HTTPConnection) else None


def _what_fits(scope: Scope) -> HTTPConnection:
    return (Request if scope["type"] == "http" else HTTPConnection)(scope)


def parameters_of(function: Callable[..., object]) -> list[inspect.Parameter] | None:
    """
    Return the parameters of *function*, None if it does not tell.

    Annotations are evaluated one by one: one that fails is left as it is. What a
    partial gives by keyword is no parameter: nobody else is to give that.
    """
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # no function, or one of C
        return None
    given = function.keywords if isinstance(function, partial) else {}
    place = globals_of(function), type_parameters(origin_of(function))
    return [
        each.replace(annotation=evaluated(each.annotation, *place))
        for each in signature.parameters.values()
        if each.name not in given
    ]


Reader: TypeAlias = Callable[[Scope], object | Awaitable[object]]
"""A function of the request, made a function of its scope."""


def early_reader_of(function: Callable[..., object]) -> Reader | None:
    """
    Return *function*, which takes the connection or nothing, as one of the scope.

    None if it wants anything else, so that it cannot be called before something of the
    request is read.
    """
    parameters = parameters_of(function)
    if parameters is None:
        return None
    if not parameters:
        return lambda _scope: function()
    wanted = early_parameter(function)
    if wanted is None:
        return None
    name = parameters[0].name
    if parameters[0].kind is inspect.Parameter.KEYWORD_ONLY:
        return lambda scope: function(**{name: wanted(scope)})
    return lambda scope: function(wanted(scope))


def called(function: object) -> str:
    """Return what *function* is called in messages."""
    return getattr(function, "__qualname__", None) or repr(function)
