"""`limiter.dependency()`: limits for what cannot be decorated."""

import asyncio
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated

import pytest
from fastapi import (
    APIRouter,
    Body,
    Depends,
    FastAPI,
    Header,
    HTTPException,
    Request,
    Response,
)
from fastapi.responses import PlainTextResponse
from starlette.applications import Starlette

from tests.asgi import Relay, answers, app_of, fields_of, frozen, statuses
from tests.kinds import EVERY_KIND, Kind, assert_is
from tests.ways import DEPENDENT, Way, with_a_dependency_of_the_router
from throttled_views import (
    ConfigurationError,
    CurrentRateLimit,
    Limit,
    Limiter,
    MemoryStore,
    ThrottledRouter,
)


async def hello() -> str:
    """Be a handler."""
    return "hello"


async def other() -> str:
    """Be another handler."""
    return "other"


def responding() -> Response:
    """Be a handler that gives a response of its own."""
    return PlainTextResponse("responding")


def blocking() -> str:
    """Be a handler that FastAPI runs in a thread."""
    return "blocking"


async def names(rate_limit: CurrentRateLimit) -> list[str]:
    """Return the names of all limits that applied."""
    return [result.name for result in rate_limit.results]


# --- what it limits -------------------------------------------------------------------


@pytest.mark.parametrize("way", DEPENDENT.values(), ids=DEPENDENT)
async def test_a_sync_function_is_limited(way: Way, store: MemoryStore) -> None:
    """It stays as it is, and its responses have the fields."""
    app = way(Limiter("1/h", store=store), blocking)

    first, second = await answers(app, "GET /", "GET /")

    assert (200, "blocking") == (first.status_code, first.json())
    assert "0" == first.headers["RateLimit-Remaining"]
    assert 429 == second.status_code


async def test_each_function_has_counts_of_its_own() -> None:
    """One dependency of an application is a quota for each of its functions."""
    app = FastAPI(dependencies=[Depends(Limiter().dependency("1/h"))])
    app.add_api_route("/hello", hello)
    app.add_api_route("/other", other)

    assert [200, 200, 429, 429] == await statuses(
        app, "GET /hello", "GET /other", "GET /hello", "GET /other"
    )


async def test_one_function_has_one_count() -> None:
    """By whatever path it is reached, and wherever the dependency stands."""
    limited = Depends(Limiter().dependency("2/h"))
    router = APIRouter(dependencies=[limited])
    router.add_api_route("/items", hello)
    app = FastAPI()
    app.include_router(router, prefix="/v1")
    app.include_router(router, prefix="/v2")
    app.add_api_route("/again", hello, dependencies=[limited])

    assert [200, 200, 429, 429] == await statuses(
        app, "GET /v1/items", "GET /v2/items", "GET /again", "GET /v1/items"
    )


async def test_the_methods_of_one_route_are_one_count() -> None:
    """GET and HEAD of one handler are not two quotas."""
    app = FastAPI(dependencies=[Depends(Limiter().dependency("1/h"))])
    app.add_api_route("/", hello, methods=["GET", "HEAD"])

    assert [200, 429] == await statuses(app, "HEAD /", "GET /")


async def test_what_no_route_serves_is_not_charged() -> None:
    """A 404 and a 405 of the application cost nothing and say nothing."""
    app = FastAPI(dependencies=[Depends(Limiter().dependency("1/h"))])
    app.add_api_route("/", hello)

    missing, wrong, right = await answers(app, "GET /missing", "POST /", "GET /")

    assert [(404, {}), (405, {})] == [
        (answer.status_code, fields_of(answer)) for answer in (missing, wrong)
    ]
    assert 200 == right.status_code


async def test_a_refused_request_does_not_reach_the_function() -> None:
    """Neither do dependencies that come later run for it."""
    ran: list[str] = []

    async def later() -> None:
        ran.append("later")

    async def get() -> None:
        ran.append("function")

    limited = Depends(Limiter().dependency("0/h"))
    app = FastAPI()
    app.add_api_route("/", get, dependencies=[limited, Depends(later)])

    assert [429] == await statuses(app, "GET /")
    assert [] == ran


