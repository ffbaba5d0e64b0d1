"""The site has all that the package has, and shows it as it is."""

import importlib
import re
import runpy
from collections.abc import Sequence
from inspect import signature
from types import ModuleType

import pytest

import throttled_views
from tests.clients import client_of
from tests.documents import ROOT, run
from throttled_views import Charge, MemoryStore, RateLimitResult, Receipt
from throttled_views.stores.redis import RedisStore

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


class Watched:
    """A store that writes down what it is asked for, and charges nothing."""

    def __init__(self) -> None:
        self.keys: list[str] = []
        self._store = MemoryStore()

    async def acquire(self, charges: Sequence[Charge], /) -> Sequence[RateLimitResult]:
        """Write the keys down."""
        self.keys += [each.key for each in charges]
        return await self._store.peek(charges)

    async def peek(self, charges: Sequence[Charge], /) -> Sequence[RateLimitResult]:
        """Look at a fresh key."""
        return await self._store.peek(charges)

    async def refund(self, receipts: Sequence[Receipt], /) -> None:
        """Do nothing."""

    async def reset(self, keys: Sequence[str], /) -> None:
        """Do nothing."""

    async def aclose(self) -> None:
        """Do nothing."""


async def test_keys_are_as_the_page_on_their_format_shows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The application of the page has the keys that are listed below it."""
    path = DOCS / "reference" / "key-format.md"
    store = Watched()
    monkeypatch.setattr("throttled_views.MemoryStore", lambda: store)
    page = run(path, first=1)
    listed = path.read_text("utf-8").partition("```text\nGET ")[2].partition("```")[0]
    told: list[str] = []
    async with client_of(page.app, "203.0.113.7") as client:
        for line in re.findall(r"^\w.*$", f"GET {listed}", re.MULTILINE):
            request, _, header = line.partition(", with ")
            headers = dict([header.split(": ")]) if header else {}
            await client.request(*request.split(), headers=headers)
            told += [line, *(f"    {key}" for key in store.keys)]
            store.keys.clear()

    shown = "\n".join(told).replace(f"{page.__name__}.", "shop.")
    assert f"GET {listed}" == f"{shown}\n"


DEFAULTS = re.findall(
    r"^\| `(\w+)\((\w+)\)` \| `(.+?)`",
    (DOCS / "reference" / "defaults.md").read_text("utf-8"),
    re.MULTILINE,
)


@pytest.mark.parametrize(("owner", "argument", "default"), DEFAULTS)
def test_defaults_are_as_the_table_says(
    owner: str, argument: str, default: str
) -> None:
    """An argument of the table has the default that stands beside it."""
    names = {**vars(throttled_views), "RedisStore": RedisStore}
    parameter = signature(names[owner]).parameters[argument]

    assert eval(default, names) == parameter.default  # noqa: S307 - our own page


@pytest.mark.parametrize(
    "owner", ["ClientIP", "Limit", "Limiter", "MemoryStore", "RateLimitMiddleware"]
)
def test_the_table_of_defaults_is_whole(owner: str) -> None:
    """All arguments with a default are in the table."""
    parameters = signature(getattr(throttled_views, owner)).parameters.values()

    assert {each.name for each in parameters if each.default is not each.empty} == {
        argument for name, argument, _ in DEFAULTS if name == owner
    }


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
