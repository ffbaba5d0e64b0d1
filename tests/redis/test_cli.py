"""The command line and a server: it sees and resets what other processes count."""

import asyncio
import json
import sys

import pytest
from typer.testing import CliRunner

from tests import apps_cli
from tests.asgi import CLIENT, statuses
from tests.redis.stores import PATIENT_S
from throttled_views.cli._app import app
from throttled_views.stores.redis import RedisStore

GET = ("tests.apps_cli:create_app", "--factory", "Items.get", CLIENT)
IN_MEMORY = ("tests.apps_cli:in_memory", *GET[1:])


@pytest.fixture(name="url", autouse=True)
def url_fixture(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """Give the URL of the server that the application counts in."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    store = RedisStore(redis_url, timeout=PATIENT_S)
    monkeypatch.setitem(apps_cli.stores, "relay", store)
    return redis_url


def request(*requests: str) -> list[int]:
    """Let the application serve *requests*, as another process would."""

    async def serve() -> list[int]:
        found = await statuses(apps_cli.create_app(), *requests)
        await apps_cli.stores["relay"].aclose()
        return found

    return asyncio.run(serve())


def printed(*words: str) -> str:
    """Run a command that goes well; return what it prints."""
    result = CliRunner().invoke(app, words)
    assert 0 == result.exit_code, result.output
    return result.output


def remaining(*words: str) -> int:
    """Return what ``peek`` tells is left of the one limit."""
    [found] = json.loads(printed("peek", *words, "--json"))
    left: int = found["remaining"]
    return left


def test_a_peek_sees_what_was_counted() -> None:
    """By the store of the application's own limiter."""
    request("GET /v1/items", "GET /v1/items")

    assert 3 == remaining(*GET)


def test_a_server_may_be_said(url: str) -> None:
    """Where this process would count in its memory."""
    request("GET /v1/items", "GET /v1/items")

    assert 3 == remaining(*IN_MEMORY, "--redis", url)


@pytest.mark.parametrize("is_said", [False, True], ids=["its own", "by --redis"])
def test_a_reset_lets_a_client_in(url: str, *, is_said: bool) -> None:
    """It is as good as new."""
    request(*["GET /v1/items"] * 5)  # one more, and the store would know for a second

    printed("reset", *GET, *(("--redis", url) if is_said else ()))

    assert [200] == request("GET /v1/items")


def test_a_server_that_is_away_is_told() -> None:
    """With an exit code of 2."""
    result = CliRunner().invoke(
        app, ["peek", *IN_MEMORY, "--redis", "redis://127.0.0.1:1"]
    )

    assert 2 == result.exit_code
    assert result.output.startswith("Error: ")


def test_a_node_of_a_cluster_is_told(cluster_urls: list[str]) -> None:
    """It sends others on, which a client of one server does not follow."""
    said = [
        CliRunner().invoke(app, ["peek", *IN_MEMORY, "--redis", url])
        for url in cluster_urls
    ]

    # One of them has the key, and answers.
    assert [0, 2, 2] == sorted(each.exit_code for each in said)
    assert 2 == sum("is a node of a cluster" in each.output for each in said)
