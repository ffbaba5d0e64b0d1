"""The Redis store in a cluster: where keys are, and what if their slots move."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Generator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
from redis.crc import key_slot

from tests.redis.servers import HOST, SLOTS, Cluster, Server, ask_list, wait_until
from tests.redis.stores import (
    PATIENT_S,
    ask,
    asked_until_up,
    cluster_client_of,
    remaining,
)
from throttled_views import (
    Algorithm,
    Charge,
    Quota,
    StoreUnavailableError,
    Throttled,
)
from throttled_views.algorithms.kernels import kernel_of
from throttled_views.stores.deciding import AnyTaken, Share
from throttled_views.stores.redis import RedisStore

THREE = Quota.per_day(3)
FIVE = Quota.per_day(5)
# Nothing comes back meanwhile.
HUNDRED = Quota(100, timedelta(days=3_650))


@pytest.fixture(name="store")
async def store_fixture(cluster_urls: list[str]) -> AsyncIterator[RedisStore]:
    """Give a store without keys in a cluster."""
    store = RedisStore(lambda: cluster_client_of(cluster_urls[0]), timeout=PATIENT_S)
    yield store
    await store.aclose()


def node_of(cluster: Cluster, slot: int) -> Server:
    """Return the node that serves *slot*."""
    for first, last, (_, port, *_) in _ranges(cluster):
        if first <= slot <= last:
            return next(node for node in cluster.nodes if node.port == port)
    raise LookupError(slot)


def _ranges(cluster: Cluster) -> list[Any]:
    return ask_list(cluster.nodes[0].port, "CLUSTER", "SLOTS")


# --- where keys are


@pytest.mark.parametrize("using", Algorithm)
@pytest.mark.parametrize("prefix", ["app", "{app}"])
async def test_each_client_gets_its_quota(
    store: RedisStore, using: Algorithm, prefix: str
) -> None:
    """Of 200 clients that ask four times three requests each pass (case 85)."""
    throttled = Throttled(["3/d", "100/w"], using=using, store=store, prefix=prefix)
    clients = [f"{{{n}}}" if n % 2 else f"client {n}" for n in range(200)]
    refused = 0
    for _ in range(4):
        results = await asyncio.gather(*(throttled.limit(each) for each in clients))
        refused += sum(each.limited for each in results)

    assert 200 == refused


async def test_limits_of_one_client_share_a_slot(store: RedisStore) -> None:
    """They are charged together; those of others are elsewhere (case 86)."""
    throttled = Throttled(["3/d", "100/w"], store=store)
    slots: list[set[int]] = [
        {key_slot(rule.key(f"198.51.100.{n}").encode()) for rule in throttled.rules}
        for n in range(250)
    ]

    assert {1} == {len(each) for each in slots}
    assert 200 < len({slot for each in slots for slot in each})


async def test_clients_are_spread(store: RedisStore, cluster: Cluster) -> None:
    """Each of three servers has a fair share of 10,000 clients (case 86)."""
    throttled = Throttled("3/d", store=store)
    for first in range(0, 10_000, 1_000):
        names = [f"client {n}" for n in range(first, first + 1_000)]
        await asyncio.gather(*(throttled.limit(name) for name in names))
    sizes = [int(str(node.ask("DBSIZE"))) for node in cluster.nodes]
    [rule] = throttled.rules
    used = Counter(key_slot(rule.key(f"client {n}").encode()) for n in range(10_000))

    assert 10_000 == sum(sizes)
    assert all(2_500 <= size <= 4_200 for size in sizes)
    assert len(used) > 2_000


# --- limits in several slots


async def test_limits_in_several_slots_are_all_charged(store: RedisStore) -> None:
    """A call to any number of slots is answered in order."""
    charges = [Charge(f"client {n}", FIVE, cost=2) for n in range(9)]
    charges += [Charge("log", FIVE, Algorithm.SLIDING_LOG), charges[0]]
    results = await store.acquire(charges)

    assert [3] * 9 + [4, 1] == [each.state.remaining for each in results]
    assert charges == [each.receipts[0].charge for each in results]


@pytest.mark.parametrize("position", range(3))
async def test_what_is_charged_is_given_back_if_a_later_slot_refuses(
    store: RedisStore, position: int
) -> None:
    """None of the slots is charged, in whichever order they are named."""
    charges = [Charge(f"client {n}", FIVE) for n in range(3)]
    spent = Charge(f"client {position}", FIVE, cost=5)
    await store.acquire([spent])
    for _ in range(2):
        results = await store.acquire(charges)

        assert [n == position for n in range(3)] == [each.limited for each in results]
        assert [5 * (n != position) for n in range(3)] == [
            each.state.remaining for each in results
        ]
        assert [()] * 3 == [each.receipts for each in results]
    for n in range(3):
        assert 5 * (n != position) == await remaining(store, f"client {n}", FIVE)


async def test_what_is_given_back_is_given_back_once(
    store: RedisStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if the request is cancelled right after that."""
    await store.acquire([Charge("first", FIVE, cost=2)])
    await store.acquire([Charge("second", FIVE, cost=5)])
    looked = asyncio.Event()

    async def hang(_charges: object) -> None:
        looked.set()
        await asyncio.Event().wait()

    async def check() -> None:
        await store.acquire([Charge("first", FIVE, cost=2), Charge("second", FIVE)])

    with monkeypatch.context() as patch:
        patch.setattr(store, "peek", hang)
        checking = asyncio.create_task(check())
        await looked.wait()
        checking.cancel()
        await asyncio.wait([checking])

    assert 3 == await remaining(store, "first", FIVE)


