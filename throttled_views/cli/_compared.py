"""What quotas would do to arrivals, by all algorithms, side by side."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from rich.progress import Progress
from rich.table import Table
from rich.text import Text

from throttled_views.algorithms.kernels import counts_apart
from throttled_views.cli._console import (
    duration_text,
    moment_text,
    output,
    print_json,
    table_of,
)
from throttled_views.quotas import Algorithm, Quota
from throttled_views.simulation import Arrival, Simulation, compare

__all__ = ["Compared", "Family", "families", "outcomes_of"]


class Family(NamedTuple):
    """Algorithms that admit the same requests, and what became of these."""

    names: Sequence[str]
    simulation: Simulation


def families(simulations: Iterable[Simulation]) -> list[Family]:
    """Return *simulations*, those of one kernel together."""
    found: list[Family] = []
    for each in simulations:
        if found and not counts_apart(each.using, found[-1].simulation.using):
            names = [*found[-1].names, str(each.using)]
            found[-1] = found[-1]._replace(names=names)
        else:
            found.append(Family([str(each.using)], each))
    return found


def outcomes_of(simulation: Simulation) -> tuple[Sequence[int], ...]:
    """Return how many of each span were admitted, after a wait, or refused."""
    return simulation.admitted, simulation.waiting, simulation.refused


@dataclass(frozen=True, slots=True)
class Compared:
    """
    What became of arrivals, by all algorithms.

    Attributes:
        quotas: What each client was held to.
        max_delay_us: Microseconds that a request was allowed to wait.
        arrivals: How many arrived.
        clients: How many there were of them.
        simulations: What became of them.
    """

    quotas: Sequence[Quota]
    max_delay_us: int
    arrivals: int
    clients: int
    simulations: Sequence[Simulation]

    @classmethod
    def of(
        cls,
        quotas: Sequence[Quota],
        arrivals: Sequence[Arrival],
        max_delay_us: int,
        bar: Progress,
    ) -> Compared:
        """Return what becomes of *arrivals*, and show on *bar* how far it is."""

        def watch(some: Sequence[Arrival], using: Algorithm) -> Iterable[Arrival]:
            # Nobody waits for what nobody sees.
            return some if bar.disable else bar.track(some, description=str(using))

        found = compare(quotas, arrivals, max_delay_us=max_delay_us, watch=watch)
        clients = len({each.key for each in arrivals})
        return cls(quotas, max_delay_us, len(arrivals), clients, found)

    @property
    def title(self) -> str:
        """What was simulated, in a line."""
        parts = ["; ".join(map(str, self.quotas)), f"{self.arrivals:,} arrivals"]
        if self.clients > 1:
            parts.append(f"{self.clients:,} clients")
        if self.max_delay_us:
            parts.append(f"waits up to {duration_text(self.max_delay_us)}")
        return " · ".join(parts)

    @property
    def notes(self) -> list[str]:
        """What is to be known of the windows."""
        found: list[str] = []
        if any(quota.burst != quota.limit for quota in self.quotas):
            found.append("Windows know no burst: they are simulated without it.")
        if self.max_delay_us:
            found.append("Windows know no turns: nothing waits there.")
        return found

    def print(self, *, as_json: bool) -> None:
        """Print all of it: a column for each algorithm, a row for each span."""
        if as_json:
            print_json(self._data())
            return
        console = output()
        console.print(Text(self.title, "bold"))
        console.print(self._table())
        console.print("admitted [yellow]+after a wait[/] [red]-refused[/]")
        for note in self.notes:
            console.print(Text(note))

    def _data(self) -> dict[str, object]:
        first = self.simulations[0]
        return {
            "quotas": [str(quota) for quota in self.quotas],
            "arrivals": self.arrivals,
            "clients": self.clients,
            "start_us": first.start_us,
            "span_us": first.span_us,
            "algorithms": {each.using: _data(each) for each in self.simulations},
        }

    def _table(self) -> Table:
        found = families(self.simulations)
        table = table_of("From", *("\n".join(each.names) for each in found))
        columns = [_cells(each.simulation) for each in found]
        starts = map(moment_text, self.simulations[0].starts_us)
        for start, *cells in zip(starts, *columns, strict=False):
            table.add_row(start, *cells)
        table.add_section()
        table.add_row("all", *(cells[-1] for cells in columns))
        if self.max_delay_us:
            longest = [each.simulation.longest_wait_us for each in found]
            waits = [duration_text(each) if each else "" for each in longest]
            table.add_row("longest wait", *waits)
        return table


def _data(simulation: Simulation) -> dict[str, object]:
    return {
        "quotas": [str(quota) for quota in simulation.quotas],
        "admitted": simulation.admitted,
        "waiting": simulation.waiting,
        "refused": simulation.refused,
        "longest_wait_us": simulation.longest_wait_us,
    }


def _cells(simulation: Simulation) -> list[Text]:
    """Return the numbers of each span, and those of all together, below each other."""
    counts = outcomes_of(simulation)
    rows = [*zip(*counts, strict=True), tuple(map(sum, counts))]
    widths = [len(f"{total:,}") for total in rows[-1]]
    return [_cell(row, widths, rows[-1]) for row in rows]


def _cell(row: Sequence[int], widths: Sequence[int], totals: Sequence[int]) -> Text:
    """Return the numbers of a span; what there is none of in all has no place."""
    marks, styles = ("", " +", " -"), ("", "yellow", "red")
    cell = Text()
    for number, width, total, mark, style in zip(
        row, widths, totals, marks, styles, strict=True
    ):
        text = f"{mark}{number:,}" if number else ""
        if total or not mark:
            cell.append((text or "0" * (not mark)).rjust(width + len(mark)), style)
    return cell
