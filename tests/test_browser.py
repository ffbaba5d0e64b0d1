"""What a page of another origin can read, in a real browser."""

from collections.abc import Generator
from typing import NamedTuple

import pytest

from tests.browsers import Browser, chromium
from tests.serving import served

_ASK = """
const [url, headers, names] = arguments;
const response = await fetch(url, {headers});
const fields = names.map(name => [name, response.headers.get(name)]);
return [response.status, await response.json(), Object.fromEntries(fields)];
"""

NAMES = (
    "RateLimit-Limit",
    "RateLimit-Remaining",
    "RateLimit-Reset",
    "Retry-After",
    "RateLimit",
    "RateLimit-Policy",
)


class Seen(NamedTuple):
    """What a script could read of a response."""

    status: int
    body: object
    fields: dict[str, str | None]


class Page(NamedTuple):
    """A page, and where the application is that it talks to, in another origin."""

    browser: Browser
    application: str

    def ask(self, path: str, **headers: str) -> Seen:
        """Let the page fetch *path*; return what its script could read."""
        url = self.application + path
        status, body, fields = self.browser.run(_ASK, url, headers, NAMES)
        return Seen(status, body, {name: each for name, each in fields.items() if each})


@pytest.fixture(name="page", scope="module")
def page_fixture(tmp_path_factory: pytest.TempPathFactory) -> Generator[Page]:
    """Open a page of one server, and give the address of another."""
    app = "tests.served_origins:app"
    with (
        chromium(tmp_path_factory.mktemp("profile")) as browser,
        served(app) as one,
        served(app) as other,
    ):
        browser.visit(f"{one.url}/plain/page")
        yield Page(browser, other.url)


TOLD = {"RateLimit-Limit": "1", "RateLimit-Remaining": "0", "RateLimit-Reset": "3600"}
PATHS = {
    "a view": "/plain/view",
    "a function": "/plain/function",
    "an application": "/whole/missing",
}


@pytest.mark.parametrize("path", PATHS.values(), ids=PATHS)
def test_case_103_a_page_of_another_origin_reads_the_fields(
    page: Page, path: str
) -> None:
    """It sees what is left, and of a refusal the status, the body and the wait."""
    admitted, refused = page.ask(path), page.ask(path)

    assert TOLD == admitted.fields
    assert (429, {"detail": "Rate limit exceeded"}) == (refused.status, refused.body)
    assert {**TOLD, "Retry-After": "3600"} == refused.fields


def test_case_103_a_page_reads_the_fields_of_the_ietf(page: Page) -> None:
    """They are exposed by the same constant."""
    admitted, refused = page.ask("/ietf/view"), page.ask("/ietf/view")

    policy = {"RateLimit-Policy": '"1";q=1;w=3600'}
    assert {**policy, "RateLimit": '"1";r=0;t=3600'} == admitted.fields
    assert {"Retry-After": "3600", **admitted.fields} == refused.fields


def test_case_103_what_is_not_exposed_is_not_read(page: Page) -> None:
    """The status and the body are, since the origin is allowed."""
    admitted, refused = page.ask("/hidden/view"), page.ask("/hidden/view")

    assert ([200, 429], {}) == ([admitted.status, refused.status], refused.fields)


def test_preflight_requests_of_a_browser_are_not_counted(page: Page) -> None:
    """Before a request with a header of its own it asks, once for each path."""
    asked = [
        page.ask(path, **{"X-API-Key": "k"}).status
        for path in ("/asking/a", "/asking/b", "/asking/c")
    ]

    assert [404, 404, 429] == asked
