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

__all__ = ["counts_apart", "kernel_of"]

_KERNELS: Mapping[Algorithm, type[AnyKernel]] = {
    Algorithm.TOKEN_BUCKET: Bucket,
    Algorithm.GCRA: Bucket,
    Algorithm.LEAKY_BUCKET: Bucket,
    Algorithm.FIXED_WINDOW: FixedWindow,
    Algorithm.SLIDING_WINDOW: SlidingWindow,
    Algorithm.SLIDING_LOG: SlidingLog,
}


def kernel_of(quota: Quota, using: Algorithm = Algorithm.TOKEN_BUCKET) -> AnyKernel:
    """
    Return the kernel that holds a key to *quota*; one object for equal ones in use.

    Raises:
        ConfigurationError: *using* is a window, and *quota* has a burst.
    """
    kind = _KERNELS[using]
    if kind is not Bucket and quota.burst != quota.limit:
        msg = (
            f"{quota} has a burst, which {using} cannot honour: a window admits its "
            f"limit at once. Write {str(quota).partition(' burst')[0]!r}, or "
            "using=Algorithm.TOKEN_BUCKET"
        )
        raise ConfigurationError(msg)
    return _made(kind, quota)


@lru_cache(maxsize=1024)
def _made(kind: type[AnyKernel], quota: Quota) -> AnyKernel:
    return kind.of(quota)


def counts_apart(using: Algorithm, other: Algorithm = Algorithm.TOKEN_BUCKET) -> bool:
    """Tell whether two algorithms can make nothing of each other's counts."""
    return _KERNELS[using] is not _KERNELS[other]
