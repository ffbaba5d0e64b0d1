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

That this is GCRA is seen by adding the time to full: the result is the theoretical
arrival time of ITU-T I.371, and the test below is its "not earlier than the limit".
"""

from __future__ import annotations

from functools import lru_cache
from math import gcd
from typing import NamedTuple, Self

from throttled_views.errors import ConfigurationError
from throttled_views.quotas import Algorithm, Quota
from throttled_views.results import Decision

__all__ = ["Bucket", "bucket_of", "rebase", "refund", "settle", "take", "tell"]


class Bucket(NamedTuple):
    """
    A quota in ticks.

    Attributes:
        scale: Ticks in a microsecond; 0 if the quota is zero.
        token: Ticks in which one token comes back.
        capacity: Tokens in a full bucket.
        full: Ticks in which an empty bucket becomes full.
    """

    scale: int
    token: int
    capacity: int
    full: int

    @classmethod
    def of(cls, quota: Quota) -> Self:
        """Return the bucket that *quota* describes."""
        period_us = quota.period_us
        shared = gcd(quota.limit, period_us)
        token = period_us // shared
        return cls(quota.limit // shared, token, quota.burst, quota.burst * token)


_BUCKETS = (Algorithm.TOKEN_BUCKET, Algorithm.GCRA, Algorithm.LEAKY_BUCKET)


@lru_cache(maxsize=1024)
def bucket_of(quota: Quota, using: Algorithm = Algorithm.TOKEN_BUCKET) -> Bucket:
    """
    Return `Bucket.of(quota)`, worked out once for the quotas in use.

    Raises:
        ConfigurationError: *using* is no algorithm of this file.
    """
    if using not in _BUCKETS:
        msg = f"A bucket cannot count by {using!r}. Use Algorithm.TOKEN_BUCKET"
        raise ConfigurationError(msg)
    return Bucket.of(quota)


def settle(empty_at: int | None, now_us: int, bucket: Bucket) -> int:
    """
    Bring a stored instant to where it can be at *now_us*.

    A bucket holds no more than its capacity, so it was empty no earlier than one time
    to full ago (a key without state is full). It cannot become empty later than now
    either: an instant in the future means that the clock was set back, and is pulled
    to now, so that the key is usable again within one time to full.

    Args:
        empty_at: The stored instant in ticks, or None if the key has no state.
        now_us: Now in microseconds, by the clock that wrote *empty_at*.
        bucket: The bucket that *empty_at* was written for.

    Returns:
        The instant in ticks.
    """
    now = now_us * bucket.scale
    oldest = now - bucket.full
    if empty_at is None or empty_at < oldest:
        return oldest
    return min(empty_at, now)


def take(
    empty_at: int | None, now_us: int, bucket: Bucket, cost: int
) -> tuple[bool, int]:
    """
    Take *cost* tokens if the bucket holds them.

    Args:
        empty_at: The stored instant in ticks, or None if the key has no state.
        now_us: Now in microseconds, by the clock that wrote *empty_at*.
        bucket: The bucket to hold the key to.
        cost: Tokens to take; 0 takes nothing and is admitted.

    Returns:
        Whether the request is refused, and the settled instant after it. A refusal is
        free: but for being settled, the instant is what it was.
    """
    settled = settle(empty_at, now_us, bucket)
    after = settled + cost * bucket.token
    if after > now_us * bucket.scale or not bucket.scale:
        return True, settled
    return False, after


def tell(
    limited: bool,  # noqa: FBT001 - the first of the two that `take` returns
    empty_at: int,
    now_us: int,
    bucket: Bucket,
    cost: int,
) -> Decision:
    """
    Tell where a key stands: what `take` returned, in tokens and microseconds.

    Args:
        limited: Whether the request is refused.
        empty_at: The settled instant in ticks, after the request.
        now_us: Now in microseconds.
        bucket: The bucket the key is held to.
        cost: What the request costs.
    """
    scale = bucket.scale
    if not scale:  # a quota of zero admits nothing, ever
        return Decision(limited, 0, 0, 0, None, now_us)
    level = now_us * scale - empty_at
    retry_us: int | None = 0
    if limited:
        short = cost * bucket.token - level
        retry_us = None if cost > bucket.capacity else max(0, -(-short // scale))
    return Decision(
        limited,
        bucket.capacity,
        level // bucket.token,
        -((level - bucket.full) // scale),
        retry_us,
        now_us,
    )


def refund(empty_at: int, now_us: int, bucket: Bucket, cost: int) -> int:
    """Give *cost* tokens back to a settled bucket, which never holds over capacity."""
    return settle(empty_at - cost * bucket.token, now_us, bucket)


def rebase(empty_at: int, now_us: int, old: Bucket, new: Bucket) -> int:
    """
    Carry a key over to a bucket of another rate.

    What it holds stays, up to the new capacity: no change of quota gives anything. At
    another rate a part of a token, which was worth another time, is dropped.

    Returns:
        The settled instant in ticks of *new*.
    """
    settled = settle(empty_at, now_us, old)
    if old.scale == new.scale and old.token == new.token:
        return settle(settled, now_us, new)
    level = (now_us * old.scale - settled) // old.token
    return settle(now_us * new.scale - level * new.token, now_us, new)
