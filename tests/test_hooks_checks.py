"""Hooks are told of every limit of every decision: `Hook.on_check`."""

import logging
from collections.abc import Callable, Sequence

import pytest
from fastapi import APIRouter, Depends, FastAPI, HTTPException, WebSocket

from tests.asgi import Relay, answers, app_of, frozen_store, handshake, statuses
from tests.noted import Notes
from throttled_views import (
    Algorithm,
    Charge,
    CheckEvent,
    CurrentRateLimit,
    Limit,
    Limiter,
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

CLIENT = "203.0.113.77"
WAYS = {"ours": "early", "decorated": "late", "dependency": "late", "middleware": "app"}


def app_with(limiter: Limiter, way: str, *limits: Limit) -> FastAPI:
    """Return an application that is held to *limits* in a *way*."""
    router = ThrottledRouter(limiter) if way == "ours" else APIRouter()

    async def get() -> None: ...

    if way in {"ours", "decorated"}:
        get = limiter.limit([*limits])(get)
    depends = [Depends(limiter.dependency([*limits]))] if way == "dependency" else []
    router.get("/items", dependencies=depends)(get)
    app = app_of(router)
    if way == "middleware":
        app.add_middleware(RateLimitMiddleware, limiter=limiter, throttle=[*limits])
    return app


def limiter_of(
    *notes: Notes,
    store: Store | None = None,
    prefix: str = "tests",
    route_key: RouteKey = by_endpoint,
    on_store_error: OnStoreError = "local",
) -> Limiter:
    """Return a limiter that tells *notes*, in a store in which no time passes."""
    return Limiter(
        store=store or frozen_store(),
        hooks=notes,
        prefix=prefix,
        route_key=route_key,
        on_store_error=on_store_error,
    )


def five() -> int:
    """Tell a cost."""
    return 5


def nine_an_hour() -> str:
    """Choose a quota."""
    return "9/h"


def nobody() -> None:
    """Let a limit not apply."""


class Down(Relay):
    """A store that is down."""

    async def acquire(self, charges: Sequence[Charge], /) -> Sequence[RateLimitResult]:
        """Fail."""
        msg = "down"
        raise StoreUnavailableError(msg)


MAKERS = pytest.mark.parametrize(
    "make", [frozen_store, Relay], ids=["quick", "general"]
)


@MAKERS
@pytest.mark.parametrize(("way", "phase"), WAYS.items(), ids=WAYS)
async def test_a_check_is_told_once(
    way: str, phase: str, make: Callable[[], Store]
) -> None:
    """In every way to limit, with its phase, its outcome and its cost."""
    notes = Notes()
    limit = Limit("3/h", name="hourly", cost=2, using=Algorithm.GCRA)
    app = app_with(limiter_of(notes, store=make()), way, limit)

    assert [200, 429] == await statuses(app, *["GET /items"] * 2)

    assert [(phase, "admitted", 2), (phase, "refused", 2)] == [
        (each.phase, each.outcome, each.cost) for each in notes.checks
    ]
    [limit_told] = {each.limit for each in notes.checks}  # one object, a key
    assert ("3/h", Algorithm.GCRA, False) == (
        limit_told.quota,
        limit_told.algorithm,
        limit_told.shadow,
    )
    assert "hourly" == limit_told.name
    assert all(0 <= each.duration < 10 for each in notes.checks)
    assert {0.0} == {each.delay for each in notes.checks}


@MAKERS
@pytest.mark.parametrize("way", WAYS)
async def test_a_result_is_made_when_somebody_asks(
    way: str, make: Callable[[], Store]
) -> None:
    """It tells where the key stood then, and by its receipts whose it is."""
    notes = Notes()
    limiter = limiter_of(notes, store=make())
    app = app_with(limiter, way, Limit("3/h", name="hourly"))
    await answers(app, *["GET /items"] * 4, client=CLIENT)

    results = [each.result for each in notes.checks]

    assert [(False, 2), (False, 1), (False, 0), (True, 0)] == [
        (each.limited, each.state.remaining) for each in results if each is not None
    ]
    assert {each.limit.name for each in notes.checks} == {
        each.name for each in results if each is not None
    }
    first, last = notes.checks[0].result, notes.checks[-1].result
    assert first is not None
    assert last is not None
    [receipt] = first.receipts
    assert CLIENT in receipt.charge.key
    assert () == last.receipts


@MAKERS
@pytest.mark.parametrize("way", WAYS)
async def test_no_event_says_whose_it_is(way: str, make: Callable[[], Store]) -> None:
    """But for the receipts of its result there is no principal in an event."""
    notes = Notes()
    app = app_with(limiter_of(notes, store=make()), way, Limit("1/h"), Limit("2/h"))
    await answers(app, "GET /items", "GET /items", client=CLIENT)

    for event in notes.checks:
        assert CLIENT not in repr(event) + repr(event.limit) + repr(event.result)


@MAKERS
async def test_all_limits_of_a_decision_are_told(make: Callable[[], Store]) -> None:
    """What has room, and is not charged since another refuses, is spared."""
    notes = Notes()
    limits = Limit("9/h", name="a"), Limit("1/h", name="b"), Limit("9/h", name="c")
    app = app_with(limiter_of(notes, store=make()), "ours", *limits)

    await answers(app, "GET /items", "GET /items")

    admitted = [("early", each, "admitted") for each in "abc"]
    refused = [(each, "refused" if each == "b" else "spared") for each in "abc"]
    assert [*admitted, *(("early", *each) for each in refused)] == notes.outcomes
    spared = notes.checks[-1].result
    assert spared is not None
    assert (False, 8, ()) == (spared.limited, spared.state.remaining, spared.receipts)


async def test_each_phase_is_told() -> None:
    """A middleware, an early limit and a late one are checked in this order."""
    notes = Notes()
    limiter = limiter_of(notes)

    async def by_page(page: int = 1) -> str:
        return f"page {page}"

    limits = Limit("9/h", name="early"), Limit("1/h", name="late", key_func=by_page)
    app = app_with(limiter, "ours", *limits)
    app.add_middleware(RateLimitMiddleware, limiter=limiter, throttle="99/h")

    await answers(app, "GET /items", "GET /items")

    assert [
        ("app", "app 99/h", "admitted"),
        ("early", "early", "admitted"),
        ("late", "late", "admitted"),
        ("app", "app 99/h", "admitted"),
        ("early", "early", "admitted"),
        ("late", "late", "refused"),
    ] == notes.outcomes


async def test_what_comes_back_from_another_limiter_is_told() -> None:
    """Of two limiters on one function each tells its own hooks."""
    first, second = Notes(), Notes()
    ours, theirs = limiter_of(first), limiter_of(second, prefix="second")
    router = ThrottledRouter(ours)

    @router.get("/")
    @theirs.limit("1/h")
    @ours.limit("9/h", cost=2)
    async def get() -> None: ...

    assert [200, 429] == await statuses(app_of(router), "GET /", "GET /")
    assert [("admitted", 2), ("admitted", 2), ("refunded", 2)] == [
        (each.outcome, each.cost) for each in first.checks
    ]
    assert ["admitted", "refused"] == [each.outcome for each in second.checks]
    assert first.checks[-1].result is None


@MAKERS
async def test_what_a_request_gives_back_is_told(make: Callable[[], Store]) -> None:
    """By the status, or by the handler: with the units that came back."""
    notes = Notes()
    limiter = limiter_of(notes, store=make())
    router = ThrottledRouter(limiter)

    @router.get("/")
    @limiter.limit("9/h", cost=five, refund_when=lambda status: status == 404)
    async def get(rate_limit: CurrentRateLimit) -> None:
        await rate_limit.refund(2)
        await rate_limit.refund(0)
        raise HTTPException(404)

    await answers(app_of(router), "GET /")

    assert [("admitted", 5), ("refunded", 2), ("refunded", 3)] == [
        (each.outcome, each.cost) for each in notes.checks
    ]
    assert {"early"} == {each.phase for each in notes.checks}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("policy", "outcome"),
    [("deny", "unavailable"), ("allow", "admitted"), ("local", "admitted")],
)
async def test_a_store_that_is_down_is_told(
    way: str, policy: OnStoreError, outcome: str
) -> None:
    """What denies then could not be asked; else it is what the policy decides."""
    notes = Notes()
    limiter = limiter_of(notes, store=Down(), on_store_error=policy)
    app = app_with(limiter, way, Limit("9/h"), Limit("5/h"))

    [answer] = await answers(app, "GET /items")

    assert (503 if policy == "deny" else 200) == answer.status_code
    assert [outcome] * 2 == [each.outcome for each in notes.checks]
    assert (policy == "deny") == (notes.checks[0].result is None)


