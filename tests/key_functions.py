"""Key functions whose annotations exist for type checkers only."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from decimal import Decimal

    import starlette.requests
    from starlette import requests
    from starlette.requests import HTTPConnection, Request


def by_name(request: Request) -> str:
    """Take a request by its bare name."""
    return request.method


def by_module(request: requests.Request) -> str:
    """Take a request by a name in a module."""
    return request.method


def by_package(connection: starlette.requests.HTTPConnection) -> str:
    """Take a connection by its full name."""
    return connection.url.path


def cost(connection: HTTPConnection) -> Decimal | int:
    """Take a connection, and return what nobody knows at run time."""
    return len(connection.url.path)


def by_number(number: Decimal) -> str:
    """Take what nobody knows at run time."""
    return str(number)
