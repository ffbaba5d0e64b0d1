"""
The command line: ``throttled-views``, which ``python -m throttled_views`` is too.

It needs the extra ``cli``, and ``plot`` to draw. Each task has a module; `_app` has the
commands.
"""

from __future__ import annotations

import sys

__all__ = ["main"]

_NEEDED = frozenset(("rich", "typer"))


def main() -> None:
    """Run the command line; exit, and say what to install, if something is missing."""
    try:
        from throttled_views.cli._app import app  # noqa: PLC0415 - needs an extra
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in _NEEDED:
            raise
        sys.exit(
            "The command line needs Typer and Rich. "
            "Write: pip install 'throttled_views[cli]'"
        )
    app(prog_name="throttled-views")
