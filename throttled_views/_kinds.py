"""
Key functions of ours, from headers and paths, and the first of several.

What is *own* gives principals that tell of what kind they are, straight from a scope.
Anything else is a function of the user, whose answers are told apart by position.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, pairwise
from typing import Protocol, Self, TypeGuard, TypeVar, cast

from starlette.requests import HTTPConnection, Request
from starlette.types import Scope

from throttled_views._early import Reader, called, early_parameter, early_reader_of
from throttled_views._principals import checked_principal, digest, encoded_principal
from throttled_views.errors import ConfigurationError
from throttled_views.limits import KeyFunc

__all__ = [
    "FirstOf",
    "Header",
    "Path",
    "always_answering",
    "members_of",
    "own",
    "scope_reader_of",
]


class _Own(Protocol):
    """What keys and plans use of a key function of ours."""

    def from_scope(self, scope: Scope, /) -> str | None:
        """Return the principal of a connection."""
        ...


class _Answering(Protocol):
    """The same of one that has an answer for every connection."""

    def from_scope(self, scope: Scope, /) -> str:
        """Return the principal of a connection."""
        ...

    def encoded_from_scope(self, scope: Scope, /) -> str:
        """Return the principal of a connection, as it stands in keys."""
        ...


_OwnT = TypeVar("_OwnT", bound=_Own)
_AnsweringT = TypeVar("_AnsweringT", bound=_Answering)

# Types, and not their subclasses: those may have another idea of a key.
_own: set[type] = set()
_always_answering: set[type] = set()


def own(kind: type[_OwnT]) -> type[_OwnT]:
    """Let a class of key functions be one of ours."""
    _own.add(kind)
    return kind


def always_answering(kind: type[_AnsweringT]) -> type[_AnsweringT]:
    """Let a class of key functions be one of ours that names a client in any case."""
    _always_answering.add(kind)
    return own(kind)


def _is_own(function: object) -> TypeGuard[_Own]:
    return type(function) in _own


def _always_answers(function: object) -> TypeGuard[_Answering]:
    return type(function) in _always_answering


def _is_sure(function: object) -> TypeGuard[_Answering]:
    """Tell whether *function* is ours, and has an answer or raises."""
    return _always_answers(function) or isinstance(function, Path)


@own
class Header:
    """Key function: the value of a header field, digested."""

    def __init__(self, name: str) -> None:
        self._name = name.lower()
        self._raw_name = self._name.encode()

    def __repr__(self) -> str:
        return f"header_key({self._name!r}, otherwise=None)"

    def __call__(self, connection: HTTPConnection) -> str | None:
        return self.from_scope(connection.scope)

    def from_scope(self, scope: Scope, /) -> str | None:
        """Return the principal; None if the field is missing, or is empty."""
        # The first of several, which `request.headers[…]` is, too.
        for name, value in scope["headers"]:
            if name == self._raw_name:
                secret = value.strip()
                return f"header {self._name} {digest(secret)}" if secret else None
        return None


@own
class Path:
    """Key function: a parameter of the path."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __repr__(self) -> str:
        return f"path_key({self._name!r})"

    def __call__(self, connection: HTTPConnection) -> str:
        return self.from_scope(connection.scope)

    def from_scope(self, scope: Scope, /) -> str:
        """
        Return the principal.

        Raises:
            ConfigurationError: The path has no such parameter.
        """
        principal = self.found_in(scope)
        if principal is None:
            msg = (
                f"{self!r} is asked on a route without such a parameter. Write "
                f"'{{{self._name}}}' into its path; for routes that have none, "
                f"key_func=first_of({self!r}, client_ip)"
            )
            raise ConfigurationError(msg)
        return principal

    def encoded_from_scope(self, scope: Scope, /) -> str:
        return encoded_principal(self.from_scope(scope))

    def found_in(self, scope: Scope) -> str | None:
        """Return the principal; None if the path has no such parameter."""
        value = scope.get("path_params", {}).get(self._name)
        return None if value is None else f"path {self._name} {value}"


class FirstOf:
    """Key function: the first principal that one of several functions gives."""

    def __init__(self, members: Sequence[KeyFunc]) -> None:
        self.members = members
        self._steps = [
            self._step(member, position) for position, member in enumerate(members, 1)
        ]
        self.is_sure = all(map(_is_own, members)) and _is_sure(members[-1])
        # It takes what its members take: a socket has no Request to give them.
        wanted = [early_parameter(member) for member in members]
        takes = inspect.Parameter(
            "connection",
            inspect.Parameter.POSITIONAL_ONLY,
            annotation=Request if Request in wanted else HTTPConnection,
        )
        self.__signature__ = inspect.Signature([takes])

    def __repr__(self) -> str:
        return f"first_of({', '.join(map(called, self.members))})"

    async def __call__(self, connection: HTTPConnection) -> str | None:
        for member, tag, read in self._steps:
            principal = read(connection.scope)
            if inspect.isawaitable(principal):
                principal = await principal
            if principal is not None:
                return tag + checked_principal(principal, member)
        return None

    def encoded_from_scope(self, scope: Scope, /) -> str:
        principals = (read(scope) for _, _, read in self._steps)
        return encoded_principal(next(cast("Iterator[str]", filter(None, principals))))

    def _step(self, member: KeyFunc, position: int) -> tuple[KeyFunc, str, Reader]:
        """Return *member*, the mark of its kind, and what reads its principal."""
        kind: object = member
        if isinstance(kind, Path) and position < len(self.members):
            return member, "", kind.found_in
        if _is_own(kind):
            return member, "", kind.from_scope
        reader = early_reader_of(member)
        if reader is None:
            msg = (
                "first_of asks functions of the connection alone, and "
                f"{called(member)} is none. Write one function that takes what it "
                "needs, and chooses"
            )
            raise ConfigurationError(msg)
        return member, f"{position} ", reader

    @classmethod
    def of(cls, key_funcs: Sequence[KeyFunc]) -> Self:
        """
        Return what asks *key_funcs* in order; those that it asks itself in their place.

        Raises:
            ConfigurationError: One cannot be asked early, or never is.
        """
        *earlier, last = map(members_of, key_funcs)
        if _always_answers(last[-1]):
            earlier = [_without_fallback(members) for members in earlier]
        members = [*chain.from_iterable(earlier), *last]
        for member, after in pairwise(members):
            if _always_answers(member):
                msg = (
                    f"{called(member)} always names a client, so that {called(after)} "
                    f"is never asked. Write first_of(…, {called(member)}); if it "
                    "stands in a header_key, header_key(…, otherwise=None)"
                )
                raise ConfigurationError(msg)
        return cls(members)


def members_of(key_func: KeyFunc) -> Sequence[KeyFunc]:
    """Return the key functions that *key_func* asks, one after the other."""
    return key_func.members if isinstance(key_func, FirstOf) else (key_func,)


def _without_fallback(members: Sequence[KeyFunc]) -> Sequence[KeyFunc]:
    """Return *members* without one that answers when no other does."""
    has_one = len(members) > 1 and _always_answers(members[-1])
    return members[:-1] if has_one else members


def scope_reader_of(key_func: object) -> Callable[[Scope], str] | None:
    """
    Return what reads an encoded principal straight from a scope.

    None if *key_func* is not one of ours, or may have no principal to give.
    """
    if isinstance(key_func, FirstOf):
        return key_func.encoded_from_scope if key_func.is_sure else None
    return key_func.encoded_from_scope if _is_sure(key_func) else None
