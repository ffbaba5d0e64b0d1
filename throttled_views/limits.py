"""What a view declares: limits, and the one spelling of "no limit"."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from inspect import iscoroutinefunction, signature
from typing import Final, TypeAlias, TypedDict, Unpack, cast, get_args

from throttled_views.algorithms.kernels import check_turns, counts_apart, kernel_of
from throttled_views.errors import ConfigurationError, InvalidQuotaError, shown
from throttled_views.quotas import Algorithm, Quota
from throttled_views.results import OnStoreError, checked_cost

__all__ = [
    "EXEMPT",
    "CostFunc",
    "Exempt",
    "KeyFunc",
    "Limit",
    "QuotaFunc",
    "RefundWhen",
    "Throttle",
]


class Exempt:
    """The type of `EXEMPT`, of which there is one instance."""

    __slots__ = ()

    def __repr__(self) -> str:
        """Return the name it is written by."""
        return "EXEMPT"

    def __reduce__(self) -> str:
        """Stay the one instance when copied or pickled."""
        return "EXEMPT"


EXEMPT: Final = Exempt()
"""No limit, on purpose. Write it where a quota is expected."""

KeyFunc: TypeAlias = Callable[..., str | Awaitable[str | None] | None]
"""
Names the client to charge: a function, sync or async, of the request.

It returns a non-empty string, or None where the limit does not apply.
"""

QuotaFunc: TypeAlias = Callable[
    ..., Quota | str | Exempt | Awaitable[Quota | str | Exempt]
]
"""
Chooses the quota of a request: a function, sync or async, of the request.

It returns a quota or its text, or `EXEMPT` where the limit does not apply.
"""

CostFunc: TypeAlias = Callable[..., int | Awaitable[int]]
"""Tells what a request costs, in units of 0 or more: a function of the request."""

RefundWhen: TypeAlias = Callable[[int], bool]
"""
Tells, by the status of the response, whether a request gets its charge back.

