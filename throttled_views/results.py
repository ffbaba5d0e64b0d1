"""
What a store is asked and what it answers.

A `Charge` goes in, a `RateLimitResult` comes out. A `Decision` is the same answer in
whole microseconds, as the algorithms give it and as the request path keeps it until
somebody asks for a result.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import ceil, inf
from typing import Literal, NamedTuple, NoReturn, TypeAlias

from throttled_views.quotas import Algorithm, Quota

__all__ = [
    "Charge",
    "OnStoreError",
    "RateLimitResult",
    "RateLimitState",
    "Receipt",
]

_US_PER_S = 1_000_000

MYPY = False  # which mypy takes for True


class Decision(NamedTuple):
    """
    What an algorithm answered, in whole numbers.

    Attributes:
        limited: Whether the request is refused.
        limit: The capacity.
        remaining: Requests the key could still make right now.
        reset_us: Microseconds until *remaining* is *limit*, rounded up.
        retry_us: Microseconds until the same request would be admitted, rounded up;
            0 if it was, None if it never will be.
        at_us: When this was decided, by the store's clock, in microseconds.
        delay_us: Microseconds that the request, which was admitted, has to wait for
            its turn, rounded up.
    """

    limited: bool
    limit: int
    remaining: int
    reset_us: int
    retry_us: int | None
    at_us: int
    delay_us: int = 0


OnStoreError: TypeAlias = Literal["local", "deny", "allow"]
"""
What is done with a request while the store is unavailable.

``"local"`` counts in this process by the same quotas, ``"deny"`` answers 503, and
``"allow"`` admits.
"""


@dataclass(frozen=True, slots=True)
class Charge:
    """
    One limit's share of one request.

    Attributes:
        key: Who is charged for what; the whole key, as the store knows it.
        quota: What the key is held to.
        algorithm: How it is counted.
        cost: Units to charge, 0 or more; 0 looks without charging.
        on_store_error: What is done while the store is unavailable; None leaves it to
            the limiter.
        max_delay: Seconds that the request would wait for its turn; the token bucket
            family alone can tell turns.
        refundable: Whether it may be given back from anywhere at any time, so that no
            store must remember a refusal of it.

    Raises:
        ValueError: *cost* is negative or not a whole number.
    """

    key: str
    quota: Quota
    algorithm: Algorithm = Algorithm.TOKEN_BUCKET
    cost: int = 1
    on_store_error: OnStoreError | None = None
    max_delay: float = 0.0
    refundable: bool = False

    def __post_init__(self) -> None:
        checked_cost(self.cost)


@dataclass(frozen=True, slots=True)
class Receipt:
    """
    Proof of a charge, to be refunded with.

    Attributes:
        charge: What was charged.
        at_us: When, by the store's clock, in microseconds.
    """

    charge: Charge
    at_us: int


@dataclass(frozen=True, slots=True)
class RateLimitState:
    """
    Where a key stands.

    Attributes:
        limit: The capacity: requests a fresh key could make at once.
        remaining: Requests this key could still make right now.
        reset_after: Seconds until *remaining* equals *limit*.
        retry_after: Seconds until the same request would be admitted; 0.0 if it was,
            None if it never will be, because it costs more than *limit* or the quota
            is zero.
    """

    limit: int
    remaining: int
    reset_after: float
    retry_after: float | None


@dataclass(frozen=True, slots=True)
class RateLimitResult:
    """
    What one limit answered to one request.

    Attributes:
        limited: Whether this limit refuses the request.
        state: Where the key stands now.
        name: Name of the limit that answers.
        delay: Seconds to wait before the request, which is charged, has its turn; 0.0
            unless the limit has a `Limit.max_delay`.
        receipts: What a later refund needs; empty if nothing was charged.
    """

    limited: bool
    state: RateLimitState
    name: str = ""
    delay: float = 0.0
    receipts: tuple[Receipt, ...] = field(default=(), repr=False)

    # Pyright refuses `if result:` because of this method; mypy does if it sees none.
    if not MYPY:  # pragma: no branch

        def __bool__(self) -> NoReturn:
            """Refuse: both readings of ``if result:`` have let people in."""
            msg = "A RateLimitResult is neither true nor false. Write `result.limited`"
            raise TypeError(msg)


def checked_cost(cost: object) -> int:
    """Return *cost* if it can be charged, else raise ValueError."""
    if not isinstance(cost, int) or isinstance(cost, bool) or cost < 0:
        msg = f"A cost must be a whole number of 0 or more, not {cost!r}"
        raise ValueError(msg)
    return cost


def result_of(
    decision: Decision, name: str = "", receipts: tuple[Receipt, ...] = ()
) -> RateLimitResult:
    """Return *decision* as users see it."""
    retry_us = decision.retry_us
    state = RateLimitState(
        limit=decision.limit,
        remaining=decision.remaining,
        reset_after=decision.reset_us / _US_PER_S,
        retry_after=None if retry_us is None else retry_us / _US_PER_S,
    )
    delay = decision.delay_us / _US_PER_S
    return RateLimitResult(decision.limited, state, name, delay, receipts)


def decision_of(result: RateLimitResult) -> Decision:
    """Return *result* in whole microseconds, each rounded up."""
    state = result.state
    return Decision(
        result.limited,
        state.limit,
        state.remaining,
        ceil(state.reset_after * _US_PER_S),
        None if state.retry_after is None else ceil(state.retry_after * _US_PER_S),
        0,
        ceil(result.delay * _US_PER_S),
    )


def urgency(decision: Decision) -> tuple[bool, float, int]:
    """
    Return a sort key; the least decision is the one a client is told about.

    Of the limits that refuse, it is the one that takes longest; if none refuses, the
    one that is nearest to exhaustion.
    """
    if not decision.limited:
        return True, decision.remaining, -decision.reset_us
    return False, -inf if decision.retry_us is None else -decision.retry_us, 0
