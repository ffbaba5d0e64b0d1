"""Limits in shadow: decided, counted and told to hooks, and in nobody's way."""

import logging
from collections.abc import Callable, Sequence

import httpx
import pytest
from fastapi import APIRouter, Depends, FastAPI, HTTPException

from tests.asgi import Relay, answers, app_of, fields_of, frozen_store, statuses
from tests.clock import ManualClock
from tests.noted import Notes
from throttled_views import (
    Charge,
    ConfigurationError,
    CurrentRateLimit,
    IETFHeaders,
    KeyFunc,
    Limit,
    Limiter,
    MemoryStore,
    OnStoreError,
    RateLimitMiddleware,
    RateLimitResult,
    RouteKey,
    Store,
    StoreUnavailableError,
    ThrottledRouter,
    by_endpoint,
    by_template,
)

SHADOW = Limit("2/h", name="shadow", shadow=True)
ENFORCED = Limit("3/h", name="enforced")


def limiter_of(
    notes: Notes,
    *,
    store: Store | None = None,
    route_key: RouteKey = by_endpoint,
    on_store_error: OnStoreError = "local",
) -> Limiter:
    """Return a limiter that tells *notes*, in a store in which no time passes."""
    return Limiter(
        store=store or frozen_store(),
        hooks=[notes],
        route_key=route_key,
        on_store_error=on_store_error,
    )


def app_with(limiter: Limiter, way: str, *limits: Limit) -> FastAPI:
    """Return an application that is held to *limits* in a *way*."""
    router = ThrottledRouter(limiter) if way == "ours" else APIRouter()

    async def get(rate_limit: CurrentRateLimit) -> list[str]:
        return [each.name for each in rate_limit.results]

    if way in {"ours", "decorated"}:
        get = limiter.limit([*limits])(get)
    depends = [Depends(limiter.dependency([*limits]))] if way == "dependency" else []
    router.get("/", dependencies=depends)(get)
    app = app_of(router)
    if way == "middleware":
        app.add_middleware(RateLimitMiddleware, limiter=limiter, throttle=[*limits])
    return app


WAYS = {"ours": "early", "decorated": "late", "dependency": "late", "middleware": "app"}


@pytest.mark.parametrize(("way", "phase"), WAYS.items(), ids=WAYS)
@pytest.mark.parametrize("make", [frozen_store, Relay], ids=["quick", "general"])
async def test_it_refuses_nobody_and_tells_whom_it_would_have(
    way: str, phase: str, make: Callable[[], Store]
) -> None:
    """Each request is decided and counted, and the client knows nothing of it."""
    notes = Notes()
    app = app_with(limiter_of(notes, store=make()), way, SHADOW)

    told = await answers(app, *["GET /"] * 3)

    assert [200] * 3 == [each.status_code for each in told]
    assert [[]] * 3 == [each.json() for each in told]
    assert [{}] * 3 == [fields_of(each) for each in told]
    outcomes = ["admitted", "admitted", "would_refuse"]
    assert [(phase, "shadow", each) for each in outcomes] == notes.outcomes
    assert {True} == {each.limit.shadow for each in notes.checks}
    results = [each.result for each in notes.checks]
    assert [(False, 1), (False, 0), (True, 0)] == [
        (each.limited, each.state.remaining) for each in results if each is not None
    ]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("is_first", [True, False], ids=["first", "last"])
@pytest.mark.parametrize("make", [frozen_store, Relay], ids=["quick", "general"])
async def test_it_is_charged_what_is_admitted(
    way: str, make: Callable[[], Store], *, is_first: bool
) -> None:
    """Beside others it is decided when they have admitted, and not if they refuse."""
    notes = Notes()
    limits = [SHADOW, ENFORCED] if is_first else [ENFORCED, SHADOW]
    app = app_with(limiter_of(notes, store=make()), way, *limits)

    told = await answers(app, *["GET /"] * 5)

    assert [200] * 3 + [429] * 2 == [each.status_code for each in told]
    assert ["2", "1", "0", "0", "0"] == [
        each.headers["RateLimit-Remaining"] for each in told
    ]
    assert ["enforced"] == told[0].json()
    by_limit = {
        name: [each.outcome for each in notes.checks if each.limit.shadow == shadow]
        for name, shadow in {"enforced": False, "shadow": True}.items()
    }
    assert {
        "enforced": ["admitted"] * 3 + ["refused"] * 2,
        "shadow": ["admitted"] * 2 + ["would_refuse"],
    } == by_limit


