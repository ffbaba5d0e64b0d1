"""What the modules of the package say, read without importing them."""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import throttled_views

PACKAGE = Path(throttled_views.__file__).parent


class Source(NamedTuple):
    """A module of the package: its dotted name below the package, and its syntax."""

    name: str
    path: Path
    tree: ast.Module

    @property
    def dotted(self) -> str:
        """The name to import it by."""
        return f"throttled_views.{self.name}" if self.name else "throttled_views"

    @property
    def is_package(self) -> bool:
        """Whether it is the `__init__.py` of a package."""
        return self.path.name == "__init__.py"

    @property
    def is_public(self) -> bool:
        """Whether users may import from it."""
        return not any(part.startswith("_") for part in self.name.split("."))


def sources() -> Iterator[Source]:
    """Read every module of the package, by path."""
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        name = ".".join(part for part in parts if part != "__init__")
        yield Source(name, path, ast.parse(path.read_text("utf-8"), str(path)))


def imported(source: Source) -> Iterator[tuple[str, str | None, int]]:
    """
    List what *source* imports, wherever in it: a module, a name of it, and the line.

    Imports inside functions and under TYPE_CHECKING are imports too.
    """
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, None, node.lineno
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                yield _absolute(source, node), alias.name, node.lineno


def _absolute(source: Source, node: ast.ImportFrom) -> str:
    """Return the absolute name of the module that *node* imports from."""
    if not node.level:
        return node.module or ""
    parts = source.dotted.split(".")
    base = parts[: len(parts) - node.level + source.is_package]
    return ".".join([*base, *filter(None, [node.module])])
