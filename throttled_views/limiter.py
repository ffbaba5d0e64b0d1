"""
The limiter: the machinery that routes share, and the way to limit plain functions.

An application has one. Where none is given, all share the process-wide default.
"""

from __future__ import annotations

import copy
import warnings
import weakref
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple, Unpack

from starlette.exceptions import HTTPException, WebSocketException
from starlette.requests import HTTPConnection, Request
from starlette.responses import Response
from starlette.types import Scope

from throttled_views._binding import (
    Exchange,
    Guard,
    HandlerDecorator,
    HandlerT,
    guarded,
    in_class_body,
    is_async,
    name_of,
    not_async,
)
from throttled_views._plan import Plan
from throttled_views.errors import (
    ConfigurationError,
    RegistrationError,
    ViewDefinitionError,
)
from throttled_views.headers import (
    RateLimitContext,
    RateLimitHeaderPolicy,
    merged,
    renderer_of,
)
from throttled_views.keys import client_ip, early_parameter, reader_of
from throttled_views.limits import (
    KeyFunc,
    Limit,
    LimitOptions,
    Throttle,
    available,
    check_distinct,
    limit_text,
    limits_of,
    names_of,
    slots_of,
)
from throttled_views.outcome import RateLimitExceededError, context_of, outcome_of
from throttled_views.quotas import Algorithm, Quota
from throttled_views.stores.base import Store
from throttled_views.stores.memory import MemoryStore
from throttled_views.throttled import DEFAULT_PREFIX, Rule, Throttled

__all__ = ["Limiter"]

_DECLARED = "__throttled_views__"
WEBSOCKET = "WEBSOCKET"

_DENIAL = "websocket.http.response"  # ASGI's extension for a refused handshake
_POLICY_VIOLATION = 1008  # RFC 6455, section 7.4.1


