"""Several processes share a quota exactly."""

import asyncio
import multiprocessing
import time
from collections.abc import Iterator
from datetime import timedelta
from itertools import chain
from multiprocessing.pool import Pool

import pytest
from hypothesis import settings

from tests.redis.stores import PATIENT_S
from throttled_views import Algorithm, Charge, Quota
from throttled_views.algorithms.kernels import kernel_of
from throttled_views.stores.redis import RedisStore

PROCESSES = 4
TASKS = 50
SECONDS = 10.0 if settings().max_examples >= 100 else 3.0  # as the profile says
STEP_US = 1_000
US_PER_S = 1_000_000

# In one second; a bucket gets one back every 2 ms.
QUOTA = Quota(500, timedelta(seconds=1))
FAMILIES = (
    Algorithm.TOKEN_BUCKET,
    Algorithm.FIXED_WINDOW,
    Algorithm.SLIDING_WINDOW,
    Algorithm.SLIDING_LOG,
)


def hammer(url: str, using: Algorithm) -> list[int]:
    """Ask as fast as refusals allow, and return when a request was admitted."""
    return asyncio.run(_hammer(url, using))


async def _hammer(url: str, using: Algorithm) -> list[int]:
    store = RedisStore(url, timeout=PATIENT_S)
    charge = Charge("alice", QUOTA, using)
    await asyncio.sleep(-time.time() % 1)  # a window has just begun, for all processes
    until = asyncio.get_running_loop().time() + SECONDS
    admitted: list[int] = []

    async def ask() -> None:
        while asyncio.get_running_loop().time() < until:
            [result] = await store.acquire([charge])
            admitted.extend(each.at_us for each in result.receipts)
            # As a client does who is told to wait.
            await asyncio.sleep(result.state.retry_after or 0)

    await asyncio.gather(*(ask() for _ in range(TASKS)))
    await store.aclose()
    return admitted


def most(using: Algorithm, first_us: int, last_us: int) -> int:
    """Return what one who asks all the time would be admitted."""
    kernel, state, admitted = kernel_of(QUOTA, using), None, 0
    for now_us in chain(range(first_us, last_us, STEP_US), [last_us]):
        while True:
            limited, state = kernel.take(state, now_us, 1)
            if limited:
                break
            admitted += 1
    return admitted


@pytest.fixture(name="pool", scope="module")
def pool_fixture() -> Iterator[Pool]:
    """Give processes that have nothing in common."""
    with pytest.MonkeyPatch.context() as patch:
        # They are to be as fast as they can: nobody measures what they cover.
        patch.delenv("COVERAGE_PROCESS_CONFIG", raising=False)
        pool = multiprocessing.get_context("spawn").Pool(PROCESSES)
    with pool:
        pool.starmap(isinstance, [(0, int)] * PROCESSES)
        yield pool
        pool.close()
        pool.join()


@pytest.mark.parametrize("using", FAMILIES)
def test_processes_share_a_quota(pool: Pool, redis_url: str, using: Algorithm) -> None:
    """Every admitted request had room, by the clock of the server, and few had none."""
    parts = pool.starmap(hammer, [(redis_url, using)] * PROCESSES, chunksize=1)
    admitted = sorted(chain.from_iterable(parts))
    kernel, state = kernel_of(QUOTA, using), None
    refused = 0
    for now_us in admitted:
        limited, state = kernel.take(state, now_us, 1)
        refused += limited

    assert 0 == refused
    assert all(parts)
    assert admitted[-1] - admitted[0] > SECONDS * US_PER_S / 2
    # Up to when the last window began, in which nobody may have asked long enough.
    cut_us = admitted[-1] // US_PER_S * US_PER_S
    in_time = sum(at_us < cut_us for at_us in admitted)
    assert in_time >= 0.99 * most(using, admitted[0], cut_us - 1)
