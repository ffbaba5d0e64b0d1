"""`audit` finds every route, and says what limits it."""

from collections.abc import Callable
from typing import Annotated, Any
from urllib.parse import unquote

import pytest
from fastapi import APIRouter, Depends, FastAPI, Header, Request, Response, WebSocket
from fastapi.responses import PlainTextResponse
from starlette.applications import Starlette
from starlette.middleware.cors import CORSMiddleware
from starlette.routing import Host, Mount, Route, Router
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp

from tests.asgi import Relay, answers, statuses
from throttled_views import (
    EXEMPT,
    Algorithm,
    AuditedRoute,
    ClientIP,
    KeyFunc,
    Limit,
    Limiter,
    Quota,
    RateLimitMiddleware,
    RouteKey,
    ThrottledRoute,
    ThrottledRouter,
    ThrottledView,
    audit,
    by_template,
    client_ip,
    everyone,
    exempt,
    first_of,
    header_key,
    limit,
    route,
)

HERE = __name__


async def hello() -> str:
    """Be a handler."""
    return "hello"


async def served() -> str:
    """Be a handler that no test decorates."""
    return "served"


async def misplaced() -> str:
    """Be a handler whose limit stands above its route."""
    return "misplaced"


async def limited_once() -> str:
    """Be a handler that is limited on one of its routes."""
    return "once"


def plain(_request: Request) -> Response:
    """Be a handler of Starlette."""
    return PlainTextResponse("plain")


async def by_user(user: Annotated[str, Header()]) -> str:
    """Name a user, late."""
    return user


async def quota_of_plan(request: Request) -> Quota:
    """Choose a quota, early."""
    return Quota.per_minute(5)


def bare() -> FastAPI:
    """Return an application without documents of its own."""
    return FastAPI(openapi_url=None)


def only(app: Any) -> AuditedRoute:  # noqa: ANN401
    """Return the one route of *app*."""
    [found] = audit(app)
    return found


def told(app: Any) -> dict[str, list[str]]:  # noqa: ANN401
    """Return the quotas of each route, by its methods and path."""
    return {
        " ".join(["+".join(each.methods), each.path]).strip(): [
            limit.quota for limit in each.limits
        ]
        for each in audit(app)
    }


# --- what is told of a limit ----------------------------------------------------------


class Items(ThrottledView):
    """A view with handlers of all kinds."""

    path = "/items"
    throttle = Limit("100/m", name="reads", cost=2)

    async def get(self) -> str:
        """Have the limit of the class."""
        return ""

    @limit(
        Limit(quota_of_plan, key_func=header_key("X-Key", otherwise=None)),
        Limit("9/h", key_func=by_user, using=Algorithm.SLIDING_LOG),
        Limit("5/h", bucket="writes", key_func=everyone, on_store_error="allow"),
    )
    async def post(self) -> str:
        """Have others."""
        return ""

    @exempt
    @route.get("/free", name="free")
    async def free(self) -> str:
        """Have none."""
        return ""

    @route.websocket("/socket")
    async def socket(self, websocket: WebSocket) -> None:
        """Serve sockets."""
        await websocket.accept()
        await websocket.close()


def test_a_limit_is_told_in_full() -> None:
    """Names, numbers, the key, the phase and what is counted."""
    app = bare()
    app.include_router(Items.as_router(Limiter(on_store_error="deny")), prefix="/v1")

    get, post, free, socket = audit(app)

    assert ("/v1/items", ("GET",), "Items.get") == (get.path, get.methods, get.name)
    [reads] = get.limits
    assert (
        "reads",
        "100/m",
        Algorithm.TOKEN_BUCKET,
        2,
        "ClientIP(ipv6_prefix=64)",
        "early",
        f"{HERE}.Items.get",
        None,
        "deny",
        True,
        False,
        0.0,
        False,
    ) == tuple(getattr(reads, name) for name in reads.__slots__)
    assert [
        ("1", "dynamic", "header_key('x-key', otherwise=None)", "early"),
        ("2", "9/h", "by_user", "late"),
        ("3", "5/h", "everyone", "late"),
    ] == [(each.name, each.quota, each.key_func, each.phase) for each in post.limits]
    shared = post.limits[-1]
    assert ("writes", "writes", "allow") == (
        shared.route,
        shared.bucket,
        shared.on_store_error,
    )
    assert Algorithm.SLIDING_LOG == post.limits[1].algorithm
    assert ("@exempt", ()) == (free.exempt, free.limits)
    assert (("WEBSOCKET",), "late") == (socket.methods, socket.limits[0].phase)
    assert f"{HERE}.Items.socket" == socket.limits[0].route


