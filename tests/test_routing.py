"""`ThrottledRouter`: what it limits, and what it does not let in."""

from collections.abc import Callable
from typing import Any

import pytest
from fastapi import APIRouter, Depends, FastAPI, Request, Response, WebSocket
from fastapi.responses import PlainTextResponse
from fastapi.routing import APIRoute
from starlette.applications import Starlette
from starlette.routing import Mount, Route
from starlette.testclient import TestClient
from starlette.types import Receive, Scope, Send

from tests.asgi import (
    answers,
    app_of,
    fields_of,
    frozen_store,
    http_scope,
    sent,
    statuses,
)
from throttled_views import (
    EXEMPT,
    CurrentRateLimit,
    Limit,
    Limiter,
    MemoryStore,
    RegistrationError,
    ThrottledRoute,
    ThrottledRouter,
    ThrottledView,
    ViewDefinitionError,
    route,
)


async def hello() -> str:
    """Be a handler."""
    return "hello"


async def other() -> str:
    """Be another handler."""
    return "other"


def plain(_request: Request) -> Response:
    """Be a function that Starlette would serve."""
    return PlainTextResponse("plain")


async def socket(websocket: WebSocket) -> None:
    """Be a function that Starlette would serve for sockets."""
    await websocket.accept()


# --- what a route is limited to -------------------------------------------------------


async def test_a_route_without_limits_of_its_own_has_the_default() -> None:
    """The limiter's default limits a handler that declares nothing."""
    router = ThrottledRouter(Limiter("2/h"))
    router.add_api_route("/", hello)

    assert [200, 200, 429] == await statuses(app_of(router), *["GET /"] * 3)


async def test_a_declaration_replaces_the_default() -> None:
    """A handler that declares limits is held to those, and to no default."""
    limiter = Limiter("1/h")
    router = ThrottledRouter(limiter)

    @router.get("/")
    @limiter.limit("2/h")
    async def declared() -> None:
        """Do nothing."""

    assert [200, 200, 429] == await statuses(app_of(router), *["GET /"] * 3)


async def test_handlers_do_not_share_the_default() -> None:
    """The default is for each handler, not for all of them together."""
    router = ThrottledRouter(Limiter("1/h"))
    router.add_api_route("/hello", hello)
    router.add_api_route("/other", other)

    assert [200, 200, 429, 429] == await statuses(
        app_of(router), "GET /hello", "GET /other", "GET /hello", "GET /other"
    )


async def test_a_sync_function_has_the_default() -> None:
    """What only a decorator would have to await needs not be async here."""
    router = ThrottledRouter(Limiter("1/h"))

    @router.get("/")
    def blocking() -> str:
        return "served by a thread"

    first, second = await answers(app_of(router), "GET /", "GET /")

    assert (200, "served by a thread") == (first.status_code, first.json())
    assert 429 == second.status_code


async def test_an_exempt_route_is_not_limited() -> None:
    """`@limiter.exempt` lifts the default, and says nothing to the client."""
    limiter = Limiter("1/h")
    router = ThrottledRouter(limiter)

    @router.get("/")
    @limiter.exempt
    async def free() -> None:
        """Do nothing."""

    received = await answers(app_of(router), *["GET /"] * 3)

    assert [(200, {})] * 3 == [
        (answer.status_code, fields_of(answer)) for answer in received
    ]


async def test_an_exempt_sync_route_is_not_limited() -> None:
    """`@limiter.exempt` takes what it does not have to await."""
    limiter = Limiter("1/h")
    router = ThrottledRouter(limiter)
    exempt: Any = limiter.exempt  # typed for async functions

    def free() -> None:
        """Do nothing."""

    router.add_api_route("/", exempt(free))

    assert [200, 200] == await statuses(app_of(router), "GET /", "GET /")


async def test_an_exempt_default_limits_nothing() -> None:
    """A limiter whose default is EXEMPT lets routes in that declare nothing."""
    router = ThrottledRouter(Limiter(EXEMPT))
    router.add_api_route("/", hello)

    assert [200] * 3 == await statuses(app_of(router), *["GET /"] * 3)


