"""Views: their routes, their limits, and who decides which limit is whose."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from fastapi import APIRouter, Depends, FastAPI, HTTPException, Request
from starlette.requests import HTTPConnection

from tests.apps_views import admitted, app_of, body, limiter_of, operation, view_of
from tests.asgi import answers, statuses
from throttled_views import (
    EXEMPT,
    Algorithm,
    ConfigurationError,
    CurrentRateLimit,
    KeyFunc,
    Limit,
    Limiter,
    Quota,
    QuotaFunc,
    RegistrationError,
    Throttle,
    ThrottledRouter,
    ThrottledView,
    ViewDefinitionError,
    everyone,
    exempt,
    limit,
    route,
)

VERBS = ["get", "post", "put", "patch", "delete", "head", "options", "trace"]

# --- routes ---------------------------------------------------------------------------


@pytest.mark.parametrize("verb", VERBS)
async def test_a_method_named_after_an_http_method_serves_it(verb: str) -> None:
    """Each of the eight names is a handler for its HTTP method, and for no other."""

    async def handler(self: object) -> str:
        return verb

    view = view_of(("throttle", "9/m"), (verb, handler))
    others = [f"{other.upper()} /v" for other in VERBS if other != verb]

    assert [200] == await statuses(app_of(view), f"{verb.upper()} /v")
    assert [405] * 7 == await statuses(app_of(view), *others)


async def test_a_view_is_served_below_its_path() -> None:
    """The path of the view stands between the router's prefix and the route's path."""

    class View(ThrottledView):
        path = "/books"
        throttle = "9/m"

        async def get(self) -> str:
            return "all"

        @route.get("/{number}")
        async def find(self, number: int) -> str:
            return f"number {number}"

    app = app_of(View)

    assert "all" == await body(app, "GET /v/books")
    assert "number 3" == await body(app, "GET /v/books/3")
    assert [404] == await statuses(app, "GET /v")


async def test_other_methods_are_no_handlers() -> None:
    """A method of another name and without a route serves nothing, and may be sync."""

    class View(ThrottledView):
        throttle = "9/m"

        def query(self) -> str:
            return "helper"

        async def fetch(self) -> str:
            return self.query()

        async def get(self) -> str:
            return await self.fetch()

    assert {"get"} == set(View.throttled)
    assert "helper" == await body(app_of(View))


async def test_a_route_replaces_that_of_the_name() -> None:
    """A method with a verb's name serves what its routes say, and only that."""

    class View(ThrottledView):
        throttle = "9/m"

        @route.put("/replaced")
        async def get(self) -> str:
            return "put"

    app = app_of(View)

    assert "put" == await body(app, "PUT /v/replaced")
    assert [404, 405] == await statuses(app, "GET /v", "GET /v/replaced")


async def test_several_routes_of_a_method_share_its_counts() -> None:
    """Paths and HTTP methods stacked on one handler are spent from one bucket."""

    class View(ThrottledView):
        throttle = "3/m"

        @route.get("/a")
        @route.get("/b/{number}")
        @route.post("/b/{number}")
        async def find(self, number: int = 0) -> int:
            return number

    assert [200, 200, 200, 429, 429] == await statuses(
        app_of(View), "GET /v/a", "GET /v/b/1", "POST /v/b/2", "GET /v/b/3", "GET /v/a"
    )


async def test_each_handler_has_counts_of_its_own() -> None:
    """A view's throttle is for each of its handlers, not for all together."""

    class View(ThrottledView):
        throttle = "1/m"

        async def get(self) -> None:
            pass

        async def post(self) -> None:
            pass

    assert [200, 200, 429, 429] == await statuses(
        app_of(View), "GET /v", "POST /v", "GET /v", "POST /v"
    )


async def test_the_methods_of_an_api_route_share_a_handler() -> None:
    """GET and HEAD of one handler are one bucket; any other method is a free 405."""

    class View(ThrottledView):
        throttle = "2/m"

        @route.api_route("/x", methods=["GET", "HEAD"])
        async def both(self) -> None:
            pass

        @route.api_route("/y")
        async def only_get(self) -> None:
            pass

    app = app_of(View)

    assert [405, 200, 200, 429, 429] == await statuses(
        app, "POST /v/x", "GET /v/x", "HEAD /v/x", "GET /v/x", "HEAD /v/x"
    )
    assert [405, 200] == await statuses(app, "HEAD /v/y", "GET /v/y")


