"""The tour of the documentation does what it says."""

from types import ModuleType

import pytest

from tests.clients import client_of
from tests.documents import ROOT, blocks, run

PAGE = ROOT / "docs" / "tutorials" / "tour.md"


@pytest.fixture(name="page", scope="module")
def page_fixture() -> ModuleType:
    """Run all code of the page in order, under a name that no other test gives it."""
    return run(PAGE, first=len(blocks(PAGE)))


@pytest.mark.parametrize(
    ("path", "quota"),
    [
        ("/v1/books", 10),
        ("/v1/books/7", 10),
        ("/search?q=emma", 10),
        ("/report", 2),
    ],
)
async def test_each_route_has_the_quota_it_declares(
    page: ModuleType, path: str, quota: int
) -> None:
    """The routes of the tour admit as many requests as it says."""
    async with client_of(page.app) as client:
        answers = [await client.get(path) for _ in range(quota + 1)]

    assert [200] * quota + [429] == [answer.status_code for answer in answers]


async def test_an_exempt_handler_is_limited_with_the_application_alone(
    page: ModuleType,
) -> None:
    """The tour's health check counts as a path that does not exist does."""
    async with client_of(page.app) as client:
        answers = [await client.get(path) for path in ("/v1/books/health", "/lost")]

    assert [("1000", "999"), ("1000", "998")] == [
        (each.headers["RateLimit-Limit"], each.headers["RateLimit-Remaining"])
        for each in answers
    ]


async def test_the_key_function_tells_customers_from_addresses(
    page: ModuleType,
) -> None:
    """A customer of the tour keeps one counter at all addresses."""
    key = {"X-API-Key": "k-alice"}
    page.app.include_router(page.Orders.as_router())
    remaining: list[str] = []
    for _ in range(2):
        async with client_of(page.app) as client:
            answer = await client.get("/orders", headers=key)
            remaining.append(answer.headers["RateLimit-Remaining"])

    assert ["29", "28"] == remaining
