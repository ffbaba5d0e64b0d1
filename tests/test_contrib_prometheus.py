"""The hook for Prometheus: what is exported, read from real registries."""

import importlib
import os
import re
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from tests.asgi import CLIENT, Relay, app_of, frozen_store, statuses
from tests.contrib import CHECKED, STATISTICS, Counted, check, down, shifting, up
from tests.documents import ROOT
from tests.test_hooks import Down
from throttled_views import (
    Algorithm,
    ConfigurationError,
    Hook,
    Limit,
    Limiter,
    MemoryStore,
    ThrottledRouter,
)
from throttled_views.contrib.prometheus import PrometheusHook
from throttled_views.hooks import CheckedLimit

LABELS = {
    "route": "app.Items.get",
    "limit": "burst",
    "quota": "5/m",
    "algorithm": "token_bucket",
    "shadow": "false",
}


@pytest.fixture(name="registry")
def registry_fixture() -> CollectorRegistry:
    """Give a registry of its own."""
    return CollectorRegistry()


@pytest.fixture(name="hook")
def hook_fixture(registry: CollectorRegistry) -> PrometheusHook:
    """Give a hook that exports to the registry."""
    return PrometheusHook(registry=registry)


def decisions(
    registry: CollectorRegistry, *labels: str
) -> Mapping[tuple[str, ...], float]:
    """Return how many decisions there were, by the values of *labels*."""
    return {
        tuple(sample.labels[label] for label in labels): sample.value
        for metric in registry.collect()
        for sample in metric.samples
        if sample.name == "throttled_views_decisions_total"
    }


def test_it_is_a_hook(hook: PrometheusHook) -> None:
    """A limiter takes it."""
    assert isinstance(hook, Hook)


def test_decisions_are_counted_by_limit_phase_and_outcome(
    registry: CollectorRegistry, hook: PrometheusHook
) -> None:
    """Each outcome of each limit in each phase is a series of its own."""
    hook.on_check(check("admitted"))
    hook.on_check(check("admitted"))
    hook.on_check(check("refused"))
    hook.on_check(check("refused", phase="late"))

    assert [2.0, 1.0, 1.0] == [
        registry.get_sample_value(
            "throttled_views_decisions_total",
            {**LABELS, "phase": phase, "outcome": outcome},
        )
        for phase, outcome in (
            ("early", "admitted"),
            ("early", "refused"),
            ("late", "refused"),
        )
    ]


def test_units_are_counted_as_they_are_asked_for(
    registry: CollectorRegistry, hook: PrometheusHook
) -> None:
    """What requests cost is added up, and what comes back apart."""
    hook.on_check(check("admitted", cost=5))
    hook.on_check(check("admitted", cost=0))
    hook.on_check(check("refunded", cost=3))

    assert [5.0, 3.0] == [
        registry.get_sample_value(
            "throttled_views_units_total",
            {**LABELS, "phase": "early", "outcome": outcome},
        )
        for outcome in ("admitted", "refunded")
    ]


def test_a_limit_in_shadow_is_told_apart(
    registry: CollectorRegistry, hook: PrometheusHook
) -> None:
    """What it admits is not mistaken for what an enforced limit admits."""
    shadow = CheckedLimit("app.Items.get", "burst", "5/m", Algorithm.GCRA, shadow=True)
    hook.on_check(check("would_refuse", shadow))

    of_shadow = {**LABELS, "algorithm": "gcra", "shadow": "true"}
    assert 1.0 == registry.get_sample_value(
        "throttled_views_decisions_total",
        {**of_shadow, "phase": "early", "outcome": "would_refuse"},
    )


