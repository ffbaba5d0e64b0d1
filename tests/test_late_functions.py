"""Key, quota and cost functions that FastAPI solves."""

import inspect
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from functools import partial
from typing import Annotated, Any, cast

import pytest
from fastapi import (
    Depends,
    FastAPI,
    Header,
    HTTPException,
    Path,
    Query,
    Request,
    Response,
    WebSocket,
)
from fastapi.responses import PlainTextResponse
from pydantic import BaseModel
from starlette.requests import HTTPConnection

from tests import late_functions
from tests.apps_views import view_of
from tests.asgi import Relay, answers, app_of, fields_of, frozen, frozen_store, statuses
from tests.late_functions import CurrentUser, current_user
from tests.ways import WAYS, Way
from throttled_views import (
    EXEMPT,
    ClientIP,
    ConfigurationError,
    Exempt,
    InvalidAnswerError,
    InvalidKeyError,
    KeyFunc,
    Limit,
    Limiter,
    Quota,
    ThrottledRouter,
    ThrottledView,
    ViewDefinitionError,
    first_of,
    header_key,
    limit,
    route,
)

ways = pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)

ALICE, BOB = {"X-User": "alice"}, {"X-User": "bob"}


async def hello() -> str:
    """Be a handler."""
    return "hello"


async def by_user(user: CurrentUser) -> str:
    """Name the user."""
    return user


async def handler(self: object) -> None:
    """Be a handler of a view."""


def line_of(function: Callable[..., object]) -> int:
    """Return the line that *function* begins in."""
    _, line = inspect.getsourcelines(inspect.unwrap(function))
    return line


# --- what may be one ------------------------------------------------------------------


def by_user_sync(user: CurrentUser) -> str:
    """Name the user, in a thread."""
    return user


def by_user_later(user: CurrentUser) -> Awaitable[str]:
    """Name the user, for those who wait."""
    return by_user(user)


async def by_user_or_query(*, user: CurrentUser, tenant: str = "none") -> str:
    """Name the user, and what is asked for."""
    return f"{user} {tenant}"


async def by_default(user: str = Depends(current_user)) -> str:
    """Name the user, as FastAPI was told before it knew Annotated."""
    return user


async def by_both(user: CurrentUser, request: Request) -> str:
    """Name the user and the method."""
    return f"{user} {request.method}"


class ByUser:
    """Objects that name the user."""

    async def __call__(self, user: CurrentUser) -> str:
        """Name the user."""
        return user


KEY_FUNCS: dict[str, Callable[..., Any]] = {
    "async": by_user,
    "sync": by_user_sync,
    "that returns what is to be awaited": by_user_later,
    "with a query parameter": by_user_or_query,
    "with a default": by_default,
    "with the request, too": by_both,
    "an object": ByUser(),
    "a partial": partial(late_functions.by_kind, "user"),
    "a partial by keyword": partial(late_functions.by_suffix, suffix="!"),
    "postponed": late_functions.by_user,
    "postponed, sync": late_functions.by_user_sync,
    "postponed, an object": late_functions.ByUser(),
    "postponed, a sync object": late_functions.ByUserSync(),
    "postponed, a method": late_functions.ByUser().method,
    "postponed, decorated": late_functions.by_user_traced,
    "postponed, with an unknown result": late_functions.by_result,
}


@ways
@pytest.mark.parametrize("key_func", KEY_FUNCS.values(), ids=KEY_FUNCS)
async def test_a_key_function_may_take_what_fastapi_solves(
    way: Way, key_func: Callable[..., Any]
) -> None:
    """Each user has the quota for itself; who is nobody gets a 422 of FastAPI's."""
    app = way(frozen("1/h", key_func=key_func), hello)

    [first, second] = await answers(app, *["GET /"] * 2, headers=ALICE)
    [of_bob] = await answers(app, "GET /", headers=BOB)

    assert [200, 429, 200] == [answer.status_code for answer in (first, second, of_bob)]
    assert [422] == await statuses(app, "GET /")