def test_a_cost_of_a_function_is_not_known() -> None:
    """It is told as None."""
    router = ThrottledRouter(Limiter(Limit("9/m", cost=lambda: 1)))
    router.add_api_route("/", hello)

    assert None is only(router).limits[0].cost


def test_a_limiter_that_is_switched_off_is_told() -> None:
    """Its limits are there, and do not limit at the moment."""
    limiter = Limiter("9/m", enabled=False)
    router = ThrottledRouter(limiter)
    router.add_api_route("/", hello)

    assert not only(router).limits[0].enabled
    limiter.enabled = True
    assert only(router).limits[0].enabled


def test_a_limit_that_is_only_observed_is_told() -> None:
    """It refuses nobody: whoever tries a limit may forget the one it is to replace."""
    router = ThrottledRouter(Limiter(Limit("9/m", shadow=True)))
    router.add_api_route("/", hello)

    found = only(router)

    assert [True] == [each.shadow for each in found.limits]
    assert found.is_unlimited


def test_waiting_and_refunds_are_told() -> None:
    """Whoever reads the list sees that such a limit does not just refuse."""
    limit = Limit("9/m", max_delay=1.5, refund_when=lambda status: status < 400)
    router = ThrottledRouter(Limiter([limit, "99/h"]))
    router.add_api_route("/", hello)

    assert [(1.5, True), (0.0, False)] == [
        (each.max_delay, each.refunds) for each in only(router).limits
    ]


def test_an_audit_is_a_value() -> None:
    """It can be compared, kept in a set, and not changed."""
    router = ThrottledRouter(Limiter("9/m"))
    router.add_api_route("/", hello)

    assert 1 == len({*audit(router), *audit(router)})
    with pytest.raises(AttributeError):
        only(router).path = "/other"  # type: ignore[misc]  # pyright: ignore[reportAttributeAccessIssue]


# --- ways to be limited ---------------------------------------------------------------


def decorated() -> FastAPI:
    """Decorate a function on an application."""
    app = bare()
    app.get("/")(Limiter().limit("5/m")(hello))
    return app


def decorated_twice() -> FastAPI:
    """Stack two limiters."""
    app = bare()
    app.get("/")(Limiter().limit("9/m")(Limiter().limit("5/m")(hello)))
    return app


def depending() -> FastAPI:
    """Let an application, and a router in it, have dependencies."""
    limiter = Limiter()
    app = FastAPI(openapi_url=None, dependencies=[Depends(limiter.dependency("5/m"))])
    router = APIRouter(dependencies=[Depends(limiter.dependency("9/m"))])
    router.get("/")(served)
    app.include_router(router)
    return app


def depending_deeply() -> FastAPI:
    """Let a dependency of a route depend on what limits."""
    limited = Depends(Limiter().dependency("5/m"))

    def nested(_: Annotated[object, limited]) -> None:
        """Depend on it."""

    app = bare()
    app.get("/", dependencies=[limited, Depends(nested)])(served)
    return app


def decorated_and_depending() -> FastAPI:
    """Decorate a function on an application, and let it have a dependency, too."""
    limiter = Limiter()
    app = bare()
    app.get("/", dependencies=[Depends(limiter.dependency("5/m"))])(
        limiter.limit("9/m")(hello)
    )
    return app


def both() -> FastAPI:
    """Let a route of ours have a dependency, too."""
    limiter = Limiter("9/m")
    router = ThrottledRouter(limiter, dependencies=[Depends(limiter.dependency("5/m"))])
    router.get("/")(served)
    app = bare()
    app.include_router(router)
    return app


