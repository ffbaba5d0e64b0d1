"""
What FastAPI is asked for, and gives, where a request is limited: the `Exchange`.

FastAPI tells what it knows through parameters. Ours have names that are nobody else's.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Annotated, Any, NamedTuple, TypeAlias, TypeVar, cast

from fastapi import Depends
from starlette.requests import HTTPConnection
from starlette.responses import Response

from throttled_views._functions import solvable
from throttled_views._rules import NOTHING_SOLVED, Solved

__all__ = [
    "CONNECTION",
    "RESPONSE",
    "Exchange",
    "Guard",
    "Inputs",
    "dependency_on",
    "parameter",
]

T = TypeVar("T")

CONNECTION = "throttled_views_connection"
RESPONSE = "throttled_views_response"


class Exchange(NamedTuple):
    """
    A request, and what FastAPI made of it.

    Attributes:
        connection: The request.
        response: The response that FastAPI will merge into the handler's.
        solved: What the functions gave that were to be solved.
        may_answer: Whether what the guard returns is the answer.
    """

    connection: HTTPConnection
    response: Response
    solved: Solved = NOTHING_SOLVED
    may_answer: bool = True


Guard: TypeAlias = Callable[[Exchange, Callable[[], Awaitable[Any]]], Awaitable[Any]]
"""Runs right before a handler, and calls it."""


def dependency_on(
    functions: Sequence[Any], use: Callable[[Exchange], Awaitable[T]]
) -> Callable[..., Awaitable[T]]:
    """Return a dependency that has *functions* solved, and gives what *use* does."""
    inputs = Inputs(functions)

    async def dependency(**values: Any) -> T:
        return await use(inputs.exchange_of(values))

    cast("Any", dependency).__signature__ = inspect.Signature(inputs.parameters)
    return dependency


class Inputs:
    """
    What FastAPI is to give a guard: the request, the response, and what it solves.

    Attributes:
        parameters: By which it is asked for that.
    """

    def __init__(self, functions: Sequence[Any]) -> None:
        # By identity, so that stacked guards ask for the same under the same name.
        self._names = {f"throttled_views_{id(each)}": id(each) for each in functions}
        asked = [Annotated[Any, Depends(solvable(each))] for each in functions]
        self.parameters = [
            parameter(CONNECTION, HTTPConnection),
            parameter(RESPONSE, Response),
            *map(parameter, self._names, asked),
        ]

    def exchange_of(self, values: Mapping[str, Any]) -> Exchange:
        """Return what FastAPI gave, which is among *values*."""
        solved = {known: values[name] for name, known in self._names.items()}
        return Exchange(values[CONNECTION], values[RESPONSE], solved)


def parameter(name: str, annotation: Any) -> inspect.Parameter:
    """Return a parameter by which FastAPI is asked for *annotation*."""
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, annotation=annotation
    )
