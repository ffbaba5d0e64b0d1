"""Events as a limiter tells them, and a store whose statistics a test decides."""

import sys
from collections.abc import Generator
from contextlib import contextmanager

from throttled_views import (
    Algorithm,
    CheckEvent,
    OnStoreError,
    StoreStateEvent,
    StoreUnavailableError,
)
from throttled_views.hooks import CheckedLimit, CheckOutcome, CheckPhase
from throttled_views.stores.statistics import StoreStatistics

CHECKED = CheckedLimit("app.Items.get", "burst", "5/m", Algorithm.TOKEN_BUCKET)

STATISTICS = ("keys", "evictions", "exhausted_evictions", "cached_refusals")


def check(  # noqa: PLR0913 - each is a part of the event
    outcome: CheckOutcome,
    limit: CheckedLimit = CHECKED,
    *,
    phase: CheckPhase = "early",
    cost: int = 1,
    duration: float = 0.001,
    delay: float = 0.0,
) -> CheckEvent:
    """Return the event of a decision."""
    return CheckEvent(limit, phase, outcome, cost, duration, delay)


def down(policy: OnStoreError, cause: Exception | None = None) -> StoreStateEvent:
    """Return the event of a store that went down."""
    error = StoreUnavailableError("no route to host")
    error.__cause__ = cause
    return StoreStateEvent(available=False, policy=policy, error=error)


def up(policy: OnStoreError) -> StoreStateEvent:
    """Return the event of a store that is up again."""
    return StoreStateEvent(available=True, policy=policy)


class Counted:
    """Something with statistics, which knows what it is told."""

    def __init__(self, *numbers: int) -> None:
        self.statistics = StoreStatistics(*numbers)

    def tell(self, name: str, value: int) -> None:
        """Let the statistic of that name be *value*, and nothing else be known."""
        self.statistics = StoreStatistics(**{name: value})


@contextmanager
def shifting() -> Generator[None]:
    """Let threads take turns as often as they can."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval)
