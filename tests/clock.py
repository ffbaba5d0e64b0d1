"""A clock for stores under test: it moves when it is told to."""

from throttled_views.testing import ManualClock

__all__ = ["ManualClock"]