async def test_a_manual_check_is_told() -> None:
    """It has a phase of its own, and its cost times that of the limit."""
    notes = Notes()
    both = limiter_of(notes).throttled([Limit("9/h", cost=2), Limit("3/h")])

    await both.limit("alice", 2)
    await both.limit("alice", 2)
    await both.peek("alice")

    assert [
        ("9/h", "admitted", 4),
        ("3/h", "admitted", 2),
        ("9/h", "spared", 4),
        ("3/h", "refused", 2),
    ] == [(each.limit.quota, each.outcome, each.cost) for each in notes.checks]
    assert {"manual"} == {each.phase for each in notes.checks}
    result = notes.checks[0].result
    assert result is not None
    assert 5 == result.state.remaining


async def test_what_is_given_back_by_hand_is_told() -> None:
    """Each limit that gets something back, and nothing for what was refused."""
    notes = Notes()
    both = limiter_of(notes).throttled([Limit("9/h", cost=2), Limit("1/h")])

    admitted, refused = await both.limit("alice"), await both.limit("alice")
    notes.checks.clear()
    await both.refund(refused)
    await both.refund(admitted)

    assert [("manual", "9/h", 2), ("manual", "1/h", 1)] == [
        (each.phase, each.limit.quota, each.cost) for each in notes.checks
    ]
    assert ["refunded"] * 2 == [each.outcome for each in notes.checks]
    assert 1 == (await both.peek("alice")).state.remaining


