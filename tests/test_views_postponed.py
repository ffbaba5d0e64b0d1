"""Views whose annotations are postponed, so that they are text until they are read."""

from collections.abc import Callable
from typing import Any

import pytest
from fastapi import APIRouter, FastAPI
from pydantic.errors import PydanticUserError

from tests import postponed_views
from tests.apps_views import app_of, unlimited_document
from tests.asgi import answers
from tests.clients import client_of
from throttled_views import ConfigurationError

AGENT = {"User-Agent": "test"}


def test_the_document_is_that_of_functions() -> None:
    """Parameters, bodies and models are those of functions in the same module."""
    assert postponed_views.functions().openapi() == (
        unlimited_document(app_of(postponed_views.Books))
    )


async def test_what_is_asked_for_is_injected() -> None:
    """Attributes and parameters are known by names of the module they stand in."""
    [answer] = await answers(
        app_of(postponed_views.Books), "GET /v?page=3&size=20", headers=AGENT
    )

    assert ["books", "/v", "test", 3, 20] == answer.json()
    assert "2" == answer.headers["X-Left"]


async def test_models_may_be_defined_below_the_view() -> None:
    """A name is looked up when the view is registered, and not when it is defined."""
    async with client_of(app_of(postponed_views.Books)) as client:
        made = await client.post("/v", json={"title": "Emma"})
        refused = await client.post("/v", json={})

    assert {"title": "Emma", "size": 10} == made.json()
    assert ["body", "title"] == refused.json()["detail"][0]["loc"]


async def test_a_decorated_handler_is_read_where_it_was_written() -> None:
    """The names of a handler are not looked up in the module of its decorator."""
    [answer] = await answers(app_of(postponed_views.Books), "GET /v/7", headers=AGENT)

    assert {"7": {"title": "test", "size": 10}} == answer.json()


async def test_a_partialmethod_is_read_where_it_was_written() -> None:
    """The names of a handler with given parameters are those of its function."""
    async with client_of(app_of(postponed_views.Given)) as client:
        answer = await client.put("/v", json={"title": "Emma"})

    assert [{"title": "Emma"}, {"title": "kind"}] == answer.json()


async def test_an_attribute_with_a_marker_is_never_left_out() -> None:
    """That nobody can look its type up does not matter, or is an error."""
    try:
        app = app_of(postponed_views.Marked)
    except ConfigurationError as error:
        assert "price" in str(error)  # noqa: PT017
    else:
        [answer] = await answers(app, "GET /v", headers=AGENT)
        assert "test" == answer.json()


async def test_a_type_of_a_generic_base_is_replaced() -> None:
    """Variables are found in text, too."""
    app = app_of(postponed_views.Words)
    async with client_of(app) as client:
        first = await client.post("/v?keys=1", json=["7"])
        refused = await client.post("/v?keys=1", json=[7])

    assert (200, "7") == (first.status_code, first.json())
    assert 422 == refused.status_code


async def test_a_dataclass_is_read_where_it_was_written() -> None:
    """The constructor that Python writes has the annotations of the fields."""
    [answer] = await answers(app_of(postponed_views.Fields), "GET /v", headers=AGENT)

    assert ["/v", "test"] == answer.json()


async def test_a_key_function_may_be_annotated_for_checkers_only() -> None:
    """Request and HTTPConnection are known by name, if nobody can look them up."""
    app = app_of(postponed_views.Books)
    answered = [
        await answers(app, "POST /v", headers={"User-Agent": agent})
        for agent in ("a", "a", "a", "b")
    ]

    assert [422, 422, 429, 422] == [answer.status_code for [answer] in answered]


def of_function(function: Callable[..., Any]) -> FastAPI:
    """Serve a function."""
    router, app = APIRouter(), FastAPI()
    router.get("")(function)
    app.include_router(router, prefix="/v")
    return app


FOR_CHECKERS_ONLY: dict[str, Callable[[], FastAPI]] = {
    "a function with a marker": lambda: of_function(postponed_views.type_only),
    "a view with a marker": lambda: app_of(postponed_views.TypeOnly),
    "a function without a marker": lambda: of_function(postponed_views.unknown),
    "a view without a marker": lambda: app_of(postponed_views.Unknown),
}


@pytest.mark.parametrize("app", FOR_CHECKERS_ONLY.values(), ids=FOR_CHECKERS_ONLY)
def test_what_exists_for_checkers_only_is_up_to_fastapi(
    app: Callable[[], FastAPI],
) -> None:
    """A parameter's type that nobody can look up is an error of FastAPI's own."""
    with pytest.raises((NameError, PydanticUserError)):
        app().openapi()
