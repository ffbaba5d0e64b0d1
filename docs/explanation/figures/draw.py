# ruff: noqa: INP001 - A script, not a package.
"""
Draws the figures of the explanations; the kernels of the package decide in them.

Run it after a change of a kernel, and of this file::

    python docs/explanation/figures/draw.py
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from throttled_views import Algorithm, Quota
from throttled_views.algorithms.base import AnyKernel
from throttled_views.algorithms.bucket import Bucket
from throttled_views.algorithms.kernels import kernel_of

HERE = Path(__file__).parent
SECOND_US = 1_000_000

INK, PALE, BLUE, GREEN, RED = "#263238", "#90a4ae", "#3949ab", "#2e7d32", "#c62828"

# Six at the end of a window of 12 seconds, six at the beginning of the next, and then
# one every two seconds.
QUOTA = Quota.parse("6/12s")
END_S = 36
ARRIVALS_US = [
    *(round(SECOND_US * (8.75 + 0.5 * number)) for number in range(6)),
    *(round(SECOND_US * (12.75 + 0.5 * number)) for number in range(6)),
    *(SECOND_US * second for second in range(19, END_S, 2)),
]
ALGORITHMS = (
    Algorithm.TOKEN_BUCKET,
    Algorithm.FIXED_WINDOW,
    Algorithm.SLIDING_WINDOW,
    Algorithm.SLIDING_LOG,
)


class Point(NamedTuple):
    """What is left at an instant, in requests."""

    at_us: int
    left: float


class Timeline(NamedTuple):
    """What a kernel made of the arrivals, and what was left all the time."""

    refused: Mapping[int, bool]
    left: Sequence[Point]

    @property
    def admitted(self) -> int:
        """How many arrivals were admitted."""
        return sum(not refused for refused in self.refused.values())


# --- what happens ---------------------------------------------------------------------


def timeline(using: Algorithm) -> Timeline:
    """Let the kernel of *using* decide all arrivals, and look 20 times a second."""
    kernel = kernel_of(QUOTA, using)
    looks = range(0, END_S * SECOND_US, SECOND_US // 20)
    state, refused = None, {}
    points: list[Point] = []
    for now_us in sorted({*looks, *ARRIVALS_US}):
        state = kernel.settle(state, now_us)
        points.append(Point(now_us, left(kernel, state, now_us)))
        if now_us in ARRIVALS_US:
            refused[now_us], state = kernel.take(state, now_us, 1)
            points.append(Point(now_us, left(kernel, state, now_us)))
    return Timeline(refused, points)


def left(kernel: AnyKernel, state: int, now_us: int) -> float:
    """Return what is left: parts of a token too, which only a bucket has."""
    if isinstance(kernel, Bucket):
        return (now_us * kernel.scale - state) / kernel.token
    return kernel.tell(False, state, now_us, 0).remaining  # noqa: FBT003


# --- drawing --------------------------------------------------------------------------

WIDTH, LEFT, RIGHT = 520, 36, 12  # small, so that words can be read on a phone


def x_of(at_us: int) -> float:
    """Return where an instant is."""
    return LEFT + (WIDTH - LEFT - RIGHT) * at_us / (END_S * SECOND_US)


def text(x: float, y: float, words: str, *, ink: str = INK, **more: str) -> str:
    """Write *words*."""
    rest = "".join(
        f' {name.replace("_", "-")}="{value}"' for name, value in more.items()
    )
    return f'<text x="{x:g}" y="{y:g}" fill="{ink}"{rest}>{escape(words)}</text>'


def line(
    start: tuple[float, float], end: tuple[float, float], ink: str, *, dash: str = ""
) -> str:
    """Draw a line."""
    (x1, y1), (x2, y2) = start, end
    dashed = f' stroke-dasharray="{dash}"' if dash else ""
    return (
        f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" '
        f'stroke="{ink}"{dashed}/>'
    )


def mark(at_us: int, y: float, *, refused: bool) -> str:
    """Draw an arrival: a dot if it was admitted, a cross if it was refused."""
    x = x_of(at_us)
    if not refused:
        return f'<circle cx="{x:.1f}" cy="{y}" r="3.3" fill="{GREEN}"/>'
    return (
        f'<path d="M{x - 3:.1f} {y - 3}l6 6m0 -6l-6 6" '
        f'stroke="{RED}" stroke-width="2"/>'
    )


def svg(title: str, height: int, parts: Iterable[str]) -> str:
    """Return a whole figure."""
    return "\n".join(
        [
            (
                f'<svg xmlns="http://www.w3.org/2000/svg" '
                f'viewBox="0 0 {WIDTH} {height}" font-family="system-ui, sans-serif" '
                'font-size="14" role="img">'
            ),
            f"<title>{escape(title)}</title>",
            f'<rect width="{WIDTH}" height="{height}" rx="6" fill="#fff"/>',
            *parts,
            "</svg>\n",
        ]
    )


def seconds(y: float) -> Iterator[str]:
    """Write the time below a figure."""
    for second in range(0, END_S + 1, 6):
        words = f"{second} s"
        anchor = "middle" if second < END_S else "end"
        yield text(x_of(second * SECOND_US), y, words, ink=INK, text_anchor=anchor)


def edges(top: float, bottom: float) -> Iterator[str]:
    """Draw where windows begin."""
    for second in range(12, END_S, 12):
        x = x_of(second * SECOND_US)
        yield line((x, top), (x, bottom), PALE, dash="3 4")


def step_path(points: Sequence[Point], bottom: float, unit: float) -> str:
    """Return the path of what is left, without the points on a straight line."""
    kept = [points[0]]
    for before, point in pairwise(points[1:]):
        if not on_line(kept[-1], before, point):
            kept.append(before)
    kept.append(points[-1])
    return "M" + "L".join(
        f"{x_of(at_us):.1f} {bottom - unit * rest:.1f}" for at_us, rest in kept
    )


def on_line(first: Point, second: Point, third: Point) -> bool:
    """Tell whether the second of three points adds nothing to a drawing."""
    span = third.at_us - first.at_us
    if not span:
        return False
    share = (second.at_us - first.at_us) / span
    return abs(first.left + share * (third.left - first.left) - second.left) < 1e-6  # noqa: PLR2004


def levels(using: Algorithm) -> str:
    """Draw what is left under one algorithm, and what became of each arrival."""
    found = timeline(using)
    top, bottom, unit = 40, 160, 20.0
    title = (
        f"{QUOTA} by {using}: {found.admitted} of {len(ARRIVALS_US)} requests admitted"
    )
    path = step_path(found.left, bottom, unit)
    parts = [
        text(LEFT, 24, title, font_weight="600"),
        *edges(top, bottom),
        *(text(LEFT - 10, bottom - unit * number + 5, str(number), text_anchor="end")
          for number in (0, 3, 6)),
        line((LEFT, bottom), (WIDTH - RIGHT, bottom), PALE),
        (f'<path d="{path}L{x_of(END_S * SECOND_US):.1f} {bottom}L{LEFT} {bottom}Z" '
        f'fill="{BLUE}" fill-opacity="0.12"/>'),
        f'<path d="{path}" fill="none" stroke="{BLUE}" stroke-width="2"/>',
        *(mark(at_us, bottom + 16, refused=refused)
          for at_us, refused in found.refused.items()),
        *seconds(bottom + 44),
    ]  # fmt: skip
    return svg(title, 216, parts)


def comparison() -> str:
    """Draw what becomes of the same arrivals under all algorithms."""
    row, top = 44, 56
    bottom = top + row * len(ALGORITHMS)
    title = f"The same {len(ARRIVALS_US)} requests under {QUOTA}"
    parts = [
        text(LEFT - 24, 24, title, font_weight="600"),
        *edges(top - 16, bottom - 6),
    ]
    for number, using in enumerate(ALGORITHMS):
        found, y = timeline(using), top + row * number
        parts += [
            text(LEFT - 24, y, str(using), font_size="13"),
            text(WIDTH - RIGHT, y, f"{found.admitted} admitted", text_anchor="end",
                 font_size="13"),
            *(mark(at_us, y + 16, refused=refused)
              for at_us, refused in found.refused.items()),
        ]  # fmt: skip
    return svg(title, bottom + 34, [*parts, *seconds(bottom + 18)])


# --- the life of a request ------------------------------------------------------------


class Station(NamedTuple):
    """Where a request passes, what happens there, and how it may leave."""

    name: str
    happens: str = ""
    leaves: str = ""
    ours: bool = False


STATIONS = (
    Station("Server", "reads line and header fields"),
    Station("RateLimitMiddleware, if any", "limits of the application",
            "429, 503", ours=True),
    Station("Router", "finds the route by path and method", "404, 405: not counted"),
    Station("Early limits", "of the connection: one store call",
            "429, 503: nothing was read", ours=True),
    Station("Body", "is read, and parsed as JSON", "422: counted early"),
    Station("Dependencies", "authentication, sessions, parameters",
            "401, 422: counted early"),
    Station("Late limits", "of what was found: one store call",
            "429, 503: early charges stay", ours=True),
    Station("Handler", "does the work", "its errors: counted"),
    Station("Response starts", "the header fields are added", ours=True),
    Station("Client"),
)  # fmt: skip


def life() -> str:
    """Draw the way of a request through an application."""
    row, box, high = 66, 268, 46
    parts: list[str] = []
    for number, each in enumerate(STATIONS):
        y = 12 + row * number
        ink, fill = (BLUE, "#e8eaf6") if each.ours else (PALE, "#fafafa")
        parts += [
            (
                f'<rect x="12" y="{y}" width="{box}" height="{high}" rx="6" '
                f'fill="{fill}" stroke="{ink}"/>'
            ),
            text(26, y + (19 if each.happens else 28), each.name, font_weight="600"),
            text(26, y + 37, each.happens, font_size="13"),
        ]
        if number:
            parts.append(arrow(40, y - row + high, 40, y - 2, PALE))
        if each.leaves:
            middle = y + high / 2
            parts += [
                arrow(12 + box, middle, 12 + box + 26, middle, RED),
                text(12 + box + 34, middle + 5, each.leaves, ink=RED, font_size="13"),
            ]
    height = 12 + row * len(STATIONS) - row + high + 12
    return svg("The life of a request", height, parts)


def arrow(x1: float, y1: float, x2: float, y2: float, ink: str) -> str:
    """Draw an arrow, down or to the right."""
    head = "l-5 -7h10z" if x1 == x2 else "l-7 -5v10z"
    return (
        line((x1, y1), (x2, y2), ink) + f'<path d="M{x2:g} {y2:g}{head}" fill="{ink}"/>'
    )


def figures() -> dict[str, str]:
    """Return all figures by the name of their file."""
    return {
        **{f"{using.replace('_', '-')}.svg": levels(using) for using in ALGORITHMS},
        "algorithms.svg": comparison(),
        "life-of-a-request.svg": life(),
    }


if __name__ == "__main__":
    for name, figure in figures().items():
        (HERE / name).write_text(figure, "utf-8")