def test_a_route_that_nothing_limits_is_refused() -> None:
    """Without a declaration and without a default there is no route."""
    router = ThrottledRouter(Limiter())

    with pytest.raises(RegistrationError) as caught:
        router.add_api_route("/", hello)

    assert f"{__name__}.hello" == caught.value.subject
    assert (
        f"{__name__}.hello: nothing says what it is limited to. Write "
        "@limiter.limit('100/m') below the decorator of the route, or @limiter.exempt "
        "there if it is to be unlimited, or give the limiter a default: "
        "Limiter('100/m')"
    ) == str(caught.value)
    assert [] == router.routes


def test_without_a_limiter_the_process_wide_one_serves() -> None:
    """Routers that are given no limiter share one."""
    assert ThrottledRouter().limiter is ThrottledRouter().limiter


def test_a_router_shows_its_limiter() -> None:
    """The limiter given is the one that serves."""
    limiter = Limiter("1/h")

    assert limiter is ThrottledRouter(limiter).limiter


# --- what is not let in ---------------------------------------------------------------

UNLIMITED: dict[str, Callable[[ThrottledRouter], object]] = {
    "a Starlette route": lambda router: router.add_route("/", plain),
    "a Starlette socket": lambda router: router.add_websocket_route("/", socket),
    "a mounted application": lambda router: router.mount("/", FastAPI()),
    "an application of a host": lambda router: router.host("a.test", FastAPI()),
    "a frontend": lambda router: router.frontend("/", directory="."),
    "a plain router": lambda router: router.include_router(APIRouter()),
    "another class for one route": lambda router: router.add_api_route(
        "/", hello, route_class_override=APIRoute
    ),
    "routes that are finished": lambda router: ThrottledRouter(
        router.limiter, routes=[Route("/", plain)]
    ),
}


@pytest.mark.parametrize("add", UNLIMITED.values(), ids=UNLIMITED)
def test_what_could_not_be_limited_is_refused(
    add: Callable[[ThrottledRouter], object],
) -> None:
    """A router on which everything is limited takes nothing that would not be."""
    router = ThrottledRouter(Limiter("1/h"))

    with pytest.raises(
        RegistrationError, match=r"would not be limited\. Put it on the application or"
    ):
        add(router)

    assert [] == router.routes


def test_a_sync_socket_is_refused() -> None:
    """A socket's limits are awaited right before its function, which must be async."""
    router = ThrottledRouter(Limiter("1/h"))

    with pytest.raises(ViewDefinitionError, match="Write 'async def blocking"):

        @router.websocket("/")
        def blocking(websocket: WebSocket) -> None:
            """Do nothing."""

    assert [] == router.routes


def test_a_socket_that_nothing_limits_is_refused() -> None:
    """Sockets are no way around the limits either."""
    router = ThrottledRouter(Limiter())

    with pytest.raises(RegistrationError, match="nothing says what it is limited to"):
        router.add_api_websocket_route("/", socket)

    assert [] == router.routes


# --- route classes of the user --------------------------------------------------------


def stamping(serve: Callable[[Request], Any]) -> Callable[[Request], Any]:
    """Return *serve* with a stamp on what it returns."""

    async def stamped(request: Request) -> Response:
        response: Response = await serve(request)
        response.headers["X-Stamp"] = "stamped"
        return response

    return stamped


class Stamped(APIRoute):
    """A route class of the user: it stamps what its handlers return."""

    def get_route_handler(self) -> Callable[[Request], Any]:
        """Return what FastAPI would, with a stamp."""
        return stamping(super().get_route_handler())


class StampedAndThrottled(ThrottledRoute):
    """A route class of the user, derived from ours."""

    def get_route_handler(self) -> Callable[[Request], Any]:
        """Return what FastAPI would, with a stamp."""
        return stamping(super().get_route_handler())


