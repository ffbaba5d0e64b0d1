"""Scenarios from public bug reports, by number: counts and keys of function routes."""

import functools
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from fastapi import APIRouter, Depends, FastAPI, Request
from starlette.types import Scope

from tests.asgi import (
    App,
    Relay,
    answers,
    app_of,
    frozen,
    frozen_store,
    http_scope,
    sent,
    statuses,
)
from tests.ways import WAYS, Endpoint, Way
from throttled_views import (
    ConfigurationError,
    InvalidAnswerError,
    Limit,
    Limiter,
    MemoryStore,
    ThrottledRouter,
    ThrottledView,
    by_endpoint,
    by_template,
    client_ip,
    everyone,
)
from throttled_views.route_keys import RouteKey

ways = pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
route_keys = pytest.mark.parametrize("route_key", [by_endpoint, by_template], ids=repr)


async def hello() -> str:
    """Be a handler."""
    return "hello"


async def other() -> str:
    """Be another handler."""
    return "other"


def letters(codes: Sequence[int]) -> str:
    """Return A for each admitted request, D for each denied one, or the status."""
    return "".join({200: "A", 429: "D"}.get(code, f"<{code}>") for code in codes)


async def course(app: App, *requests: str, client: str = "192.0.2.1") -> str:
    """Send *requests*, and return the letters of the answers."""
    return letters(await statuses(app, *requests, client=client))


def by_user(request: Request) -> str:
    """Name a user."""
    return f"user {request.headers['X-User']}"


# --- counting -------------------------------------------------------------------------


def by_units(request: Request) -> int:
    """Charge what is asked for."""
    return int(request.query_params["units"])


@ways
async def test_case_23_a_cost_above_the_capacity_never_passes(
    way: Way, store: MemoryStore
) -> None:
    """It is denied without a time to wait, and takes nothing."""
    app = way(Limiter(Limit("3 per 2 seconds", cost=by_units), store=store), hello)

    denied, admitted, free = await answers(
        app, "GET /?units=4", "GET /?units=3", "GET /?units=0"
    )

    assert "DAA" == letters([each.status_code for each in (denied, admitted, free)])
    assert "Retry-After" not in denied.headers
    assert "0" == admitted.headers["RateLimit-Remaining"]
    with pytest.raises(InvalidAnswerError, match="Return a whole number of 0 or more"):
        await answers(app, "GET /?units=-1")


def test_case_23_a_constant_cost_above_the_capacity_is_refused() -> None:
    """What could never pass fails where it is written."""
    with pytest.raises(ConfigurationError, match="could never admit a request"):
        Limiter().limit("3 per 2 seconds", cost=4)


@ways
async def test_case_25_a_limit_of_zero_denies_every_request(way: Way) -> None:
    """The first one too, in any store."""
    for store in (MemoryStore(), Relay()):
        app = way(Limiter("0/hour", store=store), hello)

        assert "DDD" == await course(app, *["GET /"] * 3)


@ways
async def test_case_28_a_denial_by_one_limit_charges_none(way: Way) -> None:
    """One user who floods uses nothing up of what all users share."""
    store = Relay()
    limiter = Limiter(
        [
            Limit("1/m", key_func=by_user, name="user"),
            Limit("100/m", key_func=everyone, name="app"),
        ],
        store=store,
    )
    app = way(limiter, hello)

    flood = await answers(app, *["GET /"] * 200, headers={"X-User": "flooder"})
    (honest,) = await answers(app, "GET /", headers={"X-User": "honest"})
    (_, of_app) = await store.peek(store.calls[0])

    assert {200: 1, 429: 199} == Counter(answer.status_code for answer in flood)
    assert 200 == honest.status_code
    assert 98 == of_app.state.remaining


@ways
async def test_case_28_the_largest_wait_is_told(way: Way, store: MemoryStore) -> None:
    """A client that waits as told is admitted by all limits."""
    app = way(Limiter(["1/m", "1 per 30 minutes"], store=store), hello)

    _, denied = await answers(app, "GET /", "GET /")

    assert "1800" == denied.headers["Retry-After"]


