"""
The limiter: the machinery that routes share, and the way to limit plain functions.

An application has one. Where none is given, all share the process-wide default.

Longer than other modules, because what users may say to it is explained where they say
it. What becomes of that is in modules of its own.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import lru_cache, partial
from typing import Any, TypeVar, Unpack

from throttled_views._agreements import Agreements
from throttled_views._binding import HandlerDecorator
from throttled_views._dependency import Names, dependency_of
from throttled_views._functions import (
    check_connection,
    check_function,
    check_functions,
)
from throttled_views._given import (
    DEFAULT_PREFIX,
    checked_prefix,
    checked_store,
    checked_switch,
)
from throttled_views._limited import exempt, limiting, refuse_a_handler
from throttled_views._numbers import Numbers
from throttled_views._rules import Rule
from throttled_views.algorithms.kernels import kernel_of
from throttled_views.context import RateLimitContext
from throttled_views.errors import (
    ConfigurationError,
    StoreUnavailableError,
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
    limits_of,
    names_of,
    slots_of,
)
from throttled_views.quotas import Algorithm, Quota
from throttled_views.results import OnStoreError
from throttled_views.route_keys import (
    ByEndpoint,
    RouteKey,
    by_endpoint,
    checked_route_key,
)
from throttled_views.stores.base import Store
from throttled_views.stores.failover import Failover
from throttled_views.stores.memory import MemoryStore
from throttled_views.throttled import Throttled

__all__ = ["Limiter"]

_FunctionT = TypeVar("_FunctionT", bound=Callable[..., Any])


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
        self.default = _checked_default(default, self.using)
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
            checked_policy(headers),
            problem_details=checked_switch("problem_details", problem_details),
        )
        self.prefix = checked_prefix(prefix)
        self.route_key = checked_route_key(route_key)
        self.enabled = enabled
        # Where a template stands in keys, no name does.
        self._numbers = Numbers(are_in_keys=isinstance(self.route_key, ByEndpoint))
        self._agreements = Agreements()
        self._names_of_dependencies = Names()
        self._is_made = True

    def __setattr__(self, name: str, value: object) -> None:
        """
        Set `enabled`; what routes have read by now cannot be set any more.

        Raises:
            ConfigurationError: It is another attribute, or what it is set to is neither
                True nor False.
        """
        if name != "enabled" and hasattr(self, "_is_made"):
            msg = (
                f"Limiter.{name} cannot be set: routes have read it when they were "
                f"registered. Write Limiter(…, {name}=…)"
            )
            raise ConfigurationError(msg)
        if name == "enabled":
            value = checked_switch(name, value)
        super().__setattr__(name, value)

    def limit(
        self, quota: Throttle | None = None, **options: Unpack[LimitOptions]
    ) -> HandlerDecorator:
        """
        Decorate a plain async route function with limits of its own.

        Write it *under* the route decorator. On a `ThrottledRouter` the limit is
        decided before the request is read; on any other router, right before the
        function. Stacked, all limits are one decision, all or nothing.

        Args:
            quota: What to limit to; the limiter's default unless given.
            options: The options of `Limit`, for each quota that is no `Limit` yet.

        Raises:
            TypeError: The function is not async (`ViewDefinitionError`).
            ConfigurationError: There is neither a quota nor a default.
        """
        refuse_a_handler(quota, "@limiter.limit")
        return limiting(self, self._limits(quota, options))

    def exempt(self, handler: _FunctionT, /) -> _FunctionT:
        """
        Mark a plain route function as unlimited, for a `ThrottledRouter`.

        Raises:
            TypeError: The function is a method (`ViewDefinitionError`).
        """
        exempt(handler)
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
        dependency = dependency_of(self, limits, self._names_of_dependencies)
        self._agreements.check_buckets(limits, self.using)
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
        limits = self._limits(quota, options)
        self._agreements.check_buckets(limits, self.using)
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
    ) -> tuple[Rule, ...]:
        """
        Return *limits* as this limiter counts them for one handler.

        Args:
            limits: The limits.
            method: The methods of the handler, as keys have them.
            route: The identity of the handler.
            after: Limits of the same handler that are named before these.
            by_dependency: Whether a dependency holds the handler to them.

        Raises:
            RegistrationError: A bucket is shared with a limit of another quota.
        """
        together, first = [*after, *limits], len(after)
        names, slots = names_of(together)[first:], slots_of(together)[first:]
        rules: list[Rule] = []
        for limit, name, slot in zip(limits, names, slots, strict=True):
            self._agreements.check_bucket(slot, limit, self.using)
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
                check_place=self._agreements.check_place,
            )
            check_connection(method, rule.key_func, limit.quota, limit.cost)
            rules.append(rule)
        return tuple(rules)

    def number_of(self, owner: object, name: str, *, in_request: bool = False) -> int:
        """Return which object of its *name* *owner* is, from 1; see `Numbers`."""
        return self._numbers.number_of(owner, name, in_request=in_request)

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


def _checked_default(default: Throttle | None, using: Algorithm) -> Throttle | None:
    """Return *default* if handlers can be held to it."""
    for limit in () if default is None else limits_of(default):
        check_functions(limit)
        if isinstance(limit.quota, Quota):
            kernel_of(limit.quota, limit.using or using, limit.max_delay)
    return default


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
