"""
OpenAPI documents that say of each operation what it is limited to.

The routes of a `ThrottledRouter` say so themselves. FastAPI asks nobody about the rest:
functions that are limited on other routers, dependencies of an inclusion, and an
application that is limited as a whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

from fastapi import FastAPI
from fastapi.routing import APIRoute

from throttled_views._binding import is_stream
from throttled_views._declaration import declaration_of
from throttled_views._endpoints import is_guarded
from throttled_views._openapi import complete, held_by_dependencies
from throttled_views._parts import Held
from throttled_views._walk import limiting_middleware
from throttled_views.limiter import default_limiter
from throttled_views.route_keys import flat
from throttled_views.routing import ThrottledRoute

__all__ = ["document_limits"]

_Document: TypeAlias = dict[str, Any]


def document_limits(app: FastAPI) -> None:
    """
    Let the OpenAPI document of *app* say what each operation is limited to.

    By a decorator, by a dependency, by its router, or by a `RateLimitMiddleware` that
    was added to *app*: its 429, its 503 if there may be one, the header fields of its
    success, and its quotas as ``x-throttle``. What you say yourself stays.

    It wraps ``app.openapi``, so that routes may be added before and after. A function
    of your own is to be assigned before::

        app = FastAPI()
        document_limits(app)

    A mounted application has a document of its own, and needs a call of its own.

    Args:
        app: The application. Once more for the same one does nothing.
    """
    if not isinstance(app.openapi, _Completing):
        app.openapi = _Completing(app, app.openapi)  # type: ignore[method-assign]


class _Completing:
    """Generates the document of an application as before, and completes it."""

    def __init__(self, app: FastAPI, generate: Callable[[], _Document]) -> None:
        self._app = app
        self._generate = generate
        self._completed: _Document | None = None

    def __call__(self) -> _Document:
        """Return the document, completed where it is: it may be kept elsewhere."""
        document = self._generate()
        if document is not self._completed:
            _complete(document, self._app)
            self._completed = document
        return document


def _complete(document: _Document, app: FastAPI) -> None:
    on_all = [
        Held(limit, each.limiter, by_dependency=False)
        for each in limiting_middleware(app)
        for limit in each.limits
    ]
    # Of two with one path and method, the document has the later one.
    for (path, method), (route, here) in dict(_operations(app)).items():
        operation = document.get("paths", {}).get(path, {}).get(method)
        if operation is not None:
            depended = held_by_dependencies(here.dependant)
            complete(operation, here, [*on_all, *_own(route), *depended])


def _operations(app: FastAPI) -> Iterator[tuple[tuple[str, str], tuple[Any, Any]]]:
    """Yield path and method of what the document has, and the route in both forms."""
    for route, here in flat(app.routes):
        if isinstance(route, APIRoute) and here.include_in_schema:
            for method in here.methods:
                yield (here.path_format, method.lower()), (route, here)


def _own(route: APIRoute) -> Sequence[Held]:
    """Return what *route* is held to by itself."""
    declaration = declaration_of(route.endpoint)
    if isinstance(route, ThrottledRoute):
        return declaration.held(route.limiter or default_limiter())
    if not is_guarded(route.endpoint):  # whatever it says, nobody decides it here
        return ()
    held = declaration.held(default_limiter())
    # A stream has no answer of its own: its refusal is raised, as by a dependency.
    is_raised = is_stream(route.endpoint)
    return [each._replace(by_dependency=is_raised) for each in held]
