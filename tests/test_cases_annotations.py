"""Scenarios from public bug reports, by number: what FastAPI reads of a function."""

import json

import pytest
from fastapi import FastAPI
from pydantic.errors import PydanticUserError

from tests import postponed, unresolved
from tests.apps_views import unlimited_document
from tests.asgi import app_of, frozen
from tests.ways import DECORATED, DEPENDENT, EARLY, Endpoint, Way

WAYS = {**EARLY, **DECORATED, **DEPENDENT}
ways = pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)


@ways
@pytest.mark.parametrize("endpoint", [postponed.look, postponed.write])
def test_case_74_a_limit_adds_nothing_but_what_it_says(
    way: Way, endpoint: Endpoint
) -> None:
    """The document is the same byte for byte, but for its limits: no new parameter."""
    plain = FastAPI()
    plain.add_api_route("/", endpoint)

    assert json.dumps(plain.openapi()) == (
        json.dumps(unlimited_document(way(frozen("5/min"), endpoint)))
    )


UNRESOLVED: list[Endpoint] = [
    unresolved.parameter,
    unresolved.body,
    unresolved.dependency,
    unresolved.result,
]


@pytest.mark.parametrize("endpoint", UNRESOLVED)
@ways
def test_case_74_an_unknown_name_is_the_frameworks_error(
    way: Way, endpoint: Endpoint
) -> None:
    """It never becomes a parameter of another kind; FastAPI and Pydantic complain."""
    with pytest.raises((NameError, PydanticUserError)):
        way(frozen("5/min"), endpoint).openapi()


def test_case_74_an_unknown_name_in_a_view_is_the_frameworks_error() -> None:
    """A method is no different."""
    with pytest.raises((NameError, PydanticUserError)):
        app_of(unresolved.Prices.as_router(frozen())).openapi()
