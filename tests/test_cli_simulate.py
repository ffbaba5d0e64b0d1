"""``throttled-views simulate``: what quotas would do, before they do it."""

import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from throttled_views import Algorithm
from throttled_views.cli import _patterns
from throttled_views.cli._app import app
from throttled_views.cli._console import duration_text, moment_text, output

BURSTS = ("10/s", "--burst", "25", "--every", "3s", "--for", "6s")
PNG = b"\x89PNG\r\n"


def printed(*words: str, standard_input: str | None = None) -> str:
    """Run the command, which goes well; return what it prints."""
    result = CliRunner().invoke(app, ["simulate", *words], input=standard_input)
    assert 0 == result.exit_code, result.output
    return result.output


def told(*words: str, standard_input: str | None = None) -> dict[str, Any]:
    """Return what the command tells programs."""
    said: dict[str, Any] = json.loads(
        printed(*words, "--json", standard_input=standard_input)
    )
    return said


def mistake(*words: str, standard_input: str | None = None) -> str:
    """Run the command, which goes wrong; return what it says, as one line."""
    result = CliRunner().invoke(app, ["simulate", *words], input=standard_input)
    assert 2 == result.exit_code, result.output
    return " ".join(result.output.split())


# --- what is told ---------------------------------------------------------------------


def test_programs_get_json() -> None:
    """The numbers of each span, for each algorithm."""
    said = told(*BURSTS)

    assert [*Algorithm] == [*said["algorithms"]]
    assert (["10/s"], 50, 1, 0) == tuple(
        said[name] for name in ("quotas", "arrivals", "clients", "start_us")
    )
    gcra = said["algorithms"]["gcra"]
    assert (20, 0, 30, 0) == (
        sum(gcra["admitted"]),
        sum(gcra["waiting"]),
        sum(gcra["refused"]),
        gcra["longest_wait_us"],
    )


def test_people_get_a_column_for_each_algorithm() -> None:
    """Those that share a kernel are one; and a row for each span, and for all."""
    rows = [" ".join(each.split()) for each in printed(*BURSTS).splitlines()]

    assert "10/s · 50 arrivals" == rows[0]
    for using in Algorithm:
        assert any(using in row.split() for row in rows)
    assert "3s 10 -15 10 -15 10 -15 10 -15" in rows
    assert "2.8s 0 0 0 0" in rows
    assert "all 20 -30 20 -30 20 -30 20 -30" in rows


def test_waits_are_told_where_there_may_be_some() -> None:
    """Windows know none, and no burst."""
    said = " ".join(
        printed("10/s burst 5", "--burst", "8", "--max-delay", "200ms").split()
    )

    assert "10/s burst 5 · 8 arrivals · waits up to 200ms" in said
    assert "all 5 +2 -1 8 8 8" in said
    assert "longest wait 200ms" in said
    assert "Windows know no burst: they are simulated without it." in said
    assert "Windows know no turns: nothing waits there." in said


def test_several_quotas_are_one_decision() -> None:
    """As they are in a view."""
    said = told("1/s; 2/m", "--every", "1s", "--for", "5s")

    assert ["1/s", "2/m"] == said["quotas"]
    assert 2 == sum(said["algorithms"]["sliding_log"]["admitted"])


def test_requests_may_cost_more() -> None:
    """All of them cost as much."""
    said = told("10/m", "--burst", "5", "--cost", "3")

    assert 3 == sum(said["algorithms"]["token_bucket"]["admitted"])


