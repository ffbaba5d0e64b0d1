"""
The limiter: the machinery that routes share, and the way to limit plain functions.

An application has one. Where none is given, all share the process-wide default.
"""

from __future__ import annotations

import inspect
import logging
import warnings
import weakref
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from threading import Lock
from types import MethodType
from typing import Any, TypeVar, Unpack, cast

from throttled_views._binding import (
    HandlerDecorator,
    HandlerT,
    in_class_body,
    is_async,
    name_of,
    not_async,
    return_annotation_of,
)
from throttled_views._declaration import (
    Declaration,
    declaration_of,
    declare,
    limiting_dependencies,
)
from throttled_views._endpoints import Exchange, dependency_on, guarded
from throttled_views._functions import (
    check_connection,
    check_function,
    check_functions,
)
from throttled_views._guard import decide, guard_of, write
from throttled_views._insides import declare_guarded
from throttled_views._methods import methods_of
from throttled_views._parts import Part, late_functions
from throttled_views._plan import Plan, plan_of
from throttled_views._rules import MOST_TEMPLATES, Rule
from throttled_views.algorithms.kernels import counts_apart, kernel_of
from throttled_views.context import RateLimitContext
from throttled_views.errors import (
    ConfigurationError,
    RegistrationError,
    StoreUnavailableError,
    ViewDefinitionError,
    shown,
)
from throttled_views.headers import (
    HeaderPolicy,
    RateLimitHeaderPolicy,
    checked_policy,
    renderer_of,
)
from throttled_views.hooks import Audience, Hook, StoreStateEvent, checked_hooks
from throttled_views.keys import client_ip
from throttled_views.limits import (
    EXEMPT,
    KeyFunc,
    Limit,
    LimitOptions,
    Throttle,
    available,
    checked_on_store_error,
    limit_text,
    limits_of,
    names_of,
    slots_of,
)
from throttled_views.outcome import context_of
from throttled_views.quotas import Algorithm, Quota
from throttled_views.results import OnStoreError
from throttled_views.route_keys import (
    ByEndpoint,
    RouteKey,
    by_endpoint,
    checked_route_key,
    routes_below,
)
from throttled_views.stores.base import Store
from throttled_views.stores.failover import Failover
from throttled_views.stores.memory import MemoryStore
from throttled_views.throttled import (
    DEFAULT_PREFIX,
    Throttled,
    checked_prefix,
    checked_store,
)

__all__ = ["Limiter"]

_logger = logging.getLogger("throttled_views")
_FunctionT = TypeVar("_FunctionT", bound=Callable[..., Any])


async def _files() -> None:
    """Stand for what has dependencies and no endpoint: the files of a frontend."""


class _LimitIsADecorator:
    """What FastAPI complains of where it is given a decorator to call."""


# By which FastAPI refuses `@limiter.limit` that was given a function for a quota, and
# `Depends(limiter.limit("5/m"))`; each request would be answered 422.
_OF_A_DECORATOR = inspect.Signature(
    [
        inspect.Parameter(
            "handler",
            inspect.Parameter.POSITIONAL_ONLY,
            annotation=_LimitIsADecorator,
        )
    ]
)


