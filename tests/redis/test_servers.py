"""The servers and the proxy that other tests rely on do what they are said to do."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import closing
from typing import Any

import pytest
import redis.asyncio

from tests.redis.conftest import StartServer, check_that_keys_expire
from tests.redis.proxies import Mode, Proxy
from tests.redis.servers import (
    SLOTS,
    Cluster,
    Connection,
    Kind,
    ReplyError,
    Sentinel,
    Server,
    StartError,
    UnavailableError,
    ask_list,
    find_kind,
    free_port,
)

SHORTLY = 0.2


def set_forever(server: Server, key: str) -> None:
    """Write a key that never expires."""
    server.ask("SET", key, "1")


# --- servers


def test_each_kind_is_what_it_is_called(server: Server, server_kinds: Kind) -> None:
    """A server answers with its own name, in the process that was started."""
    told = server.info("server")

    assert str(server.pid) == told["process_id"]
    assert server_kinds.name == told.get("server_name", "redis")
    assert int(told.get("valkey_version", told["redis_version"]).split(".")[0]) >= 7


def test_nothing_is_saved(server: Server) -> None:
    """There is neither a schedule for snapshots nor a log of commands."""
    assert ["save", ""] == server.ask("CONFIG", "GET", "save")
    assert ["appendonly", "no"] == server.ask("CONFIG", "GET", "appendonly")
    assert ["bind", "127.0.0.1"] == server.ask("CONFIG", "GET", "bind")


def test_a_restart_loses_keys_and_keeps_the_port(start_server: StartServer) -> None:
    """After a restart or a kill another process serves the port, without the keys."""
    server = start_server()
    seen: list[tuple[int, int, object]] = []
    for end in (server.stop, server.kill):
        set_forever(server, "key")
        before = server.pid
        end()
        assert not server.running
        server.restart()
        seen.append((server.port, server.pid != before, server.ask("GET", "key")))

    assert [(server.port, True, None)] * 2 == seen


def test_a_stopped_server_refuses_connections(start_server: StartServer) -> None:
    """Nobody listens on the port of a server that has ended."""
    server = start_server()
    server.stop()
    server.stop()

    with pytest.raises(ConnectionRefusedError):
        server.ask("PING")


def test_a_frozen_server_is_silent_until_it_thaws(start_server: StartServer) -> None:
    """It accepts a connection and a command, and answers when it runs again."""
    server = start_server()
    server.freeze()
    connection = Connection(server.port, seconds=SHORTLY)
    with closing(connection), pytest.raises(TimeoutError):
        connection.ask("PING")
    server.thaw()

    assert "PONG" == server.ask("PING")


def test_a_frozen_server_can_be_stopped(start_server: StartServer) -> None:
    """A test may leave it frozen."""
    server = start_server()
    server.freeze()
    server.stop()

    assert not server.running


def test_options_configure_a_server(start_server: StartServer) -> None:
    """A server that may hold nothing refuses to, also after a restart."""
    server = start_server("maxmemory 1", "maxmemory-policy noeviction")
    with pytest.raises(ReplyError, match=r"^OOM"):
        set_forever(server, "key")
    server.restart()

    with pytest.raises(ReplyError, match=r"^OOM"):
        set_forever(server, "key")


def test_a_password_may_be_asked_for(start_server: StartServer) -> None:
    """A server that answers nobody without a password has started."""
    server = start_server("requirepass secret")

    with pytest.raises(ReplyError, match=r"^NOAUTH"):
        server.ask("PING")


def test_a_failed_start_shows_what_was_printed(start_server: StartServer) -> None:
    """The error is what the server says about an option that it does not know."""
    with pytest.raises(StartError, match="no-such-option"):
        start_server("no-such-option yes")


def test_another_port_is_tried_if_one_is_taken(
    server: Server, start_server: StartServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that finds its port taken is started on the next one."""
    free = free_port()
    ports = iter([server.port, server.port, free])
    monkeypatch.setattr("tests.redis.servers.free_port", lambda: next(ports))

    assert free == start_server().port


