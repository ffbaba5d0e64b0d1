"""
What a scope holds of what was decided for its request, and how that reaches the client.

The fields are added where the response starts, so that they are on models, streams,
files and error responses alike, and stay when a handler of the user renders the 429.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import Protocol, TypeAlias

from starlette.types import Message, Scope, Send

from throttled_views._answers import Giver
from throttled_views._settlement import settle, settled
from throttled_views.context import Builder, Outcome, RateLimitContext
from throttled_views.headers import RawHeaders
from throttled_views.route_keys import RouteKey
from throttled_views.stores.base import Store
from throttled_views.stores.deciding import AnyTaken
from throttled_views.stores.failover import Failover

__all__ = [
    "SCOPE_KEY",
    "Machinery",
    "Quick",
    "begin",
    "begin_app",
    "context_of",
    "fields_of",
    "has_problem_details",
    "is_told",
    "outcome_of",
    "send_with_headers",
    "serve_and_settle",
    "telling",
    "with_fields",
]

SCOPE_KEY = "throttled_views"

# Of a response; the second is to a handshake that is refused.
_STARTS = frozenset(("http.response.start", "websocket.http.response.start"))


class Machinery(Giver, Protocol):
    """What deciding needs of a limiter."""

    @property
    def store(self) -> Store:
        """Where the counts live."""
        ...

    @property
    def failover(self) -> Failover:
        """The store, and what decides while it cannot."""
        ...

    route_key: RouteKey
    """What of a route stands in keys."""

    enabled: bool
    """Whether anything is limited at all."""


class Quick(Builder):
    """
    Decides with nothing built that nobody asks for.

    Attributes:
        machinery: What it uses of its limiter.
        take: Decides, and charges. What it returns is to be awaited if a store has to
            be waited for; None means that the store is down.
    """

    __slots__ = ("machinery", "take")

    def __init__(
        self,
        machinery: Machinery,
        take: Callable[[Scope], AnyTaken | Awaitable[AnyTaken] | None],
        builder: Builder,
    ) -> None:
        super().__init__(builder.renderer, builder.add_to, builder.merged)
        self.machinery = machinery
        self.take = take


_Recorded: TypeAlias = Outcome | tuple[Builder, AnyTaken, int, object] | None
"""
What a scope holds: an outcome, or all that it takes to make one, or nothing yet.

A route that decided in a hurry leaves a tuple, and most requests need no more: what
builds the outcome, what was decided, the `id` of the scope that it was decided for, and
the endpoint that serves that scope. See `outcome_of`.
"""


def begin(scope: Scope) -> None:
    """
    Begin to serve *scope* by a route of ours.

    Its outcome is there from the beginning, so that copies of the scope have it, too.
    One that came with a copy of another scope, which an application dispatches by
    itself, is of another request.
    """
    outcome = outcome_of(scope)
    outcome.belong_to(id(scope), scope.get("endpoint"))
    if outcome.scope_id != id(scope):
        scope[SCOPE_KEY] = Outcome(id(scope), scope.get("endpoint"))


def begin_app(scope: Scope, send: Send, rules: Iterable[object]) -> Send:
    """
    Begin to serve *scope* before there is a route; return what sends and tells.

    Of several who do so, the first tells. Where one has decided its *rules* already,
    for another scope than this, it is a copy: another request, which an application
    dispatches by itself.
    """
    if SCOPE_KEY in scope:
        outcome = outcome_of(scope)
        if outcome.began == id(scope) or outcome.decided_none_of(rules):
            return send
    scope[SCOPE_KEY] = Outcome(began=id(scope))
    return partial(send_with_headers, send, scope)


def is_told(scope: Scope) -> bool:
    """Tell whether what began before there was a route tells the outcome."""
    recorded: _Recorded = scope.get(SCOPE_KEY)
    return isinstance(recorded, Outcome) and recorded.is_told


def telling(send: Send, scope: Scope) -> Send:
    """Return what sends and tells the outcome of *scope*."""
    return send if is_told(scope) else partial(send_with_headers, send, scope)


def outcome_of(scope: Scope) -> Outcome:
    """
    Return the outcome of the request of *scope*, making it if need be.

    What a copy of a scope brings along is of the same request as long as the same
    endpoint serves it, or none yet: routes and middleware may copy a scope on its way.
    """
    recorded: _Recorded = scope.get(SCOPE_KEY)
    if isinstance(recorded, tuple):
        builder, taken, scope_id, endpoint = recorded
        recorded = Outcome(scope_id, endpoint)
        recorded.add(builder, taken)
    endpoint = scope.get("endpoint")
    if recorded is None or (
        recorded.scope_id not in {0, id(scope)} and recorded.endpoint is not endpoint
    ):
        recorded = Outcome(id(scope), endpoint)
    scope[SCOPE_KEY] = recorded
    return recorded


def context_of(scope: Scope) -> RateLimitContext:
    """Return what users see of the outcome of a request."""
    return RateLimitContext(outcome_of(scope))


def fields_of(scope: Scope) -> RawHeaders:
    """Return the header fields that tell the outcome, names in lower case."""
    return with_fields((), scope)


def with_fields(headers: Iterable[tuple[bytes, bytes]], scope: Scope) -> RawHeaders:
    """Return *headers* and those that tell the outcome, as a new list."""
    recorded: _Recorded = scope.get(SCOPE_KEY)
    if isinstance(recorded, tuple):
        return recorded[0].merged(headers, recorded[1])
    return [*headers] if recorded is None else recorded.merged(headers)


def has_problem_details(scope: Scope) -> bool:
    """Tell whether a refusal of the request is answered as RFC 9457 has it."""
    recorded: _Recorded = scope.get(SCOPE_KEY)
    if isinstance(recorded, tuple):
        return recorded[0].renderer.problem_details
    return outcome_of(scope).problem_details() is not None


# Not a coroutine function: one would cost a coroutine more for each message.
def send_with_headers(send: Send, scope: Scope, message: Message) -> Awaitable[None]:
    """Send *message*; if a response starts with it, with the fields of the outcome."""
    if message["type"] not in _STARTS:
        return send(message)
    message = dict(message)  # it may be a constant of the application
    headers = message.get("headers", ())
    recorded: _Recorded = scope.get(SCOPE_KEY)
    if type(recorded) is tuple:
        message["headers"] = recorded[0].merged(headers, recorded[1])
        return send(message)
    if isinstance(recorded, Outcome) and recorded.open:
        return _settle_and_send(recorded, send, scope, message)
    message["headers"] = with_fields(headers, scope)
    return send(message)


async def _settle_and_send(
    outcome: Outcome, send: Send, scope: Scope, message: Message
) -> None:
    await settle(outcome, message["status"])
    await send_with_headers(send, scope, message)


async def serve_and_settle(serving: Awaitable[None], scope: Scope) -> None:
    """
    Wait for *serving* the request of *scope*; settle it if no response started.

    A socket that was accepted has none, and stays charged.
    """
    if scope["type"] == "http":
        # Its own, whatever stands in the scope by then: routes may copy it.
        await settled(serving, outcome_of(scope))
    else:
        await serving
