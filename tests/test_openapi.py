"""What OpenAPI documents say of limits, and that it is so."""

from collections.abc import Callable, Generator
from typing import Annotated, Any

import fastapi.routing
import pytest
import schemathesis
from fastapi import APIRouter, Depends, FastAPI, Header, Response
from fastapi.responses import PlainTextResponse, RedirectResponse
from hypothesis import given, settings
from openapi_spec_validator import validate
from pydantic import BaseModel

from examples import controller, crud
from tests.apps_views import operation
from tests.asgi import Relay, answers, app_of, frozen_store
from tests.documented import FIELDS, assert_is_documented, fields
from tests.outages import Outage
from throttled_views import (
    EXEMPT,
    LEGACY_HEADERS,
    IETFHeaders,
    Limit,
    Limiter,
    Quota,
    RateLimitHeaderPolicy,
    ThrottledRoute,
    ThrottledRouter,
    ThrottledView,
    exempt,
    limit,
    route,
)


class Item(BaseModel):
    """A model."""

    name: str = ""


class Slow(BaseModel):
    """A body of the user's own."""

    wait: int


async def hello() -> Item:
    """Be a handler."""
    return Item()


async def quota_of_plan(plan: Annotated[str, Header()] = "free") -> Quota:
    """Choose a quota late."""
    return Quota.per_minute(5 if plan == "free" else 50)


def described(
    limiter: Limiter,
    endpoint: Callable[..., object] = hello,
    **options: Any,  # noqa: ANN401
) -> dict[str, Any]:
    """Return the operation of *endpoint* on a router of *limiter*."""
    router = ThrottledRouter(limiter)
    router.add_api_route("/", endpoint, **options)
    app = app_of(router)
    validate(app.openapi())
    return operation(app, path="/")


# --- what is documented ---------------------------------------------------------------


def test_a_limited_operation_documents_its_limit() -> None:
    """Its success has the fields, its refusal a body too, and its quota is listed."""
    found = described(Limiter("100/m"))

    assert {"200", "429"} == {*found["responses"]}
    assert FIELDS == fields(found["responses"]["200"])
    refusal = found["responses"]["429"]
    assert [*FIELDS, "Retry-After"] == fields(refusal)
    assert "Rate limit exceeded" == refusal["description"]
    assert {"application/json"} == {*refusal["content"]}
    assert ["100/m"] == found["x-throttle"]


QUOTAS: dict[str, tuple[Limiter, list[str]]] = {
    "one": (Limiter("100/m"), ["100/m"]),
    "several": (Limiter("1/s; 100/h"), ["1/s", "100/h"]),
    "a burst": (Limiter(Quota.per_minute(60, burst=5)), ["60/m burst 5"]),
    "a function": (Limiter(["100/m", quota_of_plan]), ["100/m", "dynamic"]),
    "a cost of a function": (Limiter(Limit("9/m", cost=lambda: 1)), ["9/m"]),
    "nothing at all": (Limiter("0/h"), ["0/h"]),
    "one that is enforced": (Limiter(["9/m", Limit("1/m", shadow=True)]), ["9/m"]),
}


@pytest.mark.parametrize(("limiter", "listed"), QUOTAS.values(), ids=QUOTAS)
def test_quotas_are_listed(limiter: Limiter, listed: list[str]) -> None:
    """Each as text, in the order of their declaration, or as dynamic."""
    assert listed == described(limiter)["x-throttle"]


class Books(ThrottledView):
    """A view with handlers of all kinds."""

    path = "/books"
    throttle = "100/m"

    async def get(self) -> list[Item]:
        """Have the limit of the class."""
        return []

    @limit(quota_of_plan, "9/h")
    async def post(self, item: Item) -> Item:
        """Have limits that replace it."""
        return item

    @route.get("/{name}", status_code=203)
    async def find(self, name: str) -> Item:
        """Have a path and a status."""
        return Item(name=name)

    @exempt
    async def delete(self) -> None:
        """Have no limit."""


def test_the_handlers_of_a_view_are_documented() -> None:
    """Each with its own limits, where it is served; 422 stays what it was."""
    app = FastAPI()
    app.include_router(Books.as_router(Limiter()), prefix="/v1")
    app.include_router(Books.as_router(Limiter()), prefix="/v2")

    document = app.openapi()

    validate(document)
    for prefix in ("/v1", "/v2"):
        books = document["paths"][f"{prefix}/books"]
        find = document["paths"][f"{prefix}/books/{{name}}"]["get"]
        assert ["100/m"] == books["get"]["x-throttle"] == find["x-throttle"]
        assert ["dynamic", "9/h"] == books["post"]["x-throttle"]
        assert {"200", "422", "429"} == {*books["post"]["responses"]}
        assert {"203", "422", "429"} == {*find["responses"]}
        assert FIELDS == fields(find["responses"]["203"])
        assert {"200"} == {*books["delete"]["responses"]}
        assert "x-throttle" not in books["delete"]


