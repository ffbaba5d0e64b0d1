"""
What the client is told: the header fields.

There is one renderer, `HeaderRenderer`; the success and the 429 path share it. What the
fields are called, and how they are written, is a policy's: the names of drafts that
everybody knows, or the syntax of the latest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import NamedTuple, TypeAlias

from throttled_views._fields import is_field_name
from throttled_views.algorithms.base import AnyKernel
from throttled_views.algorithms.bucket import Bucket
from throttled_views.errors import ConfigurationError
from throttled_views.quotas import Quota
from throttled_views.results import Decision, urgency
from throttled_views.stores.deciding import Taken

__all__ = [
    "EXPOSED_HEADERS",
    "LEGACY_HEADERS",
    "IETFHeaders",
    "RateLimitHeaderPolicy",
]

RawHeaders: TypeAlias = list[tuple[bytes, bytes]]

_US_PER_S = 1_000_000
_RETRY_AFTER = "Retry-After"

# Sections 5.1 and 5.2 of the draft. The detail is what is told without these, too.
_PROBLEM_TYPES = "https://iana.org/assignments/http-problem-types"
QUOTA_EXCEEDED = {
    "type": f"{_PROBLEM_TYPES}#quota-exceeded",
    "title": "Request cannot be satisfied as assigned quota has been exceeded",
    "status": 429,
    "detail": "Rate limit exceeded",
}
REDUCED_CAPACITY = {
    "type": f"{_PROBLEM_TYPES}#temporary-reduced-capacity",
    "title": "Request cannot be satisfied due to temporary server capacity constraints",
    "status": 503,
    "detail": "Rate limits are unavailable",
}


@dataclass(frozen=True, slots=True)
class RateLimitHeaderPolicy:
    """
    The names of the header fields.

    Attributes:
        limit: Names the field with the capacity.
        remaining: Names the field with the requests left right now.
        reset: Names the field with the seconds, rounded up, until all are back.
        retry_after: Names the field, on a refusal alone, with the seconds to wait,
            rounded up and at least 1 (RFC 9110, section 10.2.3).

    Raises:
        ConfigurationError: A name is not a field name, or is used twice.
    """

    limit: str = "RateLimit-Limit"
    remaining: str = "RateLimit-Remaining"
    reset: str = "RateLimit-Reset"
    retry_after: str = _RETRY_AFTER

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all fields that may be written."""
        return tuple(getattr(self, field.name) for field in fields(self))

    def __post_init__(self) -> None:
        names = self.names
        for name in names:
            if not is_field_name(name):
                msg = f"{name!r} is no field name. Write for example 'RateLimit-Limit'"
                raise ConfigurationError(msg)
        if len({name.lower() for name in names}) < len(names):
            msg = f"{self} uses a field name twice. Give each field its own"
            raise ConfigurationError(msg)


LEGACY_HEADERS = RateLimitHeaderPolicy(
    limit="X-RateLimit-Limit",
    remaining="X-RateLimit-Remaining",
    reset="X-RateLimit-Reset",
)
"""The ``X-RateLimit-*`` names. The reset is in seconds from now here, too."""


class IETFHeaders:
    """
    The fields of draft-ietf-httpapi-ratelimit-headers-11, which tell of all limits.

    ``RateLimit-Policy`` has, for each limit, its name, its capacity (``q``) and the
    seconds (``w``) in which an exhausted key becomes full again. ``RateLimit`` has what
    is left right now (``r``) and the seconds (``t``) until all is back; of a limit that
    refuses, until the same request would be admitted, which is what ``Retry-After``
    says, too. Seconds are rounded up: who goes by them is never too early.
    """

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        """Tell whether *other* is this policy, which has no options."""
        return isinstance(other, IETFHeaders) or NotImplemented

    def __hash__(self) -> int:
        """Return a hash of the class."""
        return hash(IETFHeaders)

    def __repr__(self) -> str:
        """Return the call that makes it."""
        return "IETFHeaders()"

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all fields that may be written."""
        return "RateLimit-Policy", "RateLimit", _RETRY_AFTER


EXPOSED_HEADERS = (*RateLimitHeaderPolicy().names[:-1], *IETFHeaders().names)
"""
The names of the fields that the policies here write by default.

