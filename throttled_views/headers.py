"""
What the client is told: header fields, and the context they are written from.

There is one renderer, `HeaderRenderer`; the success and the 429 path share it, and the
`RateLimitContext` of the request.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import lru_cache
from types import MappingProxyType
from typing import TypeAlias

from throttled_views.algorithms.base import AnyKernel
from throttled_views.algorithms.bucket import Bucket
from throttled_views.errors import ConfigurationError, NoRateLimitError
from throttled_views.results import Decision, RateLimitResult, Receipt, urgency
from throttled_views.stores.base import Store
from throttled_views.stores.deciding import Taken, told

__all__ = ["LEGACY_HEADERS", "RateLimitContext", "RateLimitHeaderPolicy"]

RawHeaders: TypeAlias = list[tuple[bytes, bytes]]

_US_PER_S = 1_000_000
_TOKEN = frozenset(
    "!#$%&'*+-.^_`|~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
)  # RFC 9110, section 5.6.2


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
    retry_after: str = "Retry-After"

    def __post_init__(self) -> None:
        names = [getattr(self, field.name) for field in fields(self)]
        for name in names:
            if not isinstance(name, str) or not name or not _TOKEN.issuperset(name):
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


class HeaderRenderer:
    """Writes decisions as header fields; made once for a policy."""

    __slots__ = (
        "_limit",
        "_remaining",
        "_reset",
        "_retry_after",
        "_spelling",
        "policy",
    )

    def __init__(self, policy: RateLimitHeaderPolicy | None) -> None:
        self.policy = policy
        shown = policy or RateLimitHeaderPolicy()
        self._limit = shown.limit.lower().encode()
        self._remaining = shown.remaining.lower().encode()
        self._reset = shown.reset.lower().encode()
        self._retry_after = shown.retry_after.lower().encode()
        spelled = (shown.limit, shown.remaining, shown.reset, shown.retry_after)
        self._spelling = {name.lower().encode(): name for name in spelled}

    def render(self, decision: Decision) -> RawHeaders:
        """Return the fields that tell *decision*, names in lower case."""
        raw: RawHeaders = []
        if self.policy is not None:
            raw += [
                (self._limit, b"%d" % decision.limit),
                (self._remaining, b"%d" % decision.remaining),
                (self._reset, b"%d" % -(-decision.reset_us // _US_PER_S)),
            ]
        if decision.limited and decision.retry_us is not None:
            wait_s = max(1, -(-decision.retry_us // _US_PER_S))
            raw.append((self._retry_after, b"%d" % wait_s))
        return raw

    def merger(
        self, kernel: AnyKernel, cost: int
    ) -> Callable[[Iterable[tuple[bytes, bytes]], Taken], RawHeaders]:
        """
        Return what adds to header fields those of a decision by *kernel*.

        It is `merged` and `render` for the path of nearly every request: in one step
        from the ticks of the decision. The tests hold it to them.
        """
        if self.policy is None or not isinstance(kernel, Bucket):
            return lambda headers, taken: merged(
                headers, self.render(told(taken, kernel, cost))
            )
        bucket = kernel
        names, limit_field = self._spelling, (self._limit, b"%d" % bucket.capacity)
        remaining_name, reset_name = self._remaining, self._reset
        token, full, price = bucket.token, bucket.full, cost * bucket.token
        second = bucket.scale * _US_PER_S

        def merge(headers: Iterable[tuple[bytes, bytes]], taken: Taken) -> RawHeaders:
            limited, level, _, _ = taken
            both = [*headers]
            for name, _ in both:
                if name in names:
                    return merged(headers, self.render(told(taken, bucket, cost)))
            both.append(limit_field)
            both.append((remaining_name, b"%d" % (level // token)))
            both.append((reset_name, b"%d" % -((level - full) // second)))
            if limited:
                wait_s = -((level - price) // second)
                both.append((self._retry_after, b"%d" % wait_s))
            return both

        return merge

    def display(self, raw: RawHeaders) -> dict[str, str]:
        """Return *raw* with the names as the policy spells them."""
        return {self._spelling[name]: value.decode() for name, value in raw}


def checked_policy(policy: object) -> RateLimitHeaderPolicy | None:
    """Return *policy* if it is one, or None."""
    if policy is None or isinstance(policy, RateLimitHeaderPolicy):
        return policy
    msg = f"headers={policy!r} is no policy. Write headers=RateLimitHeaderPolicy(…)"
    raise ConfigurationError(msg)


@lru_cache(maxsize=64)
def renderer_of(policy: RateLimitHeaderPolicy | None) -> HeaderRenderer:
    """Return the renderer of *policy*; of None, one that writes Retry-After alone."""
    return HeaderRenderer(policy)


class Answer:
    """
    What one limit answered, in numbers and as users see it, and how to show it.

    Attributes:
        decision: The answer in numbers.
        renderer: How it is shown.
    """

    __slots__ = ("_fields", "_make_result", "_result", "decision", "renderer")

    def __init__(
        self,
        decision: Decision,
        renderer: HeaderRenderer,
        make_result: Callable[[], RateLimitResult],
    ) -> None:
        self.decision = decision
        self.renderer = renderer
        self._make_result = make_result
        self._result: RateLimitResult | None = None
        self._fields: RawHeaders | None = None

    @property
    def result(self) -> RateLimitResult:
        """The answer as users see it, made when somebody asks."""
        if self._result is None:
            self._result = self._make_result()
        return self._result

    def fields(self) -> RawHeaders:
        """Return the header fields that tell it, names in lower case."""
        if self._fields is None:
            self._fields = self.renderer.render(self.decision)
        return self._fields


class Outcome:
    """
    All that was decided for a request; one object per request.

    Attributes:
        scope_id: The `id` of the scope it is of.
        endpoint: What serves that scope.
        answers: What each limit that applied answered, in the order of decision.
        decided: What must not be decided, or charged, for this request again.
        charged_late: What was charged right before the handler, and where.
        written: Fields that were put onto the response that FastAPI will merge.
    """

    __slots__ = (
        "answers",
        "charged_late",
        "decided",
        "endpoint",
        "scope_id",
        "written",
    )

    def __init__(self, scope_id: int = 0, endpoint: object = None) -> None:
        self.scope_id = scope_id
        self.endpoint = endpoint
        self.answers: list[Answer] = []
        self.decided: list[object] = []
        self.charged_late: list[tuple[Store, Sequence[Receipt]]] = []
        self.written: dict[str, str] = {}

    def governing(self) -> Answer:
        """Return the answer a client is told about; there must be one."""
        if len(self.answers) == 1:
            return self.answers[0]
        return min(self.answers, key=lambda answer: urgency(answer.decision))

    def raw_headers(self) -> RawHeaders:
        """Return the header fields that tell it, names in lower case."""
        if not self.answers:
            return []
        return self.governing().fields()


class RateLimitContext:
    """
    What was decided for a request so far.

    It cannot be changed, and it is live: what is decided later is in it.
    """

    __slots__ = ("_outcome",)

    def __init__(self, outcome: Outcome) -> None:
        self._outcome = outcome

    def __eq__(self, other: object) -> bool:
        """Tell whether *other* is of the same request."""
        return isinstance(other, RateLimitContext) and self._outcome is other._outcome

    def __hash__(self) -> int:
        """Return a hash of the request's identity."""
        return hash(id(self._outcome))

    def __repr__(self) -> str:
        """Return the results."""
        return f"RateLimitContext(results={self.results!r})"

    @property
    def result(self) -> RateLimitResult:
        """
        The result that governs the others.

        It is that of a limit that refuses, else of the one nearest to exhaustion.

        Raises:
            NoRateLimitError: No limit applied to this request.
        """
        if not self._outcome.answers:
            raise NoRateLimitError
        return self._outcome.governing().result

    @property
    def results(self) -> tuple[RateLimitResult, ...]:
        """The results of all limits that applied, in the order of their decision."""
        return tuple(answer.result for answer in self._outcome.answers)

    @property
    def headers(self) -> Mapping[str, str]:
        """The header fields that tell the client, as they go onto the response."""
        if not self._outcome.answers:
            return MappingProxyType({})
        answer = self._outcome.governing()
        return MappingProxyType(answer.renderer.display(answer.fields()))


def merged(headers: Iterable[tuple[bytes, bytes]], ours: RawHeaders) -> RawHeaders:
    """
    Return *headers* and those of *ours* that are not there yet, as a new list.

    A field of the response itself, or of a refusal further in, is kept. The list given
    is never extended: it belongs to a response object that may be sent again.
    """
    both = [*headers]
    present = dict(both)  # names are in lower case, as ASGI has them
    return both + [field for field in ours if field[0] not in present]