async def free() -> Item:
    """Be a handler without a limit."""
    return Item()


UNLIMITED: dict[str, tuple[Limiter, Any]] = {
    "an exempt default": (Limiter(EXEMPT), hello),
    "a limit in shadow": (Limiter(Limit("1/h", shadow=True)), hello),
    "an exempt function": (Limiter("1/h"), Limiter("1/h").exempt(free)),
}


@pytest.mark.parametrize(("limiter", "endpoint"), UNLIMITED.values(), ids=UNLIMITED)
def test_what_is_unlimited_documents_nothing(limiter: Limiter, endpoint: Any) -> None:  # noqa: ANN401
    """Its document is that of any other route."""
    found = described(limiter, endpoint)

    assert {"200"} == {*found["responses"]}
    assert [] == fields(found["responses"]["200"])
    assert "x-throttle" not in found


def test_a_limit_of_a_function_is_documented() -> None:
    """It replaces the default of the router there, too."""
    limiter = Limiter("100/m")

    assert ["5/m"] == described(limiter, limiter.limit("5/m")(hello))["x-throttle"]


def test_routers_in_routers_are_documented() -> None:
    """However deep a route is, and below a mount."""
    limiter = Limiter("100/m")
    inner, outer = ThrottledRouter(limiter, prefix="/inner"), ThrottledRouter(limiter)
    inner.add_api_route("/", hello)
    outer.include_router(inner, prefix="/outer")
    app, site = FastAPI(), FastAPI()
    app.include_router(outer, prefix="/app")
    site.mount("/site", app)

    document = app.openapi()

    validate(document)
    assert ["100/m"] == document["paths"]["/app/outer/inner/"]["get"]["x-throttle"]


def test_a_route_class_on_a_plain_router_is_documented() -> None:
    """The route knows its limits, whatever router it is on."""
    router = APIRouter(route_class=ThrottledRoute)
    router.add_api_route("/", Limiter().limit("5/m")(hello))

    assert ["5/m"] == operation(app_of(router), path="/")["x-throttle"]


def test_dependencies_that_limit_are_documented() -> None:
    """Also those of dependencies, each once, after the limits of the route itself."""
    limiter = Limiter("100/m", problem_details=True)
    limited = Depends(limiter.dependency(["5/m", quota_of_plan]))

    def nested(_: Annotated[None, limited]) -> None:
        """Depend on it once more."""

    found = described(limiter, dependencies=[limited, Depends(nested)])

    assert ["100/m", "5/m", "dynamic"] == found["x-throttle"]
    # A dependency can only raise, and FastAPI answers that.
    assert ["application/problem+json", "application/json"] == [
        *found["responses"]["429"]["content"]
    ]


# --- header policies and bodies -------------------------------------------------------

POLICIES: dict[str, tuple[Limiter, list[str], list[str]]] = {
    "legacy names": (
        Limiter("1/m", headers=LEGACY_HEADERS),
        [f"X-{name}" for name in FIELDS],
        ["Retry-After"],
    ),
    "names of one's own": (
        Limiter("1/m", headers=RateLimitHeaderPolicy("L", "R", "T", "Wait")),
        ["L", "R", "T"],
        ["Wait"],
    ),
    "those of the draft": (
        Limiter("1/m", headers=IETFHeaders()),
        ["RateLimit-Policy", "RateLimit"],
        ["Retry-After"],
    ),
    "none": (Limiter("1/m", headers=None), [], ["Retry-After"]),
}


@pytest.mark.parametrize(
    ("limiter", "always", "refused"), POLICIES.values(), ids=POLICIES
)
def test_the_policy_says_which_fields_are_documented(
    limiter: Limiter, always: list[str], refused: list[str]
) -> None:
    """Those that it writes, on a success and on a refusal."""
    responses = described(limiter)["responses"]

    assert always == fields(responses["200"])
    assert [*always, *refused] == fields(responses["429"])


def test_two_limiters_document_the_fields_of_both() -> None:
    """Either may be the one that tells."""
    inner, outer = Limiter(headers=LEGACY_HEADERS), Limiter(headers=IETFHeaders())

    found = described(Limiter(), outer.limit("9/m")(inner.limit("5/m")(hello)))

    assert [*[f"X-{name}" for name in FIELDS], "RateLimit-Policy", "RateLimit"] == (
        fields(found["responses"]["200"])
    )
    assert ["5/m", "9/m"] == found["x-throttle"]


