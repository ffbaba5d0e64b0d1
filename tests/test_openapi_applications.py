"""`document_limits` lets the document of an application say what limits it."""

import copy
from collections.abc import Callable
from typing import Annotated, Any

import pytest
from fastapi import APIRouter, Depends, FastAPI
from openapi_spec_validator import validate
from pydantic import BaseModel, Field

from tests.apps_views import operation
from tests.asgi import answers, frozen_store
from tests.documented import FIELDS, assert_is_documented, fields
from tests.outages import Outage
from throttled_views import (
    LEGACY_HEADERS,
    IETFHeaders,
    Limit,
    Limiter,
    RateLimitMiddleware,
    ThrottledRoute,
    ThrottledRouter,
    audit,
    document_limits,
)
from throttled_views._binding import can_stream


class Item(BaseModel):
    """A model that is read otherwise than it is written."""

    name: str = Field(default="")


class Slow(BaseModel):
    """A body of the user's own."""

    wait: int


async def hello() -> Item:
    """Be a handler."""
    return Item()


def waiting() -> Item:
    """Be a handler that is not async."""
    return Item()


def limited_by(throttle: Any, **options: Any) -> Any:  # noqa: ANN401
    """Return a dependency that limits."""
    return Depends(Limiter(**options).dependency(throttle))


def included(*dependencies: Any, on: APIRouter | None = None) -> FastAPI:  # noqa: ANN401
    """Return an application that includes a router by dependencies."""
    router = APIRouter() if on is None else on
    router.add_api_route("/", hello)
    app = FastAPI()
    app.include_router(router, dependencies=[*dependencies])
    return app


# --- ways to be limited ---------------------------------------------------------------


def decorated() -> FastAPI:
    """Decorate a function on an application."""
    app = FastAPI()
    app.get("/")(Limiter().limit("5/m")(hello))
    return app


def decorated_on_a_router() -> FastAPI:
    """Decorate it twice, on a router in a router."""
    inner, outer, app = APIRouter(), APIRouter(), FastAPI()
    inner.get("/")(Limiter().limit("9/m")(Limiter().limit("5/m")(hello)))
    outer.include_router(inner)
    app.include_router(outer)
    return app


def depending() -> FastAPI:
    """Let a function that is not async depend on a limit, and on one that does."""
    limited = limited_by(["5/m", lambda: "9/m"])

    def nested(_: Annotated[object, limited]) -> None:
        """Depend on it once more."""

    app = FastAPI()
    app.get("/", dependencies=[limited, Depends(nested)])(waiting)
    return app


def depending_together() -> FastAPI:
    """Let an application, a router, and its inclusion depend on limits."""
    app = FastAPI(dependencies=[limited_by("1/m")])
    router = APIRouter(dependencies=[limited_by("3/m")])
    router.get("/")(hello)
    app.include_router(router, dependencies=[limited_by("2/m")])
    return app


def included_ours() -> FastAPI:
    """Include a router of ours by a dependency."""
    return included(limited_by("5/m"), on=ThrottledRouter(Limiter("9/m")))


def limited_as_a_whole() -> FastAPI:
    """Limit the application, and its route, and its inclusion."""
    app = included_ours()
    app.add_middleware(RateLimitMiddleware, limiter=Limiter(), throttle="9/s; 50/h")
    return app


WAYS: dict[str, tuple[Callable[[], FastAPI], list[str]]] = {
    "a decorated function": (decorated, ["5/m"]),
    "decorated on a router": (decorated_on_a_router, ["5/m", "9/m"]),
    "dependencies": (depending, ["5/m", "dynamic"]),
    "an inclusion": (lambda: included(limited_by("5/m")), ["5/m"]),
    "dependencies of all": (depending_together, ["1/m", "2/m", "3/m"]),
    "an inclusion of a router of ours": (included_ours, ["9/m", "5/m"]),
    "an application": (limited_as_a_whole, ["9/s", "50/h", "9/m", "5/m"]),
}


