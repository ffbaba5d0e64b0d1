"""The command line as such: how it starts, and how it finds an application."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from throttled_views.cli import main
from throttled_views.cli._app import app

HERE = "tests.apps_cli"


@pytest.fixture(autouse=True)
def same_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget where a command looked for modules."""
    monkeypatch.setattr(sys, "path", [*sys.path])


def run(*words: str) -> tuple[int, str]:
    """Run a command; return its exit code, and all that it says, as one line."""
    result = CliRunner().invoke(app, words)
    return result.exit_code, " ".join(result.output.split())


# --- how it starts --------------------------------------------------------------------


@pytest.mark.parametrize("missing", ["typer", "rich"])
def test_without_its_extra_it_says_what_to_install(
    missing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One line, and no traceback."""
    for name in [
        each for each in sys.modules if each.startswith("throttled_views.cli.")
    ]:
        monkeypatch.delitem(sys.modules, name)
    for name in [each for each in sys.modules if each.partition(".")[0] == missing]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, missing, None)

    with pytest.raises(SystemExit) as exited:
        main()

    assert (
        "The command line needs Typer and Rich. "
        "Write: pip install 'throttled_views[cli]'"
    ) == exited.value.code


def test_another_module_that_is_missing_is_told_as_it_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is not what the extra would bring."""
    monkeypatch.delitem(sys.modules, "throttled_views.cli._app")
    monkeypatch.setitem(sys.modules, "throttled_views.auditing", None)

    with pytest.raises(ModuleNotFoundError, match=r"throttled_views\.auditing"):
        main()


def test_the_package_can_be_run() -> None:
    """With the name of the command in its help."""
    ran = subprocess.run(
        [sys.executable, "-m", "throttled_views", "--help"],
        capture_output=True,
        text=True,
        check=True,
    )

    assert "throttled-views [OPTIONS] COMMAND" in ran.stdout


def test_the_package_needs_nothing_of_the_command_line() -> None:
    """Whoever imports it imports none of its extras."""
    code = (
        "import sys, throttled_views; "
        "print({'typer', 'rich', 'matplotlib'} & {*sys.modules})"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )

    assert "set()\n" == ran.stdout


# --- how it finds an application ------------------------------------------------------


@pytest.mark.parametrize(
    "words",
    [
        (f"{HERE}:fine",),
        (f"{HERE}:inner.app",),
        (f"{HERE}:create_app", "--factory"),
    ],
    ids=["an object", "inside of another", "made by a function"],
)
def test_an_application_is_found(words: tuple[str, ...]) -> None:
    """As servers find it."""
    code, said = run("routes", *words)

    assert (0, "Methods Path") == (code, said[:12])


def test_modules_are_looked_for_in_a_directory(tmp_path: Path) -> None:
    """In the working directory, unless another is said."""
    (tmp_path / "served_from_here.py").write_text("from tests.apps_cli import fine")

    code, _ = run("routes", "served_from_here:fine", "--app-dir", str(tmp_path))

    assert 0 == code


MISTAKES = {
    "no attribute": (("tests.apps_cli",), "names no application. Write module:app"),
    "no module": (("nowhere.at_all:app",), "There is no module 'nowhere.at_all'"),
    "a relative module": (("..:app",), "names no application. Write module:app"),
    "a module beside this one": ((".capp:app",), "names no application"),
    "no such module": (("tests.nothing:app",), "There is no module 'tests.nothing'"),
    "nothing of that name": ((f"{HERE}:ap",), f"'{HERE}' has nothing called 'ap'"),
    "a function that makes it": ((f"{HERE}:create_app",), "write --factory"),
    "no application": ((f"{HERE}:HERE",), f"'{HERE}' has nothing called 'HERE'"),
    "a text": ((f"{HERE}:__name__",), "is a str and no ASGI application"),
    "a class": ((f"{HERE}:FastAPI",), "is a type and no ASGI application"),
    "no function": ((f"{HERE}:fine", "--factory"), "Leave --factory out"),
    "what needs more": (
        (f"{HERE}:needing", "--factory"),
        "is no function without parameters",
    ),
}


@pytest.mark.parametrize(("words", "told"), MISTAKES.values(), ids=MISTAKES)
def test_what_is_no_application_is_told(words: tuple[str, ...], told: str) -> None:
    """With what to write instead, and an exit code of 2."""
    code, said = run("routes", *words)

    assert 2 == code
    assert said.startswith("Error: ")
    assert told in said


FAILURES = {
    "fails to import": (
        "import nothing_of_this_name",
        "ModuleNotFoundError: No module named 'nothing_of_this_name', at ",
    ),
    "raises": ("\nraise KeyError('SETTING')", "KeyError: 'SETTING', at "),
    "is no Python": ("def", "SyntaxError: "),
    "exits, as if all were well": ("import sys\nsys.exit(0)", "it exits, with 0"),
}


@pytest.mark.parametrize(("code", "told"), FAILURES.values(), ids=FAILURES)
def test_what_an_application_fails_with_is_told(
    code: str, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In one message, which leads to the line, and with an exit code of 2."""
    monkeypatch.delitem(sys.modules, "failing", raising=False)
    (tmp_path / "failing.py").write_text(code)

    code_of_exit, said = run(
        "routes", "failing:app", "--strict", "--app-dir", str(tmp_path)
    )

    assert 2 == code_of_exit
    assert said.startswith("Error: 'failing:app' cannot be loaded: ")
    assert told in said


def test_what_an_application_prints_is_no_result(tmp_path: Path) -> None:
    """JSON stays JSON, and people see it all the same."""
    (tmp_path / "prints.py").write_text(
        "print('hello')\nfrom tests.apps_cli import fine"
    )

    result = CliRunner().invoke(
        app, ["routes", "prints:fine", "--json", "--app-dir", str(tmp_path)]
    )

    assert ["/"] == [each["path"] for each in json.loads(result.stdout)]
    assert "hello\n" == result.stderr


def test_a_mistake_in_a_declaration_is_told(tmp_path: Path) -> None:
    """It is one of ours, whose message says all."""
    (tmp_path / "misspells.py").write_text(
        "from throttled_views import Quota\nQuota.parse('5/fortnight')"
    )

    code, said = run("routes", "misspells:app", "--app-dir", str(tmp_path))

    assert 2 == code
    assert "Error: '5/fortnight' is not a quota" in said
