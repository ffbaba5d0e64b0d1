"""The status that the responses of a route have where a handler chooses none."""

from __future__ import annotations

import inspect
from functools import lru_cache
from typing import Any

__all__ = ["status_by_default"]


def status_by_default(route: Any) -> int | None:
    """
    Return the status that *route* declares, else that of its response class.

    None if neither tells, as FastAPI reads them.
    """
    declared: int | None = getattr(route, "status_code", None)
    if declared is not None:
        return declared
    kind = getattr(route, "response_class", None)
    return _status_of(getattr(kind, "value", kind))  # of a default of FastAPI's


@lru_cache(maxsize=256)
def _status_of(response_class: Any) -> int | None:
    """Return the status that a class gives its responses: 307 for a redirect."""
    parameters = inspect.signature(response_class.__init__).parameters
    default = getattr(parameters.get("status_code"), "default", None)
    return default if isinstance(default, int) else None
