"""Packages of the examples, copied to where nothing else of this repository is."""

import subprocess
import sys
from pathlib import Path
from shutil import copytree, ignore_patterns

import pytest

from tests.documents import ROOT


@pytest.mark.parametrize("name", ["shop", "bookstore"], ids=["as it is", "renamed"])
def test_the_tests_of_a_copy_pass(name: str, tmp_path: Path) -> None:
    """A user who copies the shop, and renames it, can test it with plain pytest."""
    caches = ignore_patterns("__pycache__")
    copytree(ROOT / "examples" / "shop", tmp_path / name, ignore=caches)
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "--rootdir", str(tmp_path), name],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )

    assert "8 passed" in ran.stdout, ran.stdout