class Counted(APIRoute):
    """A route class of the user: it counts what it handles."""

    handled = 0

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Count, and handle as FastAPI would."""
        type(self).handled += 1
        await super().handle(scope, receive, send)


async def test_a_route_class_of_the_user_is_still_called() -> None:
    """It stays what it is, and is limited."""
    router = ThrottledRouter(Limiter("1/h"), route_class=Stamped)
    router.add_api_route("/", hello)

    admitted, refused = await answers(app_of(router), "GET /", "GET /")

    assert (200, "stamped") == (admitted.status_code, admitted.headers["X-Stamp"])
    assert "0" == admitted.headers["RateLimit-Remaining"]
    assert 429 == refused.status_code


async def test_a_route_class_of_the_user_handles_what_is_admitted() -> None:
    """An override of `handle` sees the requests that pass the limits."""
    router = ThrottledRouter(Limiter("1/h"), route_class=Counted)
    router.add_api_route("/", hello)
    (route,) = router.routes

    assert [200, 429] == await statuses(app_of(router), "GET /", "GET /")
    assert 1 == vars(type(route)).get("handled", Counted.handled)


async def test_a_throttled_route_class_of_the_user_may_be_given_for_one_route() -> None:
    """A route class that limits is let in, also for a single route."""

    class Ours(ThrottledRoute):
        limiter = Limiter("1/h")

    router = ThrottledRouter(Limiter("5/h"))
    router.add_api_route("/", hello, route_class_override=Ours)

    assert [200, 429] == await statuses(app_of(router), "GET /", "GET /")


async def test_a_throttled_route_class_keeps_what_it_adds() -> None:
    """A subclass of `ThrottledRoute` is a route class like any other."""
    router = ThrottledRouter(Limiter("1/h"), route_class=StampedAndThrottled)
    router.add_api_route("/", hello)

    admitted, refused = await answers(app_of(router), "GET /", "GET /")

    assert (200, "stamped") == (admitted.status_code, admitted.headers["X-Stamp"])
    assert 429 == refused.status_code


async def test_a_throttled_route_works_on_a_plain_router() -> None:
    """Without a limiter of its own the class has the process-wide one."""
    limiter = Limiter()
    router = APIRouter(route_class=ThrottledRoute)

    @router.get("/")
    @limiter.limit("1/h")
    async def declared() -> None:
        """Do nothing."""

    assert [200, 429] == await statuses(app_of(router), "GET /", "GET /")


def test_a_throttled_route_on_a_plain_router_must_be_limited() -> None:
    """The process-wide limiter has no default, so a declaration is needed."""
    router = APIRouter(route_class=ThrottledRoute)

    with pytest.raises(RegistrationError, match="nothing says what it is limited to"):
        router.add_api_route("/", hello)


# --- wherever it is included ----------------------------------------------------------


def included(router: ThrottledRouter) -> FastAPI:
    """Include it."""
    return app_of(router)


def included_with_a_prefix(router: ThrottledRouter) -> FastAPI:
    """Include it under a prefix."""
    app = FastAPI()
    app.include_router(router, prefix="/v1")
    return app


def nested(router: ThrottledRouter) -> FastAPI:
    """Include it in another limited router."""
    outer = ThrottledRouter(Limiter("100/h"), prefix="/v1")
    outer.include_router(router, prefix="/deep")
    return app_of(outer)


def nested_in_a_plain_router(router: ThrottledRouter) -> FastAPI:
    """Include it in a router that limits nothing."""
    outer = APIRouter(prefix="/v1")
    outer.include_router(router, prefix="/deep")
    return app_of(outer)


def nested_twice(router: ThrottledRouter) -> FastAPI:
    """Include it in a router in a router."""
    outer, middle = APIRouter(prefix="/v1"), ThrottledRouter(prefix="/v2")
    middle.include_router(router, prefix="/v3")
    outer.include_router(middle)
    return app_of(outer)


def in_a_mounted_application(router: ThrottledRouter) -> FastAPI:
    """Include it in an application that is mounted."""
    app = FastAPI()
    app.mount("/v1", app_of(router))
    return app


def mounted_itself(router: ThrottledRouter) -> FastAPI:
    """Mount it, without an application of its own."""
    app = FastAPI()
    app.mount("/v1", router)
    return app


def in_an_application_mounted_twice(router: ThrottledRouter) -> Starlette:
    """Include it in an application in a mount of a mount."""
    return Starlette(routes=[Mount("/v1", routes=[Mount("/v2", app_of(router))])])


PLACES: dict[str, tuple[Callable[[ThrottledRouter], Starlette], str]] = {
    "included": (included, "/items"),
    "included with a prefix": (included_with_a_prefix, "/v1/items"),
    "nested": (nested, "/v1/deep/items"),
    "nested in a plain router": (nested_in_a_plain_router, "/v1/deep/items"),
    "nested twice": (nested_twice, "/v1/v2/v3/items"),
    "in a mounted application": (in_a_mounted_application, "/v1/items"),
    "mounted itself": (mounted_itself, "/v1/items"),
    "in an application mounted twice": (
        in_an_application_mounted_twice,
        "/v1/v2/items",
    ),
}


@pytest.mark.parametrize(("put", "path"), PLACES.values(), ids=PLACES)
async def test_a_route_is_limited_wherever_it_is_included(
    put: Callable[[ThrottledRouter], Starlette], path: str, store: MemoryStore
) -> None:
    """No inclusion loses the limits, or the header fields that tell of them."""
    router = ThrottledRouter(Limiter("1/h", store=store), prefix="/items")
    router.add_api_route("", hello)

    admitted, refused = await answers(put(router), f"GET {path}", f"GET {path}")

    told = {
        "RateLimit-Limit": "1",
        "RateLimit-Remaining": "0",
        "RateLimit-Reset": "3600",
    }
    assert (200, told) == (admitted.status_code, fields_of(admitted))
    assert (429, {**told, "Retry-After": "3600"}) == (
        refused.status_code,
        fields_of(refused),
    )


@pytest.mark.parametrize("put", [place for place, _ in PLACES.values()], ids=PLACES)
async def test_no_other_path_leads_around_the_limits(
    put: Callable[[ThrottledRouter], Starlette],
) -> None:
    """One function that is served in two places has one bucket."""
    limiter = Limiter("1/h")
    router = ThrottledRouter(limiter, prefix="/items")
    router.add_api_route("", hello)
    again = ThrottledRouter(limiter)
    again.add_api_route("/again", hello)
    app = FastAPI()
    app.include_router(again)
    app.mount("/", put(router))
    path = next(path for place, path in PLACES.values() if place is put)

    assert [200, 429] == await statuses(app, f"GET {path}", "GET /again")


async def test_a_router_included_twice_shares_its_counts() -> None:
    """Going from /v1 to /v2 gives nobody a fresh quota."""
    router = ThrottledRouter(Limiter("2/h"))
    router.add_api_route("/items", hello)
    app = FastAPI()
    app.include_router(router, prefix="/v1")
    app.include_router(router, prefix="/v2")

    assert [200, 200, 429, 429] == await statuses(
        app, "GET /v1/items", "GET /v2/items", "GET /v1/items", "GET /v2/items"
    )


async def test_a_function_on_two_limiters_has_two_buckets() -> None:
    """A limiter is a world of its own."""
    one, two = ThrottledRouter(Limiter("1/h")), ThrottledRouter(Limiter("1/h"))
    one.add_api_route("/one", hello)
    two.add_api_route("/two", hello)

    assert [200, 200, 429, 429] == await statuses(
        app_of(one, two), "GET /one", "GET /two", "GET /one", "GET /two"
    )


async def test_nested_routers_keep_their_own_limiters() -> None:
    """A router within another is held to its own default, and so is the outer one."""
    outer, inner = ThrottledRouter(Limiter("1/h")), ThrottledRouter(Limiter("2/h"))
    inner.add_api_route("/inner", hello)
    outer.add_api_route("/outer", hello)
    outer.include_router(inner)

    app = app_of(outer)

    assert [200, 429] == await statuses(app, *["GET /outer"] * 2)
    assert [200, 200, 429] == await statuses(app, *["GET /inner"] * 3)


async def test_a_route_added_after_the_inclusion_is_limited_or_not_served() -> None:
    """FastAPI before 0.137 copies routes, later ones do not; neither opens a hole."""
    router = ThrottledRouter(Limiter("1/h"))
    app = app_of(router)
    router.add_api_route("/", hello)

    assert await statuses(app, "GET /", "GET /") in ([404, 404], [200, 429])


async def test_a_router_without_an_application_refuses_by_itself() -> None:
    """A refusal needs no exception handler, so none that an application would have."""
    router = ThrottledRouter(Limiter("1/h"))
    router.add_api_route("/", hello)
    assert [200] == await statuses(app_of(router), "GET /")

    start, body = await sent(router, http_scope())

    assert 429 == start["status"]
    assert {
        "type": "http.response.body",
        "body": b'{"detail":"Rate limit exceeded"}',
    } == body


# --- paths and methods ----------------------------------------------------------------


def test_a_path_that_an_earlier_route_captures_is_refused() -> None:
    """It would never be served, nor its limits be kept; the error names both routes."""
    router = ThrottledRouter(Limiter("1/h"), prefix="/items")
    router.add_api_route("/{item}", hello)

    says = (
        r"other at '/items/latest': the earlier \S*hello at '/items/{item}' captures "
        r"it\. Declare \S*other before \S*hello"
    )
    with pytest.raises(RegistrationError, match=says):
        router.add_api_route("/latest", other)


def test_a_path_that_a_wider_path_captures_is_refused() -> None:
    """A parameter that takes slashes captures deep paths."""
    router = ThrottledRouter(Limiter("1/h"))
    router.add_api_route("/{path:path}", hello)

    with pytest.raises(RegistrationError, match=r"the earlier \S*hello at"):
        router.add_api_route("/a/b/c", other)


async def test_a_path_that_is_captured_across_an_inclusion_is_refused() -> None:
    """Routes of an included router come after those that are there already."""
    outer, inner = ThrottledRouter(Limiter("1/h")), ThrottledRouter(Limiter("1/h"))
    outer.add_api_route("/v1/{item}", hello)
    inner.add_api_route("/latest", other)

    with pytest.raises(RegistrationError, match=r"the earlier \S*hello at"):
        outer.include_router(inner, prefix="/v1")

    assert [200, 429, 404] == await statuses(
        app_of(outer), "GET /v1/a", "GET /v1/b", "GET /latest"
    )


def test_a_socket_that_an_earlier_one_captures_is_refused() -> None:
    """It would never be reached either."""
    router = ThrottledRouter(Limiter("1/h"))
    router.add_api_websocket_route("/{room}", socket)

    with pytest.raises(RegistrationError, match="captures it"):
        router.add_api_websocket_route("/lobby", socket)


def test_a_socket_and_a_route_do_not_capture_each_other() -> None:
    """No request is for both of them."""
    router = ThrottledRouter(Limiter("1/h"))
    router.add_api_websocket_route("/{room}", socket)
    router.add_api_route("/lobby", hello)

    assert 2 == len(router.routes)


BESIDE = {
    "declared first": ("/latest", "GET", "/{item}", "GET"),
    "of another method": ("/{item}", "GET", "/latest", "POST"),
    "of another depth": ("/{item}", "GET", "/latest/one", "GET"),
    "of another kind": ("/{item:int}", "GET", "/latest", "GET"),
    "with a parameter itself": ("/{item}", "GET", "/{name}", "GET"),
    "equal": ("/latest", "GET", "/latest", "GET"),
}


@pytest.mark.parametrize(
    ("first", "first_method", "second", "second_method"), BESIDE.values(), ids=BESIDE
)
def test_a_path_that_nothing_captures_is_let_in(
    first: str, first_method: str, second: str, second_method: str
) -> None:
    """Only a static path that can never be reached is an error."""
    router = ThrottledRouter(Limiter("1/h"))
    router.add_api_route(first, hello, methods=[first_method])
    router.add_api_route(second, other, methods=[second_method])

    assert 2 == len(router.routes)


class Rooms(ThrottledView):
    """A view with a parameter in its path."""

    path = "/rooms/{room}"
    throttle = "1/h"

    async def get(self, room: str) -> str:
        """Read."""
        return room

    @route.websocket("/socket")
    async def socket(self, websocket: WebSocket, room: str) -> None:
        """Serve sockets."""
        await websocket.accept()


class Halls(Rooms):
    """The same for others, with another name for it."""

    path = "/rooms/{hall}"

    async def get(self, hall: str) -> str:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Read."""
        return hall