DENYING: dict[str, tuple[Limiter, bool]] = {
    "a limiter that denies": (Limiter("1/m", on_store_error="deny"), True),
    "a limit that denies": (Limiter(Limit("1/m", on_store_error="deny")), True),
    "a limit that does not": (
        Limiter(Limit("1/m", on_store_error="allow"), on_store_error="deny"),
        False,
    ),
    "the default": (Limiter("1/m"), False),
}


@pytest.mark.parametrize(("limiter", "denies"), DENYING.values(), ids=DENYING)
def test_503_is_documented_where_limits_deny(
    limiter: Limiter,
    denies: bool,  # noqa: FBT001
) -> None:
    """What an outage answers is documented if that is the policy."""
    responses = described(limiter)["responses"]

    assert denies == ("503" in responses)
    assert (["Retry-After"] if denies else []) == fields(responses.get("503", {}))


DETAILS = {"plain": False, "problem details": True}
WRITTEN = {
    "default names": RateLimitHeaderPolicy(),
    "legacy names": LEGACY_HEADERS,
    "the draft": IETFHeaders(),
    "none": None,
}


@pytest.mark.parametrize("problem_details", DETAILS.values(), ids=DETAILS)
@pytest.mark.parametrize("policy", WRITTEN.values(), ids=WRITTEN)
async def test_what_is_documented_is_what_is_sent(
    policy: RateLimitHeaderPolicy | IETFHeaders | None,
    problem_details: bool,  # noqa: FBT001
) -> None:
    """Admitted, refused, and denied in an outage: the same fields and bodies."""
    outage = Outage(is_down=True)
    limiter = Limiter(
        "1/m",
        store=Relay(frozen_store()),
        headers=policy,
        problem_details=problem_details,
        on_store_error="deny",
    )
    denying = Limiter(
        "1/m", store=outage, problem_details=problem_details, on_store_error="deny"
    )
    router, down = ThrottledRouter(limiter), ThrottledRouter(denying)
    router.add_api_route("/", hello)
    down.add_api_route("/down", hello)
    app = app_of(router, down)

    admitted, refused, denied = await answers(app, "GET /", "GET /", "GET /down")

    assert [200, 429, 503] == [each.status_code for each in (admitted, refused, denied)]
    for answer in (admitted, refused):
        assert_is_documented(operation(app, path="/"), answer)
    assert_is_documented(operation(app, path="/down"), denied)


# --- what users say themselves --------------------------------------------------------

