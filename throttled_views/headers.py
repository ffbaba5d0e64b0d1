"""
What the client is told: header fields, and the context they are written from.

There is one renderer, `HeaderRenderer`; the success and the 429 path share it, and the
`RateLimitContext` of the request. What the fields are called, and how they are written,
is a policy's: the names of drafts that everybody knows, or the syntax of the latest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import lru_cache
from types import MappingProxyType
from typing import Literal, NamedTuple, TypeAlias

from throttled_views._fields import is_field_name
from throttled_views.algorithms.base import AnyKernel
from throttled_views.algorithms.bucket import Bucket
from throttled_views.errors import ConfigurationError, NoRateLimitError
from throttled_views.quotas import Quota
from throttled_views.results import Decision, RateLimitResult, urgency
from throttled_views.stores.base import Store
from throttled_views.stores.deciding import Taken

__all__ = [
    "EXPOSED_HEADERS",
    "LEGACY_HEADERS",
    "IETFHeaders",
    "RateLimitContext",
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


@dataclass(frozen=True, slots=True)
class IETFHeaders:
    """
    The fields of draft-ietf-httpapi-ratelimit-headers-11, which tell of all limits.

    ``RateLimit-Policy`` has, for each limit, its name, its capacity (``q``) and the
    seconds (``w``) in which an exhausted key becomes full again. ``RateLimit`` has what
    is left right now (``r``) and the seconds (``t``) until all is back; of a limit that
    refuses, until the same request would be admitted, which is what ``Retry-After``
    says, too. Seconds are rounded up: who goes by them is never too early.
    """

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


class Answer:
    """
    What one limit answered, in numbers and as users see it, and how to show it.

    Attributes:
        told: The answer in numbers, and what it is about.
        renderer: How it is shown.
    """

    __slots__ = ("_make_result", "_result", "renderer", "told")

    def __init__(
        self,
        told: Told,
        renderer: HeaderRenderer,
        make_result: Callable[[], RateLimitResult],
    ) -> None:
        self.told = told
        self.renderer = renderer
        self._make_result = make_result
        self._result: RateLimitResult | None = None

    @property
    def result(self) -> RateLimitResult:
        """The answer as users see it, made when somebody asks."""
        if self._result is None:
            self._result = self._make_result()
        return self._result


class Builder:
    """
    Builds of a decision what is asked for, when it is asked for.

    Attributes:
        renderer: How it is shown.
        add_to: Adds a decision to an outcome.
        merged: Merges header fields with those of an outcome of that decision alone.
    """

    __slots__ = ("add_to", "merged", "renderer")

    def __init__(
        self,
        renderer: HeaderRenderer,
        add_to: Callable[[Outcome, Taken], None],
        merged: Callable[[Iterable[tuple[bytes, bytes]], Taken], RawHeaders],
    ) -> None:
        self.renderer = renderer
        self.add_to = add_to
        self.merged = merged


Phase: TypeAlias = Literal["app", "early", "late"]
"""When a limit is decided: by a middleware, by a route, or right before its handler."""

# What is decided in the second of two such phases, one after the other, is one decision
# with the first: nothing was done for the request in between.
_ONE_DECISION = {("app", "app"), ("app", "early"), ("late", "late")}


class Outcome:
    """
    All that was decided for a request; one object per request.

    Args:
        scope_id: The `id` of the scope it is of; 0 if no route serves it yet.
        endpoint: What serves that scope.

    Attributes:
        is_told: Whether what began it, before there was a route, puts its fields on
            whatever is the response.
    """

    __slots__ = (
        "_answers",
        "_charged",
        "_decided",
        "_pending",
        "_phase",
        "_rendered",
        "endpoint",
        "is_told",
        "scope_id",
    )

    def __init__(self, scope_id: int = 0, endpoint: object = None) -> None:
        self.scope_id = scope_id
        self.endpoint = endpoint
        self.is_told = not scope_id
        self._answers: list[Answer] = []
        self._charged: list[tuple[Store, Answer]] = []
        self._decided: list[object] = []
        self._phase: Phase = "early" if scope_id else "app"
        self._pending: tuple[Builder, Taken] | None = None
        self._rendered: tuple[int, RawHeaders] = 0, []

    @property
    def answers(self) -> list[Answer]:
        """What each limit that applied answered, in the order of decision."""
        self._settle()
        return self._answers

    @property
    def decided(self) -> list[object]:
        """What must not be decided, or charged, for this request again."""
        self._settle()
        return self._decided

    @property
    def charged(self) -> list[tuple[Store, Answer]]:
        """What was charged in this phase, and where."""
        self._settle()
        return self._charged

    @property
    def is_empty(self) -> bool:
        """Whether nothing was decided yet."""
        return self._pending is None and not self._decided

    def serve(self, scope_id: int, endpoint: object) -> None:
        """Be of the scope that *endpoint* serves, unless this is of another already."""
        if not self.scope_id:
            self.scope_id, self.endpoint = scope_id, endpoint

    def enter(self, phase: Phase) -> None:
        """Go on to *phase*; what was charged in another decision stays charged."""
        if (self._phase, phase) not in _ONE_DECISION:
            self.charged.clear()
        self._phase = phase

    def add(self, builder: Builder, taken: Taken) -> None:
        """Add a decision; what tells it is built when somebody asks."""
        if self._pending is None and not self._answers:
            self._pending = builder, taken
            return
        self._settle()
        builder.add_to(self, taken)

    def _settle(self) -> None:
        if self._pending is not None:
            builder, taken = self._pending
            self._pending = None
            builder.add_to(self, taken)

    def merged(self, headers: Iterable[tuple[bytes, bytes]]) -> RawHeaders:
        """Return *headers* and those that tell this, as a new list."""
        if self._pending is not None:
            builder, taken = self._pending
            return builder.merged(headers, taken)
        return merged(headers, self.raw_headers())

    def governing(self) -> Answer:
        """Return the answer a client is told about; there must be one."""
        if len(self.answers) == 1:
            return self.answers[0]
        return min(self.answers, key=lambda answer: urgency(answer.told.decision))

    def told_of_all(self) -> list[Told]:
        """Return what a client may be told, each limit under a name of its own."""
        if len(self.answers) == 1:
            return [self.answers[0].told]
        told_of_all: list[Told] = []
        seen: dict[str, int] = {}
        for each in (answer.told for answer in self.answers):
            number = seen[each.name] = seen.get(each.name, 0) + 1
            # Limits of two limiters, and of dependencies, may have the same name.
            name = f"{each.name} #{number}"
            told_of_all.append(each if number == 1 else each._replace(name=name))
        return told_of_all

    def raw_headers(self) -> RawHeaders:
        """Return the header fields that tell it, names in lower case."""
        count, raw = self._rendered
        if count != len(self.answers):
            raw = self.governing().renderer.render(self.told_of_all())
            self._rendered = len(self.answers), raw
        return raw

    def problem_details(self) -> Mapping[str, object] | None:
        """Return what RFC 9457 has for a refusal, if it is to be answered so."""
        if not self.answers or not self.governing().renderer.problem_details:
            return None
        violated = [each.name for each in self.told_of_all() if each.decision.limited]
        return {**QUOTA_EXCEEDED, "violated-policies": violated}


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
        renderer = self._outcome.governing().renderer
        return MappingProxyType(renderer.display(self._outcome.raw_headers()))

    @property
    def problem_details(self) -> Mapping[str, object] | None:
        """The body of the refusal, if the limiter answers as RFC 9457 has it."""
        return self._outcome.problem_details()


def merged(headers: Iterable[tuple[bytes, bytes]], ours: RawHeaders) -> RawHeaders:
    """
    Return *headers* and those of *ours* that are not there yet, as a new list.

    A field of the response itself, or of a refusal further in, is kept. The list given
    is never extended: it belongs to a response object that may be sent again.
    """
    both = [*headers]
    present = dict(both)  # names are in lower case, as ASGI has them
    return both + [field for field in ours if field[0] not in present]
