"""The plan in examples/scale adds up."""

import asyncio

import pytest

from examples.scale.__main__ import print_keys, print_plans
from examples.scale.costs import Costs, most_of_one_server, plan
from examples.scale.keys import Traffic, primary_of, reached
from tests.benchmarks.results import Report
from tests.documents import ROOT
from throttled_views import Quota

COSTS = Costs(
    request_us=100, alone_us=44, together_us=6.7, round_trip_us=300, usable=0.7
)
TEN = Quota.per_second(10, burst=20)


def test_costs_are_what_was_measured() -> None:
    """A decision that comes alone costs that much, and so does one of 32."""
    assert COSTS.server_us(1) == pytest.approx(44)
    assert COSTS.server_us(32) == pytest.approx(6.7)


def test_a_thousand_need_no_plan() -> None:
    """One process and a small part of one server carry them."""
    thousand = plan(1_000, COSTS)

    assert (1, 1) == (thousand.processes, thousand.primaries)
    assert thousand.busy == pytest.approx(0.044)
    assert "nothing" == thousand.bottleneck


def test_processes_give_out_before_a_server() -> None:
    """A process serves fewer requests than a server decides."""
    assert "the application" == plan(10_000, COSTS).bottleneck


def test_a_million_need_more_than_one_server() -> None:
    """The application needs many cores first, and then so do the keys."""
    million = plan(1_000_000, COSTS)

    assert (143, 63) == (million.processes, million.primaries)
    assert "one server" == million.bottleneck
    assert million.busy > 1


def test_decisions_that_come_together_go_further() -> None:
    """One server carries several times as many."""
    alone, together = (most_of_one_server(COSTS, each) for each in (1, 32))

    assert 6 < together / alone < 7


def test_a_server_further_away_gets_larger_calls() -> None:
    """More arrives while a connection waits."""
    near = plan(100_000, COSTS)
    far = plan(100_000, Costs(round_trip_us=2_000))

    assert far.together > near.together
    assert far.busy < near.busy


def test_a_key_is_where_a_cluster_has_it() -> None:
    """The slot is that of Redis: 12182 for this one, in its documentation."""
    assert 12_182 * 3 // 16_384 == primary_of("foo", 3)


@pytest.mark.parametrize("skew", [0.0, 1.0, 1.5])
async def test_a_hot_client_does_not_heat_its_primary(skew: float) -> None:
    """It is admitted as often as its quota says; a process refuses the rest itself."""
    it = await reached(Traffic(4_000, 1.0, 1_000, skew), TEN, 2, 3)

    assert it.busiest < 1.2
    assert (it.refused > 0) == (skew > 0)
    assert it.local >= 0.8 * it.refused


async def test_each_process_learns_of_a_denial_by_itself() -> None:
    """With more processes, more refusals reach a server."""
    few, many = [
        await reached(Traffic(4_000, 1.0, 1_000, 1.5), TEN, processes, 3)
        for processes in (2, 32)
    ]

    assert few.local > many.local
    assert few.requests == many.requests


def test_it_plans_with_what_was_measured() -> None:
    """The costs are rounded, and of the run whose results the documentation shows."""
    stored = (ROOT / "docs" / "explanation" / "measured.json").read_text("utf-8")
    [shared, *_] = Report.from_json(stored).sections["processes"].tables
    measured = {row.name: row.value for row in shared.rows}

    for name, cost in (
        ("server, 1 process, 1 at a time: its µs for each", Costs().alone_us),
        ("server, 1 process, 64 at a time: its µs for each", Costs().together_us),
    ):
        assert cost == pytest.approx(measured[name], rel=0.3), name


def test_the_page_shows_what_it_prints(capsys: pytest.CaptureFixture[str]) -> None:
    """Print it again, and paste it, where this fails."""
    print_plans(Costs())
    asyncio.run(print_keys(TEN))
    page = (ROOT / "docs" / "explanation" / "scale.md").read_text("utf-8")

    assert f"```text\n{capsys.readouterr().out}```\n" in page


def test_it_prints_both_tables(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A line for each rate, and one for each kind of traffic."""
    small = Traffic(200, 1.0, 100)
    monkeypatch.setattr("examples.scale.__main__.TRAFFIC", small)
    print_plans(COSTS)
    asyncio.run(print_keys(TEN))
    printed = capsys.readouterr().out

    for expected in ("1,000,000", "one server", "200 requests/s", "x its share"):
        assert expected in printed
