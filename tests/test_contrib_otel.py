"""The hook for OpenTelemetry: what its SDK reads, and what is on spans."""

import importlib
import re
import subprocess
import sys
import threading
from bisect import bisect_left
from collections.abc import Mapping, Sequence

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import (
    DataPointT,
    HistogramDataPoint,
    InMemoryMetricReader,
    Metric,
    NumberDataPoint,
)
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF

from tests.asgi import CLIENT, app_of, frozen_store, statuses
from tests.contrib import CHECKED, STATISTICS, Counted, check, down, shifting, up
from tests.documents import ROOT
from throttled_views import (
    Algorithm,
    ConfigurationError,
    Hook,
    Limit,
    Limiter,
    RateLimitResult,
    ThrottledRouter,
)
from throttled_views.contrib.otel import OTelHook
from throttled_views.hooks import CheckedLimit, CheckOutcome

OF_LIMIT: Mapping[str, str | bool] = {
    "throttled_views.route": "app.Items.get",
    "throttled_views.limit.name": "burst",
    "throttled_views.limit.quota": "5/m",
    "throttled_views.limit.algorithm": "token_bucket",
    "throttled_views.limit.shadow": False,
    "throttled_views.phase": "early",
}


class Readings:
    """A meter provider that is read in memory."""

    def __init__(self) -> None:
        self._reader = InMemoryMetricReader()
        self.provider = MeterProvider([self._reader])

    def metrics(self) -> Mapping[str, Metric]:
        """Read all metrics, by the ends of their names."""
        read = self._reader.get_metrics_data()
        resources = () if read is None else read.resource_metrics
        return {
            metric.name.removeprefix("throttled_views."): metric
            for resource in resources
            for scope in resource.scope_metrics
            for metric in scope.metrics
        }

    def points(self, name: str) -> Sequence[DataPointT]:
        """Read the points of a metric, none if there are none."""
        metric = self.metrics().get(name)
        return [] if metric is None else metric.data.data_points

    def values(self, name: str, *attributes: str) -> Mapping[tuple[object, ...], float]:
        """Read the numbers of a metric, by the values of attributes of it."""
        return {
            tuple(
                (point.attributes or {})[f"throttled_views.{attribute}"]
                for attribute in attributes
            ): point.value
            for point in self.points(name)
            if isinstance(point, NumberDataPoint)
        }


