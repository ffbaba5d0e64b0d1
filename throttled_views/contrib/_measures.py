"""What all hooks measure alike: in words, in bounds, and of a store."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from throttled_views.errors import ConfigurationError, shown
from throttled_views.stores.statistics import Measured, StoreStatistics

DECISIONS = "What came out for a limit: once for each limit of each decision."
UNITS = "Units that the decisions asked for, or that came back."
DURATION = "Time that the store took: once for each limit of each decision."
DELAY = "Time that admitted requests wait for their turn, where they wait."
OUTAGES = "How often a limiter found its store unavailable."
DOWN = "Limiters whose store is unavailable now."

# Upper bounds of buckets, in seconds.
DURATION_BOUNDS = (
    *(0.000_01, 0.000_025, 0.000_05, 0.000_1, 0.000_25, 0.000_5),  # in memory
    *(0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5),  # over a network
)
DELAY_BOUNDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)

# Labels of decisions are kept for so many: where limits are made by hand, there may be
# ever new objects of the same few labels.
MOST_SERIES = 10_000


@dataclass(frozen=True, slots=True)
class Statistic:
    """
    A number of `StoreStatistics`, as metrics have it.

    Attributes:
        name: What it is called.
        counted_as: What it is called where names of what goes up and down are singular.
        unit: What is counted, as OpenTelemetry annotates it.
        only_grows: Whether it is a count of what happened, and not of what is there.
        documentation: What it is.
        read: Returns it, None if the store does not know.
    """

    name: str
    counted_as: str
    unit: str
    only_grows: bool
    documentation: str
    read: Callable[[StoreStatistics], int | None]


STATISTICS = (
    Statistic(
        "keys",
        "key.count",
        "{key}",
        only_grows=False,
        documentation="Keys that the store keeps in this process.",
        read=lambda known: known.keys,
    ),
    Statistic(
        "evictions",
        "evictions",
        "{eviction}",
        only_grows=True,
        documentation=(
            "Keys dropped at the bound of the store although their quota was not whole."
        ),
        read=lambda known: known.evictions,
    ),
    Statistic(
        "exhausted_evictions",
        "exhausted_evictions",
        "{eviction}",
        only_grows=True,
        documentation=(
            "Keys dropped at the bound of the store although they had no request left."
        ),
        read=lambda known: known.exhausted_evictions,
    ),
    Statistic(
        "cached_refusals",
        "cached_refusals",
        "{refusal}",
        only_grows=True,
        documentation="Calls known to be refused, which cost no round trip.",
        read=lambda known: known.cached_refusals,
    ),
)


def checked_measured(store: Measured | None) -> Measured | None:
    """Return *store* if it has statistics, or is none."""
    statistics: object = getattr(store, "statistics", None)
    if store is not None and not isinstance(statistics, StoreStatistics):
        msg = (
            f"store={shown(store)} has no statistics. Write a property 'statistics' "
            "in its class, which returns a StoreStatistics, or leave store out"
        )
        raise ConfigurationError(msg)
    return store
