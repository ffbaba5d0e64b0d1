"""`@limiter.limit()` among decorators of its own kind and others."""

import functools
import types
from collections.abc import Callable

import pytest
from fastapi import APIRouter, Depends, FastAPI, Request

from tests.asgi import Relay, answers, app_of, statuses
from tests.ways import DECORATED, EARLY, Endpoint, Way
from throttled_views import (
    ConfigurationError,
    Limiter,
    RateLimitHeaderPolicy,
    ThrottledRouter,
)

OURS = {**EARLY, **DECORATED}


async def hello() -> str:
    """Be a handler."""
    return "hello"


async def no_parameters() -> dict[str, str]:
    """Be another handler."""
    return {}


async def positional(b: int, a: int, c: int = 3) -> list[int]:
    """Be a handler with parameters."""
    return [a, b, c]


# --- several decorators ---------------------------------------------------------------


def stacked_on_an_application(limiter: Limiter, *throttles: str) -> FastAPI:
    """Decorate a function for each of *throttles*, and put it on an application."""
    app = FastAPI()
    app.add_api_route("/", stacked(limiter, *throttles))
    return app


def stacked_on_a_throttled_router(limiter: Limiter, *throttles: str) -> FastAPI:
    """Do the same on a router that limits everything."""
    router = ThrottledRouter(limiter)
    router.add_api_route("/", stacked(limiter, *throttles))
    return app_of(router)


def stacked(limiter: Limiter, *throttles: str) -> Endpoint:
    """Return a function with one decorator for each of *throttles*."""
    endpoint = hello
    for throttle in throttles:
        endpoint = limiter.limit(throttle)(endpoint)
    return endpoint


STACKED = {
    "on an application": stacked_on_an_application,
    "on a ThrottledRouter": stacked_on_a_throttled_router,
}
on_both = pytest.mark.parametrize("put", STACKED.values(), ids=STACKED)


@on_both
async def test_stacked_decorators_are_one_decision(
    put: Callable[..., FastAPI],
) -> None:
    """One request is one question to the store, about all limits."""
    store = Relay()
    app = put(Limiter(store=store), "2/h", "100/d", "50/h")

    assert [200] == await statuses(app, "GET /")

    assert [["2/h", "100/d", "50/h"]] == [
        [str(charge.quota) for charge in charges] for charges in store.calls
    ]


@on_both
@pytest.mark.parametrize("throttles", [("1/h", "100/h"), ("100/h", "1/h")])
async def test_stacked_decorators_charge_all_or_none(
    put: Callable[..., FastAPI], throttles: tuple[str, str]
) -> None:
    """What one limit refuses takes nothing from the other, whichever is inside."""
    store = Relay()
    app = put(Limiter(store=store), *throttles)
    assert [200, 429, 429, 429] == await statuses(app, *["GET /"] * 4)

    peeked = await store.peek(store.calls[0])

    assert {1: 0, 100: 99} == {
        each.state.limit: each.state.remaining for each in peeked
    }


def test_a_limit_that_is_stacked_on_its_equal_is_refused() -> None:
    """It would change nothing, so it is a mistake."""
    with pytest.raises(ConfigurationError, match="5/h is declared twice"):
        stacked_on_a_throttled_router(Limiter(), "5/h", "5/h")


@pytest.mark.parametrize("way", OURS.values(), ids=OURS)
async def test_each_request_is_charged_once(way: Way) -> None:
    """However often a limit is met on the way to a function, it counts once."""
    store = Relay()
    app = way(Limiter("5/h", store=store), hello)

    received = await answers(app, *["GET /"] * 3)

    assert ["4", "3", "2"] == [
        answer.headers["RateLimit-Remaining"] for answer in received
    ]
    assert 3 == len(store.keys)


async def test_two_limiters_decide_each_for_itself() -> None:
    """A function with decorators of two limiters is held to both."""
    one, two = Limiter(store=Relay()), Limiter(store=Relay())
    app = FastAPI()
    app.add_api_route("/", one.limit("1/h")(two.limit("100/h")(hello)))
    app.add_api_route("/other", one.limit("100/h")(two.limit("1/h")(no_parameters)))

    assert [200, 429] == await statuses(app, "GET /", "GET /")
    assert [200, 429] == await statuses(app, "GET /other", "GET /other")


