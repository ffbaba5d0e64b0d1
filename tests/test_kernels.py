"""All algorithms: which kernel counts for which, and what holds for every one."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.requests import Request as HTTPRequest

from tests.asgi import answers, app_of, statuses
from tests.strategies import MONTH_US, quotas
from tests.window_models import requests
from throttled_views import (
    Algorithm,
    ConfigurationError,
    InvalidAnswerError,
    Limit,
    Limiter,
    Quota,
    Throttled,
    ThrottledRouter,
)
from throttled_views.algorithms.base import AnyKernel
from throttled_views.algorithms.bucket import Bucket
from throttled_views.algorithms.kernels import counts_apart, kernel_of
from throttled_views.algorithms.log import SlidingLog
from throttled_views.algorithms.windows import FixedWindow, SlidingWindow
from throttled_views.results import Decision

KINDS: dict[Algorithm, type[AnyKernel]] = {
    Algorithm.TOKEN_BUCKET: Bucket,
    Algorithm.GCRA: Bucket,
    Algorithm.LEAKY_BUCKET: Bucket,
    Algorithm.FIXED_WINDOW: FixedWindow,
    Algorithm.SLIDING_WINDOW: SlidingWindow,
    Algorithm.SLIDING_LOG: SlidingLog,
}
BUCKETS: tuple[Algorithm, ...] = (
    Algorithm.TOKEN_BUCKET,
    Algorithm.GCRA,
    Algorithm.LEAKY_BUCKET,
)
WINDOWS = (Algorithm.FIXED_WINDOW, Algorithm.SLIDING_WINDOW, Algorithm.SLIDING_LOG)

each_algorithm = pytest.mark.parametrize("using", Algorithm)
each_window = pytest.mark.parametrize("using", WINDOWS)

BURST = "5/m burst 9"


async def hello() -> str:
    """Be a handler."""
    return "hello"


# --- which kernel ---------------------------------------------------------------------


@pytest.mark.parametrize(("using", "kind"), KINDS.items())
def test_each_algorithm_has_its_kernel(using: Algorithm, kind: type[AnyKernel]) -> None:
    """Three names are of one kernel, and each window has its own."""
    kernel = kernel_of(Quota.per_minute(5), using)

    assert type(kernel) is kind
    assert 5 == kernel.capacity


def test_the_default_is_the_token_bucket() -> None:
    """Where no algorithm is named, a bucket counts."""
    quota = Quota.per_minute(5)

    assert kernel_of(quota, Algorithm.TOKEN_BUCKET) == kernel_of(quota)


@each_algorithm
def test_equal_quotas_have_one_kernel(using: Algorithm) -> None:
    """It is worked out once: who has an equal quota gets the same object."""
    assert kernel_of(Quota.parse("60/m"), using) is kernel_of(
        Quota.per_minute(60), using
    )


@each_algorithm
def test_a_kernel_is_a_value(using: Algorithm) -> None:
    """Two of equal numbers are equal, and hash alike; another kind is another value."""
    one, other = (KINDS[using].of(Quota.per_minute(5)) for _ in range(2))
    others = {kernel_of(Quota.per_minute(5), each) for each in Algorithm}

    assert (one, hash(one)) == (other, hash(other))
    assert 4 == len(others)


@pytest.mark.parametrize("one", Algorithm)
@pytest.mark.parametrize("other", Algorithm)
def test_only_the_names_of_the_bucket_count_together(
    one: Algorithm, other: Algorithm
) -> None:
    """Two algorithms count apart unless their kernel is of one kind."""
    assert (KINDS[one] is not KINDS[other]) == counts_apart(one, other)


# --- a burst, which no window can honour ----------------------------------------------


@pytest.mark.parametrize("using", BUCKETS)
def test_a_bucket_has_a_burst(using: Algorithm) -> None:
    """Its capacity is the burst of the quota."""
    assert 9 == kernel_of(Quota.parse(BURST), using).capacity


@each_window
def test_a_burst_that_is_the_limit_is_none(using: Algorithm) -> None:
    """What a window admits at once anyway may be said."""
    assert 5 == kernel_of(Quota.per_minute(5, burst=5), using).capacity


REFUSING: dict[str, Callable[[Algorithm], object]] = {
    "a kernel": lambda using: kernel_of(Quota.parse(BURST), using),
    "a limit": lambda using: Limit(BURST, using=using),
    "by hand": lambda using: Throttled(BURST, using=using),
    "by hand, of a limiter": lambda using: Limiter(using=using).throttled(BURST),
    "a decorated function": lambda using: Limiter(using=using).limit(BURST)(hello),
    "a decorator with options": lambda using: Limiter().limit(BURST, using=using),
    "a dependency with options": lambda using: Limiter().dependency(BURST, using=using),
    "a route": lambda using: ThrottledRouter(Limiter(BURST, using=using)).add_api_route(
        "/", hello
    ),
}


@each_window
@pytest.mark.parametrize("declare", REFUSING.values(), ids=REFUSING)
def test_a_window_refuses_a_burst(
    using: Algorithm, declare: Callable[[Algorithm], object]
) -> None:
    """It fails where it is declared, or registered, and says what to write."""
    with pytest.raises(
        ConfigurationError,
        match=rf"5/m burst 9 has a burst, which {using} cannot honour.* Write '5/m', "
        r"or using=Algorithm\.TOKEN_BUCKET$",
    ):
        declare(using)


@each_window
async def test_a_quota_function_cannot_choose_a_burst_for_a_window(
    using: Algorithm,
) -> None:
    """The request that it chose it for ends with an error that says so."""

    def choose(request: HTTPRequest) -> Quota:
        return Quota.parse(BURST if request.headers["host"] else "5/m")

    router = ThrottledRouter(Limiter(using=using))
    router.add_api_route("/", router.limiter.limit(choose)(hello))
    app = app_of(router)

    with pytest.raises(InvalidAnswerError, match=r"choose gave .* has a burst, which"):
        await answers(app, "GET /")
    assert [500] == await statuses(app, "GET /")


# --- what holds for every algorithm ---------------------------------------------------


def kernels(using: Algorithm) -> st.SearchStrategy[tuple[AnyKernel, Quota]]:
    """Draw kernels of one kind; those of windows for quotas without a burst."""
    drawn = quotas()
    if using in WINDOWS:
        drawn = drawn.map(lambda quota: Quota(quota.limit, quota.period))
    return drawn.map(lambda quota: (kernel_of(quota, using), quota))


def seen(kernel: AnyKernel, state: object, now_us: int) -> Decision:
    """Return all that is seen of a key: what a request without a cost is told."""
    limited, settled = kernel.take(state, now_us, 0)
    return kernel.tell(limited, settled, now_us, 0)


@each_algorithm
@given(data=st.data())
def test_who_comes_back_when_told_is_admitted(
    using: Algorithm, data: st.DataObject
) -> None:
    """After the announced wait it passes, and a microsecond earlier it does not."""
    kernel, quota = data.draw(kernels(using))
    state = None
    for at_us, cost in data.draw(requests(quota)):
        limited, state = kernel.take(state, at_us, cost)
        retry_us = kernel.tell(limited, state, at_us, cost).retry_us

        if not limited:
            assert 0 == retry_us
        elif retry_us is None:
            assert cost > kernel.capacity
        else:
            assert kernel.take(state, at_us + retry_us - 1, cost)[0]
            assert not kernel.take(state, at_us + retry_us, cost)[0]


@each_algorithm
@given(data=st.data())
def test_no_number_is_negative(using: Algorithm, data: st.DataObject) -> None:
    """Whatever happens, what remains and what is to wait are 0 or more."""
    kernel, quota = data.draw(kernels(using))
    state = None
    for at_us, cost in data.draw(requests(quota)):
        limited, state = kernel.take(state, at_us, cost)
        decision = kernel.tell(limited, state, at_us, cost)

        assert 0 <= decision.remaining <= decision.limit == kernel.capacity
        assert 0 <= decision.reset_us
        assert 0 <= (decision.retry_us or 0)
        assert 0 <= kernel.fullness(state, at_us)[1] <= 2**32


@each_algorithm
@given(data=st.data())
def test_a_refusal_changes_nothing_that_is_seen(
    using: Algorithm, data: st.DataObject
) -> None:
    """Now and later, a key is where it would be without the requests it refused."""
    kernel, quota = data.draw(kernels(using))
    state = None
    for at_us, cost in data.draw(requests(quota)):
        limited, after = kernel.take(state, at_us, cost)
        if limited:
            later_us = at_us + data.draw(st.integers(0, 2 * quota.period_us))

            assert seen(kernel, state, at_us) == seen(kernel, after, at_us)
            assert seen(kernel, kernel.settle(state, at_us), later_us) == seen(
                kernel, after, later_us
            )
        state = after


@each_algorithm
@given(data=st.data())
def test_a_refund_is_never_above_the_capacity(
    using: Algorithm, data: st.DataObject
) -> None:
    """However much is given back, and when, a key is full at most."""
    kernel, quota = data.draw(kernels(using))
    state = None
    history = data.draw(requests(quota))
    for at_us, cost in history:
        _, state = kernel.take(state, at_us, cost)
        charged_us, back = data.draw(st.sampled_from(history))
        now_us = at_us + data.draw(st.just(0) | st.integers(0, MONTH_US))
        before = seen(kernel, state, now_us)
        state = kernel.refund(state, now_us, back, charged_us)
        after = seen(kernel, state, now_us)

        assert before.remaining <= after.remaining <= kernel.capacity
        assert before.reset_us >= after.reset_us


@each_algorithm
@given(data=st.data())
def test_a_key_is_whole_from_then_on(using: Algorithm, data: st.DataObject) -> None:
    """Once it is as good as none it looks like a fresh key, and not earlier."""
    kernel, quota = data.draw(kernels(using))
    state = None
    for at_us, cost in data.draw(requests(quota, steps_back=False)):
        limited, state = kernel.take(state, at_us, cost)
        whole_us = kernel.whole_at(state)

        assert seen(kernel, None, max(at_us, whole_us)) == seen(
            kernel, state, max(at_us, whole_us)
        )
        if whole_us > at_us:
            assert seen(kernel, state, whole_us - 1).reset_us
        else:
            assert not kernel.tell(limited, state, at_us, cost).reset_us


@given(data=st.data(), quota=quotas())
def test_the_names_of_the_bucket_admit_the_same(
    data: st.DataObject, quota: Quota
) -> None:
    """What one of the three answers, the others answer, to the last number."""
    states: dict[Algorithm, Any] = dict.fromkeys(BUCKETS)
    for at_us, cost in data.draw(requests(quota)):
        told = set[Decision]()
        for using in BUCKETS:
            kernel = kernel_of(quota, using)
            limited, states[using] = kernel.take(states[using], at_us, cost)
            told.add(kernel.tell(limited, states[using], at_us, cost))

        assert 1 == len(told)
