"""What of a route stands in keys: its handler, or the template of its path."""

import copy
import pickle
from collections.abc import Callable
from typing import Annotated, Any
from urllib.parse import unquote

import pytest
from fastapi import APIRouter, Depends, FastAPI, Header, Request, Response, WebSocket
from fastapi.responses import PlainTextResponse
from starlette.middleware.cors import CORSMiddleware
from starlette.routing import Host, Mount, Route, Router
from starlette.types import ASGIApp, Receive, Scope, Send

from tests.asgi import Relay, answers, app_of, handshake, http_scope, statuses
from tests.ways import DECORATED, WAYS, Way
from throttled_views import (
    ConfigurationError,
    Limit,
    Limiter,
    Quota,
    RouteKey,
    Throttle,
    ThrottledRouter,
    ThrottledView,
    audit,
    by_endpoint,
    by_template,
    client_ip,
    everyone,
)

HERE = __name__
WITHOUT_ROOT = by_template(root_path=False)


async def hello() -> str:
    """Be a handler."""
    return "hello"


def routes_of(store: Relay) -> list[str]:
    """Return what of the routes stood in the keys of *store*, in order."""
    return [unquote(key.split("|")[2]) for key in store.keys]


def rooted(app: ASGIApp, root_path: str) -> ASGIApp:
    """Serve *app* as a server does that is told of a proxy in front."""

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        path = f"{root_path}{scope['path']}"
        await app({**scope, "root_path": root_path, "path": path}, receive, send)

    return serve


class Shop:
    """An application, its store, and a router to put somewhere."""

    def __init__(
        self,
        route_key: RouteKey = by_template,
        throttle: Any = "1/h",  # noqa: ANN401
    ) -> None:
        self.store = Relay()
        self.limiter = Limiter(throttle, store=self.store, route_key=route_key)
        self.router = ThrottledRouter(self.limiter, prefix="/shop")
        self.router.get("/items/{item}")(hello)

    async def routes(self, app: Any, *requests: str) -> list[str]:  # noqa: ANN401
        """Send *requests*, and return what of their routes stood in keys."""
        await answers(app, *requests)
        return routes_of(self.store)


# --- what stands in keys --------------------------------------------------------------


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
@pytest.mark.parametrize(
    ("route_key", "expected"),
    [(by_endpoint, f"{HERE}.hello"), (by_template, "/"), (WITHOUT_ROOT, "/")],
    ids=repr,
)
async def test_a_route_key_holds_for_every_way_to_limit(
    way: Way, route_key: RouteKey, expected: str
) -> None:
    """Whoever decides, early, late or as a dependency."""
    store = Relay()
    app = way(Limiter("1/h", store=store, route_key=route_key), hello)

    assert [200, 429] == await statuses(app, "GET /", "GET /")

    # A function that is decorated again in these tests has a number.
    assert {expected} == {each.partition("#")[0] for each in routes_of(store)}


async def test_a_template_has_every_prefix_and_no_value() -> None:
    """Of routers in routers, of an inclusion and of the route; not of a request."""
    shop = Shop()
    outer = ThrottledRouter(shop.limiter, prefix="/outer")
    outer.include_router(shop.router, prefix="/v{version}")
    app = FastAPI()
    app.include_router(outer, prefix="/api")

    assert ["/api/outer/v{version}/shop/items/{item}"] * 2 == await shop.routes(
        app, "GET /api/outer/v1/shop/items/1", "GET /api/outer/v2/shop/items/2"
    )


async def test_a_template_has_no_convertors() -> None:
    """A parameter is its name, whatever it takes."""
    store = Relay()
    router = ThrottledRouter(Limiter("1/h", store=store, route_key=by_template))
    router.get("/{number:int}")(hello)
    await answers(app_of(router), "GET /1")

    assert ["/{number}"] == routes_of(store)


