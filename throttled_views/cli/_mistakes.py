"""What a person at a command line did wrong, and how it is told."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

import typer

from throttled_views.errors import ThrottledViewsError

__all__ = ["CommandError", "telling_mistakes"]

_MISTAKE = 2
"""Exit code of a command that could not be carried out as it was written."""


class CommandError(Exception):
    """A command cannot be carried out; the message says what to write instead."""


@contextmanager
def telling_mistakes() -> Generator[None]:
    """Exit with one message, and no traceback, where it is clear what is wrong."""
    try:
        yield
    except (CommandError, ThrottledViewsError) as error:
        typer.echo(f"Error: {error}", err=True)
        raise typer.Exit(_MISTAKE) from None