async def test_what_a_partial_was_given_is_no_parameter_of_the_client() -> None:
    """Nobody chooses a key by a query that was not meant as one."""
    key_func = partial(late_functions.by_suffix, suffix="!")
    router = ThrottledRouter(frozen("1/h", key_func=key_func))
    router.add_api_route("/", hello)

    received = await answers(
        app_of(router), "GET /?suffix=a", "GET /?suffix=b", headers=ALICE
    )

    assert [200, 429] == [answer.status_code for answer in received]


async def test_a_key_may_be_a_part_of_the_path() -> None:
    """A name of the path is what it is for a handler, also below a prefix."""

    def by_shop(shop: Annotated[str, Path()], page: int) -> str:
        return f"{shop} {page}"

    router = ThrottledRouter(frozen("1/h", key_func=by_shop))
    router.add_api_route("/items", hello)
    app = FastAPI()
    app.include_router(router, prefix="/{shop}")

    assert [200, 429, 200, 200] == await statuses(
        app, *["GET /a/items?page=1"] * 2, "GET /b/items?page=1", "GET /a/items?page=2"
    )


# --- dependencies ---------------------------------------------------------------------


class Connections:
    """Dependencies that note what happens to them."""

    def __init__(self) -> None:
        self.noted: list[str] = []

    def generator(self) -> Iterator[str]:
        """Open and close, in a thread."""
        self.noted.append("open")
        try:
            yield "alice"
        finally:
            self.noted.append("close")

    async def async_generator(self) -> AsyncIterator[str]:
        """Open and close."""
        self.noted.append("open")
        try:
            yield "alice"
        finally:
            self.noted.append("close")

    def function(self) -> str:
        """Look, in a thread."""
        self.noted += ["open", "close"]
        return "alice"

    async def async_function(self) -> str:
        """Look."""
        self.noted += ["open", "close"]
        return "alice"


@ways
@pytest.mark.parametrize(
    "kind", ["generator", "async_generator", "function", "async_function"]
)
async def test_a_function_may_have_any_dependency(way: Way, kind: str) -> None:
    """It is solved once for a request, and closed also if the request is refused."""
    connections = Connections()

    async def by_row(row: Annotated[str, Depends(getattr(connections, kind))]) -> str:
        return row

    app = way(frozen("1/h", key_func=by_row), hello)

    assert [200, 429] == await statuses(app, "GET /", "GET /")
    assert ["open", "close"] * 2 == connections.noted


@ways
async def test_a_function_shares_dependencies_with_the_endpoint(way: Way) -> None:
    """Whoever needs the user in a request gets the same one."""
    asked: list[str] = []

    async def user() -> str:
        asked.append("user")
        return "alice"

    async def key(name: Annotated[str, Depends(user)]) -> str:
        asked.append("key")
        return name

    async def plan(name: Annotated[str, Depends(key)]) -> str:
        return "5/h"

    async def handler(
        name: Annotated[str, Depends(user)], named: Annotated[str, Depends(key)]
    ) -> str:
        return name + named

    app = way(frozen(plan, key_func=key), handler)

    assert [200] == await statuses(app, "GET /")
    assert ["key", "user"] == sorted(asked)


@ways
async def test_what_a_function_needs_can_be_overridden(way: Way) -> None:
    """`dependency_overrides` holds for it as for any dependency."""
    app = way(frozen("1/h", key_func=by_user), hello)
    app.dependency_overrides[current_user] = lambda: "carol"

    assert [200, 429] == await statuses(app, "GET /", "GET /")


@ways
async def test_a_function_can_be_overridden(way: Way) -> None:
    """It is a dependency itself."""
    app = way(frozen("1/h", key_func=by_user), hello)
    names = iter("abc")
    app.dependency_overrides[by_user] = lambda: next(names)

    assert [200, 200, 200] == await statuses(app, *["GET /"] * 3)


# --- answers --------------------------------------------------------------------------

Answer = Annotated[str, Header()]