def only_a_dependency() -> FastAPI:
    """Let a route of ours have nothing else."""
    limiter = Limiter()
    router = ThrottledRouter(limiter, dependencies=[Depends(limiter.dependency("5/m"))])
    router.get("/")(served)
    app = bare()
    app.include_router(router)
    return app


def a_socket() -> FastAPI:
    """Decorate a socket of an application."""

    async def socket(websocket: WebSocket) -> None:
        """Serve sockets."""

    app = bare()
    app.websocket("/")(Limiter().limit("5/m")(socket))
    return app


def a_route_class() -> FastAPI:
    """Use our route class on a plain router, with the process-wide limiter."""
    router = APIRouter(route_class=ThrottledRoute)
    router.get("/")(Limiter().limit("5/m")(hello))
    app = bare()
    app.include_router(router)
    return app


WAYS: dict[str, tuple[Callable[[], FastAPI], list[tuple[str, str]]]] = {
    "decorated": (decorated, [("5/m", "late")]),
    "decorated twice": (decorated_twice, [("5/m", "late"), ("9/m", "late")]),
    "dependencies": (depending, [("5/m", "late"), ("9/m", "late")]),
    "a dependency of a dependency": (depending_deeply, [("5/m", "late")]),
    "decorated, and a dependency": (
        decorated_and_depending,
        [("5/m", "late"), ("9/m", "late")],
    ),
    "ours, and a dependency": (both, [("9/m", "early"), ("5/m", "late")]),
    "ours, and only a dependency": (only_a_dependency, [("5/m", "late")]),
    "a socket": (a_socket, [("5/m", "late")]),
    "our route class": (a_route_class, [("5/m", "early")]),
}


@pytest.mark.parametrize(("made", "limits"), WAYS.values(), ids=WAYS)
@pytest.mark.filterwarnings("ignore:2 different objects named")
def test_every_way_to_limit_is_found(
    made: Callable[[], FastAPI], limits: list[tuple[str, str]]
) -> None:
    """With the phase in which it is decided, and in that order."""
    found = only(made())

    assert limits == [(each.quota, each.phase) for each in found.limits]
    assert not found.is_unlimited
    assert None is found.exempt is found.problem


async def test_an_audit_changes_no_key() -> None:
    """Equal dependencies are named in the order in which FastAPI solves them."""
    keys: list[list[str]] = []
    for is_audited in (False, True):
        store = Relay()
        limiter = Limiter(store=store)
        inner = Depends(limiter.dependency("5/m", key_func=everyone))

        async def by_all(_: Any = inner) -> str:  # noqa: ANN401
            return "all"

        outer = limiter.dependency("5/m", key_func=by_all)
        app = FastAPI(dependencies=[Depends(outer), inner], openapi_url=None)
        app.add_api_route("/", hello)
        if is_audited:
            only(app)
        await answers(app, "GET /")
        keys.append(store.keys)

    assert keys[0] == keys[1]
    assert 2 == len({*keys[0]})


@pytest.mark.parametrize("route_key", [by_template, by_template(root_path=False)])
async def test_an_audit_tells_templates_as_keys_have_them(route_key: RouteKey) -> None:
    """Without convertors and hosts, with mounts and what is known of the root path."""
    store = Relay()
    router = ThrottledRouter(Limiter("9/h", store=store, route_key=route_key))
    router.get("/{number:int}")(hello)
    child, app = bare(), bare()
    app.root_path = "/api"
    child.include_router(router)
    app.include_router(router, prefix="/own")
    app.mount("/child", child)
    app.router.routes.append(Host("a.test", child))
    told = [each.limits[0].route for each in audit(app)]

    await answers(app, "GET /api/own/1", "GET /api/child/1", headers={"Host": "b.test"})
    await answers(app, "GET /api/1", headers={"Host": "a.test"})

    assert told == [unquote(key.split("|")[2]) for key in store.keys]


