"""Hooks: they are told what happens, and change nothing of it."""

import logging
from collections.abc import Sequence

import pytest

from tests.asgi import Relay, app_of, statuses
from tests.noted import Notes
from throttled_views import (
    Charge,
    ConfigurationError,
    Hook,
    Limiter,
    MemoryStore,
    RateLimitResult,
    StoreStateEvent,
    StoreUnavailableError,
    ThrottledRouter,
)


class Clumsy(Notes):
    """A hook that fails whatever it is told."""

    def on_store_state(self, event: StoreStateEvent) -> None:
        """Fail."""
        super().on_store_state(event)
        raise ZeroDivisionError


class Down(Relay):
    """A store that is down until it is told otherwise."""

    is_down = True

    async def acquire(self, charges: Sequence[Charge], /) -> Sequence[RateLimitResult]:
        """Fail while it is down."""
        if self.is_down:
            msg = "no route to host"
            raise StoreUnavailableError(msg)
        return await super().acquire(charges)


async def test_a_hook_is_told_when_the_store_goes_down() -> None:
    """It is told once, with the reason and with what decides from now on."""
    notes = Notes()
    limiter = Limiter("5/h", store=Down(), on_store_error="allow", hooks=[notes])
    router = ThrottledRouter(limiter)

    @router.get("/")
    async def get() -> None: ...

    assert [200, 200] == await statuses(app_of(router), "GET /", "GET /")
    [event] = notes.events
    assert (False, "allow", "no route to host") == (
        event.available,
        event.policy,
        str(event.error),
    )


async def test_a_hook_that_fails_changes_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Its error is logged; the request and the other hooks go on."""
    clumsy, notes = Clumsy(), Notes()
    limiter = Limiter("1/h", store=Down(), hooks=[clumsy, notes])
    router = ThrottledRouter(limiter)

    @router.get("/")
    async def get() -> None: ...

    with caplog.at_level(logging.ERROR, "throttled_views"):
        assert [200, 429] == await statuses(app_of(router), "GET /", "GET /")
    assert clumsy.events == notes.events
    assert "ZeroDivisionError" in caplog.text


class Half(Hook):
    """A hook that observes nothing: it leaves out both methods."""


async def test_a_hook_may_leave_out_what_it_does_not_observe() -> None:
    """A subclass of `Hook` has methods that do nothing."""
    notes = Notes()
    limiter = Limiter("1/h", store=Down(), hooks=[Half(), notes])
    router = ThrottledRouter(limiter)

    @router.get("/")
    async def get() -> None: ...

    assert [200, 429] == await statuses(app_of(router), "GET /", "GET /")
    assert (1, 2) == (len(notes.events), len(notes.checks))


@pytest.mark.parametrize(
    "hook", [object(), Notes, print], ids=["object", "class", "function"]
)
def test_what_cannot_be_told_is_no_hook(hook: object) -> None:
    """A hook that lacks a method is refused at once, not at the first event."""
    with pytest.raises(ConfigurationError, match="has no method on_check"):
        Limiter(store=MemoryStore(), hooks=[hook])  # type: ignore[list-item] # pyright: ignore[reportArgumentType]


class Waiting(Notes):
    """A hook that would have to be awaited."""

    async def on_store_state(self, event: StoreStateEvent) -> None:  # type: ignore[override] # pyright: ignore[reportIncompatibleMethodOverride]
        """Wait."""


@pytest.mark.parametrize(
    ("hooks", "said"),
    [(Notes(), "Write a list of them"), ([Waiting()], "which nobody would await")],
    ids=["one", "async"],
)
def test_hooks_are_a_list_of_plain_ones(hooks: list[Notes], said: str) -> None:
    """What would never be told anything is refused at once."""
    with pytest.raises(ConfigurationError, match=said):
        Limiter(store=MemoryStore(), hooks=hooks)
