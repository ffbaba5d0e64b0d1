"""What windows should answer, from a list of all hits: slow, obvious and exact."""

from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Sequence
from fractions import Fraction
from math import ceil, floor
from typing import NamedTuple

from hypothesis import strategies as st

from tests.strategies import MONTH_US
from throttled_views import Quota
from throttled_views.algorithms.base import AnyKernel
from throttled_views.results import Decision


class Hit(NamedTuple):
    """What was charged when."""

    at_us: int
    units: int


class WindowModel(ABC):
    """
    A key that is held to a quota, as the list of its hits.

    It shares no line and no idea with the package: it keeps no count, and finds how
    long something takes by trying.
    """

    def __init__(self, quota: Quota, now_us: int) -> None:
        self.quota, self.period_us = quota, quota.period_us
        self.now_us = now_us
        self.hits: list[Hit] = []

    @abstractmethod
    def share(self, hit_us: int, at_us: int) -> Fraction:
        """Return how much of a hit counts at a time that is not before it."""

    @abstractmethod
    def put_back(self, now_us: int) -> None:
        """Move hits to where they belong after the clock was set back."""

    @abstractmethod
    def are_one(self, one_us: int, other_us: int) -> bool:
        """Tell whether what is charged at two times is counted as one."""

    def hold_to(self, quota: Quota) -> None:
        """Change the quota, and forget what does not count by the new one."""
        self.quota, self.period_us = quota, quota.period_us
        self.at(self.now_us)

    def used(self, at_us: int) -> Fraction:
        """Return what counts at a time."""
        shares = (self.share(hit.at_us, at_us) * hit.units for hit in self.hits)
        return sum(shares, Fraction(0))

    def at(self, now_us: int) -> None:
        """Let time pass, or step back, and forget what counts no more."""
        if now_us < self.now_us:
            self.put_back(now_us)
        self.now_us = now_us
        self.hits = [hit for hit in self.hits if self.share(hit.at_us, now_us)]

    def take(self, cost: int) -> Decision:
        """Charge *cost*, if that is not more than there is room for."""
        limit = self.quota.limit
        limited = not limit or (cost > 0 and self.used(self.now_us) + cost > limit)
        if not limit:
            return Decision(limited, 0, 0, 0, None, self.now_us)
        if not limited:
            self.hits.append(Hit(self.now_us, cost))
        retry_us: int | None = 0
        if limited:
            retry_us = None if cost > limit else self._wait_us(limit - cost)
        return Decision(
            limited,
            limit,
            max(0, floor(limit - self.used(self.now_us))),
            self._wait_us(0),
            retry_us,
            self.now_us,
        )

    def give_back(self, units: int, at_us: int) -> None:
        """Take *units* from what was charged at a time."""
        for index, hit in enumerate(self.hits):
            if self.are_one(hit.at_us, at_us):
                back = min(units, hit.units)
                units -= back
                self.hits[index] = Hit(hit.at_us, hit.units - back)

    def _wait_us(self, most: int) -> int:
        """Return the first wait after which *most* or less is used."""
        waits_us = range(2 * self.period_us + 1)
        return bisect_left(
            waits_us,
            x=True,
            key=lambda wait_us: self.used(self.now_us + wait_us) <= most,
        )


class FixedWindowModel(WindowModel):
    """Hits count until their window ends. Windows have numbers."""

    def number(self, at_us: int) -> int:
        """Return the number of the window that a time lies in."""
        return at_us // self.period_us

    def share(self, hit_us: int, at_us: int) -> Fraction:
        """Return 1 in the window of the hit."""
        return Fraction(self.number(hit_us) == self.number(at_us))

    def put_back(self, now_us: int) -> None:
        """Move all hits back by as many whole windows as the clock was."""
        windows = self.number(self.now_us) - self.number(now_us)
        self.hits = [
            Hit(at_us - windows * self.period_us, units) for at_us, units in self.hits
        ]

    def are_one(self, one_us: int, other_us: int) -> bool:
        """Count all of one window as one."""
        return self.number(one_us) == self.number(other_us)

    def hold_to(self, quota: Quota) -> None:
        """Change the quota: of windows of another length the sum remains."""
        if quota.period != self.quota.period:
            self.hits = [Hit(self.now_us, ceil(self.used(self.now_us)))]
        super().hold_to(quota)


class SlidingWindowModel(FixedWindowModel):
    """Hits count until the next window ends, ever less while that one lasts."""

    def share(self, hit_us: int, at_us: int) -> Fraction:
        """Return 1 in the window of the hit, less in the next one, 0 after it."""
        later = self.number(at_us) - self.number(hit_us)
        elapsed = Fraction(at_us, self.period_us) - self.number(at_us)
        return (Fraction(1), 1 - elapsed)[later] if later < 2 else Fraction(0)


class SlidingLogModel(WindowModel):
    """Hits count for one period."""

    def share(self, hit_us: int, at_us: int) -> Fraction:
        """Return 1 for one period."""
        return Fraction(at_us - hit_us < self.period_us)

    def put_back(self, now_us: int) -> None:
        """Move hits that are not yet made to now."""
        self.hits = [Hit(min(at_us, now_us), units) for at_us, units in self.hits]

    def are_one(self, one_us: int, other_us: int) -> bool:
        """Count all of one microsecond as one."""
        return one_us == other_us


class Request(NamedTuple):
    """Something that arrives."""

    at_us: int
    cost: int


@st.composite
def requests(
    draw: st.DrawFn, quota: Quota, *, steps_back: bool = True
) -> list[Request]:
    """Draw requests at times that matter to *quota*, up to a cost above its limit."""
    limit, period_us = quota.limit, quota.period_us
    costs = st.integers(0, 2) | st.integers(0, limit + 1) | st.just(limit)
    now_us, drawn = draw(st.integers(0, MONTH_US)), list[Request]()
    for _ in range(draw(st.integers(4, 20))):
        edge_us = period_us - now_us % period_us
        gaps = st.sampled_from([0, edge_us - 1, edge_us, edge_us + 1, period_us])
        gaps |= st.integers(0, period_us // limit + 1)
        gaps |= st.integers(0, period_us) | st.integers(0, 3 * period_us)
        if steps_back:
            gaps |= st.integers(-10, -1) | st.integers(-3 * period_us, -1)
        now_us += draw(gaps)
        drawn.append(Request(now_us, draw(costs)))
    return drawn


class Step(NamedTuple):
    """At *ms*, charge *cost*; expect the rest."""

    ms: int
    cost: int
    answer: str
    remaining: int
    reset_ms: int
    retry_ms: int | None = 0


def answers(kernel: AnyKernel, steps: Sequence[Step]) -> list[Step]:
    """Return *steps* with what *kernel* answers, which was made for a fresh key."""
    state, answered = None, list[Step]()
    for ms, cost, *_ in steps:
        limited, state = kernel.take(state, ms * 1000, cost)
        decision = kernel.tell(limited, state, ms * 1000, cost)
        retry_us = decision.retry_us
        answered.append(
            Step(
                ms,
                cost,
                "refused" if limited else "admitted",
                decision.remaining,
                decision.reset_us // 1000,
                None if retry_us is None else retry_us // 1000,
            )
        )
    return answered


def admitted(kernel: AnyKernel, at_ms: Sequence[int]) -> list[int]:
    """Return at which of the times a request is admitted."""
    state, passed = None, list[int]()
    for ms in at_ms:
        limited, state = kernel.take(state, ms * 1000, cost=1)
        if not limited:
            passed.append(ms)
    return passed
