"""
What an endpoint says of itself: whose identity it has, and its limits.

A declaration stays on the endpoint function, where it survives every include. A route,
or a guard, makes plans of it, for the methods it serves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from throttled_views._binding import name_of
from throttled_views._parts import Binder, Held, Part, late_functions
from throttled_views._plan import Plan, plan_of
from throttled_views._rules import Rule
from throttled_views.errors import RegistrationError
from throttled_views.limits import Limit, check_distinct, limits_of

__all__ = [
    "DECLARED",
    "Declaration",
    "Inside",
    "declaration_of",
    "declare",
    "limiting_dependencies",
]

DECLARED = "__throttled_views__"


class Inside(NamedTuple):
    """An endpoint with a guard around it, as it was made, and the one without."""

    endpoint: Any
    face: object
    handler: Any


class Declaration:
    """
    What an endpoint says of itself: its identity, and the limits it was given.

    Attributes:
        owner: The object whose identity the endpoint has.
        handler: Name of the handler, if *owner* is a view.
        parts: The limits, the innermost decorator's first; none leaves them to the
            default of the router's limiter.
        exempt: Whether it is unlimited on purpose.
        methods: The methods the handler serves, where they are known beforehand.
        inside: What it guards, if it is an endpoint with a guard around it.

    Args:
        complete: Adds to the limiter's default what a view says itself.
        plan_on: Makes, if it is a dependency that limits what it is used on, the plan
            for an endpoint with its methods.
    """

    def __init__(  # noqa: PLR0913 - each is a part of the declaration
        self,
        owner: object,
        *,
        handler: str = "",
        parts: Sequence[Part] = (),
        exempt: bool = False,
        methods: str = "",
        complete: Callable[[Sequence[Limit]], tuple[Limit, ...]] = tuple,
        plan_on: Callable[[object, str], Plan] | None = None,
    ) -> None:
        self.owner = owner
        self.handler = handler
        self.parts = tuple(parts)
        self.exempt = exempt
        self.methods = methods
        self._plan_on = plan_on
        self.inside: Inside | None = None
        self._complete = complete
        # Kept where a request asks for them. A function of the user does not hold the
        # limiters of routers: what needs one was made for a route of that router.
        self._is_of_own_limiters = bool(parts) and all(each.limiter for each in parts)
        self._plans: dict[tuple[Binder | None, str], list[Plan]] = {}

    @property
    def name(self) -> str:
        """What it is called: ``module.qualname`` or ``module.Class.handler``."""
        return ".".join(filter(None, (name_of(self.owner), self.handler)))

    def route(self, limiter: Binder, *, in_request: bool = False) -> str:
        """Return the identity of the endpoint, as the keys of *limiter* have it."""
        name = name_of(self.owner)
        number = limiter.number_of(self.owner, name, in_request=in_request)
        return self.name if number == 1 else f"{self.name}#{number}"

    def plans(self, limiter: Binder, methods: str) -> list[Plan]:
        """
        Return what each request is charged, one plan for each limiter; none if exempt.

        Args:
            limiter: The limiter of the router.
            methods: The methods of the route, as keys have them.

        Raises:
            RegistrationError: Neither the endpoint nor *limiter* says what to limit to.
        """
        if self.exempt:
            return []
        methods = self.methods or methods
        asked = (None if self._is_of_own_limiters else limiter, methods)
        if (plans := self._plans.get(asked)) is None:
            plans = self._plans[asked] = self._made(limiter, methods)
        return plans

    @property
    def limits_others(self) -> bool:
        """Whether it is a dependency that limits what it is used on."""
        return self._plan_on is not None

    def plans_on(self, endpoint: object, methods: str) -> list[Plan]:
        """Return what *endpoint* is charged, if this is a dependency that limits."""
        return [] if self._plan_on is None else [self._plan_on(endpoint, methods)]

    def made(self, methods: str) -> list[Plan]:
        """Return the plans that were made so far, by whatever limiter."""
        methods = self.methods or methods
        return [
            plan
            for (_, served), plans in self._plans.items()
            for plan in plans
            if served == methods
        ]

    def held(self, limiter: Binder) -> list[Held]:
        """
        Return the limits that it is held to, or that others are if it is a dependency.

        Args:
            limiter: The limiter of the router.
        """
        return [
            Held(limit, part.limiter or limiter, self.limits_others)
            for part in self._parts(limiter)
            for limit in part.limits
        ]

    def late_functions(self, limiter: Binder) -> list[Callable[..., object]]:
        """
        Return the functions of its limits that FastAPI has to solve, each once.

        Args:
            limiter: The limiter of the router.
        """
        return late_functions(self._parts(limiter), limiter)

    def _parts(self, limiter: Binder) -> tuple[Part, ...]:
        if self.parts or self.exempt or limiter.default is None:
            return self.parts
        return (Part(limiter, self._complete(limits_of(limiter.default))),)

    def _made(self, limiter: Binder, methods: str) -> list[Plan]:
        parts = self._parts(limiter)
        if not parts:
            raise self._unlimited()
        rules: dict[Binder, list[Rule]] = {}
        before: list[Limit] = []
        own: dict[Binder, list[Limit]] = {}
        for part in parts:
            owner = part.limiter or limiter
            own.setdefault(owner, []).extend(part.limits)
            check_distinct(own[owner])
            route = self.route(owner)
            bound = part.bound(owner, method=methods, route=route, after=[*before])
            rules.setdefault(owner, []).extend(bound)
            before.extend(part.limits)
        return [plan_of(owner, each) for owner, each in rules.items() if each]

    def _unlimited(self) -> RegistrationError:
        where_to = "@limiter.limit('100/m') below the decorator of the route"
        exemption = "@limiter.exempt there"
        if self.handler:
            where_to, exemption = "throttle = '100/m'", "throttle = EXEMPT"
        return RegistrationError(
            self.name,
            "nothing says what it is limited to",
            f"Write {where_to}, or {exemption} if it is to be unlimited, or give "
            "the limiter a default: Limiter('100/m')",
        )


def declaration_of(endpoint: Any) -> Declaration:
    """Return what *endpoint* says of itself, or that it says nothing."""
    declared = getattr(endpoint, DECLARED, None)
    return declared if isinstance(declared, Declaration) else Declaration(endpoint)


def limiting_dependencies(dependant: Any) -> Iterable[Declaration]:
    """
    Return what the dependencies of an endpoint say that limit it, each once.

    They are in the order in which FastAPI solves them, by which equal ones are named:
    what a dependency needs comes first.
    """
    found: dict[int, Declaration] = {}
    for each in getattr(dependant, "dependencies", ()):
        for inner in limiting_dependencies(each):
            found.setdefault(id(inner.owner), inner)
        declaration = declaration_of(each.call)
        if declaration.limits_others:
            found.setdefault(id(each.call), declaration)
    return found.values()


def declare(endpoint: Any, declaration: Declaration) -> None:
    """Let *endpoint* say *declaration* of itself."""
    setattr(endpoint, DECLARED, declaration)
