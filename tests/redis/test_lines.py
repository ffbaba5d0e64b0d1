"""A connection that says something else than was asked, and a cluster that hangs."""

import asyncio
import socket
import struct
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest
from redis.asyncio import Redis, RedisCluster
from redis.credentials import CredentialProvider

from tests.redis.conftest import StartServer
from tests.redis.proxies import Proxy
from tests.redis.servers import HOST, Cluster, Server
from tests.redis.stores import PATIENT_S, ask, client_of
from throttled_views import Quota, StoreUnavailableError
from throttled_views.stores.redis import RedisStore

TEN = Quota.per_day(10)
SHORT_S = 0.2

LONG_US = 0x7F7F7F7F7F  # since the bucket was empty; all its bytes are ASCII
PUSH = ">2\r\n+invalidate\r\n*1\r\n$1\r\na\r\n"
ADMITTED = "$32\r\n" + struct.pack("<4q", 1, 1, LONG_US, 0).decode("ascii")


class Forgetful(CredentialProvider):
    """What makes a mistake when it is asked for a password."""

    def get_credentials(self) -> tuple[str]:
        """Make a mistake."""
        raise ZeroDivisionError


async def fail() -> None:
    """Make a mistake."""
    raise ZeroDivisionError


@pytest.fixture(name="proxy")
async def proxy_fixture(server: Server, redis_url: str) -> AsyncIterator[Proxy]:
    """Give a proxy in front of the server that tests share."""
    assert redis_url  # without keys
    async with Proxy(server.port) as proxy:
        yield proxy


@pytest.mark.parametrize("pushes", [1, 3])
async def test_what_the_server_says_unasked_is_no_reply(
    proxy: Proxy, pushes: int
) -> None:
    """The reply comes after it."""
    store = RedisStore(proxy.url, timeout=PATIENT_S)
    await ask(store, "alice", TEN)
    proxy.rewrite("EVALSHA", PUSH * pushes + ADMITTED)

    assert not (await ask(store, "alice", TEN)).limited
    await store.aclose()


STRANGE: dict[str, str] = {
    "another protocol": "HTTP/1.1 400 Bad Request",
    "text": "+OK",
    "number": ":1",
    "nothing": "$-1",
    "empty string": "$0\r\n",
    "too few numbers": "$8\r\n" + "\0" * 8,
    "no whole number": "$9\r\n" + "\0" * 9,
    "array": "*1\r\n:1",
    "arrays without end": "*1\r\n" * 2_000 + ":1",
}


@pytest.mark.parametrize("reply", STRANGE.values(), ids=STRANGE)
async def test_a_strange_reply_is_an_outage_of_one_call(
    proxy: Proxy, reply: str
) -> None:
    """Who waits is told, and the next call is answered, on another connection."""
    store = RedisStore(proxy.url, timeout=PATIENT_S)
    await ask(store, "alice", TEN)
    proxy.rewrite("EVALSHA", reply)
    with pytest.raises(StoreUnavailableError, match="server answers"):
        await ask(store, "alice", TEN)

    assert 7 == (await ask(store, "alice", TEN)).state.remaining
    await store.aclose()


async def test_a_second_reply_is_nobodys(proxy: Proxy) -> None:
    """The connection that it came on is not used again."""
    store = RedisStore(proxy.url, timeout=PATIENT_S)
    await ask(store, "alice", TEN)
    proxy.rewrite("EVALSHA", f"{ADMITTED}\r\n{ADMITTED}")
    await ask(store, "alice", TEN)

    assert 7 == (await ask(store, "alice", TEN)).state.remaining
    await store.aclose()


async def test_a_mistake_before_a_connection_stands_is_told_as_it_is(
    server: Server,
) -> None:
    """It is no outage."""
    client = Redis(port=server.port, credential_provider=Forgetful())
    store = RedisStore(client, timeout=PATIENT_S)
    with pytest.raises(ZeroDivisionError):
        await ask(store, "alice", TEN)
    await store.aclose()
    await client.aclose()


async def test_a_connection_that_cannot_be_made_is_a_mistake(redis_url: str) -> None:
    """It is told as it is: to wait for the deadline would not tell of it."""
    client = client_of(redis_url, nonsense=1)
    store = RedisStore(client, timeout=PATIENT_S)
    with pytest.raises(TypeError, match="nonsense"):
        await ask(store, "alice", TEN)
    await store.aclose()
    await client.aclose()


