"""Key, quota and cost functions: what is chosen for each request."""

import functools
from collections.abc import Callable
from typing import Any

import pytest
from fastapi import HTTPException, Request, Response
from fastapi.responses import PlainTextResponse
from starlette.requests import HTTPConnection

from tests.asgi import Relay, answers, fields_of, statuses
from tests.ways import WAYS, Way
from throttled_views import (
    EXEMPT,
    ClientIP,
    Exempt,
    InvalidAnswerError,
    InvalidKeyError,
    Limit,
    Limiter,
    MemoryStore,
    Quota,
    Throttle,
    everyone,
)

ways = pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)


async def hello() -> str:
    """Be a handler."""
    return "hello"


class Served:
    """A handler that counts how often it ran."""

    def __init__(self) -> None:
        self.times = 0

        async def handler() -> None:
            self.times += 1

        self.handler = handler


# --- key functions --------------------------------------------------------------------


def by_tenant(request: Request) -> str:
    """Name the tenant."""
    return request.headers["X-Tenant"]


async def by_tenant_async(request: Request) -> str:
    """Name the tenant, after having waited."""
    return request.headers["X-Tenant"]


def by_connection(connection: HTTPConnection) -> str:
    """Name the tenant of any connection."""
    return connection.headers["X-Tenant"]


def by_header(name: str, request: Request) -> str:
    """Name the tenant by a header that is still to be told."""
    return request.headers[name]


def by_text(request: "Request") -> str:
    """Name the tenant, annotated with text."""
    return request.headers["X-Tenant"]


class ByTenant:
    """An object that names the tenant."""

    def __call__(self, request: Request) -> str:
        """Name the tenant."""
        return request.headers["X-Tenant"]

    def method(self, request: Request) -> str:
        """Name the tenant."""
        return request.headers["X-Tenant"]


lambdas: list[Callable[[Request], str]] = [lambda request: request.headers["X-Tenant"]]

KEY_FUNCS: dict[str, Callable[..., Any]] = {
    "sync": by_tenant,
    "async": by_tenant_async,
    "of the connection": by_connection,
    "a partial": functools.partial(by_header, "X-Tenant"),
    "annotated with text": by_text,
    "an object": ByTenant(),
    "a method": ByTenant().method,
    "a lambda": lambdas[0],
}


@ways
@pytest.mark.parametrize("key_func", KEY_FUNCS.values(), ids=KEY_FUNCS)
async def test_a_key_function_names_who_is_charged(
    way: Way, key_func: Callable[..., Any]
) -> None:
    """Each name has the quota for itself, whatever the address."""
    app = way(Limiter("1/h", key_func=key_func), hello)

    async def of(tenant: str, client: str) -> int:
        (answer,) = await answers(
            app, "GET /", headers={"X-Tenant": tenant}, client=client
        )
        return answer.status_code

    assert 200 == await of("one", "192.0.2.1")
    assert 200 == await of("two", "192.0.2.1")
    assert 429 == await of("one", "192.0.2.2")


class ByTenantOrAddress(ClientIP):
    """A key function of ours, overridden."""

    def __call__(self, connection: HTTPConnection) -> str:
        """Name the tenant, if there is one."""
        return connection.headers.get("X-Tenant") or super().__call__(connection)


@ways
async def test_a_key_function_derived_from_ours_is_asked(way: Way) -> None:
    """Nothing goes around what a subclass overrides."""
    app = way(Limiter("1/h", key_func=ByTenantOrAddress()), hello)

    (of_one,) = await answers(app, "GET /", headers={"X-Tenant": "one"})
    (of_two,) = await answers(app, "GET /", headers={"X-Tenant": "two"})

    assert [200, 200] == [of_one.status_code, of_two.status_code]
    assert [200, 429] == await statuses(app, "GET /", "GET /")


@ways
async def test_a_limit_may_have_a_key_function_of_its_own(way: Way) -> None:
    """It is taken instead of the limiter's."""
    app = way(Limiter(Limit("1/h", key_func=everyone), key_func=by_tenant), hello)

    assert [200] == await statuses(app, "GET /", client="192.0.2.1")
    assert [429] == await statuses(app, "GET /", client="192.0.2.2")


