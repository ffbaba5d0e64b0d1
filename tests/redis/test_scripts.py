"""
The scripts and the kernels in Python are equal, number for number.

The same history goes to a memory store, which decides in Python, and to two Redis
stores: one that is asked each time, and one that answers some refusals itself.
"""

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from itertools import count
from typing import NamedTuple, Self, TypeAlias

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.clock import ManualClock
from tests.redis.stores import forget_denials
from tests.strategies import MONTH_US, MOST_UNITS, UNITS_US, quotas
from throttled_views import (
    Algorithm,
    Charge,
    MemoryStore,
    Quota,
    RateLimitResult,
    Receipt,
)
from throttled_views.algorithms.kernels import counter_of
from throttled_views.results import Decision
from throttled_views.stores.base import QuickStore
from throttled_views.stores.deciding import told
from throttled_views.stores.redis import RedisStore

TODAY_S = 1_790_000_000.0  # so that times have as many digits as they really have
EIGHT_HOURS_US = 8 * UNITS_US["h"]
KEYS = ("a", "b", "{c}d", "é")
FAMILIES = (
    Algorithm.TOKEN_BUCKET,
    Algorithm.FIXED_WINDOW,
    Algorithm.SLIDING_WINDOW,
    Algorithm.SLIDING_LOG,
)
US_PER_S = 1_000_000
EXAMPLES = 3 * settings().max_examples

Results: TypeAlias = Sequence[RateLimitResult]


class Stores:
    """Three stores with one clock, which must agree on everything."""

    def __init__(self, url: str) -> None:
        self.clock = ManualClock(TODAY_S)
        self.memory = MemoryStore(clock=self.clock)
        self.asked = RedisStore(url, timeout=20, clock=self.clock)
        other = f"{url.removesuffix('/0')}/1"
        self.denying = RedisStore(other, timeout=20, clock=self.clock)
        self.decisions = 0

    async def acquire(self, charges: Sequence[Charge]) -> Results:
        """
        Charge in all stores; return the results, which are equal.

        What is refused without asking the server tells of the limits that refuse. The
        others, of the same call, may have been charged since.
        """
        self.decisions += len(charges)
        wanted = await self.memory.acquire(charges)
        forget_denials(self.asked, *{each.key for each in charges})
        assert list(wanted) == list(await self.asked.acquire(charges))
        answered = await self.denying.acquire(charges)
        refusing = [each.limited for each in wanted]
        assert refusing == [each.limited for each in answered]
        for wanted_one, answered_one in zip(wanted, answered, strict=True):
            if wanted_one.limited or not any(refusing):
                assert wanted_one == answered_one
        return wanted

    async def take(self, charge: Charge) -> Decision:
        """Charge one key on the way of nearly every request, in all stores."""
        self.decisions += 1
        forget_denials(self.asked, charge.key)
        wanted, asked, denied = [
            await _taken(store, charge)
            for store in (self.memory, self.asked, self.denying)
        ]
        assert wanted == asked
        assert wanted == denied
        return wanted

    async def peek(self, charges: Sequence[Charge]) -> Results:
        """Look in all stores; return the results, which are equal."""
        wanted = await self.memory.peek(charges)
        assert list(wanted) == list(await self.asked.peek(charges))
        assert list(wanted) == list(await self.denying.peek(charges))
        return wanted

    async def refund(self, receipts: Sequence[Receipt]) -> None:
        """Give back in all stores."""
        for store in (self.memory, self.asked, self.denying):
            await store.refund(receipts)

    async def reset(self, keys: Sequence[str]) -> None:
        """Forget in all stores."""
        for store in (self.memory, self.asked, self.denying):
            await store.reset(keys)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.asked.aclose()
        await self.denying.aclose()


async def _taken(store: QuickStore, charge: Charge) -> Decision:
    kernel = counter_of(charge)
    take = store.taker("", str, "", kernel, charge.cost)
    answer = take(charge.key)
    taken = answer if isinstance(answer, tuple) else await answer
    return told(taken, kernel, charge.cost)


# --- scenarios


