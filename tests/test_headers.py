"""What the client is told: header fields, and the context they are written from."""

from collections.abc import Mapping
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from throttled_views import (
    LEGACY_HEADERS,
    ConfigurationError,
    Limit,
    Limiter,
    NoRateLimitError,
    Quota,
    RateLimitContext,
    RateLimitHeaderPolicy,
)
from throttled_views._answers import Answer
from throttled_views.context import Outcome
from throttled_views.headers import (
    HeaderRenderer,
    Told,
    merged,
    renderer_of,
)
from throttled_views.results import Decision, result_of

PLAIN = renderer_of(RateLimitHeaderPolicy())
SILENT = renderer_of(None)

ADMITTED = Decision(
    limited=False, limit=10, remaining=9, reset_us=6_000_000, retry_us=0, at_us=0
)
REFUSED = Decision(
    limited=True,
    limit=5,
    remaining=0,
    reset_us=60_000_000,
    retry_us=12_000_000,
    at_us=0,
)


def told(decision: Decision, name: str = "1", quota: str = "5/m") -> Told:
    """Return what a client is told of a limit that answers *decision*."""
    return Told(decision, name, Quota.parse(quota))


def fields(decision: Decision, renderer: HeaderRenderer = PLAIN) -> Mapping[str, str]:
    """Return the fields of *decision*, their names as ASGI has them."""
    raw = renderer.render([told(decision)])
    return {name.decode(): value.decode() for name, value in raw}


# --- policies


def test_the_names_have_defaults() -> None:
    """The fields are named after the first drafts of the IETF, plus Retry-After."""
    assert RateLimitHeaderPolicy() == RateLimitHeaderPolicy(
        limit="RateLimit-Limit",
        remaining="RateLimit-Remaining",
        reset="RateLimit-Reset",
        retry_after="Retry-After",
    )


def test_the_legacy_names_have_an_x() -> None:
    """The older names are there for clients that know no others."""
    assert {
        "x-ratelimit-limit": "5",
        "x-ratelimit-remaining": "0",
        "x-ratelimit-reset": "60",
        "retry-after": "12",
    } == fields(REFUSED, renderer_of(LEGACY_HEADERS))


@pytest.mark.parametrize("field", ["limit", "remaining", "reset", "retry_after"])
@pytest.mark.parametrize(
    "name", ["", "Rate Limit", "X:", "é", "a\nb", "a\r\nb", 5, None, b"x"]
)
def test_a_name_that_is_no_token_is_refused(field: str, name: object) -> None:
    """What could not stand in a response fails where it is written."""
    unchecked: Any = RateLimitHeaderPolicy

    with pytest.raises(ConfigurationError, match=r"is no field name\. Write"):
        unchecked(**{field: name})


def test_every_character_of_a_token_is_accepted() -> None:
    """All that RFC 9110 calls a token is a name."""
    name = "!#$%&'*+-.^_`|~09AZaz"

    assert (
        "10"
        == fields(ADMITTED, renderer_of(RateLimitHeaderPolicy(limit=name)))[
            name.lower()
        ]
    )


@pytest.mark.parametrize("other", ["RateLimit-Reset", "ratelimit-reset"])
def test_a_name_is_used_once(other: str) -> None:
    """Two fields of one name, in any case, could not be told apart."""
    with pytest.raises(ConfigurationError, match="uses a field name twice"):
        RateLimitHeaderPolicy(limit=other)


def test_a_policy_cannot_be_changed() -> None:
    """Setting a name raises."""
    policy: Any = RateLimitHeaderPolicy()

    with pytest.raises(AttributeError):
        policy.limit = "X-Limit"

    assert RateLimitHeaderPolicy() == policy


def test_a_policy_has_one_renderer() -> None:
    """Equal policies are rendered by one object, made once."""
    assert renderer_of(RateLimitHeaderPolicy()) is PLAIN
    assert renderer_of(None) is SILENT


# --- the renderer


def test_an_admitted_request_has_three_fields() -> None:
    """The capacity, what is left, and the seconds until all is back."""
    assert {
        "ratelimit-limit": "10",
        "ratelimit-remaining": "9",
        "ratelimit-reset": "6",
    } == fields(ADMITTED)


