"""
Limits of a whole application, which also hold for what no route serves.

It is pure ASGI: streams, background tasks and the messages of sockets pass untouched.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property

from starlette.applications import Starlette
from starlette.types import ASGIApp, Receive, Scope, Send

from throttled_views._binding import name_of
from throttled_views._early import called
from throttled_views._functions import check_connection
from throttled_views._guard import decide
from throttled_views._methods import WEBSOCKET
from throttled_views._plan import Plan, decide_all
from throttled_views._refusals import fail, refuse
from throttled_views._rules import Rule, is_late
from throttled_views._scopes import begin_app, serve_and_settle
from throttled_views.errors import RegistrationError
from throttled_views.limiter import Limiter, checked_limiter
from throttled_views.limits import Limit, Throttle, limit_text, limits_of

__all__ = ["RateLimitMiddleware"]

_logger = logging.getLogger("throttled_views")

_APP = "APP"
"""What stands for the methods of what an application limits."""

_SERVED = frozenset(("http", "websocket"))


class RateLimitMiddleware:
    """
    Limits all requests to an application together, whatever serves them.

    Routes, exempt ones too, files, mounted applications, WebSockets and paths that do
    not exist: a request is charged once, before it is routed. Limits of its route come
    on top; the header fields tell of all of them. A refusal is answered by the
    exception handlers of the application.

    Without *throttle* it limits nothing, and writes the fields of what routes decide
    on responses that do not have them yet.

    Add it before `CORSMiddleware`, so that a browser may read its refusals::

        app.add_middleware(RateLimitMiddleware, limiter=limiter, throttle="1000/m")
        app.add_middleware(CORSMiddleware, …)

    Args:
        app: What it is around.
        limiter: The machinery to share; the process-wide default unless given.
        throttle: What to limit to: all that a view's ``throttle`` takes. Its functions
            take the connection, or nothing. Middleware of one limiter with equal
            limits share their counts.

    Raises:
        InvalidQuotaError: A text is not a quota.
        RegistrationError: A function takes what only FastAPI could give it.

    Attributes:
        app: What it is around.
        limiter: The machinery.
        limits: The limits, in order.
        rules: The same, as they are counted.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        limiter: Limiter | None = None,
        throttle: Throttle | None = None,
    ) -> None:
        self.app = app
        self.limiter = checked_limiter(limiter)
        self.limits = _named(() if throttle is None else limits_of(throttle))
        self.rules = list(_rules_of(self.limiter, self.limits))
        self._plans = [Plan(self.limiter, self.rules)] if self.rules else []
        if self._plans and _has_cors(app):
            _logger.warning(
                "CORSMiddleware is inside RateLimitMiddleware: browsers cannot read "
                "refusals, and preflight requests are counted. Add it after "
                "RateLimitMiddleware, which puts it outside"
            )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve *scope*, or refuse it."""
        if scope["type"] not in _SERVED:
            await self.app(scope, receive, send)
            return
        if isinstance(self.app, Starlette):
            scope["app"] = self.app  # as it does itself: its handlers are asked
        send = begin_app(scope, send, self.rules)
        if not self._plans:  # a guard within leaves it to whoever sees the response
            await serve_and_settle(self.app(scope, receive, send), scope)
            return
        await serve_and_settle(self._decide_and_serve(scope, receive, send), scope)

    async def _decide_and_serve(
        self, scope: Scope, receive: Receive, send: Send
    ) -> None:
        try:
            is_refused = await self._decide(scope)
        except Exception as error:  # noqa: BLE001 - the handlers' choice, or raised again
            await fail(error, scope, receive, send)
            return
        if is_refused:
            await refuse(scope, receive, send)
            return
        await self.app(scope, receive, send)

    def _decide(self, scope: Scope) -> Awaitable[bool | None]:
        """Charge the request; tell if it is refused. Of a socket, that is raised."""
        if scope["type"] == "http":
            return decide_all(self._plans, scope, phase="app")
        return decide(self._plans_of_sockets, scope, phase="app")

    @cached_property
    def _plans_of_sockets(self) -> Sequence[Plan]:
        for rule in self.rules:
            check_connection(WEBSOCKET, *_functions_of(rule))
        return self._plans


def _named(limits: Sequence[Limit]) -> tuple[Limit, ...]:
    """Return *limits* with names that tell them from those of routes."""
    named, texts = list[Limit](), list[str]()
    for limit in limits:
        text = f"app {limit_text(limit)}"
        texts.append(text)
        number = texts.count(text)
        name = limit.name or (text if number == 1 else f"{text} #{number}")
        # One in a bucket is known by its place there, to all who share it.
        named.append(replace(limit, name=name) if limit.bucket is None else limit)
    return tuple(named)


def _rules_of(limiter: Limiter, limits: Sequence[Limit]) -> Iterator[Rule]:
    for position, limit in enumerate(limits):
        route = _identity(limiter, limit)
        before = limits[:position]
        rules = limiter.bind([limit], method=_APP, route=route, after=before)
        for rule in rules:
            _check_is_early(rule)
            yield rule


def _identity(limiter: Limiter, limit: Limit) -> str:
    """Name what is counted: unequal ones apart, so that applications may share one."""
    parts = [
        _named_function(limiter, each) if callable(each) else str(each)
        for each in (limit.quota, limit.cost)
    ]
    return parts[0] if limit.cost == 1 else " at ".join(parts)


def _named_function(limiter: Limiter, function: Callable[..., object]) -> str:
    name = name_of(function)
    number = limiter.number_of(function, name)
    return name if number == 1 else f"{name}#{number}"


def _functions_of(rule: Rule) -> Sequence[object]:
    return rule.key_func, rule.limit.quota, rule.limit.cost


def _check_is_early(rule: Rule) -> None:
    for function in filter(is_late, _functions_of(rule)):
        raise RegistrationError(
            "RateLimitMiddleware",
            f"{called(function)} takes what FastAPI solves for routes, and it runs "
            "before there is one",
            "Give the limit a function that takes the connection, for example "
            f"Limit({limit_text(rule.limit)!r}, key_func=client_ip)",
        )


def _has_cors(app: object) -> bool:
    """Tell whether there is a `CORSMiddleware` in what *app* is around."""
    from starlette.middleware.cors import CORSMiddleware  # noqa: PLC0415 - few have one

    seen = set[int]()
    while app is not None and id(app) not in seen:
        seen.add(id(app))  # one may be around itself
        if isinstance(app, CORSMiddleware):
            return True
        if isinstance(app, Starlette):
            added: list[object] = [each.cls for each in app.user_middleware]
            return CORSMiddleware in added
        app = getattr(app, "app", None)
    return False
