"""Running what never waits."""

from collections.abc import Coroutine
from typing import Any, TypeVar

import pytest

T = TypeVar("T")


def at_once(coroutine: Coroutine[Any, Any, T]) -> T:
    """Return what *coroutine* returns, and fail the test if it waits for anything."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        value: T = end.value
        return value
    coroutine.close()
    pytest.fail("it waited")
