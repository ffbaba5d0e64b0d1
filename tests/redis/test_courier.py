"""Checks travel together, and nobody who gives up or fails takes others along."""

import asyncio
import gc
import random
import time
import weakref
from collections.abc import AsyncIterator
from contextlib import suppress
from contextvars import ContextVar, copy_context
from datetime import timedelta

import pytest
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from tests.redis.conftest import StartServer
from tests.redis.proxies import Mode, Proxy
from tests.redis.servers import Server, wait_until
from tests.redis.stores import (
    PATIENT_S,
    ask,
    asked_until_up,
    client_of,
    connections,
    remaining,
    scripts_run,
    settled,
    until,
)
from throttled_views import Charge, Quota, RateLimitResult, StoreUnavailableError
from throttled_views.algorithms.kernels import kernel_of
from throttled_views.stores.courier import Call
from throttled_views.stores.redis import RedisStore

MANY = Quota(1_000_000, timedelta(days=36_525))  # nothing comes back meanwhile
TEN = Quota.per_day(10)
SHORT_S = 0.2
SOON_S = 1.0  # a check that is given up after SHORT_S has ended by then


class Carried:
    """What a request has in its context."""


CARRIED = ContextVar[Carried]("CARRIED")


@pytest.fixture(name="store")
async def store_fixture(redis_url: str) -> AsyncIterator[RedisStore]:
    """Give a store without keys that is connected, to a server that knows it."""
    store = RedisStore(redis_url, timeout=PATIENT_S)
    await ask(store, "alone", MANY)
    await asyncio.gather(*(ask(store, f"first {n}", MANY) for n in range(64)))
    yield store
    await store.aclose()


@pytest.fixture(name="proxy")
async def proxy_fixture(server: Server, redis_url: str) -> AsyncIterator[Proxy]:
    """Give a proxy in front of the server that tests share."""
    async with Proxy(server.port) as proxy:
        yield proxy


# --- together


@pytest.mark.parametrize(
    ("checks", "most"), [(1, 1), (2, 1), (32, 1), (64, 2), (320, 10)]
)
async def test_checks_of_an_iteration_travel_together(
    store: RedisStore, server: Server, checks: int, most: int
) -> None:
    """They are one call of the script, as far as one has room for them."""
    before = scripts_run(server)
    await asyncio.gather(*(ask(store, f"client {n}", MANY) for n in range(checks)))

    assert most == scripts_run(server) - before


async def test_a_lone_check_travels_alone(store: RedisStore, server: Server) -> None:
    """Checks one after the other are calls of their own."""
    before = scripts_run(server)
    for _ in range(10):
        await ask(store, "alice", MANY)

    assert 10 == scripts_run(server) - before


async def test_all_ways_travel_together(store: RedisStore, server: Server) -> None:
    """Checks of one limit, of several, and on the quick way share a call."""
    take = store.taker("quick ", str, "", kernel_of(TEN), 1)
    before = scripts_run(server)

    async def take_one(subject: str) -> object:
        answer = take(subject)
        return answer if isinstance(answer, tuple) else await answer

    await asyncio.gather(
        ask(store, "alice", TEN),
        store.acquire([Charge("alice", TEN), Charge("bob", MANY)]),
        take_one("carol"),
        take_one("carol"),
    )

    assert 1 == scripts_run(server) - before
    assert [8, 8] == [
        await remaining(store, key, TEN) for key in ("alice", "quick carol")
    ]


async def test_a_context_is_not_kept(store: RedisStore) -> None:
    """What a request carries is gone with it, whoever else was sent with it."""
    await store.aclose()  # so that this request is the first that needs anything
    carried = Carried()
    lives = weakref.ref(carried)

    async def request() -> None:
        await ask(store, "alice", MANY)

    context = copy_context()
    context.run(CARRIED.set, carried)
    await asyncio.create_task(request(), context=context)
    del carried, context
    await asyncio.sleep(0)  # what woke this test up knows the task
    gc.collect()

    assert None is lives()


# --- given up


@pytest.mark.parametrize("seed", range(3))
async def test_who_is_cancelled_takes_nobody_along(
    store: RedisStore, server: Server, seed: int
) -> None:
    """Thousands who give up at any time: the others are answered, all is counted."""
    rng = random.Random(seed)  # noqa: S311 - it is no secret
    take = store.taker("ali", str, "", kernel_of(MANY), 1)

    async def one() -> None:
        answer = take("ce")
        await (ask(store, "alice", MANY) if rng.random() < 0.5 else _awaited(answer))

    admitted = cancelled = wasted = 0
    for _ in range(60):
        tasks = [asyncio.create_task(one()) for _ in range(rng.randrange(1, 60))]
        for task in tasks:
            if rng.random() < 0.5:
                asyncio.get_running_loop().call_later(rng.random() / 500, task.cancel)
        for ended in await asyncio.gather(*tasks, return_exceptions=True):
            assert ended is None or isinstance(ended, asyncio.CancelledError)
            admitted += ended is None
            cancelled += ended is not None
        wasted += len(tasks)
    await settled()
    used = MANY.burst - await remaining(store, "alice", MANY)

    assert cancelled > 150
    # `one` may have asked for two: the quick way asks when it is called.
    assert admitted <= used <= 2 * wasted
    assert connections(server) <= 2