@ways
async def test_everyone_is_one_client(way: Way) -> None:
    """All clients draw from one bucket."""
    app = way(Limiter("1/h", key_func=everyone), hello)

    assert [200] == await statuses(app, "GET /", client="192.0.2.1")
    assert [429] == await statuses(app, "GET /", client="192.0.2.2")


@ways
async def test_without_a_key_a_limit_does_not_apply(way: Way) -> None:
    """None is the one spelling of "not limited"; such a request is told nothing."""

    def by_stranger(request: Request) -> str | None:
        return None if "X-Friend" in request.headers else "stranger"

    app = way(Limiter("1/h", key_func=by_stranger), hello)

    friends = await answers(app, *["GET /"] * 3, headers={"X-Friend": "yes"})
    strangers = await answers(app, *["GET /"] * 2)

    assert [(200, {})] * 3 == [
        (answer.status_code, fields_of(answer)) for answer in friends
    ]
    assert [200, 429] == [answer.status_code for answer in strangers]


@ways
async def test_limits_with_a_key_apply_beside_one_without(way: Way) -> None:
    """Each limit has a key of its own, or none."""

    def nobody(_request: Request) -> None:
        return None

    app = way(Limiter(["1/h", Limit("5/h", key_func=nobody)]), hello)

    assert [200, 429] == await statuses(app, "GET /", "GET /")


NO_KEYS: dict[str, object] = {
    "empty": "",
    "a number": 0,
    "bytes": b"alice",
    "false": False,
    "a list": ["alice"],
}


@ways
@pytest.mark.parametrize("key", NO_KEYS.values(), ids=NO_KEYS)
async def test_what_is_no_key_opens_nothing(way: Way, key: object) -> None:
    """It is an error, and neither one big bucket nor no limit."""

    def by_mistake(_request: Request) -> Any:  # noqa: ANN401 - that is the mistake
        return key

    served = Served()
    app = way(Limiter("5/h", key_func=by_mistake), served.handler)

    with pytest.raises(InvalidKeyError, match="a non-empty str") as caught:
        await answers(app, "GET /")

    assert key == caught.value.given
    assert "by_mistake" in str(caught.value)
    assert [500] == await statuses(app, "GET /")
    assert 0 == served.times


@ways
async def test_a_key_function_may_refuse_a_request(way: Way) -> None:
    """An HTTPException is answered as it would be from a dependency."""

    def by_password(request: Request) -> str:
        if "Authorization" not in request.headers:
            raise HTTPException(401, headers={"WWW-Authenticate": "Basic"})
        return request.headers["Authorization"]

    served = Served()
    app = way(Limiter("1/h", key_func=by_password), served.handler)

    (answer,) = await answers(app, "GET /")

    assert (401, {"detail": "Unauthorized"}) == (answer.status_code, answer.json())
    assert "Basic" == answer.headers["WWW-Authenticate"]
    assert 0 == served.times


@ways
async def test_an_error_of_a_key_function_may_have_a_handler(way: Way) -> None:
    """It is asked, as for an error of the handler."""

    class UnknownTenantError(Exception):
        """No such tenant."""

    def by_known_tenant(_request: Request) -> str:
        raise UnknownTenantError

    served = Served()
    app = way(Limiter("1/h", key_func=by_known_tenant), served.handler)

    @app.exception_handler(UnknownTenantError)
    async def render(_request: Request, _error: Exception) -> Response:
        return PlainTextResponse("who?", 403)

    (answer,) = await answers(app, "GET /")

    assert (403, "who?") == (answer.status_code, answer.text)
    assert 0 == served.times


@ways
async def test_an_error_of_a_key_function_is_an_error(way: Way) -> None:
    """It reaches the server as it was raised, and nobody is served."""

    def failing(_request: Request) -> str:
        raise ZeroDivisionError

    served = Served()
    app = way(Limiter("1/h", key_func=failing), served.handler)

    with pytest.raises(ZeroDivisionError):
        await answers(app, "GET /")
    assert 0 == served.times


# --- quota functions ------------------------------------------------------------------