@pytest.mark.parametrize("key", ["\ud800", "{\udfff}é", "{}", "", "}{"])
@pytest.mark.parametrize("encoding", ["utf-8", "latin-1"])
async def test_whatever_a_key_is_made_of_it_has_a_slot(
    cluster_urls: list[str], key: str, encoding: str
) -> None:
    """It does not matter which text a client can encode."""
    client = cluster_client_of(cluster_urls[0], encoding=encoding)
    store = RedisStore(client, timeout=PATIENT_S)
    refused = [(await ask(store, key, THREE)).limited for _ in range(4)]
    await store.aclose()
    await client.aclose()

    assert [False, False, False, True] == refused


async def test_a_cost_above_a_capacity_charges_no_slot(store: RedisStore) -> None:
    """What can never be admitted is not asked for anywhere."""
    charges = [Charge(f"client {n}", FIVE, cost=n) for n in range(7)]
    results = await store.acquire([*charges, Charge("zero", Quota.per_day(0))])

    assert [False] * 6 + [True] * 2 == [each.limited for each in results]
    assert [5] * 7 + [0] == [each.state.remaining for each in results]


async def test_all_that_a_store_does_reaches_the_slot(store: RedisStore) -> None:
    """Peeks, refunds, resets and the quick way find each key."""
    keys = [f"client {n}" for n in range(30)]
    results = [await ask(store, key, FIVE, 2) for key in keys]
    await store.refund([each for result in results for each in result.receipts])
    looks = await store.peek([Charge(key, FIVE) for key in keys])
    take = store.taker("client ", str, "", kernel_of(FIVE), 4)
    taken = await asyncio.gather(*(_is_limited(take(str(n))) for n in range(30)))
    await store.reset(keys[1:])
    after = await store.peek([Charge(key, FIVE) for key in keys])

    assert [5] * 30 == [each.state.remaining for each in looks]
    assert [False] * 30 == taken
    assert [1] + [5] * 29 == [each.state.remaining for each in after]


async def test_several_limits_of_a_client_are_in_its_slot(store: RedisStore) -> None:
    """On the quick way, too: they are one call, wherever the client is."""
    shares = [Share("app{", f"}}|{name}", kernel_of(FIVE), 2) for name in "ab"]
    take = store.taker_together(str, shares)
    taken = [[await _is_limited(take(str(n))) for n in range(30)] for _ in range(3)]

    assert [[False] * 30, [False] * 30, [True] * 30] == taken
    assert 1 == await remaining(store, "app{7}|b", FIVE)


async def _is_limited(answer: AnyTaken | Awaitable[AnyTaken]) -> bool:
    limited, *_ = answer if isinstance(answer, tuple) else await answer
    return limited


@pytest.mark.parametrize("decodes", [True, False])
async def test_a_client_of_the_user_is_used(
    cluster_urls: list[str], *, decodes: bool
) -> None:
    """It is not closed, and its own retries are not used."""
    client = cluster_client_of(cluster_urls[0], decode_responses=decodes)
    store = RedisStore(client, timeout=PATIENT_S)
    refused = [(await ask(store, "alice", THREE)).limited for _ in range(4)]
    await store.aclose()

    assert [False, False, False, True] == refused
    assert 0 == await remaining(store, "alice", THREE)
    assert 1 == await client.exists("alice")
    await client.aclose()


# --- as slots move


@contextmanager
def moving(cluster: Cluster, slot: int) -> Generator[tuple[Server, Server]]:
    """Let a slot be on its way to another node; afterwards it is where it was."""
    source = node_of(cluster, slot)
    target = next(node for node in cluster.nodes if node is not source)
    source_id, target_id = (
        str(node.ask("CLUSTER", "MYID")) for node in (source, target)
    )
    target.ask("CLUSTER", "SETSLOT", str(slot), "IMPORTING", source_id)
    source.ask("CLUSTER", "SETSLOT", str(slot), "MIGRATING", target_id)
    try:
        yield source, target
    finally:
        # Without keys: a node does not give up a slot that has some.
        cluster.flushall()
        for node in (source, target, *cluster.nodes):
            node.ask("CLUSTER", "SETSLOT", str(slot), "NODE", source_id)
        wait_until(lambda: node_of(cluster, slot) is source, "the slot is back")
        cluster.heal()


