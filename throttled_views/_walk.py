"""
The way through an application: its routes, and what limits all of them.

It goes through included routers, mounts, hosts and middleware. What it cannot look into
is a route itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from starlette.routing import Host, Mount

from throttled_views._captures import captor_of
from throttled_views._found import Found, Root
from throttled_views.middleware import RateLimitMiddleware
from throttled_views.route_keys import flat

__all__ = ["limiting_middleware", "walk"]


def walk(app: Any) -> Iterator[Found]:
    """Yield all routes of *app*, in the order in which it asks them."""
    return _inside(app, Found(None, None, "", None, (), Root()))


def limiting_middleware(app: Any) -> Iterator[RateLimitMiddleware]:
    """Yield what was added to *app* and limits it."""
    for each in getattr(app, "user_middleware", ()):
        if isinstance(each.cls, type) and issubclass(each.cls, RateLimitMiddleware):
            # Around the routes alone: whether the order is right is not for us to say.
            yield each.cls(app.router, *each.args, **each.kwargs)


def _inside(app: Any, way: Found) -> Iterator[Found]:
    """Yield all routes of *app*, to which *way* leads."""
    limits = [*way.outer]
    while not isinstance(getattr(app, "routes", None), Sequence):
        limits += [app] if isinstance(app, RateLimitMiddleware) else []
        if not hasattr(app, "app"):
            yield way._replace(route=app, here=app, app=None, outer=limits)
            return
        app = app.app
    limits += limiting_middleware(app)
    root = way.root.of(app)
    earlier: list[Found] = []
    for route, here in flat(app.routes):
        path = way.path + (getattr(here, "path", None) or "")
        found = Found(route, here, path, app, limits, root)
        captor = way.captor or captor_of(found, earlier)
        earlier.append(found)
        yield from _served_by(found._replace(captor=captor))
    for path, frontend in _frontends(app):
        yield Found(frontend, frontend, way.path + path, app, limits, root, way.captor)


def _served_by(found: Found) -> Iterator[Found]:
    """Yield *found*, or the routes that it leads to."""
    way = found
    if isinstance(found.route, Host):
        way = found._replace(path=f"//{found.here.host}{found.path}")
    if isinstance(found.route, Mount | Host):
        yield from _inside(
            found.route.app, way._replace(root=found.root.below(found.here))
        )
    else:
        yield found


def _frontends(router: Any) -> Iterator[tuple[str, Any]]:
    """Yield the frontends of *router*, and their paths; a request asks them last."""
    # FastAPI keeps them, and what it includes, apart from routes, and tells nobody. A
    # version that has none, or keeps them elsewhere, has nothing of these names.
    router = getattr(router, "router", router)
    for group in getattr(router, "_low_priority_routes", ()):
        yield from ((each.path, each) for each in group.routes)
    for node in router.routes:
        if hasattr(node, "original_router"):
            for path, each in _frontends(node.original_router):
                yield f"{node.include_context.prefix}{path}", each
