"""The fields of the IETF's draft, read by a parser of structured fields."""

import copy
from typing import Any

import http_sf
import pytest
from fastapi import FastAPI, Request, Response
from fastapi.middleware.cors import CORSMiddleware
from fastapi.responses import PlainTextResponse
from hypothesis import given
from hypothesis import strategies as st

from tests.asgi import answers, app_of, frozen_store
from tests.strategies import quotas
from tests.ways import DECORATED, EARLY, WAYS, Way
from throttled_views import (
    EXPOSED_HEADERS,
    LEGACY_HEADERS,
    Algorithm,
    ConfigurationError,
    IETFHeaders,
    Limit,
    Limiter,
    Quota,
    RateLimitHeaderPolicy,
    Throttle,
    ThrottledRouter,
)
from throttled_views.headers import Told, renderer_of
from throttled_views.results import Decision

IETF = renderer_of(IETFHeaders())

ADMITTED = Decision(
    limited=False, limit=10, remaining=9, reset_us=100_000, retry_us=0, at_us=0
)
REFUSED = Decision(
    limited=True, limit=5, remaining=0, reset_us=5_000_000, retry_us=1_200_000, at_us=0
)

List = list[tuple[str, dict[str, int]]]


def parsed(value: str) -> List:
    """Return the items of a list of RFC 9651, each with its parameters."""
    items: Any = http_sf.parse(value.encode(), tltype="list")
    return [(name, dict(parameters)) for name, parameters in items]


def fields(*told: Told) -> dict[str, str]:
    """Return the fields that tell of some limits."""
    return IETF.display(IETF.render(told))


def told(decision: Decision, name: str = "default", quota: str = "10/s") -> Told:
    """Return what a client is told of a limit."""
    return Told(decision, name, Quota.parse(quota))


# --- what is written ------------------------------------------------------------------


def test_all_limits_are_told_as_the_draft_has_it() -> None:
    """Two lists of strings with parameters: what was promised, and what is left."""
    daily = ADMITTED._replace(limit=1000, remaining=999, reset_us=86_400_000)

    assert {
        "RateLimit-Policy": '"burst";q=10;w=1, "daily";q=1000;w=86400',
        "RateLimit": '"burst";r=9;t=1, "daily";r=999;t=87',
    } == fields(told(ADMITTED, "burst"), told(daily, "daily", "1000/d"))


def test_a_refusal_names_one_moment_twice() -> None:
    """Of what refuses the time is the wait, which Retry-After says, too."""
    minute = ADMITTED._replace(remaining=7, reset_us=18_000_000)

    assert {
        "RateLimit-Policy": '"a";q=5;w=5, "b";q=10;w=60',
        "RateLimit": '"a";r=0;t=2, "b";r=7;t=18',
        "Retry-After": "2",
    } == fields(told(REFUSED, "a", "5/5s"), told(minute, "b", "10/m"))


def test_what_never_passes_has_no_time() -> None:
    """Where waiting does not help, nothing invites to try again."""
    never = REFUSED._replace(limit=0, retry_us=None, reset_us=0)

    assert {
        "RateLimit-Policy": '"default";q=0;w=60',
        "RateLimit": '"default";r=0',
    } == fields(told(never, quota="0/m"))


@pytest.mark.parametrize(
    ("quota", "policy"),
    [
        pytest.param("100/m", {"q": 100, "w": 60}, id="100 a minute"),
        pytest.param("1/d", {"q": 1, "w": 86_400}, id="1 a day"),
        pytest.param("100/m burst 20", {"q": 20, "w": 12}, id="a burst below"),
        pytest.param("10/s burst 600", {"q": 600, "w": 60}, id="a burst above"),
        pytest.param("7/1500ms", {"q": 7, "w": 2}, id="1.5 s is 2"),
        pytest.param("10/200ms", {"q": 10, "w": 1}, id="0.2 s is 1"),
        pytest.param("1000000/s burst 1", {"q": 1, "w": 1}, id="1 us is 1"),
        pytest.param("3/s burst 1", {"q": 1, "w": 1}, id="a third of a second is 1"),
        pytest.param("0/h", {"q": 0, "w": 3_600}, id="nothing"),
    ],
)
def test_a_policy_is_what_a_full_key_holds(quota: str, policy: dict[str, int]) -> None:
    """That much can be used at once, and comes back in that time, rounded up."""
    assert [("default", policy)] == parsed(
        fields(told(ADMITTED, quota=quota))["RateLimit-Policy"]
    )


