"""What clients of an application are answered while its real server is lost."""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from typing import Any, TypeAlias

import pytest
import redis.asyncio
from fastapi import FastAPI

from tests.asgi import answers, app_of, statuses
from tests.redis.conftest import StartServer
from tests.redis.proxies import Mode, Proxy
from tests.redis.servers import HOST, Cluster, Sentinel, Server, free_port
from tests.redis.stores import PATIENT_S, cluster_client_of, until
from throttled_views import (
    Charge,
    CheckEvent,
    Limit,
    Limiter,
    Quota,
    StoreStateEvent,
    StoreUnavailableError,
    ThrottledRouter,
)
from throttled_views.results import OnStoreError
from throttled_views.stores.redis import RedisStore

TEN = Quota(10, timedelta(days=30))  # nothing comes back while a test runs
DEADLINE_S = 0.1
SLACK = 30  # how much slower a machine may be
PROBES_S = 1.0
FEW_SECONDS = 5.0

Unreachable: TypeAlias = Callable[[StartServer], str]


class Told:
    """A hook that notes what it is told."""

    def __init__(self) -> None:
        self.events: list[StoreStateEvent] = []

    def on_check(self, event: CheckEvent) -> None:
        """Read nothing of it."""

    def on_store_state(self, event: StoreStateEvent) -> None:
        """Note *event*."""
        self.events.append(event)


@asynccontextmanager
async def limiter_on(
    url: str,
    policy: OnStoreError = "local",
    *,
    deadline_s: float = PATIENT_S,
    hooks: Sequence[Told] = (),
) -> AsyncGenerator[Limiter]:
    """Give a limiter on the server at *url*, and close its store."""
    store = RedisStore(url, timeout=deadline_s)
    try:
        yield Limiter(TEN, store=store, on_store_error=policy, hooks=hooks)
    finally:
        await store.aclose()


def app_on(limiter: Limiter) -> FastAPI:
    """Return an application with a route that is limited, and one that is not."""
    router = ThrottledRouter(limiter)

    @router.get("/items")
    async def items() -> str:
        return "items"

    @router.get("/health")
    @limiter.exempt
    async def health() -> str:
        return "well"

    return app_of(router)


async def left_of(app: FastAPI) -> int:
    """Send a request that is admitted; return what is left after it."""
    (answer,) = await answers(app, "GET /items")
    assert 200 == answer.status_code
    return int(answer.headers["RateLimit-Remaining"])


async def until_up(limiter: Limiter) -> float:
    """Look until the store decides again; return the seconds that it took."""
    began = time.monotonic()

    async def is_up() -> bool:
        with suppress(StoreUnavailableError):
            await limiter.failover.peek([Charge("nobody", TEN)])
        return limiter.failover.is_up

    await until(is_up)
    return time.monotonic() - began


async def crowd(app: FastAPI, size: int) -> Counter[int]:
    """Send requests of one client at once; return how often there was each code."""
    received = await asyncio.gather(*[statuses(app, "GET /items") for _ in range(size)])
    return Counter(code for codes in received for code in codes)


async def seconds_of(app: FastAPI) -> float:
    """Return how long a request is held."""
    began = time.monotonic()
    await statuses(app, "GET /items")
    return time.monotonic() - began


# --- servers that cannot be reached ---------------------------------------------------

UNREACHABLE: dict[str, Unreachable] = {
    "refused": lambda _: f"redis://{HOST}:{free_port()}/0",
    "wrong password": lambda start: start("requirepass secret").url.replace(
        "//", "//:wrong@"
    ),
    "no such name": lambda _: "redis://no-such-host.invalid:6379/0",
}
POLICIES: dict[OnStoreError, list[int]] = {
    "local": [200] * 10 + [429] * 2,
    "deny": [503] * 12,
    "allow": [200] * 12,
}
unreachable = pytest.mark.parametrize(
    "url_of", UNREACHABLE.values(), ids=[name.replace(" ", "_") for name in UNREACHABLE]
)
each_policy = pytest.mark.parametrize("policy", POLICIES)
policies = pytest.mark.parametrize(("policy", "expected"), POLICIES.items())


@unreachable
@policies
async def test_case_79_the_policy_answers(
    start_server: StartServer,
    url_of: Unreachable,
    policy: OnStoreError,
    expected: list[int],
) -> None:
    """Whatever keeps the server away, no answer is an error of the application."""
    async with limiter_on(url_of(start_server), policy, deadline_s=1) as limiter:
        assert expected == await statuses(app_on(limiter), *["GET /items"] * 12)


@unreachable
@each_policy
async def test_case_79_health_is_always_well(
    start_server: StartServer, url_of: Unreachable, policy: OnStoreError
) -> None:
    """A route that is exempt is answered before and after others noticed."""
    async with limiter_on(url_of(start_server), policy, deadline_s=1) as limiter:
        requests = ["GET /health", "GET /items", "GET /health"]
        health, _, again = await statuses(app_on(limiter), *requests)

    assert (200, 200) == (health, again)


