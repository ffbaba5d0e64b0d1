"""What decides while a store cannot, and when the store is asked again."""

import asyncio
import logging
from collections.abc import Sequence

import pytest

from tests.clock import ManualClock
from tests.outages import Outage, failover_of
from throttled_views import (
    Algorithm,
    Charge,
    MemoryStore,
    Quota,
    RateLimitResult,
    RateLimitState,
    Receipt,
    Store,
    StoreUnavailableError,
)
from throttled_views.results import OnStoreError
from throttled_views.stores.failover import Failover

TEN = Quota.per_hour(10)
POLICIES: tuple[OnStoreError, ...] = ("local", "deny", "allow")

each_policy = pytest.mark.parametrize("policy", POLICIES)


@pytest.fixture(name="outage")
def outage_fixture() -> Outage:
    """Give a store that is down."""
    return Outage(is_down=True)


def charge(
    cost: int = 1, *, key: str = "alice", policy: OnStoreError | None = None
) -> Charge:
    """Return a charge that says *policy*."""
    return Charge(key, TEN, cost=cost, on_store_error=policy)


async def remaining(store: Store) -> int:
    """Return what alice could still make."""
    [result] = await store.peek([charge(0)])
    return result.state.remaining


# --- policies -------------------------------------------------------------------------


def test_it_is_a_store(outage: Outage, clock: ManualClock) -> None:
    """Whoever has a store can have one that survives it instead."""
    as_store: Store = failover_of(outage, clock)

    assert isinstance(as_store, Failover)


@each_policy
async def test_while_the_store_is_up_it_decides(
    clock: ManualClock, policy: OnStoreError
) -> None:
    """Whatever the policy is, the store is asked, and its answers are given on."""
    store = Outage(is_down=False)
    failover = failover_of(store, clock, policy)

    assert await failover.acquire([charge(3)]) == await Outage(is_down=False).acquire(
        [charge(3)]
    )
    assert (7, 7) == (await remaining(failover), await remaining(store))
    assert failover.is_up


async def test_local_counts_by_the_same_quota(
    outage: Outage, clock: ManualClock
) -> None:
    """What one process may admit passes, and the wait of a refusal is exact."""
    failover = failover_of(outage, clock, "local")

    results = [(await failover.acquire([charge(4)]))[0] for _ in range(3)]

    assert [False, False, True] == [result.limited for result in results]
    assert [6, 2, 2] == [result.state.remaining for result in results]
    assert 719 < (results[2].state.retry_after or 0) <= 720


@pytest.mark.parametrize("using", Algorithm)
async def test_local_counts_by_the_same_algorithm(
    outage: Outage, clock: ManualClock, using: Algorithm
) -> None:
    """Whatever algorithm counts a limit, it does so in this process."""
    failover = failover_of(outage, clock, "local")
    asked = Charge("alice", TEN, using, cost=10)

    [first] = await failover.acquire([asked])
    [second] = await failover.acquire([asked])

    assert (False, True) == (first.limited, second.limited)


async def test_deny_raises(outage: Outage, clock: ManualClock) -> None:
    """Nobody is let in, and the error says why: the first as well as later ones."""
    failover = failover_of(outage, clock, "deny")

    for _ in range(2):
        with pytest.raises(
            StoreUnavailableError, match="a limit is to deny then"
        ) as caught:
            await failover.acquire([charge()])

        assert "no route to host" == str(caught.value.__cause__)
    with pytest.raises(StoreUnavailableError):
        await failover.peek([charge()])


@pytest.mark.parametrize("using", Algorithm)
async def test_allow_admits_and_tells_of_an_untouched_key(
    outage: Outage, clock: ManualClock, using: Algorithm
) -> None:
    """However much is asked, nothing is counted, and there is nothing to refund."""
    failover = failover_of(outage, clock, "allow")
    asked = Charge("alice", TEN, using, cost=7)

    results = [(await failover.acquire([asked]))[0] for _ in range(3)]

    untouched = RateLimitResult(
        limited=False, state=RateLimitState(10, 10, reset_after=0.0, retry_after=0.0)
    )
    assert [untouched] * 3 == results