class Step(NamedTuple):
    """After so many seconds, charge a cost to a quota."""

    after_s: float
    cost: int
    quota: Quota
    refunds: bool = False


FIVE, SEVEN = Quota.per_minute(5), Quota.per_minute(7)
HUGE = Quota.per_day(MOST_UNITS)
SLOW = Quota(1, timedelta(days=30))
SPARE_US = 0.000_001

SCENARIOS: dict[str, Sequence[Step]] = {
    "a burst, and what comes back": [
        *[Step(0, 1, FIVE)] * 7,
        *[Step(11.999_999, 1, FIVE), Step(SPARE_US, 1, FIVE)] * 12,
    ],
    "fractions are carried": [Step(8.571_428, 1, SEVEN)] * 30,
    "costs of zero, of all and of too much": [
        Step(1, cost, FIVE) for cost in (0, 5, 0, 6, 1, 5, 0, 2, 3)
    ],
    "windows end": [Step(after, 2, FIVE) for after in (29, 29, 1.999, 0.001, 30, 61)],
    "nothing is asked of a key that has spent too much": [
        Step(0, 7, SEVEN),
        Step(0, 0, FIVE),
        Step(0, 1, FIVE),
    ],
    "a smaller quota, and the former again": [
        Step(0, 4, SEVEN),
        Step(0, 1, FIVE),
        Step(0, 1, SEVEN),
        Step(13, 1, FIVE),
        Step(13, 1, SEVEN),
    ],
    "another period": [
        Step(0, 4, FIVE),
        Step(1, 3, Quota.per_hour(6)),
        Step(1, 2, FIVE),
        Step(60, 2, Quota.per_second(6)),
        Step(60, 2, FIVE),
    ],
    "a clock that is set back": [
        Step(0, 5, FIVE),
        Step(-28_800, 1, FIVE),
        Step(12, 1, FIVE),
        Step(48, 1, FIVE),
        Step(60, 1, FIVE),
        Step(60, 5, FIVE),
    ],
    "a clock that is set back under another quota": [
        Step(0, 5, FIVE),
        Step(-28_800, 6, SEVEN),
        Step(12, 4, FIVE),
        Step(48, 1, SEVEN),
        Step(60, 1, FIVE),
        Step(60, 5, FIVE),
    ],
    "given back": [
        Step(0, 3, FIVE, refunds=True),
        Step(1, 3, FIVE),
        Step(1, 2, FIVE, refunds=True),
        Step(1, 2, FIVE),
        Step(1, 1, FIVE),
    ],
    "numbers of thirteen digits": [
        Step(0.000_003, MOST_UNITS // part, HUGE) for part in (3, 3, 3, 1, 7, 1)
    ],
    "a month": [Step(0, 1, SLOW), Step(2_591_999, 1, SLOW), Step(1, 1, SLOW)],
    "nothing": [Step(0, cost, Quota.per_day(0)) for cost in (0, 1, 2)],
}


@pytest.mark.parametrize("using", Algorithm)
@pytest.mark.parametrize("steps", SCENARIOS.values(), ids=SCENARIOS)
async def test_a_scenario_is_told_alike(
    redis_url: str, steps: Sequence[Step], using: Algorithm
) -> None:
    """By every algorithm the scripts answer what the kernels in Python answer."""
    async with Stores(redis_url) as stores:
        for after_s, cost, quota, refunds in steps:
            stores.clock.advance(after_s)
            charge = Charge("alice", quota, using, cost)
            await stores.peek([charge, Charge("alice", quota, using, cost + 1)])
            [result] = await stores.acquire([charge])
            if refunds:
                await stores.refund(result.receipts)
            await stores.peek([charge])


# --- histories


@st.composite
def plain_quotas(draw: st.DrawFn) -> Quota:
    """Draw quotas without a burst, which every algorithm can honour."""
    limit = draw(
        st.integers(1, 9) | st.integers(1, MOST_UNITS) | st.just(MOST_UNITS),
        label="limit",
    )
    period_us = draw(
        st.sampled_from(list(UNITS_US.values()))
        | st.integers(1, 100)
        | st.integers(1, MONTH_US)
        | st.just(MONTH_US),
        label="period",
    )
    return Quota(limit, timedelta(microseconds=period_us))


@dataclass(frozen=True)
class Held:
    """How a key is held, and how much is asked for: so many parts of 12 and units."""

    quota: Quota
    using: Algorithm
    max_delay: float = 0.0
    parts: int = 0
    units: int = 0

    def charge(self, key: str) -> Charge:
        """Return a charge to *key*."""
        cost = max(0, self.quota.burst * self.parts // 12 + self.units)
        return Charge(key, self.quota, self.using, cost, max_delay=self.max_delay)


@dataclass(frozen=True)
class Acquire:
    """Charge keys together."""

    charges: Sequence[tuple[str, Held]]


@dataclass(frozen=True)
class Take:
    """Charge one key on the quick way."""

    key: str
    held: Held


@dataclass(frozen=True)
class Peek:
    """Look."""

    charges: Sequence[tuple[str, Held]]


@dataclass(frozen=True)
class Refund:
    """Give a former charge back."""

    which: int


@dataclass(frozen=True)
class Reset:
    """Forget a key."""

    key: str


@dataclass(frozen=True)
class Pass:
    """Let time pass; from the announced wait on, if it *waits*."""

    us: int
    waits: bool


@dataclass(frozen=True)
class SetBack:
    """Set the clock back."""

    us: int


Event: TypeAlias = Acquire | Take | Peek | Refund | Reset | Pass | SetBack


Way: TypeAlias = tuple[Quota, Algorithm, float]


def _held(way: Way, amount: tuple[int, int]) -> Held:
    return Held(*way, *amount)


def delays_within(quotas: Sequence[Quota]) -> st.SearchStrategy[float]:
    """Draw seconds to wait for which no more requests wait than there may be."""
    most_us = min(MOST_UNITS * each.period_us // each.limit for each in quotas)
    most_us = min(most_us, UNITS_US["d"])
    return (st.sampled_from([0, 1, US_PER_S]) | st.integers(0, most_us)).map(
        lambda us: min(us, most_us) / US_PER_S
    )


@st.composite
def histories(draw: st.DrawFn) -> Sequence[Event]:
    """Draw what happens to a few keys that are held to a few quotas."""
    plain = draw(st.lists(plain_quotas(), min_size=1, max_size=3), label="plain")
    with_burst = draw(st.lists(quotas(), min_size=1, max_size=2), label="buckets")
    zero = Quota.per_second(0)
    amounts = st.sampled_from(
        [(0, 0), (0, 1), (0, 2), (4, 1), (6, 0), (12, 0), (12, 1)]
    )
    delay = draw(delays_within([*plain, *with_burst]), label="delay")
    ways: list[Way] = [(quota, using, 0.0) for quota in plain for using in FAMILIES]
    ways += [(quota, Algorithm.GCRA, 0.0) for quota in with_burst]
    turns = [(quota, Algorithm.GCRA, delay) for quota in (*plain, *with_burst)]
    ways += [*turns, (plain[0], Algorithm.GCRA, delay / 2)]
    # Mostly a few ways, so that keys are held to them again.
    few = draw(st.lists(st.sampled_from(ways), min_size=1, max_size=4), label="few")
    held = st.builds(
        _held,
        st.sampled_from(few)
        | st.sampled_from(few)
        | st.sampled_from(
            [*ways, (zero, FAMILIES[1], 0.0), (zero, FAMILIES[0], delay)]
        ),
        amounts,
    )
    keys = st.sampled_from(KEYS[:2]) | st.sampled_from(KEYS)
    charges = st.lists(st.tuples(keys, held), min_size=1, max_size=3)
    spans = st.sampled_from([0, 1, 1_000, US_PER_S, EIGHT_HOURS_US]) | st.integers(
        0, EIGHT_HOURS_US
    )
    event = st.one_of(
        st.builds(Acquire, charges),
        st.builds(Acquire, charges),
        st.builds(Take, keys, held),
        st.builds(Take, keys, held),
        st.builds(Peek, charges),
        st.builds(Refund, st.integers(0, 9)),
        st.builds(Reset, keys),
        st.builds(Pass, spans | st.integers(-1, 1), st.booleans()),
        st.builds(Pass, spans | st.integers(-1, 1), st.just(value=True)),
        st.builds(SetBack, spans),
    )
    return draw(st.lists(event, min_size=20, max_size=40), label="events")


@dataclass
class Player:
    """Plays a history on keys of its own."""

    stores: Stores
    prefix: str
    wait_us: int = 0
    receipts: list[Receipt] = field(default_factory=list[Receipt])
    written: dict[str, Charge] = field(default_factory=dict[str, Charge])

    async def play(self, history: Iterable[Event]) -> None:
        """Let everything happen; afterwards all keys stand alike."""
        for event in history:
            await self._play(event)
        await self.stores.peek(list(self.written.values()))

    async def _play(self, event: Event) -> None:
        match event:
            case Acquire(charges):
                await self._acquire(self._charges(charges))
            case Take(key, held):
                await self._take(held.charge(self.prefix + key))
            case Peek(charges):
                await self.stores.peek(self._charges(charges))
            case Refund(which) if self.receipts:
                await self.stores.refund([self.receipts[which % len(self.receipts)]])
            case Reset(key):
                await self.stores.reset([self.prefix + key])
                self.written.pop(self.prefix + key, None)
            case Pass(us, waits):
                passed_us = max(0, us + self.wait_us * waits)
                self.stores.clock.advance(passed_us / US_PER_S)
            case SetBack(us):
                await self._set_back(us)
            case _:
                pass

    def _charges(self, drawn: Sequence[tuple[str, Held]]) -> list[Charge]:
        """Hold a key that is named twice to one quota."""
        first: dict[str, Held] = {}
        for key, held in drawn:
            first.setdefault(key, held)
        return [
            replace(first[key], parts=held.parts, units=held.units).charge(
                self.prefix + key
            )
            for key, held in drawn
        ]

    async def _acquire(self, charges: Sequence[Charge]) -> None:
        results = await self.stores.acquire(charges)
        waits = [each.state.retry_after for each in results if each.limited]
        if waits:
            longest = max((each for each in waits if each is not None), default=0.0)
            self.wait_us = round(longest * US_PER_S)
            return
        self.written |= {charge.key: charge for charge in charges}
        self.receipts += [each for result in results for each in result.receipts]

    async def _take(self, charge: Charge) -> None:
        if not 0 < charge.quota.burst >= charge.cost:
            return
        decision = await self.stores.take(charge)
        if decision.limited:
            self.wait_us = decision.retry_us or 0
            return
        self.written[charge.key] = charge
        self.receipts.append(Receipt(charge, decision.at_us))

    async def _set_back(self, us: int) -> None:
        """
        Set the clock back, and ask for each key.

        A key that is whole may be there or not, and would be taken back with the clock;
        a key that nobody asks for is not pulled back, to look does not do it.
        """
        known = list(self.written.values())
        looks = await self.stores.peek(known)
        whole = [
            charge.key
            for charge, look in zip(known, looks, strict=True)
            if look.state.reset_after == 0
        ]
        await self.stores.reset(whole)
        for key in whole:
            del self.written[key]
        self.stores.clock.advance(-us / US_PER_S)
        for charge in list(self.written.values()):
            await self._acquire([replace(charge, cost=1)])


def test_histories_are_told_alike(redis_url: str) -> None:
    """Whatever happens, three stores give equal results, and all keys stand alike."""
    decisions, number = 0, count()

    async def play(history: Sequence[Event]) -> None:
        nonlocal decisions
        async with Stores(redis_url) as stores:
            await Player(stores, f"{next(number)}:").play(history)
            decisions += stores.decisions

    with asyncio.Runner() as runner:

        @settings(max_examples=EXAMPLES)
        @given(histories())
        def check(history: Sequence[Event]) -> None:
            runner.run(play(history))

        check()

    assert decisions > 10 * EXAMPLES
