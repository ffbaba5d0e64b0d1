"""Limits of a whole application: what they count, and what they say of it."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any, cast

import httpx
import pytest
from fastapi import Depends, FastAPI, HTTPException, Query, Request, Response
from fastapi.middleware.cors import CORSMiddleware
from fastapi.responses import PlainTextResponse, StreamingResponse
from fastapi.staticfiles import StaticFiles
from fastapi.testclient import TestClient
from starlette.applications import Starlette
from starlette.exceptions import HTTPException as StarletteHTTPException
from starlette.middleware.base import BaseHTTPMiddleware, RequestResponseEndpoint
from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tests.asgi import (
    Relay,
    answers,
    app_of,
    fields_of,
    frozen,
    frozen_store,
    http_scope,
    sent,
    statuses,
)
from tests.outages import Outage
from tests.ways import DECORATED, EARLY, WAYS, Way
from throttled_views import (
    EXEMPT,
    ConfigurationError,
    CurrentRateLimit,
    Exempt,
    IETFHeaders,
    InvalidKeyError,
    InvalidQuotaError,
    KeyFunc,
    Limit,
    LimitedError,
    Limiter,
    MemoryStore,
    OnStoreError,
    Quota,
    RateLimitExceededError,
    RateLimitMiddleware,
    Receipt,
    RegistrationError,
    Throttle,
    ThrottledRouter,
    ThrottledView,
    ThrottledViewsError,
    by_template,
    client_ip,
    everyone,
    exempt,
    get_remote_address,
    rate_limit_exceeded_handler,
)

ways = pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)

REFUSED = {
    "RateLimit-Limit": "1",
    "RateLimit-Remaining": "0",
    "RateLimit-Reset": "3600",
    "Retry-After": "3600",
}


async def hello() -> str:
    """Be a handler."""
    return "hello"


def limited(
    app: FastAPI, throttle: Throttle | None, limiter: Limiter | None = None
) -> FastAPI:
    """Return *app* with the middleware."""
    app.add_middleware(
        RateLimitMiddleware, limiter=limiter or frozen(), throttle=throttle
    )
    return app


def app_of_hello(throttle: Throttle, limiter: Limiter | None = None) -> FastAPI:
    """Return a limited application with one route of its own."""
    app = FastAPI()
    app.add_api_route("/", hello)
    return limited(app, throttle, limiter)


def told(*received: httpx.Response) -> list[tuple[int, str | None]]:
    """Return the status of answers, and what they say is left."""
    return [
        (answer.status_code, answer.headers.get("RateLimit-Remaining"))
        for answer in received
    ]


# --- what is counted ------------------------------------------------------------------

REQUESTS = {
    "GET /plain": 200,
    "GET /limited": 200,
    "GET /exempt": 200,
    "GET /static/a.txt": 200,
    "GET /static/missing.txt": 404,
    "GET /mounted/plain": 200,
    "GET /nowhere": 404,
    "POST /plain": 405,
    "GET /plain/": 307,
    "GET /validated": 422,
    "GET /broken": 500,
}


def app_of_everything(directory: Path) -> FastAPI:
    """Return an application that can answer all of these requests."""

    class Exempt(ThrottledView):
        path = "/exempt"

        @exempt
        async def get(self) -> None:
            pass

    async def validated(number: Annotated[int, Query()]) -> int:
        return number

    async def broken() -> None:
        raise ZeroDivisionError

    (directory / "a.txt").write_text("a", "utf-8")
    router, mounted = ThrottledRouter(frozen("100/h")), FastAPI()
    router.add_api_route("/limited", hello)
    router.add_view(Exempt)
    mounted.add_api_route("/plain", hello)
    app = app_of(router)
    app.add_api_route("/plain", hello)
    app.add_api_route("/validated", validated)
    app.add_api_route("/broken", broken)
    app.mount("/static", StaticFiles(directory=directory))
    app.mount("/mounted", mounted)
    return app


@pytest.mark.parametrize(("request_", "status"), REQUESTS.items(), ids=REQUESTS)
async def test_whatever_answers_is_counted_once(
    request_: str, status: int, tmp_path: Path
) -> None:
    """Routes, files, mounts and errors alike, and `@exempt` does not reach it."""
    store = Relay()
    app = limited(app_of_everything(tmp_path), "1/h", Limiter(store=store))

    assert [status, 429] == await statuses(app, request_, request_)
    assert 2 == len(store.keys)


@pytest.mark.parametrize(
    "request_", [each for each in REQUESTS if "broken" not in each]
)
async def test_whatever_answers_tells(request_: str, tmp_path: Path) -> None:
    """The fields are there once, also where no route is; a 500 is made further out."""
    app = limited(app_of_everything(tmp_path), "5/h")

    (answer,) = await answers(app, request_)

    assert ["4"] == answer.headers.get_list("RateLimit-Remaining")


async def test_all_requests_share_one_count() -> None:
    """What one path takes, another one lacks."""
    app = app_of_hello("2/h")

    assert [200, 404, 429] == await statuses(app, "GET /", "GET /missing", "GET /")


async def test_templates_do_not_matter() -> None:
    """Where routes are counted by theirs, the application is still one."""
    limiter = Limiter(store=frozen_store(), route_key=by_template)
    app = app_of_hello("2/h", limiter)

    assert [200, 404, 429] == await statuses(app, "GET /", "GET /missing", "GET /")


async def test_each_client_has_a_count() -> None:
    """As everywhere, the limiter's key function names it."""
    app = app_of_hello("1/h")

    assert [200, 429] == await statuses(app, "GET /", "GET /", client="192.0.2.1")
    assert [200, 429] == await statuses(app, "GET /", "GET /", client="192.0.2.2")