def _keys_in(node: Server, slot: int) -> list[str]:
    return [
        str(key)
        for key in ask_list(node.port, "CLUSTER", "GETKEYSINSLOT", str(slot), "1000")
    ]


def hand_over(source: Server, target: Server, *keys: str) -> None:
    """Move keys to the other node."""
    source.ask("MIGRATE", HOST, str(target.port), "", "0", "5000", "KEYS", *keys)


async def test_a_slot_may_move_while_it_is_used(
    store: RedisStore, cluster: Cluster
) -> None:
    """All that is admitted before, during and after is the quota, and nothing fails."""
    key, slot = "{moving}alice", key_slot(b"moving")
    admitted = sum([not (await ask(store, key, HUNDRED)).limited for _ in range(20)])

    async def some(count: int) -> int:
        results = await asyncio.gather(
            *(ask(store, key, HUNDRED) for _ in range(count))
        )
        return sum(not each.limited for each in results)

    with moving(cluster, slot) as (source, target):
        admitted += await some(20)  # not moved yet
        hand_over(source, target, key)
        admitted += await some(20)  # ASK
        target_id = str(target.ask("CLUSTER", "MYID"))
        for node in (target, source):
            node.ask("CLUSTER", "SETSLOT", str(slot), "NODE", target_id)
        admitted += await some(20)  # MOVED
        assert 20 == await remaining(store, key, HUNDRED)
        admitted += await some(60)

    assert 100 == admitted


async def test_a_new_key_of_a_moving_slot_is_made_where_it_goes(
    store: RedisStore, cluster: Cluster
) -> None:
    """The other node is asked, which may not know the script yet."""
    slot = key_slot(b"fresh")
    with moving(cluster, slot) as (_, target):
        target.ask("SCRIPT", "FLUSH")
        refused = [(await ask(store, "{fresh}alice", THREE)).limited for _ in range(4)]

        assert [False, False, False, True] == refused
        assert ["{fresh}alice"] == _keys_in(target, slot)


async def test_a_node_may_be_restarted(store: RedisStore, cluster: Cluster) -> None:
    """Its clients start anew; the others are charged what was asked, once at most."""
    keys = [f"client {n}" for n in range(60)]
    await asyncio.gather(*(ask(store, key, THREE) for key in keys))
    lost = cluster.nodes[1]
    lost.kill()
    ended = await asyncio.gather(
        *(ask(store, key, THREE) for key in keys), return_exceptions=True
    )
    failed = {
        key
        for key, each in zip(keys, ended, strict=True)
        if isinstance(each, StoreUnavailableError)
    }
    there = {key for key in keys if node_of_key(cluster, key) is lost}
    await asyncio.to_thread(cluster.heal)
    left = [
        (await asked_until_up(store, Charge(key, THREE))).state.remaining
        for key in keys
    ]

    # Redis-py 5.0 gives up all connections when it has lost one.
    assert there <= failed
    for key, has in zip(keys, left, strict=True):
        expected = {2} if key in there else {0, 1} if key in failed else {0}
        assert has in expected


async def test_a_cluster_that_is_gone_is_an_outage(
    store: RedisStore, cluster: Cluster
) -> None:
    """Of a client that knows it, and of one that does not; both find it again."""
    other = RedisStore(lambda: cluster_client_of(cluster.urls[0]), timeout=PATIENT_S)
    await ask(store, "alice", THREE)
    for node in cluster.nodes:
        node.kill()
    with pytest.raises(StoreUnavailableError):  # the connections are lost
        await ask(store, "alice", THREE)
    errors = await asyncio.gather(
        *(ask(each, "alice", THREE) for each in (store, other, store, other)),
        return_exceptions=True,
    )
    await asyncio.to_thread(cluster.heal)
    for each in (store, other):
        assert not (await asked_until_up(each, Charge("alice", THREE))).limited
    await other.aclose()

    assert {StoreUnavailableError} == {type(each) for each in errors}


async def test_a_refusal_needs_no_other_node(
    store: RedisStore, cluster: Cluster
) -> None:
    """A call that one slot refused is refused, whatever became of the others."""
    keys = [f"client {n}" for n in range(60)]
    await asyncio.gather(*(ask(store, key, THREE, 3) for key in keys))
    lost = cluster.nodes[2]
    gone = next(key for key in keys if node_of_key(cluster, key) is lost)
    spent = next(key for key in keys if node_of_key(cluster, key) is not lost)
    lost.kill()
    results = await store.acquire([Charge(spent, THREE), Charge(gone, THREE)])
    await asyncio.to_thread(cluster.heal)
    # A client that has lost a node closes nothing before it has found it again.
    for key in keys:
        await asked_until_up(store, Charge(f"{key} again", THREE))

    assert [True, False] == [each.limited for each in results]


def node_of_key(cluster: Cluster, key: str) -> Server:
    """Return the node that serves *key*; the nodes have a third of the slots each."""
    return cluster.nodes[key_slot(key.encode()) // -(-SLOTS // 3)]
