"""
The memory store: one process, bounded, safe from several threads and event loops.

How it keeps its promises:

1. Keys are spread over *shards*, dicts of a few hundred entries. One big dict would
   stop the loop for tens of milliseconds each time it grows.
2. An entry is one int: the instant at which its bucket was empty, shifted left, and the
   number of its `Bucket` in the shard. Such dicts cost the least memory, and the
   garbage collector does not look into them.
3. There is no timer. Each new key pays for looking at a few old entries, shard after
   shard, and drops those whose bucket is full again: they equal a fresh key.
4. At `max_keys` the entries nearest to full go, exactly so in a small store and among a
   few hundred in a large one. An exhausted entry goes only when nothing else is found,
   so that a client cannot push its own out with a flood of new keys.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias, TypeVar

from throttled_views.algorithms.bucket import (
    Bucket,
    bucket_of,
    rebase,
    refund,
    settle,
    take,
    tell,
)
from throttled_views.errors import StoreUnavailableError
from throttled_views.results import (
    Charge,
    Decision,
    RateLimitResult,
    Receipt,
    result_of,
)
from throttled_views.stores.base import Clock

__all__ = ["MemoryStore"]

_logger = logging.getLogger("throttled_views")

_NS_PER_US = 1_000
_SHARD_SIZE = 300
_NUMBER_BITS = 10
_NUMBER_MASK = (1 << _NUMBER_BITS) - 1
_LOOKS_PER_NEW_KEY = 2  # entries looked at, in search of full ones
_LOOKS_PER_SHARD = 2  # what opening a shard costs, counted in entries
_SHARDS_TRIED = 4  # before an exhausted entry is evicted


_SubjectT = TypeVar("_SubjectT")

Taken: TypeAlias = tuple[bool, int, int, str]
"""
What a decision found: all that it takes to tell where a key stands, as `told` does.

