"""What a store is asked and what it answers."""

import copy
import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from throttled_views import (
    Algorithm,
    Charge,
    Quota,
    RateLimitResult,
    RateLimitState,
    Receipt,
)
from throttled_views.results import (
    Decision,
    checked_cost,
    decision_of,
    result_of,
    urgency,
)

QUOTA = Quota.per_minute(5)
CHARGE = Charge("alice", QUOTA)
STATE = RateLimitState(limit=5, remaining=3, reset_after=24.0, retry_after=0.0)
RESULT = RateLimitResult(
    limited=False, state=STATE, name="burst", receipts=(Receipt(CHARGE, 7),)
)

ADMITTED = Decision(
    limited=False, limit=10, remaining=5, reset_us=30_000_000, retry_us=0, at_us=0
)
REFUSED = Decision(
    limited=True,
    limit=10,
    remaining=0,
    reset_us=60_000_000,
    retry_us=6_000_000,
    at_us=0,
)


@pytest.mark.parametrize("limited", [True, False])
def test_a_result_is_neither_true_nor_false(*, limited: bool) -> None:
    """A bare `if result:` raises, and the error says what to write."""
    result = RateLimitResult(limited, STATE)

    with pytest.raises(TypeError, match=r"Write `result\.limited`"):
        bool(result)


@pytest.mark.parametrize(
    ("value", "field"),
    [
        pytest.param(RESULT, "limited", id="result"),
        pytest.param(STATE, "remaining", id="state"),
        pytest.param(CHARGE, "cost", id="charge"),
        pytest.param(Receipt(CHARGE, 7), "at_us", id="receipt"),
    ],
)
class TestValues:
    """All of them are values."""

    def test_they_cannot_be_changed(self, value: object, field: str) -> None:
        """Setting a field raises."""
        before = copy.copy(value)

        with pytest.raises(AttributeError):
            setattr(value, field, 0)

        assert before == value

    def test_they_take_no_other_attributes(self, value: object, field: str) -> None:
        """A misspelt field is an error and not a new attribute."""
        with pytest.raises((AttributeError, TypeError)):
            setattr(value, f"{field}s", 0)

    def test_they_survive_being_copied(self, value: object, field: str) -> None:
        """Copies and pickles are equal to the original, and hash like it."""
        pickled = pickle.loads(pickle.dumps(value))  # noqa: S301

        assert {value} == {copy.deepcopy(value), pickled}


def test_a_charge_is_one_token_unless_said_otherwise() -> None:
    """A charge of a key and a quota takes one unit from a token bucket."""
    assert Charge("alice", QUOTA, Algorithm.TOKEN_BUCKET, cost=1) == CHARGE


def test_the_receipts_of_a_result_are_not_shown() -> None:
    """The text of a result has what it says, and not the keys it was charged to."""
    assert "alice" not in repr(RESULT)
    assert "name='burst'" in repr(RESULT)


@pytest.mark.parametrize("cost", [0, 1, 10**30])
def test_a_cost_is_any_whole_number_from_zero(cost: int) -> None:
    """Nothing, one unit and more than any capacity can all be charged."""
    assert cost == checked_cost(cost)
    assert cost == Charge("alice", QUOTA, cost=cost).cost


@pytest.mark.parametrize("cost", [-1, True, False, 1.0, "1", None])
def test_a_cost_that_is_no_whole_number_is_refused(cost: object) -> None:
    """A negative cost would be a refund, a bool a mistake; both raise."""
    unchecked: Any = Charge

    with pytest.raises(ValueError, match=f"0 or more, not {cost!r}"):
        unchecked("alice", QUOTA, cost=cost)


def test_a_decision_becomes_a_result_in_seconds() -> None:
    """Users see seconds, the name of the limit and what a refund needs."""
    decision = Decision(
        limited=False, limit=5, remaining=3, reset_us=24_000_000, retry_us=0, at_us=7
    )

    assert RESULT == result_of(decision, "burst", (Receipt(CHARGE, 7),))


@pytest.mark.parametrize(
    ("retry_us", "retry_after"),
    [
        pytest.param(0, 0.0, id="now"),
        pytest.param(400_000, 0.4, id="part of a second"),
        pytest.param(None, None, id="never"),
    ],
)
def test_a_wait_keeps_its_meaning(
    retry_us: int | None, retry_after: float | None
) -> None:
    """Zero is now, None is never, and parts of a second are kept."""
    decision = REFUSED._replace(retry_us=retry_us)

    assert retry_after == result_of(decision).state.retry_after


@given(
    limited=st.booleans(),
    remaining=st.integers(0, 10**12),
    reset_us=st.integers(0, 10**15),
    retry_us=st.none() | st.integers(0, 10**15),
)
def test_a_result_is_good_for_header_fields(
    *, limited: bool, remaining: int, reset_us: int, retry_us: int | None
) -> None:
    """What a store answered in seconds gives the same whole seconds as the decision."""
    decision = Decision(limited, 10**12, remaining, reset_us, retry_us, 0)

    again = decision_of(result_of(decision))

    assert decision[:3] == again[:3]
    assert ceiling_s(decision.reset_us) == ceiling_s(again.reset_us)
    assert ceiling_s(decision.retry_us) == ceiling_s(again.retry_us)


def ceiling_s(microseconds: int | None) -> int | None:
    """Return *microseconds* in seconds, rounded up."""
    return None if microseconds is None else -(-microseconds // 1_000_000)


@pytest.mark.parametrize(
    ("told", "other"),
    [
        pytest.param(REFUSED, ADMITTED, id="a refusal"),
        pytest.param(
            REFUSED,
            ADMITTED._replace(remaining=0),
            id="a refusal, though both are empty",
        ),
        pytest.param(
            REFUSED._replace(retry_us=6_000_001), REFUSED, id="the longest wait"
        ),
        pytest.param(
            REFUSED._replace(retry_us=None),
            REFUSED._replace(retry_us=10**15),
            id="a wait without end",
        ),
        pytest.param(
            ADMITTED._replace(remaining=4), ADMITTED, id="the nearest to exhaustion"
        ),
        pytest.param(
            ADMITTED._replace(reset_us=30_000_001), ADMITTED, id="the slowest to refill"
        ),
    ],
)
def test_a_client_is_told_about_the_most_urgent_limit(
    told: Decision, other: Decision
) -> None:
    """Of two limits, the one that matters more comes first, whatever their order."""
    assert told == min(told, other, key=urgency)
    assert told == min(other, told, key=urgency)
