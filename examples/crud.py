"""
A generic base class: handlers and limits are written once, for any model.

Serve it with ``uvicorn examples.crud:app``.
"""

from typing import Generic, TypeVar

from fastapi import FastAPI, HTTPException, status
from pydantic import BaseModel

from throttled_views import Throttle, ThrottledRouter, ThrottledView, limit, route

ModelT = TypeVar("ModelT", bound=BaseModel)
NewT = TypeVar("NewT", bound=BaseModel)


class CrudView(ThrottledView, Generic[ModelT, NewT]):
    """Lists, makes, finds and removes what its subclasses are about."""

    throttle: Throttle | None = "60/m"

    model: type[ModelT]
    rows: dict[int, ModelT]

    async def get(self) -> list[ModelT]:
        """List all."""
        return list(self.rows.values())

    @limit("10/m")
    async def post(self, new: NewT) -> ModelT:
        """Make one, under the next free number."""
        number = max(self.rows, default=0) + 1
        row = self.model.model_validate({"id": number, **new.model_dump()})
        self.rows[number] = row
        return row

    @route.get("/{number}", responses={404: {"description": "There is none"}})
    async def find(self, number: int) -> ModelT:
        """Find one."""
        if number not in self.rows:
            raise HTTPException(status.HTTP_404_NOT_FOUND, "There is none")
        return self.rows[number]

    @limit("10/m")
    @route.delete("/{number}", status_code=status.HTTP_204_NO_CONTENT)
    async def remove(self, number: int) -> None:
        """Remove one, if it is there."""
        self.rows.pop(number, None)


class NewBook(BaseModel):
    """What is sent."""

    title: str


class Book(NewBook):
    """What is kept."""

    id: int


class NewAuthor(BaseModel):
    """What is sent."""

    name: str


class Author(NewAuthor):
    """What is kept."""

    id: int


BOOKS: dict[int, Book] = {}
AUTHORS: dict[int, Author] = {}


class Books(CrudView[Book, NewBook]):
    """Serves books."""

    path = "/books"
    model = Book
    rows = BOOKS


class Authors(CrudView[Author, NewAuthor]):
    """Serves authors, under a quota of its own for all that has no @limit."""

    path = "/authors"
    throttle = "5/m"
    model = Author
    rows = AUTHORS


router = ThrottledRouter()
router.add_view(Books)
router.add_view(Authors)

app = FastAPI(title="throttled_views: CRUD")
app.include_router(router)