@pytest.mark.parametrize("router", [APIRouter, ThrottledRouter])
@pytest.mark.parametrize("narrow_outside", [True, False])
async def test_what_one_limiter_refuses_takes_nothing_from_another(
    router: Callable[[], APIRouter], *, narrow_outside: bool
) -> None:
    """A refusal is free, whichever limiter decides first."""
    wide, narrow = Relay(), Relay()
    endpoint: Endpoint = hello
    decorators = [Limiter(store=wide).limit("9/h"), Limiter(store=narrow).limit("1/h")]
    for decorate in decorators if narrow_outside else reversed(decorators):
        endpoint = decorate(endpoint)
    routes = router()
    routes.add_api_route("/", endpoint)

    assert [200, 429, 429, 429] == await statuses(app_of(routes), *["GET /"] * 4)

    (result,) = await wide.peek(wide.calls[0])
    assert 8 == result.state.remaining


async def test_what_a_decorator_refuses_takes_nothing_from_a_dependency() -> None:
    """Both are decided after the request was read, so they are given back together."""
    store = Relay()
    limiter = Limiter(store=store)
    app = FastAPI(dependencies=[Depends(limiter.dependency("9/h"))])
    app.add_api_route("/", limiter.limit("1/h")(hello))

    assert [200, 429, 429, 429] == await statuses(app, *["GET /"] * 4)

    (result,) = await store.peek(store.calls[0])
    assert (9, 8) == (result.state.limit, result.state.remaining)


async def test_what_was_taken_early_stays_taken() -> None:
    """A default is decided before a dependency, whose refusal comes too late for it."""
    store = Relay()
    limiter = Limiter("9/h", store=store)
    router = ThrottledRouter(limiter, dependencies=[Depends(limiter.dependency("1/h"))])
    router.add_api_route("/", hello)

    assert [200, 429, 429, 429] == await statuses(app_of(router), *["GET /"] * 4)

    (result,) = await store.peek(store.calls[0])
    assert (9, 5) == (result.state.limit, result.state.remaining)


async def test_two_limiters_on_one_store_are_two_limits() -> None:
    """Sharing a store and a prefix does not make one limit of two."""
    store = Relay()
    one, two = Limiter(store=store), Limiter(store=store)
    app = FastAPI()
    app.add_api_route("/", one.limit("100/h")(two.limit("1/h")(hello)))

    assert [200, 429] == await statuses(app, "GET /", "GET /")


async def test_a_function_on_the_router_of_another_limiter_keeps_its_own() -> None:
    """The limiter that decorated a function counts it, wherever it is put."""
    one, two = Limiter("100/h", store=Relay()), Limiter("1/h", store=Relay())
    router = ThrottledRouter(two)
    router.add_api_route("/", one.limit("2/h")(hello))

    assert [200, 200, 429] == await statuses(app_of(router), *["GET /"] * 3)


async def test_the_fields_are_those_of_the_limiter_that_governs() -> None:
    """Each limiter tells its decisions in its own names."""
    one = Limiter(headers=RateLimitHeaderPolicy(limit="X-Limit"))
    two = Limiter()
    app = FastAPI()
    app.add_api_route("/", one.limit("100/h")(two.limit("5/h")(hello)))
    app.add_api_route("/other", one.limit("5/h")(two.limit("100/h")(no_parameters)))

    first, second = await answers(app, "GET /", "GET /other")

    assert "5" == first.headers["RateLimit-Limit"]
    assert "5" == second.headers["X-Limit"]


# --- other decorators -----------------------------------------------------------------


def shouting(handler: Endpoint) -> Endpoint:
    """Decorate *handler* as one should."""

    @functools.wraps(handler)
    async def wrapper(*args: object, **kwargs: object) -> str:
        return str(await handler(*args, **kwargs)).upper()

    return wrapper