@pytest.mark.parametrize(("made", "quotas"), WAYS.values(), ids=WAYS)
def test_every_way_to_limit_is_documented(
    made: Callable[[], FastAPI], quotas: list[str]
) -> None:
    """With its quotas, its refusal, and the fields of both."""
    app = made()
    document_limits(app)
    found = operation(app, path="/")

    validate(app.openapi())
    assert quotas == found["x-throttle"]
    assert {"200", "429"} == {*found["responses"]}
    assert FIELDS == fields(found["responses"]["200"])
    refusal = found["responses"]["429"]
    assert [*FIELDS, "Retry-After"] == fields(refusal)
    assert "Rate limit exceeded" == refusal["description"]
    assert ["application/json"] == [*refusal["content"]]


def unlimited() -> FastAPI:
    """Limit nothing, with a limiter that has a default."""
    app = included()
    app.add_middleware(RateLimitMiddleware, limiter=Limiter("9/m"))
    return app


def exempt() -> FastAPI:
    """Say that it is unlimited."""
    app = FastAPI()
    app.get("/")(Limiter("9/m").exempt(copy.copy(waiting)))
    return app


def above() -> FastAPI:
    """Write the limit where it limits nothing."""

    async def misplaced() -> Item:
        """Be decorated too late."""
        return Item()

    app = FastAPI()
    Limiter().limit("9/m")(app.get("/")(misplaced))
    return app


def shadowed() -> FastAPI:
    """Observe only what a limit would refuse."""
    app = FastAPI()
    app.get("/")(Limiter().limit("9/m", shadow=True)(hello))
    return app


UNLIMITED = {
    "nothing": unlimited,
    "exempt": exempt,
    "above the route": above,
    "in shadow": shadowed,
}


@pytest.mark.parametrize("made", UNLIMITED.values(), ids=UNLIMITED)
def test_what_is_unlimited_is_left_alone(made: Callable[[], FastAPI]) -> None:
    """Its document is the one of FastAPI."""
    app, expected = made(), made().openapi()
    document_limits(app)

    assert expected == app.openapi()


def test_an_endpoint_taken_from_a_router_of_ours_is_as_audited() -> None:
    """Before FastAPI 0.137 it takes its limits along; since then it is unlimited."""
    router, app = ThrottledRouter(), FastAPI(openapi_url=None)
    limited = router.get("/")(Limiter().limit("5/m")(hello))
    app.get("/decorated")(limited)
    [route] = router.routes
    assert isinstance(route, ThrottledRoute)
    app.get("/")(route.endpoint)
    document_limits(app)

    for each in audit(app):
        quotas = [limit.quota for limit in each.limits]
        assert quotas == operation(app, path=each.path).get("x-throttle", [])


def test_a_router_of_ours_says_everything_itself() -> None:
    """There is nothing to add where nothing else limits."""
    app, other = (
        included(on=ThrottledRouter(Limiter("5/m", on_store_error="deny")))
        for _ in range(2)
    )
    document_limits(app)

    assert other.openapi() == app.openapi()


@pytest.mark.skipif(not can_stream(), reason="needs FastAPI 0.134")
async def test_a_stream_documents_what_fastapi_answers() -> None:
    """Its refusal is raised, since it has no answer of its own."""
    limiter = Limiter(store=frozen_store(), problem_details=True)
    app = FastAPI()

    @app.get("/")
    @limiter.limit("1/m")
    async def letters() -> Any:  # noqa: ANN401
        """Stream one letter."""
        yield "a"

    document_limits(app)
    _, refused = await answers(app, "GET /", "GET /")

    assert_is_documented(operation(app, path="/"), refused)


# --- policies and bodies --------------------------------------------------------------

LIMITERS: dict[str, dict[str, Any]] = {
    "default": {},
    "legacy names": {"headers": LEGACY_HEADERS},
    "the draft": {"headers": IETFHeaders()},
    "no fields": {"headers": None},
    "problem details": {"problem_details": True},
}


def by_decorator(limiter: Limiter) -> FastAPI:
    """Decorate a function on an application."""
    app = FastAPI()
    app.get("/")(limiter.limit("1/m")(hello))
    return app


