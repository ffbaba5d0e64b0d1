"""
Metrics and span events for OpenTelemetry, by its API alone.

Rules of this file:

1. Names follow the semantic conventions. None of theirs is about limits, so that ours
   have a namespace of their own; they are singular but for what is counted, and have no
   unit and no ``total`` in them.
2. No attribute of a metric is of a request. An event on a span also tells what its
   client is told, and not even that names the client.
3. Without an SDK nothing is measured, and that costs next to nothing.

It needs the extra ``otel``.

Source:
    https://opentelemetry.io/docs/specs/semconv/general/naming/ and
    https://opentelemetry.io/docs/specs/semconv/general/metrics/
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Collection, Iterator
from typing import get_args
from weakref import WeakSet

try:
    from opentelemetry.metrics import (
        CallbackOptions,
        Meter,
        MeterProvider,
        Observation,
        get_meter,
        get_meter_provider,
    )
except ModuleNotFoundError as error:
    msg = "OTelHook needs opentelemetry-api. Write: pip install 'throttled_views[otel]'"
    raise ModuleNotFoundError(msg, name=error.name) from error

from throttled_views.contrib import _measures as of
from throttled_views.contrib._spans import note
from throttled_views.contrib._tallies import NAMESPACE, Attributes, Tallies
from throttled_views.errors import ConfigurationError
from throttled_views.hooks import CheckEvent, CheckOutcome, StoreStateEvent
from throttled_views.results import OnStoreError
from throttled_views.stores.statistics import Measured

__all__ = ["REFUSALS", "OTelHook"]

REFUSALS: tuple[CheckOutcome, ...] = ("refused", "would_refuse", "unavailable")
"""What is an event on the current span, unless said otherwise."""

_logger = logging.getLogger("throttled_views")
_measuring: WeakSet[MeterProvider] = WeakSet()


class OTelHook:
    """
    Measures decisions, and notes refusals on the current span: ``Limiter(hooks=[…])``.

    One hook is for all limiters of a meter provider; their decisions are added up. A
    second is warned about: an SDK reads the first only.

    Args:
        meter_provider: Where the metrics go; the global provider unless given, also one
            that is set later.
        store: The store whose statistics are read at each collection.
        span_events: Which outcomes are events on the span that is current, if that is
            recorded; ``()`` for none.

    Raises:
        ConfigurationError: There is no such outcome, or *store* has no statistics.
    """

    def __init__(
        self,
        *,
        meter_provider: MeterProvider | None = None,
        store: Measured | None = None,
        span_events: Collection[CheckOutcome] = REFUSALS,
    ) -> None:
        self._span_events = _checked_outcomes(span_events)
        self._lock = threading.Lock()
        self._down: dict[OnStoreError, int] = dict.fromkeys(get_args(OnStoreError), 0)
        self._tallies = Tallies()
        _warn_of_second(meter_provider or get_meter_provider())
        meter = get_meter(NAMESPACE, meter_provider=meter_provider)
        self._measure_decisions(meter)
        self._measure_times(meter)
        self._measure_outages(meter)
        if (measured := of.checked_measured(store)) is not None:
            for statistic in of.STATISTICS:
                _measure_store(meter, measured, statistic)

    def _measure_decisions(self, meter: Meter) -> None:
        def decisions(_options: CallbackOptions) -> Iterator[Observation]:
            for tally in self._tallies.all():
                yield Observation(tally.decisions, tally.attributes)

        def units(_options: CallbackOptions) -> Iterator[Observation]:
            for tally in self._tallies.all():
                yield Observation(tally.units, tally.attributes)

        counter = meter.create_observable_counter
        counter(f"{NAMESPACE}.decisions", [decisions], "{decision}", of.DECISIONS)
        counter(f"{NAMESPACE}.units", [units], "{unit}", of.UNITS)

    def _measure_times(self, meter: Meter) -> None:
        self._duration = meter.create_histogram(
            f"{NAMESPACE}.check.duration",
            "s",
            of.DURATION,
            explicit_bucket_boundaries_advisory=of.DURATION_BOUNDS,
        )
        self._delay = meter.create_histogram(
            f"{NAMESPACE}.delay.duration",
            "s",
            of.DELAY,
            explicit_bucket_boundaries_advisory=of.DELAY_BOUNDS,
        )

    def _measure_outages(self, meter: Meter) -> None:
        self._outages = meter.create_counter(
            f"{NAMESPACE}.store.outages", "{outage}", of.OUTAGES
        )

        # Observed and not added, so that it is there as zero before an outage.
        def observe(_options: CallbackOptions) -> Iterator[Observation]:
            for policy, count in self._down.items():
                yield Observation(count, {f"{NAMESPACE}.store.policy": policy})

        meter.create_observable_up_down_counter(
            f"{NAMESPACE}.store.down", [observe], "{limiter}", of.DOWN
        )

    def on_check(self, event: CheckEvent) -> None:
        """Measure a decision; see `Hook.on_check`."""
        tally = self._tallies.count(event)
        self._duration.record(event.duration, tally.timed)
        if event.delay:
            self._delay.record(event.delay, tally.attributes)
        if event.outcome in self._span_events:
            note(event, tally.attributes)

    def on_store_state(self, event: StoreStateEvent) -> None:
        """Measure an outage, and those that last; see `Hook.on_store_state`."""
        with self._lock:
            self._down[event.policy] += -1 if event.available else 1
        if event.error is not None:
            self._outages.add(1, _of_outage(event, event.error))


def _checked_outcomes(outcomes: Collection[CheckOutcome]) -> frozenset[CheckOutcome]:
    unknown = sorted({*outcomes}.difference(get_args(CheckOutcome)))
    if unknown:
        msg = (
            f"span_events: {unknown} are no outcomes. Write some of "
            f"{list(get_args(CheckOutcome))}, or ()"
        )
        raise ConfigurationError(msg)
    return frozenset(outcomes)


def _warn_of_second(meter_provider: MeterProvider) -> None:
    if meter_provider in _measuring:
        _logger.warning(
            "There are two OTelHooks for one meter provider, which may read the first "
            "only. Give one hook to all limiters"
        )
    _measuring.add(meter_provider)


def _of_outage(event: StoreStateEvent, error: Exception) -> Attributes:
    """Return the policy, and the kind of error: of what a store's own error is from."""
    kind = type(error.__cause__ or error)
    return {
        f"{NAMESPACE}.store.policy": event.policy,
        "error.type": f"{kind.__module__}.{kind.__qualname__}",
    }


def _measure_store(meter: Meter, store: Measured, statistic: of.Statistic) -> None:
    def observe(_options: CallbackOptions) -> Iterator[Observation]:
        value = statistic.read(store.statistics)
        if value is not None:
            yield Observation(value)

    create = (
        meter.create_observable_counter
        if statistic.only_grows
        else meter.create_observable_up_down_counter
    )
    name = f"{NAMESPACE}.store.{statistic.counted_as}"
    create(name, [observe], statistic.unit, statistic.documentation)