async def test_it_shows_in_no_field_and_no_body() -> None:
    """Neither do IETF fields tell of its policy, nor problem details of its name."""
    limiter = Limiter(store=frozen_store(), headers=IETFHeaders(), problem_details=True)
    told = await answers(app_with(limiter, "ours", SHADOW, ENFORCED), *["GET /"] * 4)

    assert ["enforced"] == told[3].json()["violated-policies"]
    assert not any("shadow" in str(each.headers) + each.text for each in told)


async def test_it_takes_nothing_from_a_bucket_that_it_shares() -> None:
    """Others in the bucket have all of it, however much is observed."""
    notes = Notes()
    limiter = limiter_of(notes)
    router = ThrottledRouter(limiter)

    @router.get("/observed")
    @limiter.limit("2/h", bucket="shared", shadow=True)
    async def observed() -> None: ...

    @router.get("/enforced")
    @limiter.limit("2/h", bucket="shared")
    async def enforced() -> None: ...

    app = app_of(router)

    assert [200] * 3 == await statuses(app, *["GET /observed"] * 3)
    assert [200, 200, 429] == await statuses(app, *["GET /enforced"] * 3)


async def test_it_waits_for_nothing() -> None:
    """It is told how long a request would have waited."""
    notes = Notes()
    limit = Limit("1/h", max_delay=3_600, shadow=True)
    app = app_with(limiter_of(notes), "ours", limit)

    assert [200] * 3 == await statuses(app, *["GET /"] * 3)
    assert [("admitted", 0.0), ("admitted", 3_600.0), ("would_refuse", 0.0)] == [
        (each.outcome, each.delay) for each in notes.checks
    ]


async def test_it_gives_back_what_it_would_have() -> None:
    """With `refund_when` it counts what it would count if it was enforced."""
    notes = Notes()
    limiter = limiter_of(notes)
    router = ThrottledRouter(limiter)

    @router.get("/{status}")
    @limiter.limit("1/h", shadow=True, refund_when=lambda status: status < 400)
    async def get(status: int) -> None:
        if status >= 400:
            raise HTTPException(status)

    app = app_of(router)
    await answers(app, "GET /200", "GET /401", "GET /200", "GET /401")

    assert [
        "admitted",
        "refunded",
        "admitted",
        "would_refuse",
        "would_refuse",
    ] == [each.outcome for each in notes.checks]


async def test_it_gets_back_what_a_handler_gives_back() -> None:
    """An announced cost is corrected in shadow, too."""
    notes = Notes()
    limiter = limiter_of(notes)
    router = ThrottledRouter(limiter)

    @router.get("/")
    @limiter.limit("10/h", cost=ten, shadow=True)
    async def get(rate_limit: CurrentRateLimit) -> None:
        await rate_limit.refund(9)

    assert [200] * 2 == await statuses(app_of(router), "GET /", "GET /")
    assert [("admitted", 10), ("refunded", 9), ("would_refuse", 10)] == [
        (each.outcome, each.cost) for each in notes.checks
    ]


# --- what goes wrong ------------------------------------------------------------------


def failing() -> str:
    """Fail."""
    raise ZeroDivisionError


def ten() -> int:
    """Announce a cost."""
    return 10


def nonsense() -> str:
    """Return what is no quota."""
    return "nonsense"


def less_than_nothing() -> int:
    """Return what is no cost."""
    return -1


def nobody() -> None:
    """Let the limit not apply."""


def empty() -> str:
    """Return what cannot be a key."""
    return ""


