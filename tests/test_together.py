"""Several limits of one client are one decision; test_plan.py shows it exact."""

import pytest
from fastapi import Request

from tests.asgi import answers, statuses
from tests.clock import ManualClock
from tests.noted import Notes
from tests.outages import QuickOutage, limiter_of
from tests.ways import WAYS, Way, decorated_on_an_application, on_a_throttled_router
from throttled_views import Limit, Limiter, OnStoreError, RateLimitMiddleware

BOTH = ["2/m", "3/h"]

ways = pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)


async def hello() -> str:
    """Be a handler."""
    return "hello"


class Asked:
    """A key function that waits, and counts how often it is asked."""

    def __init__(self, principal: str | None = "alice") -> None:
        self.principal = principal
        self.times = 0

    async def __call__(self, _request: Request) -> str | None:
        """Return who is charged."""
        self.times += 1
        return self.principal


@ways
async def test_the_store_is_asked_once(way: Way, clock: ManualClock) -> None:
    """Whatever the way, for each request."""
    store = QuickOutage(is_down=False)
    app = way(limiter_of(store, clock, BOTH), hello)

    assert [200, 200, 429] == await statuses(app, *["GET /"] * 3)
    assert ["take"] * 3 == store.asked


@ways
@pytest.mark.parametrize(
    ("policy", "wanted"),
    [
        ("local", [200, 200, 429, 429]),
        ("allow", [200, 200, 200, 200]),
        ("deny", [503, 503, 503, 503]),
    ],
)
async def test_the_policy_decides_while_the_store_is_down(
    way: Way, policy: OnStoreError, wanted: list[int], clock: ManualClock
) -> None:
    """The store is asked for the first request, and not again before a second."""
    store = QuickOutage(is_down=True)
    app = way(limiter_of(store, clock, BOTH, on_store_error=policy), hello)

    assert wanted == await statuses(app, *["GET /"] * 4)
    assert ["take"] == store.asked


@pytest.mark.parametrize(
    "way", [on_a_throttled_router, decorated_on_an_application], ids=["early", "late"]
)
@pytest.mark.parametrize("is_down", [False, True], ids=["up", "down"])
async def test_a_key_function_is_asked_once_for_all_limits(
    way: Way, clock: ManualClock, *, is_down: bool
) -> None:
    """It may look the client up, which costs; also while the store is down."""
    key_func = Asked()
    store = QuickOutage(is_down=is_down)
    limits = [Limit(each, key_func=key_func) for each in BOTH]
    app = way(limiter_of(store, clock, limits), hello)

    assert [200, 200, 429] == await statuses(app, *["GET /"] * 3)
    assert 3 == key_func.times


async def test_nobody_is_charged_where_there_is_no_client(clock: ManualClock) -> None:
    """A key function that returns None lets none of the limits apply."""
    store = QuickOutage(is_down=False)
    nobody = Asked(None)
    limits = [Limit(each, key_func=nobody) for each in BOTH]
    app = on_a_throttled_router(limiter_of(store, clock, limits), hello)

    received = await answers(app, *["GET /"] * 4)

    assert [200] * 4 == [each.status_code for each in received]
    assert "RateLimit-Limit" not in received[0].headers
    assert [] == store.asked


async def test_what_a_middleware_charged_is_not_charged_again(
    clock: ManualClock,
) -> None:
    """A bucket that is shared with the application is charged once for a request."""
    shared = [Limit(quota, bucket=quota.replace("/", " ")) for quota in BOTH]
    limiter = limiter_of(QuickOutage(is_down=False), clock, shared)
    app = on_a_throttled_router(limiter, hello)
    app.add_middleware(RateLimitMiddleware, limiter=limiter, throttle=shared)

    assert [200, 200, 429] == await statuses(app, *["GET /"] * 3)


@ways
async def test_each_limit_is_told(way: Way, clock: ManualClock) -> None:
    """With its own outcome, key and result; of a refusal nothing can be given back."""
    notes = Notes()
    named = [Limit(quota, name=quota) for quota in BOTH]
    limiter = Limiter(named, store=QuickOutage(is_down=False), hooks=[notes])
    _ = await statuses(way(limiter, hello), *["GET /"] * 3)

    *charged, refused, spared = notes.checks

    assert [("admitted", "2/m"), ("admitted", "3/h")] * 2 == [
        (each.outcome, each.limit.name) for each in charged
    ]
    assert ("refused", "spared") == (refused.outcome, spared.outcome)
    results = [each.result for each in charged if each.result is not None]
    assert [1] * 4 == [len(each.receipts) for each in results]
    assert refused.result is not None
    assert spared.result is not None
    assert ((), ()) == (refused.result.receipts, spared.result.receipts)
    assert (True, False) == (refused.result.limited, spared.result.limited)
    assert 1 == spared.result.state.remaining
    assert 2 == len({each.key for each in notes.checks})
    assert {1} == {each.cost for each in notes.checks}