def test_somebody_who_looks_sees_how_far_it_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """On a terminal, beside the results."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    result = CliRunner().invoke(app, ["simulate", *BURSTS, "--json"])

    assert "token_bucket" in result.stderr
    assert 50 == json.loads(result.stdout)["arrivals"]


def test_any_encoding_will_do() -> None:
    """What it has no letters for is written otherwise."""
    result = CliRunner(charset="ascii").invoke(app, ["simulate", *BURSTS])

    assert 0 == result.exit_code, result.exception
    assert r"10/s \xb7 50 arrivals" in result.stdout


def test_results_may_go_to_what_has_no_encoding(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """To a text, say."""
    text = io.StringIO()
    monkeypatch.setattr(sys, "stdout", text)

    output().print("10/s · 50 arrivals")

    assert "10/s · 50 arrivals\n" == text.getvalue()


# --- patterns -------------------------------------------------------------------------

PATTERNS = {
    "regularly": (("--every", "100ms", "--for", "1m"), 600),
    "in bursts": (("--every", "1m", "--burst", "50"), 500),
    "in one burst": (("--burst", "50"), 50),
}


@pytest.mark.parametrize(("words", "arrivals"), PATTERNS.values(), ids=PATTERNS)
def test_requests_come_in_a_pattern(words: tuple[str, ...], arrivals: int) -> None:
    """So many of them in that time."""
    assert arrivals == told("10/s", *words)["arrivals"]


def test_requests_come_at_random() -> None:
    """It is the same in each run, and other chance is other arrivals."""
    words = "10/s", "--poisson", "20/s", "--for", "10s"
    one, same, other = told(*words), told(*words), told(*words, "--seed", "1")

    assert one == same != other
    assert 150 < one["arrivals"] < 250


UNCLEAR = {
    "no pattern": ((), "How do requests arrive?"),
    "a pattern, and a log": (("-", "--every", "1s"), "How do requests arrive?"),
    "two patterns": (("--every", "1s", "--poisson", "1/s"), "Give one"),
    "bursts at random": (("--burst", "2", "--poisson", "1/s"), "Give one"),
    "no length of time": (("--every", "often"), "Write for example 100ms, 30s or 10m"),
    "a length of time, and more": (
        ("--every", "1s", "--for", "10m burst 3"),
        "'10m burst 3' is no length of time",
    ),
    "two lengths of time": (
        ("--every", "1/s", "--for", "1m"),
        "'1/s' is no length of time",
    ),
    "no rate": (("--poisson", "often"), "'often' is not a quota"),
    "nothing": (("--poisson", "0/s"), "Nothing arrives in that time"),
    "no wait": (("--burst", "1", "--max-delay", "2"), "'2' is no length of time"),
    "no file": (("/no/such/file",), "'/no/such/file' cannot be read: No such file"),
}


@pytest.mark.parametrize(("words", "said"), UNCLEAR.values(), ids=UNCLEAR)
def test_what_is_unclear_is_asked(words: tuple[str, ...], said: str) -> None:
    """With what to write."""
    assert said in mistake("10/s", *words)


def test_what_is_no_quota_is_told() -> None:
    """One of several is enough."""
    assert "'often' is not a quota" in mistake("1/s;often", "--burst", "1")


def test_a_pattern_fits_into_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that would not is refused at its bound."""
    monkeypatch.setattr(_patterns, "_MOST", 1_000)

    assert 1_000 == told("1/s", "--burst", "1000")["arrivals"]
    assert "over 1,000 arrivals. Write a shorter --for" in mistake(
        "1/s", "--burst", "1001"
    )


# --- logs -----------------------------------------------------------------------------

AT_US = 971_211_336_000_000  # 10 October 2000, 13:55:36, seven hours behind UTC
LINES = {
    "seconds": ("971211336", AT_US),
    "parts of seconds": ("971211336.000001", AT_US + 1),
    "UTC": ("2000-10-10T20:55:36Z", AT_US),
    "with a zone": ("2000-10-10 13:55:36.5-07:00", AT_US + 500_000),
    "without one": ("2000-10-10T20:55:36", AT_US),
    "a day": ("2000-10-10", AT_US - 75_336_000_000),
    "the common format": (
        '127.0.0.1 - frank [10/Oct/2000:13:55:36 -0700] "GET / HTTP/1.0" 200 2326',
        AT_US,
    ),
    "the combined format": (
        (
            "127.0.0.1 - - [10/Oct/2000:20:55:36 +0000] "
            '"GET / HTTP/1.1" 200 2326 "http://a.test/[1]" "Mozilla/4.08 [en]"'
        ),
        AT_US,
    ),
}


@pytest.mark.parametrize(("line", "at_us"), LINES.values(), ids=LINES)
def test_a_line_tells_a_time(line: str, at_us: int) -> None:
    """In each of the forms in which servers write one."""
    said = told("1/s", "-", standard_input=f"{line}\n\n")

    assert 1 == said["arrivals"]
    assert at_us == said["start_us"]


def test_a_line_may_tell_who_asks() -> None:
    """A word after the time; or an address, as it counts in keys."""
    lines = [
        "971211336 alice",
        "971211336 bob",
        "971211336 alice",
        "2001:db8::1 - - [10/Oct/2000:20:55:36 +0000]",
        "2001:db8::2 - - [10/Oct/2000:20:55:36 +0000]",
    ]

    said = told("1/h", "-", standard_input="\n".join(lines))

    assert 3 == said["clients"]
    assert [3] == said["algorithms"]["fixed_window"]["admitted"]
    assert "5 arrivals · 3 clients" in printed(
        "1/h", "-", standard_input="\n".join(lines)
    )


def test_a_log_is_a_file(tmp_path: Path) -> None:
    """Its lines need not be in order, nor all of them be understood."""
    log = tmp_path / "access.log"
    log.write_bytes(
        b"971211337\n971211336\n\xff\n# a note\n"
        b"1.2.3.4 - - [30/Feb/2000:20:55:36 +0000]\n"
        b"1.2.3.4 - - [today]\n1960-01-01\n"
    )

    said = printed("1/h", str(log))

    assert "5 of 7 lines tell no time: left out" in said
    assert "1/h · 2 arrivals" in said
    assert "2000-10-10 20:55:36" in said