def test_a_server_that_is_missing_has_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is skipped says where the server could be had."""
    monkeypatch.setenv("PATH", "")

    with pytest.raises(UnavailableError, match="package redis-server"):
        find_kind("redis")


# --- keys


def test_each_test_finds_no_keys_and_scripts(server: Server, redis_url: str) -> None:
    """Whatever was in the server before is not there."""
    digest = str(server.ask("SCRIPT", "LOAD", "return 1"))
    set_forever(server, "key")
    server.flushall()

    assert server.url == redis_url
    assert 0 == server.ask("DBSIZE")
    assert [0] == server.ask("SCRIPT", "EXISTS", digest)


def test_a_key_for_ever_fails_a_test(
    server: Server, redis_url: str, request: pytest.FixtureRequest
) -> None:
    """A key that expires may be left in any database, others not."""
    with closing(Connection(server.port)) as connection:
        connection.ask("SET", "expires", "1", "PX", "60000")
        connection.ask("SELECT", "3")
        connection.ask("SET", "also expires", "1", "PX", "60000")
        check_that_keys_expire(server, request)
        connection.ask("SET", "stays \udcff", "1")

        assert ["stays \udcff"] == server.eternal_keys()
        with pytest.raises(AssertionError, match="never expire"):
            check_that_keys_expire(server, request)
        connection.ask("DEL", "stays \udcff")


@pytest.mark.leaves_keys
def test_a_marked_test_may_leave_keys(server: Server, redis_url: str) -> None:
    """The marker `leaves_keys` is for those that need a key for ever."""
    set_forever(server, "key")


# --- several servers


def test_a_cluster_serves_all_slots(cluster: Cluster, cluster_urls: list[str]) -> None:
    """Each of three nodes knows that they serve all slots, a third each."""
    told = [str(node.ask("CLUSTER", "INFO")).splitlines() for node in cluster.nodes]
    ranges = [ask_list(node.port, "CLUSTER", "SLOTS") for node in cluster.nodes]

    assert 3 == len({*cluster_urls}) == len(cluster.startup_nodes)
    assert all(f"cluster_slots_assigned:{SLOTS}" in lines for lines in told)
    assert all("cluster_size:3" in lines for lines in told)
    assert [3] * 3 == [len(served) for served in ranges]


def test_a_node_sends_clients_to_the_others(cluster: Cluster) -> None:
    """A key is written on one node, and the others say which."""
    said: list[str] = []
    for node in cluster.nodes:
        try:
            node.ask("SET", "key", "1", "PX", "60000")
        except ReplyError as error:
            said.append(str(error))

    # The slot of "key".
    assert 2 == len(said)
    [moved] = {*said}
    assert moved.startswith("MOVED 12539 127.0.0.1:")


def test_a_sentinel_replaces_a_lost_primary(sentinel: Sentinel) -> None:
    """The replica takes over with its keys, and the lost server can come back."""
    lost, heir = sentinel.primary, sentinel.replica
    with closing(Connection(lost.port)) as connection:
        connection.ask("SET", "key", "1", "PX", "60000")
        connection.ask("WAIT", "1", "0")  # Else it might not have been copied yet.
    sentinel.fail_over()

    assert heir is sentinel.primary
    assert "master" == heir.info("replication")["role"]
    assert "1" == heir.ask("GET", "key")

    sentinel.heal()

    assert lost is sentinel.replica
    assert "slave" == lost.info("replication")["role"]


# --- the proxy


@pytest.fixture(name="proxy")
async def proxy_fixture(server: Server, redis_url: str) -> AsyncIterator[Proxy]:
    """Give a proxy in front of the server that tests share."""
    async with Proxy(server.port) as proxy:
        yield proxy


class Client:
    """A connection to a proxy, whose commands wait in a thread of their own."""

    def __init__(self, proxy: Proxy, seconds: float = 5) -> None:
        self._connection = Connection(proxy.port, seconds)
        self.close = self._connection.close

    async def ask(self, *words: str) -> object:
        """Send a command; return the reply."""
        return await asyncio.to_thread(self._connection.ask, *words)


async def test_a_proxy_passes_commands_and_replies(proxy: Proxy) -> None:
    """It passes replies of every kind, and counts commands by name."""
    with closing(Client(proxy)) as client:
        replies = [
            await client.ask("set", "key", "\r\n", "PX", "60000"),
            await client.ask("GET", "key"),
            await client.ask("GET", "nothing"),
            await client.ask("EXISTS", "key"),
            await client.ask("MGET", "key", "nothing"),
        ]
        with pytest.raises(ReplyError, match=r"^ERR"):
            await client.ask("GET")

    assert ["OK", "\r\n", None, 1, ["\r\n", None]] == replies
    assert {"SET": 1, "GET": 3, "EXISTS": 1, "MGET": 1} == proxy.forwarded
    assert proxy.arrived == proxy.forwarded


async def test_a_reply_is_dropped_after_the_command(
    proxy: Proxy, server: Server
) -> None:
    """The server carries the command out, the client sees its connection end."""
    with closing(Client(proxy)) as client:
        assert "PONG" == await client.ask("PING")
        await proxy.switch(Mode.DROP_REPLY)
        with pytest.raises(ConnectionError):
            await client.ask("SET", "key", "1", "PX", "60000")

    assert "1" == server.ask("GET", "key")
    assert 1 == proxy.forwarded["SET"]


async def test_a_command_is_dropped_before_the_server(
    proxy: Proxy, server: Server
) -> None:
    """The server is not told, the client sees its connection end."""
    with closing(Client(proxy)) as client:
        await proxy.switch(Mode.DROP_BEFORE)
        with pytest.raises(ConnectionError):
            await client.ask("SET", "key", "1", "PX", "60000")

    assert None is server.ask("GET", "key")
    assert (1, 0) == (proxy.arrived["SET"], proxy.forwarded["SET"])


async def test_only_some_commands_are_meant(proxy: Proxy) -> None:
    """Those of another name pass, and all do after so many."""
    await proxy.switch(Mode.DROP_BEFORE, "INCR", "DECR", times=2)
    for name in ("INCR", "DECR"):
        with closing(Client(proxy)) as client:
            assert "PONG" == await client.ask("PING")
            with pytest.raises(ConnectionError):
                await client.ask(name, "key")
    with closing(Client(proxy)) as client:
        assert 1 == await client.ask("INCR", "key")
        assert 1 == await client.ask("DEL", "key")


async def test_a_stalled_command_is_never_answered(proxy: Proxy) -> None:
    """The client waits; when commands pass again, it has to connect again."""
    await proxy.switch(Mode.STALL)
    with closing(Client(proxy, SHORTLY)) as client, pytest.raises(TimeoutError):
        await client.ask("PING")
    with closing(Client(proxy)) as client:
        waiting = asyncio.create_task(client.ask("PING"))
        await proxy.arrival("PING", 2)
        await proxy.switch(Mode.PASS)
        with pytest.raises(ConnectionError):
            await waiting
    with closing(Client(proxy)) as client:
        assert "PONG" == await client.ask("PING")

    assert (3, 1) == (proxy.arrived["PING"], proxy.forwarded["PING"])


async def test_connections_are_refused(proxy: Proxy) -> None:
    """Those that there are end, and there are no others until commands pass again."""
    with closing(Client(proxy)) as client:
        assert "PONG" == await client.ask("PING")
        await proxy.switch(Mode.REFUSE)
        with pytest.raises(ConnectionError):
            await client.ask("PING")
    with pytest.raises(ConnectionRefusedError):
        Client(proxy)
    await proxy.switch(Mode.PASS)
    with closing(Client(proxy)) as client:
        assert "PONG" == await client.ask("PING")


@pytest.mark.parametrize(("forward", "left"), [(True, 2), (False, 0)])
async def test_a_reply_is_rewritten(
    proxy: Proxy, server: Server, *, forward: bool, left: int
) -> None:
    """So many replies to one command are others, whether or not it is carried out."""
    proxy.rewrite("EVAL", "-ERR no NOSCRIPT here", 2, forward=forward)
    script = ("EVAL", "return redis.call('INCR', KEYS[1])", "1", "key")
    with closing(Client(proxy)) as client:
        for _ in range(2):
            with pytest.raises(ReplyError, match=r"^ERR no NOSCRIPT here$"):
                await client.ask(*script)

        assert left + 1 == await client.ask(*script)
        assert 1 == await client.ask("DEL", "key")
    assert (3, left + 1) == (proxy.arrived["EVAL"], proxy.forwarded["EVAL"])


async def test_a_lost_server_ends_the_connections(start_server: StartServer) -> None:
    """A client of the proxy sees what it would see without."""
    server = start_server()
    async with Proxy(server.port) as proxy:
        with closing(Client(proxy)) as client:
            assert "PONG" == await client.ask("PING")
            server.kill()
            with pytest.raises(ConnectionError):
                await client.ask("PING")
        with closing(Client(proxy)) as client, pytest.raises(ConnectionError):
            await client.ask("PING")


async def test_a_proxy_can_be_left_at_any_time(start_server: StartServer) -> None:
    """Neither a client that waits nor a server that is frozen keeps it."""
    server = start_server()
    async with Proxy(server.port) as proxy:
        client = Client(proxy)
        server.freeze()
        waiting = asyncio.create_task(client.ask("PING"))
        await proxy.arrival("PING")
    with closing(client), pytest.raises(ConnectionError):
        await waiting


@pytest.mark.parametrize("protocol", [2, 3])
async def test_a_client_library_works_through_a_proxy(
    proxy: Proxy, protocol: int
) -> None:
    """Both versions of the protocol pass, with their pipelines and scripts."""
    library: Any = redis.asyncio  # Its annotations differ between versions.
    async with library.from_url(f"{proxy.url}?protocol={protocol}") as client:
        async with client.pipeline() as pipeline:
            pipeline.set("key", "1", px=60_000).hgetall("nothing").incr("key")
            assert [True, {}, 2] == await pipeline.execute()
        script = client.register_script("return {ARGV[1], 1}")
        assert [b"a", 1] == await script(args=["a"])

    assert 2 == proxy.forwarded["EVALSHA"]
    assert 1 == proxy.forwarded["EXEC"]
