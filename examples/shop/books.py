"""The catalogue, which everybody may browse."""

from fastapi import HTTPException, status
from pydantic import BaseModel

from throttled_views import Limiter, ThrottledRouter, ThrottledView, route


class Book(BaseModel):
    """A book, and what it costs."""

    isbn: str
    title: str
    cents: int


# A database in a real shop.
BOOKS = {
    "emma": Book(isbn="emma", title="Emma", cents=900),
    "persuasion": Book(isbn="persuasion", title="Persuasion", cents=800),
}


class Books(ThrottledView):
    """Held to the default of the limiter, since it has no throttle of its own."""

    async def get(self) -> list[Book]:
        """List all books."""
        return list(BOOKS.values())

    @route.get("/{isbn}")
    async def find(self, isbn: str) -> Book:
        """Find one book."""
        if isbn not in BOOKS:
            raise HTTPException(status.HTTP_404_NOT_FOUND, "No such book")
        return BOOKS[isbn]


def make_router(limiter: Limiter) -> ThrottledRouter:
    """Make the router of the catalogue."""
    return Books.as_router(limiter, prefix="/books", tags=["books"])
