"""What a simulation tells is what stores would do, decision by decision."""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.clock import ManualClock
from throttled_views import Algorithm, Charge, MemoryStore, Quota
from throttled_views.algorithms.kernels import counts_apart, kernel_of
from throttled_views.simulation import (
    Arrival,
    Simulation,
    compare,
    poisson,
    regular,
    simulate,
    waits_us,
)

SECOND_US = 1_000_000
BUCKETS = [using for using in Algorithm if not counts_apart(using)]
QUOTA = Quota.per_second(2)  # of a bucket, one back every 500 ms


def at(*seconds: float, key: str = "", cost: int = 1) -> list[Arrival]:
    """Return arrivals at some *seconds*."""
    return [Arrival(round(each * SECOND_US), key, cost) for each in seconds]


def waits(
    arrivals: Iterable[Arrival],
    *quotas: Quota,
    using: Algorithm = Algorithm.TOKEN_BUCKET,
    max_delay_s: float = 0,
) -> list[float | None]:
    """Return what each of *arrivals* waits, in seconds."""
    kernels = [kernel_of(quota, using, max_delay_s) for quota in quotas]
    found = waits_us(arrivals, kernels)
    return [None if each is None else each / SECOND_US for each in found]


@st.composite
def arrivals_of(draw: st.DrawFn) -> list[Arrival]:
    """Draw arrivals of two clients, some at once, in the order of time."""
    gaps_us = draw(st.lists(st.integers(0, 900_000) | st.just(0), max_size=60))
    return [
        Arrival(at_us, draw(st.sampled_from("ab")), draw(st.integers(1, 3)))
        for at_us in accumulate(gaps_us)
    ]


# --- decisions ------------------------------------------------------------------------


async def waits_by_a_store(
    arrivals: Sequence[Arrival],
    quotas: Sequence[Quota],
    using: Algorithm,
    max_delay_s: float,
) -> list[float | None]:
    """Return how long a memory store lets each of *arrivals* wait."""
    clock = ManualClock()
    store = MemoryStore(clock=clock)
    found: list[float | None] = []
    for at_us, key, cost in arrivals:
        clock.set(at_us / SECOND_US)
        results = await store.acquire(
            [
                Charge(f"{key}{quota}", quota, using, cost, max_delay=max_delay_s)
                for quota in quotas
            ]
        )
        is_refused = any(result.limited for result in results)
        found.append(None if is_refused else max(result.delay for result in results))
    return found


@pytest.mark.parametrize("using", Algorithm)
@given(
    arrivals=arrivals_of(),
    numbers=st.lists(
        st.tuples(st.integers(0, 5), st.integers(1, 2_000_000)),
        min_size=1,
        max_size=3,
        unique=True,
    ),
    delay_us=st.just(0) | st.integers(1, 2 * SECOND_US),
)
def test_a_simulation_decides_as_a_store_does(
    using: Algorithm,
    arrivals: list[Arrival],
    numbers: list[tuple[int, int]],
    delay_us: int,
) -> None:
    """By every algorithm, with costs, clients and turns, under one quota or several."""
    quotas = [Quota(limit, period_us / SECOND_US) for limit, period_us in numbers]
    delay_s = delay_us / SECOND_US if using in BUCKETS else 0

    assert asyncio.run(waits_by_a_store(arrivals, quotas, using, delay_s)) == waits(
        arrivals, *quotas, using=using, max_delay_s=delay_s
    )


def test_a_request_waits_for_its_turn() -> None:
    """Each waits half a second longer than the one before, and the last too long."""
    assert [0.0, 0.0, 0.5, 1.0, 1.5, None] == waits(
        at(0, 0, 0, 0, 0, 0), QUOTA, max_delay_s=1.5
    )


def test_whoever_comes_later_waits_behind() -> None:
    """A request that costs little does not pass one that costs much."""
    arrivals = [*at(0, cost=2), *at(0, cost=2), *at(0.25), *at(3)]

    assert [0.0, 1.0, 1.25, 0.0] == waits(arrivals, QUOTA, max_delay_s=2)


def test_what_is_too_far_behind_is_free() -> None:
    """A refusal takes no turn: who comes later has the wait that it has anyway."""
    assert [0.0, 0.0, 0.5, None, 0.75, None] == waits(
        at(0, 0, 0, 0, 0.25, 0.25), QUOTA, max_delay_s=0.75
    )


def test_clients_have_turns_of_their_own() -> None:
    """Nobody waits for another key."""
    arrivals = [*at(0, 0, 0, key="a"), *at(0, key="b")]

    assert [0.0, 0.0, 0.5, 0.0] == waits(arrivals, QUOTA, max_delay_s=1)


def test_what_is_never_admitted_does_not_wait() -> None:
    """Costs above the capacity, and a quota of nothing."""
    assert [None] == waits(at(0, cost=3), QUOTA, max_delay_s=99)
    assert [None] == waits(at(0), Quota.per_second(0), max_delay_s=99)


def test_windows_know_no_turns() -> None:
    """They refuse what they have no room for."""
    found = compare([QUOTA], at(0, 0, 0), max_delay_us=SECOND_US)

    assert [(2, 1, 0)] * 3 + [(2, 0, 1)] * 3 == [
        (*each.admitted, *each.waiting, *each.refused) for each in found
    ]


def test_several_quotas_make_wait_as_long_as_the_slowest() -> None:
    """All are charged, or none is."""
    slow = Quota.per_minute(2)  # one back every 30 s

    assert [0.0, 0.0, 30.0, None, None] == waits(
        at(0, 0, 0, 0, 0.1), QUOTA, slow, max_delay_s=31
    )