async def test_a_refused_request_reaches_nothing() -> None:
    """Neither its body is read, nor its handler called."""
    called: list[str] = []

    async def post(text: str) -> None:
        called.append(text)

    app = limited(FastAPI(), "0/h")
    app.add_api_route("/", post, methods=["POST"])

    start, body = await sent(app, http_scope(method="POST"))

    assert (429, b'{"detail":"Rate limit exceeded"}') == (start["status"], body["body"])
    assert [] == called


def for_nobody(_request: HTTPConnection) -> str | None:
    """Be a key function that exempts everybody."""
    return None


def cost_of_one(_request: HTTPConnection) -> int:
    """Be a cost function."""
    return 1


def two(_request: HTTPConnection) -> str:
    """Be a quota function."""
    return "2/h"


def unlimited(_request: HTTPConnection) -> Exempt:
    """Be a quota function that exempts everybody."""
    return EXEMPT


THROTTLES: dict[str, tuple[Throttle, str]] = {
    "a text": ("2/h", "AAD"),
    "a quota": (Quota.per_hour(2), "AAD"),
    "several": ("2/h; 100/d", "AAD"),
    "a list": (["2/h", Limit("100/d", cost=34)], "AAD"),
    "a cost": (Limit("5/h", cost=2), "AAD"),
    "a cost function": (Limit("2/h", cost=cost_of_one), "AAD"),
    "all clients": (Limit("2/h", key_func=everyone), "AAD"),
    "a key function that exempts": (Limit("2/h", key_func=for_nobody), "AAA"),
    "a quota function": (two, "AAD"),
    "a quota function that exempts": (Limit(unlimited), "AAA"),
    "an exemption": (EXEMPT, "AAA"),
}


@pytest.mark.parametrize(("throttle", "letters"), THROTTLES.values(), ids=THROTTLES)
async def test_it_takes_what_a_view_takes(throttle: Throttle, letters: str) -> None:
    """All forms of a throttle limit an application, too."""
    codes = await statuses(app_of_hello(throttle), *["GET /"] * 3)

    assert [{"A": 200, "D": 429}[letter] for letter in letters] == codes


async def test_equal_quotas_with_different_keys_are_counted_apart() -> None:
    """Each has a name of its own in keys and fields."""

    def by_path(request: HTTPConnection) -> str:
        return request.url.path

    store = Relay()
    limiter = Limiter(store=store, headers=IETFHeaders())
    by: list[Limit | str] = [
        Limit("9/h", key_func=by_path),
        "9/h",
        Limit("8/h", name="own"),
    ]
    (answer,) = await answers(app_of_hello(by, limiter), "GET /")

    assert (
        '"app 9/h";q=9;w=3600, "app 9/h #2";q=9;w=3600, "own";q=8;w=3600'
        == answer.headers["RateLimit-Policy"]
    )
    assert 3 == len(set(store.keys))


async def test_it_shares_a_bucket_with_routes() -> None:
    """A request to one of them is charged once, and others of the bucket add up."""
    store = Relay()
    limiter, of_all = Limiter(store=store), Limit("3/h", bucket="all")
    app = app_of_hello(of_all, limiter)
    app.add_api_route("/limited", limiter.limit(of_all)(hello))

    received = await answers(app, "GET /limited", "GET /", "GET /limited", "GET /")

    assert [(200, "2"), (200, "1"), (200, "0"), (429, "0")] == told(*received)
    assert 4 == len(store.keys)


async def test_without_a_limiter_it_shares_that_of_the_process() -> None:
    """As everywhere where none is given."""
    app = FastAPI()
    app.add_middleware(RateLimitMiddleware, throttle=Limit("1/h", name="of a test"))

    assert [404, 429] == await statuses(app, "GET /", "GET /", client="203.0.113.77")


