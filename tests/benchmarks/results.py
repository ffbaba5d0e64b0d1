"""What is measured, as values: rows of tables of sections."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any


@dataclass(frozen=True, slots=True)
class Row:
    """
    One contender.

    Attributes:
        name: What was measured.
        value: The median, in the unit of the table.
        quiet: The least, which is what a quiet machine would show.
        ratio: The median of the ratios to the base, round by round.
        quiet_ratio: The ratio of what is least.
        target: What is not to be exceeded: by the ratio if there is one, else by value.
        note: What a reader has to know.
    """

    name: str
    value: float
    quiet: float | None = None
    ratio: float | None = None
    quiet_ratio: float | None = None
    target: float | None = None
    note: str = ""

    @property
    def is_met(self) -> bool | None:
        """Whether the target is reached; None without one."""
        if self.target is None:
            return None
        measured = self.value if self.ratio is None else self.ratio
        return round(measured, 2) <= self.target


@dataclass(frozen=True, slots=True)
class Table:
    """
    Rows that were measured together.

    Attributes:
        title: What they are about.
        rows: The contenders.
        unit: That of the values.
        base: What ratios are to.
        note: What a reader has to know.
    """

    title: str
    rows: Sequence[Row]
    unit: str = "µs"
    base: str = ""
    note: str = ""


@dataclass(frozen=True, slots=True)
class Section:
    """
    Tables of one kind, and how busy the machine was meanwhile.

    Attributes:
        tables: What was measured.
        load: The load of the machine before and after, as `uptime` tells it.
        missing: Why something was not measured.
    """

    tables: Sequence[Table]
    load: Sequence[float] = ()
    missing: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Report:
    """
    All that was measured.

    Attributes:
        machine: What it ran on.
        versions: What it ran.
        sections: By their names.
    """

    machine: Mapping[str, str]
    versions: Mapping[str, str]
    sections: Mapping[str, Section]

    def with_section(self, name: str, section: Section) -> Report:
        """Return this, and another section."""
        return replace(self, sections={**self.sections, name: section})

    def updated_by(self, newer: Report) -> Report:
        """Return this, with the sections of *newer* in place of the same of its own."""
        return Report(
            newer.machine, newer.versions, {**self.sections, **newer.sections}
        )

    def to_json(self) -> str:
        """Return it as `from_json` reads it."""
        return json.dumps(asdict(self), indent=1, ensure_ascii=False) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Report:
        """Read what `to_json` wrote."""
        raw: dict[str, Any] = json.loads(text)
        sections = {name: _section(each) for name, each in raw["sections"].items()}
        return cls(raw["machine"], raw["versions"], sections)

    @classmethod
    def of(cls, path: Path) -> Report | None:
        """Read the file at *path*, if there is one."""
        return cls.from_json(path.read_text("utf-8")) if path.exists() else None


def _section(raw: Mapping[str, Any]) -> Section:
    tables: list[Table] = []
    for table in raw["tables"]:
        rows = [Row(**row) for row in table.pop("rows")]
        tables.append(Table(rows=rows, **table))
    return Section(tables, raw["load"], raw["missing"])


def rows_of(
    rounds: Mapping[str, Sequence[float]],
    base: str,
    targets: Mapping[str, float] | None = None,
    notes: Mapping[str, str] | None = None,
) -> list[Row]:
    """
    Return a row for each contender.

    Args:
        rounds: What each round took, for each contender.
        base: The contender that ratios are to.
        targets: Ratios that are not to be exceeded.
        notes: What a reader has to know of a contender.
    """
    of_base = rounds[base]
    return [
        Row(
            name,
            round(median(taken), 2),
            quiet=round(min(taken), 2),
            ratio=round(median(map(float.__truediv__, taken, of_base)), 3),
            quiet_ratio=round(min(taken) / min(of_base), 3),
            target=(targets or {}).get(name),
            note=(notes or {}).get(name, ""),
        )
        for name, taken in rounds.items()
    ]