async def test_by_hand_a_store_that_is_down_is_told() -> None:
    """Where the policy is to deny, the caller gets an error."""
    notes = Notes()
    limiter = limiter_of(notes, store=Down(), on_store_error="deny")

    with pytest.raises(StoreUnavailableError):
        await limiter.throttled("9/h").limit("alice", 2)

    assert [("manual", "unavailable", 2)] == [
        (each.phase, each.outcome, each.cost) for each in notes.checks
    ]


async def test_a_socket_is_told() -> None:
    """Its handshake is checked late."""
    notes = Notes()
    limiter = limiter_of(notes)
    router = ThrottledRouter(limiter)

    @router.websocket("/")
    @limiter.limit("1/h")
    async def talk(websocket: WebSocket) -> None: ...

    app = app_of(router)
    for _ in range(2):
        await handshake(app)

    assert [("late", "admitted"), ("late", "refused")] == [
        (each.phase, each.outcome) for each in notes.checks
    ]


async def test_what_is_counted_for_a_template_is_told_by_its_handler() -> None:
    """A template has the `root_path`, which a client may choose; labels have not."""
    notes = Notes()
    app = app_with(limiter_of(notes, route_key=by_template), "ours", Limit("9/h"))

    await answers(app, "GET /items", "GET /items")

    [limit] = {each.limit for each in notes.checks}
    assert limit.route.endswith("get")


async def test_a_chosen_quota_is_told_as_dynamic() -> None:
    """A label of a metric must not have a value for each client."""
    notes = Notes()
    app = app_with(limiter_of(notes), "ours", Limit(nine_an_hour))

    await answers(app, "GET /items")

    assert ["dynamic"] == [each.limit.quota for each in notes.checks]


async def test_what_does_not_apply_is_not_told() -> None:
    """No decision, no event; nor while the limiter is off."""
    notes = Notes()
    limiter = limiter_of(notes)
    app = app_with(limiter, "ours", Limit("9/h", key_func=nobody))
    await answers(app, "GET /items")
    limiter.enabled = False
    await answers(app, "GET /items")

    assert [] == notes.checks


# --- hooks that fail, and none --------------------------------------------------------


class Clumsy(Notes):
    """A hook that fails whatever it is told, each time in another way."""

    def on_check(self, event: CheckEvent) -> None:
        """Fail."""
        super().on_check(event)
        if len(self.checks) % 2:
            raise ZeroDivisionError
        raise KeyError


@MAKERS
@pytest.mark.parametrize("way", WAYS)
async def test_a_hook_that_fails_is_logged_once_for_each_kind(
    caplog: pytest.LogCaptureFixture, way: str, make: Callable[[], Store]
) -> None:
    """Decisions and other hooks go on; a log is not filled by every request."""
    clumsy, notes = Clumsy(), Notes()
    limiter = limiter_of(clumsy, notes, store=make())
    app = app_with(limiter, way, Limit("5/h"))

    with caplog.at_level(logging.ERROR, "throttled_views"):
        assert [200] * 5 + [429] == await statuses(app, *["GET /items"] * 6)

    assert 6 == len(clumsy.checks) == len(notes.checks)
    assert ["ZeroDivisionError", "KeyError"] == [
        each.exc_info[0].__name__
        for each in caplog.records
        if each.exc_info and each.exc_info[0]
    ]


@MAKERS
@pytest.mark.parametrize("way", WAYS)
async def test_without_hooks_no_event_is_made(
    monkeypatch: pytest.MonkeyPatch, way: str, make: Callable[[], Store]
) -> None:
    """Nothing is built for nobody."""

    def refuse(*_: object, **__: object) -> None:
        pytest.fail("an event was made")

    for module in ("_single", "_together", "hooks"):
        monkeypatch.setattr(f"throttled_views.{module}.CheckEvent", refuse)
    limiter = limiter_of(store=make())
    app = app_with(limiter, way, Limit("1/h"), Limit("3/h", shadow=True))
    limits = [Limit("1/h", name="a"), Limit("2/h", name="b")]
    both = app_with(limiter_of(store=make()), way, *limits)
    await limiter.throttled("1/h").limit("alice")

    assert [200, 429] == await statuses(app, "GET /items", "GET /items")
    assert [200, 429] == await statuses(both, "GET /items", "GET /items")
