"""What a test says of a response that it expects to be a refusal."""

from __future__ import annotations

from inspect import isawaitable
from math import ceil, isinf
from typing import Protocol

from throttled_views.errors import shown
from throttled_views.headers import LEGACY_HEADERS, IETFHeaders, RateLimitHeaderPolicy
from throttled_views.testing._structured import numbers_of

__all__ = ["Response", "assert_throttled"]

_TOO_MANY_REQUESTS = 429  # RFC 6585, section 4
_DRAFT_POLICY, _DRAFT, _ = IETFHeaders().names
_POLICIES = (RateLimitHeaderPolicy(), LEGACY_HEADERS)


class _Headers(Protocol):
    """Header fields of a response, whose names have no case."""

    def get(self, name: str, /) -> str | None:
        """Return the value of a field, None if there is none."""
        ...


class Response(Protocol):
    """A response of httpx, of the test client, or of a library like them."""

    @property
    def status_code(self) -> int:
        """The status."""
        ...

    @property
    def headers(self) -> _Headers:
        """The header fields."""
        ...


def assert_throttled(response: Response, *, retry_after: float | None = None) -> None:
    """
    Fail unless *response* is a refusal by a rate limit, with what belongs to it.

    That is a 429 with a ``Retry-After``, and fields that go together with it, if there
    are any: ``RateLimit-*``, ``X-RateLimit-*``, and those of the IETF's draft. What has
    another name is not looked at.

    Args:
        response: A response of httpx, of FastAPI's test client, or the like.
        retry_after: Seconds that ``Retry-After`` is to say, rounded up to whole ones;
            `math.inf` for a refusal for ever, which has none. Any will do unless given.

    Raises:
        AssertionError: It is not; the message says what came instead.
        TypeError: *response* is no response.
    """
    _check_is_response(response)
    summary = _summary_of(response)
    assert response.status_code == _TOO_MANY_REQUESTS, (
        f"Expected status 429, not {response.status_code}. {summary}"
    )
    waits = _number(response, "Retry-After")
    if retry_after is not None and isinf(retry_after):
        assert waits is None, f"Expected no Retry-After, not {waits}. {summary}"
    else:
        assert waits is not None, (
            "Expected a Retry-After, and there is none: the request would never be "
            f"admitted, or the 429 is not of a rate limit. {summary}"
        )
        assert waits >= 1, (
            f"Expected a Retry-After of 1 or more, not {waits}. {summary}"
        )
    if retry_after is not None and not isinf(retry_after):
        wanted = max(1, ceil(retry_after))
        assert waits == wanted, (
            f"Expected Retry-After: {wanted}, not {waits}. {summary}"
        )
    for policy in _POLICIES:
        _check_fields(response, policy, waits, summary)
    _check_draft(response, waits, summary)


def _check_fields(
    response: Response, policy: RateLimitHeaderPolicy, waits: int | None, summary: str
) -> None:
    limit = _number(response, policy.limit)
    remaining = _number(response, policy.remaining)
    reset = _number(response, policy.reset)
    if limit is not None and remaining is not None:
        assert remaining <= limit, f"There is more left than the limit. {summary}"
    if reset is not None and waits is not None:
        # Whole seconds both, and a wait is never told as none.
        assert waits <= max(1, reset), f"The wait is longer than the reset. {summary}"


def _check_draft(response: Response, waits: int | None, summary: str) -> None:
    """Check what `IETFHeaders` writes: a limit that refuses has the wait as its t."""
    policies = _listed(response, _DRAFT_POLICY) or {}
    limits = _listed(response, _DRAFT)
    if limits is None:
        return
    for name, left in limits.items():
        assert "r" in left, f"{name} does not tell what is left, its r. {summary}"
        capacity = policies.get(name, {}).get("q", left["r"])
        assert left["r"] <= capacity, f"{name} has more left than its q. {summary}"
    wanted = "no t" if waits is None else f"t={waits}"
    assert waits in [left.get("t") for left in limits.values()], (
        f"Expected a limit with {wanted}, as Retry-After says. {summary}"
    )


def _listed(response: Response, name: str) -> dict[str, dict[str, int]] | None:
    """Return the numbers of each limit in a field; None if there is no such field."""
    text = response.headers.get(name)
    if text is None:
        return None
    numbers = numbers_of(text)
    assert numbers is not None, f"Expected a list of limits in {name}, not {text!r}"
    return numbers


def _number(response: Response, name: str) -> int | None:
    """Return the whole number that a field has; None if there is no such field."""
    text = response.headers.get(name)
    if text is None:
        return None
    is_number = text.isascii() and text.isdigit()
    assert is_number, f"Expected a whole number in {name}, not {text!r}"
    return int(text)


def _summary_of(response: Response) -> str:
    """Return what *response* says of limits, as a sentence."""
    names = ["Retry-After"]
    for policy in _POLICIES:
        names += [policy.limit, policy.remaining, policy.reset]
    names += [_DRAFT, _DRAFT_POLICY]
    found = [(name, response.headers.get(name)) for name in names]
    fields = ", ".join(f"{name}: {value}" for name, value in found if value is not None)
    return f"It says {fields}" if fields else "It says nothing of limits"


def _check_is_response(response: object) -> None:
    status = getattr(response, "status_code", None)
    get = getattr(getattr(response, "headers", None), "get", None)
    if isinstance(status, int) and callable(get):
        return
    close = getattr(response, "close", None)
    if isawaitable(response) and callable(close):
        close()  # nobody will await it
    write = (
        "assert_throttled(await client.get(…))"
        if isawaitable(response)
        else "assert_throttled(client.get(…))"
    )
    msg = f"{shown(response)} is no response. Write {write}"
    raise TypeError(msg)
