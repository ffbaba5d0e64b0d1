"""
A small shop: a base view, several limits, API keys and injected objects.

Serve it with ``uvicorn examples.bookshop:app``.
"""

from dataclasses import dataclass, field
from typing import Annotated

from fastapi import Depends, FastAPI, HTTPException, Request, Response, status
from pydantic import BaseModel

from throttled_views import (
    EXEMPT,
    CurrentRateLimit,
    KeyFunc,
    Limit,
    Limiter,
    Quota,
    Throttle,
    ThrottledRouter,
    ThrottledView,
    client_ip,
    exempt,
    limit,
    route,
)

CUSTOMERS = {"k-alice": "alice", "k-bob": "bob"}


class Book(BaseModel):
    """A book on the shelf."""

    isbn: str
    title: str


@dataclass
class Shelf:
    """Where the books are."""

    books: dict[str, Book] = field(default_factory=dict[str, Book])


async def get_shelf(request: Request) -> Shelf:
    """Give the shelf of the application that serves the request."""
    shelf: Shelf = request.app.state.shelf
    return shelf


def customer(request: Request) -> str:
    """
    Count a customer by name and everybody else by address.

    A key that is not ours counts for nothing: whoever invents keys would
    otherwise get a fresh quota with each of them.
    """
    name = CUSTOMERS.get(request.headers.get("X-API-Key", ""))
    return f"customer {name}" if name else client_ip(request)


class ShopView(ThrottledView):
    """What all views of the shop share."""

    throttle: Throttle | None = Quota.per_minute(60, burst=10)
    key_func: KeyFunc | None = customer

    shelf: Annotated[Shelf, Depends(get_shelf)]


class Books(ShopView):
    """The shelf, read under the shop's quota and written under two of its own."""

    path = "/books"

    async def get(self) -> list[Book]:
        """List all books."""
        return list(self.shelf.books.values())

    @limit(Limit("2/s", name="burst"), Limit("100/day", name="daily"))
    async def post(self, book: Book) -> Book:
        """Put a book on the shelf."""
        self.shelf.books[book.isbn] = book
        return book

    @route.get("/{isbn}")
    async def find(self, isbn: str) -> Book:
        """Find one book."""
        if isbn not in self.shelf.books:
            raise HTTPException(status.HTTP_404_NOT_FOUND, "No such book")
        return self.shelf.books[isbn]

    @exempt
    async def head(self) -> Response:
        """Say how many books there are; never limited."""
        return Response(headers={"X-Books": str(len(self.shelf.books))})


class Account(ShopView):
    """What a client may still do."""

    path = "/account"
    throttle = "5/m"

    async def get(self, rate_limit: CurrentRateLimit) -> dict[str, int]:
        """Say how many requests are left."""
        state = rate_limit.result.state
        return {"limit": state.limit, "remaining": state.remaining}


class Health(ThrottledView):
    """Asked by a load balancer, which must never be refused."""

    path = "/health"
    throttle = EXEMPT

    async def get(self) -> dict[str, str]:
        """Say that we are alive."""
        return {"status": "up"}


def create_app() -> FastAPI:
    """Build an application with an empty shelf and counters of its own."""
    router = ThrottledRouter(Limiter())
    router.add_view(Books)
    router.add_view(Account)
    router.add_view(Health)

    shop = FastAPI(title="throttled_views: bookshop")
    shop.state.shelf = Shelf()
    shop.include_router(router)
    return shop


app = create_app()