@policies
@pytest.mark.parametrize("of_all", POLICIES)
async def test_a_limit_may_have_a_policy_of_its_own(
    server: Server,
    of_all: OnStoreError,
    policy: OnStoreError,
    expected: list[int],
) -> None:
    """What it says goes before what the limiter says."""
    async with limiter_on(f"redis://{HOST}:{free_port()}/0", of_all) as limiter:
        router = ThrottledRouter(limiter)

        @router.get("/items")
        @limiter.limit(Limit(TEN, on_store_error=policy))
        async def items() -> None:
            """Do nothing."""

        assert expected == await statuses(app_of(router), *["GET /items"] * 12)


# --- the life of an application -------------------------------------------------------


async def test_an_application_starts_without_its_server(
    start_server: StartServer,
) -> None:
    """It neither waits nor ends, and uses the server once that is there."""
    server = start_server()
    server.kill()
    async with limiter_on(server.url) as limiter:
        app = app_on(limiter)
        async with asyncio.timeout(FEW_SECONDS), app.router.lifespan_context(app):
            assert 9 == await left_of(app)
            await asyncio.to_thread(server.restart)
            await until_up(limiter)

            assert 9 == await left_of(app)


async def test_case_95_a_server_that_is_lost_after_a_good_start_is_noticed(
    start_server: StartServer,
) -> None:
    """The process counts by the same quota, from nothing."""
    server = start_server()
    async with limiter_on(server.url) as limiter:
        app = app_on(limiter)
        before = await statuses(app, *["GET /items"] * 3)
        server.kill()
        during = await statuses(app, *["GET /items"] * 12)

    assert ([200] * 3, [200] * 10 + [429] * 2) == (before, during)


async def test_case_95_a_server_that_is_back_counts_on(server: Server) -> None:
    """Seven of ten were left, and what this process admitted is not charged."""
    server.flushall()
    async with Proxy(server.port) as proxy, limiter_on(proxy.url) as limiter:
        app = app_on(limiter)
        before = [await left_of(app) for _ in range(3)]
        await proxy.switch(Mode.REFUSE)
        during = [await left_of(app) for _ in range(2)]
        await proxy.switch(Mode.PASS)
        took_s = await until_up(limiter)
        after = [await left_of(app) for _ in range(2)]

    assert ([9, 8, 7], [9, 8], [6, 5]) == (before, during, after)
    assert took_s < PROBES_S * 2


async def test_case_95_a_restarted_server_is_used_within_the_time_of_a_probe(
    start_server: StartServer,
) -> None:
    """It has lost its counts and its scripts, and decides all the same."""
    server = start_server()
    async with limiter_on(server.url) as limiter:
        app = app_on(limiter)
        await statuses(app, *["GET /items"] * 3)
        server.kill()
        await statuses(app, "GET /items")
        await asyncio.to_thread(server.restart)
        took_s = await until_up(limiter)

        assert took_s < PROBES_S * 2
        assert [9, 8] == [await left_of(app) for _ in range(2)]


async def test_case_95_a_server_that_comes_and_goes_gives_nothing_away(
    server: Server,
) -> None:
    """However often, a client gets a quota of the server and one of this process."""
    server.flushall()
    codes = Counter[int]()
    async with Proxy(server.port) as proxy, limiter_on(proxy.url) as limiter:
        app = app_on(limiter)
        for _ in range(4):
            await proxy.switch(Mode.REFUSE)
            codes.update(await statuses(app, *["GET /items"] * 7))
            await proxy.switch(Mode.PASS)
            await until_up(limiter)
            codes.update(await statuses(app, *["GET /items"] * 7))

    assert {200, 429} == {*codes}
    assert 10 <= codes[200] <= 20


# --- servers that do not answer -------------------------------------------------------


@each_policy
async def test_case_88_no_request_is_held_longer_than_the_deadline(
    start_server: StartServer, policy: OnStoreError
) -> None:
    """A hundred at once, when the server freezes: all are answered in about 0.1 s."""
    server = start_server()
    async with limiter_on(server.url, policy, deadline_s=DEADLINE_S) as limiter:
        app = app_on(limiter)
        await until_up(limiter)
        server.freeze()

        held_s = await asyncio.gather(*[seconds_of(app) for _ in range(100)])

        assert max(held_s) < DEADLINE_S * SLACK
        assert not limiter.failover.is_up


async def test_case_88_later_requests_are_answered_at_once(
    start_server: StartServer,
) -> None:
    """One request a second asks whether the server is back, the others do not wait."""
    server = start_server()
    async with limiter_on(server.url, deadline_s=DEADLINE_S) as limiter:
        app = app_on(limiter)
        await until_up(limiter)
        server.freeze()
        await statuses(app, "GET /items")

        held_s = sorted([await seconds_of(app) for _ in range(50)])

    # Of these one a second is a probe; the median is none.
    assert held_s[25] < DEADLINE_S / 2


