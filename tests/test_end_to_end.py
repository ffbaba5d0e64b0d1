"""A real server, a real client and real time."""

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from typing import NamedTuple

import httpx
import pytest

from tests.documents import ROOT

STARTUP_SECONDS = 30
QUOTA = 5


class Server(NamedTuple):
    """A served quickstart: where it is, and how to stop it."""

    url: str
    process: subprocess.Popen[str]

    def stop(self) -> str:
        """End the process and return what it printed."""
        self.process.terminate()
        try:
            return self.process.communicate(timeout=10)[0]
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.communicate()[0]


def free_port() -> int:
    """Ask the system for a port that nobody listens on."""
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def wait_until_listening(port: int, process: subprocess.Popen[str]) -> None:
    """Return when a connection to *port* is accepted; send no request."""
    deadline = time.monotonic() + STARTUP_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        try:
            with closing(socket.create_connection(("127.0.0.1", port), timeout=1)):
                return
        except OSError:
            time.sleep(0.05)
    pytest.fail("the quickstart did not start")


@pytest.fixture(name="server")
def server_fixture() -> Iterator[Server]:
    """Serve the quickstart in a process of its own for one test."""
    port = free_port()
    server = Server(
        f"http://127.0.0.1:{port}",
        subprocess.Popen(
            [sys.executable, "examples/quickstart.py", "--port", str(port)],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        ),
    )
    try:
        wait_until_listening(port, server.process)
        yield server
    finally:
        server.stop()


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
