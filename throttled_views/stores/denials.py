"""
What is known to be refused: such a key is answered for a while without the server.

That is exact for the requests of this process: what a key has spent only grows, as long
as nobody resets it or gives something back. Those who do it here are seen here at once,
those who do it elsewhere within a second.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from throttled_views.algorithms.base import AnyKernel
from throttled_views.algorithms.bucket import Bucket
from throttled_views.algorithms.kernels import counter_of
from throttled_views.algorithms.log import SlidingLog
from throttled_views.results import Charge, RateLimitResult
from throttled_views.stores.base import Clock
from throttled_views.stores.deciding import (
    State,
    Taken,
    TakenTogether,
    decide,
    take_together,
)
from throttled_views.stores.wire import Asked, Spec, spec_of

__all__ = ["Begun", "Denial", "Denials", "Pair", "pair_of", "prices_asked", "prices_of"]

_MOST_KEYS = 10_000
_LONGEST_US = 1_000_000
_NS_PER_US = 1_000

Begun: TypeAlias = tuple[int, int]
"""When something was asked, by our own clock; and how often keys were forgotten."""

Pair: TypeAlias = tuple[str, AnyKernel]
"""A key, and what counts it."""


def pair_of(charge: Charge) -> Pair:
    """Return the key that is charged, and what counts it."""
    return charge.key, counter_of(charge)


def prices_of(charges: Iterable[Charge]) -> dict[Pair, int]:
    """Return what *charges* come to; a key that is named twice is charged both."""
    prices: dict[Pair, int] = {}
    for charge in charges:
        pair = pair_of(charge)
        prices[pair] = prices.get(pair, 0) + charge.cost
    return prices


def prices_asked(asked: Asked) -> dict[Pair, int]:
    """Return what *asked*, no key of it twice, comes to."""
    return {(key, spec.kernel): spec.cost for key, spec in asked}


class Denial(NamedTuple):
    """
    A call that was refused.

    Attributes:
        alone: What it asked for, if that was one limit.
        state: Where the key that refused it stood.
        prices: All that it asked for.
        states: Where all its keys stood.
        at_us: When that was, by the clock of the store, in microseconds.
        heard_ns: When it was heard, by our own clock, in nanoseconds.
        until_ns: How long it holds, by our own clock.
    """

    alone: Spec | None
    state: State
    prices: Mapping[Pair, int]
    states: Mapping[Pair, State]
    at_us: int
    heard_ns: int
    until_ns: int

    def covers(self, prices: Mapping[Pair, int]) -> bool:
        """Tell whether *prices* are refused, too: those of the same keys, or higher."""
        return self.prices.keys() == prices.keys() and all(
            price >= self.prices[pair]
            # What must leave a log is known for the very price.
            and (price == self.prices[pair] or not isinstance(pair[1], SlidingLog))
            for pair, price in prices.items()
        )

    def read(self, key: str, kernel: AnyKernel) -> State:
        """Return where *key* stood."""
        return self.states[key, kernel]


class Denials:
    """
    The calls of the last second that were refused, by the keys that refused them.

    Args:
        clock: The clock of the store, if it is not the server's, in microseconds.

    Attributes:
        known: The calls, by key.
        hits: How often one of them told of another call.
    """

    def __init__(self, clock: Clock | None) -> None:
        # In nanoseconds, as the system has it: one call less for each refusal.
        self._now_ns = (
            time.monotonic_ns if clock is None else lambda: clock() * _NS_PER_US
        )
        self.known: dict[str, Denial] = {}
        self.hits = 0
        # Which calls tell of a key that did not refuse them.
        self._beside: dict[str, set[str]] = {}
        self._forgotten = 0

    def begin(self) -> Begun:
        """Return what `note` wants to know: the time before the server was asked."""
        return self._now_ns(), self._forgotten

    def note(
        self,
        prices: Mapping[Pair, int],
        states: Mapping[Pair, State],
        at_us: int,
        begun: Begun | None,
    ) -> None:
        """
        Remember that a call was refused.

        Args:
            prices: What it asked for.
            states: Where its keys stood.
            at_us: When that was, by the clock of the store.
            begun: What `begin` returned before the server was asked; None if it is not
                to be remembered.
        """
        if begun is None:
            return
        began_ns, forgotten = begun
        if forgotten != self._forgotten:  # somebody reset a key meanwhile
            return
        for pair, price in prices.items():
            key, kernel = pair
            limited, state = kernel.take(states[pair], at_us, price)
            if not limited:
                continue
            steady_us = min(_LONGEST_US, _steady_us(kernel, state, at_us, price))
            if max(len(self.known), len(self._beside)) >= _MOST_KEYS:
                self.known.clear()  # each costs a round trip, no more
                self._beside.clear()
            for other, _ in prices:
                if other != key:
                    self._beside.setdefault(other, set()).add(key)
            self.known[key] = Denial(
                spec_of(kernel, price) if len(prices) == 1 else None,
                state,
                prices,
                states,
                at_us,
                self._now_ns(),
                began_ns + steady_us * _NS_PER_US,
            )

    def verdict(
        self, charges: Sequence[Charge], prices: Mapping[Pair, int]
    ) -> Sequence[RateLimitResult] | None:
        """Return the results of *charges* if they are known to be refused."""
        found = self._found(prices)
        if found is None:
            return None
        denial, now_us = found
        return decide(charges, denial.read, now_us).results

    def taken_together(self, asked: Asked) -> TakenTogether | None:
        """Return what *asked* is told, no key of it twice, if it is refused."""
        found = self._found(prices_asked(asked))
        if found is None:
            return None
        denial, now_us = found
        states = [denial.read(key, spec.kernel) for key, spec in asked]
        taken = take_together([spec for _, spec in asked], states, now_us)
        return *taken, now_us, [key for key, _ in asked]

    def _found(self, prices: Mapping[Pair, int]) -> tuple[Denial, int] | None:
        """Return what refuses *prices*, and the store's time; None if nothing does."""
        for key, _ in prices:
            if (denial := self.known.get(key)) is None:
                continue
            now_us = self._still(key, denial, prices)
            if now_us is not None:
                return denial, now_us
        return None

    def taken(self, key: str, spec: Spec, denial: Denial) -> Taken | None:
        """Return what *spec* is told of *key* if *denial* refuses it, else None."""
        kernel = spec.kernel
        prices = denial.prices if denial.alone is spec else {(key, kernel): spec.cost}
        now_us = self._still(key, denial, prices)
        if now_us is None:
            return None
        if isinstance(kernel, Bucket):  # neither full nor of the future meanwhile
            return True, now_us * kernel.scale - denial.state, now_us, key
        return True, kernel.settle(denial.state, now_us), now_us, key

    def _still(
        self, key: str, denial: Denial, prices: Mapping[Pair, int]
    ) -> int | None:
        """Return the store's time if *prices* are refused by *denial*, else None."""
        ours_ns = self._now_ns()
        # A clock of the user may have been set back.
        if not denial.heard_ns <= ours_ns < denial.until_ns:
            self.known.pop(key, None)
            return None
        if denial.prices is not prices and not denial.covers(prices):
            return None
        self.hits += 1
        return denial.at_us + (ours_ns - denial.heard_ns) // _NS_PER_US

    def forget(self, keys: Iterable[str]) -> None:
        """Know nothing of *keys* any more; nor of what is on its way."""
        self._forgotten += 1
        self.drop(keys)

    def drop(self, keys: Iterable[str]) -> None:
        """Know nothing of *keys* any more: they were charged, and stand elsewhere."""
        if self.known:
            for key in keys:
                self.known.pop(key, None)
                for refused in self._beside.pop(key, ()):
                    self.known.pop(refused, None)


def _steady_us(kernel: AnyKernel, state: State, at_us: int, price: int) -> int:
    """
    Return how long *price* is refused, and all that is told of that is known.

    What leaves a log with its first hit is not known, only when.
    """
    wait_us = kernel.tell(True, state, at_us, price).retry_us or 0  # noqa: FBT003
    if isinstance(kernel, SlidingLog) and state.hits:
        wait_us = min(wait_us, state.hits[0][0] + kernel.period_us - at_us)
    return wait_us
