"""
What came out so far, counted here and read when somebody collects it.

To tell the SDK of OpenTelemetry of a decision, with all of its attributes, takes half
as long as a request: so it reads what there is, once for each collection.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from functools import lru_cache
from typing import TypeAlias

from throttled_views.contrib._measures import MOST_SERIES
from throttled_views.hooks import CheckedLimit, CheckEvent, CheckOutcome, CheckPhase

Attributes: TypeAlias = Mapping[str, str | bool | int | float]

NAMESPACE = "throttled_views"


class Tally:
    """
    What one outcome of one limit came to.

    Attributes:
        attributes: What it is of.
        timed: What its times are of: fewer, since each series of a histogram is many.
        decisions: How often it came out.
        units: What was asked for then.
    """

    __slots__ = ("attributes", "decisions", "timed", "units")

    def __init__(self, attributes: Attributes, timed: Attributes) -> None:
        self.attributes = attributes
        self.timed = timed
        self.decisions = 0
        self.units = 0


class Tallies:
    """All outcomes of all limits. Safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: dict[frozenset[tuple[str, object]], Tally] = {}
        self._tally = lru_cache(maxsize=MOST_SERIES)(self._found)

    def count(self, event: CheckEvent) -> Tally:
        """Count *event*; return where."""
        tally = self._tally(event.limit, event.phase, event.outcome)
        with self._lock:
            tally.decisions += 1
            tally.units += event.cost
        return tally

    def all(self) -> list[Tally]:
        """Return what there is so far."""
        with self._lock:
            return list(self._known.values())

    def _found(
        self, limit: CheckedLimit, phase: CheckPhase, outcome: CheckOutcome
    ) -> Tally:
        timed: Attributes = {
            f"{NAMESPACE}.limit.algorithm": limit.algorithm.value,
            f"{NAMESPACE}.outcome": outcome,
        }
        attributes: Attributes = {
            f"{NAMESPACE}.route": limit.route,
            f"{NAMESPACE}.limit.name": limit.name,
            f"{NAMESPACE}.limit.quota": limit.quota,
            f"{NAMESPACE}.limit.shadow": limit.shadow,
            f"{NAMESPACE}.phase": phase,
            **timed,
        }
        # Other objects may be limits of the same attributes, and are counted with it.
        with self._lock:
            return self._known.setdefault(
                frozenset(attributes.items()), Tally(attributes, timed)
            )
