"""
The tests that every store passes.

Longer than other modules, since it is one list: what a store promises is read, and is
checked, in one place.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace

from throttled_views.algorithms.kernels import counts_apart
from throttled_views.quotas import Algorithm, Quota
from throttled_views.results import Charge, RateLimitResult, RateLimitState
from throttled_views.stores.base import Store
from throttled_views.testing._clock import ManualClock

__all__ = ["StoreContract"]

_MICROSECOND_S = 0.000_001
_EIGHT_HOURS_S = 28_800.0

_FIVE = Quota.per_minute(5)  # of a bucket, one back every 12 s
_TEN = Quota.per_minute(10)  # of a bucket, one back every 6 s
_TWENTY = Quota.per_minute(20)

# What is left by these three, after so many were charged by _TEN: whether requests are
# counted, as windows do, or a level is kept.
_LEFTS = {
    False: {3: (5, 7, 7), 8: (2, 2, 2)},
    True: {3: (2, 7, 17), 8: (0, 2, 12)},
}


class StoreContract:
    """
    The tests that every store passes: they hold it to the promises of `Store`.

    Not tested is what its methods do not show: that a key is dropped once it equals a
    fresh one, and that an outage ends in a `StoreUnavailableError`.

    Subclass it in a test module, under a name that pytest collects, and provide two
    fixtures: `clock`, a `ManualClock`, and `store`, an empty store that goes by it. The
    tests are coroutines; with `pytest-asyncio` in its auto mode nothing else is needed.
    """

    # --- what is told

    async def test_a_fresh_key_is_full(self, store: Store) -> None:
        """A key that was never charged has its whole capacity, by every algorithm."""
        for using in Algorithm:
            state = await _state(store, Charge("alice", _TEN, using))

            assert state == RateLimitState(10, 10, reset_after=0.0, retry_after=0.0)

    async def test_a_quota_passes_and_no_more(self, store: Store) -> None:
        """The capacity is admitted and counted down, and the next one is refused."""
        for using in Algorithm:
            results = [await _one(store, _alice(using)) for _ in range(11)]

            assert [each.state.remaining for each in results] == [*range(9, -1, -1), 0]
            assert [each.limited for each in results] == [False] * 10 + [True]
            assert results[0].state.retry_after == 0.0

    async def test_a_wait_is_as_long_as_it_is_told(
        self, store: Store, clock: ManualClock
    ) -> None:
        """After `retry_after` the request is admitted, a microsecond sooner not."""
        for using in Algorithm:
            await _one(store, _alice(using, 8))
            refused = await _one(store, _alice(using, 3))
            assert refused.limited
            assert refused.state.retry_after is not None
            clock.advance(refused.state.retry_after - _MICROSECOND_S)
            early = await _one(store, _alice(using, 3))
            assert early.limited
            assert early.state.retry_after == _MICROSECOND_S
            clock.advance(_MICROSECOND_S)

            assert not (await _one(store, _alice(using, 3))).limited

    async def test_a_reset_is_as_far_as_it_is_told(
        self, store: Store, clock: ManualClock
    ) -> None:
        """After `reset_after` the capacity is whole, a microsecond sooner not."""
        for using in Algorithm:
            result = await _one(store, _alice(using, 7))
            clock.advance(result.state.reset_after - _MICROSECOND_S)
            assert (await _state(store, _alice(using))).remaining < 10
            clock.advance(_MICROSECOND_S)

            state = await _state(store, _alice(using))
            assert state == RateLimitState(10, 10, reset_after=0.0, retry_after=0.0)

    async def test_a_receipt_has_the_time_of_the_store(
        self, store: Store, clock: ManualClock
    ) -> None:
        """What was charged can be proven, and what was refused has no receipt."""
        clock.advance(1.5)
        charge = Charge("alice", _FIVE, cost=4)
        admitted, refused = await _one(store, charge), await _one(store, charge)

        assert [(each.charge, each.at_us) for each in admitted.receipts] == [
            (charge, clock())
        ]
        assert refused.receipts == ()

    # --- what is charged

    async def test_keys_are_charged_apart(self, store: Store) -> None:
        """What one key spends another still has, whatever they are called."""
        names = ["alice", "Alice", "alice ", "{alice}", "a:b{c}d", "é\U0001f600\n", ""]
        for spent, name in enumerate(names):
            await _one(store, Charge(name, _TEN, cost=spent))

        left = [await _remaining(store, Charge(name, _TEN)) for name in names]
        assert left == [10, 9, 8, 7, 6, 5, 4]

    async def test_charges_are_answered_in_order(self, store: Store) -> None:
        """Each charge of a call has a result of its own; no charges have none."""
        charges = [Charge("alice", _FIVE), Charge("all", _TEN, cost=2)]
        results = await store.acquire([*charges, Charge("bob", _FIVE, cost=4)])

        assert [each.state.remaining for each in results] == [4, 8, 1]
        assert [each.state.limit for each in results] == [5, 10, 5]
        assert not list(await store.acquire([]))

    async def test_a_call_charges_all_or_none(self, store: Store) -> None:
        """If one limit refuses, none is charged, whichever comes first."""
        for using in Algorithm:
            spent, rich = Charge(f"spent {using}", _FIVE, using, 5), _alice(using)
            await _one(store, spent)
            first = await store.acquire([spent, rich])
            last = await store.acquire([rich, spent])

            assert [each.limited for each in [*first, *last]] == [
                True,
                False,
                False,
                True,
            ]
            assert [each.receipts for each in [*first, *last]] == [()] * 4
            assert [first[1].state.remaining, last[0].state.remaining] == [10, 10]
            assert await _remaining(store, rich) == 10

    async def test_algorithms_may_be_mixed(self, store: Store) -> None:
        """A call may have limits of all algorithms, and is still all or nothing."""
        charges = [Charge(f"alice {using}", _TEN, using, 6) for using in Algorithm]
        admitted = await store.acquire(charges)
        refused = await store.acquire(charges)

        assert [each.state.remaining for each in admitted] == [4] * len(charges)
        assert [each.limited for each in refused] == [True] * len(charges)
        assert [await _remaining(store, each) for each in charges] == [4] * len(charges)

    async def test_a_key_named_twice_is_charged_twice(self, store: Store) -> None:
        """Two charges of one call to one key add up, or none is made."""
        for using in Algorithm:
            admitted = await store.acquire([_alice(using, 3)] * 2)
            refused = await store.acquire([_alice(using, 3)] * 2)

            assert [each.state.remaining for each in admitted] == [7, 4]
            assert [each.limited for each in refused] == [False, True]
            assert [each.state.remaining for each in refused] == [4, 4]
            assert await _remaining(store, _alice(using)) == 4

    async def test_a_refusal_is_free(self, store: Store, clock: ManualClock) -> None:
        """Who asks too often does not wait longer for it."""
        for using in Algorithm:
            await _one(store, _alice(using, 10))
            wait_s = (await _one(store, _alice(using))).state.retry_after
            assert wait_s is not None
            for _ in range(10):
                clock.advance(wait_s / 10 - _MICROSECOND_S)
                assert (await _one(store, _alice(using))).limited
            clock.advance(10 * _MICROSECOND_S)

            assert not (await _one(store, _alice(using))).limited

    async def test_a_cost_of_zero_takes_nothing(self, store: Store) -> None:
        """A charge of nothing is admitted, also where nothing is left."""
        for using in Algorithm:
            fresh = await _one(store, _alice(using, 0))
            await _one(store, _alice(using, 10))
            spent = await _one(store, _alice(using, 0))

            assert (fresh.limited, fresh.state.remaining) == (False, 10)
            assert (spent.limited, spent.state.remaining) == (False, 0)

    async def test_a_cost_above_the_capacity_is_never_admitted(
        self, store: Store
    ) -> None:
        """It has no wait, and takes nothing, also from the other limits of the call."""
        for using in Algorithm:
            results = await store.acquire([_alice(using, 11), Charge("bob", _FIVE)])

            assert [each.limited for each in results] == [True, False]
            assert results[0].state == RateLimitState(10, 10, 0.0, None)
            assert await _remaining(store, _alice(using)) == 10
            assert await _remaining(store, Charge("bob", _FIVE)) == 5

    async def test_a_quota_of_zero_refuses_everything(self, store: Store) -> None:
        """Not even the first request passes, nor one that costs nothing."""
        for using in Algorithm:
            for cost in (0, 1):
                charge = Charge("alice", Quota.per_hour(0), using, cost)
                acquired, [peeked] = (
                    await _one(store, charge),
                    await store.peek([charge]),
                )

                assert acquired.limited
                assert peeked.limited
                assert acquired.state == RateLimitState(0, 0, 0.0, None)

    async def test_simultaneous_calls_share_a_quota(self, store: Store) -> None:
        """Of any number of callers at once, exactly the quota is admitted."""
        for using in Algorithm:
            both = [_alice(using), Charge(f"all {using}", Quota.per_hour(20), using)]
            calls = await asyncio.gather(*(store.acquire(both) for _ in range(50)))

            admitted = [call for call in calls if not any(r.limited for r in call)]
            assert len(admitted) == 10
            assert await _remaining(store, both[1]) == 10

    # --- who waits for a turn

    async def test_a_request_may_wait_for_its_turn(
        self, store: Store, clock: ManualClock
    ) -> None:
        """It is charged now, is told how long to wait, and is refused if too long."""
        patient = Charge("alice", _FIVE, max_delay=30.0)
        results = [await _one(store, patient) for _ in range(8)]
        states = [each.state for each in results]

        assert [each.delay for each in results] == [0.0] * 5 + [12.0, 24.0, 0.0]
        assert [each.limited for each in results] == [False] * 7 + [True]
        assert [each.remaining for each in states] == [4, 3, 2, 1, 0, 0, 0, 0]
        assert [each.reset_after for each in states[5:]] == [72.0, 84.0, 84.0]
        assert states[7].retry_after == 6.0
        clock.advance(6 - _MICROSECOND_S)
        assert (await _one(store, patient)).limited
        clock.advance(_MICROSECOND_S)
        assert (await _one(store, patient)).delay == 30.0
        never = await _one(store, replace(patient, cost=6))
        assert (never.limited, never.state.retry_after) == (True, None)
        clock.advance(90)
        assert await _state(store, patient) == RateLimitState(5, 5, 0.0, 0.0)

    async def test_a_turn_is_looked_at(self, store: Store) -> None:
        """A peek tells the wait that a charge would have, and takes no turn."""
        patient = Charge("alice", _FIVE, cost=3, max_delay=30.0)
        delays: list[float] = []
        for _ in range(3):
            [looked] = await store.peek([patient])
            admitted = await _one(store, patient)
            delays.append(looked.delay)
            assert (looked.limited, looked.delay) == (admitted.limited, admitted.delay)

        assert delays == [0.0, 12.0, 0.0]

    async def test_a_key_named_twice_has_two_turns(self, store: Store) -> None:
        """Two charges of one call may come to more than the capacity, and wait."""
        patient = Charge("alice", _FIVE, cost=5, max_delay=30.0)
        admitted = await store.acquire([patient, replace(patient, cost=2)])
        refused = await store.acquire([patient, replace(patient, cost=6)])

        assert [each.delay for each in admitted] == [0.0, 24.0]
        assert [each.limited for each in refused] == [True, True]
        assert (await _one(store, replace(patient, cost=0))).delay == 24.0

    async def test_a_turn_is_not_given_back(self, store: Store) -> None:
        """Who is behind was told another; where a limit refuses, none is taken."""
        patient = Charge("alice", _FIVE, cost=5, max_delay=30.0)
        await _one(store, patient)
        one = replace(patient, cost=1)
        turn = await _one(store, one)
        await store.refund(turn.receipts)
        spent = Charge("bob", _FIVE, cost=6)
        refused = await store.acquire([one, spent])

        assert [each.limited for each in refused] == [False, True]
        assert refused[0].receipts == ()
        assert (turn.delay, (await _one(store, one)).delay) == (12.0, 24.0)

    async def test_what_came_back_by_itself_is_not_given_back(
        self, store: Store, clock: ManualClock
    ) -> None:
        """That is a charge of a whole time to full ago, or of a window that is over."""
        for using in Algorithm:
            result = await _one(store, _alice(using, 10))
            clock.advance(120.0)
            await _one(store, _alice(using, 10))
            await store.refund(result.receipts)

            assert await _remaining(store, _alice(using)) == 0

    async def test_who_waits_and_who_does_not_share_a_key(
        self, store: Store, clock: ManualClock
    ) -> None:
        """A key has one count, whether its charges may wait or not."""
        patient, hasty = Charge("alice", _FIVE, max_delay=30.0), Charge("alice", _FIVE)
        await _one(store, replace(hasty, cost=4))
        assert [(await _one(store, patient)).delay for _ in range(3)] == [0, 12, 24]
        assert (await _one(store, hasty)).limited
        clock.advance(24)
        assert (await _one(store, hasty)).state.retry_after == 12.0
        clock.advance(12)

        assert not (await _one(store, hasty)).limited

    # --- what changes nothing

    async def test_a_peek_changes_nothing(self, store: Store) -> None:
        """However often one looks, nothing is charged."""
        for using in Algorithm:
            await _one(store, _alice(using, 4))
            first = await store.peek([_alice(using, 3), Charge("bob", _FIVE, using)])
            again = await store.peek([_alice(using, 3), Charge("bob", _FIVE, using)])

            assert first == again
            assert [each.state.remaining for each in again] == [6, 5]
            assert [each.receipts for each in again] == [(), ()]

    async def test_a_peek_tells_what_a_charge_would_be_answered(
        self, store: Store, clock: ManualClock
    ) -> None:
        """Each charge is answered on its own, with the wait that it would have."""
        for using in Algorithm:
            for _ in range(4):
                await _one(store, _alice(using, 2))
                clock.advance(1)
            costs = range(12)
            looked = await store.peek([_alice(using, cost) for cost in costs])
            alone = [await store.peek([_alice(using, cost)]) for cost in costs]

            assert list(looked) == [result for [result] in alone]
            for cost in range(looked[0].state.remaining + 1, 12):
                refused = await _one(store, _alice(using, cost))
                assert refused == looked[cost]

    # --- what is given back

    async def test_a_refund_gives_back(self, store: Store) -> None:
        """What is refunded can be spent again at once."""
        for using in Algorithm:
            first = await _one(store, _alice(using, 3))
            second = await _one(store, _alice(using, 4))
            await store.refund(first.receipts)
            assert await _remaining(store, _alice(using)) == 6
            await store.refund(second.receipts)

            assert await _remaining(store, _alice(using)) == 10

    async def test_a_refund_is_never_above_full(
        self, store: Store, clock: ManualClock
    ) -> None:
        """What came back by itself meanwhile is not given twice."""
        for using in Algorithm:
            first = await _one(store, _alice(using, 6))
            clock.advance(first.state.reset_after)
            await _one(store, _alice(using))
            await store.refund(first.receipts)

            # What was charged to a window that has ended does not come back.
            whole = 9 if counts_apart(using) else 10
            assert await _remaining(store, _alice(using)) == whole
            admitted = [await _one(store, _alice(using)) for _ in range(11)]
            assert sum(not each.limited for each in admitted) == whole

    async def test_a_refund_is_seen_at_once(self, store: Store) -> None:
        """What was refused a moment ago is admitted as soon as there is room."""
        for using in Algorithm:
            for refundable in (False, True):
                charge = replace(_alice(using, 10), refundable=refundable)
                charge = replace(charge, key=f"{charge.key} {refundable}")
                admitted = await _one(store, charge)
                one = replace(charge, cost=1)
                refused = [(await _one(store, one)).limited for _ in range(3)]
                await store.refund(admitted.receipts)

                assert refused == [True] * 3
                assert (await _one(store, one)).state.remaining == 9

    async def test_a_part_of_a_charge_is_given_back(self, store: Store) -> None:
        """A receipt of less than was charged gives that back, and no more."""
        for using in Algorithm:
            [receipt] = (await _one(store, _alice(using, 8))).receipts
            part = replace(receipt, charge=replace(receipt.charge, cost=5))
            await store.refund([part])

            assert await _remaining(store, _alice(using)) == 7

    async def test_a_refund_to_an_unknown_key_does_nothing(self, store: Store) -> None:
        """A key that was forgotten is full already."""
        for using in Algorithm:
            result = await _one(store, _alice(using, 6))
            await store.reset(["alice " + using])
            await store.refund(result.receipts)
            await store.refund([])

            assert await _remaining(store, _alice(using)) == 10
            assert (await _one(store, _alice(using, 10))).state.remaining == 0

    async def test_reset_makes_keys_as_good_as_new(self, store: Store) -> None:
        """Keys that are reset are full; others stay as they are, known or not."""
        for using in Algorithm:
            bob = Charge("bob " + using, _FIVE, using)
            await store.acquire([_alice(using, 10), bob])
            assert (await _one(store, _alice(using))).limited
            await store.reset(["alice " + using, "nobody"])
            await store.reset([])

            assert await _remaining(store, _alice(using)) == 10
            assert await _remaining(store, bob) == 4

    # --- quotas that change

    async def test_a_changed_quota_keeps_the_count(self, store: Store) -> None:
        """Of a bucket what is left is kept, of windows and logs what is spent."""
        for using in Algorithm:
            for spent, lefts in _LEFTS[counts_apart(using)].items():
                key = f"{using} {spent}"
                await _one(store, Charge(key, _TEN, using, spent))
                others = [Charge(key, quota, using) for quota in (_FIVE, _TEN, _TWENTY)]

                assert (
                    tuple([await _remaining(store, each) for each in others]) == lefts
                )

    async def test_a_changed_quota_is_charged_to_the_same_count(
        self, store: Store
    ) -> None:
        """Whichever quota a key is charged by, it has one count: nothing is gained."""
        for using in Algorithm:
            ten, twenty = _alice(using, 9), replace(_alice(using, 1), quota=_TWENTY)
            await _one(store, ten)
            await _one(store, twenty)

            assert (await _one(store, replace(ten, cost=1))).limited
            assert await _remaining(store, ten) == 0

    async def test_a_refusal_by_another_quota_changes_nothing(
        self, store: Store, clock: ManualClock
    ) -> None:
        """What is spent stays spent, however soon that quota would be whole again."""
        daily, soon = Quota.per_day(1000), Quota.per_second(1)
        for using in Algorithm:
            spent = replace(_alice(using, 1000), quota=daily)
            assert not (await _one(store, spent)).limited
            assert (await _one(store, replace(_alice(using), quota=soon))).limited
            clock.advance(1.1)

            assert (await _one(store, spent)).limited

    # --- the rest

    async def test_a_clock_that_is_set_back_gives_nothing(
        self, store: Store, clock: ManualClock
    ) -> None:
        """What is spent stays spent, for no longer than the quota takes to be whole."""
        for using in Algorithm:
            clock.advance(2 * _EIGHT_HOURS_S)
            await _one(store, _alice(using, 10))
            clock.advance(-_EIGHT_HOURS_S)
            refused = await _one(store, _alice(using))
            assert refused.limited
            assert refused.state.remaining == 0
            assert refused.state.retry_after is not None
            assert refused.state.reset_after <= 120
            clock.advance(refused.state.retry_after)

            assert not (await _one(store, _alice(using))).limited

    async def test_a_store_may_be_closed_twice(self, store: Store) -> None:
        """Whoever closes it does not have to know whether somebody else did."""
        await _one(store, Charge("alice", _FIVE))
        await store.aclose()
        await store.aclose()


def _alice(using: Algorithm, cost: int = 1) -> Charge:
    """Return a charge to a key of this algorithm's own."""
    return Charge(f"alice {using}", _TEN, using, cost)


async def _one(store: Store, charge: Charge) -> RateLimitResult:
    [result] = await store.acquire([charge])
    return result


async def _state(store: Store, charge: Charge) -> RateLimitState:
    [result] = await store.peek([charge])
    return result.state


async def _remaining(store: Store, charge: Charge) -> int:
    return (await _state(store, charge)).remaining