@pytest.mark.parametrize("outer", [Mount, Host])
def test_a_template_below_parameters_is_a_problem(outer: Any) -> None:  # noqa: ANN401
    """Every request to it would be an error; one that counts otherwise is none."""
    problems: list[str | None] = []
    for limiter in (Limiter("9/h"), Limiter("9/h", route_key=by_template)):
        app, path = bare(), "/{item}" if outer is Mount else "{item}.test"
        router = ThrottledRouter(limiter)
        router.get("/{item}")(served)
        app.include_router(router)
        problems.append(audit(Router([outer(path, app)]))[0].problem)

    assert problems[0] is None
    assert "with the parameter 'item'" in str(problems[1])


BEHIND_A_PROXY = ClientIP(trusted_proxies=["10.0.0.0/8"])


@pytest.mark.parametrize(
    ("key_func", "is_problem"),
    [
        (client_ip, True),
        (ClientIP(ipv6_prefix=56), True),
        (header_key("X-API-Key"), True),
        (first_of(header_key("X-API-Key", otherwise=None), client_ip), True),
        (None, False),
        (BEHIND_A_PROXY, False),
        (header_key("X-API-Key", otherwise=BEHIND_A_PROXY), False),
        (header_key("X-API-Key", otherwise=None), False),
        (everyone, False),
    ],
)
@pytest.mark.parametrize("outside", [True, False], ids=["middleware", "route"])
def test_a_limit_that_takes_proxies_for_clients_is_a_problem(
    key_func: KeyFunc | None, *, is_problem: bool, outside: bool
) -> None:
    """Its limiter trusts some, and all clients behind one would share its count."""
    limiter, limits = Limiter(key_func=BEHIND_A_PROXY), Limit("9/h", key_func=key_func)
    app = FastAPI()
    if outside:
        app.add_middleware(RateLimitMiddleware, limiter=limiter, throttle=limits)
        app.get("/")(hello)
    else:
        app.get("/")(limiter.limit(limits)(hello))
    problems = [each.problem for each in audit(app) if each.path == "/"]

    assert is_problem == ("client_ip, which knows no proxies" in str(problems))


def test_a_socket_that_a_middleware_cannot_serve_is_a_problem() -> None:
    """Its key function takes what a socket has not; routes are served."""

    def by_request(request: Request) -> str:
        return request.url.path

    app = bare()
    app.add_middleware(
        RateLimitMiddleware, throttle=Limit("9/h", key_func=by_request, name="app")
    )
    app.add_api_route("/", served)

    @app.websocket("/socket")
    async def socket(websocket: WebSocket) -> None:
        """Be a socket."""

    request, refused = audit(app)
    assert request.problem is None
    assert "Annotate its parameter HTTPConnection" in str(refused.problem)


async def test_an_audit_changes_no_count() -> None:
    """What a dependency counts has the same name, whoever asks first."""
    store = Relay()
    limiter = Limiter(store=store)
    limited = [Depends(limiter.dependency("1/m")) for _ in range(2)]
    app = bare()
    app.get("/", dependencies=limited)(hello)
    before = audit(app)

    assert [200, 429] == await statuses(app, "GET /", "GET /")

    assert before == audit(app)
    assert ["dependency 1/m", "dependency 1/m #2"] == [
        each.name for each in before[0].limits
    ]


# --- ways to be unlimited -------------------------------------------------------------


class Free(ThrottledView):
    """A view without limits."""

    throttle = EXEMPT

    async def get(self) -> str:
        """Be free."""
        return ""


def free_view() -> APIRouter:
    """Serve a view that is exempt."""
    return Free.as_router(Limiter(), prefix="/free")


def free_function() -> APIRouter:
    """Serve a function that is exempt."""

    async def free() -> None:
        """Be free."""

    limiter = Limiter("5/m")
    router = ThrottledRouter(limiter)
    router.get("/")(limiter.exempt(free))
    return router


def free_default() -> APIRouter:
    """Serve what a limiter leaves free."""
    router = ThrottledRouter(Limiter(EXEMPT))
    router.get("/")(hello)
    return router