@ways
async def test_case_29_each_limit_counts_a_request_once(way: Way) -> None:
    """Four limits are four counters, each of which stands at what was admitted."""
    store = Relay()
    limits = ["20/min", "200 per 10 minutes", "1200/hour", "5000/day"]
    app = way(Limiter(limits, store=store), hello)

    assert "A" * 20 + "D" == await course(app, *["GET /"] * 21)

    peeked = await store.peek(store.calls[0])
    assert [20] * 4 == [each.state.limit - each.state.remaining for each in peeked]


async def test_case_31_a_limit_of_a_route_replaces_the_default() -> None:
    """The default is not charged where a route says something itself."""
    store = Relay()
    limiter = Limiter("20 per 10 seconds", store=store)
    router = ThrottledRouter(limiter)
    router.add_api_route("/", limiter.limit("1/min")(hello))

    assert "AD" == await course(app_of(router), "GET /", "GET /")

    assert {"1/m"} == {str(charge.quota) for call in store.calls for charge in call}


async def test_case_31_a_limit_that_is_met_twice_charges_once() -> None:
    """On the application and on the router it is one limit."""
    store = Relay()
    limited = Depends(Limiter(store=store).dependency("20 per 10 seconds"))
    router = APIRouter(dependencies=[limited])
    router.add_api_route("/", hello)
    app = FastAPI(dependencies=[limited])
    app.include_router(router)

    (answer,) = await answers(app, "GET /")

    assert "19" == answer.headers["RateLimit-Remaining"]
    assert 1 == len(store.keys)


async def test_case_32_equal_limits_of_two_scopes_are_two_counters() -> None:
    """A quota of the router and an equal one of the route do not meet."""
    store = Relay()
    limiter = Limiter(store=store)
    router = APIRouter(dependencies=[Depends(limiter.dependency("5/min"))])
    router.add_api_route("/", limiter.limit("5/min")(hello))

    assert "AAAAAD" == await course(app_of(router), *["GET /"] * 6)

    assert 2 == len({*store.keys})


def test_case_32_a_duplicate_in_one_list_is_refused() -> None:
    """It would change nothing, or charge one counter twice."""
    with pytest.raises(ConfigurationError, match="5/m is declared twice"):
        Limiter().limit(["5/min", "5/minute"])


# --- keys: addresses ------------------------------------------------------------------


@ways
async def test_case_34_a_host_cannot_rotate_through_its_network(way: Way) -> None:
    """A hundred addresses of one /64 are one client; the next /64 is another."""
    app = way(frozen("5/min"), hello)
    network = [f"2001:db8:1:2::{host:x}" for host in range(1, 101)]

    answered = "".join([await course(app, "GET /", client=each) for each in network])

    assert "A" * 5 + "D" * 95 == answered
    assert "A" == await course(app, "GET /", client="2001:db8:1:3::1")


SPELLINGS = {
    "one address": [
        "2001:db8:1:2::1",
        "2001:0db8:0001:0002:0000:0000:0000:0001",
        "2001:DB8:1:2::1",
        "2001:db8:1:2::1%eth0",
    ],
    "the loopback": ["::1", "0:0:0:0:0:0:0:1"],
}


@pytest.mark.parametrize("spellings", SPELLINGS.values(), ids=SPELLINGS)
@ways
async def test_case_34_all_spellings_are_one_client(
    way: Way, spellings: list[str]
) -> None:
    """However a server writes an address, it is the same address."""
    app = way(frozen("1/min"), hello)

    answered = [await course(app, "GET /", client=each) for each in spellings]

    assert ["A", *["D"] * (len(spellings) - 1)] == answered


@ways
async def test_case_34_junk_is_a_client_like_any_other(way: Way) -> None:
    """What is no address does not raise, and is no way in."""
    app = way(frozen("1/min"), hello)

    for junk in ("testclient", "not:an:address", "fe80::1%%", "1.2.3"):
        assert "AD" == await course(app, "GET /", "GET /", client=junk)


@ways
async def test_case_35_mapped_addresses_are_the_ones_they_carry(way: Way) -> None:
    """A dual-stack listener does not throw its IPv4 clients into one bucket."""
    app = way(frozen("5/min"), hello)

    assert "AAAAA" == await course(app, *["GET /"] * 5, client="::ffff:192.0.2.1")
    assert "AAAAA" == await course(app, *["GET /"] * 5, client="::ffff:192.0.2.2")
    assert "D" == await course(app, "GET /", client="192.0.2.1")
    assert "D" == await course(app, "GET /", client="::ffff:c000:201")