def choosing(quota: object) -> Callable[[Request], Any]:
    """Return a quota function that chooses *quota*."""

    def choose(_request: Request) -> Any:  # noqa: ANN401 - whatever a test wants
        return quota

    return choose


def choosing_async(quota: object) -> Callable[[Request], Any]:
    """Return an async one."""

    async def choose(_request: Request) -> object:
        return quota

    return choose


def by_plan(request: Request) -> Quota | str | Exempt:
    """Choose by what the client pays."""
    plans: dict[str, Quota | str | Exempt] = {
        "pro": "5/h",
        "free": Quota.per_hour(2),
        "staff": EXEMPT,
    }
    return plans[request.headers["X-Plan"]]


kinds = pytest.mark.parametrize(
    "function", [choosing, choosing_async], ids=["sync", "async"]
)


@ways
@kinds
@pytest.mark.parametrize("quota", ["2/h", Quota.per_hour(2)], ids=["text", "Quota"])
async def test_a_quota_function_chooses_the_quota(
    way: Way, function: Callable[..., Any], quota: object
) -> None:
    """What it returns is what the request is held to."""
    app = way(Limiter(function(quota)), hello)

    received = await answers(app, *["GET /"] * 3)

    assert [(200, "1"), (200, "0"), (429, "0")] == [
        (answer.status_code, answer.headers["RateLimit-Remaining"])
        for answer in received
    ]


@ways
@kinds
async def test_a_quota_function_may_choose_no_limit(
    way: Way, function: Callable[..., Any]
) -> None:
    """EXEMPT is how it says so; such a request is counted nowhere, and told nothing."""
    app = way(Limiter(function(EXEMPT)), hello)

    received = await answers(app, *["GET /"] * 3)

    assert [(200, {})] * 3 == [
        (answer.status_code, fields_of(answer)) for answer in received
    ]


@ways
async def test_a_quota_function_is_asked_for_each_request(
    way: Way, store: MemoryStore
) -> None:
    """One client may be held to different quotas; its counter stays the same."""
    app = way(Limiter(by_plan, key_func=everyone, store=store), hello)

    async def of(plan: str) -> tuple[int, str]:
        (answer,) = await answers(app, "GET /", headers={"X-Plan": plan})
        return answer.status_code, answer.headers.get("RateLimit-Remaining", "-")

    assert (200, "1") == await of("free")
    assert (200, "0") == await of("free")
    assert (200, "-") == await of("staff")
    assert (429, "0") == await of("pro")


@ways
async def test_a_lower_quota_takes_what_is_above_it(
    way: Way, store: MemoryStore
) -> None:
    """A level above the new capacity is the new capacity; raising it gives no jump."""
    app = way(Limiter(by_plan, key_func=everyone, store=store), hello)

    async def of(plan: str) -> tuple[int, str]:
        (answer,) = await answers(app, "GET /", headers={"X-Plan": plan})
        return answer.status_code, answer.headers["RateLimit-Remaining"]

    assert (200, "4") == await of("pro")
    assert (200, "1") == await of("free")
    assert (200, "0") == await of("free")
    assert (429, "0") == await of("pro")


@ways
@pytest.mark.parametrize("junk", ["5/fortnight", "", 5, ["5/h"], None])
async def test_what_is_no_quota_opens_nothing(way: Way, junk: object) -> None:
    """A quota function that returns anything else is an error, nothing included."""
    served = Served()
    app = way(Limiter(choosing(junk)), served.handler)

    with pytest.raises(InvalidAnswerError, match=r"choose gave") as it:
        await answers(app, "GET /")
    assert junk == it.value.given
    assert [500] == await statuses(app, "GET /")
    assert 0 == served.times


@ways
async def test_an_error_of_a_quota_function_is_an_error(way: Way) -> None:
    """It reaches the server as it was raised, and nobody is served."""

    def failing(_request: Request) -> str:
        raise ZeroDivisionError

    served = Served()
    app = way(Limiter(failing), served.handler)

    with pytest.raises(ZeroDivisionError):
        await answers(app, "GET /")
    assert 0 == served.times


# --- cost functions -------------------------------------------------------------------


def by_size(request: Request) -> int:
    """Charge for each page that is asked for."""
    return int(request.query_params["pages"])


