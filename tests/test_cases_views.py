"""Scenarios from public bug reports that class-based views must get right."""

import functools
import importlib.resources
import inspect
import json
from collections import Counter
from collections.abc import Callable
from typing import Annotated, Any

import pytest
from fastapi import (
    Body,
    Depends,
    FastAPI,
    Header,
    HTTPException,
    Request,
    Response,
)
from fastapi.responses import PlainTextResponse, RedirectResponse
from pydantic import BaseModel

from tests import postponed_views
from tests.apps_views import app_of, limiter_of, unlimited_document, view_of
from tests.asgi import Relay, answers, statuses
from throttled_views import (
    ConfigurationError,
    InvalidQuotaError,
    Limit,
    Limiter,
    MemoryStore,
    Quota,
    Throttle,
    ThrottledRouter,
    ThrottledView,
    exempt,
    limit,
    route,
)

# --- keys -----------------------------------------------------------------------------


def by_api_key(request: Request) -> str:
    """Name a client by the whole of its API key."""
    return f"key {request.headers['X-API-Key']}"


async def test_case_40_keys_of_a_common_prefix_are_different_clients() -> None:
    """50 clients whose keys begin alike have 50 quotas; no key is in the store."""

    class View(ThrottledView):
        throttle = "1/m"
        key_func = by_api_key

        async def get(self) -> None:
            pass

    store = Relay()
    app = app_of(View, limiter=Limiter(store=store))
    secrets = [f"{'sk_live_' * 5}{number:032}" for number in range(50)]
    answered = [
        (await answers(app, "GET /v", headers={"X-API-Key": secret}))[0].status_code
        for secret in secrets * 2
    ]

    assert [200] * 50 + [429] * 50 == answered
    assert 50 == len(set(store.keys))
    assert not [key for key in store.keys if "sk_live" in key]


async def test_case_44_values_of_a_path_parameter_are_one_bucket(
    store: MemoryStore,
) -> None:
    """Neither a parameter nor a query nor a suffix makes a fresh quota."""

    class Users(ThrottledView):
        path = "/users"
        throttle = "10/m"

        @route.get("/{name}")
        async def find(self, name: str) -> str:
            return name

    app = app_of(Users, limiter=Limiter(store=store))
    requests = [
        f"GET /v/users/{number}{('', '?q=1', ';v=2')[number % 3]}"
        for number in range(1, 101)
    ]

    assert [200] * 10 + [429] * 90 == await statuses(app, *requests)
    assert 1 == len(store)


async def test_case_47_one_handler_counts_get_and_head_together() -> None:
    """A HEAD is neither free nor twice; where only GET is served it is a 405."""
    ran: list[str] = []

    class View(ThrottledView):
        throttle = "10/m"

        @route.api_route("", methods=["GET", "HEAD"])
        async def both(self) -> None:
            pass

        @route.get("/only-get")
        async def only_get(self) -> None:
            ran.append("only_get")

    app = app_of(View)
    first, second = await answers(app, "GET /v", "HEAD /v")
    others = await statuses(app, *["GET /v", "HEAD /v"] * 4, "HEAD /v")

    assert ["9", "8"] == [
        answer.headers["RateLimit-Remaining"] for answer in (first, second)
    ]
    assert [200] * 8 + [429] == others
    assert [405] == await statuses(app, "HEAD /v/only-get")
    assert [] == ran


async def test_case_50_a_redirect_to_the_route_is_free() -> None:
    """A slash too many leads to the view's own quota, and costs nothing itself."""

    class Items(ThrottledView):
        path = "/items"
        throttle = "3/m"

        async def get(self) -> None:
            pass

    app = app_of(Items, limiter=limiter_of("100/m"))
    answered = await answers(app, *["GET /v/items/"] * 4, follow_redirects=True)

    assert [200, 200, 200, 429] == [answer.status_code for answer in answered]
    assert ["2", "1", "0", "0"] == [
        answer.headers["RateLimit-Remaining"] for answer in answered
    ]
    assert [[307]] * 4 == [
        [each.status_code for each in answer.history] for answer in answered
    ]