@ways
async def test_case_35_a_dotted_tail_is_only_notation(way: Way) -> None:
    """Two such addresses of one /64 are one client, which is no IPv4 client."""
    app = way(frozen("1/min"), hello)

    assert "A" == await course(app, "GET /", client="2001:db8:1234:5678::1.2.3.4")
    assert "D" == await course(app, "GET /", client="2001:db8:1234:5678::5.6.7.8")
    assert "A" == await course(app, "GET /", client="1.2.3.4")


@ways
async def test_case_35_clients_behind_nat64_are_told_apart(way: Way) -> None:
    """They are known by the IPv4 addresses that the prefix carries."""
    app = way(frozen("1/min"), hello)

    assert "A" == await course(app, "GET /", client="64:ff9b::192.0.2.1")
    assert "A" == await course(app, "GET /", client="64:ff9b::192.0.2.2")
    assert "D" == await course(app, "GET /", client="192.0.2.1")


# --- keys: text -----------------------------------------------------------------------


@ways
async def test_case_41_a_user_is_not_an_address(way: Way) -> None:
    """A user who is called like an address does not meet who comes from it."""

    def by_user_or_address(request: Request) -> str:
        user = request.headers.get("X-User")
        return f"user {user}" if user else client_ip(request)

    app = way(frozen("1/min", key_func=by_user_or_address), hello)

    (of_user,) = await answers(app, "GET /", headers={"X-User": "127.0.0.1"})

    assert 200 == of_user.status_code
    assert "A" == await course(app, "GET /", client="127.0.0.1")


PARTS = {
    "colons": (("a:b", "c"), ("a", "b:c")),
    "the separator": (("a|b", "c"), ("a", "b|c")),
    "digits": (("1", "23"), ("12", "3")),
    "encoded text": (("a%7Cb", "c"), ("a|b", "c")),
    "the prefix": (("y:z", "x"), ("y", "z:x")),
}


@pytest.mark.parametrize(("one", "another"), PARTS.values(), ids=PARTS)
@ways
async def test_case_41_parts_of_keys_do_not_run_together(
    way: Way, one: tuple[str, str], another: tuple[str, str], store: MemoryStore
) -> None:
    """Different buckets and principals never give the same key."""

    async def first_of(bucket: str, principal: str) -> str:
        def by_name(_request: Request) -> str:
            return principal

        limiter = Limiter(Limit("1/min", bucket=bucket), store=store, key_func=by_name)
        return await course(way(limiter, hello), "GET /", "GET /")

    assert ["AD", "AD"] == [await first_of(*one), await first_of(*another)]


async def test_case_43_two_limits_of_a_user_are_two_counters(
    store: MemoryStore,
) -> None:
    """Six calls to one route leave five for the other."""
    limiter = Limiter(store=store)
    app = FastAPI()
    app.add_api_route("/a", limiter.limit("10 per 30 days")(hello))
    app.add_api_route("/b", limiter.limit("5/hour")(other))

    assert "A" * 6 == await course(app, *["GET /a"] * 6)
    assert "A" * 5 + "D" == await course(app, *["GET /b"] * 6)
    (last,) = await answers(app, "GET /a")
    assert "3" == last.headers["RateLimit-Remaining"]


async def test_case_43_applications_with_prefixes_do_not_meet(
    store: MemoryStore,
) -> None:
    """Two applications may serve the same functions from one store."""
    answered: list[str] = []
    for prefix in ("shop", "blog"):
        router = ThrottledRouter(Limiter("1/hour", store=store, prefix=prefix))
        router.add_api_route("/", hello)
        answered.append(await course(app_of(router), "GET /", "GET /"))

    assert ["AD", "AD"] == answered


async def user(id: str) -> str:  # noqa: A002 - as users write it
    """Be a handler with a parameter in its path."""
    return id


def early(limiter: Limiter) -> APIRouter:
    """Put the handler on a router that limits everything."""
    router = ThrottledRouter(limiter)
    router.add_api_route("/users/{id}", user)
    return router


def decorated(limiter: Limiter) -> APIRouter:
    """Decorate it."""
    router = APIRouter()
    router.add_api_route("/users/{id}", limiter.limit()(user))
    return router


