"""The two phases of a request: what is decided early, and what right before it runs."""

from collections.abc import Callable, Coroutine, Iterator
from typing import Annotated, Any

import pytest
from fastapi import (
    APIRouter,
    Body,
    Depends,
    FastAPI,
    Header,
    HTTPException,
    Request,
    WebSocket,
)
from starlette.applications import Starlette
from starlette.requests import HTTPConnection
from starlette.routing import Route

from tests.asgi import (
    Relay,
    answers,
    app_of,
    fields_of,
    frozen,
    frozen_store,
    handshake,
    statuses,
)
from tests.clock import ManualClock
from tests.outages import Outage, limiter_of
from throttled_views import (
    ConfigurationError,
    CurrentRateLimit,
    Limit,
    Limiter,
    OnStoreError,
    Quota,
    Throttle,
    ThrottledRouter,
    ThrottledView,
    everyone,
    limit,
    route,
)

AnyHandler = Callable[..., Coroutine[Any, Any, Any]]


async def current_user(x_user: Annotated[str | None, Header()] = None) -> str:
    """Tell who is logged in; nobody else gets any further."""
    if x_user is None:
        raise HTTPException(401)
    return x_user


CurrentUser = Annotated[str, Depends(current_user)]


async def by_user(user: CurrentUser) -> str:
    """Name the user: late."""
    return user


def by_address(request: Request) -> str:
    """Name the address: early."""
    return request.client.host if request.client else "nobody"


ALICE, BOB = {"X-User": "alice"}, {"X-User": "bob"}


async def hello() -> str:
    """Be a handler."""
    return "hello"


class Hello(ThrottledView):
    """Views under test greet."""

    async def get(self) -> str:
        """Greet."""
        return "hello"


# --- the order ------------------------------------------------------------------------


class Course:
    """What ran, in order."""

    def __init__(self) -> None:
        self.ran: list[str] = []

    def note(self, name: str, answer: str = "") -> str:
        """Note that something ran."""
        self.ran.append(name)
        return answer

    def limits(self) -> list[Limit]:
        """Return an early limit and two late ones."""

        def early(request: Request) -> str:
            return self.note("early key", request.method)

        async def user() -> str:
            return self.note("user of the late key", "alice")

        async def late(name: Annotated[str, Depends(user)]) -> str:
            return self.note("late key", name)

        def plan(name: Annotated[str, Depends(user)]) -> str:
            return self.note("late quota", "5/h")

        return [Limit("5/h", key_func=early), Limit(plan, key_func=late, name="late")]

    def router(self) -> ThrottledRouter:
        """Return a router with a dependency."""

        async def dependency() -> None:
            self.note("dependency of the router")

        return ThrottledRouter(frozen(), dependencies=[Depends(dependency)])

    async def dependency(self) -> str:
        """Be a dependency of the handler."""
        return self.note("dependency of the handler")


LATE_PART = ["user of the late key", "late key", "late quota", "handler"]
ORDER = ["early key", "dependency of the router", "dependency of the handler"]


async def test_a_view_is_made_before_its_late_limits_are_decided() -> None:
    """Early, router, handler's dependencies, `__init__`, late, handler."""
    course = Course()

    class View(ThrottledView):
        throttle = course.limits()

        def __init__(self, x_user: Annotated[str, Header()] = "nobody") -> None:
            course.note("__init__")

        async def get(self, _: Annotated[str, Depends(course.dependency)]) -> None:
            course.note("handler")

    router = course.router()
    router.add_view(View, prefix="/v")

    assert [200] == await statuses(app_of(router), "GET /v")
    assert [*ORDER, "__init__", *LATE_PART] == course.ran


