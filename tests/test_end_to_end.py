"""A real server, a real client and real time."""

import sys
import time
from collections.abc import Iterator

import httpx
import pytest

from tests.serving import Server, serving

QUOTA = 5


@pytest.fixture(name="server")
def server_fixture() -> Iterator[Server]:
    """Serve the quickstart in a process of its own for one test."""
    with serving(sys.executable, "examples/quickstart.py") as server:
        yield server


def test_a_client_that_waits_as_told_is_admitted(server: Server) -> None:
    """200s until the quota is spent, then a 429 whose Retry-After is kept."""
    with httpx.Client(base_url=server.url) as client:
        admitted = [client.get("/hello") for _ in range(QUOTA)]
        refused = client.get("/hello")
        time.sleep(int(refused.headers["Retry-After"]))
        again = client.get("/hello")

    assert [200] * QUOTA == [answer.status_code for answer in admitted]
    assert [("5", str(left)) for left in reversed(range(QUOTA))] == [
        (answer.headers["RateLimit-Limit"], answer.headers["RateLimit-Remaining"])
        for answer in admitted
    ]
    assert all(int(answer.headers["RateLimit-Reset"]) > 0 for answer in admitted)
    assert all("Retry-After" not in answer.headers for answer in admitted)

    assert 429 == refused.status_code
    assert {"detail": "Rate limit exceeded"} == refused.json()
    assert "0" == refused.headers["RateLimit-Remaining"]
    assert int(refused.headers["Retry-After"]) in {1, 2}

    assert 200 == again.status_code


def test_the_quickstart_says_what_to_try(server: Server) -> None:
    """It prints its URL and a command to try before it serves."""
    printed = server.stop()

    assert f"Serving {server.url}/hello" in printed
    assert f"curl -i {server.url}/hello" in printed