class Limiter:
    """
    What the routes of an application share: store, key function, headers, default.

    Args:
        default: What handlers are limited to that declare nothing themselves.
        store: Where counts live; a `MemoryStore` unless given.
        using: How quotas are counted, where a limit does not say so itself.
        key_func: Names clients, where neither limit nor view does.
        headers: Names of the header fields; None sends nothing but Retry-After, and
            that on refusals alone.
        prefix: First part of all keys, which keeps applications on one store apart.
        enabled: Whether anything is limited. May be set at any time.

    Raises:
        InvalidQuotaError: *default* has a text that is not a quota.
        ConfigurationError: An argument is out of its bounds.
    """

    def __init__(  # noqa: PLR0913 - each is an independent choice
        self,
        default: Throttle | None = None,
        *,
        store: Store | None = None,
        using: Algorithm = Algorithm.TOKEN_BUCKET,
        key_func: KeyFunc = client_ip,
        headers: RateLimitHeaderPolicy | None = RateLimitHeaderPolicy(),  # noqa: B008
        prefix: str = DEFAULT_PREFIX,
        enabled: bool = True,
    ) -> None:
        if default is not None:
            for limit in limits_of(default):
                check_functions(limit)
        self.default = default
        self.store: Store = MemoryStore() if store is None else store
        self.using = available(using)
        self.key_func = key_func
        reader_of(key_func, "key")
        self.renderer = renderer_of(headers)
        self.prefix = prefix
        self.enabled = enabled
        self._owners: dict[str, list[Callable[[], Any]]] = {}
        self._buckets: dict[tuple[str, str], Limit] = {}

    def limit(
        self, quota: Throttle | None = None, **options: Unpack[LimitOptions]
    ) -> HandlerDecorator:
        """
        Decorate a plain async route function with limits of its own.

        Write it *under* the route decorator. On a `ThrottledRouter` the limit is
        decided before the request is read; on any other router, right before the
        function.
        Stacked, all limits are one decision, all or nothing.

        Args:
            quota: What to limit to; the limiter's default unless given.
            options: The options of `Limit`, for each quota that is no `Limit` yet.

        Raises:
            TypeError: The function is not async (`ViewDefinitionError`).
            ConfigurationError: There is neither a quota nor a default.
        """
        limits = self._limits(quota, options)

        def decorate(handler: HandlerT, /) -> HandlerT:
            return _limited(self, handler, limits)

        return decorate

    def exempt(self, handler: HandlerT, /) -> HandlerT:
        """
        Mark a plain route function as unlimited, for a `ThrottledRouter`.

        Raises:
            TypeError: The function is a method (`ViewDefinitionError`).
        """
        _refuse_methods(handler, "exempt")
        if declaration_of(handler).parts:
            raise ViewDefinitionError(
                name_of(handler),
                "it is both exempt and limited",
                "Keep one: @limiter.exempt or @limiter.limit(…)",
            )
        declare(handler, Declaration(handler, exempt=True))
        return handler

    def dependency(
        self, quota: Throttle | None = None, **options: Unpack[LimitOptions]
    ) -> Callable[..., Awaitable[RateLimitContext]]:
        """
        Return a dependency that limits what cannot be decorated.

        For sync functions, routers of others and ``dependencies=[…]``: write
        ``Depends(limiter.dependency("5/m"))``. Each endpoint has counts of its own.
        The header fields are on every response of a `ThrottledRouter`; elsewhere on
        refusals, and on results that are not a ``Response`` themselves.

        Args:
            quota: What to limit to; the limiter's default unless given.
            options: The options of `Limit`, for each quota that is no `Limit` yet.

        Raises:
            ConfigurationError: There is neither a quota nor a default.
        """
        limits = [
            replace(limit, name=limit.name or f"dependency {limit_text(limit)}")
            for limit in self._limits(quota, options)
        ]
        check_distinct(limits)

        async def dependency(
            connection: HTTPConnection, response: Response
        ) -> RateLimitContext:
            scope = connection.scope
            await _decide([plan_for(declaration_of(scope["endpoint"]), scope)], scope)
            _write(response, scope)
            return context_of(scope)

        plans: dict[tuple[str, str], Plan] = {}

        def plan_for(declaration: Declaration, scope: Scope) -> Plan:
            methods = declaration.methods or _methods_of(scope)
            route = declaration.route(self)
            if (plan := plans.get((methods, route))) is None:
                throttled = self.bind(limits, method=methods, route=route)
                plan = plans[methods, route] = Plan(self, [throttled])
            return plan

        declare(dependency, Declaration(dependency, limits_others=True))
        return dependency

    def throttled(
        self, quota: Throttle | None = None, **options: Unpack[LimitOptions]
    ) -> Throttled:
        """
        Return a `Throttled` on this limiter's store, to check by hand.

        Args:
            quota: What to limit to; the limiter's default unless given.
            options: The options of `Limit`, for each quota that is no `Limit` yet.

        Raises:
            ConfigurationError: There is neither a quota nor a default, or a limit needs
                a request to be known.
        """
        return Throttled(
            self._limits(quota, options),
            using=self.using,
            store=self.store,
            prefix=self.prefix,
        )

    def bind(
        self,
        limits: Sequence[Limit],
        *,
        method: str,
        route: str,
        after: Sequence[Limit] = (),
    ) -> Throttled:
        """
        Return *limits* bound to this limiter's store, for one handler.

        Args:
            limits: The limits.
            method: The methods of the handler, as keys have them.
            route: The identity of the handler.
            after: Limits of the same handler that are named before these.

        Raises:
            RegistrationError: A bucket is shared with a limit of another quota.
        """
        together = [*after, *limits]
        rules: list[Rule] = []
        for limit, name, slot in zip(
            limits,
            names_of(together)[len(after) :],
            slots_of(together)[len(after) :],
            strict=True,
        ):
            if limit.bucket is not None:
                self._check_bucket(limit.bucket, slot, limit)
            rule = Rule(
                limit,
                name=name,
                slot=slot,
                using=self.using,
                key_func=self.key_func,
                prefix=self.prefix,
                method=method,
                route=route,
            )
            if method == WEBSOCKET:
                check_socket(rule.key_func, limit.quota, limit.cost)
            rules.append(rule)
        return Throttled.declared(limits).bound(self.store, rules)

    def number_of(self, owner: Any, name: str) -> int:
        """
        Return 1 if *owner* is the first object called *name*, else which one it is.

        From the second on the user is warned: which is which depends on the order of
        registration, and might be another in the next process.
        """
        owners = self._owners.setdefault(name, [])
        alive = [reference() for reference in owners]
        for position, known in enumerate(alive):
            if known is owner:
                return position + 1
        if None in alive:  # the place of one that is gone
            position = alive.index(None)
            owners[position] = _reference_to(owner)
            return position + 1
        owners.append(_reference_to(owner))
        if len(owners) > 1:
            warnings.warn(
                f"{len(owners)} different objects named {name} are limited. This one "
                f"counts as '#{len(owners)}', by order of registration. "
                "Give its limits a bucket='…' to name it yourself",
                stacklevel=2,
            )
        return len(owners)

    def _limits(
        self, quota: Throttle | None, options: LimitOptions
    ) -> tuple[Limit, ...]:
        if quota is not None:
            limits = limits_of(quota, **options)
        elif self.default is not None:
            limits = limits_of(self.default, **options)
        else:
            msg = "There is no quota, and the limiter has no default. Write '5/m' here"
            raise ConfigurationError(msg)
        for limit in limits:
            check_functions(limit)
        return limits

    def _check_bucket(self, bucket: str, slot: str, limit: Limit) -> None:
        first = self._buckets.setdefault((bucket, slot), limit)
        both_known = isinstance(first.quota, Quota) and isinstance(limit.quota, Quota)
        if both_known and (first.quota, first.using) != (limit.quota, limit.using):
            raise RegistrationError(
                f"bucket {bucket!r}",
                f"it is held to {first.quota} in one place and to {limit.quota} in "
                "another",
                "Give both the same quota, or each a bucket of its own",
            )