Browsers show a script of another origin only what is exposed to it: write
``CORSMiddleware(…, expose_headers=EXPOSED_HEADERS)``. Other names are the `names` of
their policy: ``expose_headers=LEGACY_HEADERS.names``.
"""

HeaderPolicy: TypeAlias = RateLimitHeaderPolicy | IETFHeaders
"""What the fields are called, and how they are written."""


class Told(NamedTuple):
    """
    What a client may be told of one limit.

    Attributes:
        decision: What it answered.
        name: The name of the limit, which no other of the request has.
        quota: The quota it was held to.
    """

    decision: Decision
    name: str
    quota: Quota


def _governing(told_of_all: Sequence[Told]) -> Told:
    """Return what a client is told if it is told of one limit."""
    return min(told_of_all, key=lambda each: urgency(each.decision))


class HeaderRenderer:
    """Writes decisions as header fields; made once for a policy."""

    __slots__ = ("_names", "_spelling", "policy", "problem_details")

    def __init__(
        self, policy: HeaderPolicy | None, *, problem_details: bool = False
    ) -> None:
        self.policy = policy
        self.problem_details = problem_details
        spelled = (_RETRY_AFTER,) if policy is None else policy.names
        self._spelling = {name.lower().encode(): name for name in spelled}
        self._names = tuple(self._spelling)

    def render(self, told_of_all: Sequence[Told]) -> RawHeaders:
        """Return the fields that tell it, names in lower case."""
        governing = _governing(told_of_all).decision
        if isinstance(self.policy, IETFHeaders):
            values = _structured(told_of_all)
        elif self.policy is not None:
            values = _plain(governing)
        else:
            values = []
        *names, retry_after = self._names
        raw = list(zip(names, values, strict=True))
        if governing.limited and governing.retry_us is not None:
            raw.append((retry_after, b"%d" % _wait_s(governing.retry_us)))
        return raw

    def merger(
        self, kernel: AnyKernel, cost: int, told_of: Callable[[Taken], Told]
    ) -> Callable[[Iterable[tuple[bytes, bytes]], Taken], RawHeaders]:
        """
        Return what adds to header fields those of a decision by *kernel* on *cost*.

        It is `merged` and `render` for the path of nearly every request: in one step
        from the ticks of the decision. The tests hold it to them.
        """

        def merge_any(
            headers: Iterable[tuple[bytes, bytes]], taken: Taken
        ) -> RawHeaders:
            return merged(headers, self.render([told_of(taken)]))

        if not isinstance(self.policy, RateLimitHeaderPolicy) or not isinstance(
            kernel, Bucket
        ):
            return merge_any
        bucket, names = kernel, self._spelling
        limit_name, remaining_name, reset_name, retry_name = self._names
        limit_field = (limit_name, b"%d" % bucket.capacity)
        token, full, price = bucket.token, bucket.full, cost * bucket.token
        second = bucket.scale * _US_PER_S

        def merge(headers: Iterable[tuple[bytes, bytes]], taken: Taken) -> RawHeaders:
            limited, level, _, _ = taken
            both = [*headers]
            for name, _ in both:
                if name in names:
                    return merge_any(headers, taken)
            both.append(limit_field)
            both.append((remaining_name, b"%d" % (level // token)))
            both.append((reset_name, b"%d" % -((level - full) // second)))
            if limited:
                wait_s = -((level - price) // second)
                both.append((retry_name, b"%d" % wait_s))
            return both

        return merge

    def display(self, raw: RawHeaders) -> dict[str, str]:
        """Return *raw* with the names as the policy spells them."""
        return {self._spelling[name]: value.decode() for name, value in raw}


def _plain(decision: Decision) -> list[bytes]:
    reset_s = -(-decision.reset_us // _US_PER_S)
    return [b"%d" % decision.limit, b"%d" % decision.remaining, b"%d" % reset_s]


def _structured(told_of_all: Sequence[Told]) -> list[bytes]:
    """Return two lists of items as RFC 9651 has them; sections 3 and 4 of the draft."""
    return [
        b", ".join([_policy_item(name, quota) for _, name, quota in told_of_all]),
        b", ".join([_limit_item(decision, name) for decision, name, _ in told_of_all]),
    ]


@lru_cache(maxsize=1024)
def _policy_item(name: str, quota: Quota) -> bytes:
    # The capacity and the time in which that much comes back: of "100/m burst 20" it is
    # 20 in 12 s. No less may be left than is told, and no time may be told as 0.
    full_us = quota.period_us * quota.burst // quota.limit if quota.limit else 0
    window_s = -(-(full_us or quota.period_us) // _US_PER_S)
    return b"%b;q=%d;w=%d" % (_quoted(name), quota.burst, window_s)


def _limit_item(decision: Decision, name: str) -> bytes:
    item = b"%b;r=%d" % (_quoted(name), decision.remaining)
    if not decision.limited:
        return b"%b;t=%d" % (item, -(-decision.reset_us // _US_PER_S))
    if decision.retry_us is None:  # there is no such time
        return item
    return b"%b;t=%d" % (item, _wait_s(decision.retry_us))


def _quoted(name: str) -> bytes:
    """Return *name*, which is printable ASCII, as a string of RFC 9651."""
    escaped = name.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'.encode()


def _wait_s(retry_us: int) -> int:
    return max(1, -(-retry_us // _US_PER_S))


def checked_policy(policy: object) -> HeaderPolicy | None:
    """Return *policy* if it is one, or None."""
    if policy is None or isinstance(policy, HeaderPolicy):
        return policy
    msg = (
        f"headers={policy!r} is no policy. Write headers=RateLimitHeaderPolicy(…) or "
        "headers=IETFHeaders()"
    )
    raise ConfigurationError(msg)


@lru_cache(maxsize=64)
def renderer_of(
    policy: HeaderPolicy | None, *, problem_details: bool = False
) -> HeaderRenderer:
    """Return the renderer of *policy*; of None, one that writes Retry-After alone."""
    return HeaderRenderer(policy, problem_details=problem_details)


def merged(headers: Iterable[tuple[bytes, bytes]], ours: RawHeaders) -> RawHeaders:
    """
    Return *headers* and those of *ours* that are not there yet, as a new list.

    A field of the response itself, or of a refusal further in, is kept. The list given
    is never extended: it belongs to a response object that may be sent again.
    """
    both = [*headers]
    present = dict(both)  # names are in lower case, as ASGI has them
    return both + [field for field in ours if field[0] not in present]
