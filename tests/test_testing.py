"""What tests are given does what it is said to do, and finds the faults of a store."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import TypeAlias

import pytest

from throttled_views import (
    Charge,
    MemoryStore,
    RateLimitResult,
    Receipt,
)
from throttled_views.testing import ManualClock, StoreContract

# --- ManualClock


def test_a_clock_stands_at_its_start() -> None:
    """It shows zero unless told otherwise, and stands still."""
    assert [0, 0] == [ManualClock()(), ManualClock(0.0)()]
    assert 1_500_000 == ManualClock(start=1.5)()


def test_a_clock_is_moved_in_seconds() -> None:
    """It goes forward and back, to the nearest microsecond."""
    clock = ManualClock(10)
    clock.advance(0.25)
    seen = [clock()]
    clock.advance(-20)
    seen.append(clock())
    clock.advance(0.000_000_6)
    seen.append(clock())

    assert [10_250_000, -9_750_000, -9_749_999] == seen


def test_a_clock_is_set() -> None:
    """It can be put anywhere, also before its start."""
    clock = ManualClock(10)
    clock.set(2.000_001)

    assert 2_000_001 == clock()


def test_fractions_add_up() -> None:
    """A tenth of a second ten thousand times is a thousand seconds."""
    clock = ManualClock()
    for _ in range(10_000):
        clock.advance(0.1)

    assert 1_000_000_000 == clock()


# --- StoreContract

Check: TypeAlias = Callable[..., Awaitable[None]]
Results: TypeAlias = Sequence[RateLimitResult]


class Good(MemoryStore):
    """Nothing is wrong with it."""


class OneByOne(MemoryStore):
    """It charges a part of a call that is refused."""

    async def acquire(self, charges: Sequence[Charge], /) -> Results:
        """Ask for each charge on its own."""
        parts = [await MemoryStore.acquire(self, [each]) for each in charges]
        return [result for part in parts for result in part]


class Racing(MemoryStore):
    """It looks, thinks, and then charges."""

    async def acquire(self, charges: Sequence[Charge], /) -> Results:
        """Let others in between the look and the charge."""
        looks = await self.peek(charges)
        await asyncio.sleep(0)
        if any(look.limited for look in looks):
            return await MemoryStore.acquire(self, charges)
        for charge in charges:
            await self.reset([charge.key])
        return await MemoryStore.acquire(self, charges)


class Charging(MemoryStore):
    """Its peeks charge."""

    async def peek(self, charges: Sequence[Charge], /) -> Results:
        """Acquire instead."""
        return await self.acquire(charges)


class Keeping(MemoryStore):
    """It never gives back."""

    async def refund(self, receipts: Sequence[Receipt], /) -> None:
        """Do nothing."""


class Generous(MemoryStore):
    """It gives the whole key back for a part of it."""

    async def refund(self, receipts: Sequence[Receipt], /) -> None:
        """Reset the keys."""
        await self.reset([each.charge.key for each in receipts])


class Remembering(MemoryStore):
    """It never forgets."""

    async def reset(self, keys: Sequence[str], /) -> None:
        """Do nothing."""


class Forgetful(MemoryStore):
    """It forgets keys that are named beside others."""

    async def reset(self, keys: Sequence[str], /) -> None:
        """Forget everything."""
        self.clear()


class Sharing(MemoryStore):
    """It takes keys for one that begin alike."""

    async def acquire(self, charges: Sequence[Charge], /) -> Results:
        """Charge the first word of the key."""
        return await MemoryStore.acquire(
            self,
            [
                Charge(each.key.strip(), each.quota, each.algorithm, each.cost)
                for each in charges
            ],
        )


class ClosedOnce(MemoryStore):
    """It must not be closed again."""

    is_closed = False

    async def aclose(self) -> None:
        """Insist on being open."""
        assert not self.is_closed
        self.is_closed = True


class Hasty(MemoryStore):
    """It lets nobody wait."""

    async def acquire(self, charges: Sequence[Charge], /) -> Results:
        """Refuse who would have to wait."""
        return await MemoryStore.acquire(
            self, [replace(each, max_delay=0.0) for each in charges]
        )


class Crowded(MemoryStore):
    """It gives everybody the same turn."""

    async def acquire(self, charges: Sequence[Charge], /) -> Results:
        """Give the turn back as soon as it is given."""
        results = await MemoryStore.acquire(self, charges)
        for each in results:
            if each.delay:
                await self.refund(each.receipts)
        return results


class Stubborn(MemoryStore):
    """It remembers for ever who was refused."""

    def __init__(self, *, clock: ManualClock) -> None:
        super().__init__(clock=clock)
        self._clock = clock
        self._refused: dict[str, tuple[int, Results]] = {}

    async def acquire(self, charges: Sequence[Charge], /) -> Results:
        """Refuse again what was refused at this time."""
        key = repr(charges)
        at_us, results = self._refused.get(key, (-1, ()))
        if at_us == self._clock():
            return results
        results = await MemoryStore.acquire(self, charges)
        if any(each.limited for each in results):
            self._refused[key] = self._clock(), results
        return results


class Impatient(MemoryStore):
    """Its clock is not the one that it is given."""

    def __init__(self, *, clock: ManualClock) -> None:
        super().__init__(clock=lambda: clock() * 2)


CHECKS: dict[str, Check] = {
    name: check
    for name, check in inspect.getmembers(StoreContract(), inspect.iscoroutinefunction)
    if name.startswith("test_")
}
BROKEN = (
    OneByOne,
    Racing,
    Charging,
    Keeping,
    Generous,
    Remembering,
    Forgetful,
    Sharing,
    ClosedOnce,
    Impatient,
    Hasty,
    Crowded,
    Stubborn,
)


def failures(kind: type[MemoryStore]) -> list[str]:
    """Return the promises that a store of this kind does not keep."""
    failed: list[str] = []
    for name, check in CHECKS.items():
        clock = ManualClock()
        given = {"store": kind(clock=clock), "clock": clock}
        wanted = inspect.signature(check).parameters
        try:
            asyncio.run(_run(check(**{name: given[name] for name in wanted})))
        except AssertionError:
            failed.append(name)
    return failed


async def _run(check: Awaitable[None]) -> None:
    await check


def test_a_good_store_keeps_every_promise() -> None:
    """The contract finds nothing where nothing is wrong."""
    assert [] == failures(Good)


@pytest.mark.parametrize("kind", BROKEN)
def test_a_broken_store_is_found(kind: type[MemoryStore]) -> None:
    """Each fault breaks a promise that the contract checks."""
    assert [] != failures(kind)


@pytest.mark.parametrize("name", CHECKS)
def test_every_promise_is_stated(name: str) -> None:
    """Each check says in a sentence what it proves, and runs without pytest."""
    assert CHECKS[name].__doc__
    assert {"store", "clock"} >= {*inspect.signature(CHECKS[name]).parameters}
