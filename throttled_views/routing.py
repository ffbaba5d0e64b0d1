"""
Routes that limit themselves: the router, its routes, and the decorators of methods.

Everything on a `ThrottledRouter` is limited, or refused when it is registered. Limits
are decided in `APIRoute.handle`, which every FastAPI calls, however its routers are
nested: before the body is read and before any dependency runs.

Longer than other modules, because a router and its routes keep that promise together:
what is registered in one way or another, and what a request of it meets.
"""

from __future__ import annotations

from collections.abc import (
    AsyncGenerator,
    Awaitable,
    Callable,
    Collection,
    Coroutine,
    Mapping,
    Sequence,
)
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, ClassVar, NoReturn, TypeVar, Unpack

from fastapi import APIRouter
from fastapi.routing import APIRoute
from starlette.routing import get_name
from starlette.types import Lifespan, Receive, Scope, Send

from throttled_views._binding import (
    HandlerDecorator,
    HandlerT,
    includes_by_endpoint,
    is_async,
    is_stream,
    name_of,
    not_async,
)
from throttled_views._claims import Claims
from throttled_views._declaration import Declaration, declaration_of
from throttled_views._endpoints import guarded, is_guarded
from throttled_views._guard import guard_of
from throttled_views._handlers import options_of
from throttled_views._insides import declare_inside, unguarded
from throttled_views._limited import refuse_a_handler
from throttled_views._marks import RouteDecorators, limits_given, with_limits
from throttled_views._methods import WEBSOCKET, joined, methods_of
from throttled_views._openapi import document, held_by_dependencies
from throttled_views._plan import Plan, decide_all, early_plans
from throttled_views._refusals import fail, refuse
from throttled_views._scopes import (
    SCOPE_KEY,
    Quick,
    begin,
    is_told,
    send_with_headers,
    serve_and_settle,
    telling,
)
from throttled_views._view_endpoints import View, check_is_complete, endpoint_of
from throttled_views.errors import RegistrationError, StoreUnavailableError
from throttled_views.limiter import Limiter, checked_limiter, default_limiter
from throttled_views.limits import LimitOptions, Throttle
from throttled_views.outcome import RateLimitUnavailableError
from throttled_views.stores.base import Store
from throttled_views.stores.deciding import AnyTaken

__all__ = ["ThrottledRoute", "ThrottledRouter", "exempt", "limit", "route"]

_ViewT = TypeVar("_ViewT", bound=View)

# --- decorators of methods ------------------------------------------------------------


def limit(*throttles: Throttle, **options: Unpack[LimitOptions]) -> HandlerDecorator:
    """
    Decorate a handler of a view with limits that replace those of its class.

    Args:
        throttles: What to limit to; several are one decision, all or nothing.
        options: The options of `Limit`, for each of *throttles* that is no `Limit` yet.

    Raises:
        InvalidQuotaError: A text is not a quota.
        ConfigurationError: There is nothing to limit to, or an option is out of bounds.
        ViewDefinitionError: It decorates what is no method, or one limited already.
    """
    refuse_a_handler(throttles[0] if len(throttles) == 1 else None, "@limit")
    limits = limits_given(throttles, options)

    def decorate(handler: HandlerT, /) -> HandlerT:
        return with_limits(handler, limits, "limit(…)")

    return decorate


def exempt(handler: HandlerT, /) -> HandlerT:
    """
    Decorate a handler of a view that is not to be limited.

    Raises:
        ViewDefinitionError: It decorates what is no method, or one limited already.
    """
    return with_limits(handler, (), "exempt")


route = RouteDecorators()
"""Route decorators for methods of views: ``@route.get("/{id}")``."""


# --- routes and routers ---------------------------------------------------------------