async def test_a_handler_that_is_included_twice_has_two_counts() -> None:
    """That is what a template is asked for; a handler has one."""
    counts: list[list[int]] = []
    for route_key in (by_template, by_endpoint):
        shop, app = Shop(route_key), FastAPI()
        app.include_router(shop.router, prefix="/v1")
        app.include_router(shop.router, prefix="/v2")
        requests = ["GET /v1/shop/items/1", "GET /v2/shop/items/1"]
        counts.append(await statuses(app, *requests, *requests))

    assert [[200, 200, 429, 429], [200, 429, 429, 429]] == counts


@pytest.mark.parametrize("route_key", [by_template, WITHOUT_ROOT], ids=repr)
async def test_a_template_knows_its_mount(route_key: RouteKey) -> None:
    """One application below two mounts has two counts, and mounts may be nested."""
    shop = Shop(route_key)
    child, site = app_of(shop.router), FastAPI()
    site.mount("/a", child)
    site.mount("/b", FastAPI(routes=[Mount("/c", child)]))

    assert ["/a/shop/items/{item}", "/b/c/shop/items/{item}"] == await shop.routes(
        site, "GET /a/shop/items/1", "GET /b/c/shop/items/1"
    )


ROOTS: dict[str, tuple[RouteKey, str]] = {
    "with": (by_template, "/proxy/a/shop/items/{item}"),
    "without": (WITHOUT_ROOT, "/a/shop/items/{item}"),
}


@pytest.mark.parametrize(("route_key", "expected"), ROOTS.values(), ids=ROOTS)
async def test_the_root_path_may_be_left_out(
    route_key: RouteKey, expected: str
) -> None:
    """That of the deployment; a mount stays."""
    shop = Shop(route_key)
    site = FastAPI()
    site.mount("/a", app_of(shop.router))

    assert [expected] == await shop.routes(
        rooted(site, "/proxy"), "GET /a/shop/items/1"
    )


@pytest.mark.parametrize(
    ("route_key", "expected"),
    [(by_template, "/proxy/shop/items/{item}"), (WITHOUT_ROOT, "/shop/items/{item}")],
    ids=repr,
)
async def test_a_root_path_without_a_mount(route_key: RouteKey, expected: str) -> None:
    """Nothing but it stands before the template."""
    shop = Shop(route_key)
    app = rooted(app_of(shop.router), "/proxy")

    assert [expected] == await shop.routes(app, "GET /shop/items/1")


async def test_a_mount_below_an_included_router_is_known() -> None:
    """What the parent knows of its own route is not taken for that of the child."""
    shop = Shop()
    parent, app = APIRouter(prefix="/parent"), FastAPI()
    app.include_router(parent, prefix="/x")
    app.mount("/child", shop.router)
    parent.get("/")(hello)

    assert ["/child/shop/items/{item}"] == await shop.routes(
        app, "GET /x/parent/", "GET /child/shop/items/1"
    )


async def test_a_bucket_is_the_same_everywhere() -> None:
    """Its name replaces the template, too."""
    shop = Shop(throttle=Limit("1/h", bucket="all"))
    app = FastAPI()
    app.include_router(shop.router, prefix="/v1")
    app.include_router(shop.router, prefix="/v2")

    assert [200, 429] == await statuses(
        app, "GET /v1/shop/items/1", "GET /v2/shop/items/1"
    )
    assert ["all", "all"] == routes_of(shop.store)


async def test_methods_are_told_apart() -> None:
    """A template is counted for each handler's methods, as a handler is."""

    class Items(ThrottledView):
        path = "/items"

        async def get(self) -> str:
            """Read."""
            return ""

        async def post(self) -> str:
            """Write."""
            return ""

    app = FastAPI()
    app.include_router(Items.as_router(Limiter("1/h", route_key=by_template)))

    assert [200, 200, 429, 429] == await statuses(
        app, "GET /items", "POST /items", "GET /items", "POST /items"
    )


