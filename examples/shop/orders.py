"""What a customer ordered, and may still do."""

from collections import defaultdict

from fastapi import HTTPException, status
from pydantic import BaseModel

from throttled_views import CurrentRateLimit, Limiter, ThrottledRouter, ThrottledView

from .auth import CurrentCustomer
from .books import BOOKS, Book
from .limits import ADDRESS, PLAN


class NewOrder(BaseModel):
    """What is sent."""

    isbn: str


# A database in a real shop.
ORDERS: defaultdict[str, list[Book]] = defaultdict(list)


class CustomerView(ThrottledView):
    """What all views for customers share."""

    throttle = (ADDRESS, PLAN)

    def __init__(self, customer: CurrentCustomer) -> None:
        self.customer = customer


class Orders(CustomerView):
    """The orders of the customer who asks."""

    path = "/orders"

    async def get(self) -> list[Book]:
        """List what was ordered."""
        return ORDERS[self.customer.name]

    async def post(self, order: NewOrder) -> Book:
        """Order a book."""
        if order.isbn not in BOOKS:
            raise HTTPException(status.HTTP_404_NOT_FOUND, "No such book")
        ORDERS[self.customer.name].append(BOOKS[order.isbn])
        return BOOKS[order.isbn]


class Account(CustomerView):
    """The plan of the customer who asks."""

    path = "/account"

    async def get(self, rate_limit: CurrentRateLimit) -> dict[str, str | int]:
        """Say how many requests each limit leaves."""
        left = {each.name: each.state.remaining for each in rate_limit.results}
        return {"plan": self.customer.plan, "left": left["plan"]}


def make_router(limiter: Limiter) -> ThrottledRouter:
    """Make the router of all that needs a customer."""
    router = ThrottledRouter(limiter, tags=["customers"])
    router.add_view(Orders)
    router.add_view(Account)
    return router
