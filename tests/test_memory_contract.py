"""The memory store keeps every promise of a store."""

import pytest

from tests.clock import ManualClock
from throttled_views import MemoryStore
from throttled_views.testing import StoreContract


class TestMemoryStore(StoreContract):
    """A large one."""


class TestSmallMemoryStore(StoreContract):
    """One that has just enough room."""

    @pytest.fixture
    def store(self, clock: ManualClock) -> MemoryStore:
        """Give a store of one shard."""
        return MemoryStore(max_keys=20, clock=clock)