def caching(handler: Endpoint) -> Endpoint:
    """Decorate *handler* such that it is called once, and never again."""
    kept: list[object] = []

    @functools.wraps(handler)
    async def wrapper(*args: object, **kwargs: object) -> object:
        if not kept:
            kept.append(await handler(*args, **kwargs))
        return kept[0]

    return wrapper


def twice(handler: Endpoint) -> Endpoint:
    """Decorate *handler* such that it is called again."""

    @functools.wraps(handler)
    async def wrapper(*args: object, **kwargs: object) -> object:
        await handler(*args, **kwargs)
        return await handler(*args, **kwargs)

    return wrapper


async def greet(request: Request, name: str = "you") -> str:
    """Be a handler with a parameter."""
    return f"{request.method} {name}"


def outside(decorator: Callable[[Endpoint], Endpoint], limiter: Limiter) -> Endpoint:
    """Put *decorator* around the limit."""
    return decorator(limiter.limit()(greet))


def inside(decorator: Callable[[Endpoint], Endpoint], limiter: Limiter) -> Endpoint:
    """Put *decorator* within the limit."""
    return limiter.limit()(decorator(greet))


def between(decorator: Callable[[Endpoint], Endpoint], limiter: Limiter) -> Endpoint:
    """Put *decorator* between two limits."""
    return limiter.limit("200/h")(decorator(limiter.limit()(greet)))


ORDERS = {"outside": outside, "inside": inside, "between": between}
orders = pytest.mark.parametrize("order", ORDERS.values(), ids=ORDERS)


@orders
@pytest.mark.parametrize("decorator", [shouting, twice])
async def test_another_decorator_changes_nothing_about_the_limit(
    order: Callable[..., Endpoint], decorator: Callable[[Endpoint], Endpoint]
) -> None:
    """It may stand anywhere, and may call the function as often as it likes."""
    app = FastAPI()
    app.add_api_route("/", order(decorator, Limiter("2/h")))

    received = await answers(app, *["GET /?name=me"] * 3)

    assert [(200, "1"), (200, "0"), (429, "0")] == [
        (answer.status_code, answer.headers["RateLimit-Remaining"])
        for answer in received
    ]
    assert "get me" == received[0].json().lower()


@pytest.mark.parametrize("decorator", [shouting, caching, twice])
@orders
async def test_on_a_throttled_router_no_decorator_gets_in_the_way(
    order: Callable[..., Endpoint], decorator: Callable[[Endpoint], Endpoint]
) -> None:
    """The request is decided before any of them runs, a cache included."""
    limiter = Limiter("2/h")
    router = ThrottledRouter(limiter)
    router.add_api_route("/", order(decorator, limiter))

    received = await answers(app_of(router), *["GET /"] * 3)

    assert [(200, "1"), (200, "0"), (429, "0")] == [
        (answer.status_code, answer.headers["RateLimit-Remaining"])
        for answer in received
    ]


async def test_what_a_cache_inside_returns_is_charged() -> None:
    """A hit of the cache is a request too."""
    app = FastAPI()
    app.add_api_route("/", inside(caching, Limiter("2/h")))

    assert [200, 200, 429] == await statuses(app, *["GET /"] * 3)


async def test_a_partial_of_an_async_function_can_be_limited() -> None:
    """Python takes it for async, and so does FastAPI."""
    limited = Limiter().limit("1/h")(functools.partial(positional, c=7))
    app = FastAPI()
    app.add_api_route("/", limited)

    first, second = await answers(app, *["GET /?a=1&b=2"] * 2)

    assert [1, 2, 7] == first.json()
    assert 429 == second.status_code


async def test_a_partial_that_is_bound_can_be_limited() -> None:
    """Python takes that for async too, though it is no function."""
    limited = Limiter().limit("1/h")(types.MethodType(functools.partial(positional), 2))
    app = FastAPI()
    app.add_api_route("/", limited)

    first, second = await answers(app, *["GET /?a=1"] * 2)

    assert [1, 2, 3] == first.json()
    assert 429 == second.status_code