async def test_a_mistake_of_a_clusters_client_is_told_as_it_is(
    cluster_urls: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is no outage."""
    client = RedisCluster.from_url(cluster_urls[0])
    monkeypatch.setattr(client, "initialize", fail)
    store = RedisStore(client, timeout=PATIENT_S)
    with pytest.raises(ZeroDivisionError):
        await ask(store, "alice", TEN)
    await store.aclose()


async def test_many_checks_at_a_silent_server_are_given_up_together(
    start_server: StartServer,
) -> None:
    """Those that no connection was free for were not sent, nor charged."""
    server = start_server()
    store = RedisStore(server.url, timeout=SHORT_S)
    await asyncio.gather(*(ask(store, f"first {n}", TEN) for n in range(64)))
    server.freeze()
    failed = await asyncio.gather(
        *(ask(store, f"client {n}", TEN) for n in range(320)), return_exceptions=True
    )
    server.thaw()
    said = {str(each) for each in failed}

    assert {StoreUnavailableError} == {type(each) for each in failed}
    assert {
        "The deadline passed without an answer",
        "No connection was free in time",
    } == said
    # Two connections held 32 each; the rest never left.
    left = [
        10 - (await ask(store, f"client {n}", TEN)).state.remaining
        for n in range(64, 320)
    ]
    assert [1] * 256 == left
    await store.aclose()


async def test_a_silent_node_holds_nobody_longer_than_the_deadline(
    cluster: Cluster, cluster_urls: list[str]
) -> None:
    """Its keys are given up in time, and charged once it answers again."""
    client = RedisCluster.from_url(cluster_urls[0])
    keys = [f"client {n}" for n in range(60)]
    patient = RedisStore(client, timeout=PATIENT_S)
    await asyncio.gather(*(ask(patient, key, TEN) for key in keys))
    store = RedisStore(client, timeout=SHORT_S)
    cluster.nodes[0].freeze()
    try:
        async with asyncio.timeout(PATIENT_S):
            answers = await asyncio.gather(
                *(ask(store, key, TEN) for key in keys), return_exceptions=True
            )
    finally:
        cluster.nodes[0].thaw()
    failed = [each for each in answers if isinstance(each, StoreUnavailableError)]

    assert 0 < len(failed) < len(keys)
    assert {"The deadline passed without an answer"} == {str(each) for each in failed}
    await patient.aclose()
    await store.aclose()
    await client.aclose()


@asynccontextmanager
async def telling(*parts: bytes) -> AsyncGenerator[str, None]:
    """Give the URL of a server that answers a script in *parts*, then hangs up."""
    has_ended = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while b"EVALSHA" not in await reader.read(65_536):
            writer.write(b"+OK\r\n" * 2)  # to what a client says of itself
        for part in parts:
            writer.write(part)
            await writer.drain()
            await asyncio.sleep(0.001)  # so that it is read on its own
        linger = struct.pack("ii", 1, 0)
        connected = writer.get_extra_info("socket")
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        writer.transport.abort()  # at once, and without a word
        with suppress(OSError):
            await writer.wait_closed()
        has_ended.set()

    listener = await asyncio.start_server(serve, HOST, 0)
    async with listener:
        port = listener.sockets[0].getsockname()[1]
        yield f"redis://{HOST}:{port}/?protocol=2"
        await has_ended.wait()


async def test_a_reply_may_come_in_parts() -> None:
    """It is read when it is whole."""
    reply = ADMITTED.encode() + b"\r\n"
    async with telling(*(reply[at : at + 7] for at in range(0, len(reply), 7))) as url:
        store = RedisStore(url, timeout=PATIENT_S)
        assert not (await ask(store, "alice", TEN)).limited
        await store.aclose()


@pytest.mark.parametrize("parts", [[], [b"$32\r\nno"]], ids=["nothing", "a part"])
async def test_a_connection_may_be_reset(parts: list[bytes]) -> None:
    """Who waits is told what the network says."""
    async with telling(*parts) as url:
        store = RedisStore(url, timeout=PATIENT_S)
        with pytest.raises(StoreUnavailableError, match="reset"):
            await ask(store, "alice", TEN)
        await store.aclose()
