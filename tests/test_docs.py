"""The pages of the documentation run, and are complete."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

import throttled_views
from tests.documents import ROOT, blocks, run
from throttled_views import ThrottledViewsError

PAGES = {
    str(page.relative_to(ROOT)): page for page in sorted((ROOT / "docs").rglob("*.md"))
}
WITH_CODE = {name: page for name, page in PAGES.items() if blocks(page)}


@pytest.mark.parametrize("page", WITH_CODE.values(), ids=WITH_CODE)
def test_page_runs(page: Path) -> None:
    """The Python code of a page runs from top to bottom."""
    run(page)


def test_the_tutorial_prints_what_it_says(capsys: pytest.CaptureFixture[str]) -> None:
    """The client of the tutorial is admitted three times and then refused."""
    run(PAGES["docs/tutorials/first-view.md"], first=2)

    assert "200 2\n200 1\n200 0\n429 0\n" == capsys.readouterr().out


def test_the_tests_on_testing_pass(tmp_path: Path) -> None:
    """The tests that a page shows are collected by pytest, and pass."""
    page = PAGES["docs/how-to/test-an-application.md"]
    code = "\n".join(block.code for block in blocks(page))
    (tmp_path / "test_page.py").write_text(code, "utf-8")
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "--rootdir", str(tmp_path), "."],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )

    assert "3 passed" in ran.stdout, ran.stdout


def test_every_page_is_in_the_navigation() -> None:
    """mkdocs.yml lists each page once."""
    settings = (ROOT / "mkdocs.yml").read_text("utf-8")
    listed = re.findall(r"- (\S+\.md)$", settings, re.MULTILINE)

    assert sorted(name.removeprefix("docs/") for name in PAGES) == sorted(listed)


def test_every_error_has_an_anchor() -> None:
    """Each error that can be imported has a heading of its own."""
    page = PAGES["docs/reference/errors.md"].read_text("utf-8")
    errors = {
        name
        for name in throttled_views.__all__
        if isinstance(value := getattr(throttled_views, name), type)
        and issubclass(value, ThrottledViewsError)
    }

    assert errors == set(re.findall(r"^## (\w+Error)$", page, re.MULTILINE))
