"""``throttled-views routes``: what each route is limited to."""

import json
import sys
from typing import Any

import pytest
from typer.testing import CliRunner

from throttled_views.cli._app import app

HERE = "tests.apps_cli"
ALL = ("routes", f"{HERE}:create_app", "--factory")


@pytest.fixture(autouse=True)
def same_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget where a command looked for modules."""
    monkeypatch.setattr(sys, "path", [*sys.path])


def printed(*words: str, **environment: str) -> str:
    """Run a command that goes well; return what it prints."""
    result = CliRunner().invoke(app, words, env=environment)
    assert 0 == result.exit_code, result.output
    return result.output


def row(*words: str, of: str) -> str:
    """Return the line that a command prints of something, with single spaces."""
    lines = (" ".join(each.split()) for each in printed(*words).splitlines())
    [line] = [each for each in lines if of in each]
    return line


ROWS = {
    "a limit": (
        "Items.get ",
        "GET /v1/items Items.get 1000/m (app 1000/m) ClientIP(ipv6_prefix=64) app",
    ),
    "an exemption": ("/v1/items/free", "@exempt"),
    "a socket": ("WEBSOCKET", "/v1/items/socket Items.socket"),
}


@pytest.mark.parametrize(("of", "told"), ROWS.values(), ids=ROWS)
def test_each_route_has_a_row(of: str, told: str) -> None:
    """With its methods, path, limits, keys and phases, or why it has none."""
    assert told in row(*ALL, of=of)


def test_limits_are_below_each_other() -> None:
    """Each with what is not as usual: its name, algorithm, cost and bucket."""
    said = printed(*ALL)

    for told in (
        "5/m (reads)",
        "100/h (all) by sliding_log",
        "dynamic (plan) cost dynamic bucket plans",
        "7/m (dependency 7/m)",
        "1/m (turns) waits up to 300 s",
        "3/h in shadow",
    ):
        assert told in said


def test_a_limiter_that_is_switched_off_is_told() -> None:
    """Its limits are there, and do not limit."""
    assert "9/m switched off" in printed("routes", f"{HERE}:fine")


def test_what_is_unlimited_stands_out() -> None:
    """In place of its limits."""
    assert "GET / search UNLIMITED" in row("routes", f"{HERE}:forgetful", of="search")


def test_what_is_wrong_is_told() -> None:
    """Beside the route."""
    assert "Write it below" in row("routes", f"{HERE}:misplacing", of="/misplaced")


def test_a_narrow_terminal_folds_and_loses_nothing() -> None:
    """Texts go on in the next line."""
    said = printed("routes", f"{HERE}:forgetful", COLUMNS="40", FORCE_COLOR="1")

    assert "…" not in said


def test_programs_get_json() -> None:
    """All that an audit tells."""
    routes: list[dict[str, Any]] = json.loads(printed(*ALL, "--json"))
    [found] = [each for each in routes if each["name"] == "Items.get"]

    assert ("/v1/items", ["GET"], None, None, False) == (
        found["path"],
        found["methods"],
        found["exempt"],
        found["problem"],
        found["is_unlimited"],
    )
    assert ("reads", "5/m", "token_bucket", "early") == tuple(
        found["limits"][1][name] for name in ("name", "quota", "algorithm", "phase")
    )


STRICT = {
    "all is limited": ("fine", 0, ""),
    "a route is unlimited": ("forgetful", 1, "1 route is unlimited: GET /\n"),
    "routes are unlimited": (
        "more_forgetful",
        1,
        "2 routes are unlimited: GET /, any /static\n",
    ),
    "a limit is misplaced": (
        "misplacing",
        1,
        (
            "1 route is unlimited: GET /misplaced; "
            "1 route has a problem: GET /misplaced\n"
        ),
    ),
}


@pytest.mark.parametrize(("name", "code", "told"), STRICT.values(), ids=STRICT)
def test_strict_fails_where_something_is_wrong(name: str, code: int, told: str) -> None:
    """The routes are printed all the same, and a last line says what it is."""
    result = CliRunner().invoke(app, ["routes", f"{HERE}:{name}", "--strict"])

    assert code == result.exit_code
    assert "Methods" in result.stdout
    assert told == result.stderr


def test_without_strict_nothing_fails() -> None:
    """It only shows."""
    assert "UNLIMITED" in printed("routes", f"{HERE}:forgetful")