async def _awaited(answer: object) -> None:
    if isinstance(answer, asyncio.Future):
        await answer


async def test_what_is_cancelled_before_it_is_sent_is_not_sent(
    store: RedisStore, server: Server
) -> None:
    """A request that ended in the same iteration is not charged."""
    stays = asyncio.create_task(ask(store, "alice", TEN))
    goes = asyncio.create_task(ask(store, "alice", TEN))
    await asyncio.sleep(0)
    goes.cancel()
    result = await stays
    with suppress(asyncio.CancelledError):
        await goes

    assert (9, 9) == (result.state.remaining, await remaining(store, "alice", TEN))


async def _reset(store: RedisStore, key: str) -> None:
    await store.reset([key])


async def test_a_call_that_nobody_waits_for_is_not_made(
    store: RedisStore, server: Server
) -> None:
    """If all of a batch have gone, the server is not asked; nor is it for a reset."""
    before = scripts_run(server)
    tasks = [asyncio.create_task(ask(store, "alice", TEN)) for _ in range(9)]
    tasks.append(asyncio.create_task(store.peek([Charge("alice", TEN)])))  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    tasks.append(asyncio.create_task(_reset(store, "alice")))  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    await asyncio.sleep(0)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await settled()

    assert before == scripts_run(server)
    assert 10 == await remaining(store, "alice", TEN)


async def test_a_refund_is_made_even_if_nobody_waits_for_it(store: RedisStore) -> None:
    """Who is cancelled before it is sent would else have paid for nothing."""
    result = await ask(store, "alice", TEN, cost=5)
    stays = asyncio.create_task(ask(store, "bob", TEN))
    goes = asyncio.create_task(_refund(store, result))
    await asyncio.sleep(0)
    goes.cancel()
    await asyncio.gather(stays, goes, return_exceptions=True)

    async def is_back() -> bool:
        return await remaining(store, "alice", TEN) == 10

    assert goes.cancelled()
    await until(is_back)


async def _refund(store: RedisStore, result: RateLimitResult) -> None:
    await store.refund(result.receipts)


async def test_what_is_cancelled_after_it_is_sent_is_charged_once(
    proxy: Proxy,
) -> None:
    """Those who were sent with it get their answer over the same connection."""
    store = RedisStore(proxy.url, timeout=PATIENT_S)
    await ask(store, "alice", TEN)
    goes = asyncio.create_task(ask(store, "alice", TEN))
    await proxy.arrival("EVALSHA", 2)
    goes.cancel()
    resetting = asyncio.create_task(_reset(store, "bob"))
    await proxy.arrival("UNLINK")
    resetting.cancel()
    await asyncio.gather(goes, resetting, return_exceptions=True)

    assert 7 == (await ask(store, "alice", TEN)).state.remaining
    assert not (await ask(store, "bob", TEN)).limited
    await store.aclose()


# --- too late


@pytest.mark.parametrize("is_connected", [True, False])
async def test_a_silent_server_is_given_up_in_time(
    start_server: StartServer, *, is_connected: bool
) -> None:
    """Everybody fails within the timeout, whoever waits for a connection too (88)."""
    server = start_server()
    store = RedisStore(server.url, timeout=SHORT_S)
    if is_connected:
        await asyncio.gather(*(ask(store, f"c{n}", MANY) for n in range(64)))
    server.freeze()
    began = time.monotonic()
    ended = await asyncio.gather(
        *(ask(store, f"client {n}", MANY) for n in range(300)),
        store.peek([Charge("alice", TEN)]),
        store.reset(["alice"]),
        return_exceptions=True,
    )
    took_s = time.monotonic() - began
    server.thaw()

    assert {StoreUnavailableError} == {type(each) for each in ended}
    assert {
        "The deadline passed without an answer",
        "No connection was free in time",
    } >= {str(each) for each in ended}
    assert SHORT_S * 0.9 <= took_s < SOON_S  # who waited in vain is told a bit early
    await settled()
    result = await asked_until_up(store, Charge("bob", TEN))
    assert 9 == result.state.remaining
    assert connections(server) <= 2
    await store.aclose()


