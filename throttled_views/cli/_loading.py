"""The application that a command is about, found as servers find it."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Generator
from contextlib import contextmanager, redirect_stdout
from importlib import import_module
from pathlib import Path
from traceback import extract_tb
from types import ModuleType
from typing import Any

from starlette.types import ASGIApp

from throttled_views.cli._mistakes import CommandError
from throttled_views.errors import ThrottledViewsError

__all__ = ["load"]


def load(target: str, *, factory: bool, app_dir: Path) -> ASGIApp:
    """
    Return the application that *target* names.

    Args:
        target: ``module:attribute``, as uvicorn takes it; attributes may have dots.
        factory: Whether it is a function that makes the application.
        app_dir: Directory in which modules are looked for first.

    Raises:
        CommandError: There is no such thing, it is no application, or it fails.
        ThrottledViewsError: It declares something that cannot be honoured.
    """
    # What an application prints is no result of a command.
    with redirect_stdout(sys.stderr), _telling_failures(target):
        return _loaded(target, factory=factory, app_dir=app_dir)


@contextmanager
def _telling_failures(target: str) -> Generator[None]:
    """Tell in one message what the application itself fails with."""
    try:
        yield
    except (CommandError, ThrottledViewsError):
        raise
    except SystemExit as error:
        msg = (
            f"{target!r} cannot be loaded: it exits, with {error.code!r}. Write what "
            "ends a program below `if __name__ == '__main__':`"
        )
        raise CommandError(msg) from error
    except Exception as error:
        place = extract_tb(error.__traceback__)[-1]
        msg = (
            f"{target!r} cannot be loaded: {type(error).__name__}: {error}, at "
            f"{place.filename}:{place.lineno}. Import it with Python to see all of it"
        )
        raise CommandError(msg) from error


def _loaded(target: str, *, factory: bool, app_dir: Path) -> ASGIApp:
    module, _, attributes = target.partition(":")
    # What begins with a dot is relative, and here is nothing that it could be to.
    if not module or not attributes or module.startswith("."):
        msg = f"{target!r} names no application. Write module:app, such as main:app"
        raise CommandError(msg)
    sys.path.insert(0, str(app_dir.resolve()))
    found: Any = _imported(module, app_dir)
    for name in attributes.split("."):
        if not hasattr(found, name):
            msg = f"{module!r} has nothing called {attributes!r}. Write {module}:app, "
            raise CommandError(msg + "with the name that the application has there")
        found = getattr(found, name)
    return _checked(_made(found, target) if factory else found, target)


def _imported(module: str, app_dir: Path) -> ModuleType:
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        # What the module itself fails to import is not ours to explain.
        if not f"{module}.".startswith(f"{error.name}."):
            raise
        msg = (
            f"There is no module {module!r} in {app_dir.resolve()}, nor is one "
            "installed. Write it as Python imports it, main:app for main.py, and "
            "--app-dir if it is in another directory"
        )
        raise CommandError(msg) from None


def _made(factory: Any, target: str) -> Any:
    if not _takes(factory):
        msg = (
            f"{target!r} is no function without parameters. Leave --factory out, or "
            "name the function that makes the application"
        )
        raise CommandError(msg)
    return factory()


def _checked(app: Any, target: str) -> ASGIApp:
    if not isinstance(app, type) and _takes(app, "scope", "receive", "send"):
        checked: ASGIApp = app
        return checked
    advice = "Name the object that your server serves"
    if _takes(app):
        advice = "If it makes the application, write --factory"
    msg = f"{target!r} is a {type(app).__name__} and no ASGI application. {advice}"
    raise CommandError(msg)


def _takes(function: Any, *arguments: object) -> bool:
    """Tell whether *function* can be called with *arguments*."""
    try:
        inspect.signature(function).bind(*arguments)
    except (TypeError, ValueError):
        return False
    return True
