"""The token bucket: a specification in steps, and a model that it must agree with."""

from collections.abc import Iterator, Sequence
from datetime import timedelta
from fractions import Fraction
from typing import NamedTuple

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from tests.model import BucketModel
from tests.strategies import quotas
from throttled_views import Quota
from throttled_views.algorithms.bucket import Bucket
from throttled_views.results import Decision

DAY_US = 86_400_000_000
FIVE_PER_SECOND = Quota.per_second(5)  # one back every 200 ms


class Step(NamedTuple):
    """At *ms*, charge *cost*; expect the rest."""

    ms: int
    cost: int
    answer: str
    remaining: int
    reset_ms: int
    retry_ms: int | None = 0


SCENARIOS: dict[str, tuple[Quota, Sequence[Step]]] = {
    "a full burst passes and one more is refused": (
        FIVE_PER_SECOND,
        [
            Step(0, 5, "admitted", 0, reset_ms=1000),
            Step(0, 1, "refused", 0, reset_ms=1000, retry_ms=200),
        ],
    ),
    "one request comes back per interval": (
        FIVE_PER_SECOND,
        [
            Step(0, 5, "admitted", 0, reset_ms=1000),
            Step(199, 1, "refused", 0, reset_ms=801, retry_ms=1),
            Step(200, 1, "admitted", 0, reset_ms=1000),
        ],
    ),
    "a refusal is free": (
        FIVE_PER_SECOND,
        [
            Step(0, 4, "admitted", 1, reset_ms=800),
            Step(0, 2, "refused", 1, reset_ms=800, retry_ms=200),
            Step(0, 1, "admitted", 0, reset_ms=1000),
        ],
    ),
    "a cost above the capacity never passes": (
        FIVE_PER_SECOND,
        [
            Step(0, 6, "refused", 5, reset_ms=0, retry_ms=None),
            Step(0, 5, "admitted", 0, reset_ms=1000),
        ],
    ),
    "a cost of zero looks and takes nothing": (
        FIVE_PER_SECOND,
        [
            Step(0, 0, "admitted", 5, reset_ms=0),
            Step(0, 5, "admitted", 0, reset_ms=1000),
            Step(0, 0, "admitted", 0, reset_ms=1000),
        ],
    ),
    "a key that rests holds no more than the burst": (
        FIVE_PER_SECOND,
        [
            Step(0, 5, "admitted", 0, reset_ms=1000),
            Step(DAY_US // 1000, 1, "admitted", 4, reset_ms=200),
        ],
    ),
    "the burst may be smaller than the limit": (
        Quota.per_second(5, burst=1),
        [
            Step(0, 1, "admitted", 0, reset_ms=200),
            Step(100, 1, "refused", 0, reset_ms=100, retry_ms=100),
            Step(200, 1, "admitted", 0, reset_ms=200),
        ],
    ),
    "the burst may be larger than the limit": (
        Quota.per_second(5, burst=20),
        [
            Step(0, 20, "admitted", 0, reset_ms=4000),
            Step(1000, 6, "refused", 5, reset_ms=3000, retry_ms=200),
            Step(1000, 5, "admitted", 0, reset_ms=4000),
        ],
    ),
    "a clock that steps back gives nothing away": (
        FIVE_PER_SECOND,
        [
            Step(1000, 5, "admitted", 0, reset_ms=1000),
            Step(900, 1, "refused", 0, reset_ms=1000, retry_ms=200),
            Step(1100, 1, "admitted", 0, reset_ms=1000),
        ],
    ),
    "a clock that steps back hours blocks nobody for hours": (
        FIVE_PER_SECOND,
        [
            Step(8 * 3_600_000, 1, "admitted", 4, reset_ms=200),
            Step(0, 1, "refused", 0, reset_ms=1000, retry_ms=200),
            Step(200, 1, "admitted", 0, reset_ms=1000),
        ],
    ),
    "a quota of zero admits nothing": (
        Quota.per_hour(0),
        [
            Step(0, 1, "refused", 0, reset_ms=0, retry_ms=None),
            Step(0, 0, "refused", 0, reset_ms=0, retry_ms=None),
            Step(DAY_US // 1000, 1, "refused", 0, reset_ms=0, retry_ms=None),
        ],
    ),
}


def decide(
    state: int | None, now_us: int, bucket: Bucket, cost: int
) -> tuple[Decision, int]:
    """Return what is decided, and the state that it leaves."""
    limited, state = bucket.take(state, now_us, cost)
    return bucket.tell(limited, state, now_us, cost), state


def look(state: int | None, now_us: int, bucket: Bucket) -> Decision:
    """Return where the key stands."""
    return decide(state, now_us, bucket, cost=0)[0]


@pytest.mark.parametrize(("quota", "steps"), SCENARIOS.values(), ids=SCENARIOS)
def test_scenarios(quota: Quota, steps: Sequence[Step]) -> None:
    """Step by step, the bucket answers what the scenario says."""
    state = None
    for step in steps:
        decision, state = decide(state, step.ms * 1000, Bucket.of(quota), step.cost)

        assert step == Step(
            step.ms,
            step.cost,
            "refused" if decision.limited else "admitted",
            decision.remaining,
            decision.reset_us // 1000,
            None if decision.retry_us is None else decision.retry_us // 1000,
        )
        assert (quota.burst, step.ms * 1000) == (decision.limit, decision.at_us)


class Request(NamedTuple):
    """Something that arrives *gap_us* after the one before it, or before that."""

    gap_us: int
    cost: int


def gaps_us(quota: Quota) -> st.SearchStrategy[int]:
    """Draw times between requests that matter to *quota*."""
    token_us = quota.period_us // quota.limit
    full_us = quota.burst * quota.period_us // quota.limit
    return (
        st.just(0)
        | st.integers(token_us, token_us + 1)
        | st.integers(0, 2 * token_us + 2)
        | st.integers(0, 2 * full_us + 2)
    )


@st.composite
def requests(
    draw: st.DrawFn, quota: Quota, *, steps_back: bool = True
) -> list[Request]:
    """Draw requests at times that matter to *quota*, up to a cost above its burst."""
    gaps = gaps_us(quota)
    if steps_back:
        gaps |= st.integers(-DAY_US, -1) | st.integers(-10, -1)
    costs = st.integers(0, 2) | st.integers(0, quota.burst + 1) | st.just(quota.burst)
    return draw(st.lists(st.builds(Request, gaps, costs), min_size=8, max_size=30))


def delays_us() -> st.SearchStrategy[int]:
    """Draw how long a request may wait for its turn; mostly not at all, or a while."""
    return st.sampled_from([0, 1, 1_000_000, 60_000_000]) | st.integers(0, DAY_US)


@given(st.data(), quotas(), delays_us())
def test_every_answer_is_exact(
    data: st.DataObject, quota: Quota, delay_us: int
) -> None:
    """However requests arrive, the answers are those of the model in fractions."""
    bucket = Bucket.of(quota, delay_us)
    now_us, state, model = 0, bucket.settle(None, 0), BucketModel(quota, 0, delay_us)
    for gap_us, cost in data.draw(requests(quota)):
        now_us += gap_us
        model.at(now_us)

        decision, state = decide(state, now_us, bucket, cost)

        assert model.take(cost) == decision


@given(st.data(), quotas(), delays_us())
def test_a_request_is_admitted_when_it_was_told_to_come_back(
    data: st.DataObject, quota: Quota, delay_us: int
) -> None:
    """After the announced wait it passes, and a microsecond earlier it does not."""
    bucket = Bucket.of(quota, delay_us)
    now_us, state = 0, None
    for gap_us, cost in data.draw(requests(quota)):
        now_us += gap_us
        decision, state = decide(state, now_us, bucket, cost)
        if decision.limited and decision.retry_us is not None:
            then_us = now_us + decision.retry_us

            assert (True, False) == (
                bucket.take(state, then_us - 1, cost)[0],
                bucket.take(state, then_us, cost)[0],
            )


@given(st.data(), quotas())
def test_a_bucket_is_full_when_it_was_told_to_be(
    data: st.DataObject, quota: Quota
) -> None:
    """After the announced reset all requests are there, a microsecond earlier not."""
    bucket = Bucket.of(quota)
    now_us, state = 0, None
    for gap_us, cost in data.draw(requests(quota)):
        now_us += gap_us
        decision, state = decide(state, now_us, bucket, cost)
        if decision.reset_us:
            then_us = now_us + decision.reset_us

            assert (True, False) == (
                bucket.take(state, then_us - 1, quota.burst)[0],
                bucket.take(state, then_us, quota.burst)[0],
            )


@given(st.data(), quotas())
def test_no_more_pass_than_a_burst_and_what_came_back(
    data: st.DataObject, quota: Quota
) -> None:
    """From the first request on, what is admitted never passes burst and refill."""
    now_us, state, admitted = 0, None, 0
    for gap_us, cost in data.draw(requests(quota, steps_back=False)):
        now_us += gap_us
        limited, state = Bucket.of(quota).take(state, now_us, cost)
        admitted += 0 if limited else cost

        assert admitted <= quota.burst + now_us * Fraction(quota.limit, quota.period_us)


def token_bucket(quota: Quota, history: Sequence[Request]) -> Iterator[bool]:
    """Tell what our bucket refuses."""
    now_us, state = 0, None
    for gap_us, cost in history:
        now_us += gap_us
        limited, state = Bucket.of(quota).take(state, now_us, cost)
        yield limited


def gcra(quota: Quota, history: Sequence[Request]) -> Iterator[bool]:
    """Tell what GCRA refuses, as ITU-T I.371 has it: by theoretical arrival time."""
    interval_us = Fraction(quota.period_us, quota.limit)
    now_us, tat_us = 0, Fraction(0)
    for gap_us, cost in history:
        now_us += gap_us
        after_us = max(tat_us, Fraction(now_us)) + cost * interval_us
        limited = after_us - quota.burst * interval_us > now_us
        if not limited:
            tat_us = after_us
        yield limited


def leaky_bucket(quota: Quota, history: Sequence[Request]) -> Iterator[bool]:
    """Tell what a leaky bucket refuses that is used as a meter: by what is in it."""
    leak_per_us = Fraction(quota.limit, quota.period_us)
    water = Fraction(0)
    for gap_us, cost in history:
        water = max(Fraction(0), water - gap_us * leak_per_us)
        limited = water + cost > quota.burst
        if not limited:
            water += cost
        yield limited


@given(st.data(), quotas())
def test_three_algorithms_are_one(data: st.DataObject, quota: Quota) -> None:
    """GCRA and the leaky bucket refuse exactly what our token bucket refuses."""
    history = data.draw(requests(quota, steps_back=False))
    refused = list(token_bucket(quota, history))

    assert list(gcra(quota, history)) == refused
    assert list(leaky_bucket(quota, history)) == refused


@given(quotas())
def test_a_token_takes_exactly_its_share_of_the_period(quota: Quota) -> None:
    """Ticks are chosen so that nothing is rounded: 7 per minute is 7 per minute."""
    bucket = Bucket.of(quota)

    assert Fraction(quota.period_us, quota.limit) == Fraction(
        bucket.token, bucket.scale
    )
    assert quota.burst == bucket.capacity
    assert quota.burst * bucket.token == bucket.full


class Held(NamedTuple):
    """A request that arrives when the key is held to *quota*, and may wait."""

    gap_us: int
    cost: int
    quota: Quota
    delay_us: int

    @property
    def bucket(self) -> Bucket:
        """What counts it."""
        return Bucket.of(self.quota, self.delay_us)


held = quotas() | st.just(Quota.per_second(0)) | st.just(Quota(5, timedelta(seconds=5)))


@given(
    st.lists(
        st.builds(
            Held,
            st.integers(0, 10) | st.integers(0, DAY_US) | st.integers(-DAY_US, -1),
            st.integers(0, 3) | st.integers(0, 10**6),
            st.shared(held, key="first") | held,
            st.shared(delays_us(), key="delay") | delays_us(),
        ),
        min_size=5,
        max_size=20,
    )
)
def test_a_changed_quota_keeps_whole_tokens(history: list[Held]) -> None:
    """What a key holds, or owes, stays when its quota changes, as far as it can."""
    first, now_us = history[0], 0
    before = first.bucket
    state, model = before.settle(None, 0), BucketModel(first.quota, 0, first.delay_us)
    for held_by in history:
        gap_us, cost, quota, delay_us = held_by
        now_us += gap_us
        model.at(now_us)
        model.hold_to(quota, delay_us)

        state = held_by.bucket.rebase(before.settle(state, now_us), now_us, before)
        before = held_by.bucket
        decision, state = decide(state, now_us, before, cost)

        assert model.take(cost) == decision


@given(quotas(), quotas(), st.integers(0, DAY_US))
@example(Quota(10, 60, burst=10), Quota(10, 60, burst=100), 59_000_000)
@example(Quota(10, 60, burst=10), Quota(10, 60, burst=100), 60_000_000)
def test_a_changed_quota_gives_nothing_away(
    old: Quota, new: Quota, rest_us: int
) -> None:
    """No change of quota leaves a key that spent something with more than it had."""
    state = Bucket.of(old).take(None, 0, old.burst)[1]
    had = look(state, rest_us, Bucket.of(old))

    state = Bucket.of(new).rebase(state, rest_us, Bucket.of(old))
    has = look(state, rest_us, Bucket.of(new))

    assert has.remaining <= had.remaining or had.reset_us == 0


@given(st.data(), quotas(), delays_us())
def test_a_refund_gives_back_what_fits(
    data: st.DataObject, quota: Quota, delay_us: int
) -> None:
    """Refunded tokens are there at once, but never more than the capacity."""
    bucket = Bucket.of(quota, delay_us)
    now_us, state, model = 0, bucket.settle(None, 0), BucketModel(quota, 0, delay_us)
    for gap_us, cost in data.draw(requests(quota)):
        now_us += gap_us
        model.at(now_us)
        decision, state = decide(state, now_us, bucket, cost)

        assert model.take(cost) == decision

        back = data.draw(st.integers(0, quota.burst + 1))
        model.give_back(back)
        state = bucket.refund(state, now_us, back, now_us)

        assert model.take(0) == look(state, now_us, bucket)


@given(st.data(), quotas())
def test_a_charge_and_its_refund_change_nothing(
    data: st.DataObject, quota: Quota
) -> None:
    """What is refunded at once was never charged."""
    bucket = Bucket.of(quota)
    spent, cost = data.draw(st.tuples(*[st.integers(0, quota.burst)] * 2))
    before = bucket.take(None, 0, spent)[1]

    limited, after = bucket.take(before, 0, cost)
    assume(not limited)

    assert before == bucket.refund(after, 0, cost, 0)