class Spans:
    """A tracer, and the events of the spans that it ended."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        provider = TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.tracer = provider.get_tracer("tests")

    def events(self) -> Sequence[Mapping[str, object]]:
        """Return the attributes of all events on spans, by the ends of their names."""
        return [
            {
                name.removeprefix("throttled_views."): value
                for name, value in (event.attributes or {}).items()
            }
            for span in self._exporter.get_finished_spans()
            for event in span.events
            if event.name == "throttled_views.decision"
        ]


@pytest.fixture(name="readings")
def readings_fixture() -> Readings:
    """Give a meter provider."""
    return Readings()


@pytest.fixture(name="spans")
def spans_fixture() -> Spans:
    """Give a tracer."""
    return Spans()


@pytest.fixture(name="hook")
def hook_fixture(readings: Readings) -> OTelHook:
    """Give a hook that measures for the meter provider."""
    return OTelHook(meter_provider=readings.provider)


def test_it_is_a_hook(hook: OTelHook) -> None:
    """A limiter takes it."""
    assert isinstance(hook, Hook)


def test_names_and_units_follow_the_conventions(readings: Readings) -> None:
    """One namespace, units of UCUM or singular in braces, and no unit in a name."""
    hook = OTelHook(meter_provider=readings.provider, store=Counted(1, 1, 1, 1))
    hook.on_check(check("admitted", delay=0.1))
    hook.on_store_state(down("local"))

    assert {
        "decisions": "{decision}",
        "units": "{unit}",
        "check.duration": "s",
        "delay.duration": "s",
        "store.outages": "{outage}",
        "store.down": "{limiter}",
        "store.key.count": "{key}",
        "store.evictions": "{eviction}",
        "store.exhausted_evictions": "{eviction}",
        "store.cached_refusals": "{refusal}",
    } == {name: metric.unit for name, metric in readings.metrics().items()}


def test_decisions_are_counted_by_limit_phase_and_outcome(
    readings: Readings, hook: OTelHook
) -> None:
    """Each outcome of each limit in each phase has attributes of its own."""
    hook.on_check(check("admitted"))
    hook.on_check(check("admitted"))
    hook.on_check(check("refused", phase="late"))

    assert [
        (2, {**OF_LIMIT, "throttled_views.outcome": "admitted"}),
        (
            1,
            {
                **OF_LIMIT,
                "throttled_views.outcome": "refused",
                "throttled_views.phase": "late",
            },
        ),
    ] == [
        (point.value, point.attributes)
        for point in readings.points("decisions")
        if isinstance(point, NumberDataPoint)
    ]


def test_units_are_counted_as_they_are_asked_for(
    readings: Readings, hook: OTelHook
) -> None:
    """What requests cost is added up, and what comes back apart."""
    hook.on_check(check("admitted", cost=5))
    hook.on_check(check("admitted", cost=0))
    hook.on_check(check("refunded", cost=3))

    assert {("admitted",): 5, ("refunded",): 3} == readings.values("units", "outcome")


def test_a_limit_in_shadow_is_told_apart(readings: Readings, hook: OTelHook) -> None:
    """What it admits is not mistaken for what an enforced limit admits."""
    shadow = CheckedLimit("app.Items.get", "burst", "5/m", Algorithm.GCRA, shadow=True)
    hook.on_check(check("admitted"))
    hook.on_check(check("admitted", shadow))

    assert {(False,): 1, (True,): 1} == readings.values("decisions", "limit.shadow")


@pytest.mark.parametrize(
    ("name", "seconds"),
    [("check.duration", 0.0003), ("delay.duration", 0.2)],
    ids=["store", "turn"],
)
def test_times_are_histograms(
    readings: Readings, hook: OTelHook, name: str, seconds: float
) -> None:
    """Each is in seconds, in buckets that fit what is measured."""
    hook.on_check(check("admitted", duration=0.0003))
    hook.on_check(check("admitted", duration=0.0003, delay=0.2))
    [point] = readings.points(name)

    assert isinstance(point, HistogramDataPoint)
    bound = bisect_left(point.explicit_bounds, seconds)
    assert seconds == point.max
    assert 0 < bound < len(point.explicit_bounds)
    assert point.count == point.bucket_counts[bound]


def test_a_second_hook_of_a_provider_is_warned_about(
    readings: Readings, hook: OTelHook, caplog: pytest.LogCaptureFixture
) -> None:
    """What the second counts is not read; it is said what to do."""
    assert [] == caplog.records

    OTelHook(meter_provider=readings.provider)
    [record] = caplog.records

    assert "Give one hook to all limiters" in record.getMessage()


# --- the store ------------------------------------------------------------------------


def test_outages_are_counted_and_those_that_last(
    readings: Readings, hook: OTelHook
) -> None:
    """Zero before the first, one while it lasts, and it is remembered afterwards."""
    told = [readings.values("store.down", "store.policy")[("deny",)]]
    for event in (down("deny"), up("deny"), down("deny"), down("deny")):
        hook.on_store_state(event)
        told.append(readings.values("store.down", "store.policy")[("deny",)])

    assert [0, 1, 0, 1, 2] == told
    assert {("deny",): 3} == readings.values("store.outages", "store.policy")


@pytest.mark.parametrize(
    ("cause", "kind"),
    [
        (TimeoutError(), "builtins.TimeoutError"),
        (None, "throttled_views.errors.StoreUnavailableError"),
    ],
    ids=["of the cause", "its own"],
)
def test_an_outage_has_the_type_of_its_error(
    readings: Readings, hook: OTelHook, cause: Exception | None, kind: str
) -> None:
    """The attribute that the conventions have for that tells what went wrong."""
    hook.on_store_state(down("local", cause))
    [point] = readings.points("store.outages")

    assert kind == (point.attributes or {})["error.type"]


@pytest.mark.parametrize("name", STATISTICS)
def test_statistics_of_the_store_are_read_at_each_collection(
    readings: Readings, name: str
) -> None:
    """What the store says now is what is measured, if it says anything."""
    store = Counted()
    OTelHook(meter_provider=readings.provider, store=store)
    measured = f"store.{'key.count' if name == 'keys' else name}"
    told = [readings.values(measured)]
    for value in (3, 7):
        store.tell(name, value)
        told.append(readings.values(measured))

    assert [{}, {(): 3}, {(): 7}] == told


# --- spans ----------------------------------------------------------------------------


@pytest.mark.parametrize("outcome", ["refused", "would_refuse", "unavailable"])
def test_a_refusal_is_an_event_on_the_span(
    hook: OTelHook, spans: Spans, outcome: CheckOutcome
) -> None:
    """The trace of a request tells by which limit it was refused."""
    with spans.tracer.start_as_current_span("request"):
        hook.on_check(check(outcome))
    of_event = {**OF_LIMIT, "throttled_views.outcome": outcome}

    assert [
        {name.removeprefix("throttled_views."): of_event[name] for name in of_event}
    ] == spans.events()


@pytest.mark.parametrize("outcome", ["admitted", "spared", "refunded"])
def test_what_is_no_refusal_is_no_event(
    hook: OTelHook, spans: Spans, outcome: CheckOutcome
) -> None:
    """Traces of requests that were admitted are not filled up."""
    with spans.tracer.start_as_current_span("request"):
        hook.on_check(check(outcome))

    assert [] == spans.events()


@pytest.mark.parametrize(
    ("asked", "seen"),
    [((), []), (("admitted",), ["admitted"])],
    ids=["none", "admitted"],
)
def test_one_may_say_what_is_an_event(
    spans: Spans, asked: Sequence[CheckOutcome], seen: Sequence[str]
) -> None:
    """Other outcomes may be wanted on spans, or none."""
    hook = OTelHook(span_events=asked)
    with spans.tracer.start_as_current_span("request"):
        hook.on_check(check("admitted"))
        hook.on_check(check("refused"))

    assert seen == [event["outcome"] for event in spans.events()]


def test_what_is_no_outcome_is_refused() -> None:
    """A misspelt outcome is told at once, with those that there are."""
    with pytest.raises(ConfigurationError, match=r"\['denied'\] are no outcomes"):
        OTelHook(span_events=["denied"])  # type: ignore[list-item] # pyright: ignore[reportArgumentType]


async def test_an_event_tells_what_the_client_is_told(
    hook: OTelHook, spans: Spans
) -> None:
    """What is left, and when to come again; without a name of the client."""
    router = ThrottledRouter(Limiter("1/m", store=frozen_store(), hooks=[hook]))
    router.get("/")(items)
    with spans.tracer.start_as_current_span("request"):
        assert [200, 429] == await statuses(app_of(router), "GET /", "GET /")
    [event] = spans.events()

    assert {"limit.capacity": 1, "remaining": 0, "retry_after": 60.0} == {
        name: event[name] for name in ("limit.capacity", "remaining", "retry_after")
    }
    assert CLIENT not in str(event)


async def test_what_is_never_admitted_has_no_time(hook: OTelHook, spans: Spans) -> None:
    """Where the answer is never, there is no attribute that says when."""
    router = ThrottledRouter(Limiter("0/m", store=frozen_store(), hooks=[hook]))
    router.get("/")(items)
    with spans.tracer.start_as_current_span("request"):
        assert [429] == await statuses(app_of(router), "GET /")
    [event] = spans.events()

    assert "retry_after" not in event


def test_a_span_that_is_not_recorded_gets_none(hook: OTelHook) -> None:
    """Where sampling left the request out, nothing is built for it."""

    def fail() -> RateLimitResult:
        raise AssertionError

    tracer = TracerProvider(ALWAYS_OFF).get_tracer("tests")
    with tracer.start_as_current_span("request"):
        hook.on_check(check("refused")._replace(make_result=fail))


# --- applications ---------------------------------------------------------------------


async def items() -> None:
    """Serve nothing."""


async def test_an_application_is_observed(readings: Readings, hook: OTelHook) -> None:
    """Admitted, refused and in shadow: it is counted what came out for each limit."""
    limits = [Limit("2/h", name="enforced"), Limit("1/h", name="tried", shadow=True)]
    router = ThrottledRouter(Limiter(limits, store=frozen_store(), hooks=[hook]))
    router.get("/")(items)
    await statuses(app_of(router), *["GET /"] * 3)

    assert {
        ("enforced", "admitted"): 2,
        ("enforced", "refused"): 1,
        ("tried", "admitted"): 1,
        ("tried", "would_refuse"): 1,
    } == readings.values("decisions", "limit.name", "outcome")


def test_threads_may_tell_at_once(readings: Readings, hook: OTelHook) -> None:
    """None of what several threads tell is lost."""

    def tell() -> None:
        for _ in range(500):
            hook.on_check(check("admitted", CHECKED))
            hook.on_store_state(down("local"))

    with shifting():
        threads = [threading.Thread(target=tell) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    assert {("admitted",): 2000} == readings.values("decisions", "outcome")
    assert 2000 == readings.values("store.down", "store.policy")[("local",)]


# --- without an SDK -------------------------------------------------------------------

ALONE = """
import sys
from importlib.abc import MetaPathFinder

