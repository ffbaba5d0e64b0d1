"""Scenarios from public bug reports, by number: what function routes answer."""

from collections.abc import Callable, Sequence
from typing import Annotated

import httpx
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
    WebSocket,
)
from fastapi.middleware.cors import CORSMiddleware
from fastapi.responses import PlainTextResponse
from starlette.routing import Host, Mount
from starlette.testclient import TestClient

from tests.asgi import answers, app_of, fields_of, frozen, statuses
from tests.clock import ManualClock
from tests.kinds import EVERY_KIND, Kind, assert_is
from tests.ways import DECORATED, EARLY, WAYS, Way
from throttled_views import (
    Limit,
    Limiter,
    MemoryStore,
    RateLimitExceededError,
    ThrottledRouter,
    ThrottledView,
)

ways = pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
OURS = {**EARLY, **DECORATED}


async def hello() -> str:
    """Be a handler."""
    return "hello"


async def other() -> str:
    """Be another handler."""
    return "other"


def letters(received: Sequence[httpx.Response]) -> str:
    """Return A for each admitted request, D for each denied one."""
    return "".join(
        {200: "A", 429: "D"}.get(answer.status_code, "?") for answer in received
    )


# --- what the framework serves --------------------------------------------------------


@pytest.mark.parametrize("kind", EVERY_KIND.values(), ids=EVERY_KIND)
@pytest.mark.parametrize("way", OURS.values(), ids=OURS)
async def test_case_64_every_kind_of_result_has_the_fields_once(
    way: Way, kind: Kind
) -> None:
    """Status, body and headers are kept, and no parameter is needed."""
    app = way(frozen("5/min"), kind.endpoint, **kind.options)

    (answer,) = await answers(app, "GET /")

    assert_is(kind, answer)
    assert ["5"] == answer.headers.get_list("RateLimit-Limit")
    assert ["4"] == answer.headers.get_list("RateLimit-Remaining")


async def test_case_65_what_was_charged_is_seen_whatever_raises() -> None:
    """The 401, the 422 and the 404 tell what is left; the 500 cannot, and counts."""

    async def authorized(authorization: Annotated[str, Header()] = "") -> None:
        if not authorization:
            raise HTTPException(401)

    router = ThrottledRouter(frozen("5/min"), dependencies=[Depends(authorized)])

    @router.post("/")
    async def post(divisor: Annotated[int, Body()]) -> float:
        if divisor > 9:
            raise HTTPException(404)
        return 1 / divisor

    app = app_of(router)
    me = {"Authorization": "me"}

    received = [
        *await answers(app, "POST /", content=b"1"),
        *await answers(app, "POST /", content=b'"one"', headers=me),
        *await answers(app, "POST /", content=b"10", headers=me),
        *await answers(app, "POST /", content=b"0", headers=me, raising=False),
        *await answers(app, "POST /", content=b"1", headers=me),
        *await answers(app, "POST /", content=b"1", headers=me),
    ]

    assert [
        (401, "4"),
        (422, "3"),
        (404, "2"),
        (500, None),
        (200, "0"),
        (429, "0"),
    ] == [
        (answer.status_code, answer.headers.get("RateLimit-Remaining"))
        for answer in received
    ]


def early(limiter: Limiter) -> APIRouter:
    """Put the handler on a router that limits everything."""
    router = ThrottledRouter(limiter)
    router.add_api_route("/feed", hello)
    return router


def decorated(limiter: Limiter) -> APIRouter:
    """Decorate the handler."""
    router = APIRouter()
    router.add_api_route("/feed", limiter.limit()(hello))
    return router


@pytest.mark.parametrize("put", [early, decorated])
async def test_case_67_nothing_on_the_same_path_is_in_the_way(
    put: Callable[[Limiter], APIRouter],
) -> None:
    """Neither an unlimited socket, nor hosts and mounts that are asked before."""
    app = FastAPI()

    @app.websocket("/feed")
    async def socket(websocket: WebSocket) -> None:
        await websocket.accept()

    app.router.routes.append(Host("other.test", FastAPI()))
    app.router.routes.append(Mount("/static", FastAPI()))
    app.include_router(put(frozen("2/min")))

    with TestClient(app).websocket_connect("/feed"):
        pass

    assert "AAD" == letters(await answers(app, *["GET /feed"] * 3))


async def test_case_67_a_socket_beside_it_is_not_charged_to_the_request() -> None:
    """On one router, registered before it, it is another handler."""
    limiter = frozen("2/min")
    router = ThrottledRouter(limiter)

    @router.websocket("/feed")
    @limiter.limit("1/min")
    async def socket(websocket: WebSocket) -> None:
        await websocket.accept()

    router.add_api_route("/feed", hello)
    app = app_of(router)

    with TestClient(app).websocket_connect("/feed"):
        pass

    assert "AAD" == letters(await answers(app, *["GET /feed"] * 3))


class Base(ThrottledView):
    """A view to inherit from."""

    throttle = "3/min"

    async def get(self) -> str:
        """Say who answers."""
        return type(self).__name__


class A(Base):
    """Inherits all."""


class B(Base):
    """Overrides the handler."""

    async def get(self) -> str:
        """Say so."""
        return f"override of {await super().get()}"


class C(A):
    """Overrides the limit."""

    throttle = "1/min"


async def test_case_71_subclasses_on_a_router_are_views_of_their_own() -> None:
    """Each has its own handler and its own counter, and is documented once."""
    router = ThrottledRouter(frozen())
    router.add_view(A, prefix="/a")
    router.add_view(B, prefix="/b")
    router.add_view(C, prefix="/c")
    app = app_of(router)

    of_a, of_b, of_c = [
        await answers(app, *[f"GET /{name}"] * times)
        for name, times in (("a", 4), ("b", 4), ("c", 2))
    ]

    assert ("AAAD", "AAAD", "AD") == (letters(of_a), letters(of_b), letters(of_c))
    assert ["A", "override of B", "C"] == [
        each[0].json() for each in (of_a, of_b, of_c)
    ]
    assert {"/a": {"get"}, "/b": {"get"}, "/c": {"get"}} == {
        path: {*operations} for path, operations in app.openapi()["paths"].items()
    }