async def test_a_constructor_that_takes_nothing_runs_before_late_limits() -> None:
    """The order is the same if nothing is injected into a view."""
    course = Course()

    class View(ThrottledView):
        throttle = course.limits()

        def __init__(self) -> None:
            course.note("__init__")

        async def get(self, _: Annotated[str, Depends(course.dependency)]) -> None:
            course.note("handler")

    router = course.router()
    router.add_view(View, prefix="/v")

    assert [200] == await statuses(app_of(router), "GET /v")
    assert [*ORDER, "__init__", *LATE_PART] == course.ran


async def test_a_decorated_function_on_our_router_has_both_phases() -> None:
    """The same order holds, without a view to make."""
    course, limiter = Course(), frozen()

    @limiter.limit(course.limits())
    async def get(_: Annotated[str, Depends(course.dependency)]) -> None:
        course.note("handler")

    router = course.router()
    router.add_api_route("/", get)

    assert [200] == await statuses(app_of(router), "GET /")
    assert [*ORDER, *LATE_PART] == course.ran


async def test_elsewhere_all_is_decided_right_before_the_function() -> None:
    """Other routers leave no room before the dependencies."""
    course, limiter, app = Course(), frozen(), FastAPI()

    @app.get("/")
    @limiter.limit(course.limits())
    async def get(_: Annotated[str, Depends(course.dependency)]) -> None:
        course.note("handler")

    *late, handler = LATE_PART
    order = ["dependency of the handler", late[0], *sorted(late[1:]), "early key"]

    assert [200] == await statuses(app, "GET /")
    assert [*order, handler] == course.ran


# --- two decisions --------------------------------------------------------------------

BOTH: Throttle = [
    Limit("3/h", key_func=by_address, name="address"),
    Limit("2/h", key_func=by_user, name="user"),
]


def in_a_view(limiter: Limiter, throttle: Throttle) -> FastAPI:
    """Limit a view on a ThrottledRouter."""
    given = throttle

    class View(Hello):
        throttle = given

    router = ThrottledRouter(limiter)
    router.add_view(View, prefix="/v")
    return app_of(router)


def by_default(limiter: Limiter, throttle: Throttle) -> FastAPI:
    """Limit a function on a ThrottledRouter by the default of its limiter."""
    object.__setattr__(limiter, "default", throttle)
    router = ThrottledRouter(limiter)
    router.add_api_route("/v", hello)
    return app_of(router)


def decorated(limiter: Limiter, throttle: Throttle) -> FastAPI:
    """Decorate a function on a ThrottledRouter."""
    router = ThrottledRouter(limiter)
    router.add_api_route("/v", limiter.limit(throttle)(hello))
    return app_of(router)


def decorated_elsewhere(limiter: Limiter, throttle: Throttle) -> FastAPI:
    """Decorate a function on an APIRouter."""
    router = APIRouter()
    router.add_api_route("/v", limiter.limit(throttle)(hello))
    return app_of(router)


def with_a_dependency(limiter: Limiter, throttle: Throttle) -> FastAPI:
    """Limit a function by a dependency."""
    app = FastAPI()
    limited = Depends(limiter.dependency(throttle))
    app.add_api_route("/v", hello, dependencies=[limited])
    return app


Serve = Callable[[Limiter, Throttle], FastAPI]
PHASED: dict[str, Serve] = {
    "in a view": in_a_view,
    "by default": by_default,
    "decorated": decorated,
}
EVERYWHERE: dict[str, Serve] = {
    **PHASED,
    "decorated elsewhere": decorated_elsewhere,
    "with a dependency": with_a_dependency,
}
phased = pytest.mark.parametrize("serve", PHASED.values(), ids=PHASED)
everywhere = pytest.mark.parametrize("serve", EVERYWHERE.values(), ids=EVERYWHERE)


@everywhere
async def test_a_late_limit_counts_each_user(serve: Serve) -> None:
    """It knows who is logged in, whatever the address."""
    app = serve(frozen(), Limit("1/h", key_func=by_user))

    async def of(user: dict[str, str], client: str) -> int:
        [answer] = await answers(app, "GET /v", headers=user, client=client)
        return answer.status_code

    assert 200 == await of(ALICE, "192.0.2.1")
    assert 200 == await of(BOB, "192.0.2.1")
    assert 429 == await of(ALICE, "192.0.2.2")