@given(quota=quotas(), name=st.text(st.characters(min_codepoint=32, max_codepoint=126)))
def test_any_limit_can_be_read_back(quota: Quota, name: str) -> None:
    """Whatever a limit is called and held to, a client reads what was meant."""
    shown = fields(Told(ADMITTED, name, quota))
    [(policy_name, policy)] = parsed(shown["RateLimit-Policy"])
    [(limit_name, limit)] = parsed(shown["RateLimit"])

    assert [name] * 2 == [policy_name, limit_name]
    assert quota.burst == policy["q"]
    assert quota.burst * quota.period_us <= policy["w"] * 10**6 * quota.limit
    assert policy["w"] >= 1
    assert {"r": 9, "t": 1} == limit


@given(
    st.builds(
        Decision,
        st.booleans(),
        *[st.integers(0, 10**12)] * 2,
        st.integers(0, 10**16),
        st.none() | st.integers(0, 10**16),
        st.integers(),
    )
)
def test_all_numbers_are_whole_and_none_is_negative(decision: Decision) -> None:
    """Whatever was decided, the parameters are those that the draft allows."""
    [(_, limit)] = parsed(fields(told(decision))["RateLimit"])

    assert decision.remaining == limit.pop("r")
    assert set(limit) <= {"t"}
    assert all(value >= 0 for value in limit.values())


# --- on responses ---------------------------------------------------------------------


async def hello() -> str:
    """Be a handler."""
    return "hello"


def limiter_of(
    throttle: Throttle, using: Algorithm = Algorithm.TOKEN_BUCKET
) -> Limiter:
    """Return a limiter that writes these fields."""
    return Limiter(throttle, store=frozen_store(), using=using, headers=IETFHeaders())


BOTH = [Limit("2/m", name="burst"), Limit("100/d", name="daily")]
OURS = {**EARLY, **DECORATED}


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
async def test_every_limit_is_told_on_every_response(way: Way) -> None:
    """A response has all policies, whether the request is admitted or refused."""
    app = way(limiter_of(BOTH), hello)

    first, _, refused = await answers(app, *["GET /"] * 3)

    assert (
        '"burst";q=2;w=60, "daily";q=100;w=86400' == first.headers["RateLimit-Policy"]
    )
    assert '"burst";r=1;t=30, "daily";r=99;t=864' == first.headers["RateLimit"]
    assert "Retry-After" not in first.headers
    assert first.headers["RateLimit-Policy"] == refused.headers["RateLimit-Policy"]
    assert '"burst";r=0;t=30, "daily";r=98;t=1728' == refused.headers["RateLimit"]
    assert "30" == refused.headers["Retry-After"]


@pytest.mark.parametrize("way", EARLY.values(), ids=EARLY)
@pytest.mark.parametrize("using", Algorithm)
async def test_one_limit_is_told_as_quickly(way: Way, using: Algorithm) -> None:
    """A single limit, which is decided by a shorter way, is told alike."""
    app = way(limiter_of("2/m", using=using), hello)

    first, _, refused = await answers(app, *["GET /"] * 3)

    assert [("1", {"q": 2, "w": 60})] == parsed(first.headers["RateLimit-Policy"])
    [(_, left)] = parsed(first.headers["RateLimit"])
    assert 1 == left["r"]
    [(_, left)] = parsed(refused.headers["RateLimit"])
    assert {"r": 0, "t": int(refused.headers["Retry-After"])} == left


async def with_a_field() -> Response:
    """Set a field of ours."""
    return PlainTextResponse("", headers={"RateLimit": '"mine";r=1'})


@pytest.mark.parametrize("way", OURS.values(), ids=OURS)
async def test_a_field_that_the_user_set_is_kept(way: Way) -> None:
    """A field is written once: where the user wrote it, we do not."""
    app = way(limiter_of("2/m"), with_a_field)

    (answer,) = await answers(app, "GET /")

    assert ['"mine";r=1'] == answer.headers.get_list("RateLimit")
    assert ['"1";q=2;w=60'] == answer.headers.get_list("RateLimit-Policy")


