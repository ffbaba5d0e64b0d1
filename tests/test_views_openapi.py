"""A view has the OpenAPI document, and the behaviour, of the functions it replaces."""

import inspect
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal

import pytest
from fastapi import (
    APIRouter,
    BackgroundTasks,
    Body,
    Cookie,
    Depends,
    FastAPI,
    Header,
    Path,
    Query,
    Request,
    Response,
    Security,
    status,
)
from fastapi.responses import HTMLResponse, PlainTextResponse
from fastapi.security import APIKeyHeader
from pydantic import BaseModel, Field

from tests.apps_views import app_of, unlimited_document, view_of
from tests.clients import client_of
from throttled_views import route


class Book(BaseModel):
    """A model of some depth."""

    title: str = Field(min_length=1)
    authors: list[str] = []
    previous: "Book | None" = None


class Secret(BaseModel):
    """A model that is not shown."""

    word: str


def pages(page: int = 1, size: Annotated[int, Query(le=100)] = 10) -> tuple[int, int]:
    """Depend on two parameters."""
    return page, size


async def sizes(pages: Annotated[tuple[int, int], Depends(pages)]) -> int:
    """Depend on a dependency."""
    return pages[0] * pages[1]


api_key = APIKeyHeader(name="X-API-Key")

# Each of these is served as a function, and as a method of a view.


async def nothing() -> str:
    """Take nothing."""
    return "nothing"


async def none() -> None:
    """Return nothing."""


async def untyped():  # type: ignore[no-untyped-def]  # noqa: ANN201
    """Return something."""
    return {"any": "thing"}


async def simple(name: str, size: int = 10, tag: list[str] | None = None) -> list[Any]:
    """Take a path parameter and queries."""
    return [name, size, tag]


async def annotated(
    name: Annotated[str, Path(max_length=5)],
    *,
    user_agent: Annotated[str, Header()] = "none",
    session: Annotated[str | None, Cookie()] = None,
    tags: Annotated[list[str], Query(alias="tag", description="Tags.")],
) -> list[Any]:
    """Take parameters from everywhere."""
    return [name, user_agent, session, tags]


async def older(
    name: str = Path(max_length=5),
    size: int = Query(10, le=100, deprecated=True),
    total: int = Depends(sizes),
) -> list[Any]:
    """Take parameters in the older spelling."""
    return [name, size, total]


async def one_body(book: Book, dry: bool = False) -> Book:  # noqa: FBT001, FBT002
    """
    Take a model.

    The description has two paragraphs.
    """
    return book


async def two_bodies(
    book: Book, other: Annotated[Book | None, Body()] = None, note: str = Body("")
) -> dict[str, Book | None]:
    """Take several models."""
    return {note: book, "other": other}


async def embedded(book: Annotated[Book, Body(embed=True)]) -> list[Book]:
    """Take a model inside of another."""
    return [book]


async def dependent(
    total: Annotated[int, Depends(sizes)],
    pages: Annotated[tuple[int, int], Depends(pages)],
) -> int:
    """Take what others make."""
    return total + sum(pages)


async def secured(key: Annotated[str, Security(api_key)]) -> str:
    """Take a secret."""
    return key


async def given(
    request: Request, response: Response, tasks: BackgroundTasks, size: int
) -> str:
    """Take what needs no parameter."""
    response.headers["X-Size"] = str(size)
    return request.url.query


async def choice(kind: Literal["a", "b"] = "a") -> Book | Secret | Literal["none"]:
    """Return one of several types."""
    return Secret(word=kind)


async def own_response() -> PlainTextResponse:
    """Return a response."""
    return PlainTextResponse("own", headers={"X-Own": "yes"})


async def hidden() -> Secret:
    """Return less than it has."""
    return Secret(word="x")