def including(router: ThrottledRouter) -> None:
    """Include the view with another router."""
    router.include_router(Rooms.as_router(router.limiter))


TAKEN: dict[str, Callable[[ThrottledRouter], object]] = {
    "the same view": lambda router: router.add_view(Rooms),
    "another view": lambda router: router.add_view(Halls),
    "a function": lambda router: router.add_api_route("/rooms/{room}", hello),
    "an included view": including,
}


@pytest.mark.parametrize("add", TAKEN.values(), ids=TAKEN)
def test_what_would_replace_a_view_is_refused(
    add: Callable[[ThrottledRouter], object],
) -> None:
    """On one path and method only the first would be reached; both are named."""
    router = ThrottledRouter(Limiter("1/h"))
    router.add_view(Rooms)

    says = r" the earlier Rooms.get at '/rooms/{room}' serves the same requests, GET\. "
    with pytest.raises(RegistrationError, match=says):
        add(router)


def test_a_view_does_not_replace_a_function() -> None:
    """It would not be reached either."""
    router = ThrottledRouter(Limiter("1/h"))
    router.add_api_route("/rooms/{any}", hello, name="any")

    with pytest.raises(RegistrationError, match=r"^Rooms.get at .* earlier any at"):
        router.add_view(Rooms)


def test_sockets_of_views_do_not_replace_each_other() -> None:
    """They have a method of their own."""

    class Other(ThrottledView):
        path = "/rooms/{room}/socket"
        throttle = "1/h"

        @route.websocket("")
        async def listen(self, websocket: WebSocket) -> None:
            """Serve sockets."""

    router = ThrottledRouter(Limiter("1/h"))
    router.add_view(Rooms)

    with pytest.raises(RegistrationError, match="serves the same requests, WEBSOCKET"):
        router.add_view(Other)