async def test_a_limiter_that_is_not_enabled_limits_nothing() -> None:
    """It may be set at any time."""
    limiter = frozen()
    app = app_of_hello("1/h", limiter)

    limiter.enabled = False
    (first, *_) = received = await answers(app, *["GET /"] * 3)

    assert ([200] * 3, {}) == (
        [each.status_code for each in received],
        fields_of(first),
    )
    limiter.enabled = True
    assert [200, 429] == await statuses(app, *["GET /"] * 2)


# --- with the limits of routes --------------------------------------------------------


@ways
async def test_the_fields_tell_what_is_nearest_to_exhaustion(way: Way) -> None:
    """There is one set of fields, for the application and the route together."""
    app = limited(way(frozen("100/h"), hello), "3/h")
    (first,) = await answers(app, "GET /")
    assert ["2"] == first.headers.get_list("RateLimit-Remaining")

    app = limited(way(frozen("3/h"), hello), "100/h")
    (first,) = await answers(app, "GET /")
    assert ["2"] == first.headers.get_list("RateLimit-Remaining")


@ways
async def test_the_fields_tell_what_is_violated(way: Way) -> None:
    """A limit that refuses governs, be it of the route or of the application."""
    app = limited(way(frozen("1/h"), hello), "100/h")
    _, refused = await answers(app, "GET /", "GET /")
    assert (429, REFUSED) == (refused.status_code, fields_of(refused))

    app = limited(way(frozen("100/h"), hello), "1/h")
    _, refused = await answers(app, "GET /", "GET /")
    assert (429, REFUSED) == (refused.status_code, fields_of(refused))


@ways
async def test_a_handler_sees_the_results_of_both(way: Way) -> None:
    """The context is one, the application's limits first."""

    async def tell(rate_limit: CurrentRateLimit) -> list[int]:
        return [each.state.limit for each in rate_limit.results]

    app = limited(way(frozen("3/h"), tell), "100/h")
    (answer,) = await answers(app, "GET /")

    assert [100, 3] == answer.json()


async def test_a_route_without_a_limit_sees_the_result_of_the_application() -> None:
    """There is a result wherever a limit applied."""

    async def tell(rate_limit: CurrentRateLimit) -> str:
        return rate_limit.result.name

    app = limited(FastAPI(), "3/h")
    app.add_api_route("/", tell)

    (answer,) = await answers(app, "GET /")

    assert "app 3/h" == answer.json()


async def test_fields_of_a_handler_are_kept() -> None:
    """What the application says itself is not contradicted."""

    async def tell() -> Response:
        return Response(headers={"RateLimit-Limit": "7", "Vary": "Accept"})

    app = limited(FastAPI(), "3/h")
    app.add_api_route("/", tell)

    (answer,) = await answers(app, "GET /")

    assert ["7"] == answer.headers.get_list("RateLimit-Limit")
    assert ["2"] == answer.headers.get_list("RateLimit-Remaining")
    assert "Accept" == answer.headers["Vary"]


@pytest.mark.parametrize("way", EARLY.values(), ids=EARLY)
async def test_what_a_route_refuses_early_costs_the_application_nothing(
    way: Way,
) -> None:
    """Both are one decision, all or nothing: nothing was done in between."""
    app = limited(way(frozen("1/h"), hello), "5/h")
    await answers(app, *["GET /"] * 9)

    (answer,) = await answers(app, "GET /missing")

    assert (404, "3") == (answer.status_code, answer.headers["RateLimit-Remaining"])


@pytest.mark.parametrize("way", DECORATED.values(), ids=DECORATED)
async def test_what_a_route_refuses_later_is_counted(way: Way) -> None:
    """By then the request was read, and its dependencies have run."""
    app = limited(way(frozen("1/h"), hello), "5/h")
    await answers(app, *["GET /"] * 3)

    (answer,) = await answers(app, "GET /missing")

    assert (404, "1") == (answer.status_code, answer.headers["RateLimit-Remaining"])


# --- several of them ------------------------------------------------------------------


def mounted(inner: ASGIApp) -> FastAPI:
    """Return an application with *inner* at /inner."""
    app = FastAPI()
    app.mount("/inner", inner)
    return app


async def test_an_application_in_another_is_charged_once() -> None:
    """Both have the middleware, and share a limiter."""
    store = Relay()
    limiter = Limiter(store=store)
    app = limited(mounted(app_of_hello("2/h", limiter)), "2/h", limiter)

    received = await answers(app, *["GET /inner/"] * 3)

    assert [(200, "1"), (200, "0"), (429, "0")] == told(*received)
    assert 3 == len(store.keys)