@pytest.mark.parametrize("using", Algorithm)
@pytest.mark.parametrize(
    ("quota", "cost"), [(Quota.per_hour(0), 1), (TEN, 11)], ids=["zero", "too much"]
)
async def test_allow_refuses_what_could_never_be_admitted(
    outage: Outage, clock: ManualClock, using: Algorithm, quota: Quota, cost: int
) -> None:
    """A quota of zero and a cost above the capacity refuse in an outage, too."""
    failover = failover_of(outage, clock, "allow")

    [result] = await failover.acquire([Charge("alice", quota, using, cost)])

    assert result.limited
    assert result.state.retry_after is None


@each_policy
async def test_a_limit_may_have_a_policy_of_its_own(
    outage: Outage, clock: ManualClock, policy: OnStoreError
) -> None:
    """What a charge says goes before what the limiter says."""
    failover = failover_of(outage, clock, policy)

    [local] = await failover.acquire([charge(10, policy="local")])
    [allowed] = await failover.acquire([charge(10, policy="allow")])

    assert (0, 10) == (local.state.remaining, allowed.state.remaining)
    with pytest.raises(StoreUnavailableError):
        await failover.acquire([charge(policy="deny")])


async def test_one_limit_that_denies_denies_all(
    outage: Outage, clock: ManualClock
) -> None:
    """If one of the limits of a call is to deny, none of the others is charged."""
    failover = failover_of(outage, clock, "local")

    with pytest.raises(StoreUnavailableError):
        await failover.acquire([charge(4), charge(key="b", policy="deny")])

    assert 10 == await remaining(failover)


async def test_local_and_allow_are_told_in_order(
    outage: Outage, clock: ManualClock
) -> None:
    """Each charge of a mixed call is answered in its place, by its own policy."""
    failover = failover_of(outage, clock, "allow")
    mixed = [
        charge(1),
        charge(4, key="b", policy="local"),
        charge(2),
        charge(5, key="c", policy="local"),
    ]

    admitted = await failover.acquire(mixed)
    looked = await failover.peek(mixed)
    refused = await failover.acquire([*mixed, charge(7, key="b", policy="local")])

    assert [10, 6, 10, 5] == [result.state.remaining for result in admitted]
    assert [10, 6, 10, 5] == [result.state.remaining for result in looked]
    assert [False] * 4 + [True] == [result.limited for result in refused]
    assert [10, 6, 10, 5, 6] == [result.state.remaining for result in refused]
    assert [()] * 5 == [result.receipts for result in refused]


# --- the breaker ----------------------------------------------------------------------


async def test_the_first_failure_opens_the_breaker(
    outage: Outage, clock: ManualClock
) -> None:
    """From then on an outage costs no request the time that a failing store takes."""
    failover = failover_of(outage, clock)

    for _ in range(50):
        await failover.acquire([charge(0)])

    assert ["acquire"] == outage.asked
    assert not failover.is_up


async def test_one_probe_a_second_is_sent(outage: Outage, clock: ManualClock) -> None:
    """The first call of each second asks the store, whatever it is for."""
    failover = failover_of(outage, clock)
    await failover.acquire([charge(0)])

    clock.advance(0.999_999)
    await failover.peek([charge()])
    assert ["acquire"] == outage.asked

    clock.advance(0.000_001)
    await failover.peek([charge()])
    await failover.acquire([charge(0)])
    assert ["acquire", "peek"] == outage.asked

    clock.advance(1)
    await failover.acquire([charge(0)])
    await failover.peek([charge()])
    assert ["acquire", "peek", "acquire"] == outage.asked