class Limiter:
    """
    What the routes of an application share: store, key function, headers, default.

    Args:
        default: What handlers are limited to that declare nothing themselves.
        store: Where counts live; a `MemoryStore` unless given.
        using: How quotas are counted, where a limit does not say so itself.
        key_func: Names clients, where neither limit nor view does.
        headers: Names of the header fields, or `IETFHeaders`; None sends nothing but
            Retry-After, and that on refusals alone.
        on_store_error: What is done with a request while the store is unavailable:
            ``"local"`` counts in this process by the same quotas, ``"deny"`` answers
            503, ``"allow"`` admits, with the fields of a fresh key.
        hooks: What observes it, and must not block.
        prefix: First part of all keys, which keeps applications on one store apart.
        route_key: What of a route stands in keys: `by_endpoint` for what is limited,
            `by_template` for where it is.
        problem_details: Whether refusals are answered as RFC 9457 has it, with the
            names of the limits that refuse.
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
        headers: HeaderPolicy | None = RateLimitHeaderPolicy(),  # noqa: B008
        on_store_error: OnStoreError = "local",
        hooks: Sequence[Hook] = (),
        prefix: str = DEFAULT_PREFIX,
        route_key: RouteKey = by_endpoint,
        problem_details: bool = False,
        enabled: bool = True,
    ) -> None:
        self.using = available(using)
        if default is not None:
            for limit in limits_of(default):
                check_functions(limit)
                if isinstance(limit.quota, Quota):
                    kernel_of(limit.quota, limit.using or self.using, limit.max_delay)
        self.default = default
        self.store: Store = MemoryStore() if store is None else checked_store(store)
        self.hooks = checked_hooks(hooks)
        self.audience = Audience(self.hooks)
        policy = checked_on_store_error(on_store_error)
        self.on_store_error: OnStoreError = policy
        self.failover = Failover(
            self.store, policy, partial(_tell_store_state, self.audience, policy)
        )
        check_function(key_func, "key")
        self.key_func = key_func
        self.renderer = renderer_of(
            checked_policy(headers), problem_details=problem_details
        )
        self.prefix = checked_prefix(prefix)
        self.route_key = checked_route_key(route_key)
        self.enabled = enabled
        self._owners: dict[str, list[Callable[[], Any]]] = {}
        self._buckets: dict[tuple[str, str], tuple[Quota, Algorithm]] = {}
        self._places: dict[tuple[str, str], tuple[Quota, Algorithm]] = {}
        self._dependencies: dict[str, set[str]] = {}
        self._naming = Lock()
        self._is_made = True

    def __setattr__(self, name: str, value: object) -> None:
        """Set `enabled`; what routes have read by now cannot be set any more."""
        if name != "enabled" and hasattr(self, "_is_made"):
            msg = (
                f"Limiter.{name} cannot be set: routes have read it when they were "
                f"registered. Write Limiter(…, {name}=…)"
            )
            raise ConfigurationError(msg)
        super().__setattr__(name, value)

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
        refuse_a_handler(quota, "@limiter.limit")
        limits = self._limits(quota, options)

        def decorate(handler: HandlerT, /) -> HandlerT:
            return _limited(self, handler, limits)

        cast("Any", decorate).__signature__ = _OF_A_DECORATOR
        return decorate

    def exempt(self, handler: _FunctionT, /) -> _FunctionT:
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
        limits = self._limits(quota, options)
        if any(each.refund_when is not None for each in limits):
            msg = (
                "A dependency does not see the response, so it cannot refund_when. "
                "Write @limiter.limit(…, refund_when=…) on the function"
            )
            raise ConfigurationError(msg)
        for limit, slot in zip(limits, slots_of(limits), strict=True):
            self._check_bucket(slot, limit)
        # With the endpoint, which may have no hash, so that its id stays its own.
        plans: dict[tuple[int, str], tuple[object, Plan]] = {}

        async def limit_it(exchange: Exchange) -> RateLimitContext:
            scope = exchange.connection.scope
            endpoint = scope.get("endpoint", _files)
            plan = plan_for(endpoint, methods_of(scope), scope.get("router"))
            await decide([plan], scope, exchange.answers)
            write(exchange.response, scope)
            return context_of(scope)

        def plan_for(endpoint: object, methods: str, router: object = None) -> Plan:
            declaration = declaration_of(endpoint)
            methods = declaration.methods or methods
            key = id(endpoint), methods
            if key not in plans:
                with self._naming:  # two threads would give it two names, and counts
                    if key not in plans:
                        self._number_all(router, name_of(declaration.owner))
                        plans[key] = endpoint, made(declaration, methods)
            return plans[key][1]

        def made(declaration: Declaration, methods: str) -> Plan:
            route = declaration.route(self, in_request=True)
            named = self._among_dependencies(limits, f"{methods} {route}")
            bound = self.bind(named, method=methods, route=route, by_dependency=True)
            return plan_of(self, bound.rules)

        parts = [Part(self, limits)]
        dependency = dependency_on(late_functions(parts, self), limit_it)
        declare(dependency, Declaration(dependency, parts=parts, plan_on=plan_for))
        return dependency

    def _number_all(self, router: object, name: str) -> None:
        """Number what dependencies limit by order of registration, not of requests."""
        for each in routes_below(router):
            owner = declaration_of(getattr(each, "endpoint", None)).owner
            if name_of(owner) == name and any(
                part.limiter is self
                for dependency in limiting_dependencies(
                    getattr(each, "dependant", None)
                )
                for part in dependency.parts
            ):
                self.number_of(owner, name, in_request=True)

    def _among_dependencies(self, limits: Sequence[Limit], on: str) -> list[Limit]:
        """Return *limits* with names that no other dependency of an endpoint has."""
        taken = self._dependencies.setdefault(on, set())
        named: list[Limit] = []
        for limit in limits:
            name = wanted = limit.name or f"dependency {limit_text(limit)}"
            while name in taken:
                name = f"{wanted} #{len(taken) + 1}"
            if limit.bucket is None:
                taken.add(name)
                limit = replace(limit, name=name)  # noqa: PLW2901 - the same, named
            named.append(limit)
        return named

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
        limits = self._limits(quota, options)
        for limit, slot in zip(limits, slots_of(limits), strict=True):
            self._check_bucket(slot, limit)
        return Throttled(
            limits or EXEMPT,
            using=self.using,
            store=self.failover,
            prefix=self.prefix,
        ).told_to(self.audience, lambda: self.enabled)

    def bind(
        self,
        limits: Sequence[Limit],
        *,
        method: str,
        route: str,
        after: Sequence[Limit] = (),
        by_dependency: bool = False,
    ) -> Throttled:
        """
        Return *limits* bound to this limiter's store, for one handler.

        Args:
            limits: The limits.
            method: The methods of the handler, as keys have them.
            route: The identity of the handler.
            after: Limits of the same handler that are named before these.
            by_dependency: Whether a dependency holds the handler to them.

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
            self._check_bucket(slot, limit)
            rule = Rule(
                limit,
                name=name,
                slot=slot,
                using=self.using,
                key_func=self.key_func,
                prefix=self.prefix,
                method=method,
                route=route,
                by_dependency=by_dependency,
                check_place=self._check_place,
            )
            check_connection(method, rule.key_func, limit.quota, limit.cost)
            rules.append(rule)
        return Throttled.declared(limits).bound(self.store, rules)

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
        # Where a template stands in keys, no name does.
        if len(owners) > 1 and isinstance(self.route_key, ByEndpoint):
            msg = (
                f"{len(owners)} different objects named {name} are limited. This one "
                f"counts as '#{len(owners)}', by order of registration. "
                "Give its limits a bucket='…' to name it yourself"
            )
            if in_request:
                _logger.warning(msg)
            else:
                warnings.warn(msg, stacklevel=2)
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

    def _check_bucket(self, slot: str, limit: Limit) -> None:
        if limit.bucket is None or not isinstance(limit.quota, Quota):
            return
        using = limit.using or self.using
        first = self._buckets.setdefault((limit.bucket, slot), (limit.quota, using))
        _check_equal(first, limit.quota, using, f"bucket {limit.bucket!r}")

    def _check_place(self, rule: Rule) -> None:
        """Refuse another quota for the same template, which hosts may have alike."""
        quota = rule.limit.quota
        if not isinstance(quota, Quota):
            return
        if len(self._places) >= MOST_TEMPLATES:  # of a root_path that varies
            self._places.clear()
        first = self._places.setdefault((rule.head, rule.tail), (quota, rule.using))
        _check_equal(
            first, quota, rule.using, f"route_key=by_template at {rule.route!r}"
        )