async def test_unequal_limits_of_an_application_in_another_both_hold() -> None:
    """What the inner one refuses is not counted by the outer one."""
    limiter = frozen()
    app = limited(mounted(app_of_hello("1/h", limiter)), "3/h", limiter)

    received = await answers(app, *["GET /inner/"] * 3, "GET /missing")

    assert [(200, "0"), (429, "0"), (429, "0"), (404, "1")] == told(*received)
    assert REFUSED == fields_of(received[1])


async def test_fields_of_an_application_in_another_are_there_once() -> None:
    """The outer one writes, with what the inner one decided."""
    app = limited(mounted(limited(FastAPI(), "2/h")), "100/h")

    (answer,) = await answers(app, "GET /inner/missing")

    assert ["1"] == answer.headers.get_list("RateLimit-Remaining")


class Copying:
    """A middleware that hands a copy of the scope on."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a copy."""
        await self.app({**scope}, receive, send)


@ways
async def test_a_copy_of_the_scope_is_of_the_same_request(way: Way) -> None:
    """Other middleware may copy it on the way, and nothing gets lost."""
    app = way(frozen("1/h"), hello)
    app.add_middleware(Copying)
    app = limited(app, "100/h")

    first, refused = await answers(app, "GET /", "GET /")

    assert ["0"] == first.headers.get_list("RateLimit-Remaining")
    assert (429, REFUSED) == (refused.status_code, fields_of(refused))


@pytest.mark.parametrize("way", EARLY.values(), ids=EARLY)
async def test_a_request_that_a_handler_makes_is_another_one(way: Way) -> None:
    """A copy that a handler hands to another application is charged there anew."""
    inner = way(frozen("5/h"), hello)
    app, router = FastAPI(), ThrottledRouter(frozen("9/h"))

    @router.get("/outer")
    async def outer(request: Request) -> list[int]:
        scopes = [{**request.scope, "path": "/"} for _ in range(2)]
        served = [await sent(inner, scope) for scope in scopes]
        return [messages[0]["status"] for messages in served]

    app.include_router(router)
    (answer,) = await answers(limited(app, "100/h"), "GET /outer")

    assert ([200, 200], "8") == (answer.json(), answer.headers["RateLimit-Remaining"])
    (after,) = await answers(inner, "GET /")
    assert "2" == after.headers["RateLimit-Remaining"]


# --- refusals -------------------------------------------------------------------------

BY_HANDLER = "by a handler of the user"


def in_a_thread(_request: Request, _error: Exception) -> Response:
    """Answer without any field, as a function that is run in a thread."""
    return PlainTextResponse(BY_HANDLER, 503)


async def on_the_loop(_request: Request, _error: Exception) -> Response:
    """Answer without any field."""
    return PlainTextResponse(BY_HANDLER, 503)


REGISTERED: dict[str, int | type[Exception]] = {
    "RateLimitExceededError": RateLimitExceededError,
    "LimitedError": LimitedError,
    "ThrottledViewsError": ThrottledViewsError,
    "HTTPException": HTTPException,
    "HTTPException of Starlette": StarletteHTTPException,
    "429": 429,
}
registered = pytest.mark.parametrize("what", REGISTERED.values(), ids=REGISTERED)
handled = pytest.mark.parametrize(
    "handler", [in_a_thread, on_the_loop], ids=["sync", "async"]
)


def added(app: FastAPI) -> ASGIApp:
    """Add the middleware to the application."""
    return limited(app, "1/h")


def around(app: FastAPI) -> ASGIApp:
    """Put the middleware around the application."""
    return RateLimitMiddleware(app, limiter=frozen(), throttle="1/h")


def around_a_mounted_one(app: FastAPI) -> ASGIApp:
    """Put it around an application, whose path is the whole of another one."""
    outer = FastAPI()
    outer.mount("/", around(app))
    return outer


PLACES = {
    "added": added,
    "around": around,
    "around a mounted one": around_a_mounted_one,
}
placed = pytest.mark.parametrize("place", PLACES.values(), ids=PLACES)


@placed
@registered
@handled
async def test_a_handler_of_the_user_wins_and_the_fields_stay(
    place: Callable[[FastAPI], ASGIApp],
    what: int | type[Exception],
    handler: Callable[[Request, Exception], Response],
) -> None:
    """The application's exception handlers answer, wherever the middleware is."""
    app = FastAPI()
    app.add_api_route("/", hello)
    app.add_exception_handler(what, handler)

    _, refused = await answers(place(app), "GET /", "GET /")

    assert (503, BY_HANDLER) == (refused.status_code, refused.text)
    assert REFUSED == fields_of(refused)


