"""Which kernel counts for which algorithm."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from throttled_views.algorithms.base import AnyKernel
from throttled_views.algorithms.bucket import Bucket
from throttled_views.algorithms.log import SlidingLog
from throttled_views.algorithms.windows import FixedWindow, SlidingWindow
from throttled_views.errors import ConfigurationError
from throttled_views.quotas import Algorithm, Quota
from throttled_views.results import Charge

__all__ = ["check_turns", "counter_of", "counts_apart", "kernel_of"]

_US_PER_S = 1_000_000
_MOST_WAITING = 10**12  # as many as a quota may have, so that scripts can count them

_KERNELS: Mapping[Algorithm, type[AnyKernel]] = {
    Algorithm.TOKEN_BUCKET: Bucket,
    Algorithm.GCRA: Bucket,
    Algorithm.LEAKY_BUCKET: Bucket,
    Algorithm.FIXED_WINDOW: FixedWindow,
    Algorithm.SLIDING_WINDOW: SlidingWindow,
    Algorithm.SLIDING_LOG: SlidingLog,
}


def kernel_of(
    quota: Quota, using: Algorithm = Algorithm.TOKEN_BUCKET, max_delay: float = 0.0
) -> AnyKernel:
    """
    Return the kernel that holds a key to *quota*; one object for equal ones in use.

    Args:
        quota: The quota.
        using: The algorithm.
        max_delay: Seconds that a request may wait for its turn.

    Raises:
        ConfigurationError: *using* is a window, and *quota* has a burst, or there is a
            *max_delay*; or too many requests could wait.
    """
    kind = _KERNELS[using]
    if kind is not Bucket and quota.burst != quota.limit:
        msg = (
            f"{quota} has a burst, which {using} cannot honour: a window admits its "
            f"limit at once. Write {str(quota).partition(' burst')[0]!r}, or "
            "using=Algorithm.TOKEN_BUCKET"
        )
        raise ConfigurationError(msg)
    check_turns(using, max_delay)
    delay_us = round(max_delay * _US_PER_S)
    if delay_us * quota.limit > _MOST_WAITING * quota.period_us:
        msg = (
            f"Over {_MOST_WAITING:,} requests could wait under {quota} for "
            f"max_delay={max_delay!r} seconds. Write a shorter delay"
        )
        raise ConfigurationError(msg)
    return _made(kind, quota, delay_us)


def check_turns(using: Algorithm, max_delay: float) -> None:
    """Raise ConfigurationError if *using* cannot tell when requests have their turn."""
    if max_delay and counts_apart(using):
        msg = (
            f"max_delay={max_delay!r} does not go with {using}, which knows no turns. "
            "Write using=Algorithm.TOKEN_BUCKET"
        )
        raise ConfigurationError(msg)


@lru_cache(maxsize=1024)
def _made(kind: type[AnyKernel], quota: Quota, delay_us: int) -> AnyKernel:
    return Bucket.of(quota, delay_us) if kind is Bucket else kind.of(quota)


def counter_of(charge: Charge) -> AnyKernel:
    """Return the kernel that *charge* is counted by."""
    return kernel_of(charge.quota, charge.algorithm, charge.max_delay)


def counts_apart(using: Algorithm, other: Algorithm = Algorithm.TOKEN_BUCKET) -> bool:
    """Tell whether two algorithms can make nothing of each other's counts."""
    return _KERNELS[using] is not _KERNELS[other]
