"""Limits that are lifted for as long as a test wants that."""

from __future__ import annotations

from contextlib import AbstractContextManager
from threading import Lock
from types import TracebackType

from throttled_views.limiter import Limiter, checked_limiter

__all__ = ["no_limits"]


class _Lifted:
    """How often limits are lifted at the moment, and whether they were on before."""

    def __init__(self, *, enabled: bool) -> None:
        self.enabled = enabled
        self.times = 0


_lifted: dict[int, _Lifted] = {}  # by the `id` of a limiter that whoever lifts holds
_lock = Lock()  # tests may run in several threads


class _NoLimits(AbstractContextManager[None]):
    """
    What `no_limits` returns; it may be entered again.

    It is no decorator: around an async function that would be over before it began.
    """

    def __init__(self, limiter: Limiter) -> None:
        self._limiter = limiter

    def __enter__(self) -> None:
        limiter = self._limiter
        with _lock:
            lifted = _lifted.setdefault(id(limiter), _Lifted(enabled=limiter.enabled))
            lifted.times += 1
            limiter.enabled = False

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        with _lock:
            lifted = _lifted[id(self._limiter)]
            lifted.times -= 1
            if not lifted.times:
                self._limiter.enabled = _lifted.pop(id(self._limiter)).enabled


def no_limits(limiter: Limiter | None = None) -> AbstractContextManager[None]:
    """
    Limit nothing within a ``with`` block, in sync and async tests alike.

    Nothing is counted there, no header fields are sent, and nobody waits. Blocks may
    be nested, and may overlap: with the end of the last one all is as it was before.

    Args:
        limiter: What is not to limit; the process-wide default unless given.

    Raises:
        ConfigurationError: *limiter* is none.
    """
    return _NoLimits(checked_limiter(limiter))
