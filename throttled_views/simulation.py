"""
What quotas would do to arrivals, by each algorithm, without waiting for anything.

Rules of this file:

1. The kernels decide that decide in every store; nothing here counts by itself.
2. Time is an argument. Nothing sleeps, no clock is read, and equal arguments give equal
   results.

Longer than other modules, since what arrives, what becomes of it and how it is counted
are read together.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import inf
from operator import itemgetter
from random import Random
from typing import Any, NamedTuple, TypeAlias

from throttled_views._spans import spans_of
from throttled_views.algorithms.base import AnyKernel
from throttled_views.algorithms.bucket import Bucket
from throttled_views.algorithms.kernels import counts_apart, kernel_of
from throttled_views.quotas import Algorithm, Quota

__all__ = [
    "Arrival",
    "Simulation",
    "Watch",
    "compare",
    "poisson",
    "regular",
    "simulate",
    "waits_us",
]

_SECOND_US = 1_000_000


class Arrival(NamedTuple):
    """
    A request that arrives.

    Attributes:
        at_us: When, in microseconds; 0 or more.
        key: Who asks; each key is counted apart.
        cost: Units it costs, 1 or more.
    """

    at_us: int
    key: str = ""
    cost: int = 1


@dataclass(frozen=True, slots=True)
class Simulation:
    """
    What became of arrivals, counted by one algorithm.

    The numbers are of *spans*, equal lengths of time, one after the other.

    Attributes:
        using: The algorithm.
        quotas: The quotas, as it counts them: windows know no burst.
        start_us: When the first span starts, in microseconds.
        span_us: The length of a span, in microseconds.
        admitted: How many arrivals of each span were admitted at once.
        waiting: How many were admitted after a wait.
        refused: How many were refused.
        longest_wait_us: The longest wait of those that were admitted.
    """

    using: Algorithm
    quotas: tuple[Quota, ...]
    start_us: int
    span_us: int
    admitted: tuple[int, ...]
    waiting: tuple[int, ...]
    refused: tuple[int, ...]
    longest_wait_us: int

    @property
    def starts_us(self) -> list[int]:
        """When each span starts, in microseconds."""
        return [
            self.start_us + position * self.span_us
            for position in range(len(self.admitted))
        ]


# --- deciding -------------------------------------------------------------------------


def waits_us(
    arrivals: Iterable[Arrival], kernels: Sequence[AnyKernel]
) -> Iterator[int | None]:
    """
    Decide *arrivals*, one after the other.

    Args:
        arrivals: What arrives, in the order of time.
        kernels: What counts. They are one decision: all of a request is charged to each
            of them, or nothing to any.

    Returns:
        For each arrival the microseconds that it waits for its turn, which is 0 unless
        a kernel knows of turns; None if it is refused.
    """
    if len(kernels) == 1 and not any(map(_has_turns, kernels)):
        return _decided_alone(arrivals, kernels[0])
    return _decided_together(arrivals, kernels)


def _has_turns(kernel: AnyKernel) -> bool:
    return isinstance(kernel, Bucket) and kernel.delay > 0


def _decided_alone(
    arrivals: Iterable[Arrival], kernel: AnyKernel
) -> Iterator[int | None]:
    """Decide by one kernel without turns: nearly all that is simulated, in a hurry."""
    states: dict[str, Any] = {}
    known, take = states.get, kernel.take
    for at_us, key, cost in arrivals:
        limited, state = take(known(key), at_us, cost)
        if limited:
            yield None
        else:
            states[key] = state
            yield 0


def _decided_together(
    arrivals: Iterable[Arrival], kernels: Sequence[AnyKernel]
) -> Iterator[int | None]:
    counters = [(kernel, dict[str, Any]()) for kernel in kernels]
    for at_us, key, cost in arrivals:
        taken = [kernel.take(known.get(key), at_us, cost) for kernel, known in counters]
        if any(limited for limited, _ in taken):
            yield None
            continue
        wait_us = 0
        for (kernel, known), (_, state) in zip(counters, taken, strict=True):
            known[key] = state
            decision = kernel.tell(False, state, at_us, cost)  # noqa: FBT003 - see Kernel
            wait_us = max(wait_us, decision.delay_us)
        yield wait_us


# --- counting -------------------------------------------------------------------------

Watch: TypeAlias = Callable[[Sequence[Arrival], Algorithm], Iterable[Arrival]]
"""Gives arrivals on, one by one, while an algorithm decides them: to show progress."""


def _unwatched(arrivals: Sequence[Arrival], _using: Algorithm) -> Iterable[Arrival]:
    return arrivals


def compare(
    quotas: Sequence[Quota],
    arrivals: Iterable[Arrival],
    *,
    max_delay_us: int = 0,
    spans: int = 30,
    watch: Watch = _unwatched,
) -> tuple[Simulation, ...]:
    """
    Return what each algorithm would do to *arrivals*; takes what `simulate` takes.

    The three that share one kernel are decided once.

    Raises:
        ValueError: *spans* is below 1, or something arrives before 0.
    """
    arrivals = _in_order(arrivals)
    known: dict[tuple[AnyKernel, ...], Simulation] = {}
    found: list[Simulation] = []
    for using in Algorithm:
        kernels = _kernels(quotas, using, max_delay_us)
        if kernels not in known:
            known[kernels] = simulate(
                quotas,
                arrivals,
                using=using,
                max_delay_us=max_delay_us,
                spans=spans,
                watch=watch,
            )
        found.append(replace(known[kernels], using=using))
    return tuple(found)


def simulate(  # noqa: PLR0913 - each is an independent choice
    quotas: Sequence[Quota],
    arrivals: Iterable[Arrival],
    *,
    using: Algorithm = Algorithm.TOKEN_BUCKET,
    max_delay_us: int = 0,
    spans: int = 30,
    watch: Watch = _unwatched,
) -> Simulation:
    """
    Return what *quotas* would do to *arrivals*.

    All quotas are one decision, all or none. Windows start at multiples of their
    period, as they do in stores; they are simulated without the burst of a quota, which
    they cannot honour.

    Args:
        quotas: What each key is held to.
        arrivals: What arrives, in any order.
        using: The algorithm that counts.
        max_delay_us: Microseconds that a request may wait for its turn: one that would
            be admitted within that time is charged when it arrives. Windows know no
            turns, and refuse it.
        spans: How many spans there are at most, 1 or more. They are as long as people
            read well.
        watch: Sees arrivals while they are decided.

    Raises:
        ValueError: *spans* is below 1, or something arrives before 0.
    """
    if spans < 1:
        msg = f"spans={spans} shows nothing. Write 1 or more"
        raise ValueError(msg)
    arrivals = _in_order(arrivals)
    kernels = _kernels(quotas, using, max_delay_us)
    waits = [*waits_us(watch(arrivals, using), kernels)]
    starts_us = range(1)  # an end, and no span
    if arrivals:
        starts_us = spans_of(arrivals[0].at_us, arrivals[-1].at_us, spans)
    edges = [bisect_left(arrivals, at_us, key=itemgetter(0)) for at_us in starts_us]
    parts = [waits[first:last] for first, last in pairwise(edges)]
    return Simulation(
        using,
        tuple(_counted(quota, using) for quota in quotas),
        starts_us.start,
        starts_us.step,
        admitted=tuple(part.count(0) for part in parts),
        waiting=tuple(len(part) - part.count(0) - part.count(None) for part in parts),
        refused=tuple(part.count(None) for part in parts),
        longest_wait_us=max((wait for wait in waits if wait), default=0),
    )


def _in_order(arrivals: Iterable[Arrival]) -> Sequence[Arrival]:
    in_order = sorted(arrivals, key=itemgetter(0))
    if in_order and in_order[0].at_us < 0:
        msg = f"{in_order[0]} is before the beginning. Write an at_us of 0 or more"
        raise ValueError(msg)
    return in_order


def _kernels(
    quotas: Sequence[Quota], using: Algorithm, max_delay_us: int
) -> tuple[AnyKernel, ...]:
    max_delay = 0 if counts_apart(using) else max_delay_us / _SECOND_US
    return tuple(
        kernel_of(_counted(quota, using), using, max_delay) for quota in quotas
    )


def _counted(quota: Quota, using: Algorithm) -> Quota:
    """Return *quota* as an algorithm can count it: windows without the burst."""
    return Quota(quota.limit, quota.period) if counts_apart(using) else quota


# --- patterns -------------------------------------------------------------------------


def regular(every_us: int, for_us: int, size: int = 1) -> Iterator[Arrival]:
    """
    Return *size* arrivals at once, and again after each *every_us* microseconds.

    Args:
        every_us: Microseconds between them, 1 or more.
        for_us: Microseconds that it goes on for; nothing arrives at their end.
        size: How many arrive at once.

    Raises:
        ValueError: *every_us* is below 1.
    """
    if every_us < 1:
        msg = f"every_us={every_us} does not go on. Write 1 or more"
        raise ValueError(msg)
    return (Arrival(at) for at in range(0, for_us, every_us) for _ in range(size))


def poisson(rate: Quota, for_us: int, *, seed: int = 0) -> Iterator[Arrival]:
    """
    Yield arrivals that know nothing of each other: a Poisson process.

    Args:
        rate: How many there are in a period on average; its burst says nothing here.
        for_us: Microseconds that it goes on for; nothing arrives at their end.
        seed: Equal ones give equal arrivals.
    """
    random = Random(seed)  # noqa: S311 - not for secrets
    mean_us = rate.period_us / rate.limit if rate.limit else inf
    at_us = 0.0
    while (at_us := at_us + mean_us * random.expovariate(1.0)) < for_us:
        yield Arrival(int(at_us))