class Case:
    """A function, how it is routed, and a request to it."""

    def __init__(
        self,
        function: Callable[..., Any],
        request: str = "GET /v",
        *,
        path: str = "",
        body: object = None,
        headers: Mapping[str, str] | None = None,
        **options: Any,  # noqa: ANN401
    ) -> None:
        self.function = function
        self.method, self.url = request.split()
        self.path = path
        self.request: dict[str, Any] = {"json": body, "headers": headers}
        self.options = options

    @property
    def verb(self) -> str:
        """Name of the route decorator."""
        return self.method.lower()

    def as_function(self) -> FastAPI:
        """Serve the function, below a prefix as views are."""
        router, app = APIRouter(), FastAPI()
        name = f"Made.{self.function.__name__}"
        decorate = getattr(router, self.verb)(self.path, name=name, **self.options)
        decorate(self.function)
        app.include_router(router, prefix="/v")
        return app

    def as_method(self) -> FastAPI:
        """Serve a view with a method of the same parameters."""
        function: Any = self.function

        async def serve(self: object, **kwargs: object) -> object:
            return await function(**kwargs)

        method: Any = serve
        own = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
        signature = inspect.signature(function)
        method.__signature__ = signature.replace(
            parameters=[own, *signature.parameters.values()]
        )
        method.__doc__ = function.__doc__
        decorate: Any = getattr(route, self.verb)(self.path, **self.options)
        view = view_of(("throttle", "9/m"), (function.__name__, decorate(method)))
        return app_of(view)


BOOK = {"title": "Emma", "previous": {"title": "Persuasion"}}
CASES = {
    "nothing": Case(nothing),
    "none": Case(none),
    "none, and no body": Case(none, "DELETE /v", status_code=204),
    "untyped": Case(untyped),
    "simple": Case(simple, "GET /v/a?size=3", path="/{name}"),
    "simple, refused": Case(simple, "GET /v/a?size=x", path="/{name}"),
    "annotated": Case(
        annotated,
        "GET /v/a?tag=1&tag=2",
        path="/{name}",
        headers={"User-Agent": "test", "Cookie": "session=s"},
    ),
    "annotated, refused": Case(annotated, "GET /v/abcdef", path="/{name}"),
    "older": Case(older, "GET /v/a?size=20&page=2", path="/{name}"),
    "one body": Case(one_body, "POST /v?dry=true", body=BOOK, status_code=201),
    "one body, refused": Case(one_body, "POST /v", body={"title": ""}),
    "two bodies": Case(two_bodies, "PUT /v", body={"book": BOOK, "note": "n"}),
    "embedded": Case(embedded, "PATCH /v", body={"book": BOOK}),
    "dependent": Case(dependent, "GET /v?page=2&size=5"),
    "secured": Case(secured, "GET /v", headers={"X-API-Key": "k"}),
    "secured, refused": Case(secured, "GET /v"),
    "given": Case(given, "GET /v?size=3"),
    "choice": Case(choice, "GET /v?kind=b"),
    "own response": Case(own_response),
    "response class": Case(nothing, response_class=HTMLResponse),
    "response model": Case(hidden, response_model=Book | Secret),
    "without a response model": Case(hidden, response_model=None),
    "options": Case(
        hidden,
        "DELETE /v",
        tags=["t"],
        summary="Short",
        description="Long",
        response_description="Seldom",
        deprecated=True,
        operation_id="hide",
        status_code=status.HTTP_202_ACCEPTED,
        responses={404: {"description": "Not there"}, 409: {"model": Secret}},
        openapi_extra={"x-own": True},
        response_model_exclude={"word"},
        dependencies=[Depends(pages)],
    ),
    "not in the document": Case(hidden, include_in_schema=False),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_the_document_is_that_of_a_function(case: Case) -> None:
    """Parameters, bodies and responses are those of a function that is routed alike."""
    assert case.as_function().openapi() == unlimited_document(case.as_method())


OURS = {"ratelimit-limit", "ratelimit-remaining", "ratelimit-reset"}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
async def test_the_answer_is_that_of_a_function(case: Case) -> None:
    """Status, body and header fields are the same, but for the fields of the limit."""
    answered: list[tuple[int, bytes, dict[str, str]]] = []
    for app in (case.as_function(), case.as_method()):
        async with client_of(app) as client:
            answer = await client.request(case.method, case.url, **case.request)
        fields = {
            name: value for name, value in answer.headers.items() if name not in OURS
        }
        answered.append((answer.status_code, answer.content, fields))

    assert answered[0] == answered[1]
