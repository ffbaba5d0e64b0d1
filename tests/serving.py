"""Real servers: each in a process of its own, on the loopback address."""

import socket
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import closing, contextmanager
from typing import NamedTuple

import pytest

from tests.documents import ROOT

HOST = "127.0.0.1"
STARTUP_SECONDS = 30


class Server(NamedTuple):
    """A server: where it listens, and how to stop it."""

    port: int
    process: subprocess.Popen[str]

    @property
    def url(self) -> str:
        """Where it is found."""
        return f"http://{HOST}:{self.port}"

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
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port


def _wait_until_listening(server: Server) -> None:
    """Return when a connection is accepted; send no request."""
    deadline = time.monotonic() + STARTUP_SECONDS
    while time.monotonic() < deadline and server.process.poll() is None:
        try:
            with closing(socket.create_connection((HOST, server.port), timeout=1)):
                return
        except OSError:
            time.sleep(0.05)
    pytest.fail(f"a server did not start: {server.stop()}")


@contextmanager
def serving(*command: str) -> Generator[Server]:
    """Run *command* in the checkout; it serves on the port that follows it."""
    port = free_port()
    with subprocess.Popen(
        [*command, f"--port={port}"],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        server = Server(port, process)
        try:
            _wait_until_listening(server)
            yield server
        finally:
            server.stop()


@contextmanager
def served(app: str) -> Generator[Server]:
    """Serve the application that is found as *app*, by uvicorn."""
    with serving(sys.executable, "-m", "uvicorn", app) as server:
        yield server