def test_the_time_of_the_store_is_a_histogram(
    registry: CollectorRegistry, hook: PrometheusHook
) -> None:
    """A check falls into the bucket of its duration, by algorithm and outcome."""
    hook.on_check(check("admitted", duration=0.0003))
    labels = {"algorithm": "token_bucket", "outcome": "admitted"}
    name = "throttled_views_check_duration_seconds"

    assert [0.0, 1.0, 0.0003] == [
        registry.get_sample_value(f"{name}_bucket", {**labels, "le": "0.00025"}),
        registry.get_sample_value(f"{name}_bucket", {**labels, "le": "0.0005"}),
        registry.get_sample_value(f"{name}_sum", labels),
    ]


def test_buckets_may_be_given(registry: CollectorRegistry) -> None:
    """A store that is far away has other times than memory."""
    hook = PrometheusHook(registry=registry, buckets=[1, 2])
    hook.on_check(check("admitted", duration=1.5))
    bounds = {
        sample.labels["le"]
        for metric in registry.collect()
        for sample in metric.samples
        if sample.name.endswith("duration_seconds_bucket")
    }

    assert {"1.0", "2.0", "+Inf"} == bounds


def test_waits_are_a_histogram_of_those_who_wait(
    registry: CollectorRegistry, hook: PrometheusHook
) -> None:
    """A request that does not wait for its turn is not in it."""
    hook.on_check(check("admitted"))
    hook.on_check(check("admitted", delay=0.2))
    labels = {"route": "app.Items.get", "limit": "burst"}

    assert [1.0, 0.2] == [
        registry.get_sample_value(f"throttled_views_delay_seconds_{end}", labels)
        for end in ("count", "sum")
    ]


# --- the store ------------------------------------------------------------------------


def outages(registry: CollectorRegistry, policy: str) -> list[float | None]:
    """Return how many stores are down, and how often one went down."""
    return [
        registry.get_sample_value(f"throttled_views_{name}", {"policy": policy})
        for name in ("stores_down", "store_outages_total")
    ]


def test_outages_are_counted_and_those_that_last(
    registry: CollectorRegistry, hook: PrometheusHook
) -> None:
    """Zero before the first, one while it lasts, and it is remembered afterwards."""
    told = [outages(registry, "deny")]
    for event in (down("deny"), up("deny"), down("deny")):
        hook.on_store_state(event)
        told.append(outages(registry, "deny"))

    assert [[0.0, 0.0], [1.0, 1.0], [0.0, 1.0], [1.0, 2.0]] == told


def test_one_hook_of_two_limiters_counts_both_stores(
    registry: CollectorRegistry, hook: PrometheusHook
) -> None:
    """That one is up again does not hide that the other is down."""
    for event in (down("local"), down("local"), up("local")):
        hook.on_store_state(event)

    assert [1.0, 2.0] == outages(registry, "local")


@pytest.mark.parametrize("name", STATISTICS)
def test_statistics_of_the_store_are_read_at_each_scrape(
    registry: CollectorRegistry, name: str
) -> None:
    """What the store says now is what is exported, if it says anything."""
    store = Counted()
    store.tell(name, 3)
    PrometheusHook(registry=registry, store=store)
    exported = f"throttled_views_store_{name}{'' if name == 'keys' else '_total'}"
    before = registry.get_sample_value(exported)
    store.tell(name, 7)

    assert [3.0, 7.0] == [before, registry.get_sample_value(exported)]


async def test_a_memory_store_tells_what_it_keeps(registry: CollectorRegistry) -> None:
    """Its keys and evictions are exported; cached refusals it does not have."""
    store = MemoryStore(max_keys=1)
    hook = PrometheusHook(registry=registry, store=store)
    router = ThrottledRouter(Limiter("2/h", store=store, hooks=[hook]))
    router.get("/")(items)
    for client in ("192.0.2.1", "192.0.2.2"):
        await statuses(app_of(router), "GET /", client=client)

    assert [1.0, 1.0, 0.0, None] == [
        registry.get_sample_value(f"throttled_views_store_{name}")
        for name in (
            "keys",
            "evictions_total",
            "exhausted_evictions_total",
            "cached_refusals_total",
        )
    ]