A request whose handler raised what nobody handled has the status 500, and one that was
cancelled before its response started, since the client hung up, 499. Of a function on a
plain router, outside any middleware of ours, nobody sees the response: whatever it
raises there but an `HTTPException` is a 500, even if the application answers otherwise.
"""

_LONGEST_DELAY_S = 86_400.0  # nobody keeps a request waiting for more than a day


@dataclass(frozen=True, slots=True, init=False)
class Limit:
    """
    One quota, and all that may differ from the defaults of its view.

    Attributes:
        quota: The quota, or a function of the request that chooses it.
        key_func: Names the client to charge; None takes the view's.
        cost: Units a request costs, or a function of the request that tells.
        name: Printable ASCII that names the limit in results and keys; None takes its
            position.
        using: How the quota is counted; None takes the view's algorithm.
        bucket: Name of a bucket to share with other handlers; None keeps one of its
            own for each handler.
        on_store_error: What is done while the store is unavailable; None takes what the
            limiter says.
        shadow: Whether it is decided and told to hooks, and never enforced.
        refund_when: Tells by the status of the response whether the charge is given
            back, as the response starts; None keeps all charges.
        max_delay: Seconds that a request may wait for its turn where it would be
            refused: it is charged now, and served as soon as the quota allows.

    Raises:
        InvalidQuotaError: The quota's text is not one.
        ConfigurationError: An option is out of its bounds, or *cost* is above the
            capacity, so that no request could ever pass.
    """

    quota: Quota | QuotaFunc
    key_func: KeyFunc | None
    cost: int | CostFunc
    name: str | None
    using: Algorithm | None
    bucket: str | None
    on_store_error: OnStoreError | None
    shadow: bool
    refund_when: RefundWhen | None
    max_delay: float

    def __init__(  # noqa: PLR0913 - each is an independent choice
        self,
        quota: Quota | str | QuotaFunc,
        *,
        key_func: KeyFunc | None = None,
        cost: int | CostFunc = 1,
        name: str | None = None,
        using: Algorithm | None = None,
        bucket: str | None = None,
        on_store_error: OnStoreError | None = None,
        shadow: bool = False,
        refund_when: RefundWhen | None = None,
        max_delay: float = 0.0,
    ) -> None:
        set_field = object.__setattr__
        set_field(self, "quota", _quota_or_function(quota))
        set_field(self, "key_func", _checked_function("key_func", key_func))
        set_field(self, "cost", _cost_or_function(cost))
        set_field(self, "name", _checked_text("name", name))
        set_field(self, "using", None if using is None else available(using))
        set_field(self, "bucket", _checked_text("bucket", bucket))
        if on_store_error is not None:
            checked_on_store_error(on_store_error)
        set_field(self, "on_store_error", on_store_error)
        set_field(self, "shadow", _checked_flag("shadow", shadow))
        set_field(self, "refund_when", _checked_refund_when(refund_when))
        set_field(self, "max_delay", _checked_delay(max_delay))
        self._check_that_a_request_can_pass()

    def _check_that_a_request_can_pass(self) -> None:
        quota, cost = self.quota, self.cost
        if cost == 0:
            msg = "Limit(…, cost=0) never limits. Write EXEMPT if that is meant"
            raise ConfigurationError(msg)
        if self.using is not None:
            check_turns(self.using, self.max_delay)
            if isinstance(quota, Quota):
                kernel_of(quota, self.using)  # which tells if they do not go together
        if isinstance(quota, Quota) and self.max_delay:
            kernel_of(quota, max_delay=self.max_delay)
        if not isinstance(quota, Quota) or not isinstance(cost, int):
            return
        if quota.limit and cost > quota.burst:
            larger = f"give the quota a burst: Quota(…, burst={cost})"
            if self.using is not None and counts_apart(self.using):
                larger = f"raise its limit to {cost}: a window knows no burst"
            msg = (
                f"Limit({str(quota)!r}, cost={cost}) could never admit a request: it "
                f"costs more than the capacity of {quota.burst}. Lower the cost, or "
                f"{larger}"
            )
            raise ConfigurationError(msg)


_One: TypeAlias = Quota | str | Limit | QuotaFunc

Throttle: TypeAlias = _One | Sequence[_One] | Exempt
"""All that a `throttle` attribute takes."""


class LimitOptions(TypedDict, total=False):
    """The options of `Limit`, by keyword."""

    key_func: KeyFunc | None
    cost: int | CostFunc
    name: str | None
    using: Algorithm | None
    bucket: str | None
    on_store_error: OnStoreError | None
    shadow: bool
    refund_when: RefundWhen | None
    max_delay: float


def limits_of(throttle: Throttle, **options: Unpack[LimitOptions]) -> tuple[Limit, ...]:
    """
    Return the limits that *throttle* declares; none for `EXEMPT`.

    Args:
        throttle: The declaration.
        options: What each limit takes besides its quota.

    Raises:
        InvalidQuotaError: A text is not a quota.
        ConfigurationError: It is not a throttle, an empty list, says one thing twice,
            or gives options to a `Limit`, which has its own.
    """
    if isinstance(throttle, Exempt):
        return ()
    items: Sequence[object] = [throttle]
    if isinstance(throttle, Sequence) and not isinstance(throttle, str):
        items = cast("Sequence[object]", throttle)
    limits = tuple(limit for item in items for limit in _each(item, options))
    if not limits:
        msg = "An empty list limits nothing. Write EXEMPT if that is meant"
        raise ConfigurationError(msg)
    check_distinct(limits)
    return limits


def check_distinct(limits: Sequence[Limit]) -> None:
    """Raise ConfigurationError if two of *limits* would be counted as one."""
    for position, limit in enumerate(limits):
        if limit in limits[:position]:
            msg = (
                f"{limit_text(limit)} is declared twice for the same key, which "
                "changes nothing. Remove one, or give each a name"
            )
            raise ConfigurationError(msg)
    slots = list(zip((each.bucket for each in limits), slots_of(limits), strict=True))
    for slot in slots:
        if slots.count(slot) > 1:
            msg = f"Two limits are named {slot[1]!r}. Give each a name of its own"
            raise ConfigurationError(msg)


def names_of(limits: Sequence[Limit]) -> list[str]:
    """Return the names of *limits*: the one given, else the position from 1."""
    return [
        limit.name or str(position) for position, limit in enumerate(limits, start=1)
    ]


def slots_of(limits: Sequence[Limit]) -> list[str]:
    """
    Return what tells *limits* apart in keys: the name, else the position from 1.

    In a shared bucket positions are counted among the limits of the bucket, so that it
    does not matter what other limits a handler has.
    """
    seen: dict[str | None, int] = {}
    slots: list[str] = []
    for limit in limits:
        seen[limit.bucket] = seen.get(limit.bucket, 0) + 1
        slots.append(limit.name or str(seen[limit.bucket]))
    return slots


def limit_text(limit: Limit) -> str:
    """Return the quota of *limit* as text, or the name of the function that chooses."""
    if isinstance(limit.quota, Quota):
        return str(limit.quota)
    return str(getattr(limit.quota, "__name__", "dynamic"))


def _each(item: object, options: LimitOptions) -> list[Limit]:
    if isinstance(item, Limit):
        if options:
            msg = (
                f"{', '.join(options)} cannot be given to a finished Limit. "
                f"Write it in the Limit: Limit(…, {next(iter(options))}=…)"
            )
            raise ConfigurationError(msg)
        return [item]
    if isinstance(item, str):
        parts = item.split(";")
        if len(parts) > 1 and not all(map(str.strip, parts)):
            raise InvalidQuotaError(item, "one of the list is empty")
        return [Limit(part, **options) for part in parts]
    if isinstance(item, Exempt):
        msg = "EXEMPT stands alone. Write it instead of the list, or remove it"
        raise ConfigurationError(msg)
    return [Limit(_quota_or_function(item), **options)]


def _quota_or_function(given: object) -> Quota | QuotaFunc:
    """Return *given* as a quota, reading it if it is text, or as the function it is."""
    if isinstance(given, Quota):
        return given
    if isinstance(given, str):
        return Quota.parse(given)
    if callable(given) and not isinstance(given, type):
        return cast("QuotaFunc", given)
    raise InvalidQuotaError(given, "it is neither a quota nor text nor a function")


def available(using: object) -> Algorithm:
    """
    Return *using* if this version can count by it.

    Raises:
        ConfigurationError: It is no algorithm, or none that is available.
    """
    for algorithm in Algorithm:
        if using == algorithm:
            return algorithm
    names = ", ".join(f"Algorithm.{each.name}" for each in Algorithm)
    msg = f"using={using!r} is not available. Write one of {names}"
    raise ConfigurationError(msg)


def checked_on_store_error(policy: object) -> OnStoreError:
    """Return *policy* if it can be followed while a store is unavailable."""
    for known in get_args(OnStoreError):
        if policy == known:
            return cast("OnStoreError", known)
    msg = f"on_store_error={policy!r} is none. Write 'local', 'deny' or 'allow'"
    raise ConfigurationError(msg)


def _checked_function(name: str, function: object) -> KeyFunc | None:
    if function is None:
        return None
    if callable(function) and not isinstance(function, type):
        return cast("KeyFunc", function)
    msg = f"{name}={function!r} is not a function. Write for example {name}=client_ip"
    raise ConfigurationError(msg)


def _cost_or_function(cost: object) -> int | CostFunc:
    if callable(cost) and not isinstance(cost, type):
        return cast("CostFunc", cost)
    try:
        return checked_cost(cost)
    except ValueError as error:
        msg = f"{error}. Write for example cost=1"
        raise ConfigurationError(msg) from None


def _checked_text(name: str, text: object) -> str | None:
    if text is None:
        return None
    if isinstance(text, str) and text and text.isascii() and text.isprintable():
        return text
    msg = f"{name}={text!r} is not printable ASCII. Write for example {name}='daily'"
    raise ConfigurationError(msg)


def _checked_flag(name: str, flag: object) -> bool:
    if isinstance(flag, bool):
        return flag
    msg = f"{name}={flag!r} is neither True nor False. Write {name}=True"
    raise ConfigurationError(msg)


def _checked_refund_when(function: object) -> RefundWhen | None:
    if function is None:
        return None
    if not callable(function) or isinstance(function, type):
        problem = "is no function"
    elif _is_async(function):
        problem = "is async, and nobody would await it"
    elif not _takes_one(function):
        problem = "does not take the status alone"
    else:
        return cast("RefundWhen", function)
    msg = (
        f"refund_when={shown(function)} {problem}. Write for example "
        "refund_when=lambda status: status < 400"
    )
    raise ConfigurationError(msg)


def _checked_delay(delay: object) -> float:
    if (
        isinstance(delay, int | float)
        and not isinstance(delay, bool)
        and 0 <= delay <= _LONGEST_DELAY_S
    ):
        return float(delay)
    msg = (
        f"max_delay={delay!r} is no number of seconds from 0 to a day. Write for "
        "example max_delay=2.5"
    )
    raise ConfigurationError(msg)


def _is_async(function: object) -> bool:
    call = getattr(function, "__call__", None)  # noqa: B004 - whose it is matters
    return iscoroutinefunction(function) or iscoroutinefunction(call)


def _takes_one(function: Callable[..., object]) -> bool:
    try:
        signature(function).bind(200)
    except TypeError:
        return False
    except ValueError:  # one of C does not tell
        return True
    return True