def _check_equal(
    first: tuple[Quota, Algorithm], quota: Quota, using: Algorithm, place: str
) -> None:
    if first[0] != quota or counts_apart(first[1], using):
        raise RegistrationError(
            place,
            f"it is held to {first[0]} by {first[1]} in one place and to "
            f"{quota} by {using} in another",
            "Give both the same quota, or each a bucket of its own",
        )


def checked_limiter(limiter: object) -> Limiter:
    """Return *limiter*, or the process-wide default if it is None."""
    if limiter is None:
        return default_limiter()
    if not isinstance(limiter, Limiter):
        write = (
            f"Limiter({limiter!r})" if isinstance(limiter, str) else "Limiter('5/m')"
        )
        msg = f"limiter={shown(limiter)} is no limiter. Write limiter={write}"
        raise ConfigurationError(msg)
    return limiter


@lru_cache(maxsize=1)
def default_limiter() -> Limiter:
    """Return the limiter that serves wherever none is given, one in the process."""
    return Limiter()


def _tell_store_state(
    audience: Audience, policy: OnStoreError, error: StoreUnavailableError | None
) -> None:
    audience.on_store_state(StoreStateEvent(error is None, policy, error))


def _reference_to(owner: Any) -> Callable[[], Any]:
    if isinstance(owner, MethodType):  # a new object for each look at it
        return weakref.WeakMethod(owner)
    try:
        return weakref.ref(owner)
    except TypeError:
        return lambda: owner


def refuse_a_handler(quota: object, decorator: str) -> None:
    """Refuse a decorator without its parentheses, which takes a handler for a quota."""
    if not callable(quota) or isinstance(quota, Limit | Quota | type):
        return
    answer = return_annotation_of(quota)
    if answer is not str and not any(
        each in str(answer) for each in ("Quota", "EXEMPT")
    ):
        raise ViewDefinitionError(
            name_of(quota),
            f"{decorator} is given a function that returns no quota",
            f"Write {decorator}('5/m') with parentheses; annotate a quota function: "
            "'-> Quota'",
        )


def _limited(
    limiter: Limiter, handler: HandlerT, limits: tuple[Limit, ...]
) -> HandlerT:
    """Return *handler* with *limits* of *limiter*, added to those it has."""
    _refuse_methods(handler, "limit(…)")
    if not is_async(handler):
        raise not_async(name_of(handler), handler)
    if not limits:
        raise ViewDefinitionError(
            name_of(handler), "EXEMPT is no limit", "Write @limiter.exempt"
        )
    inner = declaration_of(handler)
    if inner.exempt:
        raise ViewDefinitionError(
            name_of(handler),
            "it is both exempt and limited",
            "Keep one: @limiter.exempt or @limiter.limit(…)",
        )
    parts = (*inner.parts, Part(limiter, limits))
    endpoint: HandlerT = guarded(
        handler,
        guard_of(lambda scope: declaration.plans(limiter, methods_of(scope))),
        late_functions(parts, limiter),
    )
    # Stacked on another limit it is one function with it, else one of its own: the
    # same function under two quotas has two counts.
    owner = inner.owner if inner.parts else endpoint
    declaration = Declaration(owner, parts=parts)
    declare_guarded(endpoint, handler, declaration)
    # What is wrong is told here, and the order of decoration numbers those of one name.
    declaration.plans(limiter, "")
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