async def test_it_is_decided_in_its_turn() -> None:
    """What an earlier dependency refuses costs nothing; what comes later does."""

    async def refuse(authorization: Annotated[str, Header()] = "") -> None:
        if not authorization:
            raise HTTPException(401)

    async def get(n: int) -> int:
        return n

    limited = Depends(Limiter().dependency("1/h"))
    app = FastAPI()
    app.add_api_route("/", get, dependencies=[Depends(refuse), limited])

    assert [401, 401] == await statuses(app, "GET /?n=1", "GET /?n=1")
    invalid, valid = await answers(
        app, "GET /?n=one", "GET /?n=1", headers={"Authorization": "me"}
    )
    assert [422, 429] == [invalid.status_code, valid.status_code]


async def test_json_that_does_not_parse_is_not_charged() -> None:
    """FastAPI reads the body before any dependency runs."""

    async def post(number: Annotated[int, Body()]) -> int:
        return number

    app = FastAPI(dependencies=[Depends(Limiter().dependency("1/h"))])
    app.add_api_route("/", post, methods=["POST"])

    (malformed,) = await answers(app, "POST /", content=b"{")
    (valid,) = await answers(app, "POST /", content=b"5")

    assert [422, 200] == [malformed.status_code, valid.status_code]


async def test_an_override_takes_it_away() -> None:
    """`dependency_overrides` works as for any dependency, which tests may want."""
    dependency = Limiter().dependency("0/h")
    app = FastAPI(dependencies=[Depends(dependency)])
    app.add_api_route("/", hello)
    assert [429] == await statuses(app, "GET /")

    app.dependency_overrides[dependency] = lambda: None

    assert [200] == await statuses(app, "GET /")


# --- met more than once ---------------------------------------------------------------


@pytest.mark.parametrize("use_cache", [True, False])
async def test_a_dependency_that_is_met_again_charges_once(*, use_cache: bool) -> None:
    """On the application, the router, the route and the function it is one limit."""
    store = Relay()
    dependency = Limiter(store=store).dependency("5/h")
    limited = Depends(dependency, use_cache=use_cache)
    app = FastAPI(dependencies=[limited])
    router = APIRouter(dependencies=[limited])

    @router.get("/", dependencies=[limited])
    async def get(_: Annotated[object, limited]) -> None:
        """Do nothing."""

    app.include_router(router)

    received = await answers(app, *["GET /"] * 2)

    assert ["4", "3"] == [answer.headers["RateLimit-Remaining"] for answer in received]
    assert 2 == len(store.keys)


async def test_equal_dependencies_charge_no_counter_twice() -> None:
    """Two that say the same are two limits, with counters of their own."""
    store = Relay()
    limiter = Limiter(store=store)
    app = FastAPI(dependencies=[Depends(limiter.dependency("5/h"))])
    app.add_api_route("/", hello, dependencies=[Depends(limiter.dependency("5/h"))])

    received = await answers(app, *["GET /"] * 2)

    assert ["4", "3"] == [answer.headers["RateLimit-Remaining"] for answer in received]
    assert (4, 2) == (len(store.keys), len({*store.keys}))


async def test_dependencies_that_cost_differently_are_both_kept() -> None:
    """The same quota does not make one limit of two."""
    limiter = Limiter()
    app = FastAPI(dependencies=[Depends(limiter.dependency("10/h"))])
    dear = Depends(limiter.dependency("10/h", cost=10))
    app.add_api_route("/", hello, dependencies=[dear])

    assert [200, 429] == await statuses(app, "GET /", "GET /")


def choosing(quota: str) -> Callable[[Request], str]:
    """Return a quota function; all of them have one name."""

    def choose(_request: Request) -> str:
        return quota

    return choose


@pytest.mark.parametrize("quotas", [("1/h", "100/h"), ("100/h", "1/h")])
async def test_dependencies_of_quota_functions_of_one_name_are_both_kept(
    quotas: tuple[str, str],
) -> None:
    """What is limited does not depend on what functions are called."""
    limiter = Limiter()
    app = FastAPI(
        dependencies=[Depends(limiter.dependency(choosing(each))) for each in quotas]
    )
    app.add_api_route("/", hello)

    assert [200, 429] == await statuses(app, "GET /", "GET /")