@everywhere
async def test_who_does_not_get_in_is_not_counted_late(serve: Serve) -> None:
    """A 401 is no request of anybody, so it takes nothing from a user."""
    store = Relay()
    app = serve(Limiter(store=store), Limit("1/h", key_func=by_user))

    assert [401, 401] == await statuses(app, "GET /v", "GET /v")
    assert [] == store.calls


@phased
async def test_each_phase_is_one_call_to_the_store(serve: Serve) -> None:
    """However many limits there are, and what was decided is not decided again."""
    store = Relay()
    late = [Limit("5/h", key_func=by_user), Limit("9/d", key_func=by_user)]
    app = serve(Limiter(store=store), ["5/h", "9/d", *late])

    assert [200] == [
        answer.status_code for answer in await answers(app, "GET /v", headers=ALICE)
    ]
    assert [["1", "2"], ["3", "4"]] == [
        [charge.key.rpartition("|")[2] for charge in call] for call in store.calls
    ]


@phased
async def test_an_early_refusal_asks_for_no_user(serve: Serve) -> None:
    """Guessing passwords ends with the address's quota, before anybody looks."""
    app = serve(frozen(), BOTH)

    assert [401, 401, 401, 429] == await statuses(app, *["GET /v"] * 4)


@phased
async def test_what_was_taken_early_stays_taken_if_the_late_phase_refuses(
    serve: Serve,
) -> None:
    """Two decisions: the later one does not undo the earlier one."""
    app = serve(frozen(), BOTH)

    received = await answers(app, *["GET /v"] * 3, headers=ALICE)
    [of_bob] = await answers(app, "GET /v", headers=BOB)

    assert [200, 200, 429] == [answer.status_code for answer in received]
    assert (429, "3") == (of_bob.status_code, of_bob.headers["RateLimit-Limit"])


@everywhere
async def test_late_limits_are_charged_all_or_none(serve: Serve) -> None:
    """The one that refuses leaves the others of its phase as they were."""
    store = frozen_store()
    small = Limit("1/h", key_func=by_user, name="small")
    large = Limit("5/h", key_func=by_user, bucket="large")
    app = serve(Limiter(store=store), [large, small])
    beside = FastAPI()
    beside.get("/")(Limiter(store=store).limit(large)(hello))

    received = await answers(app, *["GET /v"] * 3, headers=ALICE)
    [left] = await answers(beside, "GET /", headers=ALICE)

    assert [200, 429, 429] == [answer.status_code for answer in received]
    assert "3" == left.headers["RateLimit-Remaining"]


async def test_elsewhere_both_are_one_decision() -> None:
    """Nothing was decided early, so nothing stays taken if the user is refused."""
    store = Relay()
    app = decorated_elsewhere(Limiter(store=store), BOTH)

    received = await answers(app, *["GET /v"] * 3, headers=ALICE)
    [of_bob] = await answers(app, "GET /v", headers=BOB)

    assert [200, 200, 429] == [answer.status_code for answer in received]
    assert 200 == of_bob.status_code
    assert [2, 2, 2, 2] == [len(call) for call in store.calls]


@phased
async def test_a_422_is_counted_early_and_not_late(serve: Serve) -> None:
    """Late is right before the handler, which such a request does not get to."""
    store = Relay()
    limiter = Limiter(store=store)

    async def post(number: Annotated[int, Body()]) -> int:
        return number

    app = serve(limiter, BOTH)
    router = ThrottledRouter(limiter)
    router.add_api_route("/", limiter.limit(BOTH)(post), methods=["POST"])
    app.include_router(router)

    [invalid] = await answers(app, "POST /", headers=ALICE, content=b'"no number"')
    [valid] = await answers(app, "POST /", headers=ALICE, content=b"5")

    assert [422, 200] == [invalid.status_code, valid.status_code]
    assert ["address", "address", "user"] == [
        key.rpartition("|")[2] for key in store.keys
    ]


