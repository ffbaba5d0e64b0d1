"""Servers to measure with: those of the tests, each on a core of its own."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.benchmarks.measuring import SERVER_CORE, pin
from tests.redis.servers import (
    KINDS,
    Cluster,
    Kind,
    Server,
    UnavailableError,
    find_kind,
)


def kinds() -> tuple[list[Kind], list[str]]:
    """Return the kinds of servers on this machine, and why some are missing."""
    found: list[Kind] = []
    missing: list[str] = []
    for name in KINDS:
        try:
            found.append(find_kind(name))
        except UnavailableError as error:
            missing.append(str(error))
    return found, missing


@contextmanager
def server_of(kind: Kind) -> Generator[Server]:
    """Start a server."""
    with (
        TemporaryDirectory() as directory,
        Server(kind, Path(directory)) as server,
    ):
        pin(SERVER_CORE, server.pid)
        yield server


@contextmanager
def cluster_of(kind: Kind) -> Generator[Cluster]:
    """Start a cluster of three nodes, which share one core."""
    with TemporaryDirectory() as directory, Cluster(kind, Path(directory)) as cluster:
        for node in cluster.nodes:
            pin(SERVER_CORE, node.pid)
        yield cluster


def version_of(kind: Kind) -> str:
    """Return the version that a server says it is."""
    with server_of(kind) as server:
        info = server.info("server")
    return info.get(f"{kind.name}_version", info["redis_version"])


def script_us(server: Server) -> int:
    """Return the microseconds that a server spent in scripts so far."""
    spent = 0
    for name, stats in server.info("commandstats").items():
        if name.startswith("cmdstat_eval"):
            fields = dict(field.split("=") for field in stats.split(","))
            spent += int(fields["usec"])
    return spent


def busy_us(server: Server) -> float:
    """Return the microseconds that a server was busy so far, with all it does."""
    info = server.info("cpu")
    seconds = float(info["used_cpu_sys"]) + float(info["used_cpu_user"])
    return seconds * 1_000_000
