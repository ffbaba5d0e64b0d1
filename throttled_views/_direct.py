"""
Limits of one client whose numbers are known beforehand, decided by a store of ours.

It is the path of nearly every request, so nothing is built that nobody may ask for.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Sequence
from time import perf_counter
from typing import ClassVar, Generic, TypeAlias, TypeVar

from starlette.types import Scope

from throttled_views._kinds import scope_reader_of
from throttled_views._principals import encoded_principal
from throttled_views._rules import Rule, Solved
from throttled_views._scopes import Machinery, Quick
from throttled_views.context import Builder, Outcome
from throttled_views.errors import StoreUnavailableError
from throttled_views.headers import RawHeaders
from throttled_views.hooks import CheckPhase
from throttled_views.stores.base import QuickStore
from throttled_views.stores.deciding import AnyTaken

__all__ = ["Direct", "Taker"]

_SubjectT = TypeVar("_SubjectT")
_TakenT = TypeVar("_TakenT", bound=AnyTaken)

Taker: TypeAlias = Callable[[_SubjectT], "_TakenT | Awaitable[_TakenT] | None"]
"""
Charges a subject: the scope of a request, or an encoded principal.

A tuple is the decision, made at once. What is to be awaited gives one: the store has to
be waited for, and may turn out to be down. None is no decision: the store is known to
be down, and nobody was charged.
"""


class Direct(ABC, Generic[_TakenT]):
    """
    Decides limits of one client, and makes of a decision what is asked for.

    Args:
        machinery: That of the limiter.
        store: What decides.
        rules: The limits; they have one key function.

    Attributes:
        decides_more: Whether it decides, too, where others were decided before.
        quick: Decides by the scope alone; None if the key is not in it.
    """

    decides_more: ClassVar[bool]

    __slots__ = (
        "_builder",
        "_machinery",
        "_rules",
        "_store",
        "_take",
        "_take_of_scope",
        "quick",
    )

    def __init__(
        self, machinery: Machinery, store: QuickStore, rules: Sequence[Rule]
    ) -> None:
        self._machinery = machinery
        self._store = store
        self._rules = rules
        self._take: Taker[str, _TakenT] = self._taker(encoded_principal)
        self._builder = Builder(machinery.renderer, self._add_to, self._merger())
        principal_of = scope_reader_of(rules[0].key_func)
        self._take_of_scope: Taker[Scope, _TakenT] | None = None
        self.quick: Quick | None = None
        if principal_of is not None:
            take = self._take_of_scope = self._taker(principal_of)
            self.quick = Quick(machinery, self._telling(take), self._builder)

    @abstractmethod
    async def decide(self, scope: Scope, solved: Solved, outcome: Outcome) -> bool:
        """Charge the request, once; see `Plan.decide`."""

    @abstractmethod
    def _store_taker(
        self, principal_of: Callable[[_SubjectT], str]
    ) -> Callable[[_SubjectT], _TakenT | Awaitable[_TakenT]]:
        """Return what charges a subject by the store."""

    @abstractmethod
    def _merger(
        self,
    ) -> Callable[[Iterable[tuple[bytes, bytes]], _TakenT], RawHeaders]:
        """Return what merges header fields with those that tell a decision."""

    @abstractmethod
    def _add_to(self, outcome: Outcome, taken: _TakenT) -> None:
        """Add to *outcome* what a decision tells."""

    @abstractmethod
    def _tell(self, taken: _TakenT, phase: CheckPhase, began: float) -> None:
        """Tell the hooks of a decision."""

    def _telling(self, take: Taker[Scope, _TakenT]) -> Taker[Scope, _TakenT]:
        """Return what charges a request, and tells hooks if there are any."""
        if not self._machinery.audience:
            return take

        async def tell_later(taking: Awaitable[_TakenT], began: float) -> _TakenT:
            taken = await taking
            self._tell(taken, "early", began)
            return taken

        def take_and_tell(scope: Scope) -> _TakenT | Awaitable[_TakenT] | None:
            began = perf_counter()
            taken = take(scope)
            if isinstance(taken, tuple):
                self._tell(taken, "early", began)
                return taken
            return None if taken is None else tell_later(taken, began)

        return take_and_tell

    def _taker(
        self, principal_of: Callable[[_SubjectT], str]
    ) -> Taker[_SubjectT, _TakenT]:
        take, failover = self._store_taker(principal_of), self._machinery.failover
        if not self._store.may_be_down:
            return take
        return lambda subject: take(subject) if failover.is_up else None

    async def _taken(
        self, taking: _TakenT | Awaitable[_TakenT] | None
    ) -> _TakenT | None:
        """Return what the store decides, None if it is down."""
        if taking is None or isinstance(taking, tuple):
            return taking
        try:
            return await taking
        except StoreUnavailableError as error:
            self._machinery.failover.failed(error)
            return None

    def _added(self, taken: _TakenT, outcome: Outcome, began: float) -> bool:
        """Add what was *taken* to *outcome*; tell whether it is a refusal."""
        outcome.add(self._builder, taken)
        if self._machinery.audience:
            self._tell(taken, outcome.phase, began)
        return taken[0]