# --- header fields --------------------------------------------------------------------

WAITS = {0.6: "1", 11.6: "12", 0.001: "1", 59.999: "60", 60.0: "60"}


@pytest.mark.parametrize(("wait", "told"), WAITS.items(), ids=map(str, WAITS))
@ways
async def test_case_97_waits_are_rounded_up(
    way: Way, wait: float, told: str, clock: ManualClock, store: MemoryStore
) -> None:
    """Whole seconds, so that a client that obeys never comes too early."""
    app = way(Limiter("1/min", store=store), hello)
    assert [200] == await statuses(app, "GET /")
    clock.advance(60 - wait)

    (denied,) = await answers(app, "GET /")

    assert (429, told) == (denied.status_code, denied.headers["Retry-After"])
    clock.advance(float(told))
    assert [200] == await statuses(app, "GET /")


@ways
async def test_case_98_no_denial_says_zero(
    way: Way, clock: ManualClock, store: MemoryStore
) -> None:
    """The header says 1 at least; the exception has the exact time."""
    app = way(Limiter("2/s burst 1", store=store), hello)
    exact: list[float | None] = []

    @app.exception_handler(RateLimitExceededError)
    async def note(_request: Request, error: RateLimitExceededError) -> Response:
        exact.append(error.rate_limit_context.result.state.retry_after)
        return PlainTextResponse("", error.status_code, error.headers)

    assert [200] == await statuses(app, "GET /")
    clock.advance(0.1)
    (denied,) = await answers(app, "GET /")

    assert (429, "1") == (denied.status_code, denied.headers["Retry-After"])
    assert [0.4] == exact


@ways
async def test_case_98_a_quota_within_a_second_says_one(
    way: Way, store: MemoryStore
) -> None:
    """Also where everything is back long before that second is over."""
    app = way(Limiter("10/200ms", store=store), hello)

    received = await answers(app, *["GET /"] * 11)

    assert "A" * 10 + "D" == letters(received)
    assert "1" == received[-1].headers["Retry-After"]


async def test_case_101_the_tightest_limit_is_told(store: MemoryStore) -> None:
    """First that of the route, which also denies; then that of the application."""
    limiter = Limiter(store=store)
    of_app = Limit("20/min", bucket="app")
    router = ThrottledRouter(limiter)
    router.add_api_route("/", limiter.limit(["2/min", of_app])(hello))
    router.add_api_route("/drain", limiter.limit(of_app)(other))
    app = app_of(router)

    first, _, third = await answers(app, *["GET /"] * 3)
    drained = await answers(app, *["GET /drain"] * 17, client="192.0.2.1")
    (fresh,) = await answers(app, "GET /", client="192.0.2.2")

    assert ("2", "1") == (
        first.headers["RateLimit-Limit"],
        first.headers["RateLimit-Remaining"],
    )
    assert {
        "RateLimit-Limit": "2",
        "RateLimit-Remaining": "0",
        "RateLimit-Reset": "60",
        "Retry-After": "30",
    } == fields_of(third)
    assert ("A" * 17, "1") == (
        letters(drained),
        drained[-1].headers["RateLimit-Remaining"],
    )
    assert "1" == fresh.headers["RateLimit-Remaining"]


async def test_case_101_the_application_nearly_empty_is_told(
    store: MemoryStore,
) -> None:
    """With one request left for all, a fresh route says so."""
    limiter = Limiter(store=store)
    of_app = Limit("20/min", bucket="app")
    router = ThrottledRouter(limiter)
    router.add_api_route("/", limiter.limit(["2/min", of_app])(hello))
    router.add_api_route("/drain", limiter.limit(of_app)(other))
    app = app_of(router)
    await answers(app, *["GET /drain"] * 19)

    (answer,) = await answers(app, "GET /")

    assert ("20", "0") == (
        answer.headers["RateLimit-Limit"],
        answer.headers["RateLimit-Remaining"],
    )


async def test_case_101_a_denial_is_not_overwritten_from_outside() -> None:
    """Larger numbers of an outer limit do not hide that the inner one denies."""
    limiter = frozen()
    router = APIRouter(dependencies=[Depends(limiter.dependency("100/min"))])
    router.add_api_route("/", limiter.limit("1/min")(hello))

    _, denied = await answers(app_of(router), "GET /", "GET /")

    assert ("1", "0") == (
        denied.headers["RateLimit-Limit"],
        denied.headers["RateLimit-Remaining"],
    )


@ways
async def test_case_103_a_denial_has_the_fields_of_cors(way: Way) -> None:
    """A browser may read it, and what is exposed of it."""
    app = way(frozen("1/min"), hello)
    app.add_middleware(
        CORSMiddleware,
        allow_origins=["http://shop.test"],
        expose_headers=["RateLimit-Remaining", "Retry-After"],
    )

    admitted, denied = await answers(
        app, "GET /", "GET /", headers={"Origin": "http://shop.test"}
    )

    assert "AD" == letters([admitted, denied])
    for answer in (admitted, denied):
        assert "http://shop.test" == answer.headers["Access-Control-Allow-Origin"]
        assert "Origin" == answer.headers["Vary"]
        assert (
            "RateLimit-Remaining, Retry-After"
            == answer.headers["Access-Control-Expose-Headers"]
        )
        assert "0" == answer.headers["RateLimit-Remaining"]