def dependent(limiter: Limiter) -> APIRouter:
    """Give its router a dependency."""
    router = APIRouter(dependencies=[Depends(limiter.dependency())])
    router.add_api_route("/users/{id}", user)
    return router


@route_keys
@pytest.mark.parametrize("put", [early, decorated, dependent])
async def test_case_44_values_of_a_path_parameter_are_one_bucket(
    put: Callable[[Limiter], APIRouter], store: MemoryStore, route_key: RouteKey
) -> None:
    """What is limited is the function, or the template, whatever is in the URL."""
    app = app_of(put(Limiter("10/min", store=store, route_key=route_key)))
    requests = [f"GET /users/{n};v={n}?page={n}" for n in range(100)]

    assert "A" * 10 + "D" * 90 == await course(app, *requests)
    assert 1 == len(store)


async def test_case_46_mounted_applications_do_not_share() -> None:
    """With the same path below they are two counters, whatever the proxy says."""
    limiter = frozen("2/min")
    app = FastAPI()
    app.mount("/a", app_with(limiter, hello))
    app.mount("/b", app_with(limiter, other))

    assert "AA" == await course(app, *["GET /a/items"] * 2)
    assert "AA" == await course(app, *["GET /b/items"] * 2)
    assert "DD" == await course(app, "GET /a/items", "GET /b/items")
    for path in ("/v2/a/items", "/v2/b/items"):
        start, _ = await sent(app, {**http_scope(path), "root_path": "/v2"})
        assert 429 == start["status"]


def app_with(limiter: Limiter, endpoint: Endpoint) -> FastAPI:
    """Return an application with *endpoint* at /items."""
    router = ThrottledRouter(limiter)
    router.add_api_route("/items", endpoint)
    return app_of(router)


async def test_case_46_one_handler_at_two_mounts_is_one_bucket() -> None:
    """Mounting it again opens no second quota."""
    inner = app_with(frozen("2/min"), hello)
    app = FastAPI()
    app.mount("/a", inner)
    app.mount("/b", inner)

    assert "AAD" == await course(app, "GET /a/items", "GET /b/items", "GET /a/items")


@pytest.mark.parametrize(
    ("route_key", "moved"),
    [(by_template, "A"), (by_template(root_path=False), "D")],
    ids=repr,
)
async def test_case_46_by_template_one_handler_at_two_mounts_is_two_buckets(
    route_key: RouteKey, moved: str
) -> None:
    """Who asks for places has them; those of the deployment can be left out."""
    store = frozen_store()
    inner = app_with(Limiter("2/min", store=store, route_key=route_key), hello)
    app = FastAPI()
    app.mount("/a", inner)
    app.mount("/b", inner)

    assert "AADAAD" == await course(app, *["GET /a/items"] * 3, *["GET /b/items"] * 3)
    start, _ = await sent(app, {**http_scope("/v2/a/items"), "root_path": "/v2"})
    assert moved == letters([start["status"]])


@ways
async def test_case_47_one_handler_counts_get_and_head_together(way: Way) -> None:
    """One request is one unit, by whatever method."""
    app = way(frozen("10/min"), hello, methods=["GET", "HEAD"])

    first, second = await answers(app, "GET /", "HEAD /")

    assert ["9", "8"] == [
        answer.headers["RateLimit-Remaining"] for answer in (first, second)
    ]
    assert "A" * 8 == await course(app, *["GET /", "HEAD /"] * 4)
    assert "D" == await course(app, "HEAD /")


@ways
async def test_case_47_a_method_that_is_not_served_runs_nothing(way: Way) -> None:
    """HEAD on a route for GET is a 405, and costs nothing."""
    app = way(frozen("1/min"), hello)

    assert "<405>A" == await course(app, "HEAD /", "GET /")


RAW: dict[str, bytes] = {
    "100 kB": b"x" * 100_000,
    "100 kB and one": b"x" * 100_001,
    "NFC": "naïve/пример/例".encode(),
    "NFD": "nai\u0308ve/пример/例".encode(),
    "a space": b"a b",
    "NUL": b"a\0b",
    "CR LF": b"a\r\nRateLimit-Limit: 5",
    "braces": b"{x}",
    "bars": b"|x|",
    "a lone surrogate": "\ud800".encode("utf-8", "surrogatepass"),
    "no UTF-8": b"\xff\xfe",
}