async def test_different_dependencies_are_different_limits() -> None:
    """The function is held to all of them."""
    limiter = Limiter()
    app = FastAPI(dependencies=[Depends(limiter.dependency("100/h"))])
    app.add_api_route("/", names, dependencies=[Depends(limiter.dependency("1/h"))])

    first, second = await answers(app, "GET /", "GET /")

    assert ["dependency 100/h", "dependency 1/h"] == first.json()
    assert (429, "1") == (second.status_code, second.headers["RateLimit-Limit"])


async def test_a_dependency_and_a_decorator_are_different_limits() -> None:
    """Also where both say the same."""
    limiter = Limiter()
    app = FastAPI(dependencies=[Depends(limiter.dependency("5/h"))])
    app.add_api_route("/", limiter.limit("5/h")(names))

    (answer,) = await answers(app, "GET /")

    assert ["dependency 5/h", "1"] == answer.json()


async def test_dependencies_of_two_limiters_are_different_limits() -> None:
    """Each limiter counts for itself, also on one store."""
    store = Relay()
    one, two = Limiter(store=store), Limiter(store=store, prefix="two")
    app = FastAPI(dependencies=[Depends(one.dependency("100/h"))])
    app.add_api_route("/", hello, dependencies=[Depends(two.dependency("1/h"))])

    assert [200, 429] == await statuses(app, "GET /", "GET /")


async def test_one_dependency_may_be_of_several_limits() -> None:
    """They are one decision, all or nothing."""
    store = Relay()
    dependency = Limiter(store=store).dependency(["1/h", Limit("100/h", name="long")])
    app = FastAPI(dependencies=[Depends(dependency)])
    app.add_api_route("/", names)

    first, *_ = await answers(app, *["GET /"] * 3)
    peeked = await store.peek(store.calls[0])

    assert ["dependency 1/h", "long"] == first.json()
    assert [0, 99] == [each.state.remaining for each in peeked]


def test_one_dependency_does_not_say_a_thing_twice() -> None:
    """What is there twice in one list changes nothing, so it is a mistake."""
    with pytest.raises(ConfigurationError, match="5/h is declared twice"):
        Limiter().dependency(["5/h", "5/h"])


async def test_dependencies_of_one_name_are_told_apart() -> None:
    """Each is charged, whatever the others of an endpoint are called."""
    limiter = Limiter()
    app = FastAPI(
        dependencies=[
            Depends(limiter.dependency("100/h", name="api")),
            Depends(limiter.dependency("5/h", name="api", cost=4)),
            Depends(limiter.dependency("5/h", name="api")),
        ]
    )
    app.add_api_route("/", names)

    first, second = await answers(app, "GET /", "GET /")

    assert ["api", "api #2", "api #3"] == first.json()
    assert (429, "5") == (second.status_code, second.headers["RateLimit-Limit"])


async def test_a_refusal_gives_back_what_other_dependencies_took() -> None:
    """A refused request is charged nothing, however many dependencies there are."""
    limiter = Limiter()
    app = FastAPI(
        dependencies=[
            Depends(limiter.dependency("3/h")),
            Depends(limiter.dependency("1/d", key_func=one_of_two)),
        ]
    )
    app.add_api_route("/", hello)

    refused = await statuses(app, *["GET /?who=a"] * 9)
    other = await answers(app, "GET /?who=b")

    assert [200, *[429] * 8] == refused
    assert [200] == [answer.status_code for answer in other]


def one_of_two(request: Request) -> str:
    """Tell clients apart by what they say."""
    return request.query_params["who"]


async def test_one_dependency_may_have_two_limits_of_one_quota() -> None:
    """They differ in something, so both are kept."""
    dependency = Limiter().dependency([Limit("10/h"), Limit("10/h", cost=10)])
    app = FastAPI(dependencies=[Depends(dependency)])
    app.add_api_route("/", hello)

    assert [200, 429] == await statuses(app, "GET /", "GET /")


# --- wherever it is -------------------------------------------------------------------


def included(router: APIRouter) -> FastAPI:
    """Include it."""
    return app_of(router)


