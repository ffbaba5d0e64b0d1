"""
Fixtures for pytest. Import those that you want, for example in a ``conftest.py``.

::

    from throttled_views.testing.fixtures import manual_clock, memory_store

    __all__ = ["manual_clock", "memory_store"]
"""

from __future__ import annotations

import pytest

from throttled_views.stores.memory import MemoryStore
from throttled_views.testing import ManualClock

__all__ = ["manual_clock", "memory_store"]


@pytest.fixture
def manual_clock() -> ManualClock:
    """Give a clock that stands at zero."""
    return ManualClock()


@pytest.fixture
def memory_store(manual_clock: ManualClock) -> MemoryStore:
    """Give an empty store that goes by *manual_clock*."""
    return MemoryStore(clock=manual_clock)
