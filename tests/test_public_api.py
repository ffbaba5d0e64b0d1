"""What is public is listed, sorted, documented and there."""

import ast
import importlib
import inspect
import pkgutil
import re
import tomllib
from collections.abc import Iterator
from functools import cache

import pytest

import throttled_views
from tests.documents import ROOT
from tests.sources import Source, imported, sources

MODULES = {source.dotted: source for source in sources() if source.is_public}
LEAVES = {name: each for name, each in MODULES.items() if not each.is_package}


def listed(source: Source) -> list[str]:
    """Return the `__all__` of a module; a package of a docstring alone needs none."""
    if source.is_package and len(source.tree.body) == 1:
        return []
    names: list[str] = importlib.import_module(source.dotted).__all__
    return names


def in_order(names: list[str]) -> list[str]:
    """Sort as ruff does: constants, then classes, then the rest."""

    def rank(name: str) -> tuple[int, str]:
        return (0 if name.isupper() else 1 if name[0].isupper() else 2, name)

    return sorted(names, key=rank)


def definitions(source: Source) -> Iterator[tuple[str, ast.stmt, bool]]:
    """List what a module defines at its top, and whether a docstring follows it."""
    body = source.tree.body
    for node, after in zip(body, [*body[1:], None], strict=True):
        text_follows = isinstance(after, ast.Expr) and isinstance(
            after.value, ast.Constant
        )
        match node:
            case ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef():
                yield node.name, node, ast.get_docstring(node) is not None
            case ast.AnnAssign(target=ast.Name(id=name)):
                yield name, node, text_follows
            case ast.Assign(targets=[ast.Name(id=name)]):
                yield name, node, text_follows
            case _:
                pass


@cache
def imports_of_modules() -> set[tuple[str, str]]:
    """List the names that modules of the package import, each with where it is."""
    return {
        (module, name)
        for source in sources()
        for module, name, _ in imported(source)
        if name and source.name
    }


def used_elsewhere(source: Source) -> set[str]:
    """List the names that other modules of the package import from *source*."""
    return {name for module, name in imports_of_modules() if module == source.dotted}


@pytest.mark.parametrize("source", MODULES.values(), ids=MODULES)
def test_all_is_sorted(source: Source) -> None:
    """Every public module lists its names in order, each once."""
    names = listed(source)

    assert in_order(list(set(names))) == list(names)


@pytest.mark.parametrize("source", LEAVES.values(), ids=LEAVES)
def test_all_lists_what_the_module_defines(source: Source) -> None:
    """A public name is listed, or another module of the package uses it."""
    public = {name for name, _, _ in definitions(source) if not name.startswith("_")}
    public.discard("MYPY")  # a name that mypy prescribes

    assert set() == set(listed(source)) - public, "listed and not defined"
    assert set() == public - set(listed(source)) - used_elsewhere(source), "not listed"


@pytest.mark.parametrize("source", LEAVES.values(), ids=LEAVES)
def test_public_names_are_documented(source: Source) -> None:
    """Every listed name has a docstring, values and aliases one below them."""
    documented = {
        name for name, _, has_docstring in definitions(source) if has_docstring
    }

    assert set() == set(listed(source)) - documented


@pytest.mark.parametrize("source", LEAVES.values(), ids=LEAVES)
def test_public_methods_are_documented(source: Source) -> None:
    """Every public method and property of a listed class has a docstring."""
    bare = [
        f"{node.name}.{method.name}"
        for name, node, _ in definitions(source)
        if isinstance(node, ast.ClassDef) and name in listed(source)
        for method in node.body
        if isinstance(method, ast.FunctionDef | ast.AsyncFunctionDef)
        and not method.name.startswith("_")
        and "overload" not in map(ast.unparse, method.decorator_list)
        and ast.get_docstring(method) is None
    ]

    assert [] == bare


@pytest.mark.parametrize("source", MODULES.values(), ids=MODULES)
def test_modules_are_documented(source: Source) -> None:
    """Every module says what it is for."""
    assert ast.get_docstring(source.tree)


@pytest.mark.parametrize("name", throttled_views.__all__)
def test_public_names_are_importable(name: str) -> None:
    """The package has every name that it lists."""
    assert hasattr(throttled_views, name)


def test_public_classes_are_found_where_they_say() -> None:
    """A class of the package is importable by its module and name, as pickle needs."""
    lost = [
        name
        for name in throttled_views.__all__
        if inspect.isclass(value := getattr(throttled_views, name))
        and getattr(importlib.import_module(value.__module__), value.__name__)
        is not value
    ]

    assert [] == lost


def test_the_package_ships_its_types() -> None:
    """The marker that tells type checkers to read the package is there."""
    assert (MODULES["throttled_views"].path.parent / "py.typed").is_file()


def test_the_changelog_is_about_this_version() -> None:
    """The newest heading of the changelog names the version of the project."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    changelog = (ROOT / "CHANGELOG.md").read_text("utf-8")
    newest = re.search(r"^## \[(.+?)\]", changelog, re.MULTILINE)

    assert newest is not None
    assert project["version"] == newest[1]


def test_the_changelog_names_what_exists() -> None:
    """Every symbol in the newest part of the changelog can be found."""
    changelog = (ROOT / "CHANGELOG.md").read_text("utf-8")
    newest = changelog.split("\n## ")[1]
    missing: list[str] = []
    for symbol in re.findall(r"`throttled_views\.([\w.]+?)(?:\(\))?`", newest):
        try:
            pkgutil.resolve_name(f"throttled_views.{symbol}")
        except (AttributeError, ImportError):
            missing.append(symbol)

    assert [] == missing