class Hanging(Outage):
    """A store whose answers, and failures, take until it is told."""

    def __init__(self) -> None:
        super().__init__(is_down=True)
        self.answering = asyncio.Event()
        self.waiting = 0

    async def acquire(self, charges: Sequence[Charge], /) -> Sequence[RateLimitResult]:
        """Charge all or none, some time."""
        self.waiting += 1
        await self.answering.wait()
        return await super().acquire(charges)


async def test_no_call_waits_for_a_probe(clock: ManualClock) -> None:
    """While one call asks a store that hangs, all others are decided at once."""
    store = Hanging()
    store.answering.set()
    failover = failover_of(store, clock)
    await failover.acquire([charge(0)])
    store.answering.clear()
    clock.advance(1)

    probe = asyncio.create_task(failover.acquire([charge()]))
    await asyncio.sleep(0)
    others = [(await failover.acquire([charge()]))[0] for _ in range(9)]

    assert 2 == store.waiting
    assert not probe.done()
    assert list(range(9, 0, -1)) == [result.state.remaining for result in others]
    store.answering.set()
    [last] = await probe
    assert 0 == last.state.remaining


async def test_calls_at_the_same_time_send_one_probe(
    outage: Outage, clock: ManualClock
) -> None:
    """A hundred calls that come when a probe is due are one probe."""
    failover = failover_of(outage, clock)
    await failover.acquire([charge(0)])
    clock.advance(1)

    await asyncio.gather(*[failover.acquire([charge(0)]) for _ in range(100)])

    assert ["acquire"] * 2 == outage.asked


