"""How results read: tables in Markdown, for a terminal and for the documentation."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Iterable, Sequence
from importlib.metadata import PackageNotFoundError, version

from tests.benchmarks.results import Report, Row, Section, Table
from tests.benchmarks.servers import kinds, version_of

_PACKAGES = (
    *("throttled_views", "fastapi", "starlette", "pydantic", "redis", "hiredis"),
    *("uvicorn", "uvloop", "httptools", "prometheus-client"),
    *("throttled-py", "slowapi", "limits", "traffik", "fastapi-limiter"),
    "pyrate-limiter",
)
_MISSED = {True: "", False: " **missed**", None: ""}


def versions() -> dict[str, str]:
    """Return what is measured: packages, servers and Python."""
    found = {"Python": platform.python_version()}
    for package in _PACKAGES:
        try:
            # Of its server there is a version, too.
            found["redis-py" if package == "redis" else package] = version(package)
        except PackageNotFoundError:
            continue
    return found | {kind.name.capitalize(): version_of(kind) for kind in kinds()[0]}


def machine() -> dict[str, str]:
    """Return what it is measured on."""
    return {
        "system": f"{platform.system()} {platform.machine()}",
        "cores": str(os.cpu_count()),
    }


# --- Markdown -------------------------------------------------------------------------


def text_of(report: Report) -> str:
    """Return all of *report*."""
    parts = [f"# {name}\n\n{section_text(report, name)}" for name in report.sections]
    return "\n\n".join([*parts, versions_text(report)])


def versions_text(report: Report) -> str:
    """Return a sentence about what ran, and where."""
    ran = ", ".join(f"{name} {number}" for name, number in report.versions.items())
    where = f"{report.machine['cores']} cores, {report.machine['system']}"
    return f"Versions: {ran}. Machine: {where}."


def section_text(report: Report, name: str) -> str:
    """Return the tables of a section, and what a reader has to know of them."""
    section = report.sections[name]
    parts = [_table_text(table) for table in section.tables]
    parts += [f"Not measured: {each}." for each in section.missing]
    return "\n\n".join([*parts, _load_text(section)])


def _load_text(section: Section) -> str:
    before, after = section.load
    return f"Load of the machine: {before:.1f} before, {after:.1f} after."


def _table_text(table: Table) -> str:
    columns = [_Column("", [row.name for row in table.rows], left=True)]
    if table.base:
        columns += [
            _Column(f"x {table.base}", [_number(row.ratio) for row in table.rows]),
            _Column("quietest", [_number(row.quiet_ratio) for row in table.rows]),
        ]
    if any(row.target is not None for row in table.rows):
        columns.append(_Column("target", [_target(row) for row in table.rows]))
    columns.append(_Column(table.unit, [f"{row.value:g}" for row in table.rows]))
    if any(row.note for row in table.rows):
        columns.append(_Column("", [row.note for row in table.rows], left=True))
    lines = [f"**{table.title}**", "", *_lines(columns)]
    return "\n".join([*lines, *(["", table.note] if table.note else [])])


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def _target(row: Row) -> str:
    if row.target is None:
        return ""
    return f"{row.target:g}{_MISSED[row.is_met]}"


class _Column:
    """A column, as wide as its widest cell."""

    def __init__(self, head: str, cells: Sequence[str], *, left: bool = False) -> None:
        self._left = left
        self._width = max(3, *map(len, [head, *cells]))
        self.lines = [self._padded(head), self._rule(), *map(self._padded, cells)]

    def _padded(self, cell: str) -> str:
        return cell.ljust(self._width) if self._left else cell.rjust(self._width)

    def _rule(self) -> str:
        dashes = "-" * (self._width - 1)
        return f"{dashes}-" if self._left else f"{dashes}:"


def _lines(columns: Iterable[_Column]) -> list[str]:
    rows = zip(*(column.lines for column in columns), strict=True)
    return [f"| {' | '.join(cells)} |" for cells in rows]


# --- the page -------------------------------------------------------------------------


def updated(page: str, report: Report) -> str:
    """Return *page* with the tables of *report* between their marks."""
    for name in report.sections:
        page = _between_marks(page, name, section_text(report, name))
    return _between_marks(page, "versions", versions_text(report))


def _between_marks(page: str, name: str, text: str) -> str:
    marks = re.compile(
        rf"(?P<start><!-- {name} -->\n).*?(?P<end><!-- end of {name} -->)", re.DOTALL
    )
    return marks.sub(lambda found: f"{found['start']}\n{text}\n\n{found['end']}", page)
