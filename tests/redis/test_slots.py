"""A slot of a cluster that is on its way from one node to another."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest
from redis.asyncio import RedisCluster
from redis.crc import key_slot

from tests.redis.servers import HOST, Cluster, ReplyError, Server, ask_list, wait_until
from tests.redis.stores import PATIENT_S, cluster_client_of
from throttled_views import Charge, Quota, StoreUnavailableError
from throttled_views.stores.redis import RedisStore

MONTH = timedelta(days=30)  # in which nothing comes back while a test runs
THREE, FIVE, SEVEN = (Quota(limit, MONTH) for limit in (3, 5, 7))


@pytest.fixture(name="client")
async def client_fixture(cluster_urls: list[str]) -> AsyncIterator[RedisCluster]:
    """Give a client of a cluster without keys, and close it."""
    client = cluster_client_of(cluster_urls[0])
    yield client
    await client.aclose()


@pytest.fixture(name="store")
async def store_fixture(client: RedisCluster) -> AsyncIterator[RedisStore]:
    """Give a store that uses the client of a user."""
    store = RedisStore(client, timeout=PATIENT_S)
    yield store
    await store.aclose()


async def nodes_of(client: RedisCluster) -> list[Any]:
    """Return what a client knows of nodes; their annotations are not complete."""
    library: Any = client
    await library.initialize()
    return [*library.get_nodes()]


async def told(store: RedisStore, *charges: Charge) -> list[tuple[bool, int]]:
    """Charge together; return for each if it is refused, and what remains."""
    results = await store.acquire(charges)
    return [(each.limited, each.state.remaining) for each in results]


async def remaining(store: RedisStore, *charges: Charge) -> list[int]:
    """Look, and return what remains."""
    return [each.state.remaining for each in await store.peek(charges)]


@dataclass(frozen=True)
class Slot:
    """A slot that moves from one node to another, and the node that looks on."""

    number: int
    source: Server
    target: Server
    third: Server

    def begin(self) -> None:
        """Announce it: keys that are not in the source are asked for in the target."""
        self._tell(self.target, "IMPORTING", _id_of(self.source))
        self._tell(self.source, "MIGRATING", _id_of(self.target))

    def carry(self, *keys: str) -> None:
        """Take *keys* over."""
        target = (HOST, str(self.target.port), "", "0", "5000")
        self.source.ask("MIGRATE", *target, "KEYS", *keys)

    def carry_all(self) -> None:
        """Take over whatever is there."""
        left = ("CLUSTER", "GETKEYSINSLOT", str(self.number), "1000")
        while keys := ask_list(self.source.port, *left):
            self.carry(*map(str, keys))

    def finish(self) -> None:
        """Let the target own the slot; return when all nodes have heard of it."""
        for node in self._nodes:
            self._tell(node, "NODE", _id_of(self.target))
        wait_until(
            lambda: len({_epoch_of(node) for node in self._nodes}) == 1,
            "the nodes agree on the epoch",
        )

    def bring_back(self) -> None:
        """Let the source own the slot as before, without its keys."""
        for node in self._nodes:
            self._tell(node, "STABLE")
            node.flushall()
        if _owns(self.target, "{moving}"):
            back = Slot(self.number, self.target, self.source, self.third)
            back.begin()
            back.finish()

    @property
    def _nodes(self) -> tuple[Server, Server, Server]:
        # The target comes first: it makes a new epoch, which is why it is believed.
        return self.target, self.source, self.third

    def _tell(self, node: Server, *words: str) -> None:
        node.ask("CLUSTER", "SETSLOT", str(self.number), *words)


def _id_of(node: Server) -> str:
    return str(node.ask("CLUSTER", "MYID"))


def _epoch_of(node: Server) -> str:
    told = str(node.ask("CLUSTER", "INFO")).split()
    return next(line for line in told if line.startswith("cluster_current_epoch:"))


def _owns(node: Server, key: str) -> bool:
    try:
        node.ask("GET", key)
    except ReplyError:  # it names the owner
        return False
    return True


@pytest.fixture(name="slot")
def slot_fixture(cluster: Cluster, cluster_urls: list[str]) -> Iterator[Slot]:
    """Give the slot of "{moving}", which is brought back afterwards."""
    source = next(node for node in cluster.nodes if _owns(node, "{moving}"))
    target, third = (node for node in cluster.nodes if node is not source)
    slot = Slot(key_slot(b"moving"), source, target, third)
    yield slot
    slot.bring_back()


def give_back(node: Any, connection: Any) -> None:  # noqa: ANN401 - redis-py tells none
    """Give a connection back to the free ones of its node."""
    # Redis-py 5 has no method for it.
    getattr(node, "release", node._free.append)(connection)


@pytest.mark.parametrize("connections", range(1, 9))
async def test_an_ask_is_followed_however_many_connections_there_are(
    store: RedisStore, slot: Slot, client: RedisCluster, connections: int
) -> None:
    """A node listens to a command on the very connection that says ASKING."""
    for node in await nodes_of(client):
        for connection in [node.acquire_connection() for _ in range(connections)]:
            await connection.connect()
            give_back(node, connection)
    slot.begin()

    answered = [await told(store, Charge("{moving}", THREE)) for _ in range(4)]

    assert [[(False, 2)], [(False, 1)], [(False, 0)], [(True, 0)]] == answered


async def test_the_other_methods_follow_a_slot(store: RedisStore, slot: Slot) -> None:
    """What was charged in one node is seen, given back and forgotten in the other."""
    charge = Charge("{moving}", SEVEN)
    results = [(await store.acquire([charge]))[0] for _ in range(3)]
    slot.begin()
    slot.carry("{moving}")

    assert [4] == await remaining(store, charge)
    await store.refund(results[0].receipts)
    assert [5] == await remaining(store, charge)
    await store.reset(["{moving}"])
    assert [7] == await remaining(store, charge)


async def test_a_node_that_the_client_does_not_know_is_asked(
    store: RedisStore, slot: Slot, client: RedisCluster
) -> None:
    """The first slot of a new node is on its way before clients hear of the node."""
    charge = Charge("{moving}", SEVEN)
    await store.acquire([charge])
    for node in await nodes_of(client):
        if node.port == slot.target.port:
            await client.nodes_manager.nodes_cache.pop(node.name).disconnect()
    slot.begin()
    slot.carry("{moving}")

    assert [(False, 5)] == await told(store, charge)


async def test_limits_of_one_client_that_are_torn_apart_are_not_decided_wrongly(
    store: RedisStore, slot: Slot
) -> None:
    """While one key is here and one there, nobody decides; then both count on."""
    charges = [Charge("{moving}1", SEVEN), Charge("{moving}2", FIVE)]
    await store.acquire(charges)
    slot.begin()
    slot.carry("{moving}1")

    with pytest.raises(StoreUnavailableError):
        await store.acquire(charges)
    slot.carry_all()

    assert [(False, 5), (False, 3)] == await told(store, *charges)


async def test_a_slot_moves_under_load(store: RedisStore, slot: Slot) -> None:
    """Clients are answered all the time, and not one more passes than may."""
    charge = Charge("{moving}", Quota(1_000, MONTH))
    admitted = 0

    async def hammer() -> None:
        nonlocal admitted
        while not moved.is_set() or admitted < 300:
            [result] = await store.acquire([charge])
            admitted += not result.limited

    moved = asyncio.Event()
    hammers = [asyncio.create_task(hammer()) for _ in range(8)]
    for move in (slot.begin, slot.carry_all, slot.finish):
        await asyncio.to_thread(move)
    moved.set()
    await asyncio.gather(*hammers)

    assert [1_000 - admitted] == await remaining(store, charge)
