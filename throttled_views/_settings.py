"""
The settings of a view: attributes of its class, which say what its handlers share.

What looks like a setting and is none is refused: what it says would be left out.
"""

from __future__ import annotations

import inspect
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from enum import Enum
from types import MappingProxyType
from typing import Any, cast

from fastapi import params

from throttled_views._binding import name_of
from throttled_views._functions import FASTAPI_VALUES, check_functions
from throttled_views._view_binding import SETTINGS
from throttled_views.errors import ConfigurationError, ViewDefinitionError
from throttled_views.limits import Limit, available

__all__ = ["check_settings", "noted", "setting_of"]

# Options that are nothing else: a view may well have a `name` or a `cost` of its own.
_OF_LIMITS = frozenset(("on_store_error", "shadow", "refund_when", "max_delay"))


def check_settings(view: type) -> None:
    """
    Refuse *view* if what it has beside its handlers is not as it is to be.

    Raises:
        ConfigurationError: It could not be limited as declared.
    """
    for name in SETTINGS:
        with noted(f"It is declared as {name_of(view)}.{name}"):
            _check_setting(view, name)
    _check_spelling(view)
    _check_injected_values(view)


def setting_of(view: type, name: str) -> Any:
    """Return what was written for *name*; a function is not bound to the class."""
    raw = inspect.getattr_static(view, name, None)
    return raw.__func__ if isinstance(raw, staticmethod) else raw


@contextmanager
def noted(note: str) -> Generator[None]:
    """Add *note* to an error, which does not know where it was declared."""
    try:
        yield
    except ConfigurationError as error:
        error.add_note(note)
        raise


def _check_setting(view: type, name: str) -> None:
    value = setting_of(view, name)
    if value is None:
        return
    if name == "path" and not _is_path(value):
        raise ViewDefinitionError(
            f"{name_of(view)}.path",
            f"{value!r} is no path",
            "Write for example '/items'",
        )
    if name == "tags" and not _is_list_of(value, str, Enum):
        raise ViewDefinitionError(
            f"{name_of(view)}.tags", f"{value!r} is no list of tags", "Write ['items']"
        )
    if name == "dependencies" and not _is_list_of(value, params.Depends):
        raise ViewDefinitionError(
            f"{name_of(view)}.dependencies",
            f"{value!r} is no list of dependencies",
            "Write [Depends(…)]",
        )
    if name == "key_func":
        check_functions(Limit("1/s", key_func=value))
    if name == "using":
        available(value)
    if name == "bucket":
        Limit("1/s", bucket=value)


def _is_list_of(value: object, *kinds: type) -> bool:
    if isinstance(value, str) or not isinstance(value, Sequence):
        return False
    return all(isinstance(each, kinds) for each in cast("Sequence[object]", value))


def _is_path(value: object) -> bool:
    return isinstance(value, str) and (not value or value.startswith("/"))


def _check_spelling(view: type) -> None:
    for name in _OF_LIMITS.intersection(vars(view)):
        raise ViewDefinitionError(
            f"{name_of(view)}.{name}",
            "it is an option of limits, not a setting of a view",
            f"Write throttle = Limit('100/m', {name}=…), or give it another name",
        )
    for owner in view.__mro__:
        if owner is view or not hasattr(owner, "__throttled_definition__"):
            _check_names(owner)


def _check_names(owner: type) -> None:
    """Refuse names in *owner*, a view or a mixin, that are nearly those of settings."""
    for name, value in vars(owner).items():
        # What is a classmethod is no setting, and a class that is made again has what
        # the first one got.
        if isinstance(value, classmethod | MappingProxyType):
            continue
        if name not in SETTINGS and not name.startswith("_"):
            _check_name(owner, name)


def _check_name(view: type, name: str) -> None:
    from difflib import get_close_matches  # noqa: PLC0415 - our own view needs none

    if name == "throttled":
        raise ViewDefinitionError(
            f"{name_of(view)}.throttled",
            "it is what a view gets: the limits of each handler, by its name",
            "Write throttle = …, or give it another name",
        )
    for meant in get_close_matches(name, ("throttle", "key_func"), 1, cutoff=0.8):
        raise ViewDefinitionError(
            f"{name_of(view)}.{name}",
            f"it is no setting of a view, but nearly {meant!r}",
            f"Write {meant} = …, or give it another name",
        )


def _check_injected_values(view: type) -> None:
    annotated = {
        name for base in view.__mro__ for name in inspect.get_annotations(base)
    }
    for base in view.__mro__:
        for name, value in vars(base).items():
            if isinstance(value, FASTAPI_VALUES) and name not in annotated:
                raise ViewDefinitionError(
                    f"{name_of(view)}.{name}",
                    "it has no annotation, so nothing would be injected",
                    f"Write '{name}: Annotated[<type>, {type(value).__name__}(…)]'",
                )
