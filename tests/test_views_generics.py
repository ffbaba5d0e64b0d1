"""Generic views, and the types that their subclasses give."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Generic, TypeVar

import pytest
from fastapi import Body, Depends, FastAPI, Query, Request
from pydantic import BaseModel

from tests.apps_views import app_of, body, operation, unlimited_document
from tests.clients import client_of
from throttled_views import ThrottledView, ViewDefinitionError, limit, route

ModelT = TypeVar("ModelT", bound=BaseModel)
NewT = TypeVar("NewT", bound=BaseModel)
ItemT = TypeVar("ItemT")
KeyT = TypeVar("KeyT")


class Book(BaseModel):
    """What is served."""

    number: int
    title: str


class NewBook(BaseModel):
    """What is sent."""

    title: str


class Author(BaseModel):
    """Something else."""

    name: str


class Page(BaseModel, Generic[ItemT]):
    """A generic model."""

    items: list[ItemT]


@dataclass
class Pair(Generic[ItemT]):
    """A generic class that is no model."""

    first: ItemT
    second: ItemT


class CrudView(ThrottledView, Generic[ModelT, NewT]):
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

    @route.post("/many")
    async def many(self, models: dict[str, list[ModelT]]) -> tuple[int, NewT | None]:
        """Make many."""
        return len(models), None

    @route.get("/pair")
    async def pair(self) -> Pair[ModelT] | None:
        """Serve two, if they are there."""
        return None

    @route.get("/pages")
    async def nested(self) -> Page[list[ModelT]]:
        """List some, in lists."""
        return Page[list[ModelT]](items=[])


class Books(CrudView[Book, NewBook]):
    """Serves books."""


def functions() -> FastAPI:
    """Serve what `Books` serves, by functions."""
    app = FastAPI()

    @app.get("/v", name="Books.get")
    async def get() -> list[Book]:
        """List them."""
        return []

    @app.post("/v", name="Books.post")
    async def post(new: NewBook) -> NewBook:
        """Make one."""
        return new

    @app.put("/v", name="Books.put")
    async def put(model: Annotated[Book | None, Body()] = None) -> Book:
        """Change one."""
        assert model is not None
        return model

    @app.get("/v/page", name="Books.page")
    async def page() -> Page[Book]:
        """List some."""
        return Page[Book](items=[])

    @app.get("/v/optional", name="Books.optional")
    async def optional() -> Book | None:
        """Serve one, if it is there."""
        return None

    @app.post("/v/many", name="Books.many")
    async def many(models: dict[str, list[Book]]) -> tuple[int, NewBook | None]:
        """Make many."""
        return len(models), None

    @app.get("/v/pair", name="Books.pair")
    async def pair() -> Pair[Book] | None:
        """Serve two, if they are there."""
        return None

    @app.get("/v/pages", name="Books.nested")
    async def nested() -> Page[list[Book]]:
        """List some, in lists."""
        return Page[list[Book]](items=[])

    return app


def test_the_document_has_the_types_of_the_subclass() -> None:
    """OpenAPI knows a generic view as it would know functions of the concrete types."""
    assert functions().openapi() == unlimited_document(app_of(Books))


async def test_requests_are_checked_against_the_types_of_the_subclass() -> None:
    """A body that fits is the model, and one that does not is a 422."""
    async with client_of(app_of(Books)) as client:
        fits = await client.put("/v", json={"number": 1, "title": "Emma"})
        does_not = await client.put("/v", json={"title": "Emma"})

    assert (200, {"number": 1, "title": "Emma"}) == (fits.status_code, fits.json())
    assert (422, ["body", "number"]) == (
        does_not.status_code,
        does_not.json()["detail"][0]["loc"],
    )


async def test_two_subclasses_have_two_types() -> None:
    """What one subclass gives for a variable is nothing to the other."""

    class Authors(CrudView[Author, Author]):
        path = "/authors"

    app = app_of(Books, Authors)

    for path, name in (("/v", "Book"), ("/v/authors", "Author")):
        [answer] = [operation(app, "get", path)["responses"]["200"]["content"].values()]
        assert (
            f"#/components/schemas/{name}"
            == (next(iter(answer))["schema"]["items"]["$ref"])
        )


# --- several levels -------------------------------------------------------------------


class ReadView(ThrottledView, Generic[ItemT]):
    """Serves an item."""

    throttle = "5/m"

    async def post(self, item: ItemT) -> ItemT:
        """Give it back."""
        return item


class ListView(ReadView[list[ItemT]], Generic[ItemT]):
    """Serves lists of items."""


class KeyedView(ListView[ItemT], Generic[KeyT, ItemT]):
    """Serves lists of items under a key."""

    async def put(self, keyed: dict[KeyT, ItemT]) -> dict[KeyT, ItemT]:
        """Give them back."""
        return keyed


class OfBooks(KeyedView[str, Book]):
    """Gives all types."""


class MoreOfBooks(OfBooks):
    """Derives from a view that has them."""


class SwappedView(KeyedView[ItemT, KeyT]):
    """Gives the variables of its base the other way round."""


class Swapped(SwappedView[Book, str]):
    """Gives the types by the order of first use in the base: ItemT, then KeyT."""


def accepted(view: type[ThrottledView], method: str) -> Any:  # noqa: ANN401
    """Return the schema of the body that a handler of *view* takes."""
    described = operation(app_of(view), method)["requestBody"]["content"]
    schema = described["application/json"]["schema"]
    schema.pop("title", None)
    return schema


BOOK = {"$ref": "#/components/schemas/Book"}


@pytest.mark.parametrize("view", [OfBooks, MoreOfBooks], ids=lambda view: view.__name__)
def test_types_are_found_through_several_levels(view: type[ThrottledView]) -> None:
    """Each level replaces the variables of the one below it, in whatever it makes."""
    assert {"type": "array", "items": BOOK} == accepted(view, "post")
    assert {"type": "object", "additionalProperties": BOOK} == accepted(view, "put")


def test_types_follow_the_variables_and_not_their_order() -> None:
    """A variable stands for what its own place in the base is given."""
    assert {"type": "array", "items": {"type": "string"}} == accepted(Swapped, "post")


def test_handlers_may_have_concrete_types() -> None:
    """What a generic subclass adds has its own types, and the rest stays generic."""

    class View(ReadView[ItemT]):
        async def post(self, item: ItemT) -> ItemT:
            return item

        async def put(self, item: Author) -> Author:
            return item

    class Mixed(View[Book]):
        pass

    assert BOOK == accepted(Mixed, "post")
    assert {"$ref": "#/components/schemas/Author"} == accepted(Mixed, "put")


def test_a_diamond_of_generic_bases_has_one_type() -> None:
    """A base that is reached by two ways has the types that both give."""

    class Reads(ReadView[ItemT], Generic[ItemT]):
        pass

    class Writes(ReadView[ItemT], Generic[ItemT]):
        pass

    class Both(Reads[Book], Writes[Book]):
        pass

    assert BOOK == accepted(Both, "post")


class Nested(ThrottledView, Generic[ModelT]):
    """Serves generic models inside of other types."""

    throttle = "5/m"

    async def get(self) -> list[Page[ModelT]]:
        """List pages."""
        return []

    async def post(self, page: Annotated[Page[ModelT], Body()]) -> dict[str, int]:
        """Take a page."""
        return {"items": len(page.items)}

    async def put(self) -> dict[str, Page[ModelT]]:
        """Return pages under keys."""
        return {}

    async def patch(self) -> Page[ModelT] | None:
        """Return a page, if it is there."""
        return None


@pytest.mark.parametrize("method", ["get", "post", "put", "patch"])
def test_a_model_inside_of_a_type_has_the_type_of_the_subclass(method: str) -> None:
    """A generic model is made concrete wherever it stands in an annotation."""

    class View(Nested[Book]):
        pass

    described = json.dumps(operation(app_of(View), method))

    assert "/schemas/Page_Book_" in described


class Listing(ThrottledView, Generic[ItemT]):
    """Serves a model that is generic by the same variable."""

    throttle = "5/m"

    async def get(self) -> Page[ItemT]:
        """List some."""
        return Page[ItemT](items=[])


def test_a_model_of_the_same_variable_has_the_type_of_the_subclass() -> None:
    """To Pydantic, Page of its own variable is the bare Page; to us it is not."""

    class View(Listing[Book]):
        pass

    described = operation(app_of(View))["responses"]["200"]["content"]
    reference = described["application/json"]["schema"]["$ref"]

    assert "#/components/schemas/Page_Book_" == reference


# --- injection ------------------------------------------------------------------------


async def test_injected_attributes_have_the_types_of_the_subclass() -> None:
    """Variables in the annotations of attributes and of __init__ are replaced too."""

    class View(ThrottledView, Generic[ItemT, KeyT]):
        throttle = "5/m"
        size: Annotated[ItemT, Query()]
        more: Annotated[list[KeyT], Query()]

        def __init__(self, keys: Annotated[list[KeyT], Query()]) -> None:
            self.keys = keys

        async def get(self) -> list[object]:
            return [self.size, self.keys, self.more]

    class OfNumbers(View[int, float]):
        pass

    class OfText(View[str, str]):
        path = "/text"

    app = app_of(OfNumbers, OfText)
    query = "size=1&keys=2&keys=3&more=4"

    assert [1, [2.0, 3.0], [4.0]] == await body(app, f"GET /v?{query}")
    assert ["1", ["2", "3"], ["4"]] == await body(app, f"GET /v/text?{query}")


async def test_a_variable_in_a_callable_is_replaced() -> None:
    """Variables are found wherever a type can stand in another."""

    async def get_doubler() -> Callable[[int], list[int]]:
        return lambda item: [item, item]

    class View(ThrottledView, Generic[ItemT]):
        throttle = "5/m"
        double: Annotated[Callable[[ItemT], list[ItemT]], Depends(get_doubler)]

        @route.get("")
        async def doubled(self, item: ItemT) -> list[ItemT]:
            return self.double(item)

    class OfNumbers(View[int]):
        pass

    assert [3, 3] == await body(app_of(OfNumbers), "GET /v?item=3")


# --- open variables -------------------------------------------------------------------


class BareSubclass(
    CrudView  # type: ignore[type-arg]  # pyright: ignore[reportMissingTypeArgument]
):
    """Gives no types."""


class HalfOpen(ReadView[ItemT]):
    """Gives its base a variable of its own."""


@pytest.mark.parametrize(
    ("view", "handler", "variable"),
    [
        pytest.param(CrudView, "return", ModelT, id="the generic view itself"),
        pytest.param(BareSubclass, "return", ModelT, id="a subclass without types"),
        pytest.param(HalfOpen, "item", ItemT, id="a subclass with a variable"),
    ],
)
def test_an_open_variable_is_refused_at_registration(
    view: type[ThrottledView], handler: str, variable: object
) -> None:
    """FastAPI would take anything for it; the message names it, and the parameter."""
    with pytest.raises(ViewDefinitionError) as caught:
        app_of(view)

    assert f"{__name__}.{view.__name__}." in caught.value.subject
    assert __file__ in caught.value.subject
    assert f"the type of {handler!r} is still" in str(caught.value)
    assert f"{variable}" in str(caught.value)
    assert "Subclass with the types filled in, for example 'class" in str(caught.value)


@pytest.mark.parametrize("view", [Listing, Nested], ids=lambda view: view.__name__)
def test_an_open_variable_of_a_model_is_refused(view: type[ThrottledView]) -> None:
    """Pydantic's models keep their variables elsewhere; that one is open is seen."""
    with pytest.raises(ViewDefinitionError, match="the type of 'return' is still"):
        app_of(view)


