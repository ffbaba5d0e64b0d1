"""What the client is told, on whatever response there is."""

import httpx
import pytest
from fastapi import HTTPException, Request, Response
from fastapi.responses import (
    PlainTextResponse,
)

from tests.asgi import answers, app_of, fields_of
from tests.kinds import (
    EVERY_KIND,
    RAISED,
    RENDERED,
    RETURNED,
    Kind,
    a_dict,
    assert_is,
)
from tests.ways import (
    DECORATED,
    DEPENDENT,
    EARLY,
    WAYS,
    Endpoint,
    Way,
)
from throttled_views import (
    LEGACY_HEADERS,
    Limiter,
    MemoryStore,
    RateLimitHeaderPolicy,
    ThrottledRouter,
)

TOLD = {
    "RateLimit-Limit": "2",
    "RateLimit-Remaining": "1",
    "RateLimit-Reset": "1800",
}
"""What the first of two requests in an hour is told."""

# --- the fields are on whatever there is ----------------------------------------------

OURS = {**EARLY, **DECORATED}


@pytest.mark.parametrize("kind", EVERY_KIND.values(), ids=EVERY_KIND)
@pytest.mark.parametrize("way", OURS.values(), ids=OURS)
async def test_every_kind_of_response_carries_the_fields_once(
    way: Way, kind: Kind, store: MemoryStore
) -> None:
    """The response keeps status, body and headers, and has each field once."""
    app = way(Limiter("2/h", store=store), kind.endpoint, **kind.options)

    (answer,) = await answers(app, "GET /")

    assert_is(kind, answer)
    assert TOLD == fields_of(answer)


@pytest.mark.parametrize("kind", RENDERED.values(), ids=RENDERED)
@pytest.mark.parametrize("way", DEPENDENT.values(), ids=DEPENDENT)
async def test_a_dependency_puts_the_fields_on_what_fastapi_renders(
    way: Way, kind: Kind, store: MemoryStore
) -> None:
    """The response keeps status, body and headers, and has each field once."""
    app = way(Limiter("2/h", store=store), kind.endpoint, **kind.options)

    (answer,) = await answers(app, "GET /")

    assert_is(kind, answer)
    assert TOLD == fields_of(answer)


OUT_OF_REACH = {**RETURNED, **RAISED}


@pytest.mark.parametrize("kind", OUT_OF_REACH.values(), ids=OUT_OF_REACH)
@pytest.mark.parametrize("way", DEPENDENT.values(), ids=DEPENDENT)
async def test_a_dependency_charges_what_it_cannot_put_fields_on(
    way: Way, kind: Kind, store: MemoryStore
) -> None:
    """What a function returns itself goes as it is, and counts like the rest."""
    app = way(Limiter("2/h", store=store), kind.endpoint, **kind.options)

    first, *_, third = await answers(app, *["GET /"] * 3)

    assert_is(kind, first)
    assert {} == fields_of(first)
    assert 429 == third.status_code


# --- the refusal ----------------------------------------------------------------------


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
async def test_a_refusal_tells_when_to_come_back(way: Way, store: MemoryStore) -> None:
    """A refusal is a 429 of FastAPI's shape, with all fields and Retry-After."""
    app = way(Limiter("2/h", store=store), a_dict)

    *_, refused = await answers(app, *["GET /"] * 3)

    assert (429, {"detail": "Rate limit exceeded"}) == (
        refused.status_code,
        refused.json(),
    )
    assert {
        "RateLimit-Limit": "2",
        "RateLimit-Remaining": "0",
        "RateLimit-Reset": "3600",
        "Retry-After": "1800",
    } == fields_of(refused)


async def test_a_refusal_that_waiting_does_not_help_names_no_time() -> None:
    """Where nothing is ever admitted there is nothing to wait for."""
    router = ThrottledRouter(Limiter("0/h"))
    router.add_api_route("/", a_dict)

    (refused,) = await answers(app_of(router), "GET /")

    told = {
        "RateLimit-Limit": "0",
        "RateLimit-Remaining": "0",
        "RateLimit-Reset": "0",
    }
    assert (429, told) == (refused.status_code, fields_of(refused))


# --- what is the user's stays the user's ----------------------------------------------

SHARED_RESPONSE = PlainTextResponse("shared", headers={"X-Mine": "kept"})
SHARED_ERROR = HTTPException(404, headers={"X-Mine": "kept"})


async def the_shared_response() -> Response:
    """Return a response that was made once and for all."""
    return SHARED_RESPONSE


async def the_shared_error() -> None:
    """Raise an exception that was made once and for all."""
    raise SHARED_ERROR