async def test_sockets_have_templates() -> None:
    """With the prefix of the router, as routes have."""
    store = Relay()
    router = ThrottledRouter(Limiter("1/h", store=store, route_key=by_template))

    @router.websocket("/rooms/{room}")
    async def room(websocket: WebSocket) -> None:
        await websocket.accept()
        await websocket.close()

    app = FastAPI()
    app.include_router(router, prefix="/v1")
    said = [await handshake(app, f"/v1/rooms/{each}") for each in (1, 2)]

    assert ["websocket.accept", "websocket.close"] == [each[0]["type"] for each in said]
    assert {"/v1/rooms/{room}"} == {*routes_of(store)}


def by_user(user: Annotated[str, Header()]) -> str:
    """Name a user, late."""
    return user


asked: list[str] = []


def by_address(request: Request) -> str:
    """Name the client, and note that it was asked."""
    asked.append(request.url.path)
    return client_ip(request)


@pytest.mark.parametrize("route_key", [by_endpoint, by_template], ids=repr)
async def test_each_limit_is_decided_once(route_key: RouteKey) -> None:
    """Of early and late limits of one handler, no function is asked twice."""
    asked.clear()
    store = Relay()
    limits = [
        Limit("9/h", key_func=by_address, name="early"),
        Limit("9/h", key_func=by_user, name="late"),
        Limit("9/h", key_func=everyone, name="all"),
    ]
    limiter = Limiter(limits, store=store, route_key=route_key)
    router = ThrottledRouter(limiter)
    router.get("/")(hello)
    app = FastAPI()
    app.include_router(router, prefix="/v1")

    await answers(app, "GET /v1/", headers={"User": "me"})

    assert ["/v1/"] == asked
    assert [1, 2] == [len(charges) for charges in store.calls]
    assert 1 == len({*routes_of(store)})


async def test_a_limiter_that_is_switched_off_asks_for_no_template() -> None:
    """Nothing is limited then, not even what could not be."""
    limiter = Limiter("1/h", route_key=by_template, enabled=False)
    app = Router([Route("/", limiter.limit()(starlette_handler))])

    assert [200, 200] == await statuses(app, "GET /", "GET /")


async def test_roots_that_vary_take_bounded_memory() -> None:
    """A request before the bound and one after it are counted alike."""
    shop = Shop(throttle="2000/h")
    app = app_of(shop.router)

    for number in [*range(1030), 0]:
        await answers(rooted(app, f"/r{number}"), "GET /shop/items/1")

    routes = routes_of(shop.store)
    assert routes[0] == routes[-1]
    assert 1030 == len({*routes})


# --- what is refused ------------------------------------------------------------------


async def starlette_handler(_request: Request) -> Response:
    """Be a handler of Starlette."""
    return PlainTextResponse("")


async def test_a_mount_with_parameters_is_refused() -> None:
    """Its values are all that is known of it, and would each be a count."""
    shop = Shop()
    site = FastAPI(routes=[Mount("/{tenant}", app_of(shop.router))])

    with pytest.raises(ConfigurationError, match="host, with the parameter 'tenant'"):
        await answers(site, "GET /acme/shop/items/1")

    assert [] == shop.store.keys


def _mounted(app: FastAPI) -> FastAPI:
    """Mount *app* as FastAPI does."""
    site = FastAPI()
    site.mount("/t/{item}", app)
    return site


def _wrapped(app: FastAPI) -> ASGIApp:
    """Put middleware around a mounted application."""
    inner = FastAPI(routes=[Mount("/{item}", app)])
    return Router([Mount("/t", CORSMiddleware(inner))])


def _nested_in_static(app: FastAPI) -> ASGIApp:
    """Put the parameter into the inner of two mounts."""
    return Router([Mount("/t", FastAPI(routes=[Mount("/{item}", app)]))])


def _nested_in_fastapi(app: FastAPI) -> ASGIApp:
    """Nest mounts of FastAPI."""
    site, inner = FastAPI(), FastAPI()
    inner.mount("/{item:int}", app)
    site.mount("/t", inner)
    return site