def test_a_store_without_statistics_is_refused(registry: CollectorRegistry) -> None:
    """It is told at once, and not at the first scrape."""
    with pytest.raises(ConfigurationError, match="has no statistics"):
        PrometheusHook(registry=registry, store=Relay())  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]


# --- registries -----------------------------------------------------------------------


@pytest.mark.usefixtures("hook")
def test_a_second_hook_in_a_registry_is_refused(registry: CollectorRegistry) -> None:
    """It is said at once, with what to write instead."""
    with pytest.raises(ConfigurationError, match="Give one hook to all limiters"):
        PrometheusHook(registry=registry)


def test_a_hook_that_is_refused_leaves_nothing(
    registry: CollectorRegistry, hook: PrometheusHook
) -> None:
    """A registry has all metrics of a hook, or none."""
    before = generate_latest(registry)
    with pytest.raises(ConfigurationError):
        PrometheusHook(registry=registry, store=MemoryStore())

    assert before == generate_latest(registry)


@pytest.mark.usefixtures("hook")
def test_another_namespace_may_be_in_the_registry(registry: CollectorRegistry) -> None:
    """Its metrics stand beside those of the first."""
    other = PrometheusHook(registry=registry, namespace="shop", store=MemoryStore())
    other.on_check(check("admitted"))
    names = {metric.name.partition("_")[0] for metric in registry.collect()}

    assert {"throttled", "shop"} == names


def test_a_hook_can_be_taken_out(
    registry: CollectorRegistry, hook: PrometheusHook
) -> None:
    """A registry without it is empty, and takes another."""
    registry.unregister(hook)

    assert b"" == generate_latest(registry)
    PrometheusHook(registry=registry)


def test_what_is_exported_can_be_read(
    registry: CollectorRegistry, hook: PrometheusHook
) -> None:
    """Every name has the ending that Prometheus expects of its kind."""
    hook.on_check(check("admitted", delay=0.1))
    kinds = {metric.name: metric.type for metric in registry.collect()}

    assert {
        "throttled_views_decisions": "counter",
        "throttled_views_units": "counter",
        "throttled_views_store_outages": "counter",
        "throttled_views_check_duration_seconds": "histogram",
        "throttled_views_delay_seconds": "histogram",
        "throttled_views_stores_down": "gauge",
    } == kinds


# --- applications ---------------------------------------------------------------------


async def items() -> None:
    """Serve nothing."""


async def test_an_application_is_observed(
    registry: CollectorRegistry, hook: PrometheusHook
) -> None:
    """Admitted, refused and in shadow: it is counted what came out for each limit."""
    limits = [
        Limit("2/h", name="enforced"),
        Limit("1/h", name="tried", shadow=True),
    ]
    router = ThrottledRouter(Limiter(limits, store=frozen_store(), hooks=[hook]))
    router.get("/")(items)
    await statuses(app_of(router), *["GET /"] * 3)

    assert {
        ("enforced", "admitted"): 2.0,
        ("enforced", "refused"): 1.0,
        ("tried", "admitted"): 1.0,
        ("tried", "would_refuse"): 1.0,
    } == decisions(registry, "limit", "outcome")


async def test_a_store_that_is_down_is_observed(
    registry: CollectorRegistry, hook: PrometheusHook
) -> None:
    """What is denied meanwhile is unavailable, and not refused."""
    limiter = Limiter("2/h", store=Down(), on_store_error="deny", hooks=[hook])
    router = ThrottledRouter(limiter)
    router.get("/")(items)
    await statuses(app_of(router), "GET /")

    assert {("unavailable",): 1.0} == decisions(registry, "outcome")
    assert [1.0, 1.0] == outages(registry, "deny")