def by_raw_header(request: Request) -> str:
    """Name a client by whatever bytes it sent."""
    raw = dict(request.scope["headers"])[b"x-key"]
    return str(raw, "utf-8", "surrogateescape")


@ways
async def test_case_49_any_text_is_a_client_of_its_own(way: Way) -> None:
    """No value raises, reaches into a header, or makes a long key."""
    store = Relay()
    app = way(Limiter("1/min", key_func=by_raw_header, store=store), hello)

    def scope_of(value: bytes) -> Scope:
        return {**http_scope(), "headers": [(b"host", b"test"), (b"x-key", value)]}

    for value in RAW.values():
        both = [(await sent(app, scope_of(value)))[0] for _ in range(2)]
        assert "AD" == letters([start["status"] for start in both])
        assert [(b"ratelimit-limit", b"1")] * 2 == [
            field
            for start in both
            for field in start["headers"]
            if field[0] == b"ratelimit-limit"
        ]

    assert len(RAW) == len({*store.keys})
    assert all(len(key) <= 300 and key.isprintable() for key in store.keys)


async def test_case_50_a_redirect_to_the_route_is_free() -> None:
    """A trailing slash leads to the route's own quota, and costs nothing itself."""
    limiter = frozen("100/min")
    router = ThrottledRouter(limiter)
    router.add_api_route("/items", limiter.limit("3/min")(hello))
    app = app_of(router)

    (redirect,) = await answers(app, "GET /items/")
    followed = await answers(app, *["GET /items/"] * 4, follow_redirects=True)

    assert 307 == redirect.status_code
    assert "RateLimit-Limit" not in redirect.headers
    assert "AAAD" == letters([answer.status_code for answer in followed])


# --- routes ---------------------------------------------------------------------------


def numbered() -> Endpoint:
    """Return a handler of its own."""

    async def handler() -> None:
        """Do nothing."""

    return handler


def included(router: ThrottledRouter) -> App:
    """Include it."""
    return app_of(router)


def included_at_x(router: ThrottledRouter) -> App:
    """Include it at /x."""
    app = FastAPI()
    app.include_router(router, prefix="/x")
    return app


def included_in_a_router(router: ThrottledRouter) -> App:
    """Include it in a router, both with a prefix."""
    outer = APIRouter(prefix="/x")
    outer.include_router(router, prefix="/y")
    return app_of(outer)


TREES: dict[str, tuple[Callable[[ThrottledRouter], App], str, str]] = {
    "included": (included, "", "/items"),
    "at a prefix": (included_at_x, "", "/x/items"),
    "in a router": (included_in_a_router, "", "/x/y/items"),
    "with a prefix of its own": (included, "/own", "/own/items"),
    "with two prefixes": (included_at_x, "/own", "/x/own/items"),
    "with three prefixes": (included_in_a_router, "/own", "/x/y/own/items"),
}


def as_a_function(router: ThrottledRouter) -> None:
    """Serve a function."""
    router.add_api_route("/items", hello)


def as_a_view(router: ThrottledRouter) -> None:
    """Serve a view."""

    @router.view
    class Items(ThrottledView):
        path = "/items"

        async def get(self) -> str:
            return "hello"


@route_keys
@pytest.mark.parametrize("serve", [as_a_function, as_a_view])
@pytest.mark.parametrize(("put", "prefix", "path"), TREES.values(), ids=TREES)
async def test_case_61_no_inclusion_makes_a_route_exempt(
    serve: Callable[[ThrottledRouter], None],
    put: Callable[[ThrottledRouter], App],
    prefix: str,
    path: str,
    route_key: RouteKey,
) -> None:
    """The second request is denied in each tree; a wrong method is a 405."""
    limiter = Limiter("1/min", store=frozen_store(), route_key=route_key)
    router = ThrottledRouter(limiter, prefix=prefix)
    serve(router)

    app = put(router)

    assert "A<405>D" == await course(app, f"GET {path}", f"POST {path}", f"GET {path}")


async def test_case_61_one_handler_is_one_bucket_over_all_inclusions() -> None:
    """However many paths lead to it, there is one quota."""
    router = ThrottledRouter(frozen("1/min"))
    router.add_api_route("/items", hello)
    app = FastAPI()
    app.include_router(router)
    for prefix in ("/x", "/y"):
        app.include_router(router, prefix=prefix)

    assert "ADD" == await course(app, "GET /items", "GET /x/items", "GET /y/items")