# --- what is told ---------------------------------------------------------------------


@everywhere
async def test_the_fields_are_of_the_limit_nearest_to_exhaustion(serve: Serve) -> None:
    """Of both phases together, and of the one that refuses."""
    app = serve(frozen(), BOTH)

    received = await answers(app, *["GET /v"] * 3, headers=ALICE)

    assert [("2", "1"), ("2", "0"), ("2", "0")] == [
        (answer.headers["RateLimit-Limit"], answer.headers["RateLimit-Remaining"])
        for answer in received
    ]
    assert "1800" == received[2].headers["Retry-After"]


@phased
async def test_what_was_charged_early_is_told_if_the_late_phase_is_not_reached(
    serve: Serve,
) -> None:
    """A 401 has the fields of the address."""
    [answer] = await answers(serve(frozen(), BOTH), "GET /v")

    assert (401, "2") == (answer.status_code, answer.headers["RateLimit-Remaining"])


async def test_the_context_is_live() -> None:
    """A dependency sees the early results, the handler those of both phases."""
    seen: list[list[str]] = []

    async def look(rate_limit: CurrentRateLimit) -> None:
        seen.append([result.name for result in rate_limit.results])

    class View(ThrottledView):
        path = "/v"
        throttle = BOTH
        rate_limit: CurrentRateLimit

        async def get(self, _: Annotated[None, Depends(look)]) -> None:
            seen.append([result.name for result in self.rate_limit.results])

    await answers(app_of(View.as_router(frozen())), "GET /v", headers=ALICE)

    assert [["address"], ["address", "user"]] == seen


async def test_openapi_shows_what_a_late_function_takes() -> None:
    """It is a parameter of the endpoint as of any dependency, and nothing else is."""
    schema = decorated(frozen(), BOTH).openapi()

    [parameter] = schema["paths"]["/v"]["get"]["parameters"]

    assert ("header", "x-user") == (parameter["in"], parameter["name"])


# --- everyone -------------------------------------------------------------------------

ALL = Limit("2/h", key_func=everyone, name="all")


@phased
async def test_everyone_is_counted_in_the_last_phase(serve: Serve) -> None:
    """Where there is a late limit, who does not get in takes nothing from everyone."""
    app = serve(frozen(), [ALL, Limit("5/h", key_func=by_user)])

    assert [401] * 3 == await statuses(app, *["GET /v"] * 3)
    received = await answers(app, *["GET /v"] * 3, headers=ALICE)
    assert [200, 200, 429] == [answer.status_code for answer in received]


@phased
async def test_everyone_is_counted_early_if_nothing_is_late(serve: Serve) -> None:
    """The only phase is the last."""
    app = serve(frozen(), ALL)

    assert [200, 200, 429] == await statuses(app, *["GET /v"] * 3)


# --- other endpoints than coroutine functions -----------------------------------------


async def test_a_function_that_is_not_async_may_have_late_limits_by_default() -> None:
    """It is served as FastAPI does, in a thread."""

    def get(user: CurrentUser) -> str:
        return user

    class Call:
        async def __call__(self, user: CurrentUser) -> str:
            return user

    router = ThrottledRouter(frozen(Limit("1/h", key_func=by_user)))
    router.add_api_route("/function", get)
    router.add_api_route("/object", Call())
    app = app_of(router)

    for path in ("/function", "/object"):
        served, refused = await answers(app, *[f"GET {path}"] * 2, headers=ALICE)

        assert (200, "alice") == (served.status_code, served.json())
        assert 429 == refused.status_code


