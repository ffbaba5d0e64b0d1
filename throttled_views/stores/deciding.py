"""What a call to a store comes to, once it is known where its keys stand."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias

from throttled_views.algorithms.base import AnyKernel
from throttled_views.algorithms.bucket import Bucket
from throttled_views.algorithms.kernels import counter_of
from throttled_views.results import (
    Charge,
    Decision,
    RateLimitResult,
    Receipt,
    result_of,
)

__all__ = [
    "AnyTaken",
    "Counted",
    "Reader",
    "Share",
    "State",
    "Taken",
    "TakenTogether",
    "Verdict",
    "as_standing",
    "decide",
    "look",
    "take_together",
    "told",
    "told_together",
]

State: TypeAlias = Any
"""Where a key stands: what its kernel makes of it."""

Reader: TypeAlias = Callable[[str, AnyKernel], State | None]
"""Tells the settled state of a key, as a kernel has it; None if it has none."""


Taken: TypeAlias = tuple[bool, State, int, str]
"""
What a decision on one key found, for whoever shows it later.

Whether it is refused; where the key stands after it, which is no state but what
`as_standing` makes of one; the time of that in microseconds; and the key.
"""

TakenTogether: TypeAlias = tuple[bool, Sequence[tuple[bool, State]], int, Sequence[str]]
"""
What a decision on several keys found, all or nothing.

Whether it is refused; of each key whether it refuses, and its state after it, which
unlike that of `Taken` is as its kernel has it; the time of that in microseconds; and
the keys.
"""

AnyTaken: TypeAlias = tuple[bool, Any, int, Any]
"""A `Taken` or a `TakenTogether`."""


class Counted(Protocol):
    """What one key is charged."""

    @property
    def kernel(self) -> AnyKernel:
        """Counts."""
        ...

    @property
    def cost(self) -> int:
        """Units to charge."""
        ...


class Share(NamedTuple):
    """
    What one limit charges the client that it shares with others.

    Attributes:
        head: What its key begins with, before the client.
        tail: What its key ends with.
        kernel: Counts.
        cost: Units to charge, 1 or more.
    """

    head: str
    tail: str
    kernel: AnyKernel
    cost: int


def as_standing(kernel: AnyKernel, state: State, now_us: int) -> State:
    """
    Return *state* as `Taken` has it.

    Of a bucket it is what the bucket holds, in ticks: that is nearly what clients are
    told. Of all others it is the state.
    """
    return now_us * kernel.scale - state if isinstance(kernel, Bucket) else state


def told(taken: Taken, kernel: AnyKernel, cost: int) -> Decision:
    """Return *taken*, which *kernel* decided, in numbers."""
    limited, standing, now_us, _ = taken
    if isinstance(kernel, Bucket):
        standing = now_us * kernel.scale - standing
    return kernel.tell(limited, standing, now_us, cost)


def take_together(
    parts: Sequence[Counted], known: Sequence[State | None], now_us: int
) -> tuple[bool, Sequence[tuple[bool, State]]]:
    """
    Charge all of *parts*, or none if one of them is refused: as `decide` does.

    Args:
        parts: What each key is charged; no key is named twice.
        known: Where each stands, settled; None if it has no state.
        now_us: When this is.

    Returns:
        Whether it is refused; and of each key whether it refuses, and where it stands.
    """
    taken = [
        part.kernel.take(state, now_us, part.cost)
        for part, state in zip(parts, known, strict=True)
    ]
    if not any(limited for limited, _ in taken):
        return False, taken
    return True, [
        (limited, part.kernel.settle(state, now_us))
        for part, state, (limited, _) in zip(parts, known, taken, strict=True)
    ]


def told_together(taken: TakenTogether, parts: Sequence[Counted]) -> list[Decision]:
    """Return *taken*, which *parts* decided, in numbers."""
    _, standings, now_us, _ = taken
    return [
        part.kernel.tell(limited, state, now_us, part.cost)
        for part, (limited, state) in zip(parts, standings, strict=True)
    ]


class Verdict(NamedTuple):
    """
    What a call comes to.

    Attributes:
        results: A result for each charge.
        states: What to store; nothing, if the call is refused.
    """

    results: Sequence[RateLimitResult]
    states: Mapping[str, tuple[State, AnyKernel]]


def decide(charges: Sequence[Charge], read: Reader, now_us: int) -> Verdict:
    """
    Charge all of *charges*, or none if one of them is refused.

    A key that is named twice is charged twice. If the call is refused, each key is told
    as it stands.
    """
    staged: dict[str, tuple[State, AnyKernel]] = {}
    decisions: list[Decision] = []
    for charge in charges:
        key, cost = charge.key, charge.cost
        kernel = counter_of(charge)
        known = _staged(staged[key], now_us, kernel) if key in staged else None
        if key not in staged:
            known = read(key, kernel)
        limited, state = kernel.take(known, now_us, cost)
        if cost:  # what only looks leaves the key as it is
            staged[key] = state, kernel
        decisions.append(kernel.tell(limited, state, now_us, cost))
    if any(decision.limited for decision in decisions):
        return Verdict(_refusal(charges, decisions, read, now_us), {})
    results = [
        result_of(decision, receipts=(Receipt(charge, now_us),))
        for decision, charge in zip(decisions, charges, strict=True)
    ]
    return Verdict(results, staged)


def look(
    charges: Sequence[Charge], read: Reader, now_us: int
) -> Sequence[RateLimitResult]:
    """Tell what each of *charges* would be answered on its own, and charge nothing."""
    results: list[RateLimitResult] = []
    for charge in charges:
        kernel = counter_of(charge)
        known = read(charge.key, kernel)
        limited, after = kernel.take(known, now_us, charge.cost)
        turn = kernel.tell(limited, after, now_us, charge.cost).delay_us
        state = kernel.settle(known, now_us)
        decision = kernel.tell(limited, state, now_us, charge.cost)
        results.append(result_of(decision._replace(delay_us=turn)))
    return results


def _staged(
    written: tuple[State, AnyKernel], now_us: int, kernel: AnyKernel
) -> State | None:
    state, written_for = written
    if type(written_for) is not type(kernel):
        return None
    return kernel.rebase(state, now_us, written_for)


def _refusal(
    charges: Sequence[Charge],
    decisions: Sequence[Decision],
    read: Reader,
    now_us: int,
) -> Sequence[RateLimitResult]:
    """
    Return what each of *charges* is told when one of *decisions* refuses them all.

    The wait of one that refuses is for all that the call would charge to its key.
    """
    price: dict[str, int] = {}
    for charge in charges:
        price[charge.key] = price.get(charge.key, 0) + charge.cost
    results: list[RateLimitResult] = []
    for charge, (limited, *_) in zip(charges, decisions, strict=True):
        kernel = counter_of(charge)
        state = kernel.settle(read(charge.key, kernel), now_us)
        decision = kernel.tell(limited, state, now_us, price[charge.key])
        results.append(result_of(decision._replace(delay_us=0)))  # nobody waits
    return results