def _included(app: FastAPI) -> ASGIApp:
    """Mount on a router that is included, which FastAPI may ignore."""
    router, site = APIRouter(), FastAPI()
    router.mount("/{item}", app)
    site.include_router(router, prefix="/t")
    site.mount("/t/{item}", app)
    return site


def _on_a_host(app: FastAPI) -> ASGIApp:
    """Put the mount on a host."""
    return Router([Host("{item}", Router([Mount("/t/{item}", app)]))])


def _rooted(app: FastAPI) -> ASGIApp:
    """Give an application on the way a root path of its own."""
    inner = FastAPI(routes=[Mount("/{item}", app)])
    inner.root_path = "/t"
    return Router([Mount("/t", inner)])


EQUAL_NAMES: dict[str, Callable[[FastAPI], ASGIApp]] = {
    "mounted": _mounted,
    "Starlette's Mount": lambda app: Router([Mount("/t/{item}", app)]),
    "middleware": _wrapped,
    "nested in static": _nested_in_static,
    "nested in FastAPI": _nested_in_fastapi,
    "nested in dynamic": lambda app: Router(
        [Mount("/{item}", Router([Mount("/1", app)]))]
    ),
    "included": _included,
    "host": _on_a_host,
    "root path": _rooted,
}


@pytest.mark.parametrize("mount", EQUAL_NAMES.values(), ids=EQUAL_NAMES)
async def test_a_mount_is_refused_whatever_its_parameters_are_called(
    mount: Callable[[FastAPI], ASGIApp],
) -> None:
    """One of the route's name is overwritten by it, and is a client's choice, too."""
    shop = Shop()

    with pytest.raises(ConfigurationError, match="with the parameter 'item'"):
        await answers(mount(app_of(shop.router)), "GET /t/1/shop/items/1")

    assert [] == shop.store.keys


@pytest.mark.parametrize("told", [{}, {"routes": []}], ids=["nothing", "no routes"])
async def test_a_mount_that_cannot_be_looked_into_is_refused(
    told: dict[str, Any],
) -> None:
    """What is in it may have parameters."""
    shop = Shop()
    inner = Router([Mount("/{item}", app_of(shop.router))])

    async def opaque(scope: Scope, receive: Receive, send: Send) -> None:
        await inner(scope, receive, send)

    vars(opaque).update(told)
    with pytest.raises(ConfigurationError, match="cannot be looked into"):
        await answers(Router([Mount("/t", opaque)]), "GET /t/1/shop/items/1")

    assert [] == shop.store.keys


def on_hosts(limiter: Limiter, *throttles: Throttle) -> ASGIApp:
    """Serve the same path on hosts named 0, 1 and so on, each with a limit."""
    hosts: list[Host] = []
    for number, throttle in enumerate(throttles):
        router = ThrottledRouter(limiter)
        router.get("/items")(limiter.limit(throttle)(hello))
        hosts.append(Host(str(number), app_of(router)))
    return Router(hosts)


@pytest.mark.filterwarnings("ignore:.* different objects named")
async def test_unequal_quotas_of_one_template_are_refused() -> None:
    """Hosts are no part of it, so that one would spend what the other has."""
    limiter = Limiter(store=Relay(), route_key=by_template)
    app = on_hosts(limiter, "1/h", "9/h")

    await answers(app, "GET /items", headers={"Host": "0"})
    with pytest.raises(ConfigurationError, match=r"at '/items'.* 1/h .* 9/h "):
        await answers(app, "GET /items", headers={"Host": "1"})


@pytest.mark.filterwarnings("ignore:.* different objects named")
@pytest.mark.parametrize("throttle", ["2/h", lambda: Quota.per_hour(2)])
async def test_equal_quotas_of_one_template_are_one_count(throttle: Throttle) -> None:
    """They are one count, as the path says; so are those that functions choose."""
    app = on_hosts(Limiter(store=Relay(), route_key=by_template), throttle, throttle)
    codes = [
        (await answers(app, "GET /items", headers={"Host": host}))[0].status_code
        for host in ("0", "1", "0")
    ]

    assert [200, 200, 429] == codes