def by_inclusion(limiter: Limiter) -> FastAPI:
    """Include a router by a dependency."""
    return included(Depends(limiter.dependency("1/m")))


def by_middleware(limiter: Limiter) -> FastAPI:
    """Limit the whole application."""
    app = included()
    app.add_middleware(RateLimitMiddleware, limiter=limiter, throttle="1/m")
    return app


BY = {each.__name__: each for each in (by_decorator, by_inclusion, by_middleware)}


@pytest.mark.parametrize("options", LIMITERS.values(), ids=LIMITERS)
@pytest.mark.parametrize("made", BY.values(), ids=BY)
async def test_what_is_documented_is_what_is_sent(
    made: Callable[[Limiter], FastAPI], options: dict[str, Any]
) -> None:
    """Admitted, refused, and denied in an outage: the same fields and bodies."""
    options = {"on_store_error": "deny", **options}
    app = made(Limiter(store=frozen_store(), **options))
    down = made(Limiter(store=Outage(is_down=True), **options))
    for each in (app, down):
        document_limits(each)
        validate(each.openapi())

    admitted, refused = await answers(app, "GET /", "GET /")
    [denied] = await answers(down, "GET /")

    assert [200, 429, 503] == [each.status_code for each in (admitted, refused, denied)]
    for answer in (admitted, refused):
        assert_is_documented(operation(app, path="/"), answer)
    assert_is_documented(operation(down, path="/"), denied)


def test_bodies_of_several_limiters_are_documented_together() -> None:
    """One may refuse with problem details, and another without."""
    limiter = Limiter("9/m", problem_details=True, headers=IETFHeaders())
    app = included(limited_by("5/m"), on=ThrottledRouter(limiter))
    document_limits(app)
    refusal = operation(app, path="/")["responses"]["429"]

    assert {"application/problem+json", "application/json"} == {*refusal["content"]}
    assert {*FIELDS, "RateLimit-Policy", "RateLimit", "Retry-After"} == {
        *fields(refusal)
    }


# --- nothing is lost ------------------------------------------------------------------

HEADER = {"description": "mine", "schema": {"type": "string"}}
OWN: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "a description": (
        {"responses": {429: {"description": "Slow down"}}},
        {"description": "Slow down", "fields": [*FIELDS, "Retry-After"], "own": False},
    ),
    "a model": (
        {"responses": {"429": {"model": Slow, "description": "Slow"}}},
        {"description": "Slow", "fields": [*FIELDS, "Retry-After"], "own": True},
    ),
    "a field": (
        {"responses": {429: {"headers": {"retry-after": HEADER}}}},
        {
            "description": "Too Many Requests",
            "fields": ["retry-after", *FIELDS],
            "own": False,
        },
    ),
    "an extension": (
        {"openapi_extra": {"responses": {"429": {"description": "Slow down"}}}},
        {"description": "Slow down", "fields": [], "own": None},
    ),
}


@pytest.mark.parametrize(("options", "expected"), OWN.values(), ids=OWN)
def test_what_users_say_of_a_refusal_wins(
    options: dict[str, Any], expected: dict[str, Any]
) -> None:
    """What they leave out is completed; what they write themselves is not."""
    app = FastAPI()
    app.get("/", **options)(Limiter().limit("5/m")(hello))
    document_limits(app)
    refusal = operation(app, path="/")["responses"]["429"]
    schema = refusal.get("content", {}).get("application/json", {}).get("schema", {})

    validate(app.openapi())
    assert expected == {
        "description": refusal["description"],
        "fields": fields(refusal),
        "own": "RateLimitDetail" != schema.get("title") if schema else None,
    }


SAID_FOR_ALL: dict[str, Callable[[dict[Any, Any]], FastAPI]] = {
    "an application": lambda said: FastAPI(responses=said),
    "an inclusion": lambda _: FastAPI(),
}


