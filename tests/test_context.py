"""What a handler gives back of an announced cost: `RateLimitContext.refund`."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from math import ceil

import pytest
from fastapi import APIRouter, FastAPI, HTTPException
from fastapi.responses import StreamingResponse
from hypothesis import given
from hypothesis import strategies as st

from tests.asgi import Relay, answers, app_of, fields_of, frozen, frozen_store, statuses
from tests.clock import ManualClock
from tests.noted import Notes
from tests.virtual import run
from throttled_views import (
    EXEMPT,
    Algorithm,
    CurrentRateLimit,
    Exempt,
    Limit,
    Limiter,
    MemoryStore,
    RateLimitMiddleware,
    Receipt,
    Store,
    StoreUnavailableError,
    ThrottledRouter,
)


def six() -> int:
    """Announce a cost."""
    return 6


def two() -> int:
    """Announce another one."""
    return 2


TOKENS = Limit("10/m", name="tokens", cost=six)


def serving(
    limiter: Limiter, *limits: Limit, units: Sequence[int] = (), name: str | None = None
) -> FastAPI:
    """Return an application that gives *units* back, one after the other."""
    router = ThrottledRouter(limiter)

    @router.get("/")
    @limiter.limit([*limits])
    async def get(rate_limit: CurrentRateLimit) -> list[int]:
        left = [rate_limit.results[0].state.remaining] if rate_limit.results else []
        for each in units:
            await rate_limit.refund(each, name=name)
            if rate_limit.results:
                left.append(rate_limit.results[0].state.remaining)
        return left

    return app_of(router)


MAKERS = pytest.mark.parametrize("make", [frozen_store, Relay], ids=["ours", "theirs"])


@MAKERS
async def test_a_part_of_the_cost_comes_back(make: Callable[[], Store]) -> None:
    """It can be spent at once, and the context and the fields tell so."""
    app = serving(Limiter(store=make()), TOKENS, units=[4, 1])

    first, second = await answers(app, "GET /", "GET /")

    assert [4, 8, 9] == first.json()
    assert {
        "RateLimit-Limit": "10",
        "RateLimit-Remaining": "9",
        "RateLimit-Reset": "6",  # one is missing, of one in six seconds
    } == fields_of(first)
    assert [3, 7, 8] == second.json()


@MAKERS
async def test_no_more_comes_back_than_was_charged(make: Callable[[], Store]) -> None:
    """That is the bound over all calls, whatever was spent by others."""
    store = make()
    app = serving(Limiter(store=store), TOKENS, units=[4, 4, 4])
    other = serving(Limiter(store=store), TOKENS)

    assert [200] == await statuses(other, "GET /", client="192.0.2.9")
    [answer] = await answers(app, "GET /")
    assert [4, 8, 10, 10] == answer.json()
    assert "0" == answer.headers["RateLimit-Reset"]


@given(
    st.sampled_from(list(Algorithm)),
    st.integers(0, 10),
    st.lists(st.integers(0, 12), max_size=4),
    st.booleans(),
)
def test_what_is_told_is_what_is_there(
    using: Algorithm,
    cost: int,
    units: list[int],
    is_refunded: bool,  # noqa: FBT001
) -> None:
    """After any refunds the fields tell what the store has for the next request."""

    def announced() -> int:
        return cost

    async def main() -> None:
        store, notes = frozen_store(), Notes()
        limit = Limit(
            "10/m",
            using=using,
            cost=announced,
            refund_when=lambda _: is_refunded,
        )
        app = serving(Limiter(store=store, hooks=[notes]), limit, units=units)
        [answer] = await answers(app, "GET /")

        first = notes.checks[0].result
        assert first is not None
        [receipt] = first.receipts
        [there] = await store.peek([replace(receipt.charge, cost=1)])
        assert {
            "RateLimit-Limit": "10",
            "RateLimit-Remaining": str(there.state.remaining),
            "RateLimit-Reset": str(ceil(there.state.reset_after)),
        } == fields_of(answer)
        spent = 0 if is_refunded else cost - min(cost, sum(units))
        assert spent == 10 - there.state.remaining

    asyncio.run(main())


async def test_only_what_a_function_tells_is_given_back() -> None:
    """Unless named, limits with a fixed cost keep their charge."""
    fixed = Limit("10/m", name="requests", cost=2)
    router = ThrottledRouter(limiter := frozen())

    @router.get("/")
    @limiter.limit([fixed, TOKENS])
    async def get(rate_limit: CurrentRateLimit) -> dict[str, int]:
        await rate_limit.refund(5)
        return {each.name: each.state.remaining for each in rate_limit.results}

    [answer] = await answers(app_of(router), "GET /")

    assert {"requests": 8, "tokens": 9} == answer.json()


async def test_a_limit_may_be_named() -> None:
    """Then that one gets it back, whatever told its cost."""
    app = serving(
        frozen(), Limit("10/m", name="a", cost=3), TOKENS, units=[2], name="a"
    )

    [answer] = await answers(app, "GET /")

    assert [7, 9] == answer.json()


@pytest.mark.parametrize(
    ("limit", "name", "said"),
    [
        (Limit("5/m", name="a"), None, "has a cost function"),
        (Limit("5/m", name="a"), "b", "has the name 'b'"),
    ],
    ids=["no cost function", "no such name"],
)
async def test_a_limit_that_is_not_there_is_an_error(
    limit: Limit, name: str | None, said: str
) -> None:
    """It says which ones there are."""
    app = serving(frozen(), limit, units=[1], name=name)

    with pytest.raises(ValueError, match=f"No limit of this request {said}.*'a'"):
        await answers(app, "GET /")


@pytest.mark.parametrize("units", [-1, 1.5, "2", None], ids=repr)
async def test_units_are_whole(units: int) -> None:
    """Anything else is refused."""
    with pytest.raises(ValueError, match="must be a whole number of 0 or more"):
        await answers(serving(frozen(), TOKENS, units=[units]), "GET /")


def by_plan() -> Exempt:
    """Let the limit not apply."""
    return EXEMPT


@pytest.mark.parametrize("name", [None, "tokens"])
async def test_where_nothing_applies_nothing_comes_back(name: str | None) -> None:
    """A handler need not know who is exempt, or whether limits are off."""
    limiter = frozen()
    exempt = Limit(by_plan, name="tokens", cost=six)
    app = serving(limiter, exempt, units=[1], name=name)
    off = serving(other := frozen(), TOKENS, units=[1], name=name)
    other.enabled = False

    assert [200, 200] == [
        *await statuses(app, "GET /"),
        *await statuses(off, "GET /"),
    ]


async def test_a_late_cost_is_given_back_in_a_plain_function() -> None:
    """It is decided right before the handler, and told by the decorator."""

    async def tokens_of(tokens: int = 5) -> int:
        return tokens

    limiter = frozen()
    router = APIRouter()

    @router.get("/")
    @limiter.limit("10/m", cost=tokens_of)
    async def get(rate_limit: CurrentRateLimit) -> None:
        await rate_limit.refund(3)

    [answer] = await answers(app_of(router), "GET /?tokens=8")

    assert "5" == answer.headers["RateLimit-Remaining"]


async def test_a_middleware_may_be_named() -> None:
    """Its limits are of the request, too."""
    limiter = frozen()
    app = serving(limiter, Limit("9/m", name="a"), units=[2], name="app")
    app.add_middleware(
        RateLimitMiddleware, limiter=limiter, throttle=Limit("20/m", name="app", cost=3)
    )

    [answer] = await answers(app, "GET /")

    assert [17, 19] == answer.json()


async def test_the_rest_comes_back_by_the_status() -> None:
    """What the handler gave back is not given back again."""
    limiter = frozen()
    router = ThrottledRouter(limiter)
    limit = Limit("10/m", cost=six, refund_when=lambda status: status >= 500)

    @router.get("/{status}")
    @limiter.limit(limit)
    async def get(rate_limit: CurrentRateLimit, status: int) -> None:
        await rate_limit.refund(2)
        raise HTTPException(status)

    told = await answers(app_of(router), "GET /404", "GET /500", "GET /404")

    assert ["6", "6", "2"] == [each.headers["RateLimit-Remaining"] for each in told]


@pytest.mark.parametrize("kind", [APIRouter, ThrottledRouter])
async def test_a_stream_may_give_back_when_it_is_done(kind: type[APIRouter]) -> None:
    """The fields are sent by then; the next request finds what came back."""
    limiter = frozen()
    router = kind() if kind is APIRouter else ThrottledRouter(limiter)

    @router.get("/")
    @limiter.limit(TOKENS)
    async def get(rate_limit: CurrentRateLimit) -> StreamingResponse:
        async def parts() -> AsyncIterator[bytes]:
            yield b"a"
            await rate_limit.refund(5)

        return StreamingResponse(parts())

    told = await answers(app_of(router), "GET /", "GET /")

    assert ["4", "3"] == [each.headers["RateLimit-Remaining"] for each in told]


async def test_who_gives_back_at_the_same_time_gives_back_once() -> None:
    """Two tasks of one handler share the bound."""
    limiter = frozen()
    router = ThrottledRouter(limiter)

    @router.get("/")
    @limiter.limit(TOKENS)
    async def get(rate_limit: CurrentRateLimit) -> int:
        await asyncio.gather(*(rate_limit.refund(4) for _ in range(5)))
        return rate_limit.result.state.remaining

    told = await answers(app_of(router), "GET /", "GET /")

    assert [10, 10] == [each.json() for each in told]


class Failing(Relay):
    """A store that goes down before anything is given back."""

    async def refund(self, receipts: Sequence[Receipt], /) -> None:
        """Fail."""
        msg = "down"
        raise StoreUnavailableError(msg)


async def test_a_store_that_is_down_breaks_no_handler() -> None:
    """What cannot be given back stays charged."""
    store = Failing()
    app = serving(Limiter(store=store), TOKENS, units=[6])

    assert [200] == await statuses(app, "GET /")
    [[charge]] = store.calls
    [left] = await store.peek([charge])
    assert 4 == left.state.remaining


def test_what_comes_back_goes_to_those_who_wait(clock: ManualClock) -> None:
    """No more is told to be left than there is."""
    limiter = Limiter(store=MemoryStore(clock=clock))
    app = serving(limiter, Limit("2/2s", max_delay=60, cost=two), units=[1], name=None)

    async def main() -> list[list[int]]:
        tasks = [answers(app, "GET /") for _ in range(3)]
        return [answer.json() for [answer] in await asyncio.gather(*tasks)]

    assert [[0, 1], [0, 0], [0, 0]] == run(clock, main())