def test_a_refused_request_has_a_fourth_field() -> None:
    """A refusal also has the seconds to wait."""
    assert {
        "ratelimit-limit": "5",
        "ratelimit-remaining": "0",
        "ratelimit-reset": "60",
        "retry-after": "12",
    } == fields(REFUSED)


def test_a_wait_without_end_is_not_announced() -> None:
    """Where waiting does not help, nothing invites to try again."""
    assert "retry-after" not in fields(REFUSED._replace(retry_us=None))


@pytest.mark.parametrize(
    ("retry_us", "seconds"),
    [
        pytest.param(0, "1", id="at least 1"),
        pytest.param(1, "1", id="1 us"),
        pytest.param(400_000, "1", id="0.4 s"),
        pytest.param(1_000_000, "1", id="1 s"),
        pytest.param(1_000_001, "2", id="1 us above 1 s"),
        pytest.param(59_999_999, "60", id="1 us below 1 min"),
        pytest.param(60_000_000, "60", id="1 min"),
        pytest.param(3_155_760_000_000_000, "3155760000", id="a century"),
    ],
)
def test_a_wait_is_rounded_up(retry_us: int, seconds: str) -> None:
    """A client that waits as told is never early, and never told to come at once."""
    assert seconds == fields(REFUSED._replace(retry_us=retry_us))["retry-after"]


@pytest.mark.parametrize(
    ("reset_us", "seconds"),
    [(0, "0"), (1, "1"), (1_000_000, "1"), (1_000_001, "2")],
)
def test_a_reset_is_rounded_up(reset_us: int, seconds: str) -> None:
    """A full bucket has nothing to wait for; any other has at least a second."""
    assert seconds == fields(ADMITTED._replace(reset_us=reset_us))["ratelimit-reset"]


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
def test_all_values_are_digits(decision: Decision) -> None:
    """Whatever was decided, the values are whole numbers of 0 or more."""
    assert all(value.isdigit() for value in fields(decision).values())


def test_without_a_policy_only_a_refusal_says_something() -> None:
    """`headers=None` sends nothing but Retry-After."""
    assert {} == fields(ADMITTED, SILENT)
    assert {"retry-after": "12"} == fields(REFUSED, SILENT)


# --- the context


LIMITER = Limiter()
SILENT_LIMITER = Limiter(headers=None)
[RULE] = LIMITER.bind([Limit("5/m")], method="GET", route="here")


def answer_of(
    decision: Decision, name: str = "1", limiter: Limiter = LIMITER
) -> Answer:
    """Return what a limit of *limiter* answers."""
    make_result = partial(result_of, decision, name)
    return Answer(told(decision), RULE, limiter, "early", make_result)


def outcome_of(*decisions: Decision, limiter: Limiter = LIMITER) -> Outcome:
    """Return the outcome of *decisions*, named by their limit."""
    outcome = Outcome()
    for decision in decisions:
        outcome.add_answer(answer_of(decision, f"limit {decision.limit}", limiter))
    return outcome


def context_of(*decisions: Decision, limiter: Limiter = LIMITER) -> RateLimitContext:
    """Return what users see of the outcome of *decisions*."""
    return RateLimitContext(outcome_of(*decisions, limiter=limiter))


def test_a_request_without_limits_has_no_result() -> None:
    """The result raises, the results and the fields are empty."""
    context = context_of()

    with pytest.raises(NoRateLimitError):
        _ = context.result

    assert () == context.results
    assert {} == context.headers


def test_a_request_with_a_limit_has_a_result() -> None:
    """The result, the list of it and its fields are there."""
    context = context_of(ADMITTED)

    assert result_of(ADMITTED, "limit 10") == context.result
    assert (context.result,) == context.results


def test_the_fields_are_spelled_as_the_policy_has_them() -> None:
    """A reader sees the names that were declared."""
    legacy = context_of(REFUSED, limiter=Limiter(headers=LEGACY_HEADERS))

    assert {
        "RateLimit-Limit": "10",
        "RateLimit-Remaining": "9",
        "RateLimit-Reset": "6",
    } == context_of(ADMITTED).headers
    assert {
        "X-RateLimit-Limit": "5",
        "X-RateLimit-Remaining": "0",
        "X-RateLimit-Reset": "60",
        "Retry-After": "12",
    } == legacy.headers
    assert {"Retry-After": "12"} == context_of(REFUSED, limiter=SILENT_LIMITER).headers