REASONS = {
    "throttle = EXEMPT": free_view,
    "@limiter.exempt": free_function,
    "Limiter(EXEMPT)": free_default,
}


@pytest.mark.parametrize("made", REASONS.values(), ids=REASONS)
def test_what_is_exempt_says_why(
    made: Callable[[], APIRouter], request: pytest.FixtureRequest
) -> None:
    """In the words in which it was written."""
    found = only(made())

    assert request.node.callspec.id == found.exempt
    assert () == found.limits
    assert not found.is_unlimited


def test_a_document_of_fastapi_is_exempt() -> None:
    """What FastAPI serves by itself is no forgotten route; a route of the user is."""
    app = FastAPI()
    app.add_route("/plain", plain)

    *documents, mine = audit(app)

    assert {"FastAPI's documentation"} == {each.exempt for each in documents}
    assert 4 == len(documents)
    assert ("/plain", None, True) == (mine.path, mine.exempt, mine.is_unlimited)


def test_an_unlimited_route_is_found() -> None:
    """On an application, on a router, as a socket, and of Starlette."""
    app, router = bare(), APIRouter(prefix="/router")

    @app.websocket("/socket")
    async def socket(websocket: WebSocket) -> None:
        """Serve sockets."""

    app.get("/")(hello)
    router.get("/")(hello)
    router.add_route("/plain", plain)  # which has no prefix
    app.include_router(router)

    assert {
        "WEBSOCKET /socket": [],
        "GET /": [],
        "GET /router/": [],
        "GET+HEAD /plain": [],
    } == told(app)
    assert all(each.is_unlimited for each in audit(app))


def test_a_limit_above_the_route_is_found() -> None:
    """It limits nothing, and nothing else could tell."""
    limiter = Limiter()
    app = bare()
    limiter.limit("5/m")(app.get("/")(misplaced))

    found = only(app)

    assert found.is_unlimited
    assert (
        f"{HERE}.misplaced is decorated with @limiter.limit above the decorator of the "
        "route, which limits nothing here. Write it below"
    ) == found.problem


def test_a_limit_above_the_route_of_ours_is_found() -> None:
    """There the default holds instead."""
    limiter = Limiter("100/m")
    router = ThrottledRouter(limiter)
    with pytest.warns(UserWarning, match="2 different objects named"):
        limiter.limit("5/m")(router.get("/")(misplaced))

    found = only(router)

    assert ["100/m"] == [each.quota for each in found.limits]
    assert found.problem is not None


def test_a_function_may_be_limited_on_one_route_and_not_on_another() -> None:
    """Who registers it both ways means it: both are told, and nothing is wrong."""
    app = bare()
    app.get("/free")(limited_once)
    app.get("/")(Limiter().limit("5/m")(limited_once))

    assert {"GET /free": [], "GET /": ["5/m"]} == told(app)
    assert [None, None] == [each.problem for each in audit(app)]


# --- where routes are -----------------------------------------------------------------


def limited(quota: str, **options: Any) -> ThrottledRouter:  # noqa: ANN401
    """Return a router with one limited route, at /x."""
    router = ThrottledRouter(Limiter(quota), **options)
    router.get("/x")(hello)
    return router


def test_routes_are_found_wherever_they_are() -> None:
    """Through includes, twice and nested, mounts, hosts, and middleware around them."""
    inner = limited("1/m", prefix="/inner")
    outer = ThrottledRouter(Limiter("9/m"), prefix="/outer")
    outer.include_router(inner)
    child = bare()
    child.include_router(limited("2/m"))
    app = bare()
    app.include_router(outer, prefix="/a")
    app.include_router(outer, prefix="/b")
    app.mount("/child", CORSMiddleware(child))
    app.mount("/files", StaticFiles(directory="."), name="files")
    app.router.routes.append(Host("api.test", limited("3/m")))
    app.mount("/starlette", Starlette(routes=[Route("/y", plain)]))

    assert {
        "GET /a/outer/inner/x": ["1/m"],
        "GET /b/outer/inner/x": ["1/m"],
        "GET /child/x": ["2/m"],
        "/files": [],
        "GET //api.test/x": ["3/m"],
        "GET+HEAD /starlette/y": [],
    } == told(CORSMiddleware(app))