@placed
async def test_without_a_handler_it_is_answered_as_by_a_route(
    place: Callable[[FastAPI], ASGIApp],
) -> None:
    """There is nothing to register."""
    app = FastAPI()
    app.add_api_route("/", hello)

    first, refused = await answers(place(app), "GET /", "GET /")

    assert 200 == first.status_code
    assert (429, {"detail": "Rate limit exceeded"}) == (
        refused.status_code,
        refused.json(),
    )
    assert "application/json" == refused.headers["Content-Type"]
    assert REFUSED == fields_of(refused)


async def test_a_handler_finds_its_application_in_the_request() -> None:
    """Also where the middleware is around it, which is served first."""

    async def name_it(request: Request, _error: Exception) -> Response:
        return PlainTextResponse(request.app.title)

    app = FastAPI(title="inner")
    app.add_exception_handler(429, name_it)
    (refused,) = await answers(
        limited(mounted(RateLimitMiddleware(app, throttle="0/h")), None), "GET /inner/"
    )

    assert "inner" == refused.text


async def test_an_application_of_another_kind_is_limited() -> None:
    """It needs to be no more than ASGI; then it is answered as FastAPI does."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await PlainTextResponse("served")(scope, receive, send)

    served = RateLimitMiddleware(app, limiter=frozen(), throttle="1/h")
    first, refused = await answers(served, "GET /", "GET /")

    assert ("served", "0") == (first.text, first.headers["RateLimit-Remaining"])
    assert {"detail": "Rate limit exceeded"} == refused.json()


async def test_a_starlette_application_renders_as_it_renders_exceptions() -> None:
    """Where FastAPI has no handler the refusal is Starlette's, and has all fields."""
    app = Starlette()
    app.add_middleware(RateLimitMiddleware, limiter=frozen(), throttle="0/h")

    (refused,) = await answers(app, "GET /")

    assert (429, "Rate limit exceeded") == (refused.status_code, refused.text)
    assert "0" == refused.headers["RateLimit-Limit"]


async def test_it_gives_problem_details_where_the_limiter_does() -> None:
    """They name the limit that refuses."""
    limiter = Limiter(problem_details=True)

    (refused,) = await answers(app_of_hello("0/h", limiter), "GET /")

    assert "application/problem+json" == refused.headers["Content-Type"]
    assert ["app 0/h"] == refused.json()["violated-policies"]


# --- functions of the user ------------------------------------------------------------


class UnknownTenantError(Exception):
    """Answered by a handler of the application."""


def unknown(_request: Request) -> str:
    """Raise what the application answers."""
    raise UnknownTenantError


def unauthorized(_request: HTTPConnection) -> str:
    """Raise what FastAPI answers."""
    raise HTTPException(401, headers={"WWW-Authenticate": "Basic"})


async def test_what_a_key_function_raises_is_the_applications_to_answer() -> None:
    """As if a route had raised it; what nobody answers is a 500."""
    app = app_of_hello(Limit("5/h", key_func=unauthorized))
    (answer,) = await answers(app, "GET /")
    assert (401, "Basic") == (answer.status_code, answer.headers["WWW-Authenticate"])

    app = app_of_hello(Limit("5/h", key_func=unknown))
    assert [500] == await statuses(app, "GET /")
    with pytest.raises(UnknownTenantError):
        await answers(app, "GET /")
    app = app_of_hello(Limit("5/h", key_func=unknown))
    app.add_exception_handler(UnknownTenantError, on_the_loop)
    assert [503] == await statuses(app, "GET /")


async def test_an_empty_key_is_an_error() -> None:
    """Never one big bucket, and never a way around."""

    def empty(_request: Request) -> str:
        return ""

    app = app_of_hello(Limit("5/h", key_func=empty))

    with pytest.raises(InvalidKeyError):
        await answers(app, "GET /")


async def by_user(user: Annotated[str, Depends(hello)]) -> str:
    """Name a user."""
    return user


async def quota_of(user: Annotated[str, Depends(hello)]) -> str:
    """Choose a quota."""
    return "5/h"


async def cost_of(user: Annotated[str, Depends(hello)]) -> int:
    """Tell a cost."""
    return 1


LATE: dict[str, tuple[Throttle, KeyFunc]] = {
    "by_user": (Limit("5/h", key_func=by_user), client_ip),
    "by_user of the limiter": ("5/h", by_user),
    "quota_of": (quota_of, client_ip),
    "cost_of": (["5/m", Limit("5/h", cost=cost_of)], client_ip),
}


@pytest.mark.parametrize(("throttle", "key_func"), LATE.values(), ids=LATE)
def test_what_fastapi_would_have_to_solve_is_refused(
    throttle: Throttle, key_func: KeyFunc
) -> None:
    """No route is known yet; it says so when it is made, and what to write."""
    limiter = Limiter(key_func=key_func)

    with pytest.raises(
        RegistrationError, match=r"(by_user|quota_of|cost_of) takes what"
    ):
        RateLimitMiddleware(FastAPI(), limiter=limiter, throttle=throttle)


