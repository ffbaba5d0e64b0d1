"""Objects that are limited, which may have a name in common: which one is which."""

from __future__ import annotations

import logging
import warnings
import weakref
from collections.abc import Callable
from types import MethodType
from typing import Any

__all__ = ["Numbers"]

_logger = logging.getLogger("throttled_views")


class Numbers:
    """
    The objects that a limiter limits, numbered from 1 for each name.

    Args:
        are_in_keys: Whether keys have the names, so that the numbers matter.
    """

    def __init__(self, *, are_in_keys: bool) -> None:
        self._are_in_keys = are_in_keys
        self._owners: dict[str, list[Callable[[], Any]]] = {}

    def number_of(self, owner: object, name: str, *, in_request: bool = False) -> int:
        """
        Return 1 if *owner* is the first object called *name*, else which one it is.

        From the second on the user is warned: which is which depends on the order of
        registration, and might be another in the next process. In a request the warning
        is logged, since warnings may be errors.
        """
        owners = self._owners.setdefault(name, [])
        alive = [reference() for reference in owners]
        for position, known in enumerate(alive):
            if known is owner or (isinstance(known, MethodType) and known == owner):
                return position + 1
        if None in alive:  # the place of one that is gone
            position = alive.index(None)
            owners[position] = _reference_to(owner)
            return position + 1
        owners.append(_reference_to(owner))
        if len(owners) > 1 and self._are_in_keys:
            _warn(name, len(owners), in_request=in_request)
        return len(owners)


def _reference_to(owner: object) -> Callable[[], Any]:
    if isinstance(owner, MethodType):  # a new object for each look at it
        return weakref.WeakMethod(owner)
    try:
        return weakref.ref(owner)
    except TypeError:
        return lambda: owner


def _warn(name: str, number: int, *, in_request: bool) -> None:
    msg = (
        f"{number} different objects named {name} are limited. This one counts as "
        f"'#{number}', by order of registration. "
        "Give its limits a bucket='…' to name it yourself"
    )
    if in_request:
        _logger.warning(msg)
    else:
        warnings.warn(msg, stacklevel=4)  # whoever asks a limiter for the number