@pytest.mark.parametrize("function", [failing, empty])
@pytest.mark.parametrize("way", WAYS)
async def test_an_error_of_its_functions_breaks_nothing(
    caplog: pytest.LogCaptureFixture, function: KeyFunc, way: str
) -> None:
    """It is logged; the request goes on, under the limits that are enforced."""
    notes = Notes()
    broken = Limit("2/h", shadow=True, key_func=function)
    app = app_with(limiter_of(notes), way, broken, ENFORCED)

    with caplog.at_level(logging.ERROR, "throttled_views"):
        assert [200, 200, 200, 429] == await statuses(app, *["GET /"] * 4)

    assert "A limit in shadow failed" in caplog.text
    assert {False} == {each.limit.shadow for each in notes.checks}


async def test_a_quota_and_a_cost_may_fail(caplog: pytest.LogCaptureFixture) -> None:
    """One limit in shadow that fails keeps no other from being observed."""
    notes = Notes()
    limits = [
        Limit(nonsense, shadow=True, name="a"),
        Limit("5/h", cost=less_than_nothing, shadow=True, name="b"),
        Limit("5/h", shadow=True, name="c"),
    ]
    app = app_with(limiter_of(notes), "ours", *limits)

    with caplog.at_level(logging.ERROR, "throttled_views"):
        assert [200] == await statuses(app, "GET /")

    assert [("early", "c", "admitted")] == notes.outcomes
    assert 2 == caplog.text.count("A limit in shadow failed")


async def test_it_may_not_apply() -> None:
    """Where its key is None nothing is observed."""
    notes = Notes()
    app = app_with(
        limiter_of(notes), "ours", Limit("2/h", shadow=True, key_func=nobody)
    )

    assert [200] == await statuses(app, "GET /")
    assert [] == notes.checks


async def test_a_key_function_is_asked_once_for_all_that_is_observed() -> None:
    """Limits in shadow share what it answers, so that they charge one client."""
    notes = Notes()
    asked: list[str] = []

    def key() -> str:
        asked.append("key")
        return f"client {len(asked)}"

    limits = [
        Limit(quota, shadow=True, key_func=key) for quota in ("5/s", "6/m", "7/h")
    ]
    app = app_with(limiter_of(notes), "ours", *limits)

    assert [200] == await statuses(app, "GET /")
    assert (["key"], 3) == (asked, len(notes.checks))


class Down(Relay):
    """A store that is down."""

    async def acquire(self, charges: Sequence[Charge], /) -> Sequence[RateLimitResult]:
        """Fail."""
        msg = "down"
        raise StoreUnavailableError(msg)


async def test_a_store_that_is_down_refuses_nobody() -> None:
    """It is told that the limit could not be asked, though its policy is to deny."""
    notes = Notes()
    limiter = limiter_of(notes, store=Down(), on_store_error="deny")

    assert [200] == await statuses(app_with(limiter, "ours", SHADOW), "GET /")
    assert [("early", "shadow", "unavailable")] == notes.outcomes
    assert [None] == [each.result for each in notes.checks]


# --- the rest -------------------------------------------------------------------------


async def test_a_late_one_is_decided_late() -> None:
    """A key that FastAPI solves is observed right before the handler."""

    async def by_page(page: int = 1) -> str:
        return f"page {page}"

    notes = Notes()
    late = Limit("2/h", name="shadow", shadow=True, key_func=by_page)
    app = app_with(limiter_of(notes), "ours", ENFORCED, late)

    await answers(app, "GET /?page=1", "GET /?page=2")

    assert [
        ("early", "enforced", "admitted"),
        ("late", "shadow", "admitted"),
    ] * 2 == notes.outcomes


async def test_it_counts_for_a_template() -> None:
    """Under `by_template` it is counted for the path, as others are."""
    notes = Notes()
    app = app_with(limiter_of(notes, route_key=by_template), "ours", SHADOW)

    await answers(app, "GET /", "GET /", "GET /")

    assert ["admitted"] * 2 + ["would_refuse"] == [e.outcome for e in notes.checks]
    assert 1 == len({each.limit for each in notes.checks})


