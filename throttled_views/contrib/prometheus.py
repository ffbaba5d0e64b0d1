"""
Metrics for Prometheus.

Rules of this file:

1. No label is of a request. All of them are of limits, which the code declares, so that
   a flood of clients makes no series, and no metric names a client.
2. What is found by labels is kept: a decision costs two counters and a histogram.
3. A hook has all of its metrics in a registry, or none.

It needs the extra ``prometheus``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple, get_args

try:
    from prometheus_client import REGISTRY, CollectorRegistry, Counter, Gauge, Histogram
    from prometheus_client.metrics_core import (
        CounterMetricFamily,
        GaugeMetricFamily,
        Metric,
    )
except ModuleNotFoundError as error:
    msg = (
        "PrometheusHook needs prometheus-client. "
        "Write: pip install 'throttled_views[prometheus]'"
    )
    raise ModuleNotFoundError(msg, name=error.name) from error

from throttled_views.contrib import _measures as of
from throttled_views.errors import ConfigurationError
from throttled_views.hooks import (
    CheckedLimit,
    CheckEvent,
    CheckOutcome,
    CheckPhase,
    StoreStateEvent,
)
from throttled_views.results import OnStoreError
from throttled_views.stores.statistics import Measured, StoreStatistics

__all__ = ["PrometheusHook"]

_OF_DECISION = (
    *("route", "limit", "quota", "algorithm", "shadow"),
    *("phase", "outcome"),
)


class _Series(NamedTuple):
    """What one outcome of one limit is added to."""

    decisions: Counter
    units: Counter
    duration: Histogram


class PrometheusHook:
    """
    Counts decisions, and how long they take, for Prometheus: ``Limiter(hooks=[…])``.

    One hook may be given to several limiters; their decisions are added up. It is the
    collector of its metrics, too: ``registry.unregister(hook)`` takes them out.

    Args:
        registry: Where the metrics are found.
        namespace: What their names begin with.
        store: The store whose statistics are read at each scrape. Where
            PROMETHEUS_MULTIPROC_DIR is set they are not in what all processes tell
            together.
        buckets: Upper bounds, in seconds, of the histogram of the time a check takes.

    Raises:
        ConfigurationError: The registry has metrics of these names, or *store* has no
            statistics.
    """

    def __init__(
        self,
        *,
        registry: CollectorRegistry = REGISTRY,
        namespace: str = "throttled_views",
        store: Measured | None = None,
        buckets: Sequence[float] = of.DURATION_BOUNDS,
    ) -> None:
        self._namespace = namespace
        self._store = of.checked_measured(store)
        self._decisions = self._counter("decisions_total", of.DECISIONS, *_OF_DECISION)
        self._units = self._counter("units_total", of.UNITS, *_OF_DECISION)
        # By few labels: each series of a histogram is one for each bucket.
        self._duration = self._histogram(
            "check_duration_seconds", of.DURATION, buckets, "algorithm", "outcome"
        )
        self._delay = self._histogram(
            "delay_seconds", of.DELAY, of.DELAY_BOUNDS, "route", "limit"
        )
        self._outages = self._counter("store_outages_total", of.OUTAGES, "policy")
        self._down = self._gauge("stores_down", of.DOWN, "policy")
        for policy in get_args(OnStoreError):  # zero before an outage, and not absent
            self._outages.labels(policy)
            self._down.labels(policy)
        self._series = lru_cache(maxsize=of.MOST_SERIES)(self._made_series)
        _register(self, registry, namespace)

    # In no registry: the hook is in it, with all that it has.

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(name, text, labels, self._namespace, registry=None)

    def _gauge(self, name: str, text: str, *labels: str) -> Gauge:
        return Gauge(
            name,
            text,
            labels,
            self._namespace,
            registry=None,
            multiprocess_mode="livesum",
        )

    def _histogram(
        self, name: str, text: str, buckets: Sequence[float], *labels: str
    ) -> Histogram:
        return Histogram(
            name, text, labels, self._namespace, registry=None, buckets=buckets
        )

    def on_check(self, event: CheckEvent) -> None:
        """Count a decision; see `Hook.on_check`."""
        limit = event.limit
        decisions, units, duration = self._series(limit, event.phase, event.outcome)
        decisions.inc()
        units.inc(event.cost)
        duration.observe(event.duration)
        if event.delay and not limit.shadow:  # nobody waits for that
            self._delay.labels(limit.route, limit.name).observe(event.delay)

    def on_store_state(self, event: StoreStateEvent) -> None:
        """Count an outage, and those that last; see `Hook.on_store_state`."""
        if event.available:
            self._down.labels(event.policy).dec()
        else:
            self._outages.labels(event.policy).inc()
            self._down.labels(event.policy).inc()

    def collect(self) -> Iterator[Metric]:
        """Return all metrics as they stand; a registry asks for them."""
        for counter in (self._decisions, self._units, self._outages):
            yield from counter.collect()
        for histogram in (self._duration, self._delay):
            yield from histogram.collect()
        yield from self._down.collect()
        if self._store is not None:
            yield from _metrics_of(self._store.statistics, self._namespace)

    def describe(self) -> Iterator[Metric]:
        """Return what there will be, by which a registry knows the names."""
        return self.collect()

    def _made_series(
        self, limit: CheckedLimit, phase: CheckPhase, outcome: CheckOutcome
    ) -> _Series:
        shadow = "true" if limit.shadow else "false"
        labels = (limit.route, limit.name, limit.quota, limit.algorithm, shadow)
        return _Series(
            self._decisions.labels(*labels, phase, outcome),
            self._units.labels(*labels, phase, outcome),
            self._duration.labels(limit.algorithm, outcome),
        )


def _register(
    hook: PrometheusHook, registry: CollectorRegistry, namespace: str
) -> None:
    try:
        registry.register(hook)
    except ValueError as error:
        msg = (
            f"namespace={namespace!r} is in use in this registry. Give one hook to all "
            "limiters of the registry, or write PrometheusHook(namespace='another')"
        )
        raise ConfigurationError(msg) from error


def _metrics_of(statistics: StoreStatistics, namespace: str) -> Iterator[Metric]:
    """Return the metrics of what a store knows of itself."""
    for each in of.STATISTICS:
        value = each.read(statistics)
        if value is not None:
            family = CounterMetricFamily if each.only_grows else GaugeMetricFamily
            name = f"{namespace}_store_{each.name}"
            yield family(name, each.documentation, value=value)
