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
    Quota,
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
        """Tell who would have to wait for how long, and note nothing of it."""
        looks = await self.peek(charges)
        if any(each.delay for each in looks):
            return looks
        return await MemoryStore.acquire(self, charges)


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


class Late(MemoryStore):
    """It gives what was charged to a window that has ended to the one that it is."""

    def __init__(self, *, clock: ManualClock) -> None:
        super().__init__(clock=clock)
        self._clock = clock

    async def refund(self, receipts: Sequence[Receipt], /) -> None:
        """Take all for charged just now."""
        now_us = self._clock()
        await MemoryStore.refund(
            self, [replace(each, at_us=now_us) for each in receipts]
        )


class Starting(MemoryStore):
    """It counts anew when a quota changes."""

    def __init__(self, *, clock: ManualClock) -> None:
        super().__init__(clock=clock)
        self._quotas: dict[str, Quota] = {}

    async def acquire(self, charges: Sequence[Charge], /) -> Results:
        """Forget the keys that had another quota."""
        for each in charges:
            if self._quotas.setdefault(each.key, each.quota) != each.quota:
                await self.reset([each.key])
            self._quotas[each.key] = each.quota
        return await MemoryStore.acquire(self, charges)


class Apart(MemoryStore):
    """It counts each quota of a key apart."""

    async def acquire(self, charges: Sequence[Charge], /) -> Results:
        """Charge a key of this quota's own."""
        return await MemoryStore.acquire(self, [_of_quota(each) for each in charges])

    async def peek(self, charges: Sequence[Charge], /) -> Results:
        """Look at such a key."""
        return await MemoryStore.peek(self, [_of_quota(each) for each in charges])

    async def reset(self, keys: Sequence[str], /) -> None:
        """Forget those of all quotas that the contract has."""
        quotas = [Quota.per_minute(each) for each in (5, 10, 20)]
        await MemoryStore.reset(
            self, [f"{quota} {each}" for each in keys for quota in quotas]
        )


def _of_quota(charge: Charge) -> Charge:
    return replace(charge, key=f"{charge.quota} {charge.key}")


class Dropping(MemoryStore):
    """It drops keys a little before they are whole again."""

    def __init__(self, *, clock: ManualClock) -> None:
        super().__init__(clock=clock)
        self._clock = clock
        self._whole_us: dict[str, float] = {}

    async def acquire(self, charges: Sequence[Charge], /) -> Results:
        """Drop those that nearly are, and note when the others will be."""
        await self._drop_whole(charges)
        results = await MemoryStore.acquire(self, charges)
        for charge, result in zip(charges, results, strict=True):
            reset_us = result.state.reset_after * 1_000_000
            self._whole_us[charge.key] = self._clock() + reset_us
        return results

    async def peek(self, charges: Sequence[Charge], /) -> Results:
        """Drop those that nearly are, and look."""
        await self._drop_whole(charges)
        return await MemoryStore.peek(self, charges)

    async def _drop_whole(self, charges: Sequence[Charge]) -> None:
        for each in charges:
            if 0 < self._whole_us.get(each.key, 0) - self._clock() <= 1:
                await self.reset([each.key])


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
    Late,
    Starting,
    Apart,
    Dropping,
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


@pytest.mark.parametrize(
    ("kind", "promise"),
    [
        (Late, "test_a_refund_is_never_above_full"),
        (Starting, "test_a_changed_quota_is_charged_to_the_same_count"),
        (Apart, "test_a_changed_quota_keeps_the_count"),
        (Dropping, "test_a_reset_is_as_far_as_it_is_told"),
        (Crowded, "test_a_request_may_wait_for_its_turn"),
    ],
)
def test_the_broken_promise_is_named(kind: type[MemoryStore], promise: str) -> None:
    """What fails is, at least, the test that was written for this fault."""
    assert promise in failures(kind)


@pytest.mark.parametrize("name", CHECKS)
def test_every_promise_is_stated(name: str) -> None:
    """Each check says in a sentence what it proves, and runs without pytest."""
    assert CHECKS[name].__doc__
    assert {"store", "clock"} >= {*inspect.signature(CHECKS[name]).parameters}
