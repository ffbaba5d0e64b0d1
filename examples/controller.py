"""
A controller: one class serves several routes, each with the limits it needs.

Serve it with ``uvicorn examples.controller:app``.
"""

from fastapi import FastAPI, HTTPException, Response, status
from pydantic import BaseModel

from throttled_views import Limit, Quota, ThrottledView, exempt, limit, route


class Book(BaseModel):
    """A book on the shelf."""

    isbn: str
    title: str


SHELF: dict[str, Book] = {}


class Books(ThrottledView):
    """The shelf, read under the quota of the class and written under two others."""

    path = "/books"
    tags = ("books",)
    throttle = Quota.per_minute(60, burst=10)

    async def get(self) -> list[Book]:
        """List all books."""
        return list(SHELF.values())

    @limit(Limit("2/s", name="burst"), Limit("100/day", name="daily"))
    async def post(self, book: Book) -> Book:
        """Put a book on the shelf."""
        SHELF[book.isbn] = book
        return book

    @route.get("/{isbn}", responses={404: {"description": "No such book"}})
    async def find(self, isbn: str) -> Book:
        """Find one book."""
        if isbn not in SHELF:
            raise HTTPException(status.HTTP_404_NOT_FOUND, "No such book")
        return SHELF[isbn]

    @exempt
    @route.head("", response_class=Response)
    async def head(self) -> Response:
        """Say how many books there are; never limited."""
        return Response(headers={"X-Books": str(len(SHELF))})


app = FastAPI(title="throttled_views: controller")
app.include_router(Books.as_router())
