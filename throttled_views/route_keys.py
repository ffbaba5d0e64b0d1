"""
What of a route stands in keys: what is served there, or the template of its path.

By default it is the handler, which is the same wherever it is included. The template
tells places apart; what prefixes it has is in the scope of a request alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias

import fastapi.routing
from starlette.routing import Host, Match, Mount
from starlette.types import Scope

from throttled_views.errors import ConfigurationError

__all__ = ["ByEndpoint", "ByTemplate", "RouteKey", "by_endpoint", "by_template"]


class ByEndpoint:
    """The type of `by_endpoint`, of which there is one instance."""

    __slots__ = ()

    def __repr__(self) -> str:
        """Return the name it is written by."""
        return "by_endpoint"

    def __reduce__(self) -> str:
        """Stay the one instance when copied or pickled."""
        return "by_endpoint"


class ByTemplate(NamedTuple):
    """
    The type of `by_template`.

    Attributes:
        root_path: Whether the ``root_path`` of the deployment is a part of it: what a
            proxy in front strips, say. That of mounts is in any case.
    """

    root_path: bool = True

    def __call__(self, *, root_path: bool = True) -> ByTemplate:
        """Return the same, with or without the ``root_path`` of the deployment."""
        return ByTemplate(root_path=root_path)

    def __repr__(self) -> str:
        """Return the call that makes it."""
        return "by_template" if self.root_path else "by_template(root_path=False)"

    def template_of(self, scope: Scope) -> str:
        """
        Return the template of the route that serves *scope*.

        It has the prefixes of all routers and mounts.

        Raises:
            ConfigurationError: There is no route of FastAPI, or a mount has parameters,
                whose values are all that is known of it.
        """
        place = _place_of(scope)
        template = getattr(place, "path_format", None)
        if template is None:
            msg = (
                "route_key=by_template is asked where no route of FastAPI serves. "
                "Register the handler with @app.get(…) or the like"
            )
            raise ConfigurationError(msg)
        # A host leaves no more than these. A mount may name its own as the route does.
        foreign = {*scope.get("path_params", ())} - {*place.param_convertors}
        if "app_root_path" in scope:
            foreign |= _parameters_of_mounts(scope, template)
        if foreign:
            msg = (
                f"{template!r} is below a mount, or a host, with the parameter "
                f"{min(foreign)!r}, and route_key=by_template would count each of its "
                "values apart. Leave it at route_key=by_endpoint, and name clients by "
                "it, if that is meant: key_func=path_key(…)"
            )
            raise ConfigurationError(msg)
        root: str = scope.get("root_path", "")
        if not self.root_path:
            root = root.removeprefix(scope.get("app_root_path", root))
        return f"{root}{template}"


def _place_of(scope: Scope) -> Any:
    """Return the route that serves *scope*, as it is where its routers are included."""
    route = scope.get("route")
    # Since FastAPI 0.137 the route knows its own path alone. The rest is only here; and
    # a mounted application finds here what its parent has left.
    context = scope.get("fastapi", {}).get("effective_route_context")
    is_of_route = context is not None and context.original_route is route
    return context if is_of_route else route


def _parameters_of_mounts(scope: Scope, template: str) -> set[str]:
    """
    Return the parameters of the mounts that lead to what serves *scope*.

    Starlette keeps values alone, so that its way from the outermost router is gone
    again. Mounts that it cannot be seen to take are refused: they may have parameters.
    """
    way = {**scope, "root_path": scope["app_root_path"]}
    app, parameters = scope["router"], set[str]()
    while way["root_path"] != scope["root_path"]:
        node = next(_taken(app, way), None)
        if node is None:
            msg = (
                f"{template!r} is below a mount that cannot be looked into, which may "
                "have parameters. Leave it at route_key=by_endpoint"
            )
            raise ConfigurationError(msg)
        parameters |= {*node.param_convertors} - {"path"}  # Starlette's, for the rest
        app = node.app
    return parameters


def _taken(app: Any, way: Scope) -> Iterator[Any]:
    """Yield the mounts and hosts of *app* that match; note in *way* where they lead."""
    app = _with_routes(app)
    way["root_path"] = getattr(app, "root_path", "") or way["root_path"]  # as FastAPI
    for route, here in flat(getattr(app, "routes", ())):
        if isinstance(route, Mount | Host):
            match, child = here.matches(way)
            if match is Match.FULL:
                way.update(child)
                yield here


def _with_routes(app: Any) -> Any:
    """Return what has the routes of *app*: itself, or what its middleware is around."""
    while not isinstance(getattr(app, "routes", None), Sequence) and hasattr(
        app, "app"
    ):
        app = app.app
    return app


def routes_below(app: Any) -> Iterator[Any]:
    """Yield all routes of *app* and of what is mounted on it, in their order."""
    for route, here in flat(getattr(_with_routes(app), "routes", ())):
        if isinstance(route, Mount | Host):
            yield from routes_below(route.app)
        else:
            yield here


def flat(routes: Sequence[Any]) -> Iterator[tuple[Any, Any]]:
    """Yield all routes, those of included routers too, as they were and as they are."""
    # Since FastAPI 0.137 an included router is one node, which this looks into.
    nodes: Any = getattr(fastapi.routing, "iter_route_contexts", iter)
    for each in nodes(routes):
        # Of what Starlette serves, some versions have the path only there.
        here = getattr(each, "starlette_route", None) or each
        yield getattr(each, "original_route", each), here


by_endpoint = ByEndpoint()
"""Keys have the identity of what is limited, wherever it is included or mounted."""

by_template = ByTemplate()
"""
Keys have the template of the path, with the prefixes of all routers and mounts.

A handler that is included twice has two counts then. ``by_template(root_path=False)``
leaves out the ``root_path`` that the server, or `FastAPI`, is given.
"""

RouteKey: TypeAlias = ByEndpoint | ByTemplate
"""What of a route stands in keys."""


def checked_route_key(route_key: object) -> RouteKey:
    """Return *route_key* if it is one."""
    if isinstance(route_key, RouteKey):
        return route_key
    msg = f"route_key={route_key!r} is none. Write route_key=by_template"
    raise ConfigurationError(msg)