def nested(router: APIRouter) -> FastAPI:
    """Include it in a router with a prefix."""
    outer = APIRouter(prefix="/v1")
    outer.include_router(router, prefix="/v2")
    return app_of(outer)


def mounted(router: APIRouter) -> FastAPI:
    """Include it in an application that is mounted."""
    app = FastAPI()
    app.mount("/v1", app_of(router))
    return app


def included_with_the_dependency(router: APIRouter) -> FastAPI:
    """Include it once more with the same dependency."""
    app = FastAPI()
    app.include_router(router, prefix="/v1", dependencies=router.dependencies)
    return app


PLACES: dict[str, tuple[Callable[[APIRouter], Starlette], str]] = {
    "included": (included, "/items"),
    "nested": (nested, "/v1/v2/items"),
    "in a mounted application": (mounted, "/v1/items"),
    "included with it again": (included_with_the_dependency, "/v1/items"),
}
places = pytest.mark.parametrize(("put", "path"), PLACES.values(), ids=PLACES)


@places
async def test_a_router_with_it_is_limited_wherever_it_is_included(
    put: Callable[[APIRouter], Starlette], path: str, store: MemoryStore
) -> None:
    """No inclusion loses the dependency, or doubles what it charges."""
    limiter = Limiter(store=store)
    router = APIRouter(
        prefix="/items", dependencies=[Depends(limiter.dependency("2/h"))]
    )
    router.add_api_route("", blocking)

    received = await answers(put(router), *[f"GET {path}"] * 3)

    assert [(200, "1"), (200, "0"), (429, "0")] == [
        (answer.status_code, answer.headers["RateLimit-Remaining"])
        for answer in received
    ]


@places
async def test_a_throttled_router_takes_it_for_a_limit(
    put: Callable[[APIRouter], Starlette], path: str, store: MemoryStore
) -> None:
    """Its routes are limited by it, so they need no default."""
    limiter = Limiter(store=store)
    router = ThrottledRouter(
        limiter, prefix="/items", dependencies=[Depends(limiter.dependency("2/h"))]
    )
    router.add_api_route("", blocking)

    received = await answers(put(router), *[f"GET {path}"] * 3)

    assert [(200, "1"), (200, "0"), (429, "0")] == [
        (answer.status_code, answer.headers["RateLimit-Remaining"])
        for answer in received
    ]


@pytest.mark.parametrize("answer", [blocking, responding], ids=["value", "response"])
async def test_an_inclusion_may_limit_what_is_exempt(
    answer: Callable[[], object],
) -> None:
    """The fields are on whatever is the response, as on any other route."""
    limiter = Limiter()
    router, app = ThrottledRouter(limiter), FastAPI()

    def unlimited() -> object:
        return answer()

    router.add_api_route("/", limiter.exempt(unlimited), response_model=None)
    app.include_router(router, dependencies=[Depends(limiter.dependency("2/h"))])
    app.include_router(router, prefix="/free")

    received = await answers(app, *["GET /"] * 3, "GET /free/")

    assert [(200, "1"), (200, "0"), (429, "0"), (200, None)] == [
        (answer.status_code, answer.headers.get("RateLimit-Remaining"))
        for answer in received
    ]


async def test_a_route_of_a_throttled_router_may_have_it_itself() -> None:
    """Also as a parameter of a function that is sync."""
    limiter = Limiter()
    router = ThrottledRouter(limiter)
    limited = Depends(limiter.dependency("1/h"))

    @router.get("/")
    def get(_: Annotated[object, limited]) -> None:
        """Do nothing."""

    assert [200, 429] == await statuses(app_of(router), "GET /", "GET /")


@pytest.mark.parametrize("kind", EVERY_KIND.values(), ids=EVERY_KIND)
async def test_a_throttled_router_tells_of_it_on_every_kind_of_response(
    kind: Kind, store: MemoryStore
) -> None:
    """The route knows that it is limited, and tells where nothing else can."""
    limiter = Limiter(store=store)
    router = ThrottledRouter(limiter, dependencies=[Depends(limiter.dependency("2/h"))])
    router.add_api_route("/", kind.endpoint, **kind.options)

    (answer,) = await answers(app_of(router), "GET /")

    assert_is(kind, answer)
    assert {
        "RateLimit-Limit": "2",
        "RateLimit-Remaining": "1",
        "RateLimit-Reset": "1800",
    } == fields_of(answer)


