"""The documentation shows what the benchmarks measured, and all of it."""

import pytest

from tests.benchmarks import chart, report
from tests.benchmarks.__main__ import PAGE, SECTIONS, STORED, main
from tests.benchmarks.results import Report, Row, Section, Table, rows_of


@pytest.fixture(name="stored", scope="module")
def stored_fixture() -> Report:
    """Give what the documentation stores."""
    return Report.from_json(STORED.read_text("utf-8"))


def test_the_tables_of_the_page_are_what_was_measured(stored: Report) -> None:
    """Nobody wrote a number by hand."""
    page = PAGE.read_text("utf-8")

    assert report.updated(page, stored) == page


def test_all_of_it_is_on_the_page(stored: Report) -> None:
    """Each section was measured, and has a place."""
    page = PAGE.read_text("utf-8")

    assert set(SECTIONS) == set(stored.sections)
    for name in (*SECTIONS, "versions"):
        assert 1 == page.count(f"<!-- {name} -->"), name


def test_results_are_stored_as_they_are(stored: Report) -> None:
    """What is read is what was written."""
    assert STORED.read_text("utf-8") == stored.to_json()


def test_the_chart_is_drawn_of_what_is_stored(
    stored: Report, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """It is an SVG with the name of each contender, as text."""
    path = tmp_path_factory.mktemp("chart") / "chart.svg"
    chart.draw(stored, path)
    drawn = path.read_text("utf-8")

    for row in stored.sections["memory"].tables[0].rows[1:]:
        assert f">{row.name}</text>" in drawn


def test_ratios_are_taken_round_by_round() -> None:
    """A drift of the machine, which meets all contenders, is in none of them."""
    rounds = {"base": [10.0, 20.0, 40.0], "other": [11.0, 22.0, 88.0]}

    [base, other] = rows_of(rounds, "base", {"other": 1.1})

    assert (1.0, 1.1) == (base.ratio, other.ratio)
    assert (None, True) == (base.is_met, other.is_met)


def test_a_miss_is_said() -> None:
    """What is above its target is marked in the table."""
    table = Table("Keys", [Row("bytes", 201, target=200)], unit="")
    measured = Report({}, {}, {"keys": Section([table], load=(0.5, 0.7))})

    text = report.section_text(measured, "keys")

    assert "| bytes | 200 **missed** | 201 |" in text
    assert text.endswith("Load of the machine: 0.5 before, 0.7 after.")


def test_what_is_newer_replaces_a_section_alone() -> None:
    """Some of it may be measured again; the rest stays."""
    older = Report({}, {}, {"a": Section([]), "b": Section([])})
    newer = Report({"cores": "2"}, {}, {"b": Section([], missing=["wrk"])})

    both = older.updated_by(newer)

    assert {"a": older.sections["a"], "b": newer.sections["b"]} == both.sections
    assert {"cores": "2"} == both.machine


def test_a_section_that_is_not_there_is_refused(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The message lists those that are."""
    with pytest.raises(SystemExit):
        main(["--only", "nothing"])

    assert "'nothing' is none of memory,redis," in capsys.readouterr().err