async def test_a_deadline_is_counted_from_the_first_check(proxy: Proxy) -> None:
    """Checks that come while a server is silent fail in their own time."""
    store = RedisStore(proxy.url, timeout=SHORT_S)
    await ask(store, "alice", MANY)
    await proxy.switch(Mode.STALL)
    took_s: list[float] = []

    async def check() -> None:
        began = time.monotonic()
        with pytest.raises(StoreUnavailableError):
            await ask(store, "alice", MANY)
        took_s.append(time.monotonic() - began)

    async with asyncio.TaskGroup() as group:
        for _ in range(10):
            group.create_task(check())
            await asyncio.sleep(SHORT_S / 7)
    await proxy.switch(Mode.PASS)

    assert all(each < SOON_S for each in took_s)
    assert not (await asked_until_up(store, Charge("alice", MANY))).limited
    await store.aclose()


async def test_a_late_answer_is_nobody_elses(start_server: StartServer) -> None:
    """What a frozen server answers after the deadline is not taken for another's."""
    server = start_server()
    store = RedisStore(server.url, timeout=SHORT_S)
    await ask(store, "alice", TEN, cost=10)
    server.freeze()
    with pytest.raises(StoreUnavailableError):
        await ask(store, "bob", TEN, cost=7)
    server.thaw()
    first = await asked_until_up(store, Charge("carol", TEN))

    assert 9 == first.state.remaining
    assert (await ask(store, "alice", TEN)).limited
    await store.aclose()


async def test_the_alarm_of_calls_that_are_over_harms_nobody(redis_url: str) -> None:
    """When the deadline of an answered call passes, nothing happens."""
    store = RedisStore(redis_url, timeout=SHORT_S)
    loop = asyncio.get_running_loop()
    for _ in range(2):
        await ask(store, "alice", TEN)
        until_s = loop.time() + 2 * SHORT_S
        while loop.time() < until_s:
            await ask(store, "bob", MANY)
            await asyncio.sleep(SHORT_S / 9)

    assert 8 == await remaining(store, "alice", TEN)
    await store.aclose()


async def test_who_asks_on_the_quick_way_is_told_too(start_server: StartServer) -> None:
    """A server that is full, silent or gone is the same there."""
    server = start_server("maxmemory-policy noeviction")
    store = RedisStore(server.url, timeout=SHORT_S)
    take = store.taker("", str, "", kernel_of(TEN), 1)

    async def fails() -> str:
        answer = take("alice")
        assert not isinstance(answer, tuple)
        with pytest.raises(StoreUnavailableError) as caught:
            await answer
        return str(caught.value)

    await asked_until_up(store, Charge("bob", TEN))
    server.ask("CONFIG", "SET", "maxmemory", "1")
    assert "OOM" in await fails()
    server.freeze()
    assert "deadline" in await fails()
    server.kill()
    assert "connect" in (await fails()).lower()
    await store.aclose()


# --- broken


async def test_connections_may_be_killed(server: Server, redis_url: str) -> None:
    """What is under way fails, nothing is charged twice, and all goes on."""
    store = RedisStore(redis_url, timeout=PATIENT_S)
    admitted = asked = 0
    for _ in range(30):
        checks = [asyncio.create_task(ask(store, "alice", MANY)) for _ in range(40)]
        await asyncio.sleep(0)
        await asyncio.to_thread(server.ask, "CLIENT", "KILL", "TYPE", "normal")
        ended = await asyncio.gather(*checks, return_exceptions=True)
        failed = [each for each in ended if isinstance(each, BaseException)]
        assert all(isinstance(each, StoreUnavailableError) for each in failed)
        admitted, asked = admitted + len(ended) - len(failed), asked + len(ended)
    await asked_until_up(store, Charge("bob", MANY))
    used = MANY.burst - await remaining(store, "alice", MANY)

    assert admitted <= used <= asked
    await settled()
    await store.aclose()


@pytest.mark.parametrize("mode", [Mode.DROP_REPLY, Mode.DROP_BEFORE])
@pytest.mark.parametrize("retries", [None, 3])
async def test_a_charge_is_never_made_twice(
    proxy: Proxy, server: Server, mode: Mode, retries: int | None
) -> None:
    """If a reply is lost the charge fails, whatever the client would do (case 82)."""
    options = {} if retries is None else {"retry": Retry(NoBackoff(), retries)}
    client = client_of(proxy.url, **options)
    store = RedisStore(client, timeout=PATIENT_S)
    direct = RedisStore(server.url, timeout=PATIENT_S)
    await ask(store, "bob", TEN)
    await proxy.switch(mode, "EVALSHA", "EVAL", times=1)
    arrived = proxy.arrived["EVALSHA"]
    with pytest.raises(StoreUnavailableError):
        await ask(store, "alice", TEN)

    charged = 1 if mode is Mode.DROP_REPLY else 0
    assert 10 - charged == await remaining(direct, "alice", TEN)
    assert 1 == proxy.arrived["EVALSHA"] - arrived
    assert 9 - charged == (await ask(store, "alice", TEN)).state.remaining
    for each in (store, direct, client):
        await each.aclose()


