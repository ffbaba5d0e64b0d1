"""The sliding log: a specification in steps; what it shares is in test_windows.py."""

from collections.abc import Sequence
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.strategies import quotas
from tests.window_models import Step, admitted, answers, requests
from throttled_views import Quota
from throttled_views.algorithms.log import Log, SlidingLog

FIVE_PER_SECOND = Quota.per_second(5)
HOUR_MS = 3_600_000

SCENARIOS: dict[str, tuple[Quota, Sequence[Step]]] = {
    "the limit passes and one more is refused": (
        FIVE_PER_SECOND,
        [
            Step(0, 5, "admitted", 0, reset_ms=1000),
            Step(0, 1, "refused", 0, reset_ms=1000, retry_ms=1000),
        ],
    ),
    "a hit counts for one period, less than a moment": (
        FIVE_PER_SECOND,
        [
            Step(300, 5, "admitted", 0, reset_ms=1000),
            Step(1299, 1, "refused", 0, reset_ms=1, retry_ms=1),
            Step(1300, 1, "admitted", 4, reset_ms=1000),
        ],
    ),
    "a large request waits for as many hits as it needs": (
        FIVE_PER_SECOND,
        [
            Step(0, 1, "admitted", 4, reset_ms=1000),
            Step(100, 2, "admitted", 2, reset_ms=1000),
            Step(200, 2, "admitted", 0, reset_ms=1000),
            Step(300, 1, "refused", 0, reset_ms=900, retry_ms=700),
            Step(300, 2, "refused", 0, reset_ms=900, retry_ms=800),
            Step(300, 4, "refused", 0, reset_ms=900, retry_ms=900),
            Step(1100, 3, "admitted", 0, reset_ms=1000),
        ],
    ),
    "case 8: the wait is until the oldest hit leaves": (
        Quota(10, timedelta(seconds=10)),
        [
            *(
                Step(second * 1000, 1, "admitted", 9 - second, reset_ms=10_000)
                for second in range(10)
            ),
            Step(9500, 1, "refused", 0, reset_ms=9500, retry_ms=500),
            Step(10_000, 1, "admitted", 0, reset_ms=10_000),
        ],
    ),
    "case 10: around an edge the limit holds": (
        Quota.per_minute(60),
        [
            Step(59_900, 60, "admitted", 0, reset_ms=60_000),
            Step(60_100, 1, "refused", 0, reset_ms=59_800, retry_ms=59_800),
        ],
    ),
    "case 13: the state lives until its newest hit leaves": (
        Quota.per_hour(10),
        [
            Step(0, 1, "admitted", 9, reset_ms=HOUR_MS),
            Step(3_540_000, 8, "admitted", 1, reset_ms=HOUR_MS),
            Step(3_660_000, 2, "admitted", 0, reset_ms=HOUR_MS),
            Step(3_660_000, 1, "refused", 0, reset_ms=HOUR_MS, retry_ms=3_480_000),
        ],
    ),
    "case 14: stale hits are dropped before anything is counted": (
        Quota.per_second(1),
        [
            Step(0, 1, "admitted", 0, reset_ms=1000),
            Step(1200, 1, "admitted", 0, reset_ms=1000),
            Step(2400, 1, "admitted", 0, reset_ms=1000),
            Step(3600, 1, "admitted", 0, reset_ms=1000),
        ],
    ),
    "case 19: a clock that steps back hours blocks nobody for hours": (
        FIVE_PER_SECOND,
        [
            Step(8 * HOUR_MS, 5, "admitted", 0, reset_ms=1000),
            Step(200, 1, "refused", 0, reset_ms=1000, retry_ms=1000),
            Step(1200, 1, "admitted", 4, reset_ms=1000),
        ],
    ),
    "a clock that steps back moves only what is later": (
        FIVE_PER_SECOND,
        [
            Step(0, 1, "admitted", 4, reset_ms=1000),
            Step(300, 1, "admitted", 3, reset_ms=1000),
            Step(400, 2, "admitted", 1, reset_ms=1000),
            Step(300, 2, "refused", 1, reset_ms=1000, retry_ms=700),
            Step(1000, 2, "admitted", 0, reset_ms=1000),
        ],
    ),
    "case 23: a cost above the limit never passes": (
        Quota(3, timedelta(seconds=2)),
        [
            Step(0, 4, "refused", 3, reset_ms=0, retry_ms=None),
            Step(0, 0, "admitted", 3, reset_ms=0),
            Step(0, 3, "admitted", 0, reset_ms=2000),
            Step(0, 0, "admitted", 0, reset_ms=2000),
        ],
    ),
    "case 25: a quota of zero admits nothing": (
        Quota.per_hour(0),
        [
            Step(0, 1, "refused", 0, reset_ms=0, retry_ms=None),
            Step(0, 0, "refused", 0, reset_ms=0, retry_ms=None),
            Step(2 * HOUR_MS, 1, "refused", 0, reset_ms=0, retry_ms=None),
        ],
    ),
    "case 100: the wait is not that of the newest hit": (
        Quota.per_minute(5),
        [
            *(
                Step(nth * 10_000, 1, "admitted", 4 - nth, reset_ms=60_000)
                for nth in range(5)
            ),
            Step(50_000, 1, "refused", 0, reset_ms=50_000, retry_ms=10_000),
        ],
    ),
}


