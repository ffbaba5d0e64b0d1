"""
Key, quota and cost functions: what they may take, and how FastAPI is to solve them.

One that takes the connection alone, or nothing, is called before anything of a request
is read. Any other is a dependency. FastAPI makes a parameter of the client out of much
that was not meant as one, so that what cannot be solved as it is written is refused
where it is written.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from types import FunctionType, MethodType
from typing import Any

from fastapi import APIRouter, Depends, params
from fastapi.exceptions import FastAPIError
from pydantic.errors import PydanticUserError
from starlette.requests import Request
from starlette.websockets import WebSocket

from throttled_views._binding import (
    call_of,
    is_async,
    is_stream,
    name_of,
    where,
)
from throttled_views._early import (
    called,
    early_parameter,
    early_reader_of,
    parameters_of,
)
from throttled_views.errors import ConfigurationError, ViewDefinitionError
from throttled_views.keys import ClientIP, first_of, header_key, path_key
from throttled_views.limits import Limit
from throttled_views.quotas import Quota

__all__ = [
    "FASTAPI_VALUES",
    "check_connection",
    "check_function",
    "check_functions",
    "solvable",
]

FASTAPI_VALUES = (params.Depends, params.Param, params.Body)
"""Classes of what says that FastAPI is to inject something."""

_NOTHING = inspect.Parameter.empty
_MAKERS = (ClientIP, first_of, header_key, path_key)
_OF_METHODS = ("self", "cls")
_UNNAMED = {
    inspect.Parameter.POSITIONAL_ONLY: "can only be given by position",
    inspect.Parameter.VAR_POSITIONAL: "stands for any number of arguments",
    inspect.Parameter.VAR_KEYWORD: "stands for any number of arguments",
}


def check_functions(limit: Limit) -> None:
    """Raise ConfigurationError if a function of *limit* cannot be solved."""
    if limit.key_func is not None:
        check_function(limit.key_func, "key")
    if callable(limit.quota):
        check_function(limit.quota, "quota")
    if callable(limit.cost):
        check_function(limit.cost, "cost")


def check_function(function: Callable[..., object], role: str) -> None:
    """
    Raise ConfigurationError if FastAPI cannot solve what *function* takes.

    Args:
        function: A key, quota or cost function.
        role: What it is, for the error.
    """
    _check_is_no_maker(function, role)
    _check_is_no_generator(function, role)
    if early_reader_of(function) is not None:
        return
    parameters = parameters_of(function)
    if parameters is None:
        raise _unsolvable(function, role, "does not tell its parameters")
    for each in parameters:
        if (problem := _problem(each)) is not None:
            raise _unsolvable(function, role, f"cannot be solved: {problem}")
    try:
        _let_fastapi_read(solvable(function))
    except (FastAPIError, PydanticUserError, AssertionError) as error:
        problem = str(error).partition("\n")[0]
        raise _unsolvable(function, role, f"cannot be solved: {problem}") from error


def _check_is_no_maker(function: object, role: str) -> None:
    """Refuse what makes a quota or a key function, where that itself is meant."""
    is_of_quota = getattr(function, "__self__", None) is Quota
    if is_of_quota or any(function is each for each in _MAKERS):
        name = getattr(function, "__qualname__", role)
        msg = (
            f"{name} is no {role} function, but makes one. Write {name}(…), with what "
            "it takes"
        )
        raise ConfigurationError(msg)


def _check_is_no_generator(function: Any, role: str) -> None:
    """Refuse what would yield its answer, where nobody would go on with it."""
    is_early = early_reader_of(function) is not None
    if is_early and (is_stream(function) or inspect.isgeneratorfunction(function)):
        msg = (
            f"The {role} function {called(function)}{where(function)} yields, and is "
            "called once. Write 'return' in place of 'yield'"
        )
        raise ConfigurationError(msg)


def check_connection(method: str, *functions: object) -> None:
    """
    Raise ViewDefinitionError if one of *functions* takes what *method* does not have.

    Args:
        method: What the handler serves, as keys have it; empty if that is not known.
        functions: Key, quota and cost functions, and what else is in their place.
    """
    is_socket = method == "WEBSOCKET"
    missing: type = Request if is_socket else WebSocket
    for function in functions:
        if not method or not callable(function):
            continue
        wanted = [each.annotation for each in parameters_of(function) or ()]
        if missing in wanted or (is_socket and early_parameter(function) is Request):
            source = "a WebSocket" if is_socket else "an HTTP request"
            raise ViewDefinitionError(
                name_of(function),
                f"{source} has no {missing.__name__} to give it",
                "Annotate its parameter HTTPConnection",
            )


def solvable(function: Any) -> Any:
    """
    Return *function* as FastAPI is to have it.

    That is itself, so that it is cached and overridden as any dependency is. Where some
    versions would read less of it than there is, it is a function with its parameters.
    """
    if _is_read_alike(function):
        return function
    if is_async(function) or is_async(call_of(function)):

        async def solve_async(**values: Any) -> Any:
            return await function(**values)

        solve: Any = solve_async
    else:

        def solve_sync(**values: Any) -> Any:
            return function(**values)

        solve = solve_sync
    solve.__signature__ = inspect.Signature(parameters_of(function))
    return solve


def _is_read_alike(function: Any) -> bool:
    """Tell whether every FastAPI reads what we do: of postponed annotations not all."""
    if isinstance(function, partial):
        return False
    signature = inspect.signature(function)
    annotations = [each.annotation for each in signature.parameters.values()]
    annotations.append(signature.return_annotation)
    if not any(isinstance(each, str) for each in annotations):
        return True
    try:
        inspect.signature(function, eval_str=True)
    except NameError:
        return False
    is_plain = isinstance(function, FunctionType | MethodType)
    return is_plain and not hasattr(function, "__wrapped__")


def _problem(parameter: inspect.Parameter) -> str | None:
    """Return what is wrong with *parameter* of a dependency."""
    name, annotation = parameter.name, parameter.annotation
    if parameter.kind in _UNNAMED:
        return f"its parameter {name!r} {_UNNAMED[parameter.kind]}"
    if name in _OF_METHODS:
        return f"it takes {name!r}, and is not called as a method"
    if isinstance(parameter.default, FASTAPI_VALUES):
        return None
    if annotation is _NOTHING:
        return f"its parameter {name!r} has no annotation"
    if isinstance(annotation, str):
        return f"its parameter {name!r} is annotated {annotation!r}, which is unknown"
    return None


async def _nothing() -> None:
    """Be an endpoint."""


def _let_fastapi_read(function: Callable[..., Any]) -> None:
    APIRouter().add_api_route(
        "/", _nothing, methods=["POST"], dependencies=[Depends(function)]
    )


def _unsolvable(function: object, role: str, problem: str) -> ConfigurationError:
    name = getattr(function, "__name__", role).replace("<lambda>", role)
    return ConfigurationError(
        f"The {role} function {called(function)}{where(function)} {problem}. Write "
        f"'def {name}(request: Request)', or annotate what FastAPI is to solve with "
        "types that are known where the module runs: "
        f"'def {name}(user: Annotated[User, Depends(…)])'"
    )