Whether it is refused, what its bucket holds now, in ticks, the time of the decision in
microseconds, and the key.
"""


def told(taken: Taken, bucket: Bucket, cost: int) -> Decision:
    """Return *taken*, a decision by *bucket*, as `tell` tells it."""
    limited, level, now_us, _ = taken
    return tell(limited, now_us * bucket.scale - level, now_us, bucket, cost)


def _in_nanoseconds(clock: Clock) -> Clock:
    return lambda: clock() * _NS_PER_US


class _Shard:
    """A few hundred entries, and the buckets they were written for."""

    __slots__ = ("buckets", "entries")

    def __init__(self) -> None:
        self.entries: dict[str, int] = {}
        self.buckets: list[Bucket] = []

    def read(self, key: str, now_us: int, bucket: Bucket) -> int | None:
        """
        Return the settled instant of *key* in ticks of *bucket*, None if it has none.

        An instant in the future is a clock that was set back. The repaired value is
        stored at once: left in place, it would refuse until the old time comes again.
        """
        value = self.entries.get(key)
        if value is None:
            return None
        empty_at = value >> _NUMBER_BITS
        written_for = self.buckets[value & _NUMBER_MASK]
        if empty_at > now_us * written_for.scale:
            empty_at = now_us * written_for.scale
            self.entries[key] = self._packed(empty_at, written_for)
        if written_for is bucket:
            return settle(empty_at, now_us, bucket)
        return rebase(empty_at, now_us, written_for, bucket)

    def write(self, key: str, empty_at: int, bucket: Bucket) -> None:
        """Store the instant of *key*, in ticks of *bucket*."""
        self.entries[key] = self._packed(empty_at, bucket)

    def refund(self, charge: Charge, now_us: int) -> None:
        """Give *charge* back, in tokens of the bucket the key is held to by now."""
        if (value := self.entries.get(charge.key)) is not None:
            bucket = self.buckets[value & _NUMBER_MASK]
            empty_at = settle(value >> _NUMBER_BITS, now_us, bucket)
            self.write(
                charge.key, refund(empty_at, now_us, bucket, charge.cost), bucket
            )

    def _packed(self, empty_at: int, bucket: Bucket) -> int:
        try:
            number = self.buckets.index(bucket)
        except ValueError:
            if len(self.buckets) > _NUMBER_MASK:
                self._forget_unused_buckets()
            number = len(self.buckets)
            if number > _NUMBER_MASK:
                msg = f"Over {_NUMBER_MASK} keys of one shard have different quotas"
                raise StoreUnavailableError(msg) from None
            self.buckets.append(bucket)
        return empty_at << _NUMBER_BITS | number

    def _forget_unused_buckets(self) -> None:
        self.keep(list(self.entries.items()))

    def keep(self, items: Iterable[tuple[str, int]]) -> None:
        """Hold only *items* from now on, in a dict that is as small as it can be."""
        old = self.buckets
        self.entries, self.buckets = {}, []
        for key, value in items:
            self.write(key, value >> _NUMBER_BITS, old[value & _NUMBER_MASK])

    def live(self, now_us: int) -> list[tuple[str, int]]:
        """Return the entries that are not full at *now_us*."""
        oldest = [now_us * bucket.scale - bucket.full for bucket in self.buckets]
        return [
            item
            for item in self.entries.items()
            if item[1] >> _NUMBER_BITS > oldest[item[1] & _NUMBER_MASK]
        ]

    def by_fullness(self, now_us: int) -> list[tuple[bool, int, str]]:
        """Return (has a token, level, key) of all entries, the first to go first."""
        found: list[tuple[bool, int, str]] = []
        for key, value in self.entries.items():
            bucket = self.buckets[value & _NUMBER_MASK]
            ticks = now_us * bucket.scale - (value >> _NUMBER_BITS)
            found.append((ticks >= bucket.token, (ticks << 32) // bucket.full, key))
        found.sort(reverse=True)
        return found


class MemoryStore:
    """
    Keep keys in this process; they are gone when it ends.

    Safe to use from several threads and several event loops at once.

    Args:
        max_keys: Keys to keep at most. What happens at this bound is counted in
            `evictions` and logged once.
        clock: Clock to use, in microseconds, for tests; the monotonic one unless given,
            which no step of the wall clock moves.

    Raises:
        ValueError: *max_keys* is below 1.

    Attributes:
        evictions: Entries dropped at the bound although they were not full.
        exhausted_evictions: Those of them that had no request left, dropped because
            nothing better was found; each is a client that got its quota back early.
    """

    def __init__(
        self, *, max_keys: int = 1_000_000, clock: Clock | None = None
    ) -> None:
        if max_keys < 1:
            msg = f"max_keys must be 1 or more, not {max_keys!r}"
            raise ValueError(msg)
        self.max_keys = max_keys
        self.evictions = 0
        self.exhausted_evictions = 0
        # In nanoseconds, as the system has it: one call less for each request.
        self._now_ns = time.monotonic_ns if clock is None else _in_nanoseconds(clock)
        self._lock = threading.Lock()
        self._shards = [_Shard() for _ in range(-(-max_keys // _SHARD_SIZE))]
        self._count = 0
        self._looks = 0
        self._next_shard = 0

    def __bool__(self) -> bool:
        """Be true, also without any key: ``store or another`` is this one."""
        return True

    def __len__(self) -> int:
        """Return the number of keys kept."""
        return self._count

    async def acquire(self, charges: Sequence[Charge], /) -> Sequence[RateLimitResult]:
        """Charge all of *charges*, or none; see `Store.acquire`."""
        with self._lock:
            now_us = self._now_ns() // _NS_PER_US
            staged: dict[str, tuple[int, Bucket]] = {}
            decisions: list[Decision] = []
            for charge in charges:
                key, cost = charge.key, charge.cost
                bucket = bucket_of(charge.quota, charge.algorithm)
                stored = self._staged_or_stored(staged, key, now_us, bucket)
                limited, empty_at = take(stored, now_us, bucket, cost)
                staged[key] = empty_at, bucket
                decisions.append(tell(limited, empty_at, now_us, bucket, cost))
            if any(decision.limited for decision in decisions):
                return self._refusal(charges, decisions, now_us)
            for key, (empty_at, bucket) in staged.items():
                self._write(self._shard(key), key, empty_at, now_us, bucket)
        return [
            result_of(decision, receipts=(Receipt(charge, now_us),))
            for decision, charge in zip(decisions, charges, strict=True)
        ]

    def _staged_or_stored(
        self,
        staged: dict[str, tuple[int, Bucket]],
        key: str,
        now_us: int,
        bucket: Bucket,
    ) -> int | None:
        if key in staged:
            empty_at, written_for = staged[key]
            return rebase(empty_at, now_us, written_for, bucket)
        return self._shard(key).read(key, now_us, bucket)

    def _refusal(
        self, charges: Sequence[Charge], decisions: Sequence[Decision], now_us: int
    ) -> Sequence[RateLimitResult]:
        """
        Return what each of *charges* is told when one of *decisions* refuses them all.

        Nothing was charged, so each key is told as it stands. The wait of one that
        refuses is for all that the call would charge to it.
        """
        price: dict[str, int] = {}
        for charge in charges:
            price[charge.key] = price.get(charge.key, 0) + charge.cost
        return [
            result_of(self._as_it_stands(charge, now_us, limited, price[charge.key]))
            for charge, (limited, *_) in zip(charges, decisions, strict=True)
        ]

    def _as_it_stands(
        self,
        charge: Charge,
        now_us: int,
        limited: bool,  # noqa: FBT001 - what was decided
        price: int,
    ) -> Decision:
        bucket = bucket_of(charge.quota, charge.algorithm)
        stored = self._shard(charge.key).read(charge.key, now_us, bucket)
        empty_at = settle(stored, now_us, bucket)
        return tell(limited, empty_at, now_us, bucket, price)

    async def peek(self, charges: Sequence[Charge], /) -> Sequence[RateLimitResult]:
        """Tell what `acquire` would answer, and change nothing; see `Store.peek`."""
        with self._lock:
            now_us = self._now_ns() // _NS_PER_US
            results: list[RateLimitResult] = []
            for charge in charges:
                bucket = bucket_of(charge.quota, charge.algorithm)
                stored = self._shard(charge.key).read(charge.key, now_us, bucket)
                limited, _ = take(stored, now_us, bucket, charge.cost)
                told = self._as_it_stands(charge, now_us, limited, charge.cost)
                results.append(result_of(told))
            return results

    async def refund(self, receipts: Sequence[Receipt], /) -> None:
        """Give charges back; see `Store.refund`."""
        with self._lock:
            now_us = self._now_ns() // _NS_PER_US
            for receipt in receipts:
                self._shard(receipt.charge.key).refund(receipt.charge, now_us)

    async def reset(self, keys: Sequence[str], /) -> None:
        """Forget *keys*; see `Store.reset`."""
        with self._lock:
            for key in keys:
                if self._shard(key).entries.pop(key, None) is not None:
                    self._count -= 1

    def clear(self) -> None:
        """Forget every key."""
        with self._lock:
            for shard in self._shards:
                shard.keep(())
            self._count = 0

    async def aclose(self) -> None:
        """Do nothing: this store opened nothing."""

    def taker(
        self,
        head: str,
        principal_of: Callable[[_SubjectT], str],
        tail: str,
        bucket: Bucket,
        cost: int,
    ) -> Callable[[_SubjectT], Taken]:
        """
        Return a function that charges *cost* to one key, as `acquire` does.

        It is the path of nearly every request. So it builds nothing that nobody may ask
        for, and does by hand what `settle` and `take` do for a key that is known and
        was written for the same bucket. The tests hold it to them.

        Args:
            head: What the key begins with.
            principal_of: Tells what comes next, of the subject of a decision.
            tail: What the key ends with.
            bucket: What the key is held to.
            cost: Tokens to take.

        Returns:
            A function of a subject.
        """
        now_ns, shards, count = self._now_ns, self._shards, len(self._shards)
        acquire, release = self._lock.acquire, self._lock.release
        scale, full, price = bucket.scale, bucket.full, cost * bucket.token

        def take_one(subject: _SubjectT) -> Taken:
            key = f"{head}{principal_of(subject)}{tail}"
            acquire()  # a `with` would cost as much as all the arithmetic
            try:
                now_us = now_ns() // _NS_PER_US
                shard = shards[hash(key) % count]
                value = shard.entries.get(key)
                if value is not None:
                    number = value & _NUMBER_MASK
                    now = now_us * scale
                    level = now - (value >> _NUMBER_BITS)
                    if level >= 0 and shard.buckets[number] is bucket:
                        if level > full:  # noqa: PLR1730 - min() is a call
                            level = full
                        if level < price:
                            return True, level, now_us, key
                        level -= price
                        shard.entries[key] = (now - level) << _NUMBER_BITS | number
                        return False, level, now_us, key
                known = shard.read(key, now_us, bucket)
                limited, empty_at = take(known, now_us, bucket, cost)
                if not limited:
                    self._write(shard, key, empty_at, now_us, bucket)
                return limited, now_us * scale - empty_at, now_us, key
            finally:
                release()

        return take_one

    def _shard(self, key: str) -> _Shard:
        return self._shards[hash(key) % len(self._shards)]

    def _write(
        self, shard: _Shard, key: str, empty_at: int, now_us: int, bucket: Bucket
    ) -> None:
        """Store *key*, making room for it first if it is new."""
        if key not in shard.entries:
            if now_us * bucket.scale - empty_at >= bucket.full:
                return  # nothing was charged: as good as no entry
            self._sweep(now_us)
            if self._count >= self.max_keys:
                self._evict(now_us)
            self._count += 1
        shard.write(key, empty_at, bucket)

    def _sweep(self, now_us: int) -> None:
        """Drop full entries of the next shards, as far as new keys have paid for."""
        self._looks += _LOOKS_PER_NEW_KEY
        shard = self._shards[self._next_shard]
        while self._looks >= len(shard.entries) + _LOOKS_PER_SHARD:
            self._looks -= len(shard.entries) + _LOOKS_PER_SHARD
            self._drop_all_but(shard, shard.live(now_us))
            shard = self._following_shard()

    def _following_shard(self) -> _Shard:
        self._next_shard = (self._next_shard + 1) % len(self._shards)
        return self._shards[self._next_shard]

    def _drop_all_but(self, shard: _Shard, kept: list[tuple[str, int]]) -> None:
        dropped = len(shard.entries) - len(kept)
        if dropped:
            shard.keep(kept)
            self._count -= dropped

    def _evict(self, now_us: int) -> None:
        """Make room for at least one key; `max_keys` are kept."""
        shard, exhausted = self._next_shard_with_entries(), ""
        for _ in range(_SHARDS_TRIED):
            self._drop_all_but(shard, shard.live(now_us))
            if self._count < self.max_keys:
                return
            ranked = shard.by_fullness(now_us)
            share = len(ranked) // 8 if len(self._shards) > 1 else 1
            spare = [key for has_token, _, key in ranked[: share or 1] if has_token]
            if spare:
                self._drop(shard, spare)
                return
            exhausted = ranked[0][2]
            shard = self._next_shard_with_entries()
        self.exhausted_evictions += 1
        self._drop(self._shard(exhausted), [exhausted])

    def _next_shard_with_entries(self) -> _Shard:
        while not (shard := self._following_shard()).entries:
            pass
        return shard

    def _drop(self, shard: _Shard, keys: list[str]) -> None:
        for key in keys:
            del shard.entries[key]
        shard.keep(list(shard.entries.items()))
        self._count -= len(keys)
        if not self.evictions:
            _logger.warning(
                "MemoryStore holds max_keys=%d keys; the ones nearest to full are "
                "evicted. Raise max_keys, or use a shared store",
                self.max_keys,
            )
        self.evictions += len(keys)
