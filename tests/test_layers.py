"""Imports point one way: a module may use only those that are listed before it."""

import ast
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.sources import PACKAGE, Source, imported, sources

# From what knows nothing to what knows everything. All modules of a package have the
# package's place; the package's own __init__.py is last, and nobody imports from it.
ORDER = (
    "errors",
    "quotas",
    "results",
    "algorithms",
    "_spans",
    "simulation",
    "stores",
    "hooks",
    "limits",
    "_addresses",
    "_fields",
    "_annotations",
    "_binding",
    "_early",
    "_peers",
    "_principals",
    "_kinds",
    "keys",
    "route_keys",
    "_templates",
    "_statuses",
    "headers",
    "_rules",
    "_answers",
    "context",
    "_settlement",
    "_scopes",
    "outcome",
    "_refusals",
    "_given",
    "throttled",
    "_charging",
    "_direct",
    "_single",
    "_together",
    "_plan",
    "_functions",
    "_marks",
    "_exchange",
    "_endpoints",
    "_view_binding",
    "_methods",
    "_parts",
    "_declaration",
    "_insides",
    "_guard",
    "_handlers",
    "_settings",
    "_definition",
    "_view_endpoints",
    "_claims",
    "_agreements",
    "_numbers",
    "_limited",
    "_dependency",
    "limiter",
    "_openapi",
    "routing",
    "views",
    "middleware",
    "_found",
    "_captures",
    "_walk",
    "_problems",
    "openapi",
    "auditing",
    "contrib",
    "testing",
    "cli",
    "__main__",
    "",
)
FIRST_WITH_FRAMEWORK = "_binding"
FRAMEWORKS = {"fastapi", "starlette"}


class Import(NamedTuple):
    """One import of one module of the package."""

    of: str
    importer: Source
    line: int

    def __str__(self) -> str:
        return f"{self.importer.path.name}:{self.line} imports {self.of}"


def place(name: str) -> int:
    """Return where the module *name* stands; the name is relative to the package."""
    return ORDER.index(name.partition(".")[0])


def target(module: str, name: str | None) -> str | None:
    """Return the module of ours that an import is about, or None if it is no one's."""
    package, _, inner = module.partition(".")
    if package != "throttled_views":
        return None
    if name and not inner:
        is_module = any(
            (PACKAGE / name).with_suffix(end).exists() for end in (".py", "")
        )
        return name if is_module else ""
    return inner


def wrong_ways(source: Source) -> list[str]:
    """List the imports of *source* that do not point to an earlier module."""
    top = source.name.partition(".")[0]
    wrong: list[str] = []
    for module, name, line in imported(source):
        of = target(module, name)
        if of is None or (top and of.partition(".")[0] == top):
            continue
        if place(of) >= place(source.name):
            wrong.append(str(Import(of, source, line)))
    return wrong


MODULES = {source.dotted: source for source in sources()}
WITHOUT_FRAMEWORK = {
    name: each
    for name, each in MODULES.items()
    if each.name.partition(".")[0] in ORDER[: ORDER.index(FIRST_WITH_FRAMEWORK)]
}


@pytest.mark.parametrize("source", MODULES.values(), ids=MODULES)
def test_every_module_has_a_place(source: Source) -> None:
    """A new module does not go in before somebody says where it stands."""
    assert source.name.partition(".")[0] in ORDER


@pytest.mark.parametrize("source", MODULES.values(), ids=MODULES)
def test_imports_point_to_earlier_modules(source: Source) -> None:
    """A module imports only what is listed before it, TYPE_CHECKING or not."""
    assert [] == wrong_ways(source)


@pytest.mark.parametrize("source", WITHOUT_FRAMEWORK.values(), ids=WITHOUT_FRAMEWORK)
def test_values_algorithms_and_stores_know_no_framework(source: Source) -> None:
    """FastAPI and Starlette are imported from what binds functions downwards, only."""
    tops = {module.partition(".")[0] for module, _, _ in imported(source)}

    assert set() == tops & FRAMEWORKS


def parsed(name: str, code: str) -> Source:
    """Make a module of the package out of *code*."""
    return Source(name, Path(f"{name}.py"), ast.parse(code))


@pytest.mark.parametrize(
    "code",
    [
        "from throttled_views.views import ThrottledView",
        "import throttled_views.views",
        "from throttled_views import views",
        "from throttled_views import Limiter",
        "from . import views",
        "from .views import ThrottledView",
        "if TYPE_CHECKING:\n    from throttled_views.views import ThrottledView",
        "def late():\n    import throttled_views.views",
    ],
)
def test_an_import_that_points_the_wrong_way_is_found(code: str) -> None:
    """No spelling of an import hides it."""
    assert [] != wrong_ways(parsed("quotas", code))


@pytest.mark.parametrize(
    "code",
    ["import json", "from throttled_views.errors import ConfigurationError"],
)
def test_an_import_that_points_the_right_way_is_allowed(code: str) -> None:
    """Other packages and earlier modules may be imported."""
    assert [] == wrong_ways(parsed("quotas", code))
