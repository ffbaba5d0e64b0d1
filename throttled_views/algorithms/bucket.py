"""
The token bucket, which is also GCRA and the leaky bucket used as a meter.

Rules of this file:

1. Integers only, and none is ever rounded in a way that admits a request too many.
2. The whole state of a key is *the instant at which its bucket was empty*. Tokens have
   been dripping in ever since, up to the capacity. A request takes tokens by moving
   that instant later; it is admitted if the instant does not pass now. A smaller
   capacity then clamps by itself, and time spent waiting is never lost to rounding.
3. Instants are counted in *ticks*, of which `Bucket.scale` make a microsecond. The
   scale is chosen so that one token is a whole number of ticks: at 7 per minute a
   token takes 60,000,000 ticks of a seventh of a microsecond.

A bucket may let a request in *before its turn*, which then waits: the tokens are taken
now and drip in later. That is a bucket which is so much larger, and tells of what it
really holds; the instant at which the larger one was empty is never later than now.

That this is GCRA is seen by adding the time to full: the result is the theoretical
arrival time of ITU-T I.371, and the test below is its "not earlier than the limit".
"""

from __future__ import annotations

from math import gcd
from typing import NamedTuple, Self

from throttled_views.quotas import Quota
from throttled_views.results import Decision

__all__ = ["Bucket"]


class Bucket(NamedTuple):
    """
    A quota in ticks. The state of a key is the instant at which it was empty, in ticks.

    Attributes:
        scale: Ticks in a microsecond; 0 if the quota is zero.
        token: Ticks in which one token comes back.
        capacity: Tokens in a full bucket.
        full: Ticks in which an empty bucket becomes full; with *delay*.
        delay: Ticks that a request may wait for its turn.
    """

    scale: int
    token: int
    capacity: int
    full: int
    delay: int = 0

    @classmethod
    def of(cls, quota: Quota, delay_us: int = 0) -> Self:
        """Return the bucket of *quota*, with turns that are up to *delay_us* away."""
        period_us = quota.period_us
        shared = gcd(quota.limit, period_us)
        token = period_us // shared
        scale = quota.limit // shared
        delay = delay_us * scale
        return cls(scale, token, quota.burst, quota.burst * token + delay, delay)

    def settle(self, state: int | None, now_us: int) -> int:
        """
        Bring a stored instant to where it can be at *now_us*.

        A bucket holds no more than its capacity, so it was empty no earlier than one
        time to full ago (a key without state is full). It cannot become empty later
        than now either: an instant in the future means that the clock was set back, and
        is pulled to now, so that the key is usable again within one time to full.
        """
        now = now_us * self.scale
        oldest = now - self.full
        if state is None or state < oldest:
            return oldest
        return min(state, now)

    def take(self, state: int | None, now_us: int, cost: int) -> tuple[bool, int]:
        """Take *cost* tokens if the bucket holds them; see `Kernel.take`."""
        settled = self.settle(state, now_us)
        after = settled + cost * self.token
        if after > now_us * self.scale or cost > self.capacity or not self.scale:
            return True, settled
        return False, after

    def tell(
        self,
        limited: bool,  # noqa: FBT001 - the first of the two that `take` returns
        state: int,
        now_us: int,
        cost: int,
    ) -> Decision:
        """Tell what the bucket holds, in tokens and microseconds; see `Kernel.tell`."""
        scale = self.scale
        if not scale:  # a quota of zero admits nothing, ever
            return Decision(limited, 0, 0, 0, None, now_us)
        level = now_us * scale - state
        retry_us: int | None = 0
        if limited:
            short = cost * self.token - level
            retry_us = None if cost > self.capacity else max(0, -(-short // scale))
        held = level - self.delay  # what others wait for is less than nothing
        return Decision(
            limited,
            self.capacity,
            max(0, held) // self.token,
            -((level - self.full) // scale),
            retry_us,
            now_us,
            0 if limited else max(0, -(held // scale)),
        )

    def refund(self, state: int, now_us: int, cost: int, at_us: int) -> int:
        """
        Give *cost* tokens back; a bucket never holds over its capacity.

        What was charged a whole time to full ago has come back by itself. And nothing
        is given back while others wait: they were told their turns, and who came next
        would get one of those.
        """
        is_waited_for = now_us * self.scale - state < self.delay
        if is_waited_for or (now_us - at_us) * self.scale >= self.full - self.delay:
            return state
        return self.settle(state - cost * self.token, now_us)

    def rebase(self, state: int, now_us: int, old: Self) -> int:
        """
        Carry a key over from a bucket of another rate or capacity.

        What it really holds is kept, also where that is less than nothing: turns that
        were given stay given. At another rate a part of a token, which was worth
        another time, is dropped.
        """
        level = now_us * old.scale - state
        if level >= old.full:
            return self.settle(None, now_us)
        held = max(0, level) - old.delay
        if old.scale != self.scale or old.token != self.token:
            held = held // old.token * self.token
        return self.settle(now_us * self.scale - held - self.delay, now_us)

    def whole_at(self, state: int) -> int:
        """Return the microsecond from which on the bucket is full."""
        return -((-state - self.full) // self.scale)

    def whole_below(self, now_us: int) -> int:
        """Return the instant before which it was empty whatever is full by now."""
        return now_us * self.scale - self.full + 1

    def fullness(self, state: int, now_us: int) -> tuple[bool, int]:
        """Tell whether the bucket holds a token, and how full it is, of 2**32."""
        level = now_us * self.scale - state
        return level >= self.token, (level << 32) // self.full

    def pack(self, state: int) -> int:
        """Return *state*: it is one number."""
        return state

    def unpack(self, packed: int) -> int:
        """Return what was packed."""
        return packed
