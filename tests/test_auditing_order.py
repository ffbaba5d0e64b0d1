"""`audit` finds routes whose requests come to an earlier one."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from fastapi import APIRouter, FastAPI, WebSocket
from fastapi.routing import APIRoute
from starlette.convertors import CONVERTOR_TYPES, Convertor
from starlette.endpoints import HTTPEndpoint
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import BaseRoute, Host, Match, Mount, Route, Router
from starlette.types import Scope

from tests.asgi import answers
from throttled_views import Limiter, ThrottledView, audit


async def first() -> str:
    """Be registered before."""
    return "first"


async def second() -> str:
    """Be registered after."""
    return "second"


def plain(_request: Request) -> Response:
    """Be a handler of Starlette."""
    return PlainTextResponse("plain")


def problems(app: Any) -> list[str]:  # noqa: ANN401
    """Return what is wrong with the routes of *app*."""
    return [each.problem for each in audit(app) if each.problem]


def included(*paths: str) -> FastAPI:
    """Return an application with GET routes that each are on a router of their own."""
    app = FastAPI(openapi_url=None)
    for path, endpoint in zip(paths, (first, second), strict=True):
        router = APIRouter()
        router.add_api_route(path, endpoint)
        app.include_router(router, prefix="/a")
    return app


# --- paths ----------------------------------------------------------------------------

CAPTURED = {
    "static": ("/{x}", "/me", "/me"),
    "deeper": ("/{x}/b", "/me/b", "/me/b"),
    "an integer": ("/{x}", "/{y:int}", "/7"),
    "a number": ("/{x}", "/{y:float}", "/7.5"),
    "an integer by numbers": ("/{x:float}", "/{y:int}", "/7"),
    "a UUID": ("/{x}", "/{y:uuid}", "/00000000000000000000000000000007"),
    "a part of a segment": ("/{x}", "/by-{y}", "/by-name"),
    "below a path": ("/{x:path}", "/b/{y}/c", "/b/b/c"),
    "a static number": ("/{x:int}", "/7", "/7"),
}


@pytest.mark.parametrize(("one", "other", "asked"), CAPTURED.values(), ids=CAPTURED)
async def test_a_captured_route_is_found(one: str, other: str, asked: str) -> None:
    """On another router, too, with both names, and only the later one."""
    app = included(one, other)

    [problem] = problems(app)
    assert problem == (
        f"GET requests to second at '/a{other}' come to the earlier first at '/a{one}'"
        ". Register first after it, or give one of them another path"
    )
    [answer] = await answers(app, f"GET /a{asked}")
    assert "first" == answer.json()


EQUAL = {
    "static": ("/me", "/me"),
    "text": ("/{x}", "/{y}"),
    "a whole path": ("/{x:path}", "/{y:path}"),
}


@pytest.mark.parametrize(("one", "other"), EQUAL.values(), ids=EQUAL)
def test_another_order_is_no_advice_where_it_does_not_help(
    one: str, other: str
) -> None:
    """Two that take the same requests cannot both be reached."""
    [problem] = problems(included(one, other))

    assert problem.endswith(f"at '/a{one}'. Give one of them another path")


REACHED = {
    "in the right order": ("/me", "/{x}"),
    "an integer first": ("/{x:int}", "/{y}"),
    "an integer before a number": ("/{x:int}", "/{y:float}"),
    "an integer before a UUID": ("/{x:int}", "/{y:uuid}"),
    "a UUID before an integer": ("/{x:uuid}", "/{y:int}"),
    "text that is no integer": ("/{x:int}", "/me"),
    "another segment": ("/{x}/b", "/{x}/c"),
    "more segments": ("/{x}", "/me/b"),
    "a path before text": ("/{x}", "/{y:path}"),
    "a path that is not empty": ("/{x}/{y:path}", "/{z:path}"),
    "parts of a segment": ("/{x}.{y}", "/{z:float}"),
    "a convertor of one's own": ("/{x:path}", "/{y:letters}"),
}


class Letters(Convertor[str]):
    """A convertor that nothing is known of."""

    regex = "[a-z]+"

    def convert(self, value: str) -> str:
        """Return the value."""
        return value

    def to_string(self, value: str) -> str:
        """Return the value."""
        return value


@pytest.mark.parametrize("paths", REACHED.values(), ids=REACHED)
def test_a_route_that_is_reached_is_no_finding(
    paths: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By some of its requests at least, or as far as can be told."""
    monkeypatch.setitem(CONVERTOR_TYPES, "letters", Letters())

    assert [] == problems(included(*paths))


# --- what else tells requests apart ---------------------------------------------------


def with_methods(one: Sequence[str], other: Sequence[str]) -> FastAPI:
    """Return an application that serves the same path with methods."""
    app = FastAPI(openapi_url=None)
    app.add_api_route("/{x}", first, methods=[*one])
    app.add_api_route("/me", second, methods=[*other])
    return app


METHODS: dict[str, tuple[list[str], list[str], list[str]]] = {
    "other ones": (["GET"], ["POST"], []),
    "one of several": (["GET", "PUT"], ["POST", "PUT"], ["PUT requests to second"]),
    "several": (["POST", "GET"], ["GET", "POST"], ["GET+POST requests to second"]),
}


@pytest.mark.parametrize(("one", "other", "found"), METHODS.values(), ids=METHODS)
def test_methods_are_captured_one_by_one(
    one: list[str], other: list[str], found: list[str]
) -> None:
    """A route may be reached by some of its methods only."""
    told = problems(with_methods(one, other))

    assert found == [each.partition(" at ")[0] for each in told]


