"""What tests of applications are given: `no_limits`, `assert_throttled`, fixtures."""

import asyncio
import math
import subprocess
import sys
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from typing import Any

import http_sf
import httpx
import pytest
from fastapi.testclient import TestClient
from hypothesis import given
from hypothesis import strategies as st

from tests.asgi import answers, app_of, fields_of, frozen, frozen_store, statuses
from throttled_views import (
    LEGACY_HEADERS,
    ConfigurationError,
    HeaderPolicy,
    IETFHeaders,
    InvalidKeyError,
    Limiter,
    MemoryStore,
    Quota,
    ThrottledRouter,
    ThrottledView,
)
from throttled_views.limiter import default_limiter
from throttled_views.testing import ManualClock, assert_throttled, no_limits
from throttled_views.testing._structured import numbers_of
from throttled_views.testing.fixtures import manual_clock, memory_store

__all__ = ["manual_clock", "memory_store"]


class Orders(ThrottledView):
    path = "/orders"
    throttle = Quota.per_minute(1)

    async def get(self) -> list[str]:
        return []


# --- no_limits


async def test_nothing_is_limited_within() -> None:
    """Nothing is counted, and no fields are sent; afterwards all is as before."""
    limiter = frozen()
    app = app_of(Orders.as_router(limiter))
    with no_limits(limiter):
        told = await answers(app, *["GET /orders"] * 3)

    assert [200] * 3 == [each.status_code for each in told]
    assert [{}] * 3 == [fields_of(each) for each in told]
    assert [200, 429] == await statuses(app, *["GET /orders"] * 2)


async def test_checks_by_hand_are_lifted_too() -> None:
    """They admit everything, as to a fresh key, and charge nothing."""
    limiter = frozen()
    by_hand = limiter.throttled(["0/m", "3/m"])
    with no_limits(limiter):
        results = [await by_hand.limit("alice"), await by_hand.peek("alice")]
        await by_hand.refund(results[0])
        with pytest.raises(InvalidKeyError):
            await by_hand.limit("")

    assert [(False, 0.0, ())] * 2 == [
        (each.limited, each.state.retry_after, each.receipts) for each in results
    ]
    assert (await by_hand.limit("alice")).limited


def test_an_error_within_restores() -> None:
    """However a block ends, limits are on again."""
    limiter = frozen()
    with pytest.raises(ZeroDivisionError), no_limits(limiter):
        raise ZeroDivisionError

    assert limiter.enabled


def test_a_limiter_that_was_off_stays_off() -> None:
    """It is restored to what it was."""
    limiter = frozen()
    limiter.enabled = False
    with no_limits(limiter):
        limiter.enabled = True

    assert not limiter.enabled


def test_blocks_may_be_nested() -> None:
    """The outermost one restores; one object may be entered several times."""
    limiter, other = frozen(), frozen()
    block, seen = no_limits(limiter), list[bool]()
    with block:
        with block, no_limits(limiter), no_limits(other):
            seen.append(limiter.enabled)
        seen += [limiter.enabled, other.enabled]

    assert [False, False, True] == seen
    assert limiter.enabled


def test_blocks_may_overlap() -> None:
    """Tests that run at the same time do not turn limits on for each other."""
    limiter, first, second = frozen(), ExitStack(), ExitStack()
    first.enter_context(no_limits(limiter))
    second.enter_context(no_limits(limiter))
    first.close()
    during = limiter.enabled
    second.close()

    assert (False, True) == (during, limiter.enabled)


def test_limits_of_the_process_are_lifted_unless_told_otherwise() -> None:
    """Views without a limiter share one."""
    with no_limits():
        during = default_limiter().enabled

    assert (False, True) == (during, default_limiter().enabled)


def test_what_is_no_limiter_cannot_be_lifted() -> None:
    """A router, say, is refused."""
    with pytest.raises(ConfigurationError, match="is no limiter"):
        no_limits(ThrottledRouter())  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]


def test_it_is_no_decorator() -> None:
    """Around an async test it would be over before the test began."""
    assert not callable(no_limits(frozen()))


# --- assert_throttled


async def refused(headers: HeaderPolicy | None = LEGACY_HEADERS) -> httpx.Response:
    """Return a refusal of the limiter's, which is told to come back in a minute."""
    limiter = Limiter(store=frozen_store(), headers=headers)
    _, answer = await answers(app_of(Orders.as_router(limiter)), *["GET /orders"] * 2)
    return answer