@pytest.mark.parametrize("text", ["", "no time\n"], ids=["empty", "no times"])
def test_a_log_without_times_is_told(text: str) -> None:
    """With the forms that are read."""
    assert "Error: No line tells a time" in mistake("1/h", "-", standard_input=text)


NO_TIMES = {
    "milliseconds": "1700000000000",
    "nanoseconds": "1700000000000000000 alice",
    "many digits": "9" * 400,
    "more digits than Python reads": "9" * 5_000,
    "the end of time": "9999-12-31T23:59:59.999999-23:00",
    "no bytes of UTF-8": b"\xff",
}


@pytest.mark.parametrize("line", NO_TIMES.values(), ids=NO_TIMES)
def test_a_line_that_tells_no_time_is_counted(line: str | bytes) -> None:
    """It ends nothing, and is no guess at what it may mean."""
    raw = line if isinstance(line, bytes) else line.encode()
    words = "simulate", "1/h", "-", "--json"
    alone = CliRunner().invoke(app, words, input=raw + b"\n")
    among = CliRunner().invoke(app, words, input=raw + b"\n971211336\n")

    assert 2 == alone.exit_code
    assert alone.output.startswith("Error: No line tells a time")
    assert 1 == json.loads(among.stdout)["arrivals"]
    assert "1 of 2 lines tell no time: left out\n" == among.stderr


def test_a_log_may_be_of_all_times() -> None:
    """From the first second to the last."""
    said = told("1/h", "-", standard_input="0\n9999-12-31\n")

    assert 2 == said["arrivals"]


# --- pictures -------------------------------------------------------------------------


@pytest.mark.parametrize("is_delayed", [False, True], ids=["at once", "after waits"])
def test_a_picture_is_drawn(tmp_path: Path, *, is_delayed: bool) -> None:
    """As dots, or as shapes, as the name of the file says."""
    delay = ("--max-delay", "1s") if is_delayed else ()
    png, svg = tmp_path / "quota.png", tmp_path / "quota.SVG"
    for path in (png, svg):
        printed(*BURSTS, *delay, "--plot", str(path))

    assert png.read_bytes().startswith(PNG)
    assert "<svg" in svg.read_text("utf-8")


def test_other_pictures_are_refused(tmp_path: Path) -> None:
    """Before anything is simulated."""
    said = mistake(*BURSTS, "--plot", str(tmp_path / "quota.jpg"))

    assert "is no picture. Write --plot quota.svg, or quota.png" in said


def test_a_picture_needs_a_directory(tmp_path: Path) -> None:
    """Nobody waits for what could not be kept."""
    said = mistake(*BURSTS, "--plot", str(tmp_path / "none" / "quota.svg"))

    assert "Error: There is no directory" in said
    assert said.endswith("write --plot quota.svg")


def test_a_picture_needs_a_file_that_can_be_written(tmp_path: Path) -> None:
    """It is tried beforehand."""
    (tmp_path / "quota.svg").mkdir()

    said = mistake(*BURSTS, "--plot", str(tmp_path / "quota.svg"))

    assert "quota.svg' cannot be written: Is a directory" in said


def test_a_picture_is_not_lost_before_there_is_another(tmp_path: Path) -> None:
    """A command that fails leaves files as they were."""
    old, new = tmp_path / "old.svg", tmp_path / "new.svg"
    old.write_text("old")
    for path in (old, new):
        mistake("often", "--burst", "1", "--plot", str(path))

    assert "old" == old.read_text()
    assert not new.exists()


def test_a_picture_needs_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    """One line says what to install."""
    monkeypatch.setitem(sys.modules, "matplotlib", None)

    said = mistake(*BURSTS, "--plot", "quota.svg")

    assert "pip install 'throttled_views[plot]'" in said


# --- how time reads -------------------------------------------------------------------

TIMES = {
    0: "0s",
    1: "0.001ms",
    40_000: "40ms",
    2_500_000: "2.5s",
    1_999_860: "2s",
    90_000_000: "1m30s",
    3_600_000_000: "1h",
    90_061_000_000: "1d1h1m1s",
}


@pytest.mark.parametrize(("duration_us", "text"), TIMES.items())
def test_a_length_of_time_is_short(duration_us: int, text: str) -> None:
    """As people write it, to the millisecond."""
    assert text == duration_text(duration_us)


def test_a_moment_is_a_date_or_a_distance() -> None:
    """Patterns start at zero, logs do not."""
    assert "1m30s" == moment_text(90_000_000)
    assert "2000-10-10 20:55:36" == moment_text(AT_US)