@pytest.mark.parametrize(
    "endpoint", [the_shared_response, the_shared_error], ids=["response", "error"]
)
@pytest.mark.parametrize("way", OURS.values(), ids=OURS)
async def test_fields_do_not_pile_up_on_what_is_used_again(
    way: Way, endpoint: Endpoint, store: MemoryStore
) -> None:
    """Each response tells of its own request, and another route's tells nothing."""
    app = way(Limiter("5/h", store=store), endpoint)
    app.add_api_route("/unlimited", endpoint)

    *limited, unlimited = await answers(app, *["GET /"] * 3, "GET /unlimited")

    assert ["4", "3", "2"] == [
        answer.headers["RateLimit-Remaining"] for answer in limited
    ]
    assert {} == fields_of(unlimited)
    assert "kept" == unlimited.headers["X-Mine"]
    assert {"X-Mine": "kept"} == SHARED_ERROR.headers


async def on_the_merged_response(response: Response) -> None:
    """Set a field of ours on the response that FastAPI merges."""
    response.headers["RateLimit-Limit"] = "mine"


async def on_a_response() -> Response:
    """Set a field of ours on a response."""
    return PlainTextResponse("", headers={"RateLimit-Limit": "mine"})


async def on_an_error() -> None:
    """Set a field of ours on an exception."""
    raise HTTPException(404, headers={"RateLimit-Limit": "mine"})


@pytest.mark.parametrize(
    "endpoint",
    [on_the_merged_response, on_a_response, on_an_error],
    ids=["merged response", "response", "error"],
)
@pytest.mark.parametrize("way", OURS.values(), ids=OURS)
async def test_a_field_that_the_user_set_is_kept(
    way: Way, endpoint: Endpoint, store: MemoryStore
) -> None:
    """A field is written once: where the user wrote it, we do not."""
    app = way(Limiter("2/h", store=store), endpoint)

    (answer,) = await answers(app, "GET /")

    assert {**TOLD, "RateLimit-Limit": "mine"} == fields_of(answer)


class OutOfStockError(HTTPException):
    """An exception of the user, made and rendered in ways of its own."""

    def __init__(self, *, item: str) -> None:
        super().__init__(409, detail=f"{item} is out of stock")
        self.item = item


@pytest.mark.parametrize("way", OURS.values(), ids=OURS)
async def test_an_exception_of_the_user_reaches_its_own_handler(
    way: Way, store: MemoryStore
) -> None:
    """It comes with its class, its attributes, and the fields in its headers."""

    async def sell() -> None:
        raise OutOfStockError(item="book")

    app = way(Limiter("2/h", store=store), sell)

    @app.exception_handler(OutOfStockError)
    async def render(_request: Request, error: OutOfStockError) -> Response:
        return PlainTextResponse(error.item, error.status_code, error.headers)

    (answer,) = await answers(app, "GET /")

    assert (409, "book") == (answer.status_code, answer.text)
    assert TOLD == fields_of(answer)


# --- names of the fields --------------------------------------------------------------

OWN_NAMES = RateLimitHeaderPolicy(
    limit="X-Limit", remaining="X-Left", reset="X-Reset", retry_after="X-Wait"
)

POLICIES: dict[str, tuple[RateLimitHeaderPolicy | None, list[str], list[str]]] = {
    "legacy": (
        LEGACY_HEADERS,
        ["x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset"],
        ["retry-after"],
    ),
    "none": (None, [], ["retry-after"]),
    "own names": (OWN_NAMES, ["x-limit", "x-left", "x-reset"], ["x-wait"]),
}


def names_about_limits(answer: httpx.Response) -> list[str]:
    """Return the names of all fields but those of the body, in order."""
    return [name for name in answer.headers if not name.startswith("content-")]


@pytest.mark.parametrize(
    ("policy", "always", "refused"), POLICIES.values(), ids=POLICIES
)
@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
async def test_the_fields_have_the_names_of_the_policy(
    way: Way,
    policy: RateLimitHeaderPolicy | None,
    always: list[str],
    refused: list[str],
) -> None:
    """Only what the policy names is sent, and the time to wait on refusals alone."""
    app = way(Limiter("1/h", headers=policy), a_dict)

    first, second = await answers(app, "GET /", "GET /")

    assert (200, always) == (first.status_code, names_about_limits(first))
    assert (429, always + refused) == (second.status_code, names_about_limits(second))


# --- several limits -------------------------------------------------------------------


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
async def test_of_several_limits_the_nearest_to_exhaustion_is_told(
    way: Way, store: MemoryStore
) -> None:
    """The client hears of the limit it is going to meet first."""
    app = way(Limiter(["100/h", "2/h", "50/h"], store=store), a_dict)

    (answer,) = await answers(app, "GET /")

    assert TOLD == fields_of(answer)


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
async def test_of_several_limits_the_one_that_refuses_longest_is_told(
    way: Way, store: MemoryStore
) -> None:
    """After that time the request is admitted, by all of them."""
    app = way(Limiter(["1/m", "1/h", "100/h"], store=store), a_dict)

    _, refused = await answers(app, "GET /", "GET /")

    assert ("1", "3600") == (
        refused.headers["RateLimit-Limit"],
        refused.headers["Retry-After"],
    )
