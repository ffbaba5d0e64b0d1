"""
What was decided for a request, and what of it is given back.

An `Outcome` is what the request path works with; a `RateLimitContext` is what users see
of it. Both are live: what is decided later is in them, and so is what comes back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from throttled_views._answers import Answer, give_back
from throttled_views._rules import Rule
from throttled_views.errors import NoRateLimitError
from throttled_views.headers import (
    QUOTA_EXCEEDED,
    HeaderRenderer,
    RawHeaders,
    Told,
    merged,
)
from throttled_views.hooks import CheckPhase
from throttled_views.results import (
    RateLimitResult,
    checked_cost,
    urgency,
)
from throttled_views.stores.base import Store
from throttled_views.stores.deciding import AnyTaken

__all__ = ["RateLimitContext"]


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
        add_to: Callable[[Outcome, Any], None],
        merged: Callable[[Iterable[tuple[bytes, bytes]], Any], RawHeaders],
    ) -> None:
        self.renderer = renderer
        self.add_to = add_to
        self.merged = merged


# What is decided in the second of two such phases, one after the other, is one decision
# with the first: a refusal by the second gives back what the first charged.
_ONE_DECISION = {("app", "app"), ("app", "early"), ("late", "late")}


class Outcome:
    """
    All that was decided for a request; one object per request.

    Args:
        scope_id: The `id` of the scope it is of; 0 if no route serves it yet.
        endpoint: What serves that scope.
        began: The `id` of the scope that was there before a route was.

    Attributes:
        is_told: Whether what began it, before there was a route, puts its fields on
            whatever is the response.
        phase: What was entered last.
        open: Answers that are given back or not when it is known how the request ends.
        shadowed: What limits in shadow answered, which no client is told.
        turn_at: When the request has its turn, by the event loop's clock, in seconds;
            0.0 if it is now.
    """

    __slots__ = (
        "_answers",
        "_charged",
        "_decided",
        "_pending",
        "_rendered",
        "_units",
        "began",
        "endpoint",
        "is_told",
        "open",
        "phase",
        "scope_id",
        "shadowed",
        "turn_at",
    )

    def __init__(
        self, scope_id: int = 0, endpoint: object = None, *, began: int = 0
    ) -> None:
        self.scope_id = scope_id
        self.endpoint = endpoint
        self.began = began or scope_id
        self.is_told = not scope_id
        self.phase: CheckPhase = "early" if scope_id else "app"
        self.open: list[Answer] = []
        self.shadowed: list[Answer] = []
        self.turn_at = 0.0
        self._answers: list[Answer] = []
        self._charged: list[Answer] = []
        self._decided: list[Rule] = []
        self._units: dict[tuple[int, str], int] = {}
        self._pending: tuple[Builder, AnyTaken] | None = None
        self._rendered: tuple[Sequence[Told], RawHeaders] = (), []

    @property
    def answers(self) -> list[Answer]:
        """What each limit that applied answered, in the order of decision."""
        self._build()
        return self._answers

    @property
    def decided(self) -> list[Rule]:
        """The rules that must not be decided for this request again."""
        self._build()
        return self._decided

    def decided_none_of(self, rules: Iterable[object]) -> bool:
        """Tell whether none of *rules* was decided for this request yet."""
        return not any(rule in self.decided for rule in rules)

    def take_on(
        self, store: Store, key: str, cost: int, *, refundable: bool = False
    ) -> int | None:
        """
        Return what of *cost* this request was not charged to *key* yet.

        None if it was charged all of it: limits may share a key, which then is charged
        what the dearest of them costs. What was charged is not given back any more,
        since another limit rests on it, unless that is *refundable* itself.
        """
        self._build()
        charged = self._units.get((id(store), key))
        if charged is None:
            return cost
        if not refundable:
            self.open = [each for each in self.open if not each.is_charged_to(key)]
        return cost - charged if cost > charged else None

    def note_charge(self, store: Store, key: str, cost: int) -> None:
        """Note that *key* is charged *cost* more for this request."""
        place = id(store), key
        self._units[place] = self._units.get(place, 0) + cost

    @property
    def charged(self) -> list[Answer]:
        """What was charged in this decision."""
        self._build()
        return self._charged

    @property
    def is_empty(self) -> bool:
        """Whether nothing was decided yet."""
        return self._pending is None and not self._decided

    def belong_to(self, scope_id: int, endpoint: object) -> None:
        """Be of the scope that *endpoint* serves, unless this is of one already."""
        if not self.scope_id:
            self.scope_id, self.endpoint = scope_id, endpoint

    def enter(self, phase: CheckPhase) -> None:
        """Go on to *phase*; what was charged in another decision stays charged."""
        self._build()  # what is pending is of the phase so far
        if (self.phase, phase) not in _ONE_DECISION:
            self._charged.clear()
        self.phase = phase

    def add(self, builder: Builder, taken: AnyTaken) -> None:
        """Add a decision; what tells it is built when somebody asks."""
        if self._pending is None and not self._answers:
            self._pending = builder, taken
            return
        self._build()
        builder.add_to(self, taken)

    def add_answer(self, answer: Answer) -> None:
        """Add what a limit answered."""
        self.answers.append(answer)
        self.charged.append(answer)
        if answer.rule.limit.refund_when is not None:
            self.open.append(answer)

    def add_shadowed(self, answer: Answer) -> None:
        """Add what a limit in shadow answered."""
        self.shadowed.append(answer)
        if answer.rule.limit.refund_when is not None:
            self.open.append(answer)

    def _build(self) -> None:
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
        if not self.answers:
            return []
        told_of_all = self.told_of_all()
        rendered_of, raw = self._rendered
        if rendered_of != told_of_all:
            raw = self.governing().giver.renderer.render(told_of_all)
            self._rendered = told_of_all, raw
        return raw

    def problem_details(self) -> Mapping[str, object] | None:
        """Return what RFC 9457 has for a refusal, if it is to be answered so."""
        if not self.answers or not self.governing().giver.renderer.problem_details:
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
        renderer = self._outcome.governing().giver.renderer
        return MappingProxyType(renderer.display(self._outcome.raw_headers()))

    @property
    def problem_details(self) -> Mapping[str, object] | None:
        """The body of the refusal, if the limiter answers as RFC 9457 has it."""
        return self._outcome.problem_details()

    async def refund(self, units: int, *, name: str | None = None) -> None:
        """
        Give back *units* of what this request was charged, once its true cost is known.

        What was charged is the bound, over all calls of this: more than that does not
        come back.

        Args:
            units: How many, 0 or more.
            name: Of the limits that get them back; unless given, it is those whose cost
                a function told.

        Raises:
            ValueError: *units* is negative or no whole number, or there is no such
                limit, though there are others. Where one does not apply, or nothing is
                limited, nothing comes back.
        """
        checked_cost(units)
        outcome = self._outcome
        rules = outcome.decided
        if rules and not any(_gets_back(rule, name) for rule in rules):
            wanted = "a cost function" if name is None else f"the name {name!r}"
            names = ", ".join(repr(rule.name) for rule in rules)
            msg = (
                f"No limit of this request has {wanted}. Write refund(…, name=…) with "
                f"one of {names}"
            )
            raise ValueError(msg)
        answers = [*outcome.answers, *outcome.shadowed]
        theirs = [each for each in answers if _gets_back(each.rule, name)]
        await give_back(theirs, units)


def _gets_back(rule: Rule, name: str | None) -> bool:
    return callable(rule.limit.cost) if name is None else rule.name == name