# --- routes ---------------------------------------------------------------------------


async def test_case_62_the_route_that_serves_is_the_one_that_counts() -> None:
    """A later route that would match as well takes no part in the decision."""

    class Files(ThrottledView):
        path = "/files"
        throttle = "600/m"

        @exempt
        @route.get("/special")
        async def special(self) -> str:
            return "special"

        @route.get("/{name}")
        async def find(self, name: str) -> str:
            return name

    class Anything(ThrottledView):
        @route.get("/{path:path}")
        async def find(self, path: str) -> str:
            return path

    app = app_of(Files, Anything, limiter=limiter_of("100/m"), prefix="")
    special = await answers(app, *["GET /files/special"] * 150)
    named = await statuses(app, *["GET /files/a"] * 150)
    others = await statuses(app, *["GET /zzz"] * 101)

    assert {200} == {answer.status_code for answer in special}
    assert not any("RateLimit-Limit" in answer.headers for answer in special)
    assert {200: 150} == Counter(named)
    assert {200: 100, 429: 1} == Counter(others)


class Item(BaseModel):
    """Something to return."""

    name: str
    hidden: str = "hidden"


class Shown(BaseModel):
    """What of it is shown."""

    name: str


class Page(PlainTextResponse):
    """A response of the user's own class."""

    media_type = "text/x-page"


class Results(ThrottledView):
    """Has a handler for each kind of result."""

    throttle = "9/m"

    @route.get("/dict")
    async def a_dict(self) -> dict[str, int]:
        """Return a dict."""
        return {"a": 1}

    @route.get("/model", response_model=Shown)
    async def a_model(self) -> Item:
        """Return more than is shown."""
        return Item(name="a")

    @route.delete("/none", status_code=204)
    async def nothing(self):  # type: ignore[no-untyped-def]  # noqa: ANN201
        """Return nothing, and do not say so."""

    @route.get("/response")
    async def a_response(self) -> Response:
        """Return a response."""
        return Response("text", 418, {"X-Own": "own"}, "text/plain")

    @route.get("/subclass")
    async def a_subclass(self) -> Page:
        """Return a response of a class of its own."""
        return Page("page")

    @route.get("/redirect")
    async def a_redirect(self) -> RedirectResponse:
        """Return a redirect."""
        return RedirectResponse("/elsewhere", 303)

    @route.get("/list")
    async def a_list(self) -> list[int | str]:
        """Return what looks like a pair of body and status."""
        return ["a", 404]

    @route.post("/created", status_code=201)
    async def created(self) -> str:
        """Return with another status."""
        return "created"

    @route.get("/headers", response_model=str)
    async def headers(self, response: Response) -> str:
        """Set a header and a status on FastAPI's response."""
        response.headers["X-Own"] = "own"
        response.status_code = 203
        return "headers"


async def test_case_64_a_result_of_none_has_the_fields_once() -> None:
    """A 204 whose handler says that it returns nothing is like any other."""

    class View(ThrottledView):
        throttle = "9/m"

        @route.delete("", status_code=204)
        async def remove(self) -> None:
            pass

    [answer] = await answers(app_of(View), "DELETE /v")

    assert (204, b"") == (answer.status_code, answer.content)
    assert ["8"] == answer.headers.get_list("RateLimit-Remaining")


RESULTS: dict[str, tuple[str, int, str, dict[str, str]]] = {
    "a dict": ("GET /v/dict", 200, '{"a":1}', {}),
    "a model": ("GET /v/model", 200, '{"name":"a"}', {}),
    "nothing": ("DELETE /v/none", 204, "", {}),
    "a response": ("GET /v/response", 418, "text", {"X-Own": "own"}),
    "a subclass": (
        "GET /v/subclass",
        200,
        "page",
        {"Content-Type": "text/x-page; charset=utf-8"},
    ),
    "a redirect": ("GET /v/redirect", 303, "", {"Location": "/elsewhere"}),
    "a list": ("GET /v/list", 200, '["a",404]', {}),
    "a status": ("POST /v/created", 201, '"created"', {}),
    "headers": ("GET /v/headers", 203, '"headers"', {"X-Own": "own"}),
}


