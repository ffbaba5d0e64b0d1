"""Functions and a view with annotations that only type checkers can evaluate."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from fastapi import Depends

from tests.postponed import tenant
from throttled_views import ThrottledView

if TYPE_CHECKING:
    from decimal import Decimal


async def parameter(price: Decimal) -> None:
    """Take what is not known."""


async def body(prices: list[Decimal]) -> None:
    """Take several of them."""


async def dependency(price: Annotated[Decimal, Depends(tenant)]) -> None:
    """Take what a dependency gives."""


async def result() -> Decimal:
    """Return what is not known."""
    raise NotImplementedError


class Prices(ThrottledView):
    """Does the same in a method."""

    path = "/prices"
    throttle = "5/m"

    async def get(self, price: Decimal) -> None:
        """Take what is not known."""