APART: dict[str, dict[str, Any]] = {
    "another method": {"path": "/rooms/{room}", "methods": ["POST"]},
    "another path": {"path": "/halls/{room}", "methods": ["GET"]},
    "another kind of parameter": {"path": "/rooms/{room:path}", "methods": ["GET"]},
}


@pytest.mark.parametrize("options", APART.values(), ids=APART)
def test_what_does_not_replace_a_view_is_let_in(options: dict[str, Any]) -> None:
    """It serves requests that the view does not."""
    router = ThrottledRouter(Limiter("1/h"))
    router.add_view(Rooms)
    router.add_api_route(endpoint=hello, **options)

    assert 3 == len(router.routes)


async def test_a_wrong_method_is_not_charged() -> None:
    """A 405 says nothing about limits, and takes nothing."""
    router = ThrottledRouter(Limiter("1/h"))
    router.add_api_route("/", hello)

    wrong, right = await answers(app_of(router), "POST /", "GET /")

    assert (405, {}) == (wrong.status_code, fields_of(wrong))
    assert (200, "0") == (right.status_code, right.headers["RateLimit-Remaining"])


async def test_a_path_that_is_not_there_is_not_charged() -> None:
    """A 404 of the application says nothing about limits, and takes nothing."""
    router = ThrottledRouter(Limiter("1/h"))
    router.add_api_route("/", hello)

    wrong, right = await answers(app_of(router), "GET /missing", "GET /")

    assert (404, {}) == (wrong.status_code, fields_of(wrong))
    assert (200, "0") == (right.status_code, right.headers["RateLimit-Remaining"])