async def by_size_async(request: Request) -> int:
    """Charge the same, after having waited."""
    return int(request.query_params["pages"])


@ways
@pytest.mark.parametrize("cost", [by_size, by_size_async], ids=["sync", "async"])
async def test_a_cost_function_tells_what_a_request_costs(
    way: Way, cost: Callable[..., Any], store: MemoryStore
) -> None:
    """It is charged as a whole, or not at all."""
    app = way(Limiter(Limit("10/h", cost=cost), store=store), hello)

    received = await answers(app, *[f"GET /?pages={pages}" for pages in (7, 4, 3, 0)])

    assert [(200, "3"), (429, "3"), (200, "0"), (200, "0")] == [
        (answer.status_code, answer.headers["RateLimit-Remaining"])
        for answer in received
    ]
    assert "360" == received[1].headers["Retry-After"]


@ways
async def test_a_cost_above_the_capacity_is_refused_for_good(
    way: Way, store: MemoryStore
) -> None:
    """It takes nothing, and waiting does not help, so no time is named."""
    app = way(Limiter(Limit("10/h", cost=by_size), store=store), hello)

    refused, admitted = await answers(app, "GET /?pages=11", "GET /?pages=10")

    assert 429 == refused.status_code
    assert {
        "RateLimit-Limit": "10",
        "RateLimit-Remaining": "10",
        "RateLimit-Reset": "0",
    } == fields_of(refused)
    assert (200, "0") == (
        admitted.status_code,
        admitted.headers["RateLimit-Remaining"],
    )


def costing(cost: object) -> Callable[[Request], Any]:
    """Return a cost function that tells *cost*."""

    def tell(_request: Request) -> Any:  # noqa: ANN401 - whatever a test wants
        return cost

    return tell


@ways
@pytest.mark.parametrize("cost", [-1, 0.5, "1", None, True])
async def test_what_is_no_cost_opens_nothing(way: Way, cost: object) -> None:
    """A cost function that returns anything else is an error, and never a refund."""
    served = Served()
    app = way(Limiter(Limit("5/h", cost=costing(cost))), served.handler)

    with pytest.raises(InvalidAnswerError, match=r"tell gave") as it:
        await answers(app, "GET /")
    assert cost == it.value.given
    assert [500] == await statuses(app, "GET /")
    assert 0 == served.times


@ways
async def test_an_error_of_a_cost_function_is_an_error(way: Way) -> None:
    """It reaches the server as it was raised, and nobody is served."""

    def failing(_request: Request) -> int:
        raise ZeroDivisionError

    served = Served()
    app = way(Limiter(Limit("5/h", cost=failing)), served.handler)

    with pytest.raises(ZeroDivisionError):
        await answers(app, "GET /")
    assert 0 == served.times


# --- all of them ----------------------------------------------------------------------


@ways
async def test_each_function_is_asked_once_for_a_request(way: Way) -> None:
    """They may be slow, and may answer otherwise when they are asked again."""
    asked: list[str] = []

    def key(_request: Request) -> str:
        asked.append("key")
        return f"client {len(asked)}"

    def quota(_request: Request) -> str:
        asked.append("quota")
        return "5/h"

    def cost(_request: Request) -> int:
        asked.append("cost")
        return 1

    store = Relay()
    app = way(Limiter(Limit(quota, key_func=key, cost=cost), store=store), hello)

    assert [200] == await statuses(app, "GET /")
    assert ["key", "quota", "cost"] == asked
    assert 1 == len(store.keys)


WITHOUT_STORE: dict[str, Throttle] = {
    "no key": Limit("0/h", key_func=choosing(None)),
    "no quota": choosing(EXEMPT),
}


@ways
@pytest.mark.parametrize("throttle", WITHOUT_STORE.values(), ids=WITHOUT_STORE)
async def test_the_store_is_not_asked_where_no_limit_applies(
    way: Way, throttle: Throttle
) -> None:
    """Nothing to decide is no reason for a round trip."""
    store = Relay()
    app = way(Limiter(throttle, store=store), hello)

    assert [200] == await statuses(app, "GET /")
    assert [] == store.calls