@lru_cache(maxsize=1)
def default_limiter() -> Limiter:
    """Return the limiter that serves wherever none is given, one in the process."""
    return Limiter()


def _reference_to(owner: Any) -> Callable[[], Any]:
    try:
        return weakref.ref(owner)
    except TypeError:
        return lambda: owner


def check_functions(limit: Limit) -> None:
    """Raise ConfigurationError if a function of *limit* needs more than the request."""
    if limit.key_func is not None:
        reader_of(limit.key_func, "key")
    if callable(limit.quota):
        reader_of(limit.quota, "quota")
    if callable(limit.cost):
        reader_of(limit.cost, "cost")


def check_socket(*functions: object) -> None:
    """Raise ViewDefinitionError if one of *functions* cannot be given a socket."""
    for function in functions:
        if callable(function) and early_parameter(function) is Request:
            raise ViewDefinitionError(
                name_of(function),
                "a WebSocket has no Request to give it",
                "Annotate its parameter HTTPConnection",
            )


class Part(NamedTuple):
    """Limits that one decorator gave; a limiter of None is the router's."""

    limiter: Limiter | None
    limits: tuple[Limit, ...]


class Declaration:
    """
    What an endpoint says of itself: its identity, and the limits it was given.

    Attributes:
        owner: The object whose identity the endpoint has.
        handler: Name of the handler, if *owner* is a view.
        parts: The limits, the innermost decorator's first; none leaves them to the
            default of the router's limiter.
        exempt: Whether it is unlimited on purpose.
        methods: The methods the handler serves, where they are known beforehand.
        limits_others: Whether it is a dependency that limits what it is used on.

    Args:
        complete: Adds to the limiter's default what a view says itself.
    """

    def __init__(  # noqa: PLR0913 - each is a part of the declaration
        self,
        owner: object,
        *,
        handler: str = "",
        parts: Sequence[Part] = (),
        exempt: bool = False,
        methods: str = "",
        complete: Callable[[Sequence[Limit]], tuple[Limit, ...]] = tuple,
        limits_others: bool = False,
    ) -> None:
        self.owner = owner
        self.handler = handler
        self.parts = tuple(parts)
        self.exempt = exempt
        self.methods = methods
        self.limits_others = limits_others
        self._complete = complete
        self._plans: dict[tuple[Limiter, str], list[Plan]] = {}

    @property
    def name(self) -> str:
        """What it is called: ``module.qualname`` or ``module.Class.handler``."""
        return ".".join(filter(None, (name_of(self.owner), self.handler)))

    def route(self, limiter: Limiter) -> str:
        """Return the identity of the endpoint, as the keys of *limiter* have it."""
        number = limiter.number_of(self.owner, name_of(self.owner))
        return self.name if number == 1 else f"{self.name}#{number}"

    def plans(self, limiter: Limiter, methods: str) -> list[Plan]:
        """
        Return what each request is charged, one plan for each limiter; none if exempt.

        Args:
            limiter: The limiter of the router.
            methods: The methods of the route, as keys have them.

        Raises:
            RegistrationError: Neither the endpoint nor *limiter* says what to limit to.
        """
        methods = self.methods or methods
        if (plans := self._plans.get((limiter, methods))) is None:
            plans = self._plans[limiter, methods] = self._made(limiter, methods)
        return plans

    def _made(self, limiter: Limiter, methods: str) -> list[Plan]:
        parts = self.parts
        if not parts and not self.exempt:
            parts = (Part(limiter, self._default_limits(limiter)),)
        throttleds: dict[Limiter, list[Throttled]] = {}
        before: list[Limit] = []
        for part in parts:
            owner = part.limiter or limiter
            check_distinct([*before, *part.limits])
            route = self.route(owner)
            throttleds.setdefault(owner, []).append(
                owner.bind(part.limits, method=methods, route=route, after=before)
            )
            before.extend(part.limits)
        return [
            Plan(owner, each) for owner, each in throttleds.items() if each[0].limits
        ]

    def _default_limits(self, limiter: Limiter) -> tuple[Limit, ...]:
        if limiter.default is None:
            where_to = "@limiter.limit('100/m')"
            exemption = "@limiter.exempt"
            if self.handler:
                where_to, exemption = "throttle = '100/m'", "throttle = EXEMPT"
            raise RegistrationError(
                self.name,
                "nothing says what it is limited to",
                f"Write {where_to}, or {exemption} if it is to be unlimited, or give "
                "the limiter a default: Limiter('100/m')",
            )
        return self._complete(limits_of(limiter.default))