async def test_no_client_is_named(
    registry: CollectorRegistry, hook: PrometheusHook
) -> None:
    """However many clients there are, the series are those of one."""
    router = ThrottledRouter(Limiter("1/h", store=frozen_store(), hooks=[hook]))
    router.get("/")(items)
    app = app_of(router)
    await statuses(app, "GET /", "GET /", client=CLIENT)
    series = generate_latest(registry).count(b"\n")
    for last in range(10):
        await statuses(app, "GET /", "GET /", client=f"203.0.113.{last}")
    exported = generate_latest(registry)

    assert series == exported.count(b"\n")
    assert b"203.0.113" not in exported


def test_threads_may_tell_at_once(
    registry: CollectorRegistry, hook: PrometheusHook
) -> None:
    """None of what several threads tell is lost, while others scrape."""

    def tell() -> None:
        for _ in range(500):
            hook.on_check(check("admitted", CHECKED))
        generate_latest(registry)

    with shifting():
        threads = [threading.Thread(target=tell) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    assert {("admitted",): 2000.0} == decisions(registry, "outcome")


# --- several processes ----------------------------------------------------------------

WORKER = """
from prometheus_client import REGISTRY, generate_latest
from tests.contrib import check, down
from throttled_views import MemoryStore
from throttled_views.contrib.prometheus import PrometheusHook

hook = PrometheusHook(store=MemoryStore())
hook.on_check(check("admitted", delay=0.1))
hook.on_store_state(down("local"))
generate_latest(REGISTRY)
"""

TOGETHER = """
import sys
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector

registry = CollectorRegistry()
MultiProcessCollector(registry)
sys.stdout.write(generate_latest(registry).decode())
"""


def test_several_processes_are_added_up(tmp_path: Path) -> None:
    """Where PROMETHEUS_MULTIPROC_DIR is set, workers are counted together."""
    environment = {**os.environ, "PROMETHEUS_MULTIPROC_DIR": str(tmp_path)}

    def run(code: str) -> str:
        ran = subprocess.run(
            [sys.executable, "-c", code],
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
        return ran.stdout

    for _ in range(2):
        run(WORKER)
    told = run(TOGETHER)
    values = {
        line.partition("{")[0]: line.rpartition(" ")[2]
        for line in told.splitlines()
        if 'outcome="admitted"' in line or 'policy="local"' in line
    }

    assert ("2.0", "2.0", "2.0") == (
        values["throttled_views_decisions_total"],
        values["throttled_views_check_duration_seconds_count"],
        values["throttled_views_store_outages_total"],
    )
    assert "throttled_views_store_keys" not in told


# --- without the client ---------------------------------------------------------------


def test_without_prometheus_client_the_extra_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Who did not install the extra is told how to."""
    monkeypatch.delitem(sys.modules, "throttled_views.contrib.prometheus")
    monkeypatch.setitem(sys.modules, "prometheus_client", None)

    with pytest.raises(ModuleNotFoundError, match=r"throttled_views\[prometheus\]"):
        importlib.import_module("throttled_views.contrib.prometheus")


# --- the reference --------------------------------------------------------------------


def test_the_reference_lists_all_metrics_and_labels(
    registry: CollectorRegistry,
) -> None:
    """Each metric is there once, with its kind and with the labels that it has."""
    hook = PrometheusHook(registry=registry, store=Counted(1, 1, 1, 1))
    hook.on_check(check("admitted", delay=0.1))
    exported = {
        f"{metric.name}{'_total' if metric.type == 'counter' else ''}": (
            metric.type,
            {*metric.samples[0].labels} - {"le"},
        )
        for metric in registry.collect()
    }
    page = (ROOT / "docs" / "reference" / "metrics.md").read_text("utf-8")
    rows = re.findall(
        r"^\| `(throttled_views_\w+)` \| (\w+) \| (.*?) \|", page, re.MULTILINE
    )
    labels = {name: {*re.findall(r"`(\w+)`", said)} for name, _, said in rows}
    of_decision = labels["throttled_views_decisions_total"]

    assert exported == {
        name: (kind, of_decision if said == "the same" else labels[name])
        for name, kind, said in rows
    }