def test_the_refusal_of_a_late_function_says_what_to_write() -> None:
    """One sentence for what is wrong, and one for what helps."""
    with pytest.raises(RegistrationError) as caught:
        RateLimitMiddleware(FastAPI(), throttle=Limit("5/h", key_func=by_user))

    assert (
        "RateLimitMiddleware: by_user takes what FastAPI solves for routes, and it "
        "runs before there is one. Give the limit a function that takes the "
        "connection, for example Limit('5/h', key_func=client_ip)"
    ) == str(caught.value)


def test_a_late_function_of_the_limiter_may_be_for_routes_alone() -> None:
    """A limit with a key function of its own is early; and there may be no limit."""
    limiter = Limiter(key_func=by_user)
    RateLimitMiddleware(FastAPI(), limiter=limiter)
    RateLimitMiddleware(
        FastAPI(), limiter=limiter, throttle=Limit("5/h", key_func=client_ip)
    )


def test_a_text_that_is_no_quota_is_refused() -> None:
    """When it is made, which an application does before it serves."""
    app = limited(FastAPI(), "lots")

    with pytest.raises(InvalidQuotaError), TestClient(app):
        pass


# --- while the store is unavailable ---------------------------------------------------

POLICIES: dict[OnStoreError, list[int]] = {
    "local": [200, 429, 429],
    "allow": [200, 200, 200],
    "deny": [503, 503, 503],
}


@pytest.mark.parametrize(("policy", "codes"), POLICIES.items(), ids=POLICIES)
@pytest.mark.parametrize(
    "throttle", ["1/h", "1/h; 9/h"], ids=["one limit", "two limits"]
)
async def test_it_follows_the_policy_of_an_outage(
    policy: OnStoreError, codes: list[int], throttle: str
) -> None:
    """Counted here, admitted, or denied with a 503 that says when to come back."""
    store = Outage(is_down=True)
    app = app_of_hello(throttle, Limiter(store=store, on_store_error=policy))

    received = await answers(app, *["GET /"] * 3)

    assert codes == [answer.status_code for answer in received]
    for answer in received:
        wait = {503: "1", 429: "3600"}.get(answer.status_code)
        assert wait == answer.headers.get("Retry-After")


async def test_a_503_of_a_route_gives_back_what_the_application_took() -> None:
    """It is free, as a refusal is."""
    of_route = Limiter("5/h", store=Outage(is_down=True), on_store_error="deny")
    app = limited(EARLY["on a ThrottledRouter"](of_route, hello), "2/h")

    codes = await statuses(app, *["GET /"] * 5, "GET /missing", "GET /missing")

    assert [503] * 5 + [404] * 2 == codes


# --- without limits of its own --------------------------------------------------------


async def test_the_three_part_set_up_runs() -> None:
    """Middleware, exception handler and decorator, as other libraries have them."""
    limiter = Limiter(store=frozen_store(), key_func=get_remote_address)
    app = FastAPI()
    app.add_middleware(RateLimitMiddleware)
    app.add_exception_handler(RateLimitExceededError, rate_limit_exceeded_handler)

    @app.get("/items")
    @limiter.limit("2/m")
    async def items(request: Request) -> dict[str, str]:
        return {"client": str(request.client)}

    first, second, refused = await answers(app, *["GET /items"] * 3)

    assert [(200, "1"), (200, "0"), (429, "0")] == told(first, second, refused)
    assert {"detail": "Rate limit exceeded"} == refused.json()
    assert ["30"] == refused.headers.get_list("Retry-After")
    for answer in (first, second, refused):
        assert ["2"] == answer.headers.get_list("RateLimit-Limit")


@ways
async def test_the_fields_survive_a_handler_that_drops_them(way: Way) -> None:
    """On any router they are on the 429 of the user, also when the scope is copied."""
    app = way(frozen("1/h"), hello)
    app.add_exception_handler(429, on_the_loop)
    app.add_middleware(Copying)

    _, refused = await answers(limited(app, None), "GET /", "GET /")

    assert (503, BY_HANDLER) == (refused.status_code, refused.text)
    assert REFUSED == fields_of(refused)


async def test_it_writes_what_a_dependency_cannot() -> None:
    """The response of a handler's own, and what it raises, have the fields, too."""

    async def missing() -> None:
        raise HTTPException(404)

    async def own() -> Response:
        return PlainTextResponse("own")

    limiter = frozen()
    app = limited(FastAPI(), None)
    for function in (missing, own):
        app.add_api_route(
            f"/{function.__name__}",
            function,
            dependencies=[Depends(limiter.dependency("5/h"))],
        )

    received = await answers(app, "GET /missing", "GET /own")

    assert [(404, "4"), (200, "4")] == told(*received)


