"""
Views, and the functions they stand for, in a module with postponed annotations.

All annotations here are text until somebody evaluates them, by names of this module.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partialmethod
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Generic, TypeVar

from fastapi import (
    APIRouter,
    BackgroundTasks,
    Depends,
    FastAPI,
    Header,
    Query,
    Request,
    Response,
)
from pydantic import BaseModel

from tests.apps_views import wrapped
from throttled_views import CurrentRateLimit, ThrottledView, limit, route

if TYPE_CHECKING:
    from decimal import Decimal

    from starlette.requests import HTTPConnection

T = TypeVar("T")


def get_session(user_agent: Annotated[str, Header()]) -> Session:
    """Depend on a header."""
    return Session(user_agent)


def by_agent(connection: HTTPConnection) -> str:
    """Name a client; the type is there for type checkers only."""
    return connection.headers["User-Agent"]


given: Any = partialmethod  # to type checkers it makes no handler


class Books(ThrottledView):
    """Serves models that are defined below, and is given whatever FastAPI gives."""

    throttle = "3/m"
    key_func = by_agent
    request: Request
    session: Annotated[Session, Depends(get_session)]
    size: Annotated[int, Query(le=100)] = 10
    limits: ClassVar[dict[str, Decimal]] = {}
    price: Decimal
    name: str = "books"

    def __init__(self, page: int = 1) -> None:
        """Keep the page."""
        self.place = [self.name, self.request.url.path, self.session.agent, page]

    async def get(
        self, response: Response, tasks: BackgroundTasks, rate_limit: CurrentRateLimit
    ) -> list[Any]:
        """Tell what was given."""
        response.headers["X-Left"] = str(rate_limit.result.state.remaining)
        tasks.add_task(self.limits.clear)
        return [*self.place, self.size]

    @limit("2/m")
    async def post(self, new: NewBook) -> Book:
        """Make one."""
        return Book(title=new.title, size=self.size)

    @route.get("/{number}")
    @wrapped
    async def find(
        self, number: int, session: Annotated[Session, Depends(get_session)]
    ) -> dict[str, Book | None]:
        """Serve one, through a decorator."""
        return {str(number): Book(title=session.agent, size=self.size)}


class Given(ThrottledView):
    """Has a handler made of another, one of whose parameters is given."""

    throttle = "3/m"

    async def _serve(self, kind: str, new: NewBook) -> list[NewBook]:
        return [new, NewBook(title=kind)]

    put = given(_serve, "kind")


class Marked(ThrottledView):
    """Is given what has a marker, and a type that is there for type checkers only."""

    throttle = "3/m"
    price: Annotated[Decimal, Depends(get_session)]

    async def get(self) -> str:
        """Tell what was given."""
        return f"{self.price}"


class Items(ThrottledView, Generic[T]):
    """Serves what subclasses say."""

    throttle = "3/m"
    keys: Annotated[list[T], Query()]

    async def post(self, items: list[T], one: Annotated[T | None, Query()] = None) -> T:
        """Give back what was asked for."""
        return items[0] if one is None else one


class Words(Items[str]):
    """Says."""


@dataclass
class Fields(ThrottledView):
    """Has its constructor written by Python."""

    throttle = "3/m"
    request: Request
    session: Annotated[Session, Depends(get_session)]

    async def get(self) -> list[str]:
        """Tell what was given."""
        return [self.request.url.path, self.session.agent]


class TypeOnly(ThrottledView):
    """Names in its handler what exists for type checkers only."""

    throttle = "3/m"

    async def get(self, price: Annotated[Decimal, Depends(get_session)]) -> str:
        """Be given something of a type that nobody can look up."""
        return str(price)


class Unknown(ThrottledView):
    """Names in its handler what exists for type checkers only, without a marker."""

    throttle = "3/m"

    async def get(self, price: Decimal) -> str:
        """Be given a query of a type that nobody can look up."""
        return str(price)


# --- defined below what names it ------------------------------------------------------


class Session:
    """What a handler works with."""

    def __init__(self, agent: str) -> None:
        """Keep the agent."""
        self.agent = agent

    def __str__(self) -> str:
        return self.agent


class NewBook(BaseModel):
    """What is sent."""

    title: str


class Book(NewBook):
    """What is served."""

    size: int


# --- as functions ---------------------------------------------------------------------


async def place(
    request: Request,
    session: Annotated[Session, Depends(get_session)],
    size: Annotated[int, Query(le=100)] = 10,
    page: int = 1,
) -> tuple[list[Any], int]:
    """Stand for what `Books` is given."""
    return ["books", request.url.path, session.agent, page], size


def functions() -> FastAPI:
    """Serve what `Books` serves, by functions."""
    router, app = APIRouter(), FastAPI()

    @router.get("", name="Books.get")
    async def get(
        response: Response,
        tasks: BackgroundTasks,
        given: Annotated[tuple[list[Any], int], Depends(place)],
    ) -> list[Any]:
        """Tell what was given."""
        response.headers["X-Left"] = "2"
        tasks.add_task(print)
        return [*given[0], given[1]]

    @router.post("", name="Books.post")
    async def post(
        new: NewBook, given: Annotated[tuple[list[Any], int], Depends(place)]
    ) -> Book:
        """Make one."""
        return Book(title=new.title, size=given[1])

    @router.get("/{number}", name="Books.find")
    async def find(
        number: int,
        session: Annotated[Session, Depends(get_session)],
        given: Annotated[tuple[list[Any], int], Depends(place)],
    ) -> dict[str, Book | None]:
        """Serve one, through a decorator."""
        return {str(number): Book(title=session.agent, size=given[1])}

    app.include_router(router, prefix="/v")
    return app


async def type_only(price: Annotated[Decimal, Depends(get_session)]) -> str:
    """Be given something of a type that nobody can look up."""
    return str(price)


async def unknown(price: Decimal) -> str:
    """Be given a query of a type that nobody can look up."""
    return str(price)
