"""What is on a router, and what of it would take the requests to something else."""

from __future__ import annotations

import re
from typing import NamedTuple

from starlette.routing import compile_path

from throttled_views._declaration import declaration_of
from throttled_views._templates import examples_of, takes_all
from throttled_views.errors import RegistrationError

__all__ = ["Claims"]


class _Served(NamedTuple):
    """A route of a router, as far as another can capture its path."""

    name: str
    methods: frozenset[str]
    path: str
    is_of_view: bool

    def replaces(self, other: _Served) -> bool:
        """
        Tell whether all requests for *other*, of a view or hidden by one, come here.

        Functions may be registered twice, as on any router: the first one serves.
        """
        return bool(
            (self.is_of_view or other.is_of_view)
            and self.methods & other.methods
            and _shape(self.path) == _shape(other.path)
        )

    def captures(self, other: _Served) -> bool:
        """Tell whether all requests for *other* would come here, if this came first."""
        pattern, _, convertors = compile_path(self.path)
        _, template, parameters = compile_path(other.path)
        return bool(
            convertors
            and self.methods & other.methods
            and _shape(self.path) != _shape(other.path)
            and takes_all(pattern, [*examples_of(template, parameters)])
        )


def _shape(path: str) -> object:
    """Return *path* without the names of its parameters."""
    _, template, convertors = compile_path(path)
    kinds = [type(each) for each in convertors.values()]
    return re.sub(r"{\w+}", "{}", template), kinds


class Claims:
    """The routes of a router, in the order in which it asks them."""

    def __init__(self) -> None:
        self._served: list[_Served] = []

    def add(
        self, name: str, methods: frozenset[str], path: str, endpoint: object
    ) -> None:
        """
        Note a route.

        Raises:
            RegistrationError: Nothing would reach it.
        """
        is_of_view = bool(declaration_of(endpoint).handler)
        self._add(_Served(name, methods, path, is_of_view))

    def with_those(self, others: Claims, prefix: str) -> Claims:
        """
        Return these claims, and those of a router that is included behind *prefix*.

        Raises:
            RegistrationError: Nothing would reach one of those.
        """
        together = Claims()
        together._served += self._served
        for served in others._served:
            together._add(served._replace(path=prefix + served.path))
        return together

    def _add(self, served: _Served) -> None:
        for earlier in self._served:
            _refuse_captured(served, earlier)
        self._served.append(served)


def _refuse_captured(served: _Served, earlier: _Served) -> None:
    if earlier.replaces(served):
        raise RegistrationError(
            f"{served.name} at {served.path!r}",
            f"the earlier {earlier.name} at {earlier.path!r} serves the same "
            f"requests, {'+'.join(sorted(earlier.methods & served.methods))}",
            "Give it another path or method, or register one of them",
        )
    if earlier.captures(served):
        raise RegistrationError(
            f"{served.name} at {served.path!r}",
            f"the earlier {earlier.name} at {earlier.path!r} captures it",
            f"Declare {served.name} before {earlier.name}",
        )