def one_of(answers_by_name: dict[str, Any]) -> Callable[[str], Any]:
    """Return a dependency that answers what a client asks for."""

    async def answer(x_answer: Answer) -> Any:  # noqa: ANN401 - whatever it is
        return answers_by_name[x_answer]

    return answer


@ways
async def test_without_a_key_a_late_limit_does_not_apply(way: Way) -> None:
    """None is a way to say so, for a user that is trusted."""
    by_name = one_of({"friend": None, "stranger": "stranger"})
    app = way(frozen("1/h", key_func=by_name), hello)

    friends = await answers(app, *["GET /"] * 3, headers={"X-Answer": "friend"})
    strangers = await answers(app, *["GET /"] * 2, headers={"X-Answer": "stranger"})

    assert [(200, {})] * 3 == [(each.status_code, fields_of(each)) for each in friends]
    assert [200, 429] == [each.status_code for each in strangers]


class User(BaseModel):
    """Who is logged in, and what was paid for."""

    name: str
    plan: str


async def user_of(
    x_user: Annotated[str, Header()], x_plan: Annotated[str, Header()]
) -> User:
    """Tell who is logged in."""
    return User(name=x_user, plan=x_plan)


Customer = Annotated[User, Depends(user_of)]


async def by_customer(user: Customer) -> str:
    """Name the customer."""
    return user.name


async def quota_of_plan(user: Customer) -> Quota | str | Exempt:
    """Choose by what was paid for."""
    plans: dict[str, Quota | str | Exempt] = {
        "pro": "5/h",
        "free": Quota.per_hour(2),
        "staff": EXEMPT,
    }
    return plans[user.plan]


@ways
async def test_a_quota_may_depend_on_the_user(way: Way) -> None:
    """Each user is held to its plan, and who is exempt is told nothing."""
    app = way(frozen(quota_of_plan, key_func=by_customer), hello)

    async def of(user: str, plan: str) -> tuple[int, str]:
        headers = {"X-User": user, "X-Plan": plan}
        [answer] = await answers(app, "GET /", headers=headers)
        return answer.status_code, answer.headers.get("RateLimit-Remaining", "-")

    assert [(200, "4"), (200, "1"), (200, "-")] == [
        await of("alice", "pro"),
        await of("bob", "free"),
        await of("carol", "staff"),
    ]


@ways
async def test_a_changed_quota_keeps_its_counter(way: Way) -> None:
    """A level above the new capacity is the new capacity; raising it gives no jump."""
    app = way(frozen(quota_of_plan, key_func=by_customer), hello)

    async def of(plan: str) -> tuple[int, str]:
        headers = {"X-User": "alice", "X-Plan": plan}
        [answer] = await answers(app, "GET /", headers=headers)
        return answer.status_code, answer.headers["RateLimit-Remaining"]

    assert (200, "4") == await of("pro")
    assert (200, "1") == await of("free")
    assert (200, "0") == await of("free")
    assert (429, "0") == await of("pro")


async def test_a_view_may_be_held_to_a_quota_function() -> None:
    """It is written as any throttle is, and `staticmethod` is no obstacle."""

    class View(ThrottledView):
        path = "/v"
        throttle = quota_of_plan
        key_func = staticmethod(by_customer)

        async def get(self, user: Customer) -> str:
            return user.name

    app = app_of(View.as_router(frozen()))

    async def of(user: str, plan: str) -> list[int]:
        headers = {"X-User": user, "X-Plan": plan}
        received = await answers(app, *["GET /v"] * 3, headers=headers)
        return [answer.status_code for answer in received]

    assert [200, 200, 429] == await of("alice", "free")
    assert [200, 200, 200] == await of("bob", "pro")


@ways
async def test_an_early_key_may_have_a_late_quota(way: Way) -> None:
    """The limit is late; its key function is called as ever."""
    app = way(frozen(quota_of_plan), hello)

    received = await answers(
        app, *["GET /"] * 3, headers={"X-User": "alice", "X-Plan": "free"}
    )

    assert [200, 200, 429] == [answer.status_code for answer in received]