def test_routes_are_named_after_class_and_handler() -> None:
    """A route is found as Class.handler, unless it is given a name."""

    class Items(ThrottledView):
        path = "/items"
        throttle = "9/m"

        async def get(self) -> None:
            pass

        @route.get("/{number}")
        async def find(self, number: int) -> None:
            pass

        @route.get("/latest/one", name="latest")
        async def newest(self) -> None:
            pass

    router = Items.as_router()

    assert "/items" == router.url_path_for("Items.get")
    assert "/items/7" == router.url_path_for("Items.find", number=7)
    assert "/items/latest/one" == router.url_path_for("latest")


async def test_routes_take_what_fastapi_takes() -> None:
    """The arguments of a route decorator reach the route, as on a function."""

    class Text(ThrottledView):
        throttle = "9/m"

        @route.get(
            "/x", status_code=203, tags=["x"], summary="Short", response_model=int
        )
        async def find(self) -> str:
            return "7"

        @route.get(path="/y", deprecated=True)
        async def old(self) -> None:
            pass

    app = app_of(Text)
    [answer] = await answers(app, "GET /v/x")
    described = operation(app, "get", "/v/x")

    assert (203, 7) == (answer.status_code, answer.json())
    assert (["x"], "Short") == (described["tags"], described["summary"])
    assert operation(app, "get", "/v/y")["deprecated"]


async def test_tags_and_dependencies_of_a_view_are_those_of_its_routes() -> None:
    """They come before the route's own, and subclasses inherit them."""
    ran: list[str] = []

    class View(ThrottledView):
        throttle = "9/m"
        tags = ["view"]
        dependencies = [Depends(lambda: ran.append("view"))]

        @route.get("", tags=["route"], dependencies=[Depends(lambda: ran.append("x"))])
        async def find(self) -> None:
            ran.append("handler")

    class Sub(View):
        pass

    app = app_of(Sub)
    await body(app)

    assert ["view", "route"] == operation(app)["tags"]
    assert ["view", "x", "handler"] == ran


MISSPELT: dict[str, Callable[..., Any]] = {
    **{verb: getattr(route, verb) for verb in VERBS},
    "api_route": route.api_route,
    "websocket": route.websocket,
}


@pytest.mark.parametrize("name", MISSPELT)
def test_a_route_refuses_what_fastapi_does_not_take(name: str) -> None:
    """A misspelt argument is an error of the class body, not of a request."""
    with pytest.raises(ViewDefinitionError) as caught:
        MISSPELT[name]("/x", respons_model=int)

    assert f"@route.{name}" == caught.value.subject
    assert "unexpected keyword argument 'respons_model'" in str(caught.value)
    assert f"Write what APIRouter.{name} of this FastAPI takes" in str(caught.value)


def test_a_route_needs_a_path() -> None:
    """A forgotten argument is an error of the class body too."""
    with pytest.raises(ViewDefinitionError, match="missing a required argument"):
        MISSPELT["get"]()


async def test_the_router_of_a_view_takes_what_fastapi_takes() -> None:
    """as_router() is the view on a router of its own, with the arguments of one."""

    class View(ThrottledView):
        path = "/items"

        async def get(self) -> None:
            pass

    router = View.as_router(limiter_of("2/m"), prefix="/shop", tags=["shop"])
    app = FastAPI()
    app.include_router(router)

    assert isinstance(router, ThrottledRouter)
    assert ["shop"] == operation(app, "get", "/shop/items")["tags"]
    assert 2 == await admitted(app, "GET /shop/items")


def test_without_a_limiter_the_process_wide_one_serves() -> None:
    """Two views that are registered without a limiter are on the same machinery."""

    class View(ThrottledView):
        throttle = "9/m"

        async def get(self) -> None:
            pass

    assert View.as_router().limiter is ThrottledRouter().limiter
    assert isinstance(View.as_router(), APIRouter)


# --- whose limit it is ----------------------------------------------------------------


class Bare(ThrottledView):
    """Declares nothing."""

    async def get(self) -> None:
        """Serve."""


class OfClass(Bare):
    """Declares for all of its handlers."""

    throttle: Throttle | None = "3/m"


class OfBase(OfClass):
    """Has what its base has."""


