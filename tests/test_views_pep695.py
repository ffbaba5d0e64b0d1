"""
Generic views in the syntax of Python 3.12 (PEP 695).

Each test runs twice: with this file as it is, and with its annotations postponed, when
a type parameter is a name in a text that only the scope of its class knows.
"""

import __future__

import functools
import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Annotated

import fastapi
import pytest
from fastapi import Body, Depends, Query
from pydantic import BaseModel

from tests.apps_views import app_of, body, operation
from tests.asgi import answers, statuses
from tests.clients import client_of
from throttled_views import ThrottledView, ViewDefinitionError, limit, route


class Book(BaseModel):
    """What is served."""

    number: int
    title: str


class NewBook(BaseModel):
    """What is sent."""

    title: str


class Page[ItemT](BaseModel):
    """A generic model."""

    items: list[ItemT]


class CrudView[ModelT: BaseModel, NewT](ThrottledView):
    """Serves a kind of model, whichever it is."""

    throttle = "5/m"

    async def get(self) -> list[ModelT]:
        """List them."""
        return []

    @limit("1/m")
    async def post(self, new: NewT) -> NewT:
        """Make one."""
        return new

    async def put(self, model: Annotated[ModelT | None, Body()] = None) -> ModelT:
        """Change one."""
        assert model is not None
        return model

    @route.get("/page")
    async def page(self) -> Page[ModelT]:
        """List some."""
        return Page[ModelT](items=[])

    @route.get("/optional")
    async def optional(self) -> ModelT | None:
        """Serve one, if it is there."""
        return None


class Books(CrudView[Book, NewBook]):
    """Serves books."""


class ReadView[ItemT](ThrottledView):
    """Serves an item; asks for some."""

    throttle = "5/m"
    sizes: Annotated[list[ItemT], Query()]

    def __init__(self, one: Annotated[ItemT, Query()]) -> None:
        """Keep one."""
        self.one = one

    async def get(self) -> list[ItemT]:
        """Give back what was asked for."""
        return [self.one, *self.sizes]


class ListView[KeyT, ItemT](ReadView[ItemT]):
    """Serves items under keys."""

    async def post(self, keyed: dict[KeyT, list[ItemT]]) -> dict[KeyT, list[ItemT]]:
        """Give them back."""
        return keyed


class OfNumbers(ListView[str, int]):
    """Gives all types."""


class MoreOfNumbers(OfNumbers):
    """Derives from a view that has them."""


class Open[ItemT](ReadView[ItemT]):
    """Gives its base a variable of its own."""


class GenericHandler(ThrottledView):
    """Has a handler with a variable that nobody can give."""

    throttle = "5/m"

    async def get[SizeT](self, size: SizeT) -> SizeT:
        """Give back what was sent."""
        return size


def get_seven() -> int:
    """Depend on nothing."""
    return 7


type Seven = Annotated[int, Depends(get_seven)]
type Sizes = dict[str, int]


@dataclass
class Fields[SizeT](ThrottledView):
    """Has its constructor written by Python."""

    throttle = "5/m"
    size: Annotated[SizeT, Query()]

    async def get(self) -> SizeT:
        """Give back what was asked for."""
        return self.size


class OfSizes(Fields[int]):
    """Gives the type."""


@functools.cache
def postponed() -> ModuleType:
    """Load this file as if it began with ``from __future__ import annotations``."""
    module = ModuleType(f"{__name__}_postponed")
    sys.modules[module.__name__] = module
    flag = __future__.annotations.compiler_flag
    code = compile(Path(__file__).read_text("utf-8"), __file__, "exec", flag)
    exec(code, vars(module))
    return module


@pytest.fixture(name="views", params=["evaluated", "postponed"])
def views_fixture(request: pytest.FixtureRequest) -> ModuleType:
    """Give the module whose views are tested."""
    return sys.modules[__name__] if request.param == "evaluated" else postponed()


def test_annotations_are_postponed(views: ModuleType) -> None:
    """The second run is one with text for annotations."""
    annotation = views.ReadView.__init__.__annotations__["one"]

    assert isinstance(annotation, str) is (views is postponed())