async def test_case_62_the_route_that_serves_is_the_one_that_counts() -> None:
    """The first route that matches is asked, as by the framework."""
    limiter = frozen("100/min")
    router = ThrottledRouter(limiter)

    @router.get("/files/special")
    @limiter.exempt
    async def special() -> None:
        """Do nothing."""

    @router.get("/files/{name}")
    @limiter.limit("600/min")
    async def file(name: str) -> str:
        return name

    @router.get("/{path:path}")
    async def anything(path: str) -> str:
        return path

    app = app_of(router)

    assert "A" * 150 == await course(app, *["GET /files/a"] * 150)
    assert "A" * 150 == await course(app, *["GET /files/special"] * 150)
    assert "A" * 100 + "D" == await course(app, *["GET /zzz"] * 101)


# --- functions that look the same -----------------------------------------------------


def partial_of(number: int) -> Endpoint:
    """Return a partial of one function."""

    async def named(number: int = 0) -> int:
        return number

    return functools.partial(named, number=number)


def lambda_of(number: int) -> Endpoint:
    """Return a lambda."""
    return lambda: number


def undecorated(number: int) -> Endpoint:
    """Return what a decorator without functools.wraps makes of a function."""

    async def wrapper() -> int:
        return number

    return wrapper


FACTORIES: dict[str, Callable[[int], Endpoint]] = {
    "partials": partial_of,
    "lambdas": lambda_of,
    "decorated without wraps": undecorated,
    "made in a loop": lambda _number: numbered(),
}


@pytest.mark.parametrize("factory", FACTORIES.values(), ids=FACTORIES)
@pytest.mark.filterwarnings("ignore:.* different objects named:UserWarning")
async def test_case_73_handlers_of_one_name_are_counted_apart(
    factory: Callable[[int], Endpoint],
) -> None:
    """What is limited is the object, not its name."""
    router = ThrottledRouter(frozen("1/min"))
    for number in range(4):
        router.add_api_route(f"/{number}", factory(number))
    app = app_of(router)

    assert "AAAA" == await course(app, *[f"GET /{number}" for number in range(4)])
    assert "DDDD" == await course(app, *[f"GET /{number}" for number in range(4)])


# --- other decorators -----------------------------------------------------------------


def caching(handler: Any) -> Any:  # noqa: ANN401 - as decorators are
    """Decorate *handler* such that it is called once."""
    kept: list[object] = []

    @functools.wraps(handler)
    async def wrapper(*args: object, **kwargs: object) -> object:
        if not kept:
            kept.append(await handler(*args, **kwargs))
        return kept[0]

    return wrapper


def twice(handler: Any) -> Any:  # noqa: ANN401 - as decorators are
    """Decorate *handler* such that it is called twice."""

    @functools.wraps(handler)
    async def wrapper(*args: object, **kwargs: object) -> object:
        await handler(*args, **kwargs)
        return await handler(*args, **kwargs)

    return wrapper


ORDERS: dict[str, Callable[[Any, Limiter], Endpoint]] = {
    "outside": lambda decorate, limiter: decorate(limiter.limit()(hello)),
    "inside": lambda decorate, limiter: limiter.limit()(decorate(hello)),
    "alone": lambda decorate, _limiter: decorate(hello),
}


@pytest.mark.parametrize("decorate", [caching, twice])
@pytest.mark.parametrize("order", ORDERS.values(), ids=ORDERS)
async def test_case_77_admission_belongs_to_the_route(
    order: Callable[[Any, Limiter], Endpoint],
    decorate: Any,  # noqa: ANN401 - as decorators are
) -> None:
    """A cache hit counts like any request, and a second call does not."""
    limiter = frozen("15/min")
    router = ThrottledRouter(limiter)
    router.add_api_route("/", order(decorate, limiter))

    assert "A" * 15 + "D" == await course(app_of(router), *["GET /"] * 16)


async def test_case_77_a_call_from_python_is_not_charged() -> None:
    """Only what comes through HTTP is a request."""
    limited = frozen().limit("15/min")(hello)
    app = FastAPI()
    app.add_api_route("/", limited)

    assert ["hello"] * 20 == [await limited() for _ in range(20)]
    assert "A" * 15 + "D" == await course(app, *["GET /"] * 16)