class OfSubclass(OfClass):
    """Declares in place of its base."""

    throttle = "4/m"


class OfHandler(OfSubclass):
    """Declares in place of its class, for one handler."""

    @limit("5/m")
    async def get(self) -> None:
        """Serve."""


class OfInheritedHandler(OfHandler):
    """Declares for its class; the handler it inherits has a limit of its own."""

    throttle = "6/m"


class BackToDefault(OfClass):
    """Leaves it to the limiter again."""

    throttle = None


class ExemptClass(OfClass):
    """Is unlimited."""

    throttle = EXEMPT


class LimitedHandlerOfExemptClass(ExemptClass):
    """Is unlimited but for one handler."""

    @limit("1/m")
    async def get(self) -> None:
        """Serve."""


class ExemptHandler(OfClass):
    """Has an unlimited handler."""

    @exempt
    async def get(self) -> None:
        """Serve."""


class ExemptByLimit(OfClass):
    """Has a handler that says it another way."""

    @limit(EXEMPT)
    async def get(self) -> None:
        """Serve."""


class OfMixin:
    """Declares, and is no view."""

    throttle: Throttle | None = "7/m"


class MixedIn(OfMixin, Bare):
    """Has what its mixin has."""


NEAREST = {
    "the default of the limiter": (Bare, 2),
    "class before default": (OfClass, 3),
    "base class before default": (OfBase, 3),
    "class before base class": (OfSubclass, 4),
    "handler before class": (OfHandler, 5),
    "inherited handler before class": (OfInheritedHandler, 5),
    "None is the default again": (BackToDefault, 2),
    "an exempt class": (ExemptClass, 8),
    "handler before exempt class": (LimitedHandlerOfExemptClass, 1),
    "exempt handler before class": (ExemptHandler, 8),
    "@limit(EXEMPT) is @exempt": (ExemptByLimit, 8),
    "a plain mixin as any base": (MixedIn, 7),
}


@pytest.mark.parametrize(("view", "expected"), NEAREST.values(), ids=NEAREST)
async def test_the_nearest_declaration_wins(
    view: type[ThrottledView], expected: int
) -> None:
    """Handler, class, base class, then the limiter's default; one, never two."""
    app = app_of(view, limiter=limiter_of("2/m"))

    assert expected == await admitted(app, of=8)


async def test_an_exempt_handler_has_no_fields_of_a_limit() -> None:
    """What is not limited says nothing of limits, and never answers 429."""
    [answer] = await answers(app_of(ExemptHandler), "GET /v")

    assert set() == {name for name in answer.headers if name.startswith("ratelimit")}


def test_a_view_without_a_limit_is_refused_at_registration() -> None:
    """A forgotten throttle is an error that names the handler, and what to write."""
    with pytest.raises(RegistrationError) as caught:
        app_of(Bare)

    assert f"{Bare.__module__}.Bare.get" == caught.value.subject
    assert "throttle = '100/m'" in str(caught.value)
    assert "throttle = EXEMPT" in str(caught.value)


def above(view_limit: str) -> type[ThrottledView]:
    """Decorate with the limit above the route."""

    class View(ThrottledView):
        throttle = "9/m"

        @limit(view_limit)
        @route.get("/x")
        @route.get("/y")
        async def find(self) -> None:
            pass

    return View


def below(view_limit: str) -> type[ThrottledView]:
    """Decorate with the limit below the route."""

    class View(ThrottledView):
        throttle = "9/m"

        @route.get("/x")
        @route.get("/y")
        @limit(view_limit)
        async def find(self) -> None:
            pass

    return View


def between(view_limit: str) -> type[ThrottledView]:
    """Decorate with the limit between two routes."""

    class View(ThrottledView):
        throttle = "9/m"

        @route.get("/x")
        @limit(view_limit)
        @route.get("/y")
        async def find(self) -> None:
            pass

    return View


@pytest.mark.parametrize("define", [above, below, between])
async def test_the_order_of_limit_and_route_does_not_matter(
    define: Callable[[str], type[ThrottledView]],
) -> None:
    """A limit above, below or between the routes of a handler is for all of them."""
    assert [200, 200, 429, 429] == await statuses(
        app_of(define("2/m")), "GET /v/x", "GET /v/y", "GET /v/x", "GET /v/y"
    )