@pytest.mark.parametrize(
    ("request_", "status", "text", "headers"), RESULTS.values(), ids=RESULTS
)
async def test_case_64_every_kind_of_result_has_the_fields_once(
    request_: str, status: int, text: str, headers: dict[str, str]
) -> None:
    """Status, body and own headers of a result are kept, and the fields are added."""
    [answer] = await answers(app_of(Results), request_)

    assert (status, text) == (answer.status_code, answer.text)
    assert headers == {name: answer.headers[name] for name in headers}
    assert (["9"], ["8"]) == (
        answer.headers.get_list("RateLimit-Limit"),
        answer.headers.get_list("RateLimit-Remaining"),
    )


async def test_case_65_what_was_charged_is_seen_whatever_raises() -> None:
    """A 401, a 422 and a 404 have the fields; a 500 is charged, and has none."""

    async def login(user: Annotated[str, Header()]) -> str:
        if user == "nobody":
            raise HTTPException(401)
        return user

    class View(ThrottledView):
        throttle = "5/m"
        user: Annotated[str, Depends(login)]

        async def post(self, number: Annotated[int, Body()]) -> int:
            if number == 4:
                raise HTTPException(404)
            return 1 // number

    app = app_of(View)
    bodies = [("nobody", b"1"), ("a", b"{"), ("a", b"4"), ("a", b"0"), ("a", b"1")]
    answered = [
        (
            await answers(
                app, "POST /v", headers={"User": user}, content=content, raising=False
            )
        )[0]
        for user, content in [*bodies, ("a", b"1")]
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
        for answer in answered
    ]


async def test_case_70_routes_keep_their_order_and_their_limits() -> None:
    """The first of two routes serves, each with its own limit; self is no parameter."""

    class Blogs(ThrottledView):
        path = "/blogs"

        @limit("2/m")
        @route.get("/drafts")
        async def drafts(self) -> str:
            return "drafts"

        @limit("5/m")
        @route.get("/{number}")
        async def find(self, number: str) -> str:
            return number

    app = app_of(Blogs)
    answered = await answers(app, *["GET /v/blogs/drafts"] * 3)

    assert ["drafts", "drafts"] == [answer.json() for answer in answered[:2]]
    assert 429 == answered[2].status_code
    assert [200] * 5 + [429] == await statuses(app, *["GET /v/blogs/1"] * 6)


async def test_case_70_paths_of_one_method_share_its_limit() -> None:
    """Three paths with an optional parameter are five requests over the three."""

    class Blogs(ThrottledView):
        @limit("5/m")
        @route.get("/blogs")
        @route.get("/blogs/{year}")
        @route.get("/archive/{year}")
        async def find(self, year: int = 2000) -> int:
            return year

    paths = ["/v/blogs", "/v/blogs/1999", "/v/archive/1998"] * 2
    answered = await answers(app_of(Blogs), *(f"GET {path}" for path in paths))

    assert [2000, 1999, 1998, 2000, 1999] == [each.json() for each in answered[:5]]
    assert 429 == answered[5].status_code


