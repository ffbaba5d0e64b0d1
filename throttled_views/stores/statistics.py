"""What a store tells of itself, to whoever makes metrics of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

__all__ = ["Measured", "StoreStatistics"]


@dataclass(frozen=True, slots=True)
class StoreStatistics:
    """
    What a store keeps, and what it did in this process since it was made.

    Each is None for a store that does not know it, or has nothing of the kind.

    Attributes:
        keys: Keys kept now.
        evictions: Keys that were dropped at a bound although their quota was not whole.
        exhausted_evictions: Those of them that had no request left: each is a client
            that got its quota back early.
        cached_refusals: Calls that were known to be refused, and cost no round trip.
    """

    keys: int | None = None
    evictions: int | None = None
    exhausted_evictions: int | None = None
    cached_refusals: int | None = None


class Measured(Protocol):
    """**Protocol:** a store, or anything else, that has statistics."""

    @property
    def statistics(self) -> StoreStatistics:
        """What it did so far. It is read often, from any thread, and must not block."""
        ...