async def test_several_limits_are_one_decision() -> None:
    """A request is charged to all limits of its handler, or to none of them."""

    class View(ThrottledView):
        @limit("2/s", Limit("3/h", cost=2, name="slow"))
        async def get(self, rate_limit: CurrentRateLimit) -> dict[str, int]:
            return {each.name: each.state.remaining for each in rate_limit.results}

    app = app_of(View)

    first, *others = await answers(app, "GET /v", "GET /v", "GET /v")

    assert {"1": 1, "slow": 1} == first.json()
    assert [("3", "1")] * 2 == [
        (each.headers["RateLimit-Limit"], each.headers["RateLimit-Remaining"])
        for each in others
    ]


async def test_options_of_a_limit_are_for_each_of_its_quotas() -> None:
    """What stands beside the quotas in @limit is said of each."""

    class View(ThrottledView):
        @limit("4/s; 6/h", cost=2, key_func=everyone)
        async def get(self) -> None:
            pass

    assert [(2, everyone), (2, everyone)] == [
        (each.cost, each.key_func) for each in View.throttled["get"].limits
    ]
    assert 2 == await admitted(app_of(View))


async def test_a_limit_takes_from_the_view_what_it_does_not_say() -> None:
    """Key function, algorithm and bucket of a class are for limits without one."""

    class View(ThrottledView):
        key_func = everyone
        using = Algorithm.GCRA
        bucket = "shared"

        @limit("5/m")
        async def get(self) -> None:
            pass

        @limit(Limit("5/m", bucket="own", using=Algorithm.LEAKY_BUCKET))
        async def post(self) -> None:
            pass

    [inherits] = View.throttled["get"].limits
    [overrides] = View.throttled["post"].limits

    assert Limit("5/m", key_func=everyone, using=Algorithm.GCRA, bucket="shared") == (
        inherits
    )
    assert ("own", Algorithm.LEAKY_BUCKET) == (overrides.bucket, overrides.using)
    assert everyone is overrides.key_func


async def test_the_default_takes_from_the_view_what_it_does_not_say() -> None:
    """A view without a throttle still says who the limiter's default is counted for."""

    class View(ThrottledView):
        key_func = everyone

        async def get(self) -> None:
            pass

    app = app_of(View, limiter=limiter_of("1/m"))

    assert [200] == await statuses(app, "GET /v", client="192.0.2.1")
    assert [429] == await statuses(app, "GET /v", client="192.0.2.2")


async def test_a_bucket_of_a_view_is_shared_by_its_handlers() -> None:
    """With a bucket the throttle is for all handlers of the view together."""

    class View(ThrottledView):
        throttle = "2/m"
        bucket = "together"

        async def get(self) -> None:
            pass

        async def post(self) -> None:
            pass

    assert [200, 200, 429, 429] == await statuses(
        app_of(View), "GET /v", "POST /v", "GET /v", "POST /v"
    )


# --- View.throttled -------------------------------------------------------------------


def test_throttled_has_the_limits_of_each_handler() -> None:
    """It maps the names of handlers to what they declare, once the class is made."""

    class View(ThrottledView):
        throttle = "3/m"

        async def get(self) -> None:
            pass

        @limit("1/s; 5/h")
        @route.get("/x")
        async def find(self) -> None:
            pass

        def helper(self) -> None:
            pass

    assert {
        "get": [Quota.per_minute(3)],
        "find": [Quota.per_second(1), Quota.per_hour(5)],
    } == {
        name: [each.quota for each in throttled.limits]
        for name, throttled in View.throttled.items()
    }


def test_throttled_leaves_out_what_the_limiter_decides() -> None:
    """A handler that declares nothing is not in it: defaults differ by limiter."""
    assert {} == dict(Bare.throttled)


def test_throttled_cannot_be_changed() -> None:
    """The mapping is for reading."""
    throttled: Any = OfClass.throttled

    with pytest.raises(TypeError, match="does not support item assignment"):
        throttled["get"] = throttled["get"]


async def test_throttled_waits_for_a_store() -> None:
    """Before a view is registered no counts exist: asking says so."""
    with pytest.raises(ConfigurationError, match="has no store yet"):
        await OfClass.throttled["get"].limit("alice")