async def test_case_71_subclasses_are_views_of_their_own() -> None:
    """Inherited, overridden and limited anew: each is one route with its own count."""

    class Base(ThrottledView):
        throttle: Throttle | None = "3/m"

        async def get(self) -> str:
            return f"base {type(self).__name__}"

    class A(Base):
        path = "/a"

    class B(Base):
        path = "/b"

        async def get(self) -> str:
            return "override"

    class C(A):
        path = "/c"
        throttle = "1/m"

    app = app_of(A, B, C)

    for path, text, count in (
        ("a", "base A", 3),
        ("b", "override", 3),
        ("c", "base C", 1),
    ):
        answered = await answers(app, *[f"GET /v/{path}"] * (count + 1))

        assert [text] * count == [answer.json() for answer in answered[:count]]
        assert 429 == answered[count].status_code
    assert {"/v/a": ["get"], "/v/b": ["get"], "/v/c": ["get"]} == {
        path: list(methods) for path, methods in app.openapi()["paths"].items()
    }


async def test_case_71_mixins_count_by_the_order_they_stand_in() -> None:
    """Reversed, the other one's override serves, and the route is still one."""

    class Base(ThrottledView):
        throttle = "3/m"

        async def get(self) -> str:
            return "base"

    class One(Base):
        async def get(self) -> str:
            return "one"

    class Two(Base):
        async def get(self) -> str:
            return "two"

    class OneTwo(One, Two):
        path = "/one-two"

    class TwoOne(Two, One):
        path = "/two-one"

    app = app_of(OneTwo, TwoOne)

    for path, text in (("one-two", "one"), ("two-one", "two")):
        answered = await answers(app, *[f"GET /v/{path}"] * 4)

        assert [text] * 3 == [answer.json() for answer in answered[:3]]
        assert 429 == answered[3].status_code


# --- functions that look the same -----------------------------------------------------


def made_by_a_function(path: str) -> type[ThrottledView]:
    """Make a view whose name is that of all the others."""

    class Made(ThrottledView):
        throttle = "1/m"

        @route.get(path)
        async def find(self) -> str:
            return path

    return Made


def made_by_type(path: str) -> Any:  # noqa: ANN401
    """Make a view without a class statement."""

    async def find(self: ThrottledView) -> str:
        return path

    body = {"throttle": "1/m", "find": route.get(path)(find)}
    return type("Dynamic", (ThrottledView,), body)


PATHS = ["/a", "/b", "/c", "/d"]


@pytest.mark.parametrize("make", [made_by_a_function, made_by_type])
async def test_case_73_views_of_one_name_are_counted_apart(
    make: Callable[[str], type[ThrottledView]],
) -> None:
    """Four views from one factory are four quotas, and a warning to name them."""
    with pytest.warns(UserWarning, match="different objects named") as warned:
        app = app_of(*map(make, PATHS))
    requests = [f"GET /v{path}" for path in PATHS]

    assert [200] * 4 + [429] * 4 == await statuses(app, *requests, *requests)
    assert 3 == len(warned)
    assert "Give its limits a bucket='…' to name it yourself" in str(warned[0].message)


async def serve(self: object, text: str = "plain") -> str:
    """Be the handler behind others."""
    return text


def without_wraps(text: str) -> Callable[..., Any]:
    """Decorate `serve` so that nothing of it is left to see."""

    async def wrapper(self: object) -> str:
        return await serve(self, text)

    return wrapper


HANDLERS: dict[str, Callable[[str], Any]] = {
    "partialmethod": lambda path: functools.partialmethod(serve, path),
    "without wraps": without_wraps,
}


@pytest.mark.parametrize("make", HANDLERS.values(), ids=HANDLERS)
async def test_case_73_handlers_of_one_function_are_counted_apart(
    make: Callable[[str], Any],
) -> None:
    """Four handlers are four quotas, whatever their functions are called."""
    names = ["a", "b", "c", "d"]
    view = view_of(
        ("throttle", "1/m"),
        *((name, route.get(f"/{name}")(make(name))) for name in names),
    )
    requests = [f"GET /v/{name}" for name in names]
    answered = await answers(app_of(view), *requests, *requests)

    assert names == [answer.json() for answer in answered[:4]]
    assert [429] * 4 == [answer.status_code for answer in answered[4:]]