async def test_calls_in_flight_that_fail_are_one_outage(
    clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    """All that were waiting when the store went down are decided by the policy."""
    store, told = Hanging(), list[StoreUnavailableError | None]()
    failover = failover_of(store, clock, "local", told.append)
    calls = [asyncio.create_task(failover.acquire([charge()])) for _ in range(12)]
    await asyncio.sleep(0)
    store.answering.set()

    limited = [result.limited for call in calls for result in await call]

    assert [False] * 10 + [True] * 2 == limited
    assert (1, 1) == (len(told), len(caplog.records))


async def test_a_probe_that_is_cancelled_leaves_the_store_down(
    clock: ManualClock,
) -> None:
    """It says nothing about the store; the next one is sent a second later."""
    store = Hanging()
    store.answering.set()
    failover = failover_of(store, clock)
    await failover.acquire([charge(0)])
    store.answering.clear()
    clock.advance(1)
    probe = asyncio.create_task(failover.acquire([charge()]))
    await asyncio.sleep(0)

    probe.cancel()
    with pytest.raises(asyncio.CancelledError):
        await probe
    await failover.acquire([charge(0)])

    assert (False, 2) == (failover.is_up, store.waiting)


@pytest.mark.parametrize("method", ["acquire", "peek", "refund"])
async def test_whatever_the_store_answers_first_puts_it_up_again(
    outage: Outage, clock: ManualClock, method: str
) -> None:
    """From that call on the store decides, and what it had counted is still there."""
    outage.is_down = False
    failover = failover_of(outage, clock)
    [result] = await failover.acquire([charge(3)])
    outage.is_down = True
    await failover.acquire([charge(10)])
    outage.is_down = False

    assert 0 == await remaining(failover)

    clock.advance(1)
    if method == "refund":
        await failover.refund(result.receipts)
    else:
        await getattr(failover, method)([charge(0)])

    assert failover.is_up
    assert (10 if method == "refund" else 7) == await remaining(failover)


async def test_another_error_is_no_outage(clock: ManualClock) -> None:
    """A mistake in a store is not hidden by a policy."""

    class Wrong(Outage):
        async def acquire(
            self, charges: Sequence[Charge], /
        ) -> Sequence[RateLimitResult]:
            raise ZeroDivisionError

    failover = failover_of(Wrong(is_down=False), clock, "allow")

    with pytest.raises(ZeroDivisionError):
        await failover.acquire([charge()])
    assert failover.is_up


async def test_by_itself_it_goes_by_the_monotonic_clock(outage: Outage) -> None:
    """Two calls one after the other are within a second of it."""
    failover = Failover(outage, "allow", list[object]().append)

    await failover.acquire([charge()])
    await failover.acquire([charge()])

    assert ["acquire"] == outage.asked


# --- what is told ---------------------------------------------------------------------


async def test_each_change_is_told_once(
    outage: Outage, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    """Down, still down, up, still up: two records, and two calls of who listens."""
    told: list[StoreUnavailableError | None] = []
    failover = failover_of(outage, clock, "local", told.append)
    for _ in range(3):
        await failover.acquire([charge(0)])
        clock.advance(1)
    outage.is_down = False
    for _ in range(3):
        await failover.acquire([charge(0)])
        clock.advance(1)

    assert ["no route to host", "None"] == [str(each) for each in told]
    assert [
        "The store is unavailable, on_store_error='local' decides: no route to host",
        "The store is available again, and decides",
    ] == [record.getMessage() for record in caplog.records]
    assert {("throttled_views", logging.WARNING)} == {
        (record.name, record.levelno) for record in caplog.records
    }


async def test_an_outage_that_comes_again_is_told_again(
    outage: Outage, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    """A store that comes and goes is told of each time."""
    told: list[StoreUnavailableError | None] = []
    failover = failover_of(outage, clock, "local", told.append)
    for is_down in (True, False, True, False):
        outage.is_down = is_down
        await failover.acquire([charge(0)])
        clock.advance(1)

    assert [True, False, True, False] == [each is not None for each in told]
    assert 4 == len(caplog.records)


# --- receipts, resets and closing -----------------------------------------------------


async def test_what_was_charged_here_comes_back_here(
    outage: Outage, clock: ManualClock
) -> None:
    """Also when the store is up again, which knows nothing of it."""
    failover = failover_of(outage, clock)
    [local] = await failover.acquire([charge(4)])
    outage.is_down = False
    clock.advance(1)
    await failover.acquire([charge(3)])
    outage.asked.clear()

    await failover.refund(local.receipts)

    assert [] == outage.asked
    assert 7 == await remaining(failover)
    outage.is_down = True
    await failover.acquire([charge(0)])
    assert 10 == await remaining(failover)


async def test_what_was_charged_in_the_store_does_not_come_back_here(
    outage: Outage, clock: ManualClock
) -> None:
    """While the store is down its receipts are good for nothing, and are not sent."""
    outage.is_down = False
    failover = failover_of(outage, clock)
    [result] = await failover.acquire([charge(4)])
    outage.is_down = True
    await failover.acquire([charge(6)])
    outage.asked.clear()

    await failover.refund(result.receipts)

    assert [] == outage.asked
    assert 4 == await remaining(failover)


async def test_receipts_of_both_go_to_both(outage: Outage, clock: ManualClock) -> None:
    """Each is given to whoever charged it."""
    failover = failover_of(outage, clock)
    [here] = await failover.acquire([charge(4)])
    outage.is_down = False
    clock.advance(1)
    [there] = await failover.acquire([charge(3)])

    await failover.refund([*here.receipts, *there.receipts])

    assert 10 == await remaining(failover)
    outage.is_down = True
    await failover.acquire([charge(0)])
    assert 10 == await remaining(failover)


async def test_a_refund_that_fails_opens_the_breaker(
    outage: Outage, clock: ManualClock
) -> None:
    """It raises nothing: whoever gives back has been decided already."""
    outage.is_down = False
    failover = failover_of(outage, clock)
    [result] = await failover.acquire([charge(4)])
    outage.is_down = True

    await failover.refund(result.receipts)

    assert not failover.is_up


async def test_a_refund_of_nothing_asks_nobody(
    outage: Outage, clock: ManualClock
) -> None:
    """The receipts of a refusal, of which there are none, are no probe."""
    await failover_of(outage, clock).refund([])

    assert [] == outage.asked


async def test_receipts_are_equal_to_none_of_the_store(
    outage: Outage, clock: ManualClock
) -> None:
    """A local receipt says what was charged, and is a receipt."""
    [result] = await failover_of(outage, clock).acquire([charge(4)])
    [receipt] = result.receipts

    assert isinstance(receipt, Receipt)
    assert charge(4) == receipt.charge
    assert Receipt(receipt.charge, receipt.at_us) != receipt


async def test_a_peek_changes_nothing_here(outage: Outage, clock: ManualClock) -> None:
    """While the store is down one can look, and nothing is charged."""
    failover = failover_of(outage, clock)
    looks = [(await failover.peek([charge(10)]))[0] for _ in range(2)]

    assert [False, False] == [look.limited for look in looks]
    assert 10 == await remaining(failover)


async def test_a_reset_forgets_here_and_there(
    outage: Outage, clock: ManualClock
) -> None:
    """It is done by hand: that the store did not do it is an error."""
    failover = failover_of(outage, clock)
    await failover.acquire([charge(10)])

    with pytest.raises(StoreUnavailableError, match="no route to host"):
        await failover.reset(["alice"])

    assert 10 == await remaining(failover)
    outage.is_down = False
    await failover.reset(["alice"])
    assert ["acquire", "reset", "reset"] == outage.asked


async def test_closing_closes_the_store(outage: Outage, clock: ManualClock) -> None:
    """Twice is fine, also while it is down."""
    failover = failover_of(outage, clock)

    await failover.aclose()
    await failover.aclose()

    assert ["aclose", "aclose"] == outage.asked


# --- a whole outage -------------------------------------------------------------------


async def test_case_95_the_fallback_is_left_again() -> None:
    """Ten pass here while the store is down; then it decides again, with 3 used."""
    clock = ManualClock()
    store = Outage(MemoryStore(clock=clock), is_down=False)
    failover = failover_of(store, clock)

    async def admitted(count: int) -> int:
        calls = [await failover.acquire([charge()]) for _ in range(count)]
        return sum(not result.limited for [result] in calls)

    before = await admitted(3)
    store.is_down = True
    during = await admitted(12)
    store.is_down = False
    clock.advance(1)
    after = await admitted(12)

    assert (3, 10, 7) == (before, during, after)


async def test_case_95_flapping_does_not_add_up() -> None:
    """Thirty changes in thirty seconds let no more in than one: both counts stay."""
    clock = ManualClock()
    store = Outage(MemoryStore(clock=clock), is_down=False)
    failover = failover_of(store, clock)
    admitted = 0
    for second in range(30):
        store.is_down = second % 2 == 0
        for _ in range(20):
            [result] = await failover.acquire([charge()])
            admitted += not result.limited
        clock.advance(1)

    assert 20 == admitted


async def test_a_refusal_under_allow_charges_nothing_locally(
    outage: Outage, clock: ManualClock
) -> None:
    """If what is admitted uncounted could never be, what is counted here is free."""
    failover = failover_of(outage, clock, "local")
    never = Charge("bob", Quota.per_hour(0), on_store_error="allow")

    for _ in range(3):
        await failover.acquire([charge(), never])
    [left] = await failover.peek([charge()])

    assert 10 == left.state.remaining


async def test_a_quota_of_zero_is_no_probe(outage: Outage, clock: ManualClock) -> None:
    """A store may answer it without asking anybody: that does not make it available."""
    failover = failover_of(outage, clock)
    await failover.acquire([charge()])
    clock.advance(1)
    outage.is_down = False

    [result] = await failover.acquire([Charge("bob", Quota.per_hour(0))])

    assert result.limited
    assert not failover.is_up
