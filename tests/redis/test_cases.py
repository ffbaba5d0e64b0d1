"""Scenarios from public bug reports, by number, on real servers."""

import asyncio
import gc
import random
from collections.abc import Sequence

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from tests.asgi import answers, app_of, fields_of, statuses
from tests.redis.conftest import StartServer
from tests.redis.servers import ReplyError, Server
from tests.redis.stores import (
    PATIENT_S,
    ask,
    client_of,
    cluster_client_of,
    connections,
    settled,
    until,
)
from throttled_views import (
    Algorithm,
    Charge,
    Limiter,
    Quota,
    Throttled,
    ThrottledRouter,
)
from throttled_views.stores.redis import RedisStore

DAY_MS = 86_400_000


async def hello() -> str:
    """Be a handler."""
    return "hello"


def served_by(limiter: Limiter) -> FastAPI:
    """Return an application with one route, which has the limiter's default."""
    router = ThrottledRouter(limiter)
    router.add_api_route("/", hello)
    return app_of(router)


def names_of(throttled: Throttled, principal: str) -> list[str]:
    """Return the names of a client's keys on the server."""
    return [rule.key(principal) for rule in throttled.rules]


def milliseconds_left(server: Server, name: str) -> int:
    """Return how long a key lives: -1 for ever, -2 not at all."""
    return int(str(server.ask("PTTL", name)))


# --- counting


@pytest.mark.parametrize("using", Algorithm)
async def test_case_22_the_key_of_a_very_fast_rate_expires(
    redis_url: str, server: Server, using: Algorithm
) -> None:
    """A time to live never rounds to nothing, nor to for ever; soon the key is gone."""
    bucket = using in {Algorithm.TOKEN_BUCKET, Algorithm.GCRA, Algorithm.LEAKY_BUCKET}
    quota = Quota.per_second(1_000, burst=1 if bucket else None)
    store = RedisStore(redis_url, timeout=PATIENT_S)
    result = await ask_by(store, "fast", quota, using)
    left = milliseconds_left(server, "fast")

    async def is_gone() -> bool:
        return server.ask("EXISTS", "fast") == 0

    await until(is_gone)
    await store.aclose()

    assert not result
    # It may be gone before it could be looked at.
    assert left == -2 or 0 <= left <= 5_000


async def ask_by(store: RedisStore, key: str, quota: Quota, using: Algorithm) -> bool:
    """Charge one key by an algorithm; return whether that is refused."""
    [result] = await store.acquire([Charge(key, quota, using)])
    return result.limited


# --- keys


async def test_case_43_two_quotas_of_a_user_are_two_counters(
    redis_url: str, server: Server
) -> None:
    """A month's and an hour's do not meet, and each lives as long as its own."""
    store = RedisStore(redis_url, timeout=PATIENT_S)
    monthly = Throttled("10/30d", store=store, prefix="a")
    hourly = Throttled("5/h", store=store, prefix="b")
    results = [await each.limit("alice") for each in [monthly] * 6 + [hourly] * 6]
    left = [
        milliseconds_left(server, names_of(each, "alice")[0])
        for each in (monthly, hourly)
    ]
    await store.aclose()

    assert [False] * 11 + [True] == [each.limited for each in results]
    assert 4 == results[5].state.remaining
    assert 17 * DAY_MS < left[0] <= 18 * DAY_MS + 1_000
    assert 3_500_000 < left[1] <= 3_601_000


TEXTS: dict[str, str] = {
    "100 kB": "x" * 100_000,
    "100 kB and one": "x" * 100_001,
    "NFC": "naïve/пример/例",
    "NFD": "nai\u0308ve/пример/例",
    "a space": "a b",
    "NUL": "a\0b",
    "CR LF": "a\r\nSET a b\r\n",
    "braces": "{x}",
    "unpaired braces": "}{x",
    "a lone surrogate": "\ud800",
}


async def check_texts(store: RedisStore) -> None:
    """Each text is a client of its own, with short names on one slot."""
    throttled = Throttled(["1/d", "5/w"], store=store)
    for text in TEXTS.values():
        refused = [(await throttled.limit(text)).limited for _ in range(2)]

        assert [False, True] == refused
        assert all(len(name) <= 300 for name in names_of(throttled, text))
    await store.aclose()


async def test_case_49_any_text_is_a_client_of_its_own(redis_url: str) -> None:
    """The first request of each value passes and the second does not."""
    await check_texts(RedisStore(redis_url, timeout=PATIENT_S))


async def test_case_49_any_text_has_a_slot(cluster_urls: list[str]) -> None:
    """So it is in a cluster, whatever braces a value has."""
    await check_texts(
        RedisStore(lambda: cluster_client_of(cluster_urls[0]), timeout=PATIENT_S)
    )


# --- async


async def check_that_answers_stay_with_their_keys(store: RedisStore) -> None:
    """Let half of all callers leave at any time; each key counts its own calls."""
    rng = random.Random(52)  # noqa: S311 - it is no secret
    # No other key's remaining is near: capacities are a hundred apart.
    quotas = {f"u{n}": Quota.per_week(100 * (n + 1)) for n in range(200)}
    answered = dict.fromkeys(quotas, 0)
    left = dict.fromkeys(quotas, 0)

    async def call(key: str) -> None:
        result = await ask(store, key, quotas[key])
        used = result.state.limit - result.state.remaining
        assert answered[key] < used <= answered[key] + left[key] + 1
        answered[key] += 1

    for _ in range(10):
        tasks = {key: asyncio.create_task(call(key)) for key in quotas}
        for task in rng.sample([*tasks.values()], 100):
            asyncio.get_running_loop().call_later(rng.random() / 100, task.cancel)
        await asyncio.wait(tasks.values())
        for key, task in tasks.items():
            left[key] += task.cancelled()
            assert task.cancelled() or task.exception() is None
    for key in quotas:
        await call(key)

    assert sum(left.values()) > 50
    await settled()