def test_case_74_postponed_annotations_change_nothing() -> None:
    """The document of a view is that of functions in the same module, byte for byte."""
    assert json.dumps(postponed_views.functions().openapi()) == (
        json.dumps(unlimited_document(app_of(postponed_views.Books)))
    )


def test_case_74_a_limit_changes_nothing() -> None:
    """With or without limits the document of a view is the same, byte for byte."""

    class Books(postponed_views.Books):
        @exempt
        async def post(self, new: postponed_views.NewBook) -> postponed_views.Book:
            """Make one."""
            return await super().post(new)

    assert json.dumps(unlimited_document(app_of(postponed_views.Books))) == (
        json.dumps(unlimited_document(app_of(Books)))
    )


# --- other decorators -----------------------------------------------------------------


def cached(handler: Callable[..., Any]) -> Any:  # noqa: ANN401
    """Call a handler once, and give its first result ever after."""
    found: list[object] = []

    @functools.wraps(handler)
    async def wrapper(*args: object, **kwargs: object) -> object:
        if not found:
            found.append(await handler(*args, **kwargs))
        return found[0]

    return wrapper


def repeated(handler: Callable[..., Any]) -> Any:  # noqa: ANN401
    """Call a handler twice."""

    @functools.wraps(handler)
    async def wrapper(*args: object, **kwargs: object) -> object:
        await handler(*args, **kwargs)
        return await handler(*args, **kwargs)

    return wrapper


COMBINED: dict[str, Callable[[Any], Any]] = {
    "cache outside": lambda handler: cached(limit("15/m")(route.get("")(handler))),
    "cache inside": lambda handler: limit("15/m")(route.get("")(cached(handler))),
    "cache between": lambda handler: limit("15/m")(cached(route.get("")(handler))),
    "called twice": lambda handler: repeated(limit("15/m")(route.get("")(handler))),
    "called twice inside": lambda handler: limit("15/m")(
        route.get("")(repeated(handler))
    ),
}


@pytest.mark.parametrize("combine", COMBINED.values(), ids=COMBINED)
async def test_case_77_a_request_is_charged_once_whatever_is_called(
    combine: Callable[[Any], Any],
) -> None:
    """A decorator in any place neither skips the limit nor counts for itself."""

    async def find(self: object) -> str:
        return "found"

    app = app_of(view_of(("find", combine(find))))

    assert [200] * 15 + [429] == await statuses(app, *["GET /v"] * 16)


async def test_case_77_a_call_from_python_is_not_charged() -> None:
    """Only what comes by HTTP is a request."""

    class View(ThrottledView):
        throttle = "2/m"

        async def get(self) -> str:
            return "called"

    app = app_of(View)

    assert ["called"] * 5 == [await View().get() for _ in range(5)]
    assert [200, 200, 429] == await statuses(app, *["GET /v"] * 3)


# --- types and declarations -----------------------------------------------------------

UNCHANGED: dict[str, Callable[[Any], Any]] = {
    "limit": limit("5/m"),
    "exempt": exempt,
    "route": route.get("/x"),
    "limit and route": lambda function: limit("5/m")(route.get("/x")(function)),
}


@pytest.mark.parametrize("decorate", UNCHANGED.values(), ids=UNCHANGED)
def test_case_112_decorators_return_what_they_decorate(
    decorate: Callable[[Any], Any],
) -> None:
    """A decorated handler is the function it was, of the same signature."""

    async def find(self: object, first: int, *, second: str = "") -> list[str]:
        return [second] * first

    before, decorated = {**vars(find)}, decorate(find)

    assert inspect.iscoroutinefunction(decorated)
    assert inspect.signature(find) == inspect.signature(decorated)
    assert find.__code__ is decorated.__code__
    assert before == vars(find), "another class may have the function, too"


def test_case_112_a_registered_view_is_the_class() -> None:
    """router.view returns what it decorates, with nothing of it changed."""

    class View(ThrottledView):
        throttle = "5/m"

        async def get(self) -> None:
            pass

    before = dict(vars(View))
    router = ThrottledRouter(limiter_of())

    assert View is router.view(View)
    assert before == dict(vars(View))


