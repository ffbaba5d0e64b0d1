"""
The memory store: one process, bounded, safe from several threads and event loops.

How it keeps its promises:

1. Keys are spread over *shards*, dicts of a few hundred entries. One big dict would
   stop the loop for tens of milliseconds each time it grows.
2. An entry is one int: the state that its kernel packed, shifted left, and the number
   of that `Kernel` in the shard. Such dicts cost the least memory, and the garbage
   collector does not look into them. Only a log, which is many numbers, and what is
   held to one quota too many for a shard, are tuples.
3. There is no timer. Each new key pays for looking at a few old entries, shard after
   shard, and drops those that are whole again: they equal a fresh key.
4. At `max_keys` the entries nearest to full go, exactly so in a small store and among a
   few hundred in a large one. An exhausted entry goes only when nothing else is found,
   so that a client cannot push its own out with a flood of new keys.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import ClassVar, TypeAlias, TypeVar, cast

from throttled_views.algorithms.base import AnyKernel
from throttled_views.algorithms.bucket import Bucket
from throttled_views.algorithms.kernels import counter_of
from throttled_views.errors import ConfigurationError
from throttled_views.results import Charge, RateLimitResult, Receipt
from throttled_views.stores.base import Clock, checked_clock, quick
from throttled_views.stores.deciding import (
    Share,
    State,
    Taken,
    TakenTogether,
    as_standing,
    decide,
    look,
    take_together,
)
from throttled_views.stores.statistics import StoreStatistics

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

_Entry: TypeAlias = int | tuple[AnyKernel, State]


def _in_nanoseconds(clock: Clock) -> Clock:
    return lambda: clock() * _NS_PER_US


class _Shard:
    """A few hundred entries, and the kernels they were written for."""

    __slots__ = ("entries", "kernels")

    def __init__(self) -> None:
        self.entries: dict[str, _Entry] = {}
        self.kernels: list[AnyKernel] = []

    def read(
        self, key: str, now_us: int, kernel: AnyKernel, *, heals: bool = True
    ) -> State | None:
        """
        Return the settled state of *key* as *kernel* has it, None if there is none.

        If it *heals*, a state from the future, of a clock that was set back, is stored
        as it is now: it would refuse until the old time comes again.
        """
        if (entry := self.entries.get(key)) is None:
            return None
        written_for, stored = self._unpacked(entry)
        if type(written_for) is not type(kernel):
            return None  # by another algorithm: it begins anew
        state = written_for.settle(stored, now_us)
        if heals and state != stored and _is_sooner(written_for, state, stored):
            self.write(key, state, written_for)
        if written_for is kernel:
            return state
        return kernel.rebase(state, now_us, written_for)

    def write(self, key: str, state: State, kernel: AnyKernel) -> None:
        """Store the *state* of *key*, by *kernel*."""
        packed = kernel.pack(state)
        number = self._number_of(kernel) if isinstance(packed, int) else None
        self.entries[key] = (
            (kernel, state) if number is None else packed << _NUMBER_BITS | number
        )

    def refund(self, receipt: Receipt, now_us: int) -> None:
        """Give a charge back, in units of the kernel the key is held to by now."""
        charge = receipt.charge
        if (entry := self.entries.get(charge.key)) is not None:
            kernel, stored = self._unpacked(entry)
            if type(kernel) is not type(counter_of(charge)):
                return  # by another algorithm: that charge is not counted any more
            state = kernel.settle(stored, now_us)
            state = kernel.refund(state, now_us, charge.cost, receipt.at_us)
            self.write(charge.key, state, kernel)

    def _unpacked(self, entry: _Entry) -> tuple[AnyKernel, State]:
        if isinstance(entry, tuple):
            return entry
        kernel = self.kernels[entry & _NUMBER_MASK]
        return kernel, kernel.unpack(entry >> _NUMBER_BITS)

    def _number_of(self, kernel: AnyKernel) -> int | None:
        """Return the number of *kernel*; None if there are too many to number them."""
        for number, known in enumerate(self.kernels):
            if known is kernel or (type(known) is type(kernel) and known == kernel):
                return number
        if len(self.kernels) > _NUMBER_MASK:
            return None
        self.kernels.append(kernel)
        return len(self.kernels) - 1

    def keep(self, items: Iterable[tuple[str, _Entry]]) -> None:
        """Hold only *items* from now on, in a dict that is as small as it can be."""
        if len(self.kernels) <= _NUMBER_MASK:
            self.entries = dict(items)
            return
        before = _Shard()  # number the kernels anew: those without entries go
        before.kernels = self.kernels
        self.entries, self.kernels = {}, []
        for key, entry in items:
            kernel, state = before._unpacked(entry)
            self.write(key, state, kernel)

    def live(self, now_us: int) -> list[tuple[str, _Entry]]:
        """Return the entries that are not whole at *now_us*."""
        whole_below = [kernel.whole_below(now_us) for kernel in self.kernels]
        return [
            (key, entry)
            for key, entry in self.entries.items()
            if (
                entry >> _NUMBER_BITS >= whole_below[entry & _NUMBER_MASK]
                if isinstance(entry, int)
                else entry[0].whole_at(entry[1]) > now_us
            )
        ]

    def by_fullness(self, now_us: int) -> list[tuple[bool, int, str]]:
        """Return (has room, how much, key) of all entries, the first to go first."""
        found: list[tuple[bool, int, str]] = []
        for key, entry in self.entries.items():
            kernel, state = self._unpacked(entry)
            found.append((*kernel.fullness(state, now_us), key))
        found.sort(reverse=True)
        return found


def _is_sooner(kernel: AnyKernel, state: State, stored: State) -> bool:
    """Tell whether *state* is whole sooner than what is *stored*."""
    if isinstance(kernel, Bucket):  # in parts of a microsecond
        return bool(state < stored)
    return kernel.whole_at(state) < kernel.whole_at(stored)


@quick
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
        ConfigurationError: *max_keys* is no number above 0, or *clock* no function.

    Attributes:
        evictions: Entries dropped at the bound although they were not full.
        exhausted_evictions: Those of them that had no request left, dropped because
            nothing better was found; each is a client that got its quota back early.
    """

    may_be_down: ClassVar[bool] = False

    def __init__(
        self, *, max_keys: int = 1_000_000, clock: Clock | None = None
    ) -> None:
        if not isinstance(cast("object", max_keys), int) or max_keys < 1:
            msg = (
                f"max_keys must be 1 or more, not {max_keys!r}. Write max_keys=100_000"
            )
            raise ConfigurationError(msg)
        self.max_keys = max_keys
        self.evictions = 0
        self.exhausted_evictions = 0
        # In nanoseconds, as the system has it: one call less for each request.
        clock = checked_clock(clock)
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

    @property
    def statistics(self) -> StoreStatistics:
        """What is kept, and what was evicted so far; see `StoreStatistics`."""
        return StoreStatistics(
            keys=self._count,
            evictions=self.evictions,
            exhausted_evictions=self.exhausted_evictions,
        )

    async def acquire(self, charges: Sequence[Charge], /) -> Sequence[RateLimitResult]:
        """Charge all of *charges*, or none; see `Store.acquire`."""
        with self._lock:
            now_us = self._now_ns() // _NS_PER_US
            verdict = decide(charges, partial(self._read, now_us), now_us)
            for key, (state, kernel) in verdict.states.items():
                self._write(self._shard(key), key, state, now_us, kernel)
        return verdict.results

    async def peek(self, charges: Sequence[Charge], /) -> Sequence[RateLimitResult]:
        """Tell what `acquire` would answer, and change nothing; see `Store.peek`."""
        with self._lock:
            now_us = self._now_ns() // _NS_PER_US
            return look(charges, partial(self._read, now_us, heals=False), now_us)

    def _read(
        self, now_us: int, key: str, kernel: AnyKernel, *, heals: bool = True
    ) -> State | None:
        return self._shard(key).read(key, now_us, kernel, heals=heals)

    async def refund(self, receipts: Sequence[Receipt], /) -> None:
        """Give charges back; see `Store.refund`."""
        with self._lock:
            now_us = self._now_ns() // _NS_PER_US
            for receipt in receipts:
                self._shard(receipt.charge.key).refund(receipt, now_us)

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
        kernel: AnyKernel,
        cost: int,
    ) -> Callable[[_SubjectT], Taken]:
        """
        Return a function that charges *cost* to one key, as `acquire` does.

        It is the path of nearly every request: it builds nothing that nobody may ask
        for.

        Args:
            head: What the key begins with.
            principal_of: Tells what comes next, of the subject of a decision.
            tail: What the key ends with.
            kernel: Counts.
            cost: Units to charge.

        Returns:
            A function of a subject.
        """
        if isinstance(kernel, Bucket) and kernel.scale and cost:
            return self._bucket_taker(head, principal_of, tail, kernel, cost)

        def take_one(subject: _SubjectT) -> Taken:
            key = f"{head}{principal_of(subject)}{tail}"
            with self._lock:
                now_us = self._now_ns() // _NS_PER_US
                limited, state = self._take(key, now_us, kernel, cost)
            return limited, as_standing(kernel, state, now_us), now_us, key

        return take_one

    def taker_together(
        self, principal_of: Callable[[_SubjectT], str], shares: Sequence[Share]
    ) -> Callable[[_SubjectT], TakenTogether]:
        """
        Return a function that charges all of *shares*, or none, as `acquire` does.

        Args:
            principal_of: Tells the client, of the subject of a decision.
            shares: What each limit charges it; no two of the same key.
        """

        def take_all(subject: _SubjectT) -> TakenTogether:
            principal = principal_of(subject)
            keys = [f"{head}{principal}{tail}" for head, tail, _, _ in shares]
            with self._lock:
                now_us = self._now_ns() // _NS_PER_US
                places = [
                    (self._shard(key), key, share.kernel)
                    for key, share in zip(keys, shares, strict=True)
                ]
                known = [
                    shard.read(key, now_us, kernel) for shard, key, kernel in places
                ]
                is_refused, standings = take_together(shares, known, now_us)
                if not is_refused:
                    for place, (_, state) in zip(places, standings, strict=True):
                        shard, key, kernel = place
                        self._write(shard, key, state, now_us, kernel)
            return is_refused, standings, now_us, keys

        return take_all

    def _take(
        self, key: str, now_us: int, kernel: AnyKernel, cost: int
    ) -> tuple[bool, State]:
        shard = self._shard(key)
        known = shard.read(key, now_us, kernel)
        limited, state = kernel.take(known, now_us, cost)
        if not limited and cost:
            self._write(shard, key, state, now_us, kernel)
        return limited, state

    def _bucket_taker(
        self,
        head: str,
        principal_of: Callable[[_SubjectT], str],
        tail: str,
        bucket: Bucket,
        cost: int,
    ) -> Callable[[_SubjectT], Taken]:
        """
        Return what `taker` does, for a bucket, which nearly every key is held to.

        It does by hand what `Bucket.take` does for a key that is known and was written
        for the same bucket. The tests hold it to that.
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
                if type(value) is int:
                    number = value & _NUMBER_MASK
                    now = now_us * scale
                    level = now - (value >> _NUMBER_BITS)
                    if level >= 0 and shard.kernels[number] is bucket:
                        if level > full:  # noqa: PLR1730 - min() is a call
                            level = full
                        if level < price:
                            return True, level, now_us, key
                        level -= price
                        shard.entries[key] = (now - level) << _NUMBER_BITS | number
                        return False, level, now_us, key
                limited, state = self._take(key, now_us, bucket, cost)
                return limited, now_us * scale - state, now_us, key
            finally:
                release()

        return take_one

    def _shard(self, key: str) -> _Shard:
        return self._shards[hash(key) % len(self._shards)]

    def _write(
        self, shard: _Shard, key: str, state: State, now_us: int, kernel: AnyKernel
    ) -> None:
        """Store *key*, making room for it first if it is new."""
        if key not in shard.entries:
            self._sweep(now_us)
            if self._count >= self.max_keys:
                self._evict(now_us)
            self._count += 1
        shard.write(key, state, kernel)

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

    def _drop_all_but(self, shard: _Shard, kept: list[tuple[str, _Entry]]) -> None:
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