@pytest.mark.parametrize(
    "headers",
    [None, IETFHeaders(), LEGACY_HEADERS],
    ids=["none", "IETF", "legacy"],
)
@pytest.mark.parametrize("retry_after", [None, 60, 59.2], ids=str)
async def test_a_refusal_is_throttled(
    headers: HeaderPolicy | None, retry_after: float | None
) -> None:
    """Whatever fields there are; a wait is compared in whole seconds."""
    assert_throttled(await refused(headers), retry_after=retry_after)


def test_a_response_of_the_test_client_will_do() -> None:
    """And one that is refused for ever, which has no wait."""
    limiter = Limiter("0/m", store=frozen_store())
    router = ThrottledRouter(limiter)

    @router.get("/")
    async def get() -> None: ...

    answer = TestClient(app_of(router)).get("/")

    assert_throttled(answer, retry_after=math.inf)
    with pytest.raises(AssertionError, match="Expected a Retry-After, and there is no"):
        assert_throttled(answer)


FIELDS = {
    "Retry-After": "30",
    "RateLimit-Limit": "5",
    "RateLimit-Remaining": "0",
    "RateLimit-Reset": "60",
}


@pytest.mark.parametrize(
    ("status", "changed", "retry_after", "said"),
    [
        (200, {}, None, "Expected status 429, not 200. It says Retry-After: 30, "),
        (429, {"Retry-After": None}, None, "there is none: the request would never"),
        (429, {"Retry-After": "0"}, None, "Expected a Retry-After of 1 or more, not 0"),
        (
            429,
            {"Retry-After": "soon"},
            None,
            "a whole number in Retry-After, not",
        ),
        (429, {"Retry-After": "1.5"}, None, "a whole number in Retry-After, not '1.5'"),
        (429, {"Retry-After": "²"}, None, "a whole number in Retry-After"),
        (429, {}, 29, "Expected Retry-After: 29, not 30"),
        (429, {}, 0, "Expected Retry-After: 1, not 30"),
        (429, {}, math.inf, "Expected no Retry-After, not 30"),
        (429, {"RateLimit-Remaining": "6"}, None, "There is more left than the limit"),
        (429, {"RateLimit-Reset": "29"}, None, "The wait is longer than the reset"),
        (429, {"RateLimit-Limit": "-5"}, None, "a whole number in RateLimit-Limit"),
    ],
)
def test_what_is_wrong_is_said(
    status: int, changed: dict[str, str | None], retry_after: float | None, said: str
) -> None:
    """The message tells what was expected and what came."""
    fields = {k: v for k, v in {**FIELDS, **changed}.items() if v is not None}
    response = httpx.Response(status, headers=httpx.Headers(fields, encoding="utf-8"))

    with pytest.raises(AssertionError) as caught:
        assert_throttled(response, retry_after=retry_after)

    assert said in str(caught.value)


DRAFT = {
    "Retry-After": "30",
    "RateLimit-Policy": '"a";q=5;w=60, "b, \\"x\\"; r=9";q=10;w=60',
    "RateLimit": '"a";r=0;t=30, "b, \\"x\\"; r=9";r=10;t=0',
}


@pytest.mark.parametrize(
    "changed",
    [
        {},
        {"RateLimit-Policy": None},
        {"RateLimit": None},
        {"RateLimit": '"a";r=0;t=30;pk=:YQ==:'},
        {"RateLimit": '"a"; t=30; r=2'},
        {"RateLimit": '"other";r=99;t=30'},
    ],
    ids=str,
)
def test_fields_of_the_draft_go_together(changed: dict[str, str | None]) -> None:
    """One limit tells the wait, and none has more left than its capacity."""
    fields = {k: v for k, v in {**DRAFT, **changed}.items() if v is not None}

    assert_throttled(httpx.Response(429, headers=fields), retry_after=30)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"RateLimit": '"1";r=5;t=1'}, "Expected a limit with t=30, as Retry-After"),
        ({"RateLimit": '"a";r=0'}, "Expected a limit with t=30"),
        ({"Retry-After": "31"}, "Expected a limit with t=31"),
        ({"Retry-After": None}, "Expected a limit with no t, as Retry-After says"),
        ({"RateLimit": '"a";r=6;t=30'}, '"a" has more left than its q. It says Retry'),
        ({"RateLimit": '"a";t=30'}, '"a" does not tell what is left, its r'),
        ({"RateLimit": '"a";r=-1;t=30'}, '"a" does not tell what is left'),
        ({"RateLimit": '"a";r=0.5;t=30'}, '"a" does not tell what is left'),
        ({"RateLimit": "limit=5"}, "Expected a list of limits in RateLimit, not 'lim"),
        ({"RateLimit": ""}, "Expected a list of limits in RateLimit, not ''"),
        ({"RateLimit-Policy": '"a";q=5,'}, "a list of limits in RateLimit-Policy"),
    ],
    ids=str,
)
def test_what_is_wrong_with_the_draft_is_said(
    changed: dict[str, str | None], said: str
) -> None:
    """Its fields are held to Retry-After, and to each other."""
    fields = {k: v for k, v in {**DRAFT, **changed}.items() if v is not None}
    retry_after = None if "Retry-After" in fields else math.inf

    with pytest.raises(AssertionError) as caught:
        assert_throttled(httpx.Response(429, headers=fields), retry_after=retry_after)

    assert said in str(caught.value)