class ThrottledRoute(APIRoute):
    """
    A route that decides its limits before anything of the request is read.

    A `ThrottledRouter` makes them, with its limiter as `limiter`.

    Raises:
        RegistrationError: Nothing says what the endpoint is limited to.

    Attributes:
        all_plans: What each request is charged.
        plans: What of that it is charged before anything of it is read.
        tells: Whether it writes the fields of an outcome on whatever is the response.
    """

    limiter: ClassVar[Limiter | None] = None
    tells: ClassVar[bool] = True

    # Further arguments are FastAPI's, and there are more of them with each version.
    def __init__(self, path: str, endpoint: Callable[..., Any], **kwargs: Any) -> None:
        limiter = type(self).limiter or default_limiter()
        declaration = declaration_of(endpoint)
        late = declaration.late_functions(limiter)
        on_its_own = _guarded(endpoint, declaration, limiter)
        serving = on_its_own if late else unguarded(endpoint)
        super().__init__(path, serving, **kwargs)
        depended = [*held_by_dependencies(self.dependant)]
        by_dependency = bool(depended)
        self.all_plans = self._plans_of(
            declaration, limiter, by_dependency=by_dependency
        )
        self.plans = early_plans(self.all_plans)
        if self.all_plans or by_dependency:
            # A stream has no answer of its own: its refusal is raised, if it is late.
            is_raised = bool(late) and is_stream(serving)
            held = declaration.held(limiter)
            own = [each._replace(by_dependency=is_raised) for each in held]
            document(self, [*own, *depended])
        # Whoever makes a route of another kind of it takes its limits along.
        takes_along = bool(self.all_plans) and includes_by_endpoint()
        self.endpoint = on_its_own if takes_along else serving
        # An exempt route, which has no plans, has these, too: where it is included it
        # may get dependencies that limit, and it tells what they decide.
        own_methods: frozenset[str] = frozenset(self.methods or ())
        quick = _quick_of(self.plans, self.all_plans)
        # All that a request needs of its route, in one attribute: to look one up is not
        # free in an object of this size. FastAPI's own `handle` is the last.
        self._for_requests = own_methods, quick, super().handle

    def _plans_of(
        self, declaration: Declaration, limiter: Limiter, *, by_dependency: bool
    ) -> Sequence[Plan]:
        try:
            return declaration.plans(limiter, joined(self.methods or ()))
        except RegistrationError:
            if by_dependency:
                return ()
            raise

    # Not a coroutine function: it returns the coroutine of whoever answers the request,
    # which saves one of its own. Pyright has a narrower type for those than mypy.
    def handle(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, scope: Scope, receive: Receive, send: Send
    ) -> Coroutine[Any, Any, None]:
        """
        Serve the request, or refuse it.

        One of a method that the route does not serve is not charged here: FastAPI
        answers it with 405.
        """
        own_methods, quick, serve = self._for_requests
        if scope["method"] not in own_methods:
            return serve(scope, receive, send)
        if quick is None or SCOPE_KEY in scope or not quick.machinery.enabled:
            return self._decide_and_handle(scope, receive, send)
        taken = quick.take(scope)
        if not isinstance(taken, tuple):
            if taken is None:
                return self._decide_and_handle(scope, receive, send)
            return self._wait_and_handle(quick, taken, scope, receive, send)
        scope[SCOPE_KEY] = quick, taken, id(scope), scope.get("endpoint")
        if taken[0]:
            return refuse(scope, receive, send)
        return serve(scope, receive, partial(send_with_headers, send, scope))

    async def _wait_and_handle(
        self,
        quick: Quick,
        taking: Awaitable[AnyTaken],
        scope: Scope,
        receive: Receive,
        send: Send,
    ) -> None:
        try:
            taken = await taking
        except StoreUnavailableError as error:
            quick.machinery.failover.failed(error)
            await self._decide_and_handle(scope, receive, send)
            return
        scope[SCOPE_KEY] = quick, taken, id(scope), scope.get("endpoint")
        if taken[0]:
            await refuse(scope, receive, send)
            return
        *_, serve = self._for_requests
        await serve(scope, receive, partial(send_with_headers, send, scope))

    async def _decide_and_handle(
        self, scope: Scope, receive: Receive, send: Send
    ) -> None:
        begin(scope)
        deciding = self._decided(scope, receive, send)
        # Who tells, settles: what is in between may send a response much later.
        await (deciding if is_told(scope) else serve_and_settle(deciding, scope))

    async def _decided(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            is_refused = bool(self.plans) and await decide_all(self.plans, scope)
        except RateLimitUnavailableError as error:
            await fail(error, scope, receive, send)
            return
        if is_refused:
            await refuse(scope, receive, send)
            return
        *_, serve = self._for_requests
        await serve(scope, receive, telling(send, scope))


def _quick_of(early: Sequence[Plan], plans: Sequence[Plan]) -> Quick | None:
    """Return what decides *early* ones of *plans* in a hurry, if anything does."""
    # Nothing does where something may be given back: what is in a hurry does not stay
    # until it is known how a request ended.
    is_settled = any(rule.is_refundable for plan in plans for rule in plan.rules)
    return None if is_settled or len(early) != 1 else early[0].quick


def _guarded(
    endpoint: Callable[..., Any], declaration: Declaration, limiter: Limiter
) -> Callable[..., Any]:
    """Return *endpoint* with a guard; one that is guarded decides all by itself."""
    if is_guarded(endpoint):
        return endpoint
    guard = guard_of(lambda scope: declaration.plans(limiter, methods_of(scope)))
    served: Callable[..., Any] = guarded(
        endpoint, guard, declaration.late_functions(limiter)
    )
    declare_inside(served, endpoint, declaration)
    return served


class ThrottledRouter(APIRouter):
    """
    An `APIRouter` whose every route is limited.

    By its own declaration, else by the limiter's default. A route with neither is
    refused when it is registered, unless it is `EXEMPT` or ``@limiter.exempt``. The
    same class or function, included twice, shares its counts.

    Args:
        limiter: The machinery to share; the process-wide default unless given.
        kwargs: What `APIRouter` takes.

    Raises:
        RegistrationError: ``routes`` were given, which could not be limited.
    """

    def __init__(self, limiter: Limiter | None = None, **kwargs: Any) -> None:
        if kwargs.get("routes"):
            raise _unlimited("routes=[…]")
        self.limiter = checked_limiter(limiter)
        base: type[APIRoute] = kwargs.pop("route_class", ThrottledRoute)
        self._claims = Claims()
        super().__init__(route_class=_route_class(self.limiter, base), **kwargs)
        self.lifespan_context = _closing(self.limiter.store, self.lifespan_context)

    def add_view(self, view: type[View], *, prefix: str = "", **kwargs: Any) -> None:
        """
        Register all handlers of *view*.

        Args:
            view: A subclass of `ThrottledView`.
            prefix: Path to put before the view's own.
            kwargs: What `include_router` takes, for the routes of this view.

        Raises:
            RegistrationError: The view is abstract or has no handlers, one of them is
                limited by nothing, or an earlier route captures it, or has its path and
                method; or an argument is the whole router's.
        """
        check_is_complete(view)
        definition = view.__throttled_definition__
        for handler in definition.handlers:
            endpoint = endpoint_of(view, handler, self.limiter)
            for call in handler.calls:
                options = options_of(call, (kwargs, definition.options))
                if len(call.args) < 2:  # noqa: PLR2004 - a WebSocket's second is its name
                    options.setdefault("name", f"{view.__name__}.{handler.name}")
                path = f"{prefix}{definition.path}{call.path}"
                add = getattr(self, call.verb)
                add(path, *call.args[1:], **options)(endpoint)

    def view(self, view: type[_ViewT]) -> type[_ViewT]:
        """Register *view*, as `add_view` does, and return it: a class decorator."""
        self.add_view(view)
        return view

    def add_api_route(
        self, path: str, endpoint: Callable[..., Any], **kwargs: Any
    ) -> None:
        """
        Register *endpoint*; takes what `APIRouter.add_api_route` takes.

        Raises:
            RegistrationError: Nothing limits it, or an earlier route captures its path.
        """
        route_class = kwargs.get("route_class_override") or self.route_class
        if not issubclass(route_class, ThrottledRoute):
            raise _unlimited(f"a route of class {route_class.__name__}")
        methods = frozenset(map(str.upper, _checked_methods(path, kwargs)))
        name = kwargs.get("name") or get_name(endpoint)
        self._claims.add(name, methods, self.prefix + path, endpoint)
        super().add_api_route(path, endpoint, **kwargs)

    def add_api_websocket_route(
        self, path: str, endpoint: Callable[..., Any], *args: Any, **kwargs: Any
    ) -> None:
        """
        Register a WebSocket *endpoint*; takes what `APIRouter`'s method takes.

        Its limits are decided right before it runs, so before it accepts.

        Raises:
            RegistrationError: Nothing limits it.
            ViewDefinitionError: It is not async.
        """
        methods = frozenset((WEBSOCKET,))
        self._claims.add(get_name(endpoint), methods, self.prefix + path, endpoint)
        if not is_async(endpoint):
            raise not_async(name_of(endpoint), endpoint)
        declaration = declaration_of(endpoint)
        if declaration.plans(self.limiter, WEBSOCKET):
            endpoint = _guarded(endpoint, declaration, self.limiter)
        super().add_api_websocket_route(path, endpoint, *args, **kwargs)

    def include_router(self, router: APIRouter, *args: Any, **kwargs: Any) -> None:
        """
        Include another `ThrottledRouter`; takes what `APIRouter.include_router` takes.

        Raises:
            RegistrationError: It is another kind of router, whose routes, also those
                it gets later, could not be limited.
        """
        if not isinstance(router, ThrottledRouter):
            raise _unlimited("an APIRouter")
        prefix = self.prefix + kwargs.get("prefix", "")
        # Of another object of this class.
        together = self._claims.with_those(router._claims, prefix)  # noqa: SLF001
        super().include_router(router, *args, **kwargs)
        self._claims = together  # an older FastAPI has claimed some of them, too

    def add_route(self, *_args: Any, **_kwargs: Any) -> NoReturn:
        """Refuse: a plain Starlette route cannot be limited here."""
        raise _unlimited("a Starlette route")

    def add_websocket_route(self, *_args: Any, **_kwargs: Any) -> NoReturn:
        """Refuse: a plain Starlette WebSocket route cannot be limited here."""
        raise _unlimited("a Starlette WebSocket route")

    def mount(self, *_args: Any, **_kwargs: Any) -> NoReturn:
        """Refuse: a mounted application cannot be limited here."""
        raise _unlimited("a mounted application")

    def host(self, *_args: Any, **_kwargs: Any) -> NoReturn:
        """Refuse: an application for a host cannot be limited here."""
        raise _unlimited("an application for a host")

    def frontend(self, *_args: Any, **_kwargs: Any) -> NoReturn:
        """Refuse: the files of a frontend cannot be limited here."""
        raise _unlimited("a frontend")


def _closing(store: Store, lifespan: Lifespan[Any]) -> Lifespan[Any]:
    """Return *lifespan* with *store* closed at its end: an application ends with it."""

    @asynccontextmanager
    async def around(app: Any) -> AsyncGenerator[Any, None]:
        try:
            async with lifespan(app) as state:
                yield state
        finally:
            await store.aclose()

    return around


def _route_class(limiter: Limiter, base: type[APIRoute]) -> type[ThrottledRoute]:
    """Return a class of routes that carry *limiter*, through any number of includes."""
    bases = (base,) if issubclass(base, ThrottledRoute) else (ThrottledRoute, base)
    return type("ThrottledRoute", bases, {"limiter": limiter})


def _checked_methods(path: str, options: Mapping[str, Any]) -> Collection[str]:
    """Return the methods of a route; none would be all of them, without a limit."""
    methods: Collection[str] | None = options.get("methods")
    if methods is None:
        return ("GET",)
    if not methods:
        raise RegistrationError(
            repr(path),
            "it has no methods, which Starlette takes for all there are",
            "Write methods=['GET'], or leave them out",
        )
    return methods


def _unlimited(what: str) -> RegistrationError:
    return RegistrationError(
        "ThrottledRouter",
        f"{what} on it would not be limited",
        "Put it on the application or on an APIRouter, or make it a ThrottledRouter",
    )
