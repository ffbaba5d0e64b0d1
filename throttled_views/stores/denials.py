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
from throttled_views.algorithms.log import Log
from throttled_views.results import Charge, RateLimitResult
from throttled_views.stores.base import Clock
from throttled_views.stores.deciding import State, decide
from throttled_views.stores.wire import Spec

__all__ = ["Denials", "Pair"]

_MOST_KEYS = 10_000
_LONGEST_US = 1_000_000

Pair: TypeAlias = tuple[str, AnyKernel]
"""A key, and what counts it."""


class _Denial(NamedTuple):
    """
    A call that was refused.

    Attributes:
        prices: What it asked for.
        states: Where its keys stood.
        at_us: When that was, by the clock of the store.
        heard_us: When it was heard, by our own clock.
        until_us: How long it holds, by our own clock.
    """

    prices: Mapping[Pair, int]
    states: Mapping[Pair, State]
    at_us: int
    heard_us: int
    until_us: int

    def state(self, key: str, kernel: AnyKernel) -> State:
        """Return where *key* stood."""
        return self.states[key, kernel]


class Denials:
    """
    The calls of the last second that were refused, by the keys that refused them.

    Args:
        clock: The clock of the store, if it is not the server's, in microseconds.
    """

    def __init__(self, clock: Clock | None) -> None:
        self._now_us: Clock = clock or (lambda: time.monotonic_ns() // 1_000)
        self._denials: dict[str, _Denial] = {}
        self._forgotten = 0

    def begin(self) -> tuple[int, int]:
        """Return what `note` wants to know: the time before the server was asked."""
        return self._now_us(), self._forgotten

    def note(
        self,
        prices: Mapping[Pair, int],
        states: Mapping[Pair, State],
        at_us: int,
        begun: tuple[int, int],
    ) -> None:
        """
        Remember that a call was refused.

        Args:
            prices: What it asked for.
            states: Where its keys stood.
            at_us: When that was, by the clock of the store.
            begun: What `begin` returned before the server was asked.
        """
        began_us, forgotten = begun
        if forgotten != self._forgotten:  # somebody reset a key meanwhile
            return
        for pair, price in prices.items():
            key, kernel = pair
            limited, state = kernel.take(states[pair], at_us, price)
            if not limited:
                continue
            if isinstance(state, Log) and state.used < kernel.capacity:
                continue  # its hits leave one by one, and only the server knows when
            wait_us = kernel.tell(limited, states[pair], at_us, price).retry_us
            until_us = began_us + min(wait_us or 0, _LONGEST_US)
            if len(self._denials) >= _MOST_KEYS:
                self._denials.pop(next(iter(self._denials)), None)
            self._denials[key] = _Denial(
                prices, states, at_us, self._now_us(), until_us
            )

    def verdict(
        self, charges: Sequence[Charge], prices: Mapping[Pair, int]
    ) -> Sequence[RateLimitResult] | None:
        """Return the results of *charges* if they are known to be refused."""
        for key, _ in prices:
            if (denial := self._denials.get(key)) is None:
                continue
            now_us = self._still(key, denial, prices)
            if now_us is not None:
                return decide(charges, denial.state, now_us).results
        return None

    def standing(self, key: str, spec: Spec) -> tuple[State, int] | None:
        """Return the state of a refused *key*, and its time, if it is known."""
        if (denial := self._denials.get(key)) is None:
            return None
        pair = key, spec.kernel
        now_us = self._still(key, denial, {pair: spec.cost})
        if now_us is None:
            return None
        return spec.kernel.settle(denial.states[pair], now_us), now_us

    def _still(
        self, key: str, denial: _Denial, prices: Mapping[Pair, int]
    ) -> int | None:
        """Return the store's time if *prices* are refused by *denial*, else None."""
        ours_us = self._now_us()
        # A clock of the user may have been set back.
        if not denial.heard_us <= ours_us < denial.until_us:
            self._denials.pop(key, None)
            return None
        if denial.prices.keys() != prices.keys():
            return None
        for pair, price in prices.items():
            known = denial.prices[pair]
            if price < known or (
                price > known and isinstance(denial.states[pair], Log)
            ):
                return None
        return denial.at_us + ours_us - denial.heard_us

    def forget(self, keys: Iterable[str]) -> None:
        """Know nothing of *keys* any more; nor of what is on its way."""
        self._forgotten += 1
        self.drop(keys)

    def drop(self, keys: Iterable[str]) -> None:
        """Know nothing of *keys* any more: they were charged, and stand elsewhere."""
        if self._denials:
            for key in keys:
                self._denials.pop(key, None)
