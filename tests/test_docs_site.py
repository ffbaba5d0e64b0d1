"""The site has all that the package has, and shows it as it is."""

import importlib
import re
import runpy
from types import ModuleType

import pytest

from tests.documents import ROOT

DOCS = ROOT / "docs"
FIGURES = DOCS / "explanation" / "figures"
API = "\n".join(
    page.read_text("utf-8") for page in (DOCS / "reference" / "api").glob("*.md")
)
PUBLIC = (
    "throttled_views",
    "throttled_views.contrib.otel",
    "throttled_views.contrib.prometheus",
    "throttled_views.simulation",
    "throttled_views.stores.redis",
    "throttled_views.testing",
)


@pytest.mark.parametrize("name", PUBLIC)
def test_all_public_names_are_in_the_api_reference(name: str) -> None:
    """Each module, or each name of it, has its docstring on the site."""
    module: ModuleType = importlib.import_module(name)
    named = set(re.findall(rf"^::: {re.escape(name)}\.(\w+)$", API, re.MULTILINE))
    # A name in capitals is told in the docstring of what it is for.
    wanted = {each for each in module.__all__ if not each.isupper()}

    assert f"::: {name}\n" in API or wanted <= named


def test_figures_are_what_the_kernels_draw() -> None:
    """The figures in the repository are those that their script draws today."""
    drawn: dict[str, str] = runpy.run_path(str(FIGURES / "draw.py"))["figures"]()

    assert drawn == {
        path.name: path.read_text("utf-8") for path in FIGURES.glob("*.svg")
    }


def test_all_figures_are_shown() -> None:
    """No figure is drawn for nothing."""
    pages = "\n".join(page.read_text("utf-8") for page in DOCS.rglob("*.md"))

    names = [f"figures/{path.name}" for path in FIGURES.glob("*.svg")]

    assert [] == [name for name in names if name not in pages]
