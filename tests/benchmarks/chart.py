"""A chart of what limits add to a request, drawn as SVG, for light and dark pages."""

# Matplotlib's own types leave out the types of what it calls properties.
# pyright: reportUnknownMemberType=false

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from tests.benchmarks.results import Report, Row, Table

# Readable on white and on nearly black.
_INK, _OURS, _PEER, _TARGET = "#7d8590", "#1f9e8f", "#a9adb3", "#e0625f"
_ROW_HEIGHT, _WIDTH, _MARGIN = 0.3, 8.0, 0.75  # inches
_LEFT_OUT = ("bare", "bare + evalsha")


def draw(report: Report, path: Path) -> None:
    """Draw the requests of the sections on the stores, a panel for each table."""
    tables = [
        table
        for name in ("memory", "redis")
        if name in report.sections
        for table in report.sections[name].tables
        if table.base in _LEFT_OUT
    ]
    if not tables:
        return
    heights = [len(_shown(table)) for table in tables]
    # Text as text, and the same file for the same numbers.
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "benchmarks"}):
        figure = Figure(
            figsize=(_WIDTH, _ROW_HEIGHT * sum(heights) + _MARGIN * len(tables)),
            layout="constrained",
        )
        panels: Any = figure.subplots(len(tables), squeeze=False, height_ratios=heights)
        for panel, table in zip(panels[:, 0], tables, strict=True):
            _panel(panel, table)
        figure.savefig(path, transparent=True, metadata={"Date": None})


def _shown(table: Table) -> list[Row]:
    return [row for row in table.rows if row.name not in _LEFT_OUT]


def _panel(panel: Axes, table: Table) -> None:
    rows = _shown(table)
    ratios = [row.ratio or 0 for row in rows]
    names = [row.name for row in rows]
    colours = [_OURS if name.startswith("throttled_views") else _PEER for name in names]
    bars = panel.barh(range(len(rows)), ratios, color=colours, height=0.7)
    panel.bar_label(bars, [f"{ratio:.2f}" for ratio in ratios], padding=4, color=_INK)
    for position, row in enumerate(rows):
        if row.target is not None:
            low, high = position - 0.42, position + 0.42
            panel.vlines(row.target, low, high, color=_TARGET, linewidth=2)
    panel.axvline(1, color=_INK, linewidth=1, linestyle=":")
    panel.set_yticks(range(len(rows)), names, color=_INK)
    panel.invert_yaxis()
    panel.patch.set_alpha(0)
    panel.set_xlim(0, max(ratios) * 1.13)
    panel.set_title(
        f"{table.title}: times {table.base}", loc="left", color=_INK, fontsize=10.5
    )
    panel.spines[["top", "right", "left"]].set_visible(False)
    panel.spines["bottom"].set_color(_INK)
    panel.tick_params(length=0, colors=_INK, labelsize=9)