async def test_a_refund_is_never_made_twice(proxy: Proxy) -> None:
    """If its reply is lost it fails, and what it gave back was given once."""
    store = RedisStore(proxy.url, timeout=PATIENT_S)
    await ask(store, "alice", TEN, cost=5)
    result = await ask(store, "alice", TEN, cost=2)
    await store.refund((await ask(store, "bob", TEN)).receipts)
    await proxy.switch(Mode.DROP_REPLY, "EVALSHA", times=1)
    with pytest.raises(StoreUnavailableError):
        await store.refund(result.receipts)

    assert 5 == await remaining(store, "alice", TEN)
    await store.aclose()


async def test_an_answer_of_another_shape_ends_the_connection(proxy: Proxy) -> None:
    """Whatever goes wrong is an error of those who wait, and of nobody else."""
    store = RedisStore(proxy.url, timeout=PATIENT_S)
    await ask(store, "alice", TEN)
    proxy.rewrite("EVALSHA", "+OK")
    with pytest.raises(StoreUnavailableError):
        await ask(store, "alice", TEN)

    assert 7 == (await ask(store, "alice", TEN)).state.remaining
    await store.aclose()


# --- closed


async def test_who_waits_when_a_store_is_closed_is_told(proxy: Proxy) -> None:
    """What is under way fails, what is waiting too, and the store can be used again."""
    store = RedisStore(proxy.url, timeout=PATIENT_S)
    await ask(store, "alice", MANY)
    await proxy.switch(Mode.STALL)
    checks = [asyncio.create_task(ask(store, "alice", MANY)) for _ in range(300)]
    await proxy.arrival("EVALSHA", 2)
    await store.aclose()
    ended = await asyncio.gather(*checks, return_exceptions=True)
    await proxy.switch(Mode.PASS)

    assert {StoreUnavailableError} == {type(each) for each in ended}
    assert not (await ask(store, "alice", MANY)).limited
    await store.aclose()


async def test_a_close_that_is_cancelled_closes_all_connections(
    start_server: StartServer,
) -> None:
    """An application that is in a hurry to end leaves none behind."""
    server = start_server()
    store = RedisStore(server.url, timeout=PATIENT_S)
    await asyncio.gather(*(ask(store, f"client {n}", MANY) for n in range(64)))
    opened = connections(server)
    closing = asyncio.create_task(store.aclose())
    await asyncio.sleep(0)
    closing.cancel()
    await asyncio.wait([closing])

    async def are_closed() -> bool:
        return connections(server) == 0

    assert 2 == opened
    await until(are_closed)


@pytest.mark.filterwarnings("ignore::ResourceWarning")  # nobody closed the store
def test_a_loop_may_end_while_checks_are_under_way(start_server: StartServer) -> None:
    """The end of a loop ends them, without a word; another loop begins anew."""
    server = start_server()
    store = RedisStore(server.url, timeout=PATIENT_S)

    async def leave() -> asyncio.Task[object]:
        await ask(store, "alice", TEN)
        server.freeze()
        checking: asyncio.Task[object] = asyncio.create_task(ask(store, "bob", TEN))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        return checking

    checking = asyncio.run(leave())
    server.thaw()
    asyncio.run(_ask_and_close(store))
    was_cancelled = checking.cancelled()
    del checking  # it remembers what it waited for
    gc.collect()

    assert was_cancelled
    wait_until(lambda: connections(server) == 0, "the connections are closed")


async def _ask_and_close(store: RedisStore) -> None:
    assert not (await ask(store, "carol", TEN)).limited
    await store.aclose()


def test_the_end_of_the_program_is_not_held_up(redis_url: str) -> None:
    """Who asks the program to end, in the middle of a call, is obeyed."""
    times = iter([0])

    def clock() -> int:
        try:
            return next(times)
        except StopIteration:
            raise SystemExit from None

    store = RedisStore(redis_url, timeout=PATIENT_S, clock=clock)
    with pytest.raises(SystemExit):
        asyncio.run(_reset_after_asking(store))


async def _reset_after_asking(store: RedisStore) -> None:
    with suppress(StoreUnavailableError):
        await ask(store, "alice", TEN)


async def test_a_call_has_to_say_what_it_is() -> None:
    """What all calls have in common asks for nothing."""
    with pytest.raises(NotImplementedError):
        Call().is_wanted()
    with pytest.raises(NotImplementedError):
        Call().fail(ValueError())
    with pytest.raises(NotImplementedError):
        Call().command()
    with pytest.raises(NotImplementedError):
        Call().deliver(b"")