async def test_the_methods_of_one_route_are_one_bucket() -> None:
    """GET and HEAD of one handler are not two quotas."""
    router = ThrottledRouter(Limiter("2/h"))
    router.add_api_route("/", hello, methods=["GET", "HEAD"])

    assert [200, 200, 429, 429] == await statuses(
        app_of(router), "GET /", "HEAD /", "GET /", "HEAD /"
    )


async def test_get_and_head_of_one_function_are_one_bucket() -> None:
    """Also where they are two routes, one registered after the other."""
    router = ThrottledRouter(Limiter("2/h"))
    router.get("/")(hello)
    router.head("/")(hello)

    assert [200, 200, 429, 429] == await statuses(
        app_of(router), "GET /", "HEAD /", "GET /", "HEAD /"
    )


async def test_routes_of_two_methods_with_handlers_of_their_own_are_two_buckets() -> (
    None
):
    """Each handler has counts of its own, also on one path."""
    router = ThrottledRouter(Limiter("1/h"))
    router.add_api_route("/", hello, methods=["GET"])
    router.add_api_route("/", other, methods=["POST"])

    assert [200, 200, 429, 429] == await statuses(
        app_of(router), "GET /", "POST /", "GET /", "POST /"
    )


async def test_clients_do_not_share_counts() -> None:
    """Each address has the quota for itself."""
    router = ThrottledRouter(Limiter("1/h"))
    router.add_api_route("/", hello)
    app = app_of(router)

    assert [200, 429] == await statuses(app, "GET /", "GET /", client="192.0.2.1")
    assert [200, 429] == await statuses(app, "GET /", "GET /", client="192.0.2.2")