async def test_case_88_a_server_that_thaws_counts_on(
    start_server: StartServer,
) -> None:
    """Not one request more passes; one that it got too late it may have charged."""
    server = start_server()
    async with limiter_on(server.url, deadline_s=DEADLINE_S) as limiter:
        app = app_on(limiter)
        before = [await left_of(app) for _ in range(3)]
        server.freeze()
        during = await left_of(app)
        server.thaw()
        took_s = await until_up(limiter)
        after = await left_of(app)

    assert ([9, 8, 7], 9) == (before, during)
    assert after in {6, 5}
    assert took_s < PROBES_S * 2


# --- scripts that are lost ------------------------------------------------------------


async def test_case_80_a_crowd_does_not_notice_that_scripts_are_lost(
    redis_url: str, server: Server
) -> None:
    """Of a hundred at once after each SCRIPT FLUSH none fails, and ten pass in all."""
    codes = Counter[int]()
    told = Told()
    async with limiter_on(redis_url, "deny", hooks=[told]) as limiter:
        app = app_on(limiter)
        for _ in range(3):
            server.ask("SCRIPT", "FLUSH")
            codes += await crowd(app, 100)

    assert {200: 10, 429: 290} == codes
    assert [] == told.events


# --- what is told ---------------------------------------------------------------------


async def test_each_change_is_logged_and_told_once(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    """However many requests are answered meanwhile, there are two records."""
    server.flushall()
    told = Told()
    async with (
        Proxy(server.port) as proxy,
        limiter_on(proxy.url, hooks=[told]) as limiter,
    ):
        app = app_on(limiter)
        await statuses(app, "GET /items")
        await proxy.switch(Mode.REFUSE)
        await crowd(app, 100)
        await proxy.switch(Mode.PASS)
        await until_up(limiter)
        await crowd(app, 100)

    records = [each for each in caplog.records if each.name == "throttled_views"]
    assert ["The store is unavailable", "The store is available again"] == [
        each.getMessage().split(",")[0] for each in records
    ]
    assert [(False, "local"), (True, "local")] == [
        (each.available, each.policy) for each in told.events
    ]
    assert [StoreUnavailableError, type(None)] == [
        type(each.error) for each in told.events
    ]


# --- other primaries ------------------------------------------------------------------


async def test_readonly_is_no_answer_to_a_client(start_server: StartServer) -> None:
    """While the server is a replica this process counts; afterwards it does again."""
    server, other = start_server(), start_server()
    async with limiter_on(server.url) as limiter:
        app = app_on(limiter)
        before = await left_of(app)
        server.ask("REPLICAOF", HOST, str(other.port))
        during = await statuses(app, *["GET /items"] * 12)
        was_up = limiter.failover.is_up
        server.ask("REPLICAOF", "NO", "ONE")
        # Looks are no proof: a replica answers them, too.
        async with asyncio.timeout(FEW_SECONDS):
            while not limiter.failover.is_up:
                await statuses(app, "GET /items")

    assert 9 == before
    assert [200] * 10 + [429] * 2 == during
    assert (False, True) == (was_up, limiter.failover.is_up)


async def test_a_lost_primary_is_replaced_under_an_application(
    sentinel: Sentinel,
) -> None:
    """No client is answered an error meanwhile, and nobody restarts anything."""
    library: Any = redis.asyncio  # Its annotations differ between versions.
    watchers = library.Sentinel(sentinel.sentinels)
    store = RedisStore(lambda: watchers.master_for(sentinel.service), timeout=PATIENT_S)
    limiter = Limiter(TEN, store=store)
    app = app_on(limiter)
    codes = Counter(await statuses(app, "GET /items"))
    replacing = asyncio.create_task(asyncio.to_thread(sentinel.fail_over))
    while not replacing.done():
        codes.update(await statuses(app, "GET /items"))
        await asyncio.sleep(0)  # a refusal that is known waits for nothing
    took_s = await until_up(limiter)
    codes.update(await statuses(app, "GET /items", client="192.0.2.2"))

    assert {*codes} <= {200, 429}
    assert took_s < FEW_SECONDS
    assert limiter.failover.is_up
    await asyncio.to_thread(sentinel.heal)
    await store.aclose()
    for watcher in watchers.sentinels:
        await watcher.aclose()


async def test_a_lost_node_of_a_cluster_is_no_error(
    cluster: Cluster, cluster_urls: list[str]
) -> None:
    """The process counts while a node is away, and no more once it is back."""
    store = RedisStore(lambda: cluster_client_of(cluster_urls[0]), timeout=PATIENT_S)
    limiter = Limiter(TEN, store=store)
    app = app_on(limiter)
    addresses = [f"192.0.2.{number}" for number in range(12)]

    async def codes() -> set[int]:
        received = [
            await statuses(app, "GET /items", client=address) for address in addresses
        ]
        return {code for each in received for code in each}

    before = await codes()
    cluster.nodes[1].kill()
    during = await codes()
    was_up = limiter.failover.is_up
    await asyncio.to_thread(cluster.heal)
    await until_up(limiter)
    after = await codes()

    assert [{200}] * 3 == [before, during, after]
    assert (False, True) == (was_up, limiter.failover.is_up)
    await store.aclose()