@pytest.mark.parametrize("options", ["", "?max_connections=2"])
async def test_case_52_an_answer_is_never_anothers(
    redis_url: str, server: Server, options: str
) -> None:
    """Whoever leaves at whatever time, the answer that is left behind is nobody's."""
    store = RedisStore(redis_url + options, timeout=PATIENT_S)
    await check_that_answers_stay_with_their_keys(store)

    assert connections(server) <= 2
    await store.aclose()


async def test_case_52_an_answer_of_a_cluster_is_never_anothers(
    cluster_urls: list[str],
) -> None:
    """So it is where each key has a server of its own."""
    store = RedisStore(lambda: cluster_client_of(cluster_urls[0]), timeout=PATIENT_S)
    await check_that_answers_stay_with_their_keys(store)
    await store.aclose()


def test_case_53_a_limiter_of_a_module_serves_one_loop_after_another(
    redis_url: str,
) -> None:
    """It is made where no loop runs, and counts on in each that follows."""
    limiter = Limiter("4/d", store=RedisStore(redis_url, timeout=PATIENT_S))
    app = served_by(limiter)

    async def run() -> Sequence[int]:
        codes = await statuses(app, "GET /", "GET /")
        await limiter.store.aclose()
        return codes

    assert [[200, 200], [200, 200], [429, 429]] == [asyncio.run(run()) for _ in "123"]


def test_case_53_test_clients_may_follow_each_other(redis_url: str) -> None:
    """Each has a loop of its own, in which the store is opened and closed."""
    app = served_by(Limiter("3/d", store=RedisStore(redis_url, timeout=PATIENT_S)))
    codes: list[int] = []
    for _ in range(2):
        with TestClient(app) as client:
            codes += [client.get("/").status_code for _ in range(2)]

    assert [200, 200, 200, 429] == codes


def test_case_53_a_test_client_needs_no_lifespan(redis_url: str) -> None:
    """Then each request has a loop of its own, which leaves a connection behind."""
    store = RedisStore(redis_url, timeout=PATIENT_S)
    client = TestClient(served_by(Limiter("3/d", store=store)))

    async def close() -> None:
        await store.peek([Charge("nobody", Quota.per_day(1))])  # forgets all loops
        await store.aclose()

    def ask_four_times() -> list[int]:
        codes = [client.get("/").status_code for _ in range(4)]
        asyncio.run(close())
        gc.collect()
        return codes

    with pytest.warns(ResourceWarning):  # of asyncio: it was left open
        codes = ask_four_times()

    assert [200, 200, 200, 429] == codes


# --- servers


@pytest.mark.parametrize("policy", ["allkeys-lru", "volatile-ttl"])
@pytest.mark.parametrize("using", Algorithm)
async def test_case_92_a_key_that_is_evicted_is_a_fresh_one(
    start_server: StartServer, policy: str, using: Algorithm
) -> None:
    """Under pressure from other keys a quota is given back early; nothing fails."""
    server = start_server(f"maxmemory-policy {policy}")
    store, other = (RedisStore(server.url, timeout=PATIENT_S) for _ in range(2))
    spending = Throttled(["5/h", "100/d"], using=using, store=store)
    # It asks the server about what the first store knows to be refused.
    asking = Throttled(["5/h", "100/d"], using=using, store=other)
    spent = [(await spending.limit("alice")).limited for _ in range(6)]
    evict(server, names_of(spending, "alice")[0])
    again = await asking.limit("alice")
    for each in (store, other):
        await each.aclose()

    assert [False] * 5 + [True] == spent
    assert (False, 4) == (again.limited, again.state.remaining)


def evict(server: Server, name: str) -> None:
    """Fill a server with other keys until it drops one; then leave it room again."""
    used = int(server.info("memory")["used_memory"])
    server.ask("CONFIG", "SET", "maxmemory", str(used + 200_000))
    for number in range(10_000):
        if server.ask("EXISTS", name) == 0:
            break
        try:
            server.ask("SET", f"other {number}", "x" * 10_000, "EX", "600000")
        except ReplyError:  # there was nothing to drop but this one, and it is dropped
            continue
    server.ask("CONFIG", "SET", "maxmemory", "0")
    assert server.ask("EXISTS", name) == 0


@pytest.mark.parametrize("prefix", ["throttled_views", "{shop}: "])
@pytest.mark.parametrize("protocol", [2, 3])
@pytest.mark.parametrize("decodes", [True, False])
async def test_case_94_a_client_of_any_kind_gives_the_same_fields(
    redis_url: str, *, decodes: bool, protocol: int, prefix: str
) -> None:
    """However a client reads replies, and whatever keys begin with."""
    client = client_of(redis_url, decode_responses=decodes, protocol=protocol)
    store = RedisStore(client, timeout=PATIENT_S)
    app = served_by(Limiter("2/d", store=store, prefix=prefix))
    received = await answers(app, *["GET /"] * 3)
    await store.aclose()
    await client.aclose()

    assert [200, 200, 429] == [answer.status_code for answer in received]
    assert [("2", "1"), ("2", "0"), ("2", "0")] == [
        (fields["RateLimit-Limit"], fields["RateLimit-Remaining"])
        for fields in map(fields_of, received)
    ]
    assert 43_100 < int(received[-1].headers["Retry-After"]) <= 43_200
