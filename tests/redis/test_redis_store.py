"""The Redis store: how it is made, what it shares, and what it survives."""

import asyncio
import gc
import importlib
import sys
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import pytest
import redis
from redis.asyncio import Redis

from tests.clock import ManualClock
from tests.redis.conftest import StartServer
from tests.redis.proxies import Mode, Proxy
from tests.redis.servers import HOST, PATIENCE_SECONDS, Server, ask_list
from tests.redis.stores import (
    PATIENT_S,
    ask,
    asked_until_up,
    client_of,
    remaining,
    scripts_run,
    until,
)
from throttled_views import (
    Algorithm,
    Charge,
    ConfigurationError,
    Quota,
    RateLimitResult,
    Store,
    StoreUnavailableError,
)
from throttled_views.stores.redis import RedisStore

TWO = Quota.per_minute(2)
THREE = Quota.per_minute(3)


@pytest.fixture(name="store")
async def store_fixture(redis_url: str) -> AsyncIterator[RedisStore]:
    """Give a store without keys that goes by the clock of the server."""
    store = RedisStore(redis_url, timeout=PATIENT_S)
    yield store
    await store.aclose()


async def three_of_two(store: Store) -> list[bool]:
    """Ask three times for what is there twice; return what is refused."""
    return [(await ask(store, "alice", TWO)).limited for _ in range(3)]


# --- how it is made


async def test_a_url_is_enough(redis_url: str) -> None:
    """A store of a URL opens what it needs, and closes it."""
    store = RedisStore(redis_url, timeout=PATIENT_S)

    assert [False, False, True] == await three_of_two(store)
    await store.aclose()


