"""
Measure what limits cost, and print it: ``python -m tests.benchmarks``.

Everything runs in one go; ``--only memory,http`` measures some of it. With ``--docs``
the results are written into the documentation: as JSON, as a chart and as tables.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.benchmarks import (
    ablation,
    chart,
    http,
    imports,
    memory,
    redis,
    report,
    scale,
    sharing,
    simulated,
)
from tests.benchmarks.measuring import CLIENT_CORE, FULL, QUICK, Effort, pin
from tests.benchmarks.results import Report, Section
from tests.documents import ROOT

SECTIONS: dict[str, Callable[[Effort], Section]] = {
    "memory": memory.measure,
    "redis": redis.measure,
    "profile": ablation.measure,
    "scale": scale.measure,
    "processes": sharing.measure,
    "http": http.measure,
    "import": imports.measure,
    "simulate": simulated.measure,
}
PAGE = ROOT / "docs" / "explanation" / "performance.md"
STORED = PAGE.with_name("measured.json")
CHART = PAGE.with_name("measured.svg")


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print and write."""
    options = _parser().parse_args(arguments)
    effort = QUICK if options.quick else FULL
    pin(CLIENT_CORE)
    measured = Report(report.machine(), report.versions(), {})
    for name in options.only:
        sys.stderr.write(f"measuring {name} …\n")
        measured = measured.with_section(name, _measured(name, effort))
        _write(measured, options)  # at once: it takes a while
    sys.stdout.write(f"{report.text_of(measured)}\n")


def _write(measured: Report, options: argparse.Namespace) -> None:
    json, svg = options.json, options.svg
    if options.docs:
        known = Report.of(STORED)
        measured = measured if known is None else known.updated_by(measured)
        page = report.updated(PAGE.read_text("utf-8"), measured)
        PAGE.write_text(page, "utf-8")
        json, svg = STORED, CHART
    if json:
        json.write_text(measured.to_json(), "utf-8")
    if svg:
        chart.draw(measured, svg)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks", description=__doc__
    )
    parser.add_argument(
        "--only",
        type=_names,
        default=list(SECTIONS),
        metavar="NAMES",
        help=f"what to measure, of {','.join(SECTIONS)}",
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help="see that it runs; the numbers mean nothing",
    )
    parser.add_argument("--json", type=Path, help="a file for the results")
    parser.add_argument("--svg", type=Path, help="a file for the chart")
    parser.add_argument(
        "--docs", action="store_true", help="write the results into the documentation"
    )
    return parser


def _names(text: str) -> list[str]:
    names = text.split(",")
    for name in names:
        if name not in SECTIONS:
            msg = f"{name!r} is none of {','.join(SECTIONS)}"
            raise argparse.ArgumentTypeError(msg)
    return names


def _measured(name: str, effort: Effort) -> Section:
    before = os.getloadavg()[0]
    section = SECTIONS[name](effort)
    after = os.getloadavg()[0]
    return Section(section.tables, (round(before, 2), round(after, 2)), section.missing)


if __name__ == "__main__":
    main()