def declaration_of(endpoint: Any) -> Declaration:
    """Return what *endpoint* says of itself, or that it says nothing."""
    declared = getattr(endpoint, _DECLARED, None)
    return declared if isinstance(declared, Declaration) else Declaration(endpoint)


def declare(endpoint: Any, declaration: Declaration) -> None:
    """Let *endpoint* say *declaration* of itself."""
    setattr(endpoint, _DECLARED, declaration)


def _methods_of(scope: Scope) -> str:
    """Return the methods of the route that serves *scope*, as keys have them."""
    if scope["type"] == "websocket":
        return WEBSOCKET
    methods = getattr(scope.get("route"), "methods", None)
    return joined(methods or {scope["method"]})


def joined(methods: Iterable[str]) -> str:
    """Return *methods* as keys have them."""
    return "+".join(sorted(methods))


def guard_of(plans: Callable[[Scope], list[Plan]]) -> Guard:
    """
    Return a guard that decides *plans* right before a handler.

    It tells the outcome on whatever the handler returns or raises, unless the route
    does so anyway.
    """

    async def guard(exchange: Exchange, call: Callable[[], Awaitable[Any]]) -> Any:
        scope = exchange.connection.scope
        await _decide(plans(scope), scope)
        try:
            result = await call()
        except HTTPException as error:
            told = _told(error, scope)
            if told is error:
                raise
            raise told from error
        if isinstance(result, Response):
            return _told_by(result, scope)
        _write(exchange.response, scope)
        return result

    return guard