async def test_a_generator_may_have_late_limits_by_default() -> None:
    """What FastAPI makes of one is the same with a limit, and it is limited."""

    def get() -> Iterator[str]:
        yield "a"
        yield "b"

    free = FastAPI()
    free.add_api_route("/", get, response_model=None)
    router = ThrottledRouter(frozen(Limit("1/h", key_func=by_user)))
    router.add_api_route("/", get, response_model=None)

    [expected] = await answers(free, "GET /")
    served, refused = await answers(app_of(router), *["GET /"] * 2, headers=ALICE)

    assert (200, expected.content) == (served.status_code, served.content)
    assert expected.headers["content-type"] == served.headers["content-type"]
    assert 429 == refused.status_code


async def test_a_route_of_starlette_solves_nothing() -> None:
    """A late limit there is an error, and lets nobody in."""

    async def get(request: Request) -> None:
        pytest.fail("it was served")

    limited = frozen().limit("5/h", key_func=by_user)(get)
    app = Starlette(routes=[Route("/", limited)])

    with pytest.raises(ConfigurationError, match=r"Register the handler with @app"):
        await answers(app, "GET /")


# --- sockets --------------------------------------------------------------------------


async def user_of(connection: HTTPConnection) -> str:
    """Tell who is logged in, of any connection."""
    return connection.headers.get("X-User", "alice")


async def by_user_of(user: Annotated[str, Depends(user_of)]) -> str:
    """Name the user of any connection."""
    return user


async def accept(websocket: WebSocket) -> None:
    """Accept, and be done."""
    await websocket.accept()
    await websocket.close()


def a_socket_of_a_view(limiter: Limiter) -> FastAPI:
    """Limit a socket of a view."""

    class Socket(ThrottledView):
        @limit("1/h", key_func=by_user_of)
        @route.websocket("/")
        async def talk(self, websocket: WebSocket) -> None:
            await accept(websocket)

    return app_of(Socket.as_router(limiter))


def a_socket_by_default(limiter: Limiter) -> FastAPI:
    """Limit a socket by the default of the limiter."""
    late = Limit("1/h", key_func=by_user_of)
    object.__setattr__(limiter, "default", late)
    router = ThrottledRouter(limiter)
    router.add_api_websocket_route("/", accept)
    return app_of(router)


def a_decorated_socket(limiter: Limiter) -> FastAPI:
    """Decorate a socket of an application."""
    app = FastAPI()
    app.websocket("/")(limiter.limit("1/h", key_func=by_user_of)(accept))
    return app


@pytest.mark.parametrize(
    "serve", [a_socket_of_a_view, a_socket_by_default, a_decorated_socket]
)
async def test_a_socket_may_be_limited_late(
    serve: Callable[[Limiter], FastAPI],
) -> None:
    """Before it is accepted, by what its dependencies say."""
    app = serve(frozen())

    first, *_ = await handshake(app, "/")
    [refused] = await handshake(app, "/")

    assert "websocket.accept" == first["type"]
    assert ("websocket.close", 1008) == (refused["type"], refused["code"])


# --- outages --------------------------------------------------------------------------


@phased
async def test_a_store_that_is_down_denies_in_the_late_phase(
    serve: Serve, clock: ManualClock
) -> None:
    """Each limit has a policy, whenever it is decided."""
    store = Outage(is_down=False)
    limiter = limiter_of(store, clock)
    late = Limit("5/h", key_func=by_user, on_store_error="deny")
    app = serve(limiter, ["5/h", late])
    assert [200] == [
        each.status_code for each in await answers(app, "GET /v", headers=ALICE)
    ]

    store.is_down = True
    [denied] = await answers(app, "GET /v", headers=ALICE)
    [nobody] = await answers(app, "GET /v")

    assert (503, "1") == (denied.status_code, denied.headers["Retry-After"])
    assert 401 == nobody.status_code


