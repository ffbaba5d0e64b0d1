"""The ways in which a function route can be limited."""

from collections.abc import Callable
from typing import Any, TypeAlias, TypedDict, Unpack

from fastapi import APIRouter, Depends, FastAPI, Response

from tests.asgi import app_of
from throttled_views import Limiter, ThrottledRouter

Endpoint: TypeAlias = Callable[..., Any]
Way: TypeAlias = Callable[..., FastAPI]
"""Serves a function at "/", held to the default of a limiter."""


class RouteOptions(TypedDict, total=False):
    """Some of what a route may be told besides."""

    methods: list[str]
    status_code: int
    response_class: type[Response]
    response_model: type | None


def on_a_throttled_router(
    limiter: Limiter, endpoint: Endpoint, **options: Unpack[RouteOptions]
) -> FastAPI:
    """Put the function on a router that limits everything."""
    router = ThrottledRouter(limiter)
    router.add_api_route("/", endpoint, **options)
    return app_of(router)


def decorated_on_a_throttled_router(
    limiter: Limiter, endpoint: Endpoint, **options: Unpack[RouteOptions]
) -> FastAPI:
    """Decorate the function, and put it on a router that limits everything."""
    return on_a_throttled_router(limiter, limiter.limit()(endpoint), **options)


def decorated_on_an_application(
    limiter: Limiter, endpoint: Endpoint, **options: Unpack[RouteOptions]
) -> FastAPI:
    """Decorate the function, and put it on the application."""
    app = FastAPI()
    app.add_api_route("/", limiter.limit()(endpoint), **options)
    return app


def decorated_on_a_plain_router(
    limiter: Limiter, endpoint: Endpoint, **options: Unpack[RouteOptions]
) -> FastAPI:
    """Decorate the function, and put it on a router that limits nothing."""
    router = APIRouter()
    router.add_api_route("/", limiter.limit()(endpoint), **options)
    return app_of(router)


def with_a_dependency_of_the_route(
    limiter: Limiter, endpoint: Endpoint, **options: Unpack[RouteOptions]
) -> FastAPI:
    """Leave the function as it is, and let its route have a dependency."""
    app = FastAPI()
    dependencies = [Depends(limiter.dependency())]
    app.add_api_route("/", endpoint, dependencies=dependencies, **options)
    return app


def with_a_dependency_of_the_router(
    limiter: Limiter, endpoint: Endpoint, **options: Unpack[RouteOptions]
) -> FastAPI:
    """Leave the function as it is, and let its router have a dependency."""
    router = APIRouter(dependencies=[Depends(limiter.dependency())])
    router.add_api_route("/", endpoint, **options)
    return app_of(router)


def with_a_dependency_of_the_application(
    limiter: Limiter, endpoint: Endpoint, **options: Unpack[RouteOptions]
) -> FastAPI:
    """Leave the function as it is, and let the application have a dependency."""
    app = FastAPI(dependencies=[Depends(limiter.dependency())])
    app.add_api_route("/", endpoint, **options)
    return app


EARLY: dict[str, Way] = {
    "on a ThrottledRouter": on_a_throttled_router,
    "decorated on a ThrottledRouter": decorated_on_a_throttled_router,
}
"""Decided before anything is read, and told on all responses."""

DECORATED: dict[str, Way] = {
    "decorated on an application": decorated_on_an_application,
    "decorated on an APIRouter": decorated_on_a_plain_router,
}
"""Decided right before the function, and told on whatever it returns or raises."""

DEPENDENT: dict[str, Way] = {
    "with a dependency of the route": with_a_dependency_of_the_route,
    "with a dependency of the router": with_a_dependency_of_the_router,
    "with a dependency of the application": with_a_dependency_of_the_application,
}
"""Decided with the dependencies, and told on refusals and on what FastAPI renders."""

WAYS: dict[str, Way] = {
    **EARLY,
    **DECORATED,
    "with a dependency": with_a_dependency_of_the_router,
}
"""One of each kind that could answer in another way."""