@given(
    st.dictionaries(
        st.text(st.characters(min_codepoint=32, max_codepoint=126)),
        st.dictionaries(st.sampled_from("qrtw"), st.integers(0, 10**15 - 1)),
        min_size=1,
    )
)
def test_lists_are_read_as_they_are_written(lists: dict[str, dict[str, int]]) -> None:
    """Whatever printable characters a name has, by a writer of structured fields."""
    written: Any = [*lists.items()]  # which its types do not know to be items
    text = http_sf.ser(written)
    quoted = {http_sf.ser(name): numbers for name, numbers in lists.items()}

    assert quoted == numbers_of(text)


def test_a_refusal_of_several_limits_is_throttled() -> None:
    """By a limit of each kind: one refuses, one has room, and one never admits."""
    limiter = Limiter(store=frozen_store(), headers=IETFHeaders())
    router = ThrottledRouter(limiter)

    @router.get("/some")
    @limiter.limit(["9/m", "1/m", "2/h"])
    async def some() -> None: ...

    @router.get("/none")
    @limiter.limit(["9/m", "0/m"])
    async def none() -> None: ...

    client = TestClient(app_of(router))
    client.get("/some")

    assert_throttled(client.get("/some"), retry_after=60)
    assert_throttled(client.get("/none"), retry_after=math.inf)


def test_a_response_that_says_nothing_is_told_so() -> None:
    """It is not of a limited route at all."""
    with pytest.raises(AssertionError, match=r"not 404\. It says nothing of limits"):
        assert_throttled(httpx.Response(404))


@pytest.mark.parametrize("given", [429, None, {"status_code": 429}, Limiter], ids=repr)
def test_what_is_no_response_is_refused(given: object) -> None:
    """That is a mistake in the test, and not a failure of the application."""
    with pytest.raises(TypeError, match=r"is no response\. Write assert_throttled"):
        assert_throttled(given)  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]


async def later() -> httpx.Response:
    """Answer later."""
    return httpx.Response(429)


@pytest.mark.parametrize(
    "make", [later, lambda: asyncio.get_running_loop().create_future()]
)
async def test_a_response_must_be_awaited(make: Callable[[], Awaitable[None]]) -> None:
    """It is said so where that was forgotten."""
    with pytest.raises(TypeError, match=r"Write assert_throttled\(await client"):
        assert_throttled(make())  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]


# --- fixtures


async def test_a_store_goes_by_the_clock(
    manual_clock: ManualClock,
    memory_store: MemoryStore,
) -> None:
    """A test moves the clock instead of waiting."""
    app = app_of(Orders.as_router(Limiter(store=memory_store)))
    first, second = await answers(app, *["GET /orders"] * 2)
    assert_throttled(second, retry_after=60)
    manual_clock.advance(60)

    assert [200, 200] == [first.status_code, *await statuses(app, "GET /orders")]


def test_a_test_has_a_store_of_its_own(memory_store: MemoryStore) -> None:
    """What other tests counted is not in it."""
    assert 0 == len(memory_store)


def test_only_fixtures_import_pytest() -> None:
    """Whoever uses the rest need not have it, nor a client."""
    code = (
        "import sys, throttled_views.testing; "
        "print(sorted({'pytest', 'httpx'} & {*sys.modules}))"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )

    assert "[]" == ran.stdout.strip()
