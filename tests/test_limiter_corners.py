"""Corners of limited functions, each of which let something through once."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from fastapi import APIRouter, Depends, FastAPI, Request, Response
from fastapi.routing import APIRoute

from tests.asgi import Relay, answers, app_of, statuses
from throttled_views import (
    EXEMPT,
    ConfigurationError,
    Limit,
    Limiter,
    MemoryStore,
    RegistrationError,
    Store,
    ThrottledRouter,
)

TOLD = {"RateLimit-Limit": "2", "RateLimit-Remaining": "1", "RateLimit-Reset": "1800"}


async def hello() -> str:
    """Hello."""
    return "hello"


async def other() -> str:
    """Other."""
    return "other"


@pytest.mark.parametrize("early", [True, False])
async def test_two_limiters_may_have_the_same_quota(*, early: bool) -> None:
    """Each charges the request: what one decided, the other has not."""
    one, two = Limiter(), Limiter()
    endpoint = one.limit("1/h")(two.limit("1/h")(hello))
    router = ThrottledRouter(one) if early else APIRouter()
    router.add_api_route("/", endpoint)
    assert [200, 429] == await statuses(app_of(router), "GET /", "GET /")


def test_a_limit_that_is_stacked_on_its_equal_is_refused_at_decoration() -> None:
    """Both would charge one key, and that once: the second is a mistake."""
    limiter = Limiter()
    with pytest.raises(ConfigurationError, match="5/h is declared twice"):
        limiter.limit("5/h")(limiter.limit("5/h")(hello))


def test_unequal_quotas_of_a_bucket_are_refused_at_decoration() -> None:
    """A key is held to one quota, also by functions that are on no router yet."""
    limiter = Limiter()
    limiter.limit("5/h", bucket="b")(hello)
    with pytest.raises(RegistrationError, match="bucket 'b'"):
        limiter.limit("6/h", bucket="b")(other)


def test_unequal_quotas_of_a_bucket_of_dependencies_are_refused() -> None:
    """They are refused where the dependency is made, and not at its first request."""
    limiter = Limiter()
    limiter.dependency("5/h", bucket="b", name="n")
    with pytest.raises(RegistrationError, match="bucket 'b'"):
        limiter.dependency("6/h", bucket="b", name="n")


def choosing(text: str) -> Callable[[Request], str]:
    """Return a quota function that chooses *text*."""

    def choose(_request: Request) -> str:
        return text

    return choose


@pytest.mark.parametrize("early", [True, False])
async def test_limits_of_one_name_in_two_places_are_both_kept(*, early: bool) -> None:
    """Or refused, but never one of them forgotten."""
    limiter = Limiter()
    dependencies = [Depends(limiter.dependency(Limit("1/h", name="x")))]
    router = (
        ThrottledRouter(limiter, dependencies=dependencies)
        if early
        else APIRouter(dependencies=dependencies)
    )
    router.add_api_route("/", limiter.limit(Limit("100/h", name="x"))(hello))
    assert [200, 429] == await statuses(app_of(router), "GET /", "GET /")


def test_a_route_class_that_is_set_later_opens_nothing() -> None:
    """A router registers no route that would not hold its limits."""
    router = ThrottledRouter(Limiter("1/h"))
    router.route_class = APIRoute
    with pytest.raises(RegistrationError, match="a route of class APIRoute"):
        router.add_api_route("/", hello)


@pytest.mark.parametrize("store", [MemoryStore(), Relay()], ids=["ours", "another"])
async def test_a_key_function_is_asked_once_though_decorators_are_stacked(
    store: Store,
) -> None:
    """All limits that it is the key of are one decision, by whatever store."""
    asked: list[str] = []

    def key(_request: Request) -> str:
        asked.append("key")
        return "alice"

    limiter = Limiter(store=store)
    app = FastAPI()
    twice = limiter.limit(Limit("5/h", key_func=key))(
        limiter.limit(Limit("6/h", key_func=key))(hello)
    )
    app.add_api_route("/", twice)
    await statuses(app, "GET /")
    assert ["key"] == asked


async def test_a_key_function_is_asked_once_on_the_router_of_another_limiter() -> None:
    """The route has the key when it decides, and its guard does not ask for another."""
    asked: list[str] = []

    def key(_request: Request) -> str:
        asked.append("key")
        return f"client {len(asked)}"

    store = Relay()
    router = ThrottledRouter(Limiter("100/h"))
    router.add_api_route("/", Limiter(store=store).limit("5/h", key_func=key)(hello))
    await statuses(app_of(router), "GET /")
    assert (["key"], 1) == (asked, len(store.keys))


async def test_a_dependency_and_a_decorator_share_a_bucket() -> None:
    """What a request to one of them spends is missing to the other."""
    limiter = Limiter()
    app = FastAPI()
    app.add_api_route("/a", limiter.limit("1/h", bucket="b")(hello))
    limited = Depends(limiter.dependency("1/h", bucket="b"))
    app.add_api_route("/b", other, dependencies=[limited])
    assert [200, 429] == await statuses(app, "GET /a", "GET /b")


def test_exempt_is_no_limit_to_check_by_hand() -> None:
    """There is nothing that it could answer, so it is refused where it is written."""
    with pytest.raises(ConfigurationError, match="EXEMPT is no limit"):
        Limiter().throttled(EXEMPT)


@dataclass
class Health:
    """Has no hash, since it can be compared."""

    status: str = "healthy"

    def __call__(self) -> str:
        """Serve."""
        return self.status


async def test_an_endpoint_that_cannot_be_hashed_is_limited_by_a_dependency() -> None:
    """Its plans are found by identity, which every object has."""
    app = FastAPI(dependencies=[Depends(Limiter().dependency("1/h"))])
    app.add_api_route("/", Health())
    assert [200, 429] == await statuses(app, "GET /", "GET /")


class Copying(APIRoute):
    """Serves a copy of the scope."""

    def get_route_handler(self) -> Callable[[Request], Any]:
        """Return what does so."""
        serve = super().get_route_handler()

        async def serve_copy(request: Request) -> Response:
            return await serve(Request({**request.scope}, request.receive))

        return serve_copy


async def test_a_route_class_that_copies_the_scope_charges_once() -> None:
    """The copy is of the same request, which is not charged again."""
    limiter = Limiter()
    router = ThrottledRouter(limiter, route_class=Copying)
    router.add_api_route("/", limiter.limit("5/h")(hello))
    received = await answers(app_of(router), "GET /", "GET /")
    assert ["4", "3"] == [a.headers["RateLimit-Remaining"] for a in received]


async def test_a_dependency_below_a_copied_scope_is_told() -> None:
    """What it decides by the copy is on the response all the same."""
    limiter = Limiter()
    dependencies = [Depends(limiter.dependency("5/h"))]
    router = ThrottledRouter(limiter, route_class=Copying, dependencies=dependencies)
    router.add_api_route("/", hello)
    (answer,) = await answers(app_of(router), "GET /")
    assert "4" == answer.headers.get("RateLimit-Remaining")


async def test_a_call_from_python_with_the_request_is_not_charged() -> None:
    """It is no request of its own: who calls a limited function just calls it."""
    limiter = Limiter()

    @limiter.limit("1/h")
    async def inner(request: Request) -> str:
        return request.url.path

    app = FastAPI()

    @app.get("/")
    async def outer(request: Request) -> str:
        return await inner(request)

    assert [200, 200] == await statuses(app, "GET /", "GET /")