@pytest.mark.parametrize("made", SAID_FOR_ALL.values(), ids=SAID_FOR_ALL)
def test_what_users_say_of_all_routes_wins(
    made: Callable[[dict[Any, Any]], FastAPI],
) -> None:
    """Responses of an application, and of an inclusion."""
    said: dict[int | str, dict[str, Any]] = {429: {"description": "mine"}}
    router, app = APIRouter(), made(said)
    router.get("/")(Limiter().limit("5/m")(hello))
    app.include_router(router, responses=said)
    document_limits(app)

    assert "mine" == operation(app, path="/")["responses"]["429"]["description"]


EXTENSIONS: dict[str, Callable[[], APIRouter]] = {
    "a plain router": APIRouter,
    "a router of ours": lambda: ThrottledRouter(Limiter("9/m")),
}


@pytest.mark.parametrize("made", EXTENSIONS.values(), ids=EXTENSIONS)
def test_an_extension_of_the_user_wins(made: Callable[[], APIRouter]) -> None:
    """Who writes ``x-throttle`` means it."""
    router, app = made(), FastAPI()
    extra = {"x-throttle": ["as agreed"]}
    router.get("/", openapi_extra=extra)(Limiter().limit("5/m")(hello))
    app.include_router(router, dependencies=[limited_by("1/m")])
    document_limits(app)

    assert ["as agreed"] == operation(app, path="/")["x-throttle"]


METHODS = ["get", "head", "options", "put"]


def grand() -> FastAPI:
    """Return an application that uses much of what FastAPI can document."""
    app = FastAPI(
        openapi_tags=[{"name": "items"}],
        servers=[{"url": "https://example.test"}],
        separate_input_output_schemas=True,
    )
    callbacks = APIRouter()
    callbacks.post("{$callback_url}/done")(hello)
    limiter = Limiter()

    @limiter.limit("5/m")
    async def item(number: int, item: Item) -> Item:
        """Take an item, and return one."""
        return item

    for method in METHODS:
        app.router.add_api_route(
            "/items/{number}",
            item,
            methods=[method],
            operation_id=method,
            tags=["items"],
            callbacks=callbacks.routes if method == "put" else None,
            responses={404: {"model": Slow}, "5XX": {"description": "Broken"}},
            openapi_extra={"x-own": True},
        )

    @app.webhooks.post("done")
    def done(item: Item) -> None:
        """Be told."""

    return app


def assert_has(expected: Any, found: Any) -> None:  # noqa: ANN401
    """Check that all of *expected* is somewhere in *found*."""
    if hasattr(expected, "items"):
        for name, value in expected.items():
            assert_has(value, found[name])
    else:
        assert expected == found


def test_nothing_of_a_document_is_lost() -> None:
    """All that FastAPI says is there, and but for operations there is no more."""
    app, before = grand(), grand().openapi()
    document_limits(app)

    document = app.openapi()

    validate(document)
    assert_has(before, document)
    path = "/items/{number}"
    assert METHODS == [*document["paths"][path]]
    for each in document["paths"][path].values():
        assert {"200", "404", "422", "429", "5XX"} == {*each["responses"]}
        assert ["5/m"] == each["x-throttle"]
    assert before == {**document, "paths": before["paths"]}


# --- when it is asked -----------------------------------------------------------------


def test_it_may_be_called_before_there_are_routes() -> None:
    """They are looked for when the document is made."""
    app = FastAPI()
    document_limits(app)
    app.get("/")(Limiter().limit("5/m")(hello))

    assert ["5/m"] == operation(app, path="/")["x-throttle"]


def test_calling_it_twice_is_calling_it_once() -> None:
    """There is one function, and the same document."""
    app, once = limited_as_a_whole(), limited_as_a_whole()
    document_limits(once)
    document_limits(app)
    wrapped = app.openapi
    document_limits(app)

    assert wrapped is app.openapi
    assert once.openapi() == app.openapi()


