"""A route of an application, where it was found, and what is asked of it there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from starlette.routing import WebSocketRoute

from throttled_views._binding import name_of
from throttled_views._declaration import (
    Declaration,
    declaration_of,
    limiting_dependencies,
)
from throttled_views._endpoints import is_guarded
from throttled_views._methods import WEBSOCKET, joined
from throttled_views._plan import Plan
from throttled_views.middleware import RateLimitMiddleware
from throttled_views.routing import ThrottledRoute

__all__ = ["Found", "Root"]


class Root(NamedTuple):
    """
    The ``root_path`` that requests have somewhere, as far as the application knows.

    Attributes:
        path: All of it, with the mounts.
        outermost: What the outermost application is given; None before there is one.
        parameters: Those of mounts and hosts.
    """

    path: str = ""
    outermost: str | None = None
    parameters: tuple[str, ...] = ()

    def of(self, app: Any) -> Root:
        """Return what requests have in *app*, which may have been given one."""
        path = getattr(app, "root_path", "") or self.path
        outermost = path if self.outermost is None else self.outermost
        return self._replace(path=path, outermost=outermost)

    def below(self, node: Any) -> Root:
        """Return what requests have below *node*, a mount or a host."""
        path = self.path + (getattr(node, "path", None) or "")
        names = [each for each in node.param_convertors if each != "path"]
        return self._replace(path=path, parameters=(*self.parameters, *names))


class Found(NamedTuple):
    """
    A route, and where it was found.

    Attributes:
        route: The route, as it was registered.
        here: The same, as it is where its routers are included.
        path: The whole path.
        app: The application that it is of.
        outer: The middleware that limits it from outside.
        root: What is before the template of its path, in keys that have that.
        captor: What takes requests to it, because it is registered before.
    """

    route: Any
    here: Any
    path: str
    app: Any
    outer: Sequence[RateLimitMiddleware]
    root: Root
    captor: Found | None = None

    @property
    def endpoint(self) -> Any:
        """What serves it."""
        return getattr(self.route, "endpoint", self.route)

    @property
    def declaration(self) -> Declaration:
        """What its endpoint says of itself."""
        return declaration_of(self.endpoint)

    @property
    def is_socket(self) -> bool:
        """Whether it serves WebSockets."""
        return isinstance(self.route, WebSocketRoute)

    @property
    def methods(self) -> tuple[str, ...]:
        """Its methods, sorted."""
        if self.is_socket:
            return (WEBSOCKET,)
        return tuple(sorted(getattr(self.here, "methods", None) or ()))

    @property
    def name(self) -> str:
        """Its name."""
        return getattr(self.here, "name", None) or name_of(self.route)

    def place(self, route_key: Any) -> str:
        """Return what keys have by template, without what a server adds."""
        root = self.root.path
        if not route_key.root_path:
            root = root.removeprefix(self.root.outermost or "")
        return f"{root}{self.here.path_format}"

    def own_plans(self) -> Sequence[Plan]:
        """Return what its own limits charge a request."""
        if isinstance(self.route, ThrottledRoute):
            return self.route.all_plans
        if not is_guarded(self.endpoint):
            return ()  # taken from a router of ours, whose routes decide
        methods = joined(self.methods)
        limiters = [part.limiter for part in self.declaration.parts if part.limiter]
        if limiters:
            return self.declaration.plans(limiters[0], methods)
        # Of a socket on a router of ours, which has made them when it was registered.
        return self.declaration.made(methods)

    def plans_of_dependencies(self) -> Sequence[Plan]:
        """Return what its dependencies charge a request."""
        dependencies = limiting_dependencies(getattr(self.here, "dependant", None))
        methods = joined(self.methods)
        return [
            plan
            for each in dependencies
            for plan in each.plans_on(self.endpoint, methods)
        ]