BOOK = {"$ref": "#/components/schemas/Book"}
PAGE = {"$ref": "#/components/schemas/Page_Book_"}


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        pytest.param("", {"type": "array", "items": BOOK}, id="in a container"),
        pytest.param("/optional", {"anyOf": [BOOK, {"type": "null"}]}, id="or None"),
        pytest.param("/page", PAGE, id="in a model"),
    ],
)
def test_the_document_has_the_types_of_the_subclass(
    views: ModuleType, path: str, expected: object
) -> None:
    """A type parameter is replaced by what the subclass gives for it."""
    described = operation(app_of(views.Books), "get", f"/v{path}")
    content = described["responses"]["200"]["content"]
    schema = content["application/json"]["schema"]
    schema.pop("title", None)

    assert expected == schema


async def test_requests_are_checked_against_the_types_of_the_subclass(
    views: ModuleType,
) -> None:
    """A body that fits is the model, and one that does not is a 422."""
    async with client_of(app_of(views.Books)) as client:
        made = await client.post("/v", json={"title": "Emma"})
        changed = await client.put("/v", json={"number": 1, "title": "Emma"})
        refused = await client.put("/v", json={"title": "Emma"})

    assert {"title": "Emma"} == made.json()
    assert {"number": 1, "title": "Emma"} == changed.json()
    assert ["body", "number"] == refused.json()["detail"][0]["loc"]


async def test_a_generic_view_is_limited(views: ModuleType) -> None:
    """The limits of its handlers are those that the generic base declares."""
    app = app_of(views.Books)

    assert [422, 429] == await statuses(app, "POST /v", "POST /v")
    assert ["5/m", "1/m"] == [
        str(views.Books.throttled[name].limits[0].quota) for name in ("get", "post")
    ]


@pytest.mark.parametrize("name", ["OfNumbers", "MoreOfNumbers"])
async def test_types_are_found_through_several_levels(
    views: ModuleType, name: str
) -> None:
    """Attributes, __init__ and handlers of each level have the types at the end."""
    app = app_of(getattr(views, name))
    async with client_of(app) as client:
        kept = await client.post("/v?sizes=1&one=1", json={"a": [1]})
        refused = await client.post("/v?sizes=1&one=1", json={"a": ["x"]})
    [not_a_number] = await answers(app, "GET /v?sizes=1&sizes=x&one=3")

    assert [3, 1, 2] == await body(app, "GET /v?sizes=1&sizes=2&one=3")
    assert {"a": [1]} == kept.json()
    assert (422, 422) == (refused.status_code, not_a_number.status_code)


async def test_a_generic_dataclass_is_a_view(views: ModuleType) -> None:
    """The fields of a dataclass have the types that the subclass gives."""
    app = app_of(views.OfSizes)

    assert 3 == await body(app, "GET /v?size=3")
    assert [422] == await statuses(app, "GET /v?size=x")


@pytest.mark.parametrize(
    ("name", "parameter", "variable"),
    [
        pytest.param("CrudView", "return", "ModelT", id="the generic view itself"),
        pytest.param("Open", "sizes", "ItemT", id="a subclass with a variable"),
        pytest.param("GenericHandler", "size", "SizeT", id="a generic handler"),
    ],
)
def test_an_open_variable_is_refused(
    views: ModuleType, name: str, parameter: str, variable: str
) -> None:
    """The message names the view, the parameter and the variable."""
    with pytest.raises(ViewDefinitionError) as caught:
        app_of(getattr(views, name))

    assert f"{views.__name__}.{name}." in caught.value.subject
    assert f"the type of {parameter!r} is still" in str(caught.value)
    assert variable in str(caught.value)


async def test_an_alias_of_an_attribute_is_what_it_stands_for() -> None:
    """A `type` statement may name what an attribute is given."""

    class View(ThrottledView):
        throttle = "5/m"
        first: Seven

        async def get(self) -> int:
            return self.first

    assert 7 == await body(app_of(View))


@pytest.mark.skipif(
    tuple(map(int, fastapi.__version__.split(".")[:2])) < (0, 129),
    reason="this FastAPI does not look into aliases",
)
async def test_an_alias_is_what_it_stands_for() -> None:
    """A `type` statement may name a parameter's type, with the marker in it."""

    class View(ThrottledView):
        throttle = "5/m"

        def __init__(self, first: Seven) -> None:
            self.first = first

        async def get(self, second: Seven) -> Sizes:
            return {"size": self.first + second}

    assert {"size": 14} == await body(app_of(View))