async def test_a_throttled_router_tells_of_it_whatever_a_handler_of_the_user_answers(
    store: MemoryStore,
) -> None:
    """A refusal of a dependency keeps its fields there, too."""
    limiter = Limiter(store=store)
    router = ThrottledRouter(limiter, dependencies=[Depends(limiter.dependency("1/h"))])
    router.add_api_route("/", hello)
    app = app_of(router)

    @app.exception_handler(429)
    async def later(_request: Request, _error: Exception) -> Response:
        return PlainTextResponse("later", 503)

    _, refused = await answers(app, "GET /", "GET /")

    assert (503, "later", "3600") == (
        refused.status_code,
        refused.text,
        refused.headers["Retry-After"],
    )


async def test_a_dependency_of_a_dependency_limits_a_throttled_router() -> None:
    """However deep it is, it runs for each request."""
    limiter = Limiter()
    limited = Depends(limiter.dependency("1/h"))

    async def user(_: Annotated[object, limited]) -> str:
        return "user"

    router = ThrottledRouter(limiter, dependencies=[Depends(user)])
    router.add_api_route("/", blocking)

    assert [200, 429] == await statuses(app_of(router), "GET /", "GET /")


async def test_it_comes_on_top_of_what_a_throttled_router_limits_to() -> None:
    """The default is decided early, the dependency in its turn; both are kept."""
    limiter = Limiter("100/h")
    router = ThrottledRouter(limiter, dependencies=[Depends(limiter.dependency("2/h"))])
    router.add_api_route("/", names)

    first, second, third = await answers(app_of(router), *["GET /"] * 3)

    assert ["1", "dependency 2/h"] == first.json()
    assert [("2", "1"), ("2", "0"), ("2", "0")] == [
        (answer.headers["RateLimit-Limit"], answer.headers["RateLimit-Remaining"])
        for answer in (first, second, third)
    ]
    assert 429 == third.status_code


# --- options --------------------------------------------------------------------------


async def test_it_takes_the_options_of_a_limit() -> None:
    """Key function, cost, name and bucket are as they are elsewhere."""

    def by_tenant(request: Request) -> str:
        return request.headers["X-Tenant"]

    dependency = Limiter().dependency("4/h", key_func=by_tenant, cost=2, name="pages")
    app = FastAPI(dependencies=[Depends(dependency)])
    app.add_api_route("/", names)

    async def of(tenant: str) -> list[int]:
        received = await answers(app, *["GET /"] * 3, headers={"X-Tenant": tenant})
        assert ["pages"] == received[0].json()
        return [answer.status_code for answer in received]

    assert [200, 200, 429] == await of("one")
    assert [200, 200, 429] == await of("two")


async def test_a_bucket_is_shared_by_all_functions_it_limits() -> None:
    """So a router can be limited as a whole."""
    dependency = Limiter().dependency("2/h", bucket="all")
    router = APIRouter(dependencies=[Depends(dependency)])
    router.add_api_route("/hello", hello)
    router.add_api_route("/other", blocking, methods=["POST"])

    assert [200, 200, 429, 429] == await statuses(
        app_of(router), "GET /hello", "POST /other", "GET /hello", "POST /other"
    )


@pytest.fixture(name="_hectic")
def hectic_fixture() -> Iterator[None]:
    """Let threads take turns as often as they can."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval)


@pytest.mark.usefixtures("_hectic")
def test_the_first_requests_of_several_threads_are_counted_together() -> None:
    """Whoever comes first, a dependency has one count for its endpoint."""
    for _ in range(10):
        app = with_a_dependency_of_the_router(frozen("1/min"), hello)
        together = threading.Barrier(8)

        def run(app: FastAPI = app, together: threading.Barrier = together) -> int:
            together.wait()
            return asyncio.run(statuses(app, "GET /")).count(200)

        with ThreadPoolExecutor(8) as threads:
            admitted = [threads.submit(run) for _ in range(8)]

        assert 1 == sum(each.result() for each in admitted)
