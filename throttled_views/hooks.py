"""
Hooks: what a limiter tells to whoever observes it.

A hook observes; it decides nothing. It is called where things happen, so it must not
block. What it raises is logged, and changes nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from inspect import iscoroutinefunction
from typing import Protocol, cast, runtime_checkable

from throttled_views.errors import ConfigurationError, shown
from throttled_views.results import OnStoreError

__all__ = ["Hook", "StoreStateEvent"]

_logger = logging.getLogger("throttled_views")


@dataclass(frozen=True, slots=True)
class StoreStateEvent:
    """
    A store went down, or is up again.

    Attributes:
        available: Whether the store decides from now on.
        policy: What decides while it cannot, where a limit does not say so itself.
        error: Why it went down; None if it is up again.
    """

    available: bool
    policy: OnStoreError
    error: Exception | None = None


@runtime_checkable
class Hook(Protocol):
    """Observes a limiter: ``Limiter(hooks=[…])``."""

    def on_store_state(self, event: StoreStateEvent) -> None:
        """Be told that the store went down or is up again: once for each change."""
        ...


def checked_hooks(hooks: object) -> tuple[Hook, ...]:
    """Return *hooks* if each can be told everything."""
    if not isinstance(hooks, Iterable):
        msg = f"hooks={shown(hooks)} are no hooks. Write a list of them: hooks=[…]"
        raise ConfigurationError(msg)
    checked: list[Hook] = []
    for hook in cast("Iterable[object]", hooks):
        if isinstance(hook, type) or not isinstance(hook, Hook):
            msg = (
                f"hooks: {shown(hook)} has no method on_store_state. Write "
                "'def on_store_state(self, event: StoreStateEvent) -> None' in its "
                "class, and give an instance"
            )
            raise ConfigurationError(msg)
        if iscoroutinefunction(hook.on_store_state):
            msg = (
                f"hooks: {shown(hook)} has an async on_store_state, which nobody would "
                "await. Write 'def', and start a task in it if it takes a while"
            )
            raise ConfigurationError(msg)
        checked.append(hook)
    return tuple(checked)


def tell_store_state(hooks: Sequence[Hook], event: StoreStateEvent) -> None:
    """Tell *event* to all *hooks*."""
    for hook in hooks:
        try:
            hook.on_store_state(event)
        except Exception:
            _logger.exception("The hook %r failed; nothing is decided by it", hook)
