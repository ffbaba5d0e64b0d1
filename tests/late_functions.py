"""Functions that FastAPI solves, with annotations that are text in this module."""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, Annotated, ParamSpec, TypeVar

from fastapi import Depends, Header

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from decimal import Decimal

P = ParamSpec("P")
T = TypeVar("T")


async def current_user(x_user: Annotated[str, Header()]) -> str:
    """Tell who is logged in."""
    return x_user


CurrentUser = Annotated[str, Depends(current_user)]


async def by_user(user: CurrentUser) -> str:
    """Name the user."""
    return user


def by_user_sync(user: CurrentUser) -> str:
    """Name the user, in a thread."""
    return user


async def by_kind(kind: str, user: CurrentUser) -> str:
    """Name the user, and something that is given beforehand."""
    return f"{kind} {user}"


def by_suffix(user: CurrentUser, suffix: str = "") -> str:
    """Name the user, with what nobody but the application adds."""
    return user + suffix


class ByUser:
    """Objects that name the user."""

    async def __call__(self, user: CurrentUser) -> str:
        """Name the user."""
        return user

    async def method(self, user: CurrentUser) -> str:
        """Name the user."""
        return user


class ByUserSync:
    """Objects that name the user, in a thread."""

    def __call__(self, user: CurrentUser) -> str:
        """Name the user."""
        return user


def traced(function: Callable[P, Awaitable[T]]) -> Callable[P, Awaitable[T]]:
    """Stand for a decorator; what it returns is not async."""

    @wraps(function)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> Awaitable[T]:
        return function(*args, **kwargs)

    return wrapper


@traced
async def by_user_traced(user: CurrentUser) -> str:
    """Name the user, below a decorator."""
    return user


def by_number(number: Decimal) -> str:
    """Take what nobody knows at run time."""
    return str(number)


def by_result(user: CurrentUser) -> Decimal | str:
    """Return what nobody knows at run time."""
    return user