class Items(BaseModel):
    """What is to be stored."""

    names: list[str]


def cost_of_items(items: Items) -> int:
    """Charge for each item."""
    return len(items.names)


async def test_a_cost_may_depend_on_the_body() -> None:
    """The body is read once, and a handler of the same parameter gets it, too."""

    class View(ThrottledView):
        path = "/v"

        @limit("5/h", cost=cost_of_items)
        async def post(self, items: Items) -> int:
            return len(items.names)

    app = app_of(View.as_router(frozen()))

    async def stored(*names: str) -> tuple[int, str]:
        content = Items(names=[*names]).model_dump_json().encode()
        [answer] = await answers(app, "POST /v", content=content)
        return answer.status_code, answer.headers["RateLimit-Remaining"]

    assert (200, "2") == await stored("a", "b", "c")
    assert (429, "2") == await stored("a", "b", "c")
    assert (200, "0") == await stored("a", "b")
    assert (200, "0") == await stored()


LATE_LIMITS: dict[str, tuple[Callable[[Any], Limit], type[Exception], list[Any]]] = {
    "key": (
        lambda function: Limit("5/h", key_func=function),
        InvalidKeyError,
        ["", 0, b"alice", False, ["alice"]],
    ),
    "quota": (Limit, InvalidAnswerError, [None, "", "5/fortnight", 5, ["5/h"]]),
    "cost": (
        lambda function: Limit("5/h", cost=function),
        InvalidAnswerError,
        [None, -1, 0.5, "1", True],
    ),
}
WRONG = {
    f"{role} {given!r}": (make, error, given)
    for role, (make, error, all_given) in LATE_LIMITS.items()
    for given in all_given
}


@ways
@pytest.mark.parametrize(("make", "error", "given"), WRONG.values(), ids=WRONG)
async def test_what_is_no_answer_opens_nothing(
    way: Way, make: Callable[[Any], Limit], error: type[Exception], given: object
) -> None:
    """It is an error that names the function, and the handler does not run."""

    async def by_mistake(_user: CurrentUser) -> Any:  # noqa: ANN401 - the mistake
        return given

    async def handler() -> None:
        pytest.fail("it was served")

    app = way(frozen(make(by_mistake)), handler)

    with pytest.raises(error, match="by_mistake gave") as caught:
        await answers(app, "GET /", headers=ALICE)

    assert given == getattr(caught.value, "given", None)


class UnknownTenantError(Exception):
    """No such tenant."""


@ways
@pytest.mark.parametrize("role", LATE_LIMITS)
async def test_an_error_of_a_function_is_an_error(way: Way, role: str) -> None:
    """It is answered as one of any dependency, and nobody is served or charged."""

    async def failing(user: CurrentUser) -> Any:  # noqa: ANN401 - none comes
        if user == "bob":
            raise HTTPException(403)
        raise UnknownTenantError

    async def render(_request: Request, _error: Exception) -> Response:
        return PlainTextResponse("who?", 404)

    async def handler() -> None:
        pytest.fail("it was served")

    make, *_ = LATE_LIMITS[role]
    store = Relay()
    app = way(Limiter(make(failing), store=store), handler)
    without_handler = way(Limiter(make(failing), store=store), handler)
    with pytest.raises(UnknownTenantError):
        await answers(without_handler, "GET /", headers=ALICE)

    app.add_exception_handler(UnknownTenantError, render)
    [unknown] = await answers(app, "GET /", headers=ALICE)
    [forbidden] = await answers(app, "GET /", headers=BOB)

    assert [404, 403] == [unknown.status_code, forbidden.status_code]
    assert [] == store.calls


# --- what may not be one --------------------------------------------------------------


class Plain:
    """A class that FastAPI cannot make anything of."""