async def _decide(plans: Sequence[Plan], scope: Scope) -> None:
    """
    Charge the request by *plans*.

    Raises:
        RateLimitExceededError: It is refused.
        WebSocketException: It is refused, and the server cannot say so with a response.
    """
    for plan in plans:
        if await plan.decide(scope):
            if scope["type"] == "websocket" and _DENIAL not in scope["extensions"]:
                raise WebSocketException(_POLICY_VIOLATION, "Rate limit exceeded")
            raise RateLimitExceededError(context_of(scope))


def _written_by_route(scope: Scope) -> bool:
    """Tell whether the route, a `ThrottledRoute`, writes the fields on any response."""
    return bool(getattr(scope.get("route"), "plans", ()))


def _write(response: Response, scope: Scope) -> None:
    """
    Put the fields of the outcome onto FastAPI's *response* of this request.

    A field of the user is kept; one that we wrote, before more was decided, is not.
    """
    if _written_by_route(scope):
        return
    outcome = outcome_of(scope)
    for name, value in RateLimitContext(outcome).headers.items():
        if response.headers.get(name) == outcome.written.get(name):
            response.headers[name] = outcome.written[name] = value


def _told_by(response: Response, scope: Scope) -> Response:
    """Return *response* with the fields of the outcome; it is not changed itself."""
    if _written_by_route(scope):
        return response
    told = copy.copy(response)
    told.raw_headers = merged(response.raw_headers, outcome_of(scope).raw_headers())
    vars(told).pop("_headers", None)  # where `headers` keeps its view of the old list
    return told


def _told(error: HTTPException, scope: Scope) -> HTTPException:
    """Return *error* with the fields of the outcome; it is not changed itself."""
    if isinstance(error, RateLimitExceededError) or _written_by_route(scope):
        return error
    told = type(error).__new__(type(error), *error.args)
    vars(told).update(vars(error))
    own = {name.lower(): (name, value) for name, value in (error.headers or {}).items()}
    ours = {
        each.lower(): (each, text) for each, text in context_of(scope).headers.items()
    }
    told.headers = dict({**ours, **own}.values())
    return told.with_traceback(error.__traceback__)


def _limited(
    limiter: Limiter, handler: HandlerT, limits: tuple[Limit, ...]
) -> HandlerT:
    """Return *handler* with *limits* of *limiter*, added to those it has."""
    _refuse_methods(handler, "limit(…)")
    if not is_async(handler):
        raise not_async(name_of(handler), handler)
    inner = declaration_of(handler)
    if inner.exempt or not limits:
        raise ViewDefinitionError(
            name_of(handler),
            "it is both exempt and limited",
            "Keep one: @limiter.exempt or @limiter.limit(…)",
        )
    declaration = Declaration(inner.owner, parts=(*inner.parts, Part(limiter, limits)))
    declaration.route(limiter)  # the order of decoration numbers those of one name
    endpoint = guarded(
        handler, guard_of(lambda scope: declaration.plans(limiter, _methods_of(scope)))
    )
    declare(endpoint, declaration)
    return endpoint


def _refuse_methods(handler: object, decorator: str) -> None:
    if in_class_body(handler):
        name = decorator.removesuffix("(…)")
        raise ViewDefinitionError(
            name_of(handler),
            f"@limiter.{decorator} is for functions, and this is a method",
            f"Write @{name}{'(…)' if name != decorator else ''} from throttled_views "
            "on methods of a ThrottledView",
        )
