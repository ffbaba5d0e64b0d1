"""
Hooks: what a limiter tells to whoever observes it.

A hook observes; it decides nothing. It is called where things happen, so it must not
block. What it raises is logged, once for each kind of error, and changes nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from inspect import iscoroutinefunction
from time import perf_counter
from typing import Literal, NamedTuple, Protocol, TypeAlias, cast, runtime_checkable

from throttled_views.errors import ConfigurationError, shown
from throttled_views.quotas import Algorithm
from throttled_views.results import Charge, OnStoreError, RateLimitResult

__all__ = [
    "CheckEvent",
    "CheckOutcome",
    "CheckPhase",
    "CheckedLimit",
    "Hook",
    "StoreStateEvent",
]

_logger = logging.getLogger("throttled_views")

CheckPhase: TypeAlias = Literal["app", "early", "late", "manual"]
"""
When a limit is checked.

``"app"`` is by `RateLimitMiddleware`, ``"early"`` before a route reads anything,
``"late"`` right before its handler, and ``"manual"`` by `Throttled.limit`.
"""

CheckOutcome: TypeAlias = Literal[
    "admitted", "refused", "spared", "would_refuse", "unavailable", "refunded"
]
"""
What came out for one limit.

``"admitted"`` was charged; ``"refused"`` had no room for the request; ``"spared"`` had
room, and was not charged since another limit refused; ``"would_refuse"`` had none, and
is in `Limit.shadow`; ``"unavailable"`` could not be asked, and denies then;
``"refunded"`` got a charge back, or a part of one.
"""


@dataclass(frozen=True, slots=True, eq=False)
class CheckedLimit:
    """
    A limit of one handler. Every event of it has the same object, so it may be a key.

    Nothing here is of a request: all of it may be the label of a metric.

    Attributes:
        route: The identity of the handler, also where templates count; or the name of a
            bucket.
        name: Name of the limit, which no other of its handler has.
        quota: The quota as text, or ``"dynamic"`` if a function chooses it.
        algorithm: How it is counted.
        shadow: Whether it is observed only.
    """

    route: str
    name: str
    quota: str
    algorithm: Algorithm
    shadow: bool = False


class CheckEvent(NamedTuple):
    """
    A limit was checked, or got a charge back.

    One is made for each limit of each request, so it is the least that can be made. Do
    not unpack it: it may get further fields.

    Attributes:
        limit: The limit.
        phase: When it was checked.
        outcome: What came out.
        cost: Units that were asked for, or that came back.
        duration: Seconds that the store took.
        delay: Seconds that the request, which was admitted, waits for its turn, or
            would, if the limit is in shadow.
        key: Who was charged for what, as the store knows it: it has the principal, and
            is nothing for metrics. See `compose_key`.
        make_result: Makes `result`; None if there is none.
    """

    limit: CheckedLimit
    phase: CheckPhase
    outcome: CheckOutcome
    cost: int
    duration: float
    delay: float = 0.0
    key: str = ""
    make_result: Callable[[], RateLimitResult] | None = None

    def __repr__(self) -> str:
        """Return what happened, and not to whom."""
        return (
            f"CheckEvent({self.limit!r}, {self.phase!r}, {self.outcome!r}, "
            f"cost={self.cost}, duration={self.duration}, delay={self.delay})"
        )

    @property
    def result(self) -> RateLimitResult | None:
        """What the limit answered, made when somebody asks; None if it could not."""
        return None if self.make_result is None else self.make_result()


class StoreStateEvent(NamedTuple):
    """
    A store went down, or is up again.

    Do not unpack it: it may get further fields.

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
    """
    Observes a limiter: ``Limiter(hooks=[…])``.

    A subclass has methods that do nothing, for what it does not observe.
    """

    # The bodies do nothing; with none at all the methods would be abstract.

    def on_check(self, event: CheckEvent) -> None:  # noqa: ARG002
        """
        Be told what came out for a limit.

        Once for each limit of each decision, and for each charge that comes back.
        """
        return

    def on_store_state(self, event: StoreStateEvent) -> None:  # noqa: ARG002
        """Be told that the store went down or is up again: once for each change."""
        return


_METHODS = {"on_check": CheckEvent, "on_store_state": StoreStateEvent}


def checked_hooks(hooks: object) -> tuple[Hook, ...]:
    """Return *hooks* if each can be told everything."""
    if not isinstance(hooks, Iterable):
        msg = f"hooks={shown(hooks)} are no hooks. Write a list of them: hooks=[…]"
        raise ConfigurationError(msg)
    return tuple(_checked_hook(each) for each in cast("Iterable[object]", hooks))


def _checked_hook(hook: object) -> Hook:
    for name, event in _METHODS.items():
        method = getattr(hook, name, None)
        if isinstance(hook, type) or not callable(method):
            msg = (
                f"hooks: {shown(hook)} has no method {name}. Write 'def {name}(self, "
                f"event: {event.__name__}) -> None' in its class, and give an instance"
            )
            raise ConfigurationError(msg)
        if iscoroutinefunction(method):
            msg = (
                f"hooks: {shown(hook)} has an async {name}, which nobody would await. "
                "Write 'def', and start a task in it if it takes a while"
            )
            raise ConfigurationError(msg)
    return cast("Hook", hook)


class Audience:
    """
    The hooks of a limiter, and how they are told.

    Args:
        hooks: The hooks; none is told nothing, at no cost.
    """

    def __init__(self, hooks: tuple[Hook, ...] = ()) -> None:
        self._hooks = hooks
        self._failures: set[tuple[int, type[Exception]]] = set()

    def __bool__(self) -> bool:
        """Tell whether there is anybody to tell."""
        return bool(self._hooks)

    def checked(  # noqa: PLR0913, PLR0917 - each is a part of the event
        self,
        limit: CheckedLimit,
        phase: CheckPhase,
        outcome: CheckOutcome,
        charge: Charge,
        began: float,
        result: RateLimitResult | None = None,
    ) -> None:
        """Tell all what came out for *limit*, which was asked when it *began*."""
        if not self:
            return
        duration = perf_counter() - began
        event = CheckEvent(limit, phase, outcome, charge.cost, duration, key=charge.key)
        if result is not None:
            make = partial(_given, result)
            event = event._replace(delay=result.delay, make_result=make)
        self.on_check(event)

    def on_check(self, event: CheckEvent) -> None:
        """Tell all that a limit was checked."""
        for hook in self._hooks:
            try:
                hook.on_check(event)
            except Exception as error:  # noqa: BLE001 - whatever a user's code raises
                self._note(hook, error)

    def on_store_state(self, event: StoreStateEvent) -> None:
        """Tell all that the store went down or up."""
        for hook in self._hooks:
            try:
                hook.on_store_state(event)
            except Exception as error:  # noqa: BLE001 - whatever a user's code raises
                self._note(hook, error)

    def _note(self, hook: Hook, error: Exception) -> None:
        """Log the first error of its kind: one for each request would fill a disk."""
        kind = id(hook), type(error)
        if kind in self._failures:
            return
        self._failures.add(kind)
        _logger.error(
            "The hook %r failed; nothing is decided by it. More of this kind are not "
            "logged",
            hook,
            exc_info=error,
        )


def _given(result: RateLimitResult) -> RateLimitResult:
    return result