def test_case_112_the_package_says_that_it_is_typed() -> None:
    """Type checkers look for a marker file beside the modules."""
    assert importlib.resources.files("throttled_views").joinpath("py.typed").is_file()


DECLARED: dict[str, tuple[Callable[[], Any], type[ConfigurationError], str]] = {
    "a text of two without a separator": (
        lambda: "5/m, 100/h",
        InvalidQuotaError,
        "'5/m, 100/h'",
    ),
    "a negative limit": (lambda: "-5/m", InvalidQuotaError, "'-5/m'"),
    "a negative number": (lambda: Quota(-5, 60), InvalidQuotaError, "-5"),
    "a negative period": (lambda: Quota(5, -60), InvalidQuotaError, "-60"),
    "no period": (lambda: "5/0s", InvalidQuotaError, "'5/0s'"),
    "a period of zero": (lambda: Quota(5, 0), InvalidQuotaError, "0"),
    "a period of nan": (lambda: Quota(5, float("nan")), InvalidQuotaError, "nan"),
    "an infinite period": (lambda: Quota(5, float("inf")), InvalidQuotaError, "inf"),
    "a bool": (lambda: True, InvalidQuotaError, "True"),
    "a limit that is a bool": (lambda: Quota(True, 1), InvalidQuotaError, "True"),  # noqa: FBT003
    "a fortnight": (lambda: "5 per fortnight", InvalidQuotaError, "'fortnight'"),
    "a burst of zero": (lambda: "5/m burst 0", InvalidQuotaError, "'5/m burst 0'"),
    "a negative burst": (
        lambda: Quota.per_minute(5, burst=-1),
        InvalidQuotaError,
        "-1",
    ),
    "a huge number": (lambda: Quota(10**30, 1), InvalidQuotaError, "1000000000"),
    "a huge text": (lambda: f"{10**30}/s", InvalidQuotaError, "'1000000000"),
    "a cost above the burst": (
        lambda: Limit("100/m burst 5", cost=6),
        ConfigurationError,
        "cost=6",
    ),
}


@pytest.mark.parametrize(("declare", "error", "given"), DECLARED.values(), ids=DECLARED)
def test_case_113_a_bad_declaration_ends_the_class_statement(
    declare: Callable[[], Any], error: type[ConfigurationError], given: str
) -> None:
    """No declaration waits for the first request to fail; its value is named."""
    with pytest.raises(error) as caught:
        view_of(("throttle", declare()), ("get", serve))

    assert given in str(caught.value)


MEANT: dict[str, tuple[Throttle, list[str]]] = {
    "one text": ("5/m", ["5/m"]),
    "a text of two": ("5/m; 100/h", ["5/m", "100/h"]),
    "a list of one": (["5/m"], ["5/m"]),
    "a tuple of two": (("5/m", Quota.per_hour(100)), ["5/m", "100/h"]),
    "a list with a text of two": (["1/s; 5/m", "100/h"], ["1/s", "5/m", "100/h"]),
    "a quota of nothing": ("0/m", ["0/m"]),
}


@pytest.mark.parametrize(("throttle", "quotas"), MEANT.values(), ids=MEANT)
def test_case_113_texts_and_lists_mean_the_same(
    throttle: Throttle, quotas: list[str]
) -> None:
    """A text where a list could stand, and a list of one, have one meaning each."""
    view = view_of(("throttle", throttle), ("get", serve))

    assert quotas == [str(each.quota) for each in view.throttled["get"].limits]


async def test_case_113_a_quota_of_nothing_refuses_everything() -> None:
    """Zero is neither one nor unlimited: no request passes, and none is told when."""
    app: FastAPI = app_of(view_of(("throttle", "0/m"), ("get", serve)))
    [answer] = await answers(app, "GET /v")

    assert 429 == answer.status_code
    assert "Retry-After" not in answer.headers