async def test_without_limits_there_is_nothing_to_tell() -> None:
    """It counts nothing, and adds nothing."""
    app = FastAPI()
    app.add_middleware(RateLimitMiddleware)

    (answer,) = await answers(app, "GET /")

    assert (404, {}) == (answer.status_code, fields_of(answer))


# --- what passes ----------------------------------------------------------------------


def test_the_lifespan_of_an_application_passes() -> None:
    """It is no request."""
    events: list[str] = []

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncGenerator[None]:
        events.append("start")
        yield
        events.append("end")

    app = limited(FastAPI(lifespan=lifespan), "0/h")
    with TestClient(app) as client:
        assert 429 == client.get("/").status_code

    assert ["start", "end"] == events


async def test_middleware_of_the_buffered_kind_may_be_around_and_inside() -> None:
    """It hands the scope on, and the fields are there once."""

    async def mark(request: Request, call_next: RequestResponseEndpoint) -> Response:
        response = await call_next(request)
        response.headers.append("X-Marked", "yes")
        return response

    app = app_of_hello("1/h")
    inside = FastAPI()
    inside.add_api_route("/", hello)
    inside.add_middleware(BaseHTTPMiddleware, dispatch=mark)
    app = limited(inside, "1/h")
    app.add_middleware(BaseHTTPMiddleware, dispatch=mark)

    first, refused = await answers(app, "GET /", "GET /")

    assert ["yes", "yes"] == first.headers.get_list("X-Marked")
    assert ["yes"] == refused.headers.get_list("X-Marked")
    assert ["0"] == first.headers.get_list("RateLimit-Remaining")
    assert REFUSED == fields_of(refused)


async def test_a_stream_is_passed_on_chunk_by_chunk() -> None:
    """There is one start, with the fields, before the first chunk is made."""
    events: list[str] = []

    async def get() -> Response:
        async def chunks() -> AsyncGenerator[str]:
            for number in range(2):
                events.append(f"made {number}")
                yield str(number)

        return StreamingResponse(chunks())

    async def send(message: Message) -> None:
        events.append(f"{message['type']} {message.get('body', b'').decode()}")

    async def receive() -> Message:
        await asyncio.Event().wait()
        raise AssertionError

    app = limited(FastAPI(), "5/h")
    app.add_api_route("/", get)

    await app(http_scope(), receive, send)

    assert [
        "http.response.start ",
        "made 0",
        "http.response.body 0",
        "made 1",
        "http.response.body 1",
        "http.response.body ",
    ] == events


# --- CORS -----------------------------------------------------------------------------

ORIGIN = {"Origin": "http://shop.test"}
WRONG_ORDER = "CORSMiddleware is inside RateLimitMiddleware"


def with_cors(app: FastAPI) -> FastAPI:
    """Return *app* with the middleware for other origins."""
    app.add_middleware(CORSMiddleware, allow_origins=["http://shop.test"])
    return app


