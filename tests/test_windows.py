"""All that counts in windows: specifications in steps, and models to agree with."""

from collections.abc import Sequence
from datetime import timedelta
from typing import NamedTuple

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.strategies import CENTURY_US, MONTH_US, MOST_UNITS, quotas
from tests.window_models import (
    FixedWindowModel,
    Request,
    SlidingLogModel,
    SlidingWindowModel,
    Step,
    WindowModel,
    admitted,
    answers,
    requests,
)
from throttled_views import Quota
from throttled_views.algorithms.base import AnyKernel
from throttled_views.algorithms.log import SlidingLog
from throttled_views.algorithms.windows import (
    FixedWindow,
    SlidingWindow,
    Window,
    Windows,
)
from throttled_views.results import Decision

FIVE_PER_SECOND = Quota.per_second(5)
HOUR_MS = 3_600_000


class Kind(NamedTuple):
    """An algorithm, and what it must agree with."""

    kernel: type[AnyKernel]
    model: type[WindowModel]


KINDS = {
    "fixed window": Kind(FixedWindow, FixedWindowModel),
    "sliding window": Kind(SlidingWindow, SlidingWindowModel),
    "sliding log": Kind(SlidingLog, SlidingLogModel),
}
each_kind = pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)

FIXED: dict[str, tuple[Quota, Sequence[Step]]] = {
    "a full window passes and one more is refused": (
        FIVE_PER_SECOND,
        [
            Step(0, 5, "admitted", 0, reset_ms=1000),
            Step(0, 1, "refused", 0, reset_ms=1000, retry_ms=1000),
        ],
    ),
    "windows are aligned, wherever the first request falls": (
        FIVE_PER_SECOND,
        [
            Step(1700, 5, "admitted", 0, reset_ms=300),
            Step(1999, 1, "refused", 0, reset_ms=1, retry_ms=1),
            Step(2000, 1, "admitted", 4, reset_ms=1000),
        ],
    ),
    "case 10: around an edge twice the limit passes, and no more": (
        Quota.per_minute(60),
        [
            Step(59_900, 60, "admitted", 0, reset_ms=100),
            Step(60_100, 60, "admitted", 0, reset_ms=59_900),
            Step(60_100, 1, "refused", 0, reset_ms=59_900, retry_ms=59_900),
        ],
    ),
    "case 13: a window forgets the one before": (
        Quota.per_hour(10),
        [
            Step(0, 1, "admitted", 9, reset_ms=HOUR_MS),
            Step(3_540_000, 8, "admitted", 1, reset_ms=60_000),
            Step(3_660_000, 9, "admitted", 1, reset_ms=3_540_000),
        ],
    ),
    "case 17: a request is counted in the window it is decided in": (
        FIVE_PER_SECOND,
        [
            Step(0, 5, "admitted", 0, reset_ms=1000),
            Step(999, 1, "refused", 0, reset_ms=1, retry_ms=1),
            Step(1001, 1, "admitted", 4, reset_ms=999),
            Step(1001, 4, "admitted", 0, reset_ms=999),
        ],
    ),
    "case 19: a clock that steps back hours blocks nobody for hours": (
        FIVE_PER_SECOND,
        [
            Step(8 * HOUR_MS, 5, "admitted", 0, reset_ms=1000),
            Step(200, 1, "refused", 0, reset_ms=800, retry_ms=800),
            Step(1000, 1, "admitted", 4, reset_ms=1000),
        ],
    ),
    "a clock that steps back in a window gives nothing away": (
        FIVE_PER_SECOND,
        [
            Step(900, 4, "admitted", 1, reset_ms=100),
            Step(100, 2, "refused", 1, reset_ms=900, retry_ms=900),
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
}

SLIDING: dict[str, tuple[Quota, Sequence[Step]]] = {
    "a full window takes two to be forgotten": (
        FIVE_PER_SECOND,
        [
            Step(0, 5, "admitted", 0, reset_ms=2000),
            Step(0, 1, "refused", 0, reset_ms=2000, retry_ms=1200),
            Step(1199, 1, "refused", 0, reset_ms=801, retry_ms=1),
            Step(1200, 1, "admitted", 0, reset_ms=1800),
            Step(2999, 0, "admitted", 4, reset_ms=1),
            Step(3000, 0, "admitted", 5, reset_ms=0),
        ],
    ),
    "what is left of the window before is not rounded": (
        Quota(3, timedelta(seconds=1)),
        [
            Step(0, 2, "admitted", 1, reset_ms=2000),
            Step(1001, 2, "refused", 1, reset_ms=999, retry_ms=499),
            Step(1500, 2, "admitted", 0, reset_ms=1500),
        ],
    ),
    "the whole limit passes when the window before weighs nothing": (
        FIVE_PER_SECOND,
        [
            Step(0, 1, "admitted", 4, reset_ms=2000),
            Step(1500, 5, "refused", 4, reset_ms=500, retry_ms=500),
            Step(2000, 5, "admitted", 0, reset_ms=2000),
            Step(2000, 5, "refused", 0, reset_ms=2000, retry_ms=2000),
        ],
    ),
    "case 10: around an edge the limit holds": (
        Quota.per_minute(60),
        [
            Step(59_900, 60, "admitted", 0, reset_ms=60_100),
            Step(60_100, 1, "refused", 0, reset_ms=59_900, retry_ms=900),
        ],
    ),
    "case 11: what remains is what would be admitted": (
        Quota.per_minute(100),
        [
            Step(0, 50, "admitted", 50, reset_ms=120_000),
            Step(66_000, 10, "admitted", 45, reset_ms=114_000),
            Step(66_000, 46, "refused", 45, reset_ms=114_000, retry_ms=1200),
            Step(66_000, 45, "admitted", 0, reset_ms=114_000),
            Step(66_000, 1, "refused", 0, reset_ms=114_000, retry_ms=1200),
        ],
    ),
    "case 13: a hit counts for two windows": (
        Quota.per_hour(10),
        [
            Step(0, 1, "admitted", 9, reset_ms=2 * HOUR_MS),
            Step(3_540_000, 8, "admitted", 1, reset_ms=3_660_000),
            Step(3_660_000, 1, "admitted", 0, reset_ms=7_140_000),
            Step(3_660_000, 1, "refused", 0, reset_ms=7_140_000, retry_ms=340_000),
        ],
    ),
    "case 19: a clock that steps back hours blocks nobody for hours": (
        FIVE_PER_SECOND,
        [
            Step(8 * HOUR_MS, 5, "admitted", 0, reset_ms=2000),
            Step(200, 1, "refused", 0, reset_ms=1800, retry_ms=1000),
            Step(1200, 1, "admitted", 0, reset_ms=1800),
        ],
    ),
    "a clock that steps back keeps both windows": (
        FIVE_PER_SECOND,
        [
            Step(1000, 5, "admitted", 0, reset_ms=2000),
            Step(2800, 4, "admitted", 0, reset_ms=1200),
            Step(900, 1, "refused", 0, reset_ms=1100, retry_ms=100),
            Step(800, 0, "admitted", 0, reset_ms=1200),
            Step(100, 1, "refused", 0, reset_ms=1900, retry_ms=900),
        ],
    ),
    "case 23: a cost above the limit never passes": (
        Quota(3, timedelta(seconds=2)),
        [
            Step(0, 4, "refused", 3, reset_ms=0, retry_ms=None),
            Step(0, 0, "admitted", 3, reset_ms=0),
            Step(0, 3, "admitted", 0, reset_ms=4000),
            Step(0, 0, "admitted", 0, reset_ms=4000),
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
}


def decide(
    kernel: AnyKernel, state: object, request: Request
) -> tuple[Decision, object]:
    """Return what is decided, and the state that it leaves."""
    at_us, cost = request
    limited, state = kernel.take(state, at_us, cost)
    return kernel.tell(limited, state, at_us, cost), state


@pytest.mark.parametrize(("quota", "steps"), FIXED.values(), ids=FIXED)
def test_fixed_window(quota: Quota, steps: Sequence[Step]) -> None:
    """Step by step, a fixed window answers what the scenario says."""
    assert steps == answers(FixedWindow.of(quota), steps)


@pytest.mark.parametrize(("quota", "steps"), SLIDING.values(), ids=SLIDING)
def test_sliding_window(quota: Quota, steps: Sequence[Step]) -> None:
    """Step by step, a sliding window answers what the scenario says."""
    assert steps == answers(SlidingWindow.of(quota), steps)


@pytest.mark.parametrize(
    ("kind", "expected"), [("fixed window", 100), ("sliding window", 91)]
)
def test_case_7_refusals_are_not_counted(kind: str, expected: int) -> None:
    """A client that is slightly too fast for ten minutes gets its full rate."""
    kernel = KINDS[kind].kernel.of(Quota.per_minute(10))

    assert expected == len(admitted(kernel, range(0, 600_000, 5000)))


def test_case_16_each_window_admits_its_limit() -> None:
    """At 150 requests a second, the first 100 of each second pass."""
    arrivals = [1000 * at // 150 for at in range(20 * 150)]

    passed = admitted(FixedWindow.of(Quota.per_second(100)), arrivals)

    assert [100] * 20 == [
        sum(ms // 1000 == second for ms in passed) for second in range(20)
    ]


@each_kind
def test_case_22_a_quota_of_many_in_a_microsecond_holds(kind: Kind) -> None:
    """When the clock stands still, no more than the limit passes."""
    kernel = kind.kernel.of(Quota(10, timedelta(microseconds=1)))

    assert 10 == len(admitted(kernel, [0] * 11))


@each_kind
def test_case_26_a_smaller_quota_tells_when_to_come_back(kind: Kind) -> None:
    """Over a smaller limit nothing remains, the wait is exact, and a peek passes."""
    old, new = (kind.kernel.of(Quota.per_day(limit)) for limit in (2000, 200))
    now_us = 3_600_000_000
    _, state = old.take(None, now_us, 1500)

    state = new.rebase(state, now_us, old)
    limited, state = new.take(state, now_us, 1)
    decision = new.tell(limited, state, now_us, 1)

    assert (True, 0) == (limited, decision.remaining)
    assert decision.retry_us is not None
    then_us = now_us + decision.retry_us
    assert new.take(state, then_us - 1, 1)[0]
    assert not new.take(state, then_us, 1)[0]
    assert not new.take(state, now_us, 0)[0]
    raised = old.rebase(state, now_us, new)
    assert 500 == decide(old, raised, Request(now_us, 0))[0].remaining


@each_kind
@given(data=st.data(), quota=quotas())
def test_every_answer_is_exact(kind: Kind, data: st.DataObject, quota: Quota) -> None:
    """However requests arrive, the answers are those of a list of all hits."""
    kernel, model, state = kind.kernel.of(quota), kind.model(quota, 0), None
    for request in data.draw(requests(quota)):
        model.at(request.at_us)

        decision, state = decide(kernel, state, request)

        assert model.take(request.cost) == decision


@each_kind
@given(data=st.data(), quota=quotas())
def test_a_request_is_admitted_when_it_was_told_to_come_back(
    kind: Kind, data: st.DataObject, quota: Quota
) -> None:
    """After the announced wait it passes, and a microsecond earlier it does not."""
    kernel, state = kind.kernel.of(quota), None
    for at_us, cost in data.draw(requests(quota)):
        decision, state = decide(kernel, state, Request(at_us, cost))
        if decision.limited and decision.retry_us is not None:
            then_us = at_us + decision.retry_us

            assert (True, False) == (
                kernel.take(state, then_us - 1, cost)[0],
                kernel.take(state, then_us, cost)[0],
            )


@each_kind
@given(data=st.data(), quota=quotas())
def test_a_key_is_whole_when_it_was_told_to_be(
    kind: Kind, data: st.DataObject, quota: Quota
) -> None:
    """After the announced reset it equals a fresh one, a microsecond earlier not."""
    kernel, state = kind.kernel.of(quota), None
    for request in data.draw(requests(quota)):
        decision, state = decide(kernel, state, request)
        whole_us = request.at_us + decision.reset_us

        assert kernel.settle(None, whole_us) == kernel.settle(state, whole_us)
        assert (whole_us if decision.reset_us else 0) == kernel.whole_at(state)
        if decision.reset_us:
            assert kernel.take(state, whole_us - 1, quota.limit)[0]


@pytest.mark.parametrize("kind", ["fixed window", "sliding window"])
@given(data=st.data(), quota=quotas())
def test_no_window_admits_more_than_the_limit(
    kind: str, data: st.DataObject, quota: Quota
) -> None:
    """In no aligned window passes more than the quota has for one."""
    kernel, state = KINDS[kind].kernel.of(quota), None
    passed: dict[int, int] = {}
    for at_us, cost in data.draw(requests(quota, steps_back=False)):
        limited, state = kernel.take(state, at_us, cost)
        window = at_us // quota.period_us
        passed[window] = passed.get(window, 0) + (0 if limited else cost)

        assert passed[window] <= quota.limit


@each_kind
@given(data=st.data(), quota=quotas())
def test_a_refusal_changes_nothing(
    kind: Kind, data: st.DataObject, quota: Quota
) -> None:
    """Refused requests and those that cost nothing leave the state as it was."""
    kernel, state = kind.kernel.of(quota), None
    for at_us, cost in data.draw(requests(quota)):
        before = kernel.settle(state, at_us)
        limited, state = kernel.take(state, at_us, cost)
        if limited or not cost:
            assert before == state


@each_kind
@given(data=st.data(), quota=quotas())
def test_a_refund_gives_back_what_was_charged_then(
    kind: Kind, data: st.DataObject, quota: Quota
) -> None:
    """What still counts comes back, but never more than is charged."""
    kernel, model, state = kind.kernel.of(quota), kind.model(quota, 0), None
    history = data.draw(requests(quota))
    for request in history:
        model.at(request.at_us)
        decision, state = decide(kernel, state, request)

        assert model.take(request.cost) == decision

        charged_us, back = data.draw(st.sampled_from(history))
        now_us = request.at_us + data.draw(st.integers(0, quota.period_us) | st.just(0))
        model.at(now_us)
        model.give_back(back, charged_us)
        state = kernel.refund(state, now_us, back, charged_us)

        assert model.take(0) == decide(kernel, state, Request(now_us, cost=0))[0]


@each_kind
@given(data=st.data(), quota=quotas())
def test_a_charge_and_its_refund_change_nothing(
    kind: Kind, data: st.DataObject, quota: Quota
) -> None:
    """What is refunded at once was never charged."""
    kernel, state, now_us = kind.kernel.of(quota), None, 0
    for now_us, cost in data.draw(requests(quota)):
        _, state = kernel.take(state, now_us, cost)
    look, state = decide(kernel, state, Request(now_us, 0))
    cost = data.draw(st.integers(0, look.remaining))

    limited, after = kernel.take(state, now_us, cost)

    assert not limited
    assert state == kernel.refund(after, now_us, cost, now_us)


class Held(NamedTuple):
    """A request that arrives when the key is held to *quota*."""

    gap_us: int
    cost: int
    quota: Quota


held = quotas() | st.sampled_from(
    [Quota.per_second(0), Quota.per_second(5), Quota(7, 5)]
)
histories_of_quotas = st.lists(
    st.builds(
        Held,
        st.integers(0, 10) | st.integers(0, MONTH_US) | st.integers(-MONTH_US, -1),
        st.integers(0, 3) | st.integers(0, 10**6),
        st.shared(held, key="first") | held,
    ),
    min_size=5,
    max_size=15,
)


def fullness(decision: Decision) -> tuple[bool, int]:
    """Return how full a key is that *decision* tells of."""
    remaining, limit = decision.remaining, decision.limit
    return remaining >= 1, (remaining << 32) // limit if limit else 0


@each_kind
@given(history=histories_of_quotas)
def test_a_changed_quota_keeps_what_was_spent(kind: Kind, history: list[Held]) -> None:
    """What a key has spent stays spent when its quota changes, and is told exactly."""
    quota, now_us, state = history[0].quota, 0, None
    old, model = kind.kernel.of(quota), kind.model(quota, 0)
    for gap_us, cost, quota in history:
        now_us += gap_us
        model.at(now_us)
        model.hold_to(quota)
        new = kind.kernel.of(quota)

        state = new.rebase(old.settle(state, now_us), now_us, old)
        decision, state = decide(new, state, Request(now_us, cost))
        old = new

        assert model.take(cost) == decision
        assert fullness(decision) == new.fullness(state, now_us)


@each_kind
@given(data=st.data(), old=quotas(), new=quotas())
def test_a_key_that_is_whole_is_fresh_under_any_quota(
    kind: Kind, data: st.DataObject, old: Quota, new: Quota
) -> None:
    """Once nothing counts under the old quota, nothing is carried over."""
    was, becomes = kind.kernel.of(old), kind.kernel.of(new)
    _, state = was.take(None, 0, data.draw(st.integers(0, old.limit)))
    now_us = was.whole_at(state) + data.draw(st.integers(0, MONTH_US))

    assert becomes.settle(None, now_us) == becomes.rebase(state, now_us, was)


def test_counts_fit_however_often_quota_and_clock_change() -> None:
    """Two full windows that become one of another length are cut off at 2**40."""
    old = SlidingWindow(MOST_UNITS, period_us=1000)
    new = SlidingWindow(MOST_UNITS, period_us=10)
    state = Windows(0, MOST_UNITS, MOST_UNITS)

    rebased = new.rebase(state, 0, old)

    assert Windows(0, 2**40 - 1, 0) == rebased == new.unpack(new.pack(rebased))


def test_counters_are_values() -> None:
    """Equal ones are the same: of one kind, and of the same numbers."""
    kernel = FixedWindow(10, period_us=1000)

    assert {kernel} == {kernel, FixedWindow(10, period_us=1000)}
    assert kernel not in (FixedWindow(10, 999), FixedWindow(9, 1000))
    assert kernel != SlidingWindow(10, period_us=1000)


counts = st.integers(0, 2**40 - 1)
periods_us = st.integers(1, 20) | st.integers(1, CENTURY_US)
indices = st.integers(-3, 20)


@given(indices, counts, periods_us)
@example(0, 0, 1)
def test_a_window_is_one_number(index: int, used: int, period_us: int) -> None:
    """A fixed window is packed without loss, in numbers that say when it ends."""
    kernel, state = FixedWindow(MOST_UNITS, period_us), Window(index * period_us, used)
    packed, end_us = kernel.pack(state), state.start_us + period_us

    assert state == kernel.unpack(packed)
    assert (packed >= 0) == (index >= 0)
    assert kernel.whole_below(end_us - 1) <= packed < kernel.whole_below(end_us)


@given(indices, counts, counts, periods_us)
@example(0, 0, 0, 1)
def test_two_windows_are_one_number(
    index: int, used: int, before: int, period_us: int
) -> None:
    """A sliding window is packed without loss, in numbers that say when it ends."""
    kernel = SlidingWindow(MOST_UNITS, period_us)
    state = Windows(index * period_us, used, before)
    packed, end_us = kernel.pack(state), state.start_us + 2 * period_us

    assert state == kernel.unpack(packed)
    assert (packed >= 0) == (index >= 0)
    assert kernel.whole_below(end_us - 1) <= packed < kernel.whole_below(end_us)


@each_kind
def test_a_window_has_room_for_its_limit(kind: Kind) -> None:
    """The capacity is the limit of a quota, whatever its burst."""
    kernel = kind.kernel.of(Quota(5, timedelta(seconds=1), burst=20))

    assert 5 == kernel.capacity
    assert (True, 2**32) == kernel.fullness(kernel.settle(None, 0), 0)


@each_kind
def test_a_request_that_another_limit_refuses_need_not_wait_for_this_one(
    kind: Kind,
) -> None:
    """Where there is room, a request that is refused is told to come back at once."""
    kernel = kind.kernel.of(FIVE_PER_SECOND)

    state = kernel.settle(None, 0)

    assert 0 == kernel.tell(limited=True, state=state, now_us=0, cost=5).retry_us