async def test_each_registration_binds_its_own_copy() -> None:
    """One class on two limiters has two sets of counts."""

    class View(ThrottledView):
        throttle = "1/m"

        async def get(self) -> None:
            pass

    first, second = app_of(View), app_of(View)

    assert [200, 429] == await statuses(first, "GET /v", "GET /v")
    assert [200, 429] == await statuses(second, "GET /v", "GET /v")


async def test_a_view_included_twice_shares_its_counts() -> None:
    """Another prefix is no fresh quota."""

    class View(ThrottledView):
        throttle = "2/m"

        async def get(self) -> None:
            pass

    router = ThrottledRouter(limiter_of())
    router.add_view(View, prefix="/v1")
    router.add_view(View, prefix="/v2")
    app = FastAPI()
    app.include_router(router)
    app.include_router(router, prefix="/beta")

    assert [200, 200, 429, 429] == await statuses(
        app, "GET /v1", "GET /v2", "GET /v1", "GET /beta/v2"
    )


# --- functions in attributes ----------------------------------------------------------


def by_tenant(request: Request) -> str:
    """Name the tenant."""
    return request.headers["X-Tenant"]


async def by_tenant_later(connection: HTTPConnection) -> str:
    """Name the tenant, in a coroutine."""
    return connection.headers["X-Tenant"]


# Said once with its type: pyright wants to know a lambda's parameters.
by_tenant_shortly: Callable[[Request], str] = lambda request: (  # noqa: E731
    request.headers["X-Tenant"]
)


class PlainKey(ThrottledView):
    """Has the function as it is."""

    throttle = "1/m"
    key_func = by_tenant


class CoroutineKey(ThrottledView):
    """Has a coroutine function."""

    throttle = "1/m"
    key_func = by_tenant_later


class StaticKey(ThrottledView):
    """Has it wrapped."""

    throttle = "1/m"
    key_func = staticmethod(by_tenant)


class WrittenKey(ThrottledView):
    """Has it written in the class."""

    throttle = "1/m"

    @staticmethod
    def key_func(request: Request) -> str:
        """Name the tenant."""
        return request.headers["X-Tenant"]


class LambdaKey(ThrottledView):
    """Has one without a name."""

    throttle = "1/m"
    key_func = by_tenant_shortly


class InheritedKey(LambdaKey):
    """Has that of its base."""


@pytest.mark.parametrize(
    "base",
    [PlainKey, CoroutineKey, StaticKey, WrittenKey, LambdaKey, InheritedKey],
    ids=lambda view: view.__name__,
)
async def test_a_key_function_is_not_bound(base: type[ThrottledView]) -> None:
    """In whatever form it stands in a class, it gets the request and no self."""
    app = app_of(view_of(("get", Bare.get), bases=(base,)))
    tenants = [
        (await answers(app, "GET /v", headers={"X-Tenant": tenant}))[0].status_code
        for tenant in ("a", "b", "a")
    ]

    assert [200, 200, 429] == tenants


def chosen(request: Request) -> Quota | str:
    """Choose a quota by what the client says of itself."""
    return "3/m" if "plan=paid" in request.url.query else Quota.per_minute(1)


async def chosen_later(request: Request) -> Quota | str:
    """Choose in a coroutine."""
    return chosen(request)


class PlainQuota(ThrottledView):
    """Has the function as it is."""

    throttle = chosen


class StaticQuota(ThrottledView):
    """Has it wrapped."""

    throttle = staticmethod(chosen_later)


@pytest.mark.parametrize(
    "base", [PlainQuota, StaticQuota], ids=lambda view: view.__name__
)
async def test_a_quota_function_is_not_bound(base: type[ThrottledView]) -> None:
    """As throttle it gets the request and no self, and is asked for each request."""
    view = view_of(("get", Bare.get), bases=(base,))

    assert 1 == await admitted(app_of(view), "GET /v")
    assert 3 == await admitted(app_of(view), "GET /v?plan=paid")


async def test_the_nearest_key_function_wins() -> None:
    """That of the limit, then of the view, then of the limiter."""

    def key(name: str) -> KeyFunc:
        def key_func(request: Request) -> str:
            asked.append(name)
            return name

        return key_func

    asked: list[str] = []

    class View(ThrottledView):
        throttle = "9/m"
        key_func = staticmethod(key("view"))

        async def get(self) -> None:
            pass

        @limit("9/m", key_func=key("limit"))
        async def post(self) -> None:
            pass

    class Silent(ThrottledView):
        throttle = "9/m"
        path = "/silent"

        async def get(self) -> None:
            pass

    app = app_of(View, Silent, limiter=limiter_of(key_func=key("limiter")))
    await statuses(app, "GET /v", "POST /v", "GET /v/silent")

    assert ["view", "limit", "limiter"] == asked