async def test_preflight_requests_are_not_counted_inside_cors(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """`CORSMiddleware`, added later, answers them before they get there."""
    app = with_cors(app_of_hello("1/h"))
    preflight = {**ORIGIN, "Access-Control-Request-Method": "GET"}

    for _ in range(3):
        (answer,) = await answers(app, "OPTIONS /", headers=preflight)
        assert 200 == answer.status_code

    _, refused = await answers(app, "GET /", "GET /", headers=ORIGIN)
    assert 429 == refused.status_code
    assert "http://shop.test" == refused.headers["Access-Control-Allow-Origin"]
    assert WRONG_ORDER not in caplog.text


def cors_added_before() -> ASGIApp:
    """Add the two in the wrong order."""
    return limited(with_cors(FastAPI()), "0/h")


def cors_added_before_another() -> ASGIApp:
    """The same, with another one in between."""
    app = with_cors(FastAPI())
    app.add_middleware(Copying)
    return limited(app, "0/h")


def cors_of_the_application() -> ASGIApp:
    """Put the middleware around an application that has it."""
    return RateLimitMiddleware(with_cors(FastAPI()), throttle="0/h")


ORDERS = [cors_added_before, cors_added_before_another, cors_of_the_application]


@pytest.mark.parametrize("order", ORDERS)
async def test_the_wrong_order_is_warned_about(
    order: Callable[[], ASGIApp], caplog: pytest.LogCaptureFixture
) -> None:
    """A browser could not read refusals; it is told when the application starts."""
    with caplog.at_level(logging.WARNING, "throttled_views"):
        (refused,) = await answers(order(), "GET /", headers=ORIGIN)

    assert 429 == refused.status_code
    assert 1 == caplog.text.count(WRONG_ORDER)


async def test_without_limits_the_order_does_not_matter(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It refuses nothing, so there is nothing to warn about."""
    (answer,) = await answers(
        limited(with_cors(FastAPI()), None), "GET /", headers=ORIGIN
    )

    assert "http://shop.test" == answer.headers["Access-Control-Allow-Origin"]
    assert WRONG_ORDER not in caplog.text


# --- what is counted together


def of_plan(quota: str) -> Callable[[], str]:
    """Return a quota function."""

    def plan() -> str:
        return quota

    return plan


async def test_functions_of_one_factory_count_apart() -> None:
    """Two of one name are two quotas, each with counts of its own."""
    limiter = frozen()
    small = app_of_hello(of_plan("1/h"), limiter)
    await statuses(small, "GET /")
    large = app_of_hello(of_plan("2/h"), limiter)
    with pytest.warns(UserWarning, match="2 different objects named"):
        large.middleware_stack = large.build_middleware_stack()
    answered = await statuses(large, *["GET /"] * 3)

    assert [200, 200, 429] == answered
    assert [429] == await statuses(small, "GET /")


def cost_of_two() -> int:
    """Cost two."""
    return 2


@pytest.mark.parametrize("cost", [2, cost_of_two], ids=["number", "function"])
async def test_equal_quotas_with_other_costs_are_two_limits(
    cost: int | Callable[[], int],
) -> None:
    """Each is charged, by its own cost."""
    limiter = frozen()
    app = limited(app_of_hello("10/h", limiter), Limit("10/h", cost=cost), limiter)

    answered = await answers(app, *["GET /"] * 2)

    assert ["8", "6"] == [each.headers["RateLimit-Remaining"] for each in answered]


class Refunds(MemoryStore):
    """A store that counts how often it is asked to give back."""

    refunds = 0

    async def refund(self, receipts: Sequence[Receipt], /) -> None:
        """Count."""
        self.refunds += 1
        await super().refund(receipts)


async def test_all_that_an_application_was_charged_comes_back_in_one_call() -> None:
    """However many limits it has."""
    store = Refunds()
    limiter = Limiter(store=store)
    app = limited(FastAPI(), "100/m; 1000/h; 5000/day", limiter)
    app.add_middleware(RateLimitMiddleware, limiter=limiter, throttle="0/m")
    app.add_middleware(RateLimitMiddleware, limiter=limiter, throttle="7/m; 8/h")

    assert [429] == await statuses(app, "GET /")
    assert store.refunds <= 1


def test_a_limit_is_named_by_the_whole_of_its_quota() -> None:
    """One that begins as another does is no second one of it."""
    throttle: Throttle = ["10/m burst 20", "10/m", Limit("10/m", key_func=everyone)]
    middleware = RateLimitMiddleware(FastAPI(), limiter=frozen(), throttle=throttle)

    assert ["app 10/m burst 20", "app 10/m", "app 10/m #2"] == [
        limit.name for limit in middleware.limits
    ]


# --- what it is around


class Around:
    """An application that says it is around itself."""

    def __init__(self) -> None:
        self.app = self

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer."""
        await PlainTextResponse("here")(scope, receive, send)


class NoApplication:
    """What another framework leaves in the scope."""


async def test_it_may_be_around_anything() -> None:
    """Also around what refers to itself, in a framework that is not Starlette."""
    middleware = RateLimitMiddleware(Around(), limiter=frozen(), throttle="1/h")

    async def framework(scope: Scope, receive: Receive, send: Send) -> None:
        await middleware({**scope, "app": NoApplication()}, receive, send)

    assert [200, 429] == await statuses(framework, "GET /", "GET /")


async def test_a_handler_may_answer_nothing() -> None:
    """As Starlette has it: then nothing is sent."""
    app = app_of_hello("1/h")

    async def silent(_request: Request, _error: Exception) -> None: ...

    app.exception_handlers[429] = cast("Any", silent)
    await statuses(app, "GET /")
    messages = await sent(app, http_scope("/"))

    assert [] == messages


@pytest.mark.parametrize("limiter", ["5/m", MemoryStore()], ids=["text", "store"])
def test_what_is_no_limiter_is_refused(limiter: object) -> None:
    """It would limit nothing, or fail at the first request."""
    wrong = cast("Limiter", limiter)
    for use in (
        lambda: RateLimitMiddleware(FastAPI(), limiter=wrong),
        lambda: ThrottledRouter(wrong),
    ):
        with pytest.raises(ConfigurationError, match=r"is no limiter\. Write limiter="):
            use()