@pytest.mark.parametrize(("quota", "steps"), SCENARIOS.values(), ids=SCENARIOS)
def test_scenarios(quota: Quota, steps: Sequence[Step]) -> None:
    """Step by step, the log answers what the scenario says."""
    assert steps == answers(SlidingLog.of(quota), steps)


def test_case_7_refusals_are_not_counted() -> None:
    """A client that is slightly too fast gets ten requests in every minute."""
    passed = admitted(
        SlidingLog.of(Quota.per_minute(10)), [5000 * nth for nth in range(120)]
    )

    assert [10] * 10 == [
        sum(ms // 60_000 == minute for ms in passed) for minute in range(10)
    ]


def test_case_91_refused_requests_take_no_memory() -> None:
    """A full log stays what it is, however often it refuses."""
    kernel = SlidingLog.of(Quota.per_day(50))
    full = None
    for now_us in range(50):
        _, full = kernel.take(full, now_us, 1)

    assert full is not None
    assert 50 == len(full.hits)
    assert all(kernel.take(full, 50 + nth, 1)[1] is full for nth in range(1000))


@given(st.data(), quotas())
def test_a_log_is_what_it_says(data: st.DataObject, quota: Quota) -> None:
    """Hits are in order, one for a microsecond, none empty, and add up to the count."""
    kernel, state = SlidingLog.of(quota), None
    for now_us, cost in data.draw(requests(quota)):
        _, state = kernel.take(state, now_us, cost)
        if data.draw(st.booleans()):
            state = kernel.refund(state, now_us, cost, now_us)
        times_us = [at_us for at_us, _ in state.hits]

        assert sorted(set(times_us)) == times_us
        assert all(count > 0 for _, count in state.hits)
        assert state.used == sum(count for _, count in state.hits)
        assert len(state.hits) <= state.used <= quota.limit


@given(st.data(), quotas())
def test_no_span_of_one_period_admits_more_than_the_limit(
    data: st.DataObject, quota: Quota
) -> None:
    """From any instant on, no more passes in one period than the quota has for it."""
    kernel, state, hits = SlidingLog.of(quota), None, list[tuple[int, int]]()
    for now_us, cost in data.draw(requests(quota, steps_back=False)):
        limited, state = kernel.take(state, now_us, cost)
        hits.append((now_us, 0 if limited else cost))

    for start_us, _ in hits:
        span_us = range(start_us, start_us + quota.period_us)
        assert sum(count for at_us, count in hits if at_us in span_us) <= quota.limit


def test_a_refund_takes_from_the_hit_that_was_charged() -> None:
    """What comes back has the time it was charged at, and a hit of nothing goes."""
    kernel = SlidingLog.of(FIVE_PER_SECOND)
    state = Log(4, ((10, 1), (20, 3)))

    assert Log(2, ((10, 1), (20, 1))) == kernel.refund(state, 30, 2, 20)
    assert Log(1, ((10, 1),)) == kernel.refund(state, 30, 9, 20)
    assert state == kernel.refund(state, 30, 1, 15)
    assert Log(3, ((20, 3),)) == kernel.refund(state, 1_000_010, 1, 10)


def test_a_changed_quota_keeps_the_times_of_hits() -> None:
    """Hits count on by the new period, if they counted until now by the old one."""
    hour, second = SlidingLog.of(Quota.per_hour(5)), SlidingLog.of(FIVE_PER_SECOND)
    state = Log(3, ((0, 1), (1_500_000, 2)))

    assert Log(2, ((1_500_000, 2),)) == second.rebase(state, 2_000_000, hour)
    assert Log(2, ((1_500_000, 2),)) == hour.rebase(state, 2_000_000, second)


def test_a_log_is_not_one_number() -> None:
    """A log is kept as it is: no number is below its end, and none becomes a log."""
    kernel, state = SlidingLog.of(FIVE_PER_SECOND), Log(1, ((10, 1),))

    assert state is kernel.pack(state)
    assert 0 == kernel.whole_below(10**15)
    with pytest.raises(TypeError, match="7 is no packed log"):
        kernel.unpack(7)
