"""What a client of WebSockets meets on a real server."""

from collections.abc import Generator

import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from tests.serving import Server, served

PLACES = {"a view": "/view", "a router": "/router", "an application": "/app/socket"}
placed = pytest.mark.parametrize("path", PLACES.values(), ids=PLACES)


@pytest.fixture(name="server", scope="module")
def server_fixture() -> Generator[Server]:
    """Serve the application for all tests: each has a path of its own."""
    with served("tests.served_sockets:app") as server:
        yield server


@pytest.fixture(name="silent_server", scope="module")
def silent_server_fixture() -> Generator[Server]:
    """The same, without the means to refuse a handshake with a response."""
    with served("tests.served_sockets:app_without_responses") as server:
        yield server


def refusal_of(server: Server, path: str) -> InvalidStatus:
    """Connect until that is refused, which is the third time; return what says so."""
    url = f"ws://127.0.0.1:{server.port}{path}"
    for _ in range(2):
        with connect(url):
            pass
    with pytest.raises(InvalidStatus) as refused, connect(url):
        pass
    return refused.value


@placed
def test_case_68_the_third_handshake_is_refused_with_a_429(
    server: Server, path: str
) -> None:
    """The client of a socket is told why, and when to come back."""
    response = refusal_of(server, path).response

    assert 429 == response.status_code
    assert b'{"detail":"Rate limit exceeded"}' == response.body
    assert "1800" == response.headers["Retry-After"]
    assert "0" == response.headers["RateLimit-Remaining"]


@placed
def test_case_68_a_server_that_cannot_say_so_never_accepts(
    silent_server: Server, path: str
) -> None:
    """A socket that is closed before it is accepted is a 403 to its client."""
    assert 403 == refusal_of(silent_server, path).response.status_code