def unannotated(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return *function* without its annotations."""
    function.__annotations__.clear()
    return function


@unannotated
def by_anything(user: Any) -> str:  # noqa: ANN401 - nothing is said
    """Do not say what it takes."""
    return str(user)


def by_unknown(user: "Nobody") -> str:  # type: ignore[name-defined]  # pyright: ignore[reportUndefinedVariable, reportUnknownParameterType]  # noqa: F821
    """Name what does not exist."""
    return str(user)  # pyright: ignore[reportUnknownArgumentType]


def by_plain(user: Plain) -> str:
    """Take what is no parameter."""
    return str(user)


def by_position(user: CurrentUser, /) -> str:
    """Take it by position alone."""
    return user


def by_any_number(*users: CurrentUser) -> str:
    """Take any number."""
    return str(users)


def by_any_names(user: CurrentUser, **more: str) -> str:
    """Take any names."""
    return str(user)


def of_an_object(self: object, user: CurrentUser) -> str:
    """Be a method without an object."""
    return user


def by_two_ways(user: CurrentUser = Depends(current_user)) -> str:  # noqa: B008
    """Take what FastAPI refuses."""
    return user


lambda_of_two: Callable[[str, str], str] = lambda user, tenant: user + tenant  # noqa: E731

UNSOLVABLE: dict[str, tuple[Callable[..., Any], str]] = {
    "unannotated": (by_anything, "its parameter 'user' has no annotation"),
    "unknown": (by_unknown, "'user' is annotated 'Nobody', which is unknown"),
    "for type checkers": (
        late_functions.by_number,
        "'number' is annotated 'Decimal', which is unknown",
    ),
    "of a plain class": (by_plain, "Plain"),
    "by position": (by_position, "its parameter 'user' can only be given by position"),
    "any number": (by_any_number, "'users' stands for any number of arguments"),
    "any names": (by_any_names, "'more' stands for any number of arguments"),
    "a method": (of_an_object, "it takes 'self', and is not called as a method"),
    "what FastAPI refuses": (by_two_ways, "cannot be solved: Cannot specify"),
    "a lambda of two": (lambda_of_two, "its parameter 'user' has no annotation"),
}
USES: dict[str, tuple[str, Callable[[Callable[..., Any]], object]]] = {
    "limiter": ("key", lambda function: Limiter("5/h", key_func=function)),
    "default": ("quota", Limiter),
    "limit": ("key", lambda function: Limiter().limit("5/h", key_func=function)),
    "dependency": ("key", lambda function: Limiter().dependency(Limit(function))),
    "quota": ("quota", lambda function: Limiter().limit(Limit(function))),
    "cost": ("cost", lambda function: limit("5/h", cost=function)),
}


@pytest.mark.parametrize(("function", "problem"), UNSOLVABLE.values(), ids=UNSOLVABLE)
@pytest.mark.parametrize(("role", "use"), USES.values(), ids=USES)
def test_what_cannot_be_solved_is_refused_where_it_is_written(
    role: str,
    use: Callable[[Callable[..., Any]], object],
    function: Callable[..., Any],
    problem: str,
) -> None:
    """The error says which function, where, why, and what to write."""
    role = "quota" if use is USES["dependency"][1] else role
    name = function.__qualname__
    place = re.escape(f"{inspect.getsourcefile(function)}:{line_of(function)}")

    with pytest.raises(ConfigurationError, match=f"{role} function {name}") as caught:
        use(function)

    message = str(caught.value)
    assert problem in message
    assert re.search(rf"\({place}\)", message)
    assert re.search(r"Write 'def \w+\(request: Request\)', or annotate", message)


def test_a_function_of_c_cannot_be_solved() -> None:
    """It may have no signature, and the error is ours all the same."""
    with pytest.raises(ConfigurationError, match="max does not tell its parameters"):
        Limiter("5/h", key_func=max)


def test_a_view_is_named_with_what_cannot_be_solved() -> None:
    """The error of a class statement says for which handler it is."""
    throttle = Limit("5/h", key_func=by_anything)

    with pytest.raises(ConfigurationError, match="by_anything") as caught:
        view_of(("throttle", throttle), ("get", handler))

    [note] = caught.value.__notes__
    assert re.search(r"It is declared for .*\.get \(.*:\d+\)", note)


def test_a_method_of_a_view_is_no_key_function() -> None:
    """It has a self, which nobody would give to it."""

    def key_func(self: object, request: Request) -> str:
        return request.method

    with pytest.raises(ConfigurationError, match="takes 'self', and is not called"):
        view_of(("throttle", "5/h"), ("key_func", key_func))


# --- what a request has ---------------------------------------------------------------


async def by_socket(websocket: WebSocket, user: CurrentUser) -> str:
    """Take a socket."""
    return f"{user} {websocket.url.path}"


async def by_request(request: Request, user: CurrentUser) -> str:
    """Take a request."""
    return f"{user} {request.url.path}"


async def by_connection(connection: HTTPConnection, user: CurrentUser) -> str:
    """Take either."""
    return f"{user} {connection.url.path}"


async def accept(websocket: WebSocket) -> None:
    """Accept."""
    await websocket.accept()


def test_a_socket_has_no_request_for_a_late_function() -> None:
    """That is told when it is registered, and not by the first client."""
    router = ThrottledRouter(Limiter("5/h", key_func=by_request))

    with pytest.raises(ViewDefinitionError, match="a WebSocket has no Request"):
        router.add_api_websocket_route("/", accept)


def test_a_request_has_no_socket_for_a_late_function() -> None:
    """The same the other way round."""
    router = ThrottledRouter(Limiter("5/h", key_func=by_socket))

    with pytest.raises(ViewDefinitionError, match="an HTTP request has no WebSocket"):
        router.add_api_route("/", hello)


def test_a_handler_of_a_view_has_no_socket_for_a_late_function() -> None:
    """A class statement tells it."""
    throttle = Limit("5/h", key_func=by_socket)

    with pytest.raises(ViewDefinitionError, match="an HTTP request has no WebSocket"):
        view_of(("throttle", throttle), ("get", handler))


def test_a_connection_is_both() -> None:
    """A function of it serves requests and sockets."""

    class View(ThrottledView):
        throttle = Limit("5/h", key_func=by_connection)

        async def get(self) -> None: ...

        @route.websocket("/ws")
        async def talk(self, websocket: WebSocket) -> None: ...

    assert {"get", "talk"} == set(View.throttled)


async def test_a_query_parameter_of_a_function_is_checked() -> None:
    """A 422 of it is FastAPI's own, and nothing is charged late."""

    def by_page(page: Annotated[int, Query(ge=1)]) -> int:
        return page

    app = FastAPI()
    limited = Limiter(Limit("5/h", cost=by_page), store=frozen_store()).limit()
    app.get("/")(limited(hello))

    received = await answers(app, "GET /?page=0", "GET /?page=2")

    assert [422, 200] == [answer.status_code for answer in received]
    assert "3" == received[1].headers["RateLimit-Remaining"]


MAKERS: dict[str, tuple[dict[str, Any], str]] = {
    "a quota": ({"quota": Quota.per_minute}, r"Write Quota\.per_minute\("),
    "a quota of a text": ({"quota": Quota.parse}, r"Write Quota\.parse\("),
    "a header": ({"quota": "5/m", "key_func": header_key}, r"Write header_key\("),
    "the first of keys": ({"quota": "5/m", "key_func": first_of}, r"Write first_of\("),
}


@pytest.mark.parametrize(("options", "said"), MAKERS.values(), ids=MAKERS)
def test_what_makes_a_function_is_none(options: dict[str, Any], said: str) -> None:
    """Without its parentheses the client would give what it takes."""
    with pytest.raises(ConfigurationError, match=said):
        Limiter(Limit(**options))


def test_a_class_of_key_functions_is_none() -> None:
    """A limiter is told to make one, too."""
    with pytest.raises(ConfigurationError, match=r"Write ClientIP\("):
        Limiter(key_func=cast("KeyFunc", ClientIP))