def test_the_document_is_kept_as_fastapi_keeps_it() -> None:
    """It is made once, may be changed, and is made anew when it is forgotten."""
    app = decorated()
    document_limits(app)
    document = app.openapi()
    del document["paths"]["/"]["get"]["x-throttle"]

    assert document is app.openapi() is app.openapi_schema
    assert "x-throttle" not in operation(app, path="/")
    app.openapi_schema = None
    assert ["5/m"] == operation(app, path="/")["x-throttle"]


def test_a_function_of_the_user_is_asked() -> None:
    """It may keep nothing, add what it wants, and leave out what it does not."""
    app = depending_together()
    app.get("/hidden")(hello)
    app.get("/agreed")(hello)
    generate = app.openapi

    def openapi() -> dict[str, Any]:
        document = copy.deepcopy(generate())
        document["info"]["x-logo"] = "logo.png"
        document["paths"]["/agreed"]["get"]["x-throttle"] = ["as agreed"]
        del document["paths"]["/hidden"]
        return document

    app.openapi = openapi  # type: ignore[method-assign]
    document_limits(app)

    for _ in range(2):
        document = app.openapi()
        assert "logo.png" == document["info"]["x-logo"]
        assert {"/", "/agreed"} == {*document["paths"]}
        assert [["1/m", "2/m", "3/m"], ["as agreed"]] == [
            each["get"]["x-throttle"] for each in document["paths"].values()
        ]


def test_a_document_without_operations_is_left_alone() -> None:
    """Who writes it may leave out what is optional."""
    app = decorated()
    app.openapi = lambda: {"webhooks": {}}  # type: ignore[method-assign]
    document_limits(app)

    assert {"webhooks": {}} == app.openapi()


def test_an_operation_without_responses_gets_ours() -> None:
    """OpenAPI wants no responses of it since 3.1."""
    app = decorated()
    app.openapi = lambda: {"paths": {"/": {"get": {}}}}  # type: ignore[method-assign]
    document_limits(app)

    assert {"200", "429"} == {*operation(app, path="/")["responses"]}


# --- what is in a document ------------------------------------------------------------


def test_hidden_routes_are_not_documented() -> None:
    """Nor do they hide those that are."""
    app = FastAPI()
    app.get("/")(Limiter().limit("5/m")(hello))
    app.get("/hidden", include_in_schema=False)(Limiter().limit("6/m")(hello))
    app.get("/", include_in_schema=False)(Limiter().limit("7/m")(hello))
    document_limits(app)

    assert ["/"] == [*app.openapi()["paths"]]
    assert ["5/m"] == operation(app, path="/")["x-throttle"]


def test_the_later_of_two_routes_is_documented() -> None:
    """It is the one that FastAPI describes."""
    app, limiter = FastAPI(), Limiter()
    app.get("/{one}", operation_id="first")(limiter.limit("5/m")(hello))
    app.get("/{one}", operation_id="second")(hello)
    document_limits(app)

    found = operation(app, path="/{one}")

    assert "second" == found["operationId"]
    assert "x-throttle" not in found


async def test_a_mounted_application_has_a_document_of_its_own() -> None:
    """Each says what it knows of itself, where it is served."""
    app, child = limited_as_a_whole(), decorated()
    app.mount("/child", child)
    document_limits(app)
    document_limits(child)

    outer, inner = await answers(app, "GET /openapi.json", "GET /child/openapi.json")

    assert [["9/s", "50/h", "9/m", "5/m"], ["5/m"]] == [
        each.json()["paths"]["/"]["get"]["x-throttle"] for each in (outer, inner)
    ]
    assert ["/"] == [*outer.json()["paths"]]
    assert [{"url": "/child"}] == inner.json()["servers"]


def test_only_limits_of_the_middleware_deny() -> None:
    """A 503 is documented on all operations, if the application may answer it."""
    app = included(limited_by("5/m"))
    app.add_middleware(
        RateLimitMiddleware, throttle=Limit("9/m", on_store_error="deny")
    )
    document_limits(app)
    denial = operation(app, path="/")["responses"]["503"]

    assert ["Retry-After"] == fields(denial)
    assert "Rate limits are unavailable" == denial["description"]
