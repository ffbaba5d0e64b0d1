"""An event loop whose time is that of a clock under test: who sleeps does not wait."""

import asyncio
import selectors
from collections.abc import Coroutine
from math import ceil
from typing import Any, TypeVar

from tests.clock import ManualClock

T = TypeVar("T")

_US_PER_S = 1_000_000
_ROUNDING_US = 0.01  # of a float that is a time


class _Selector(selectors.DefaultSelector):
    """Lets time pass instead of waiting for it."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__()
        self._clock = clock

    def select(
        self, timeout: float | None = None
    ) -> list[tuple[selectors.SelectorKey, int]]:
        """Tell what is ready; if nothing is, let *timeout* seconds pass."""
        ready = super().select(0)
        if timeout is None and not ready:
            return super().select(1)  # a thread may have something to say
        if timeout and not ready:
            passed_us = max(1, ceil(timeout * _US_PER_S - _ROUNDING_US))
            self._clock.advance(passed_us / _US_PER_S)
        return ready


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop that goes by *clock*, and moves it."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(_Selector(clock))
        self._clock = clock

    def time(self) -> float:
        """Return the time of the clock, in seconds."""
        return self._clock() / _US_PER_S


def run(clock: ManualClock, main: Coroutine[Any, Any, T]) -> T:
    """Run *main* to its end; as long as all sleep, the time of *clock* passes."""
    with asyncio.Runner(loop_factory=lambda: VirtualLoop(clock)) as runner:
        return runner.run(main)
