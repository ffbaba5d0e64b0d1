"""
What type checkers say of a copy of the examples, with settings of their own.

So a user sees them: nothing of mypy.ini and pyproject.toml holds, and the package is
the installed one.
"""

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from shutil import copytree, ignore_patterns

import pytest

from tests.documents import ROOT


@pytest.fixture(name="cache", scope="module")
def cache_fixture(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Give what mypy keeps of the packages that examples import, at first nothing."""
    return str(tmp_path_factory.mktemp("cache"))


@pytest.fixture(name="copy")
def copy_fixture(tmp_path: Path) -> Path:
    """Give a directory that has the examples for this FastAPI and nothing else."""
    newer = [] if find_spec("fastapi.sse") else ["stream.py"]
    ignored = ignore_patterns("__pycache__", *newer)
    return copytree(ROOT / "examples", tmp_path / "copy", ignore=ignored)


def said_by(*arguments: str, where: Path) -> str:
    """Run a module of Python; return what it said last."""
    ran = subprocess.run(
        [sys.executable, "-m", *arguments],
        cwd=where,
        capture_output=True,
        text=True,
        check=False,
    )
    return ran.stdout.strip()


def test_mypy_has_nothing_to_say(copy: Path, cache: str) -> None:
    """All examples pass mypy --strict, without a setting."""
    said = said_by("mypy", "--strict", "--cache-dir", cache, ".", where=copy)

    assert said.startswith("Success: no issues found in "), said


def test_pyright_has_nothing_to_say(copy: Path) -> None:
    """All examples pass pyright, set to strict and to nothing else."""
    settings = copy / "pyrightconfig.json"
    settings.write_text(json.dumps({"typeCheckingMode": "strict"}), "utf-8")
    said = said_by("pyright", "--pythonpath", sys.executable, where=copy)

    assert said.endswith("0 errors, 0 warnings, 0 informations"), said


def test_a_mistake_is_seen(copy: Path, cache: str) -> None:
    """The package is found and typed: what contradicts it is an error to both."""
    (copy / "mistake.py").write_text(
        "from throttled_views import Quota\n\nQuota.per_minute('5')\n", "utf-8"
    )

    mypy = ["mypy", "--strict", "--cache-dir", cache]
    assert "[arg-type]" in said_by(*mypy, "mistake.py", where=copy)
    assert "reportArgumentType" in said_by(
        "pyright", "--pythonpath", sys.executable, "mistake.py", where=copy
    )
