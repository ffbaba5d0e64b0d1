"""``simulate --plot``: the same as a picture, a panel for each kind of algorithm."""

# Matplotlib's own types leave out the types of what it calls properties.
# pyright: reportUnknownMemberType=false

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from throttled_views.cli._compared import Compared, Family, families, outcomes_of
from throttled_views.cli._console import duration_text, moment_text
from throttled_views.cli._mistakes import CommandError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["check_plot", "plot"]

_FORMATS = (".png", ".svg")
_INK, _FAINT, _GRID = "#22303c", "#6b7a88", "#e3e8ec"
# By `outcomes_of`. Their lightness differs, for whoever sees few colours.
_COLOURS = {"admitted": "#1b7f79", "after a wait": "#f2b134", "refused": "#d1495b"}
_WIDTH, _PANEL_HEIGHT, _MARGINS = 10.0, 1.7, 1.3  # inches
_DOTS_PER_INCH = 144
_TICKS = 8
_HEADROOM = 1.08  # above the highest bar


def check_plot(path: Path) -> None:
    """
    Raise CommandError if there can be no picture at *path*.

    It is asked first, so that nobody waits for arrivals in vain.
    """
    if path.suffix.lower() not in _FORMATS:
        msg = f"{str(path)!r} is no picture. Write --plot quota.svg, or quota.png"
        raise CommandError(msg)
    if not path.parent.is_dir():
        msg = f"There is no directory {str(path.parent)!r}. Make it, or write --plot "
        raise CommandError(msg + path.name)
    _check_writable(path)
    try:
        import_module("matplotlib")
    except ModuleNotFoundError:
        msg = "--plot needs Matplotlib. Write: pip install 'throttled_views[plot]'"
        raise CommandError(msg) from None


def _check_writable(path: Path) -> None:
    """Open the file at *path*, and leave it as it was."""
    is_new = not path.exists()
    try:
        with path.open("ab"):
            pass
    except OSError as error:
        msg = f"{str(path)!r} cannot be written: {error.strerror}"
        raise CommandError(msg) from None
    if is_new:
        path.unlink()


def plot(compared: Compared, path: Path) -> None:
    """Draw what became of arrivals over time, to a file at *path*."""
    # Not at the top: it is an extra. And not pyplot, which would look for a screen.
    from matplotlib.figure import Figure  # noqa: PLC0415

    found = families(compared.simulations)
    figure = Figure(
        figsize=(_WIDTH, _PANEL_HEIGHT * len(found) + _MARGINS),
        dpi=_DOTS_PER_INCH,
        layout="constrained",
    )
    figure.suptitle(
        compared.title, x=0.01, ha="left", color=_INK, fontsize=13, weight="bold"
    )
    panels: Sequence[Axes] = figure.subplots(len(found), sharex=True, sharey=True)
    for panel, family in zip(panels, found, strict=True):
        _draw(panel, family)
    first = found[0].simulation
    panels[0].set_ylim(
        0, _HEADROOM * max(map(sum, zip(*outcomes_of(first), strict=True)))
    )
    _label_time(panels[-1], first.starts_us)
    span = duration_text(first.span_us)
    figure.supylabel(f"requests in {span}", color=_FAINT, fontsize=10)
    _name_colours(figure, panels[0], may_wait=compared.max_delay_us > 0)
    figure.savefig(path)


def _draw(panel: Axes, family: Family) -> None:
    """Draw what became of arrivals by one kind of algorithm, stacked."""
    each = family.simulation
    below = [0] * len(each.admitted)
    outcomes = outcomes_of(each)
    for (label, colour), counts in zip(_COLOURS.items(), outcomes, strict=True):
        panel.bar(
            range(len(counts)),
            counts,
            bottom=below,
            width=0.86,
            align="edge",
            color=colour,
            label=label,
        )
        below = [low + count for low, count in zip(below, counts, strict=True)]
    panel.set_title(
        " = ".join(family.names), loc="left", color=_INK, fontsize=10.5, weight="bold"
    )
    panel.set_title(_totals(outcomes), loc="right", color=_FAINT, fontsize=9.5)
    _tidy(panel)


def _totals(outcomes: Sequence[Sequence[int]]) -> str:
    return " · ".join(
        f"{sum(counts):,} {label}"
        for label, counts in zip(_COLOURS, outcomes, strict=True)
        if sum(counts)
    )


def _tidy(panel: Axes) -> None:
    """Leave of the frame what helps to read the numbers."""
    panel.spines[["top", "right", "left"]].set_visible(False)
    panel.spines["bottom"].set_color(_FAINT)
    panel.tick_params(length=0, colors=_FAINT, labelsize=9)
    panel.grid(axis="y", color=_GRID)
    panel.set_axisbelow(True)
    panel.margins(x=0.01)
    panel.locator_params(axis="y", integer=True, nbins=4)


def _label_time(panel: Axes, starts_us: Sequence[int]) -> None:
    """Write below some bars when they begin."""
    positions = range(0, len(starts_us), -(-len(starts_us) // _TICKS))
    labels = [moment_text(starts_us[each]).replace(" ", "\n") for each in positions]
    panel.set_xticks(positions, labels)


def _name_colours(figure: Figure, panel: Axes, *, may_wait: bool) -> None:
    """Write below all panels what the colours of *panel* stand for."""
    handles, labels = panel.get_legend_handles_labels()
    if not may_wait:
        del handles[1], labels[1]
    figure.legend(
        handles,
        labels,
        loc="outside lower center",
        ncols=len(_COLOURS),
        frameon=False,
        labelcolor=_INK,
    )