@pytest.mark.parametrize(
    "route_key", [by_endpoint, by_template], ids=["endpoint", "template"]
)
async def test_a_limiter_that_is_off_observes_nothing(route_key: RouteKey) -> None:
    """Nothing is counted, and no hook is told."""
    notes = Notes()
    limiter = limiter_of(notes, route_key=route_key)
    limiter.enabled = False

    assert [200] == await statuses(app_with(limiter, "ours", SHADOW), "GET /")
    assert [] == notes.checks


async def test_whom_it_would_refuse_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """Without a hook the log tells, of the handler and the limit, not of the client."""
    app = app_with(Limiter(store=frozen_store()), "ours", SHADOW)

    with caplog.at_level(logging.INFO, "throttled_views"):
        await answers(app, *["GET /"] * 3)

    [record] = caplog.records
    assert "(shadow) would have refused a request" in record.getMessage()
    assert "192.0.2.1" not in record.getMessage()


async def test_limits_that_look_alike_are_observed_each() -> None:
    """A route and a dependency of it that have the same limit have a count each."""
    notes = Notes()
    limiter = limiter_of(notes)
    router = ThrottledRouter(limiter)
    router.get("/", dependencies=[Depends(limiter.dependency(SHADOW))])(
        limiter.limit(SHADOW)(nothing)
    )

    await answers(app_of(router), "GET /")

    assert ["admitted"] * 2 == [each.outcome for each in notes.checks]
    assert 2 == len({each.limit for each in notes.checks})


async def counts(store: Store, requests: int, *, shadow: bool) -> list[int]:
    """Return what is left of a bucket that a middleware shares with its route."""
    notes, shared = Notes(), Limit("6/h", bucket="shared", cost=2, shadow=shadow)
    limiter = limiter_of(notes, store=store)
    app = app_with(limiter, "ours", shared)
    app.add_middleware(RateLimitMiddleware, limiter=limiter, throttle=shared)
    await answers(app, *["GET /"] * requests)
    results = [each.result for each in notes.checks if each.outcome == "admitted"]
    found = [each.receipts[0].charge for each in results if each is not None]
    charges = {each.key: each for each in found}
    peeks = await store.peek([*charges.values()])
    return [each.state.remaining for each in peeks]


@pytest.mark.parametrize(("requests", "left"), [(1, 4), (2, 2), (3, 0), (5, 0)])
@pytest.mark.parametrize("make", [frozen_store, Relay], ids=["quick", "general"])
async def test_the_same_traffic_has_the_same_counts(
    make: Callable[[], Store], requests: int, left: int
) -> None:
    """Enforced and in shadow, a bucket that a request meets twice is charged once."""
    enforced = await counts(make(), requests, shadow=False)
    shadowed = await counts(make(), requests, shadow=True)

    assert [left] == enforced == shadowed


async def nothing() -> None:
    """Serve."""


def test_by_hand_it_checks_nothing() -> None:
    """There the caller decides anyway."""
    with pytest.raises(ConfigurationError, match="shadow=True is for limits of routes"):
        Limiter().throttled("5/m", shadow=True)


@pytest.mark.parametrize("given", [1, "yes", None], ids=str)
def test_it_is_on_or_off(*, given: bool) -> None:
    """What is neither True nor False is refused."""
    with pytest.raises(ConfigurationError, match="Write shadow=True"):
        Limit("5/m", shadow=given)


async def test_it_is_charged_by_the_clock_of_the_store(clock: ManualClock) -> None:
    """It forgets as others do."""
    notes = Notes()
    limiter = limiter_of(notes, store=MemoryStore(clock=clock))
    app = app_with(limiter, "ours", SHADOW)

    told: list[httpx.Response] = await answers(app, *["GET /"] * 3)
    clock.advance(1_800)
    told += await answers(app, "GET /")

    assert 4 == len(told)
    assert "admitted" == notes.checks[-1].outcome
