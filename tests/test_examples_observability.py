"""examples/observability: the dashboard asks for what the hook really exports."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, get_args

import httpx
import promql_parser as promql
import pytest
import pytest_asyncio
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from examples.observability import main
from tests.clients import client_of
from tests.contrib import Counted, check, down
from tests.documents import ROOT
from throttled_views.contrib.prometheus import PrometheusHook
from throttled_views.hooks import CheckOutcome

HERE = ROOT / "examples" / "observability"
DASHBOARD: dict[str, Any] = json.loads((HERE / "grafana/dashboard.json").read_text())
GUESS = {"user": "alice", "password": "a guess"}

# What Grafana puts into a query before it asks, and an example of it.
PUT_IN = {"$__rate_interval": "1m", "$route": ".*"}

Exported = Mapping[str, Sequence[Mapping[str, str]]]
"""The labels of all samples, by name."""


class Query(NamedTuple):
    """A query of the dashboard, and how its answers are named."""

    text: str
    legend: str

    @property
    def parsed(self) -> promql.Expr:
        """The query as Grafana asks it."""
        text = self.text
        for name, example in PUT_IN.items():
            text = text.replace(name, example)
        return promql.parse(text)


def queries() -> Iterator[tuple[str, Query]]:
    """List the queries of the dashboard, each under what it is found by."""
    for panel in DASHBOARD["panels"]:
        for target in panel["targets"]:
            query = Query(target["expr"], target["legendFormat"])
            yield f"{panel['title']}, {target['refId']}", query
    for annotation in DASHBOARD["annotations"]["list"]:
        yield annotation["name"], Query(annotation["expr"], annotation["titleFormat"])


def documented() -> Iterator[tuple[str, Query]]:
    """List the queries of the page on observing, by their lines."""
    page = (ROOT / "docs" / "how-to" / "observe-in-production.md").read_text("utf-8")
    for found in re.finditer(r"^```promql\n(.*?)^```$", page, re.MULTILINE | re.DOTALL):
        yield f"line {page.count(chr(10), 0, found.start())}", Query(found[1], "")


SHOWN = dict(queries())
QUERIES = {**SHOWN, **dict(documented())}


def selected(expression: promql.Expr) -> list[promql.VectorSelector]:
    """List what *expression* selects."""
    found: list[promql.VectorSelector] = []

    def visit(part: promql.Expr) -> None:
        if isinstance(part, promql.VectorSelector):
            found.append(part)

    promql.walk(expression, visit)
    return found


def grouped(expression: promql.Expr) -> list[tuple[set[str], set[str]]]:
    """List by which labels metrics are grouped in *expression*, and which metrics."""
    found: list[tuple[set[str], set[str]]] = []

    def visit(part: promql.Expr) -> None:
        if isinstance(part, promql.AggregateExpr):
            labels = [] if part.modifier is None else part.modifier.labels
            found.append((set(labels), {f"{each.name}" for each in selected(part)}))

    promql.walk(expression, visit)
    return found


def labels_of(exported: str) -> Exported:
    """Read the text of a scrape."""
    labels: dict[str, list[Mapping[str, str]]] = {}
    for family in text_string_to_metric_families(exported):
        for sample in family.samples:
            labels.setdefault(sample.name, []).append(sample.labels)
    return labels


async def scraped() -> str:
    """Serve some traffic, and return what the application exports then."""
    async with client_of(main.app) as client:
        for _ in range(21):
            await client.get("/items")
        await client.post("/login", json=GUESS)
        await client.post("/login", json={**GUESS, "password": "wonderland"})
        return (await client.get("/metrics")).text


def rare() -> str:
    """Return what is exported of what seldom happens, and by other stores."""
    registry = CollectorRegistry()
    hook = PrometheusHook(registry=registry, store=Counted(1, 1, 1, 1))
    hook.on_check(check("admitted", delay=0.1))
    hook.on_check(check("unavailable"))
    hook.on_store_state(down("deny"))
    return generate_latest(registry).decode()


@pytest_asyncio.fixture(name="exported", scope="module", loop_scope="module")
async def exported_fixture() -> Exported:
    """Give what can be asked for."""
    ours, others = labels_of(await scraped()), labels_of(rare())
    return {
        name: [*ours.get(name, []), *others.get(name, [])] for name in {*ours, *others}
    }


# --- the dashboard --------------------------------------------------------------------


@pytest.mark.parametrize("query", QUERIES.values(), ids=QUERIES)
def test_a_query_asks_for_metrics_that_there_are(
    query: Query, exported: Exported
) -> None:
    """Each name is one that the hook exports."""
    assert set() == {each.name for each in selected(query.parsed)} - {*exported}


@pytest.mark.parametrize("query", QUERIES.values(), ids=QUERIES)
def test_a_query_asks_for_labels_that_there_are(
    query: Query, exported: Exported
) -> None:
    """Each condition on a label holds for some of what is exported."""
    nothing = [
        f"{each.name} {matcher}"
        for each in selected(query.parsed)
        for matcher in each.matchers.matchers
        if not any(
            re.fullmatch(matcher.value, labels.get(matcher.name, "no such label"))
            for labels in exported[f"{each.name}"]
        )
    ]

    assert [] == nothing


@pytest.mark.parametrize("query", QUERIES.values(), ids=QUERIES)
def test_a_query_groups_by_labels_that_there_are(
    query: Query, exported: Exported
) -> None:
    """What is grouped has the labels by which it is."""
    missing = [
        (name, label)
        for labels, names in grouped(query.parsed)
        for name in names
        for label in labels
        if not any(label in each for each in exported[name])
    ]

    assert [] == missing


@pytest.mark.parametrize("query", QUERIES.values(), ids=QUERIES)
def test_a_legend_names_labels_that_are_left(query: Query) -> None:
    """What stands in braces is grouped by, and so is in the answer."""
    left = {label for labels, _ in grouped(query.parsed) for label in labels}

    assert set() == set(re.findall(r"{{(\w+)}}", query.legend)) - left


def test_all_that_is_exported_is_shown(exported: Exported) -> None:
    """No metric is left out; of a histogram its buckets are enough."""
    shown = {
        f"{each.name}" for query in SHOWN.values() for each in selected(query.parsed)
    }
    parts = re.compile(r"(_created|_seconds_sum|_seconds_count)$")

    assert {name for name in exported if not parts.search(name)} == {
        name for name in shown if not parts.search(name)
    }


def test_the_variables_are_filled_by_what_there_is(exported: Exported) -> None:
    """Routes to choose from are the values of a label that is exported."""
    [route] = [each for each in DASHBOARD["templating"]["list"] if "definition" in each]
    found = re.fullmatch(r"label_values\((\w+), (\w+)\)", route["query"]["query"])

    assert found is not None
    assert all(found[2] in labels for labels in exported[found[1]])
    assert f"${route['name']}" in PUT_IN


def test_all_outcomes_are_of_the_package() -> None:
    """No query waits for an outcome that was renamed."""
    asked = {
        outcome
        for query in QUERIES.values()
        for each in selected(query.parsed)
        for matcher in each.matchers.matchers
        if matcher.name == "outcome"
        for outcome in matcher.value.split("|")
    }

    assert asked <= {*get_args(CheckOutcome)}


def test_panels_stand_beside_each_other() -> None:
    """Each has a number and a place of its own, within the 24 columns of a page."""
    panels = DASHBOARD["panels"]
    cells = [
        (column, row)
        for panel in panels
        for place in [panel["gridPos"]]
        for column in range(place["x"], place["x"] + place["w"])
        for row in range(place["y"], place["y"] + place["h"])
    ]

    assert len(panels) == len({panel["id"] for panel in panels})
    assert len(cells) == len({*cells})
    assert max(column for column, _ in cells) < 24


# --- what is around it ----------------------------------------------------------------


def text_of(name: str) -> str:
    """Return the text of a file of the example."""
    return (HERE / name).read_text("utf-8")


def test_grafana_finds_the_dashboard() -> None:
    """The place that the provider names is where the file is mounted."""
    provider = text_of("grafana/provisioning/dashboards/throttled_views.yml")
    [place] = re.findall(r"path: (\S+)", provider)

    assert f"./grafana/dashboard.json:{place}/dashboard.json:ro" in text_of(
        "compose.yaml"
    )


def test_grafana_finds_the_data() -> None:
    """Its source is the Prometheus of the same network, of the kind it is asked for."""
    source = text_of("grafana/provisioning/datasources/prometheus.yml")
    [variable] = [
        each for each in DASHBOARD["templating"]["list"] if each["type"] == "datasource"
    ]

    assert f"type: {variable['query']}\n" in source
    assert "url: http://prometheus:9090\n" in source
    assert re.search(r"^  prometheus:$", text_of("compose.yaml"), re.MULTILINE)


async def test_prometheus_finds_the_metrics() -> None:
    """The path that it scrapes is served, in the format that it reads."""
    [path] = re.findall(r"metrics_path: (\S+)", text_of("prometheus.yml"))
    async with client_of(main.app) as client:
        answer = await client.get(path)

    assert 200 == answer.status_code
    assert answer.headers["Content-Type"].startswith("text/plain; version=")


# --- the application ------------------------------------------------------------------


async def answers(*requests: tuple[str, str, object]) -> list[httpx.Response]:
    """Send *requests* from one address."""
    async with client_of(main.app) as client:
        return [
            await client.request(method, path, json=content)
            for method, path, content in requests
        ]


async def test_a_limit_in_shadow_refuses_nobody() -> None:
    """Twenty a minute are admitted, as without the limit of ten that is tried out."""
    received = await answers(*[("GET", "/items", None)] * 21)

    assert [200] * 20 + [429] == [each.status_code for each in received]


async def test_only_failures_to_log_in_are_counted() -> None:
    """Who knows the password is not counted; the sixth guess is refused."""
    known, guess = {**GUESS, "password": "wonderland"}, GUESS
    received = await answers(
        *[("POST", "/login", known)] * 6, *[("POST", "/login", guess)] * 6
    )

    assert [200] * 6 + [401] * 5 + [429] == [each.status_code for each in received]


async def test_reports_are_served() -> None:
    """Nobody waits who is alone."""
    [answer] = await answers(("GET", "/reports", None))

    assert {"visitors": 42} == answer.json()