@everywhere
@pytest.mark.parametrize(
    ("policy", "expected"),
    [("local", [200, 200, 429]), ("allow", [200] * 3), ("deny", [503] * 3)],
)
async def test_the_policy_of_the_limiter_holds_for_late_limits(
    serve: Serve, policy: OnStoreError, expected: list[int], clock: ManualClock
) -> None:
    """As it does for early ones."""
    limiter = limiter_of(Outage(is_down=True), clock, on_store_error=policy)
    app = serve(limiter, Limit("2/h", key_func=by_user))

    received = await answers(app, *["GET /v"] * 3, headers=ALICE)

    assert expected == [answer.status_code for answer in received]


@everywhere
async def test_a_limiter_that_is_not_enabled_decides_nothing_late(
    serve: Serve,
) -> None:
    """What FastAPI solves is solved all the same: a 401 stays a 401."""
    limiter = frozen()
    app = serve(limiter, Limit("0/h", key_func=by_user))
    limiter.enabled = False

    [served] = await answers(app, "GET /v", headers=ALICE)
    [unknown] = await answers(app, "GET /v")

    assert (200, {}) == (served.status_code, fields_of(served))
    assert 401 == unknown.status_code


# --- several limits and places --------------------------------------------------------


async def test_stacked_decorators_may_be_early_and_late() -> None:
    """The outermost has all functions solved, and each is asked once."""
    asked: list[str] = []

    async def by_plan(user: CurrentUser) -> Quota:
        asked.append(user)
        return Quota.per_hour(2)

    store = Relay()
    limiter = Limiter(store=store)

    def limited() -> AnyHandler:
        return limiter.limit("9/h")(
            limiter.limit(by_plan, name="plan")(
                limiter.limit("5/h", name="user", key_func=by_user)(hello)
            )
        )

    app = FastAPI()
    app.add_api_route("/", limited())

    received = await answers(app, *["GET /"] * 3, headers=ALICE)

    assert [200, 200, 429] == [answer.status_code for answer in received]
    assert ["alice"] * 3 == asked
    assert [3, 3, 3] == [len(call) for call in store.calls]


async def test_a_view_that_is_included_twice_shares_its_late_counts() -> None:
    """There is one count for a user, whatever the way to it."""

    class View(Hello):
        path = "/v"
        throttle = Limit("1/h", key_func=by_user)

    limiter = frozen()
    inner = View.as_router(limiter)
    outer = ThrottledRouter(limiter, prefix="/nested")
    outer.include_router(inner)
    app = app_of(inner, outer)

    [first] = await answers(app, "GET /v", headers=ALICE)
    [second] = await answers(app, "GET /nested/v", headers=ALICE)

    assert [200, 429] == [first.status_code, second.status_code]


async def test_each_limiter_gives_its_default_a_count() -> None:
    """A function on two routers is limited late by the limiter of each."""
    routers = [
        ThrottledRouter(frozen(Limit(quota, key_func=by_user)), prefix=prefix)
        for quota, prefix in (("1/h", "/one"), ("2/h", "/two"))
    ]
    for router in routers:
        router.add_api_route("/v", hello)
    app = app_of(*routers)

    received = await answers(app, *["GET /one/v", "GET /two/v"] * 2, headers=ALICE)

    assert [200, 200, 429, 200] == [answer.status_code for answer in received]


async def test_a_dependency_of_ours_counts_on_a_late_endpoint() -> None:
    """Its limit has the identity of the function, though another is served."""
    store = Relay()
    limiter = Limiter(Limit("5/h", key_func=by_user), store=store)
    router = ThrottledRouter(limiter)
    limited = Depends(limiter.dependency("9/h", key_func=by_address))
    router.add_api_route("/v", hello, dependencies=[limited])

    await answers(app_of(router), "GET /v", headers=ALICE)

    assert ["hello", "hello"] == [
        key.split("|")[2].rpartition(".")[2] for key in store.keys
    ]


async def test_a_limiter_of_users_counts_by_hand() -> None:
    """Who checks by hand names the client, so the key function is not missed."""
    throttled = Limiter(key_func=by_user).throttled("1/h")

    assert not (await throttled.limit("alice")).limited
    assert (await throttled.limit("alice")).limited