async def test_a_socket_file_is_a_url(
    start_server: StartServer, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """A server may be on the same machine, without a port."""
    path = Path(tmp_path_factory.mktemp("s")) / "s"
    start_server(f'unixsocket "{path}"')
    store = RedisStore(f"unix://{path}", timeout=PATIENT_S)

    assert [False, False, True] == await three_of_two(store)
    await store.aclose()


async def test_a_function_makes_clients(redis_url: str, server: Server) -> None:
    """What it made is closed with the store, and it is asked again after that."""
    made: list[Redis] = []

    def make() -> Redis:
        made.append(client_of(redis_url))
        return made[-1]

    store = RedisStore(make, timeout=PATIENT_S)
    assert [False, False, True] == await three_of_two(store)
    await store.aclose()
    assert 0 == await remaining(store, "alice", TWO)
    await store.aclose()

    assert 2 == len(made)


@pytest.mark.parametrize("protocol", [2, 3])
@pytest.mark.parametrize("decodes", [True, False])
async def test_a_client_of_any_kind_is_used(
    redis_url: str, *, decodes: bool, protocol: int
) -> None:
    """Whatever a client does with replies, the answers are the same (case 94)."""
    client = client_of(redis_url, decode_responses=decodes, protocol=protocol)
    store = RedisStore(client, timeout=PATIENT_S)
    refused = await three_of_two(store)
    [peeked] = await store.peek([Charge("alice", TWO)])
    [admitted] = await store.acquire([Charge("bob", TWO)])
    await store.refund(admitted.receipts)
    await store.reset(["alice"])

    assert [False, False, True] == refused
    assert (True, 0) == (peeked.limited, peeked.state.remaining)
    assert 2 == await remaining(store, "alice", TWO)
    await store.aclose()
    assert 0 == await client.exists("alice")  # it is not ours to close
    await client.aclose()


async def test_many_charges_are_given_back_together(redis_url: str) -> None:
    """The server has room for as many as it is given."""
    store = RedisStore(redis_url, timeout=PATIENT_S)
    charges = [Charge(f"client {n}", TWO) for n in range(1_500)]
    results = await store.acquire(charges)
    await store.refund([each for result in results for each in result.receipts])
    left = {each.state.remaining for each in await store.peek(charges)}
    await store.aclose()

    assert {2} == left


async def test_a_client_keeps_its_pool(redis_url: str) -> None:
    """The store takes no connection of a pool that has only one."""
    client = client_of(redis_url, max_connections=1)
    store = RedisStore(client, timeout=PATIENT_S)
    async with client.pipeline() as pipeline:
        await pipeline.watch("key")

        assert [False, False, True] == await three_of_two(store)
    await store.aclose()
    await client.aclose()


BAD: dict[str, tuple[Callable[[], RedisStore], str]] = {
    "no scheme": (
        lambda: RedisStore("localhost"),
        r"'localhost' is no URL: .*redis://",
    ),
    "another scheme": (lambda: RedisStore("http://localhost"), "is no URL"),
    "nothing": (lambda: RedisStore(None), "NoneType is no client"),  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    "a class": (lambda: RedisStore(Redis), "is no client of redis.asyncio"),
    "no time": (
        lambda: RedisStore("redis://h", timeout=0),
        "timeout=0 is no number above 0",
    ),
    "less": (
        lambda: RedisStore("redis://h", timeout=-1),
        "Write seconds, such as 0.25",
    ),
    "a text for a time": (
        lambda: RedisStore("redis://h", timeout=cast("float", "1")),
        "timeout='1' is no number above 0",
    ),
    "a truth for a time": (
        lambda: RedisStore("redis://h", timeout=True),
        "timeout=True is no number above 0",
    ),
    "no clock": (
        lambda: RedisStore("redis://h", clock=cast("Callable[[], int]", 1)),
        "clock=1 is no clock",
    ),
    "an option that nobody knows": (
        lambda: RedisStore("redis://h?nosuch=1"),
        "is no URL: .*nosuch",
    ),
    "a protocol that is none": (
        lambda: RedisStore("redis://h?protocol=7"),
        "is no URL: protocol must be",
    ),
    "a password": (
        lambda: RedisStore("redis://user:secret@h?nosuch=1"),
        "^'redis://…@h.nosuch=1' is no URL",
    ),
    "a password among the options": (
        lambda: RedisStore("redis://h?password=secret&nosuch=1"),
        "^'redis://h.password=…&nosuch=1' is no URL",
    ),
    "no number": (lambda: RedisStore("redis://h", timeout=float("nan")), "timeout=nan"),
}


@pytest.mark.parametrize(("make", "said"), BAD.values(), ids=BAD)
def test_what_is_no_store_is_refused(make: Callable[[], RedisStore], said: str) -> None:
    """A wrong argument fails at once, and the message says what to write."""
    with pytest.raises(ConfigurationError, match=said):
        make()


async def coroutine() -> None:
    """Make nothing, later."""


MADE: dict[str, Callable[[], object]] = {
    "sync": lambda: redis.Redis(port=1),
    "nothing": lambda: None,
    "later": coroutine,
}


@pytest.mark.parametrize("make", MADE.values(), ids=MADE)
async def test_a_function_that_makes_no_client_is_a_mistake(
    make: Callable[[], Any],
) -> None:
    """It is told as what it is, and not taken for an outage."""
    with pytest.raises(ConfigurationError, match=r"from redis\.asyncio import Redis"):
        await ask(RedisStore(make), "alice", TWO)


def test_without_redis_py_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who did not install the extra is told how to."""
    monkeypatch.delitem(sys.modules, "throttled_views.stores.redis")
    monkeypatch.setitem(sys.modules, "redis.asyncio", None)

    with pytest.raises(ModuleNotFoundError, match=r"throttled_views\[redis\]"):
        importlib.import_module("throttled_views.stores.redis")


async def test_nothing_is_asked_for_nothing() -> None:
    """Calls without keys are answered without a server."""
    store = RedisStore("redis://127.0.0.1:1")

    assert [] == list(await store.acquire([]))
    assert [] == list(await store.peek([]))
    await store.refund([])
    await store.reset([])
    await store.aclose()


async def test_no_server_is_an_error_that_can_be_caught() -> None:
    """A store without a server raises one kind of error, whatever is asked."""
    store = RedisStore("redis://127.0.0.1:1", timeout=PATIENT_S)
    charge = Charge("alice", TWO)
    calls = (
        lambda: store.acquire([charge]),
        lambda: store.peek([charge]),
        lambda: store.reset(["alice"]),
    )
    for call in calls:
        with pytest.raises(StoreUnavailableError, match=r"127\.0\.0\.1:1"):
            await call()
    await store.aclose()


# --- loops


def test_each_loop_may_use_it(redis_url: str) -> None:
    """Loops one after the other share the counts of a store, each closes its part."""
    store = RedisStore(redis_url, timeout=PATIENT_S)
    seen: list[bool] = []

    async def use() -> None:
        seen.append((await ask(store, "alice", TWO)).limited)
        await store.aclose()

    for _ in range(3):
        asyncio.run(use())

    assert [False, False, True] == seen


def test_loops_may_use_it_at_once(redis_url: str) -> None:
    """Four threads with a loop each get exactly what one would get."""
    store = RedisStore(redis_url, timeout=PATIENT_S)
    admitted: list[int] = []

    async def use() -> None:
        asked = [ask(store, "alice", Quota.per_day(100)) for _ in range(50)]
        results = await asyncio.gather(*asked)
        admitted.append(sum(not each.limited for each in results))
        await store.aclose()

    threads = [threading.Thread(target=asyncio.run, args=(use(),)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert (4, 100) == (len(admitted), sum(admitted))


def test_a_loop_that_is_gone_is_forgotten(redis_url: str) -> None:
    """What a loop left open when it ended is not kept for the next one."""
    store = RedisStore(redis_url, timeout=PATIENT_S)

    async def use() -> int:
        left = await remaining(store, "alice", TWO)
        await store.aclose()
        return left

    asyncio.run(three_of_two(store))

    def use_it_again() -> int:
        left = asyncio.run(use())
        gc.collect()
        return left

    with pytest.warns(ResourceWarning):  # of asyncio and redis-py: it was left open
        left = use_it_again()

    assert 0 == left


def test_a_loop_that_another_thread_forgot_harms_nobody(redis_url: str) -> None:
    """Two threads that begin at once both see that a loop has ended."""
    store = RedisStore(redis_url, timeout=PATIENT_S)
    homes: dict[Any, Any] = store._homes  # pyright: ignore[reportPrivateUsage]
    homes[ForgottenLoop(homes)] = None

    async def use() -> list[bool]:
        refused = await three_of_two(store)
        await store.aclose()
        return refused

    assert [False, False, True] == asyncio.run(use())
    assert {} == homes


class ForgottenLoop:
    """A loop that has ended, and that another thread forgets while it is looked at."""

    def __init__(self, homes: dict[Any, Any]) -> None:
        self._homes = homes

    def is_closed(self) -> bool:
        """Be forgotten, and say that it has ended."""
        del self._homes[self]
        return True


def test_a_loop_without_a_server_leaves_nothing(start_server: StartServer) -> None:
    """The next loop finds the server, whatever became of the last one."""
    server = start_server()
    store = RedisStore(server.url, timeout=PATIENT_S)
    server.stop()
    with pytest.raises(StoreUnavailableError):
        asyncio.run(three_of_two(store))
    server.restart()

    async def use() -> list[bool]:
        refused = await three_of_two(store)
        await store.aclose()
        return refused

    assert [False, False, True] == asyncio.run(use())
    assert not store._homes  # pyright: ignore[reportPrivateUsage]


async def test_a_closed_store_opens_again(store: RedisStore, server: Server) -> None:
    """It may be closed twice, or before it was used, and used after that."""
    await store.aclose()
    assert not (await ask(store, "alice", TWO)).limited
    await store.aclose()
    await store.aclose()

    assert [False, True, True] == await three_of_two(store)


# --- what it survives


async def test_scripts_may_be_forgotten(store: RedisStore, server: Server) -> None:
    """A flush of the scripts costs one reload, no error and no charge (case 80)."""
    await ask(store, "alice", THREE)
    server.ask("SCRIPT", "FLUSH")
    server.ask("CONFIG", "RESETSTAT")
    results = await asyncio.gather(*(ask(store, "alice", THREE) for _ in range(100)))

    assert 2 == sum(not each.limited for each in results)
    assert scripts_run(server) <= 2 * 4 + 2  # four batches, and two reloads at most


async def test_a_server_may_be_restarted(start_server: StartServer) -> None:
    """After a restart it is used again, with neither keys nor scripts (case 80)."""
    server = start_server()
    store = RedisStore(server.url, timeout=PATIENT_S)
    await three_of_two(store)
    server.restart()
    # Somebody else's key: that alice is refused is known without the server.
    [first, *_] = [await asked_until_up(store, Charge("bob", TWO)) for _ in range(2)]
    await store.reset(["alice"])

    assert not first.limited
    assert [False, False, True] == await three_of_two(store)
    await store.aclose()


@pytest.fixture(name="proxy")
async def proxy_fixture(server: Server, redis_url: str) -> AsyncIterator[Proxy]:
    """Give a proxy in front of the server that tests share."""
    async with Proxy(server.port) as proxy:
        yield proxy


@pytest.mark.parametrize(
    "text", ["-NOSCRIPT No matching script", "-ERR NOSCRIPT it is"]
)
async def test_a_script_that_is_unknown_is_sent(proxy: Proxy, text: str) -> None:
    """However a server says so, it gets the text, and the charge is made once."""
    store = RedisStore(proxy.url, timeout=PATIENT_S)
    await ask(store, "bob", THREE)
    proxy.rewrite("EVALSHA", text, forward=False)

    assert 2 == (await ask(store, "alice", THREE)).state.remaining
    await store.aclose()


async def test_a_script_that_stays_unknown_is_an_error(proxy: Proxy) -> None:
    """After one reload it is given up."""
    store = RedisStore(proxy.url, timeout=PATIENT_S)
    proxy.rewrite("EVALSHA", "-NOSCRIPT No", 9, forward=False)
    proxy.rewrite("EVAL", "-NOSCRIPT No", 9, forward=False)
    with pytest.raises(StoreUnavailableError, match="No"):
        await ask(store, "alice", THREE)

    assert (1, 1) == (proxy.arrived["EVALSHA"], proxy.arrived["EVAL"])
    await store.aclose()


async def test_a_server_that_became_a_replica_is_left(proxy: Proxy) -> None:
    """It may not be written to; the next check connects anew."""
    store = RedisStore(proxy.url, timeout=PATIENT_S)
    await ask(store, "bob", THREE)
    proxy.rewrite("EVALSHA", "-READONLY You can't write against a replica.", 1)
    connected = proxy.arrived["CLIENT"] + proxy.arrived["HELLO"]
    with pytest.raises(StoreUnavailableError, match="replica"):
        await ask(store, "alice", THREE)
    await ask(store, "bob", THREE)

    assert proxy.arrived["CLIENT"] + proxy.arrived["HELLO"] > connected
    await store.aclose()


async def test_an_error_of_a_server_does_not_end_a_connection(proxy: Proxy) -> None:
    """The next check takes the same connection."""
    store = RedisStore(proxy.url, timeout=PATIENT_S)
    await ask(store, "bob", THREE)
    proxy.rewrite("EVALSHA", "-LOADING Redis is loading the dataset", 1, forward=False)
    with pytest.raises(StoreUnavailableError, match="loading"):
        await ask(store, "alice", THREE)

    assert 2 == (await ask(store, "alice", THREE)).state.remaining
    await store.aclose()


FOREIGN: dict[str, Sequence[str]] = {
    "text": ("SET", "alice", "junk"),
    "nothing": ("SET", "alice", ""),
    "number": ("SET", "alice", "123456"),
    "as long as a bucket": ("SET", "alice", "x" * 41),
    "as long as a fixed window": ("SET", "alice", "x" * 25),
    "as long as a sliding window or log": ("SET", "alice", "x" * 33),
    "begins as a log": ("SET", "alice", "l" * 40),
    "begins as all others": ("SET", "alice", "b"),
    "large": ("SET", "alice", "l" + "x" * 99_999),
    "hash": ("HSET", "alice", "field", "1"),
    "list": ("RPUSH", "alice", "1"),
    "set": ("SADD", "alice", "1"),
}


@pytest.mark.parametrize("using", Algorithm)
@pytest.mark.parametrize("command", FOREIGN.values(), ids=FOREIGN)
async def test_what_is_not_ours_is_replaced(
    store: RedisStore, server: Server, command: Sequence[str], using: Algorithm
) -> None:
    """A key that holds something else is as good as new, and nobody else notices."""
    server.ask(*command)
    keys = ("alice", "bob", "carol")
    charges = [Charge(key, TWO, using) for key in keys]
    looks = [result for each in charges for result in await store.peek([each])]
    calls = [await asyncio.gather(*(store.acquire([each]) for each in charges))]
    calls += [await asyncio.gather(*(store.acquire([each]) for each in charges))]
    calls += [await asyncio.gather(*(store.acquire([each]) for each in charges))]

    assert [2] * 3 == [each.state.remaining for each in looks]
    assert [[False] * 3, [False] * 3, [True] * 3] == [
        [result.limited for [result] in results] for results in calls
    ]


@pytest.mark.parametrize("command", FOREIGN.values(), ids=FOREIGN)
async def test_nothing_is_given_back_to_what_is_not_ours(
    store: RedisStore, server: Server, command: Sequence[str]
) -> None:
    """A refund to a key that holds something else leaves it alone or forgets it."""
    result = await ask(store, "alice", TWO)
    server.ask("DEL", "alice")
    server.ask(*command)
    server.ask("PEXPIRE", "alice", "60000")
    with suppress(StoreUnavailableError):  # of another type
        await store.refund(result.receipts)

    assert 2 == await remaining(store, "alice", TWO)


@pytest.mark.parametrize("using", Algorithm)
async def test_a_key_for_ever_is_healed(
    store: RedisStore, server: Server, using: Algorithm
) -> None:
    """A key whose expiry was taken away is used again, and gets one (case 83)."""
    charge = Charge("alice", Quota(2, timedelta(milliseconds=200)), using, cost=2)
    await store.acquire([charge])
    server.ask("PERSIST", "alice")
    assert "-1" == str(server.ask("PTTL", "alice"))

    async def is_admitted() -> bool:
        [result] = await store.acquire([charge])
        return not result.limited

    await until(is_admitted)

    assert -1 != server.ask("PTTL", "alice")


async def test_a_server_that_is_full_is_unavailable(start_server: StartServer) -> None:
    """What cannot be stored is not admitted, and leaves nothing behind (case 92)."""
    server = start_server("maxmemory-policy noeviction")
    store = RedisStore(server.url, timeout=PATIENT_S)
    both = [Charge("alice", TWO), Charge("bob", THREE)]
    logged = [Charge("dave", TWO, Algorithm.SLIDING_LOG), Charge("eve", THREE)]
    await ask(store, "carol", TWO, cost=2)
    await store.acquire(both)
    server.ask("CONFIG", "SET", "maxmemory", "1")
    refused, *errors = await asyncio.gather(
        ask(store, "carol", TWO),
        store.acquire(both),
        store.acquire(logged),
        return_exceptions=True,
    )
    server.ask("CONFIG", "SET", "maxmemory", "0")

    assert isinstance(refused, RateLimitResult)
    assert refused.limited
    assert [StoreUnavailableError] * 2 == [type(each) for each in errors]
    assert "OOM" in str(errors[0])
    assert 1 == await remaining(store, "alice", TWO)
    assert 2 == await remaining(store, "bob", THREE)
    assert 3 == await remaining(store, "eve", THREE)
    assert [False, False] == [each.limited for each in await store.acquire(both)]
    assert [False, False] == [each.limited for each in await store.acquire(logged)]
    await store.aclose()


# --- what it costs the server


@pytest.mark.parametrize("using", [each for each in Algorithm if "log" not in each])
async def test_a_key_is_small(
    store: RedisStore, server: Server, using: Algorithm
) -> None:
    """What is kept does not grow with what is counted, nor with refusals (case 91)."""
    quota = Quota.per_day(70_000)
    for _ in range(70):
        await store.acquire([Charge("alice", quota, using, 1_000)])
    size = int(str(server.ask("MEMORY", "USAGE", "alice")))
    for cost in range(1, 200):
        await store.acquire([Charge("alice", quota, using, 70_000 - cost)])

    assert size < 300
    assert size == server.ask("MEMORY", "USAGE", "alice")


async def test_a_log_keeps_hits(redis_url: str, server: Server) -> None:
    """A sliding log keeps 16 bytes for a hit, and none for what is refused."""
    clock = ManualClock()
    store = RedisStore(redis_url, timeout=PATIENT_S, clock=clock)
    charge = Charge("alice", Quota.per_day(100), Algorithm.SLIDING_LOG)
    sizes: list[object] = []
    for _ in range(110):
        clock.advance(1)
        await store.acquire([charge])
        sizes.append(server.ask("STRLEN", "alice"))

    assert [17 + 16 * hits for hits in range(1, 101)] + [1_617] * 10 == sizes
    await store.aclose()


@pytest.mark.parametrize("using", Algorithm)
async def test_keys_expire_when_they_are_whole(
    store: RedisStore, server: Server, using: Algorithm
) -> None:
    """A key lives as long as it says something, and not a second longer."""
    for period_s in (2.5, 60.0, 2_592_000.0):
        key = f"alice {period_s}"
        charge = Charge(key, Quota(7, timedelta(seconds=period_s)), using, 3)
        [result] = await store.acquire([charge])
        left_s = int(str(server.ask("PTTL", key))) / 1_000

        assert 0 < left_s <= result.state.reset_after + 1
        # It was read a moment later.
        assert left_s > result.state.reset_after - 1.5


@pytest.mark.parametrize("options", ["", "?max_connections=5"])
async def test_a_thousand_at_once_are_answered(redis_url: str, options: str) -> None:
    """However small the pool of a client is, nobody is turned away (case 89)."""
    store = RedisStore(redis_url + options, timeout=PATIENT_S)
    asked = [ask(store, f"client {number}", TWO) for number in range(1_000)]
    results = await asyncio.gather(*asked)

    assert [False] * 1_000 == [each.limited for each in results]
    await store.aclose()


async def test_a_store_goes_by_the_clock_of_the_server(
    store: RedisStore, server: Server
) -> None:
    """The time of a charge is the server's."""
    before_us = time_of(server)
    result = await ask(store, "alice", TWO)
    after_us = time_of(server)

    assert before_us <= result.receipts[0].at_us <= after_us


def time_of(server: Server) -> int:
    """Return the time of a server in microseconds."""
    seconds, microseconds = ask_list(server.port, "TIME")
    return int(str(seconds)) * 1_000_000 + int(str(microseconds))


async def test_a_key_may_be_held_to_two_quotas(store: RedisStore) -> None:
    """The second one counts what the first one left; if it refuses, none is charged."""
    both = [Charge("alice", Quota.per_day(10)), Charge("alice", Quota.per_day(5))]
    admitted = await store.acquire([*both, Charge("bob", TWO)])
    refused = await store.acquire([both[0], Charge("alice", Quota.per_day(5), cost=5)])

    assert [9, 4, 1] == [each.state.remaining for each in admitted]
    assert [False, True] == [each.limited for each in refused]
    assert [()] * 2 == [each.receipts for each in refused]
    assert 4 == await remaining(store, "alice", Quota.per_day(5))


async def test_a_connection_that_was_closed_while_idle_is_replaced(
    store: RedisStore, server: Server
) -> None:
    """What the server closed in a quiet time costs nobody an error."""
    await ask(store, "alice", THREE)
    await ask(store, "alice", THREE)
    server.ask("CLIENT", "KILL", "TYPE", "normal")
    async with asyncio.timeout(PATIENCE_SECONDS):
        # The loop hears of it, as it does in a quiet time.
        _, writer = await asyncio.open_connection(HOST, server.port)
        writer.close()
        await writer.wait_closed()

    assert 0 == (await ask(store, "alice", THREE)).state.remaining


async def test_stalled_proxies_are_told_apart(proxy: Proxy) -> None:
    """A server that refuses connections, and one that is silent, are unavailable."""
    store = RedisStore(proxy.url, timeout=0.1)
    for mode in (Mode.REFUSE, Mode.STALL):
        await proxy.switch(mode)
        with pytest.raises(StoreUnavailableError):
            await ask(store, "alice", THREE)
    await proxy.switch(Mode.PASS)

    assert not (await asked_until_up(store, Charge("alice", THREE))).limited
    await store.aclose()