# --- instances ------------------------------------------------------------------------


async def test_an_instance_is_made_for_each_request() -> None:
    """What a request leaves on self is gone for the next one."""

    class View(ThrottledView):
        throttle = "9/m"
        visits = 0

        async def get(self) -> int:
            self.visits += 1
            return self.visits

    app = app_of(View)

    assert [1, 1, 1] == [await body(app) for _ in range(3)]


async def test_concurrent_requests_do_not_share_an_instance() -> None:
    """Of requests that overlap, each sees on self only what it left there itself."""
    all_there = asyncio.Barrier(3)

    class View(ThrottledView):
        throttle = "9/m"

        async def get(self, name: str) -> list[str]:
            self.name = name
            async with asyncio.timeout(5):
                await all_there.wait()
            return [name, self.name]

    app = app_of(View)
    names = ["a", "b", "c"]

    assert [[name, name] for name in names] == await asyncio.gather(
        *(body(app, f"GET /v?name={name}") for name in names)
    )


async def test_a_handler_of_an_instance_is_called_without_being_charged() -> None:
    """From Python a handler is the method that it is."""

    class View(ThrottledView):
        throttle = "1/m"

        async def get(self, number: int = 1) -> int:
            return number

    app = app_of(View)

    assert [1, 2, 3] == [await View().get(number) for number in (1, 2, 3)]
    assert 1 == await admitted(app)


async def test_self_may_have_another_name() -> None:
    """The first parameter is the instance, whatever it is called."""

    class View(ThrottledView):
        throttle = "9/m"
        request: Request

        async def get(
            this,  # noqa: N805  # pyright: ignore[reportSelfClsParameterName]
            number: int,
        ) -> list[str]:
            return [this.request.url.path, str(number)]

        async def post(self, /, number: int) -> str:
            return self.request.method * number

    app = app_of(View)

    assert ["/v", "3"] == await body(app, "GET /v?number=3")
    assert "POSTPOST" == await body(app, "POST /v?number=2")


async def test_headers_are_on_the_errors_of_a_handler() -> None:
    """An HTTPException of a handler says where the client stands, as a result does."""

    class View(ThrottledView):
        throttle = "3/m"

        async def get(self) -> None:
            raise HTTPException(404)

    [answer] = await answers(app_of(View), "GET /v")

    assert (404, "2") == (answer.status_code, answer.headers["RateLimit-Remaining"])


# --- finished classes -----------------------------------------------------------------

SETTINGS: dict[str, object] = {
    "path": "/x",
    "tags": ["x"],
    "dependencies": [],
    "throttle": "5/m",
    "key_func": by_tenant,
    "using": Algorithm.GCRA,
    "bucket": "x",
    "get": chosen_later,
}


@pytest.mark.parametrize("name", SETTINGS)
def test_a_finished_class_takes_no_declaration(name: str) -> None:
    """What was read when the class was made cannot be set: it would do nothing."""

    class View(ThrottledView):
        throttle = "1/m"

    with pytest.raises(ViewDefinitionError) as caught:
        setattr(View, name, SETTINGS[name])

    assert caught.value.subject.endswith(f"<locals>.View.{name}")
    assert "Write it in the class body, or subclass" in str(caught.value)


def test_a_finished_class_takes_other_attributes() -> None:
    """Only declarations are fixed; a class may keep what it likes."""

    class View(ThrottledView):
        throttle = "1/m"
        cache: dict[str, int] = {}

    View.cache = {"a": 1}

    assert {"a": 1} == View.cache


def test_the_limiter_of_a_quota_function_is_asked_nothing_at_import() -> None:
    """A function is not called to find out whether a declaration holds."""

    def never(request: Request) -> str:
        raise AssertionError

    quotas: QuotaFunc = never

    class View(ThrottledView):
        throttle = staticmethod(quotas)
        key_func = never

        async def get(self) -> None:
            pass

    assert isinstance(View.as_router(Limiter()), ThrottledRouter)
