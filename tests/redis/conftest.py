"""Servers for the tests of the Redis store. Each of these tests runs on every kind."""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Protocol, TypeAlias

import pytest
import uvloop

from tests.redis.servers import (
    KINDS,
    Cluster,
    Kind,
    Sentinel,
    Server,
    UnavailableError,
    find_kind,
)

LoopFactory: TypeAlias = Callable[[], asyncio.AbstractEventLoop]

_ON_ALL_LOOPS = {"test_courier", "test_lines"}


def pytest_asyncio_loop_factories(item: pytest.Item) -> Mapping[str, LoopFactory]:
    """Run what talks to a server by itself on the loop that uvicorn prefers, too."""
    loops: dict[str, LoopFactory] = {"asyncio": asyncio.new_event_loop}
    if item.path.stem in _ON_ALL_LOOPS:
        loops["uvloop"] = uvloop.new_event_loop
    return loops


class StartServer(Protocol):
    """Start a server that only one test uses."""

    def __call__(self, *options: str) -> Server:
        """Return a server with *options*, such as "maxmemory 2mb"."""
        ...


@pytest.fixture(name="server_kinds", scope="session", params=KINDS)
def server_kinds_fixture(request: pytest.FixtureRequest) -> Kind:
    """Give each kind of server in turn; skip those that are not on this machine."""
    try:
        return find_kind(request.param)
    except UnavailableError as error:
        pytest.skip(str(error))


@pytest.fixture(name="directory", scope="session")
def directory_fixture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give a directory for those of the servers."""
    return tmp_path_factory.mktemp("servers")


@pytest.fixture(name="server", scope="session")
def server_fixture(server_kinds: Kind, directory: Path) -> Iterator[Server]:
    """Give the server that tests share; its keys are not touched, see `redis_url`."""
    with Server(server_kinds, directory) as server:
        yield server


@pytest.fixture(name="cluster", scope="session")
def cluster_fixture(server_kinds: Kind, directory: Path) -> Iterator[Cluster]:
    """Give the cluster that tests share; its keys are not touched."""
    with Cluster(server_kinds, directory) as cluster:
        yield cluster


@pytest.fixture(name="sentinel", scope="module")
def sentinel_fixture(server_kinds: Kind, directory: Path) -> Iterator[Sentinel]:
    """Give a primary, its replica and their sentinel, for the tests of a module."""
    with Sentinel(server_kinds, directory) as sentinel:
        yield sentinel


@pytest.fixture(name="start_server")
def start_server_fixture(server_kinds: Kind, directory: Path) -> Iterator[StartServer]:
    """Give a way to start servers that a test may kill, freeze and configure."""
    with ExitStack() as stack:
        yield lambda *options: stack.enter_context(
            Server(server_kinds, directory, *options)
        )


@pytest.fixture(name="redis_url")
def redis_url_fixture(server: Server, request: pytest.FixtureRequest) -> Iterator[str]:
    """Give the URL of a server without keys; afterwards, all that it has expire."""
    server.flushall()
    yield server.url
    check_that_keys_expire(server, request)


@pytest.fixture(name="cluster_urls")
def cluster_urls_fixture(
    cluster: Cluster, request: pytest.FixtureRequest
) -> Iterator[list[str]]:
    """Give the URLs of a cluster without keys; afterwards, all that it has expire."""
    cluster.flushall()
    yield cluster.urls
    check_that_keys_expire(cluster, request)


def check_that_keys_expire(
    keeper: Server | Cluster, request: pytest.FixtureRequest
) -> None:
    """Fail if a test left keys for ever, except those that are marked so."""
    if request.node.get_closest_marker("leaves_keys") is None:
        assert [] == keeper.eternal_keys(), "the test left keys that never expire"