@pytest.mark.parametrize("using", BUCKETS)
@given(arrivals=arrivals_of(), max_delay_us=st.integers(1, 3 * SECOND_US))
def test_turns_keep_to_the_quota_and_to_the_order(
    using: Algorithm, arrivals: list[Arrival], max_delay_us: int
) -> None:
    """A bucket admits at their turns, without a wait, all that it made wait."""
    alone = [each for each in arrivals if each.key == "a"]
    turns = [
        Arrival(arrival.at_us + wait_us, arrival.key, arrival.cost)
        for arrival, wait_us in zip(
            alone,
            waits_us(alone, [kernel_of(QUOTA, using, max_delay_us / SECOND_US)]),
            strict=True,
        )
        if wait_us is not None
    ]

    assert sorted(turns, key=lambda each: each.at_us) == turns
    assert [0] * len(turns) == [*waits_us(turns, [kernel_of(QUOTA, using)])]


# --- counts ---------------------------------------------------------------------------


def test_arrivals_are_counted_in_spans() -> None:
    """One for each length of time that people read well, from a multiple of it on."""
    found = simulate([QUOTA], at(7.1, 5, 5, 5, 5.3), max_delay_us=500_000, spans=3)

    assert (
        Simulation(
            Algorithm.TOKEN_BUCKET,
            (QUOTA,),
            start_us=5 * SECOND_US,
            span_us=SECOND_US,
            admitted=(2, 0, 1),
            waiting=(1, 0, 0),
            refused=(1, 0, 0),
            longest_wait_us=500_000,
        )
        == found
    )
    assert [5 * SECOND_US, 6 * SECOND_US, 7 * SECOND_US] == found.starts_us


SPANS = {
    "one moment": (0.0, 1e-6),
    "a second": (1.0, 0.05),
    "a minute": (60.0, 5.0),
    "an hour": (3_600.0, 300.0),
    "a day": (86_400.0, 7_200.0),
    "a month": (30 * 86_400.0, 2 * 86_400.0),
}


@pytest.mark.parametrize(("last_s", "span_s"), SPANS.values(), ids=SPANS)
def test_spans_are_as_long_as_needed(last_s: float, span_s: float) -> None:
    """There are never more than was asked for."""
    found = simulate([QUOTA], at(0, last_s), spans=21)

    assert span_s == found.span_us / SECOND_US
    assert 21 >= len(found.admitted)


def test_nothing_becomes_of_nothing() -> None:
    """Without arrivals there is nothing to count."""
    assert () == simulate([QUOTA], []).admitted


@pytest.mark.parametrize("run", [simulate, compare])
@pytest.mark.parametrize("spans", [0, -1])
@pytest.mark.parametrize("arrivals", [[], at(0, 1)], ids=["nothing", "something"])
def test_there_is_a_span_at_least(
    run: Callable[..., object], spans: int, arrivals: list[Arrival]
) -> None:
    """None would be long enough for no spans, so none is looked for."""
    with pytest.raises(ValueError, match=f"spans={spans} shows nothing. Write 1"):
        run([Quota.per_minute(5)], arrivals, spans=spans)


@pytest.mark.parametrize("run", [simulate, compare])
def test_nothing_arrives_before_the_beginning(run: Callable[..., object]) -> None:
    """Wherever it is among the arrivals, it is named."""
    with pytest.raises(ValueError, match=r"at_us=-1, .* is before the beginning"):
        run([Quota.per_minute(5)], [Arrival(3), Arrival(-1), Arrival(0)])


@pytest.mark.parametrize("every_us", [0, -1])
def test_regular_arrivals_go_on(every_us: int) -> None:
    """What would stand still, or go back, is refused before anything arrives."""
    with pytest.raises(ValueError, match=f"every_us={every_us} does not go on"):
        regular(every_us, 10)


def test_all_algorithms_are_compared() -> None:
    """Those that share a kernel are decided once, and windows without the burst."""
    decided: list[Algorithm] = []

    def watch(arrivals: Sequence[Arrival], using: Algorithm) -> Iterable[Arrival]:
        decided.append(using)
        return arrivals

    found = compare([Quota.per_second(2, burst=3)], at(0, 0, 0, 0), watch=watch)

    assert [*Algorithm] == [each.using for each in found]
    assert [(3,), (3,), (3,), (2,), (2,), (2,)] == [each.admitted for each in found]
    assert ["2/s burst 3"] * 3 + ["2/s"] * 3 == [str(each.quotas[0]) for each in found]
    assert [
        Algorithm.TOKEN_BUCKET,
        Algorithm.FIXED_WINDOW,
        Algorithm.SLIDING_WINDOW,
        Algorithm.SLIDING_LOG,
    ] == decided


# --- patterns -------------------------------------------------------------------------


def test_regular_arrivals_end_before_the_end() -> None:
    """So many at once, again and again."""
    assert at(0, 0, 1, 1, 2, 2) == [*regular(SECOND_US, 3 * SECOND_US, size=2)]


def test_a_poisson_process_has_its_rate() -> None:
    """Equal seeds give equal arrivals, others give others."""
    rate = Quota.per_second(50)
    one, same, other = (
        [*poisson(rate, 100 * SECOND_US, seed=seed)] for seed in (1, 1, 2)
    )

    assert one == same != other
    assert 4_700 < len(one) < 5_300
    assert all(0 <= each.at_us < 100 * SECOND_US for each in one)


def test_nothing_arrives_at_a_rate_of_nothing() -> None:
    """A rate of 0 is one."""
    assert [] == [*poisson(Quota.per_second(0), SECOND_US)]