class Dynamic(ThrottledView):
    """Captures what comes after it."""

    async def head(self) -> None:
        """Serve the view's own path."""

    @route.get("/{item}")
    async def one(self, item: str) -> str:
        """Serve any item."""
        return item


class Static(ThrottledView):
    """Would never be reached after the other."""

    @route.get("/latest")
    async def latest(self) -> str:
        """Serve the latest item."""
        return "latest"


def by_another_view(router: ThrottledRouter) -> None:
    """Add it with arguments of its own."""
    router.add_view(Static, tags=["static"])


def by_another_router(router: ThrottledRouter) -> None:
    """Include a router that it is on."""
    router.include_router(Static.as_router(router.limiter))


@pytest.mark.parametrize("add", [by_another_view, by_another_router])
def test_a_captured_path_is_seen_through_includes(
    add: Callable[[ThrottledRouter], None],
) -> None:
    """It does not matter how either of the two came onto the router."""
    router = ThrottledRouter(Limiter("1/h"))
    router.add_view(Dynamic, tags=["dynamic"])

    with pytest.raises(RegistrationError, match=r"Static\.latest before Dynamic\.one"):
        add(router)


async def test_a_view_is_added_with_arguments_of_a_router() -> None:
    """They hold for its routes alone."""
    router = ThrottledRouter(Limiter("1/h"))
    router.add_view(Static, prefix="/v1", tags=["new"])
    router.add_api_route("/", hello)
    app = app_of(router)

    paths = app.openapi()["paths"]

    assert ["new"] == paths["/v1/latest"]["get"]["tags"]
    assert "tags" not in paths["/"]["get"]
    assert [200, 429] == await statuses(app, "GET /v1/latest", "GET /v1/latest")


def test_a_captured_socket_is_refused() -> None:
    """Paths of sockets capture each other as those of requests do."""

    async def socket(websocket: WebSocket) -> None:
        await websocket.accept()

    router = ThrottledRouter(Limiter("1/h"))
    router.add_api_websocket_route("/{room}", socket)

    with pytest.raises(RegistrationError, match="captures it"):
        router.add_api_websocket_route("/lobby", socket)