@pytest.mark.parametrize(
    ("decisions", "limit"),
    [
        pytest.param([ADMITTED, REFUSED], 5, id="the one that refuses"),
        pytest.param(
            [REFUSED, REFUSED._replace(limit=7, retry_us=12_000_001)],
            7,
            id="of two that refuse, the longest wait",
        ),
        pytest.param(
            [ADMITTED, ADMITTED._replace(limit=100, remaining=8)],
            100,
            id="the nearest to exhaustion",
        ),
    ],
)
def test_one_of_several_limits_governs(decisions: list[Decision], limit: int) -> None:
    """Result and fields speak for the same limit, whatever the order."""
    for order in (decisions, decisions[::-1]):
        context = context_of(*order)

        assert f"limit {limit}" == context.result.name
        assert str(limit) == context.headers["RateLimit-Limit"]


@pytest.mark.parametrize(
    "decisions",
    [(), (ADMITTED,), (ADMITTED, REFUSED)],
    ids=["none", "one", "two"],
)
def test_a_response_gets_the_fields_of_the_context(
    decisions: tuple[Decision, ...],
) -> None:
    """What handlers read is what the client gets."""
    outcome = outcome_of(*decisions)
    read = RateLimitContext(outcome).headers

    assert [
        (name.lower().encode(), value.encode()) for name, value in read.items()
    ] == outcome.raw_headers()


def test_the_results_are_in_the_order_of_decision() -> None:
    """Whichever governs, all results are listed as they were decided."""
    assert ["limit 10", "limit 5"] == [
        result.name for result in context_of(ADMITTED, REFUSED).results
    ]


def test_a_context_is_live() -> None:
    """What is decided later is in the context that somebody already holds."""
    outcome = Outcome()
    context = RateLimitContext(outcome)
    outcome.add_answer(answer_of(REFUSED))

    assert context.result.limited
    assert "12" == context.headers["Retry-After"]


@pytest.mark.parametrize("decisions", [(), (ADMITTED,)], ids=["none", "one"])
def test_fields_cannot_be_changed(decisions: tuple[Decision, ...]) -> None:
    """What the client is told is not decided by who reads it."""
    headers: Any = context_of(*decisions).headers

    with pytest.raises(TypeError):
        headers["RateLimit-Limit"] = "1000"


def test_a_context_shows_its_results() -> None:
    """Its repr says what was decided."""
    context = context_of(ADMITTED)

    assert f"RateLimitContext(results={context.results!r})" == repr(context)


# --- merging


OURS = [(b"ratelimit-limit", b"10"), (b"retry-after", b"1")]


@pytest.mark.parametrize(
    ("theirs", "both"),
    [
        pytest.param([], OURS, id="nothing there"),
        pytest.param(
            [(b"vary", b"Origin"), (b"vary", b"Accept")],
            [(b"vary", b"Origin"), (b"vary", b"Accept"), *OURS],
            id="other fields",
        ),
        pytest.param(
            [(b"retry-after", b"120")],
            [(b"retry-after", b"120"), (b"ratelimit-limit", b"10")],
            id="one of ours",
        ),
        pytest.param(OURS[::-1], OURS[::-1], id="all of ours"),
    ],
)
def test_fields_that_are_there_are_kept(
    theirs: list[tuple[bytes, bytes]], both: list[tuple[bytes, bytes]]
) -> None:
    """A field is written once, and the response's own wins."""
    assert both == merged(theirs, OURS)


@pytest.mark.parametrize("theirs", [[], [(b"vary", b"Origin")], [OURS[0]]])
def test_the_lists_given_are_left_alone(theirs: list[tuple[bytes, bytes]]) -> None:
    """A response that is sent again does not collect our fields, nor do we its own."""
    before, ours = list(theirs), list(OURS)

    assert theirs is not merged(theirs, ours)
    assert (before, OURS) == (theirs, ours)


def test_any_iterable_can_be_merged() -> None:
    """ASGI allows headers that can be read once only."""
    assert [(b"vary", b"Origin"), *OURS] == merged(iter([(b"vary", b"Origin")]), OURS)