class NoSDK(MetaPathFinder):
    def find_spec(self, name, path, target=None):
        assert not name.startswith("opentelemetry.sdk"), name

sys.meta_path.insert(0, NoSDK())
from tests.contrib import check, down, up
from throttled_views import MemoryStore
from throttled_views.contrib.otel import OTelHook

hook = OTelHook(store=MemoryStore())
hook.on_check(check("refused", delay=0.1))
hook.on_store_state(down("local"))
hook.on_store_state(up("local"))
print("done")
"""


def test_the_api_alone_is_enough() -> None:
    """Without an SDK nothing is measured, and nothing fails."""
    ran = subprocess.run(
        [sys.executable, "-c", ALONE],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )

    assert ("done\n", "") == (ran.stdout, ran.stderr)


LATER = """
from opentelemetry.metrics import set_meter_provider
from tests.contrib import check
from tests.test_contrib_otel import Readings
from throttled_views.contrib.otel import OTelHook

hook = OTelHook()
readings = Readings()
set_meter_provider(readings.provider)
hook.on_check(check("admitted"))
print(readings.values("decisions", "outcome"), len(readings.points("store.down")))
"""


def test_the_global_provider_may_be_set_later() -> None:
    """A hook is made at import, before the application configures an SDK."""
    ran = subprocess.run(
        [sys.executable, "-c", LATER],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )

    assert ("{('admitted',): 1} 3\n", "") == (ran.stdout, ran.stderr)


def test_without_opentelemetry_the_extra_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Who did not install the extra is told how to."""
    monkeypatch.delitem(sys.modules, "throttled_views.contrib.otel")
    monkeypatch.setitem(sys.modules, "opentelemetry.metrics", None)

    with pytest.raises(ModuleNotFoundError, match=r"throttled_views\[otel\]"):
        importlib.import_module("throttled_views.contrib.otel")


# --- the reference --------------------------------------------------------------------


def test_the_reference_lists_all_metrics(readings: Readings) -> None:
    """Each metric is there once, with its unit."""
    hook = OTelHook(meter_provider=readings.provider, store=Counted(1, 1, 1, 1))
    hook.on_check(check("admitted", delay=0.1))
    hook.on_store_state(down("local"))
    page = (ROOT / "docs" / "reference" / "metrics.md").read_text("utf-8")
    rows = re.findall(
        r"^\| `throttled_views\.(\S+)` \| [\w -]+ \| `(\S+)` \|", page, re.MULTILINE
    )

    assert sorted(rows) == sorted(
        (name, metric.unit or "") for name, metric in readings.metrics().items()
    )
