"""What popular keys do to the primaries of a cluster: a simulation, without waiting."""

import random
from binascii import crc_hqx
from collections import Counter
from dataclasses import dataclass
from itertools import accumulate

from throttled_views import MemoryStore, Quota, Throttled

SLOTS = 16_384
LONGEST_DENIAL_S = 1.0  # that `RedisStore` answers by itself


@dataclass(frozen=True, slots=True)
class Traffic:
    """
    Requests at random, of clients some of which ask far more often than others.

    Attributes:
        rate: Requests in a second.
        seconds: For how long.
        clients: How many there are.
        skew: How unequal they are: the client of rank n asks n**-skew times as often as
            the first. At 0 all are equal.
    """

    rate: int = 10_000
    seconds: float = 1.0
    clients: int = 10_000
    skew: float = 1.0


@dataclass(frozen=True, slots=True)
class Reached:
    """
    What came of it.

    Attributes:
        requests: All requests.
        refused: Those that were refused.
        local: Those of them that a process refused by itself, without a server.
        busiest: What the busiest primary was asked, next to its fair share.
    """

    requests: int
    refused: int
    local: int
    busiest: float


async def reached(
    traffic: Traffic, quota: Quota, processes: int, primaries: int
) -> Reached:
    """Send *traffic* to *processes*, whose keys are on *primaries*."""
    chance = random.Random(1)  # noqa: S311 - no secret
    weights = [rank**-traffic.skew for rank in range(1, traffic.clients + 1)]
    sums = [*accumulate(weights)]
    names = [f"client-{rank}" for rank in range(traffic.clients)]
    count = int(traffic.rate * traffic.seconds)
    now_us = 0
    throttled = Throttled(quota, store=MemoryStore(clock=lambda: now_us))
    denied: list[dict[str, float]] = [{} for _ in range(processes)]
    asked: Counter[int] = Counter()
    refused = local = 0
    for number, name in enumerate(chance.choices(names, cum_weights=sums, k=count)):
        now_us = number * 1_000_000 // traffic.rate
        known = chance.choice(denied)
        if known.get(name, -1) > now_us:
            refused, local = refused + 1, local + 1
            continue
        asked[primary_of(name, primaries)] += 1
        result = await throttled.limit(name)
        if result.limited:
            refused += 1
            wait_s = min(LONGEST_DENIAL_S, result.state.retry_after or LONGEST_DENIAL_S)
            known[name] = now_us + wait_s * 1_000_000
    fair = asked.total() / primaries
    return Reached(count, refused, local, max(asked.values()) / fair)


def primary_of(name: str, primaries: int) -> int:
    """Return which of *primaries* has a key: they share the slots evenly."""
    slot: int = crc_hqx(name.encode(), 0) % SLOTS
    return slot * primaries // SLOTS