HEADER = {"description": "mine", "schema": {"type": "string"}}
OWN: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "a description": (
        {"responses": {429: {"description": "Slow down"}}},
        {"description": "Slow down", "fields": [*FIELDS, "Retry-After"], "own": False},
    ),
    "a status as text": (
        {"responses": {"429": {"description": "Slow down"}}},
        {"description": "Slow down", "fields": [*FIELDS, "Retry-After"], "own": False},
    ),
    "a model": (
        {"responses": {429: {"model": Slow, "description": "Slow"}}},
        {"description": "Slow", "fields": [*FIELDS, "Retry-After"], "own": True},
    ),
    "a field": (
        {"responses": {429: {"headers": {"retry-after": HEADER}}}},
        {
            "description": "Rate limit exceeded",
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
    refusal = described(Limiter("5/m"), **options)["responses"]["429"]
    content = refusal.get("content", {}).get("application/json", {})
    title = content.get("schema", {}).get("title")

    assert expected == {
        "description": refusal["description"],
        "fields": fields(refusal),
        "own": content and title != "RateLimitDetail" if content else None,
    }


def test_what_users_say_of_all_routes_wins() -> None:
    """Responses of the router, of a view when it is added, and of its handlers."""
    mine = {429: {"description": "mine"}}
    view = {429: {"description": "of the view"}}
    router = ThrottledRouter(Limiter("5/m"), responses=mine)
    router.add_api_route("/", hello)
    router.add_view(Books, responses=view)
    app = app_of(router)

    assert "mine" == operation(app, path="/")["responses"]["429"]["description"]
    assert (
        "of the view"
        == (operation(app, path="/books")["responses"]["429"]["description"])
    )


def test_nothing_that_users_say_of_a_success_is_lost() -> None:
    """Fields, examples and the model stay beside the fields of the limit."""
    example = {"application/json": {"example": {"name": "Emma"}}}
    found = described(
        Limiter("5/m"),
        responses={
            200: {"headers": {"X-Own": HEADER}, "content": example},
            404: {"model": Slow},
            "5XX": {"description": "Something else"},
        },
        openapi_extra={"x-own": True},
        response_description="A book",
    )
    success = found["responses"]["200"]

    assert "A book" == success["description"]
    assert ["X-Own", *FIELDS] == fields(success)
    assert {"name": "Emma"} == success["content"]["application/json"]["example"]
    assert "$ref" in success["content"]["application/json"]["schema"]
    assert {"200", "404", "429", "5XX"} == {*found["responses"]}
    assert found["x-own"]


def test_an_inclusion_adds_what_it_limits() -> None:
    """Where FastAPI makes routes anew for it; since 0.137 they are the same."""
    expected = ["100/m"]
    if not hasattr(fastapi.routing, "iter_route_contexts"):
        expected.append("5/m")
    limiter = Limiter("100/m")
    router, app = ThrottledRouter(limiter), FastAPI()
    router.add_api_route("/own", hello, openapi_extra={"x-throttle": ["as agreed"]})
    router.add_api_route("/", hello)
    app.include_router(router, dependencies=[Depends(limiter.dependency("5/m"))])
    app.include_router(router, prefix="/plain")

    assert [expected, ["100/m"], ["as agreed"]] == [
        operation(app, path=path)["x-throttle"] for path in ("/", "/plain/", "/own")
    ]


def test_an_extension_of_the_user_wins() -> None:
    """Who writes ``x-throttle`` means it."""
    extra = {"x-throttle": ["as agreed"]}

    assert ["as agreed"] == described(Limiter("5/m"), openapi_extra=extra)["x-throttle"]
    assert {"x-throttle": ["as agreed"]} == extra


class Teapot(Response):
    """A response that says its status to nobody."""

    media_type = "text/plain"

    def __init__(self, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401
        """Be a teapot."""
        super().__init__(*args, **{**kwargs, "status_code": 418})


SUCCESSES: dict[str, tuple[dict[str, Any], str]] = {
    "a status": ({"status_code": 201}, "201"),
    "no content": ({"status_code": 204, "response_model": None}, "204"),
    "a redirect": ({"response_class": RedirectResponse}, "307"),
    "text": ({"response_class": PlainTextResponse}, "200"),
    "a class that does not tell": (
        {"response_class": Teapot, "status_code": 418},
        "418",
    ),
}


@pytest.mark.parametrize(("options", "status"), SUCCESSES.values(), ids=SUCCESSES)
def test_the_success_is_the_one_of_fastapi(
    options: dict[str, Any], status: str
) -> None:
    """The fields are on the one that FastAPI documents, and there is no other."""
    responses = described(Limiter("5/m"), **options)["responses"]

    assert {status, "429"} == {*responses}
    assert FIELDS == fields(responses[status])


def test_a_success_without_a_status_is_left_to_fastapi() -> None:
    """Where FastAPI does not find one, neither do we."""
    router = ThrottledRouter(Limiter("5/m"))
    router.add_api_route("/", hello, response_class=Teapot)
    (only,) = router.routes
    assert isinstance(only, ThrottledRoute)

    assert [429] == [*only.responses]


# --- examples, from their documents ---------------------------------------------------

EXAMPLES = {"controller": controller.app, "crud": crud.app}


@pytest.fixture(autouse=True)
def _empty_examples() -> Generator[None]:
    """Leave no rows in the examples."""
    yield
    for rows in (controller.SHELF, crud.BOOKS, crud.AUTHORS):
        rows.clear()


@pytest.mark.parametrize("app", EXAMPLES.values(), ids=EXAMPLES)
def test_the_document_of_an_example_is_valid(app: FastAPI) -> None:
    """All its operations are as OpenAPI has them."""
    validate(app.openapi())


def operations() -> dict[str, Any]:
    """Return what schemathesis reads in the documents of the examples."""
    found: dict[str, Any] = {}
    for name, app in EXAMPLES.items():
        schema: Any = schemathesis.openapi.from_asgi("/openapi.json", app)
        for each in schema.get_all_operations():
            found[f"{name}: {each.ok().label}"] = each.ok()
    return found


OPERATIONS = operations()


@pytest.mark.parametrize("called", OPERATIONS.values(), ids=OPERATIONS)
def test_an_example_answers_as_it_documents(called: Any) -> None:  # noqa: ANN401
    """Whatever its document allows to send, admitted or refused, is answered by it."""

    @settings(max_examples=20, database=None)
    @given(case=called.as_strategy())
    def send(case: Any) -> None:  # noqa: ANN401
        case.call_and_validate()

    send()