async def test_a_static_mount_may_stand_before_one_with_parameters() -> None:
    """The way of a request counts, and not what else there is."""
    shop = Shop()
    app = app_of(shop.router)
    mounts = [Mount(path, app) for path in ("/x", "/t", "/{item}")]
    site = Router([Route("/", starlette_handler), *mounts])

    assert ["/t/shop/items/{item}"] == await shop.routes(site, "GET /t/shop/items/1")


def test_what_no_route_serves_is_refused() -> None:
    """Nobody tells the template of it, as on some versions of a route of Starlette."""
    with pytest.raises(ConfigurationError, match="no route of FastAPI serves"):
        by_template.template_of(http_scope())


@pytest.mark.parametrize("given", ["template", None, by_address])
def test_what_is_no_route_key_is_refused(given: Any) -> None:  # noqa: ANN401
    """When the limiter is made, with what to write."""
    with pytest.raises(ConfigurationError, match="Write route_key=by_template"):
        Limiter(route_key=given)


# --- around it ------------------------------------------------------------------------


def test_route_keys_are_shown_as_they_are_written() -> None:
    """In messages, and at a prompt."""
    assert ["by_endpoint", "by_template", "by_template(root_path=False)"] == [
        repr(each) for each in (by_endpoint, by_template, WITHOUT_ROOT)
    ]
    assert by_template().root_path


def test_route_keys_are_values() -> None:
    """Equal ones are the same, and none can be changed."""
    assert {by_template} == {by_template(), by_template(root_path=True)}
    assert by_template != WITHOUT_ROOT == by_template(root_path=False)
    with pytest.raises(AttributeError):
        setattr(by_template, "root_path", False)  # noqa: B010 - it has no setter


@pytest.mark.parametrize(
    "route_key", [by_endpoint, by_template, WITHOUT_ROOT], ids=repr
)
def test_copies_of_route_keys_are_equal_to_them(route_key: RouteKey) -> None:
    """Pickled ones, too, of which there may be one alone."""
    pickled = pickle.loads(pickle.dumps(route_key))  # noqa: S301

    assert route_key == pickled == copy.copy(route_key) == copy.deepcopy(route_key)
    assert repr(route_key) == repr(pickled)


@pytest.mark.filterwarnings("error")
async def test_names_need_no_numbers_where_templates_count() -> None:
    """Functions of one name are told apart by their paths, without a warning."""

    def made(text: str) -> Callable[[], Any]:
        async def generated() -> str:
            return text

        return generated

    router = ThrottledRouter(Limiter("1/h", route_key=by_template))
    router.get("/a")(made("a"))
    router.get("/b")(made("b"))

    assert [200, 200, 429, 429] == await statuses(
        app_of(router), "GET /a", "GET /b", "GET /a", "GET /b"
    )


@pytest.mark.parametrize("way", DECORATED.values(), ids=DECORATED)
async def test_dynamic_quotas_have_templates(way: Way) -> None:
    """A limit with nothing known beforehand is placed as any other."""
    store = Relay()
    limit = Limit(lambda: Quota.per_hour(1))
    app = way(Limiter(limit, store=store, route_key=by_template), hello)

    assert [200, 429] == await statuses(app, "GET /", "GET /")
    assert ["/", "/"] == routes_of(store)


def test_an_audit_tells_the_template() -> None:
    """It is what is counted then; a bucket stays one."""
    shop = Shop(throttle=["1/h", Limit("9/h", bucket="all")])
    limited = Depends(shop.limiter.dependency("5/h"))
    app = FastAPI(openapi_url=None)
    app.include_router(shop.router, prefix="/v1", dependencies=[limited])

    [found] = audit(app)

    template = "/v1/shop/items/{item}"
    assert [template, "all", template] == [each.route for each in found.limits]