class ByTenant(ThrottledView):
    """A view that captures one."""

    path = "/{b}"
    throttle = "9/m"

    async def get(self, b: str) -> str:
        """Be captured by nothing."""
        return b


class ByVersion(APIRoute):
    """A route that looks at more than its path."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Match some requests only."""
        return Match.NONE, {}


class Anything(HTTPEndpoint):
    """An endpoint whose methods are not declared."""

    def get(self, request: Request) -> Response:
        """Be the only one."""
        return PlainTextResponse("")


def of_views() -> Any:  # noqa: ANN401
    """Register two views on two routers."""

    class Mine(ByTenant):
        """A view that is captured."""

        path = "/a"

    app = FastAPI(openapi_url=None)
    app.include_router(ByTenant.as_router(Limiter()))
    app.include_router(Mine.as_router(Limiter()))
    return app


def of_one_view() -> Any:  # noqa: ANN401
    """Register one view twice."""
    app = FastAPI(openapi_url=None)
    app.include_router(ByTenant.as_router(Limiter()))
    app.include_router(ByTenant.as_router(Limiter()))
    return app


def of_one_function() -> Any:  # noqa: ANN401
    """Register one function on two paths."""
    app = FastAPI(openapi_url=None)
    app.get("/{x}")(app.get("/me/{x}")(app.get("/{x}")(first)))
    return app


def of_one_function_with_two_limits() -> Any:  # noqa: ANN401
    """Limit a function twice, of which one limit holds for nobody."""

    async def same() -> None:
        """Be limited in two ways."""

    app, limiter = FastAPI(openapi_url=None), Limiter()
    app.get("/{x}")(limiter.limit("9/m")(same))
    app.get("/me")(limiter.limit("1/m", bucket="rare")(same))
    return app


def of_sockets() -> Any:  # noqa: ANN401
    """Let a socket capture one, and no route."""
    app = FastAPI(openapi_url=None)

    @app.websocket("/{x}")
    async def one(websocket: WebSocket) -> None:
        """Be a socket."""

    @app.websocket("/me")
    async def other(websocket: WebSocket) -> None:
        """Be another."""

    app.get("/me")(second)
    return app


def of_a_route_class() -> Any:  # noqa: ANN401
    """Let a class of routes decide which requests it takes."""
    router = APIRouter(route_class=ByVersion)
    router.get("/{x}")(first)
    app = FastAPI(openapi_url=None)
    app.include_router(router)
    app.get("/me")(second)
    return app


def of_starlette(*routes: BaseRoute) -> Callable[[], Any]:
    """Return what makes a router of *routes*."""
    return lambda: Router([*routes])


def mounted(path: str, name: str, *routes: BaseRoute) -> Mount:
    """Return a mount of *routes*."""
    return Mount(path, Router([*routes]), name=name)


ANY, ME = Route("/{x}", plain, name="any"), Route("/me", second, name="me")
CLASS = Route("/me", Anything, name="class")

KINDS: dict[str, tuple[Callable[[], Any], list[str]]] = {
    "a view": (
        of_views,
        ["GET requests to Mine.get at '/a' come to the earlier ByTenant.get at '/{b}'"],
    ),
    "one view twice": (of_one_view, []),
    "one function": (of_one_function, []),
    "one function with two limits": (
        of_one_function_with_two_limits,
        ["GET requests to same at '/me' come to the earlier same at '/{x}'"],
    ),
    "sockets": (
        of_sockets,
        ["WEBSOCKET requests to other at '/me' come to the earlier one at '/{x}'"],
    ),
    "a route class of one's own": (of_a_route_class, []),
    "routes of Starlette": (
        of_starlette(ANY, ME),
        ["GET+HEAD requests to me at '/me' come to the earlier any at '/{x}'"],
    ),
    "a class that may serve others": (of_starlette(ANY, CLASS), []),
    "by a class": (
        of_starlette(CLASS, ME),
        ["GET+HEAD requests to me at '/me' come to the earlier class at '/me'"],
    ),
    "a class by a class": (
        of_starlette(Route("/{x}", HTTPEndpoint, name="any"), CLASS),
        ["All requests to class at '/me' come to the earlier any at '/{x}'"],
    ),
    "an earlier mount": (
        of_starlette(mounted("/a", "files"), Route("/a/me", plain, name="me")),
        ["GET+HEAD requests to me at '/a/me' come to the earlier files at '/a'"],
    ),
    "a mount in a mount": (
        of_starlette(mounted("", "site"), mounted("/api", "api", ME)),
        ["GET+HEAD requests to me at '/api/me' come to the earlier site at ''"],
    ),
    "a mount beside": (
        of_starlette(mounted("/a", "a", ANY), mounted("/b", "b", ME)),
        [],
    ),
    "a mount that is later": (of_starlette(ME, mounted("", "site", ANY)), []),
    "a mount behind a route": (
        of_starlette(Route("/{x:path}", plain), mounted("/api", "api", ME)),
        [],
    ),
    "another host": (
        of_starlette(Host("a.test", Router([ANY])), Host("b.test", Router([ME])), ME),
        [],
    ),
    "a host behind a mount of nothing": (
        of_starlette(Route("/", plain), Host("b.test", Router([ME]))),
        [],
    ),
}


@pytest.mark.parametrize(("made", "found"), KINDS.values(), ids=KINDS)
@pytest.mark.filterwarnings("ignore:2 different objects named")
def test_every_kind_of_route_is_looked_at(
    made: Callable[[], Any], found: list[str]
) -> None:
    """And is a finding where an earlier one takes its requests, and only there."""
    assert found == [each.partition(". ")[0] for each in problems(made())]