async def quota_of(request: Request) -> Quota | str:
    """Choose a quota by who asks."""
    return request.headers["X-Quota"]


async def test_a_chosen_quota_is_told() -> None:
    """The policy is that of the request."""
    router = ThrottledRouter(limiter_of(quota_of))
    router.add_api_route("/", hello)

    (answer,) = await answers(app_of(router), "GET /", headers={"X-Quota": "7/h"})

    assert '"1";q=7;w=3600' == answer.headers["RateLimit-Policy"]


async def test_limits_of_one_name_are_told_apart() -> None:
    """Two limiters may give their limits the same name."""
    first, second = (limiter_of(Limit(each, name="n")) for each in ("2/m", "3/m"))
    app = FastAPI()
    app.get("/")(first.limit()(second.limit()(hello)))

    (answer,) = await answers(app, "GET /")

    assert ["n", "n #2"] == [
        name for name, _ in parsed(answer.headers["RateLimit-Policy"])
    ]
    assert {1, 2} == {left["r"] for _, left in parsed(answer.headers["RateLimit"])}


# --- scenarios from public bug reports ------------------------------------------------


@pytest.mark.parametrize("name", ["default", "per-user", "a b", 'a "b"', "a\\b"])
async def test_case_104_the_syntax_is_that_of_one_draft(name: str) -> None:
    """Lists of strings with whole numbers, whatever the limit is called."""
    limits = [Limit("100/m", name=name), Limit("7/1500ms", name="short")]
    router = ThrottledRouter(limiter_of(limits))
    router.add_api_route("/", hello)

    (answer,) = await answers(app_of(router), "GET /")

    assert [(name, {"q": 100, "w": 60}), ("short", {"q": 7, "w": 2})] == parsed(
        answer.headers["RateLimit-Policy"]
    )
    assert [(name, {"r": 99, "t": 1}), ("short", {"r": 6, "t": 1})] == parsed(
        answer.headers["RateLimit"]
    )


@pytest.mark.parametrize("name", ["naïve", "例", "a\nb", ""])
def test_case_104_a_name_that_could_not_be_told_is_refused(name: str) -> None:
    """It fails where it is declared."""
    with pytest.raises(ConfigurationError, match="is not printable ASCII"):
        Limit("100/m", name=name)


# --- names ----------------------------------------------------------------------------


def test_a_policy_knows_its_names() -> None:
    """Whoever has to list the fields finds them."""
    assert ("RateLimit-Policy", "RateLimit", "Retry-After") == IETFHeaders().names
    assert (
        "X-RateLimit-Limit",
        "X-RateLimit-Remaining",
        "X-RateLimit-Reset",
        "Retry-After",
    ) == LEGACY_HEADERS.names


def test_the_policy_is_a_value() -> None:
    """It has no options, so that all are equal; and it takes no attributes."""
    policy = IETFHeaders()

    assert {policy} == {IETFHeaders(), copy.deepcopy(policy)}
    assert policy != RateLimitHeaderPolicy()
    assert "IETFHeaders()" == repr(policy)
    with pytest.raises(AttributeError):
        setattr(policy, "limit", "X-Limit")  # noqa: B010 - it has no such attribute


@pytest.mark.parametrize("policy", [RateLimitHeaderPolicy(), IETFHeaders(), None])
async def test_a_browser_may_read_what_is_written(
    policy: RateLimitHeaderPolicy | IETFHeaders | None,
) -> None:
    """`EXPOSED_HEADERS` has the fields of all policies that need no names."""
    router = ThrottledRouter(Limiter("1/m", headers=policy))
    router.add_api_route("/", hello)
    app = app_of(router)
    app.add_middleware(
        CORSMiddleware, allow_origins=["*"], expose_headers=EXPOSED_HEADERS
    )

    received = await answers(app, "GET /", "GET /", headers={"Origin": "http://a.test"})

    for answer in received:
        exposed = answer.headers["Access-Control-Expose-Headers"].lower().split(", ")
        written = {
            name for name in answer.headers if name.startswith(("rate", "retry"))
        }
        assert written <= set(exposed)
    assert len(EXPOSED_HEADERS) == len(set(EXPOSED_HEADERS))