def test_mounts_on_routers_are_found() -> None:
    """Below the prefixes that the router has where it is included."""
    router = APIRouter()
    router.mount("/child", limited("2/m"))
    app = bare()
    app.include_router(router, prefix="/v1")

    found = told(app)

    # Before FastAPI 0.137 a mount was left out of what is included.
    assert found in ({"GET /v1/child/x": ["2/m"]}, {})


@pytest.mark.skipif(not hasattr(APIRouter, "frontend"), reason="FastAPI has none")
def test_frontends_are_found() -> None:
    """Of an application, and of routers in routers; only all together is limited."""
    inner, outer, app = APIRouter(), APIRouter(prefix="/outer"), bare()
    for router in (inner, outer, app):
        router.frontend("/site", directory=".")
    outer.include_router(inner, prefix="/inner")
    app.include_router(outer, prefix="/v1")
    app.add_middleware(RateLimitMiddleware, throttle="9/m")

    assert {
        "GET+HEAD /site": ["9/m"],
        "GET+HEAD /v1/outer/site": ["9/m"],
        "GET+HEAD /v1/outer/inner/site": ["9/m"],
    } == told(app)


async def test_what_cannot_be_looked_into_is_a_route() -> None:
    """An application that tells of no routes is one itself, without limits."""

    async def app(scope: Any, receive: Any, send: Any) -> None:  # noqa: ANN401
        await PlainTextResponse("")(scope, receive, send)

    found = only(Router([Mount("/odd", app)]))

    assert ("/odd", (), True) == (found.path, found.methods, found.is_unlimited)
    assert [200] == [
        each.status_code
        for each in await answers(Router([Mount("/odd", app)]), "GET /odd/")
    ]


# --- middleware -----------------------------------------------------------------------


def test_limits_of_an_application_hold_for_all_it_serves() -> None:
    """Documents, exempt routes, mounts: each tells of them, before its own."""
    limiter = Limiter("9/m")
    app = FastAPI(docs_url=None, redoc_url=None)
    app.include_router(limited("5/m"))
    app.include_router(Free.as_router(limiter, prefix="/free"))
    child = bare()
    child.add_middleware(RateLimitMiddleware, limiter=limiter, throttle="50/m")
    child.include_router(limited("2/m"))
    app.mount("/child", child)
    app.add_middleware(CORSMiddleware)
    app.add_middleware(RateLimitMiddleware, limiter=limiter, throttle="100/m")

    assert {
        "GET+HEAD /openapi.json": ["100/m"],
        "GET /x": ["100/m", "5/m"],
        "GET /free": ["100/m"],
        "GET /child/x": ["100/m", "50/m", "2/m"],
    } == told(app)
    assert {"app"} == {each.limits[0].phase for each in audit(app)}
    assert {"throttle = EXEMPT", "FastAPI's documentation", None} == {
        each.exempt for each in audit(app)
    }


def test_middleware_around_an_application_is_found() -> None:
    """Whoever wraps it, in whatever order."""
    app: ASGIApp = RateLimitMiddleware(limited("5/m"), throttle="100/m")
    app = RateLimitMiddleware(CORSMiddleware(app), throttle=["1000/m", "1/s"])

    assert {"GET /x": ["1000/m", "1/s", "100/m", "5/m"]} == told(app)


def test_an_order_that_is_right_is_not_warned_about(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """What an application does when it starts, an audit does not do again."""
    app = FastAPI()
    app.add_middleware(RateLimitMiddleware, throttle="100/m")
    app.add_middleware(CORSMiddleware)

    audit(app)

    assert "" == caplog.text


def test_a_middleware_without_a_quota_limits_nothing() -> None:
    """It only tells of what routes decide."""
    app = bare()
    app.add_middleware(RateLimitMiddleware)
    app.get("/")(served)

    assert only(app).is_unlimited
