"""
Numbers on the wire: how kernels and states travel to the scripts and back.

Rules of this file:

1. The scripts under ``lua/`` mirror the kernels of `throttled_views.algorithms` name by
   name. Each number that they get or give is whole, and below 2**53.
2. Products that are known beforehand are made here: what a script does for nearly every
   request is to add, to carry and to compare.
3. A script answers where a key stood before the charge. What is told of that, the
   kernel works out from it, the same as for a `MemoryStore`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, lru_cache
from hashlib import sha1
from importlib.resources import files
from typing import Any, NamedTuple, TypeAlias

from throttled_views.algorithms.base import AnyKernel
from throttled_views.algorithms.bucket import Bucket
from throttled_views.algorithms.log import Log, SlidingLog
from throttled_views.algorithms.windows import (
    FixedWindow,
    SlidingWindow,
    Window,
    Windows,
)
from throttled_views.stores.deciding import Taken

__all__ = [
    "Asked",
    "Kind",
    "Script",
    "Spec",
    "encoded_key",
    "encoded_ops",
    "script_of",
    "spec_of",
]

_NUMBERS_OF_A_SPEC = 9
_SPEC = struct.Struct(f"<{_NUMBERS_OF_A_SPEC}d")


class Kind(NamedTuple):
    """
    How the kernels of one class travel.

    Attributes:
        number: By which the scripts know it.
        file: The part of the scripts that mirrors it.
        width: Numbers in an answer.
        numbers: What a script needs to know of a kernel and a cost.
        state: Makes a state of an answer: of the kernel, the cost, the time, numbers.
    """

    number: int
    file: str
    width: int
    numbers: Callable[[Any, int], Sequence[int]]
    state: Callable[[Any, int, int, Sequence[int]], Any]


def _bucket_numbers(bucket: Bucket, cost: int) -> Sequence[int]:
    full_us = -(-bucket.full // bucket.scale)
    above = full_us * bucket.scale - bucket.full
    price_us, part = divmod(cost * bucket.token, bucket.scale)
    return (
        bucket.scale,
        bucket.token,
        -bucket.capacity if bucket.delay else bucket.capacity,
        full_us,
        above,
        price_us,
        part,
        cost,
    )


def _bucket_state(
    bucket: Bucket, _cost: int, now_us: int, answer: Sequence[int]
) -> int:
    since_us, part = answer
    return (now_us - since_us) * bucket.scale + part


def _counter_numbers(
    counter: FixedWindow | SlidingWindow | SlidingLog, cost: int
) -> Sequence[int]:
    return counter.capacity, counter.period_us, cost, 0, 0, 0, 0, 0


def _window_state(
    _window: FixedWindow, _cost: int, now_us: int, answer: Sequence[int]
) -> Window:
    since_us, used = answer
    return Window(now_us - since_us, used)


def _windows_state(
    _window: SlidingWindow, _cost: int, now_us: int, answer: Sequence[int]
) -> Windows:
    since_us, used, before = answer
    return Windows(now_us - since_us, used, before)


def _log_state(log: SlidingLog, cost: int, now_us: int, answer: Sequence[int]) -> Log:
    """
    Return a log with up to three hits that answers as the whole one does, for a while.

    Up to when the oldest hit leaves: its time is right, and what it charged is not
    known. The second is of what else must leave before *cost* has room.
    """
    used, *since_us = answer
    oldest, newest, enough = (now_us - each for each in since_us)
    short = max(0, used + cost - log.capacity)
    counts: dict[int, int] = {}
    for at_us, count in ((oldest, min(1, short)), (enough, short - 1), (newest, used)):
        part = min(max(0, count), used - sum(counts.values()))
        counts[at_us] = counts.get(at_us, 0) + part
    hits = tuple(sorted(hit for hit in counts.items() if hit[1]))
    return Log(used, hits)


_KINDS: Mapping[type[AnyKernel], Kind] = {
    Bucket: Kind(0, "bucket", 2, _bucket_numbers, _bucket_state),
    FixedWindow: Kind(1, "fixed_window", 2, _counter_numbers, _window_state),
    SlidingWindow: Kind(2, "sliding_window", 3, _counter_numbers, _windows_state),
    SlidingLog: Kind(3, "sliding_log", 4, _counter_numbers, _log_state),
}


class Spec:
    """
    A kernel and a cost, as the scripts need to know them; one object for equal ones.

    Attributes:
        kernel: The kernel.
        cost: The cost; at most the capacity.
        kind: How kernels of its class travel.
        raw: The numbers, packed.
        width: Numbers in an answer.
    """

    __slots__ = ("cost", "kernel", "kind", "raw", "width")

    def __init__(self, kernel: AnyKernel, cost: int) -> None:
        self.kernel = kernel
        self.cost = cost
        self.kind = _KINDS[type(kernel)]
        self.raw = _SPEC.pack(self.kind.number, *self.kind.numbers(kernel, cost))
        self.width = self.kind.width

    def taken(
        self,
        key: str,
        admitted: bool,  # noqa: FBT001
        now_us: int,
        answer: Sequence[int],
    ) -> Taken:
        """Return what an *answer* of *now_us* comes to, charged if *admitted*."""
        kernel = self.kernel
        if isinstance(kernel, Bucket):  # nearly always; by hand what follows
            since_us, part = answer
            level = since_us * kernel.scale - part
            if admitted:
                level -= self.cost * kernel.token
            return not admitted, level, now_us, key
        state = self.state(now_us, answer)
        if admitted:
            _, state = kernel.take(state, now_us, self.cost)
        return not admitted, state, now_us, key

    def state(self, now_us: int, answer: Sequence[int]) -> Any:
        """Return the state that an *answer* of *now_us* is of."""
        return self.kind.state(self.kernel, self.cost, now_us, answer)


Asked: TypeAlias = Sequence[tuple[str, Spec]]
"""The limits of one request: a key and what it costs, for each."""


@lru_cache(maxsize=4096)
def spec_of(kernel: AnyKernel, cost: int) -> Spec:
    """Return the spec of a kernel and a cost."""
    return Spec(kernel, cost)


class Script(NamedTuple):
    """A script and its digest, by which a server knows it."""

    text: str
    digest: bytes


@cache
def script_of(name: str, kinds: frozenset[Kind]) -> Script:
    """Return the script called *name*, with the parts for *kinds*."""
    parts = ["numbers", *sorted(kind.file for kind in kinds), name]
    folder = files("throttled_views.stores") / "lua"
    text = "".join((folder / f"{part}.lua").read_text("utf-8") for part in parts)
    return Script(text, sha1(text.encode(), usedforsecurity=False).hexdigest().encode())


def encoded_ops(
    requests: Iterable[Asked],
) -> tuple[list[bytes], list[Spec], bytes]:
    """
    Return what a batch is about: distinct keys, distinct specs, and who wants what.

    Args:
        requests: What each asked for.
    """
    keys: dict[str, int] = {}
    specs: dict[Spec, int] = {}
    ops: list[int] = []
    for asked in requests:
        ops.append(len(asked))
        for key, spec in asked:
            ops.append(keys.setdefault(key, len(keys)))
            ops.append(specs.setdefault(spec, len(specs)))
    words = [encoded_key(key) for key in keys]
    return words, list(specs), struct.pack(f"<{len(ops)}H", *ops)


def encoded_key(key: str) -> bytes:
    """Return *key* in bytes; whatever it is made of, it must not spoil a batch."""
    return key.encode("utf-8", "surrogatepass")