async def test_a_copy_of_a_scope_is_another_request() -> None:
    """What an application dispatches by itself is limited like any other request."""
    limiter = Limiter(store=frozen_store())
    app = FastAPI()

    @app.get("/items")
    @limiter.limit("2/m")
    async def items() -> str:
        return "item"

    @app.get("/batch")
    @limiter.limit(["5/m", "9/h"])
    async def batch(request: Request) -> list[int]:
        inner = {"path": "/items", "raw_path": b"/items"}
        starts = [(await sent(app, {**request.scope, **inner}))[0] for _ in range(4)]
        return [start["status"] for start in starts]

    [answer] = await answers(app, "GET /batch")

    assert [200, 200, 429, 429] == answer.json()


OPTIONS: dict[str, tuple[dict[str, Any], str, object]] = {
    "deprecated": ({"deprecated": True}, "deprecated", True),
    "responses": (
        {"responses": {404: {"description": "gone"}}},
        "responses",
        {"200", "404", "429"},
    ),
}


@pytest.mark.parametrize(
    ("arguments", "name", "expected"), OPTIONS.values(), ids=OPTIONS
)
def test_an_argument_of_add_view_is_on_each_route(
    arguments: dict[str, Any], name: str, expected: object
) -> None:
    """It is what include_router would make of it."""
    router = ThrottledRouter(Limiter("1/h"))
    router.add_view(Static, **arguments)

    described = app_of(router).openapi()["paths"]["/latest"]["get"][name]

    assert expected == (described if expected is True else {*described})


async def test_dependencies_of_add_view_are_on_sockets_too() -> None:
    """Of the other arguments a socket has none."""
    asked: list[str] = []

    async def ask() -> None:
        asked.append("once")

    class Rooms(ThrottledView):
        @route.websocket("/ws", "room")
        async def room(self, websocket: WebSocket) -> None:
            await websocket.accept()
            await websocket.close()

    router = ThrottledRouter(Limiter("9/h"))
    router.add_view(Rooms, tags=["rooms"], dependencies=[Depends(ask)])

    with TestClient(app_of(router)).websocket_connect("/ws"):
        pass

    assert ["once"] == asked


def test_an_argument_of_a_whole_router_is_refused() -> None:
    """What routes do not have belongs to the router that the view is added to."""
    with pytest.raises(RegistrationError, match="Give it to the ThrottledRouter"):
        ThrottledRouter(Limiter("1/h")).add_view(Static, redirect_slashes=False)


@pytest.mark.parametrize("quota", ["2/m", ["2/m", "9/h"]], ids=["one", "several"])
async def test_a_copy_of_a_scope_is_another_request_of_a_router(
    quota: str | list[str | Limit],
) -> None:
    """What came with the copy was decided for the request that dispatches it."""
    limiter = Limiter(quota, store=frozen_store())
    router = ThrottledRouter(limiter)
    router.add_api_route("/items", hello)
    app = FastAPI()

    @router.get("/batch")
    @limiter.limit("5/m")
    async def batch(request: Request, _known: CurrentRateLimit) -> list[int]:
        inner = {"path": "/items", "raw_path": b"/items"}
        starts = [(await sent(app, {**request.scope, **inner}))[0] for _ in range(3)]
        return [start["status"] for start in starts]

    app.include_router(router)
    [answer] = await answers(app, "GET /batch")

    assert [200, 200, 429] == answer.json()


async def test_a_route_that_dispatches_to_itself_is_charged_each_time() -> None:
    """The same endpoint serves another request, and not for free."""
    router = ThrottledRouter(Limiter("2/m", store=frozen_store()))
    app = FastAPI()

    @router.get("/")
    async def deep(request: Request, *, again: bool = True) -> list[int]:
        if not again:
            return []
        inner = {"query_string": b"again=0"}
        starts = [(await sent(app, {**request.scope, **inner}))[0] for _ in range(2)]
        return [start["status"] for start in starts]

    app.include_router(router)
    [answer] = await answers(app, "GET /")

    assert [200, 429] == answer.json()