class Forward(ReadView["Later"]):
    """Gives a type that is defined below."""


class Later(BaseModel):
    """Is defined below."""

    number: int


def test_a_type_may_be_given_before_it_is_defined() -> None:
    """Text in the brackets of a base is looked up as that in annotations is."""
    assert {"$ref": "#/components/schemas/Later"} == accepted(Forward, "post")


def test_a_subscripted_view_is_no_subclass() -> None:
    """CrudView[Book, NewBook] is CrudView to Python; types are found in subclasses."""
    with pytest.raises(ViewDefinitionError, match="Subclass with the types filled in"):
        CrudView[Book, NewBook].as_router()


def constructor() -> type[ThrottledView]:
    """Leave a variable open in the constructor."""

    class View(ThrottledView, Generic[ItemT]):
        throttle = "5/m"

        def __init__(self, size: ItemT) -> None:
            self.size = size

        async def get(self) -> None:
            pass

    return View


def attribute() -> type[ThrottledView]:
    """Leave a variable open in an attribute."""

    class View(ThrottledView, Generic[ItemT]):
        throttle = "5/m"
        size: Annotated[list[ItemT], Query()]

        async def get(self) -> None:
            pass

    return View


def in_a_callable() -> type[ThrottledView]:
    """Leave a variable open among the parameters of a callable."""

    class View(ThrottledView, Generic[ItemT]):
        throttle = "5/m"
        size: Annotated[Callable[[ItemT], int], Depends()]

        async def get(self) -> None:
            pass

    return View


@pytest.mark.parametrize("define", [constructor, attribute, in_a_callable])
def test_an_open_variable_of_what_is_injected_is_refused(
    define: Callable[[], type[ThrottledView]],
) -> None:
    """Parameters of __init__ and attributes have types as those of handlers have."""
    with pytest.raises(ViewDefinitionError, match="the type of 'size' is still"):
        app_of(define())


def test_a_generic_model_may_stand_for_itself() -> None:
    """Outside of generic views a bare generic model is what it is to FastAPI."""

    class View(ThrottledView):
        throttle = "5/m"
        request: Request

        async def get(self) -> Page:  # type: ignore[type-arg]  # pyright: ignore[reportMissingTypeArgument, reportUnknownParameterType]
            return Page[Any](items=[])

    described = operation(app_of(View))["responses"]["200"]["content"]

    assert (
        "#/components/schemas/Page" == described["application/json"]["schema"]["$ref"]
    )
