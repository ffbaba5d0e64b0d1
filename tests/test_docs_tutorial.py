"""Whoever follows the tutorial has an application whose tests pass."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.documents import ROOT, files

TUTORIALS = ROOT / "docs" / "tutorials"
TESTS = files(TUTORIALS / "test-it.md")["test_shop.py"]


@pytest.mark.parametrize("page", ["test-it.md", "deploy-it.md"])
def test_the_shop_of_the_tutorial_passes_its_tests(page: str, tmp_path: Path) -> None:
    """The tests of the tutorial pass on each page's shop, without any server."""
    (tmp_path / "shop.py").write_text(files(TUTORIALS / page)["shop.py"], "utf-8")
    (tmp_path / "test_shop.py").write_text(TESTS, "utf-8")
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "--rootdir", str(tmp_path), "."],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )

    assert "4 passed" in ran.stdout, ran.stdout


def test_the_code_of_the_tutorial_is_typed(tmp_path: Path) -> None:
    """The last shop and its tests are clean under mypy's strict settings."""
    shown = {**files(TUTORIALS / "test-it.md"), **files(TUTORIALS / "deploy-it.md")}
    names = ["shop.py", "test_shop.py"]
    for name in names:
        (tmp_path / name).write_text(shown[name], "utf-8")
    ran = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--config-file=", *names],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )

    assert "Success" in ran.stdout, ran.stdout
