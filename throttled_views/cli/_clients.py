"""
Who a command is about: a client, as a person knows it.

It is named in one of two ways: by its principal, as the key function gives it; or by
what its requests are like, of which the key function itself makes the principal. Keys
are never made up here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NoReturn

from starlette.types import Scope

from throttled_views._addresses import address_of
from throttled_views._early import called
from throttled_views._fields import is_field_name
from throttled_views._found import Found
from throttled_views._methods import WEBSOCKET
from throttled_views._principals import checked_principal
from throttled_views._rules import NOTHING_SOLVED, Rule, is_late
from throttled_views.cli._mistakes import CommandError
from throttled_views.cli._named import option_for, principal_of
from throttled_views.errors import shown

__all__ = ["Client", "checked_address", "fields", "pairs"]

# What a server lets through: RFC 9110, section 5.5. Python has it as Latin-1.
_FIELD_VALUE = re.compile(r"[\t\x20-\x7e\x80-\xff]*")


@dataclass(frozen=True)
class Client:
    """
    A client.

    Attributes:
        principal: What a key function gives for it; None if it is told otherwise.
        address: Its address.
        headers: Header fields that it sends.
        path: Parameters in the path of what it asks for.
    """

    principal: str | None = None
    address: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    path: Mapping[str, str] = field(default_factory=dict[str, str])

    async def principal_for(self, rule: Rule, found: Found) -> str | None:
        """
        Return whom *rule* charges; None if it does not apply to this client.

        Raises:
            CommandError: What is known of the client does not tell.
        """
        if self.principal is None:
            return await self._asked(rule, self._request(found))
        principal = principal_of(rule.key_func, self.principal)
        if principal is None:
            msg = (
                f"Limit {rule.name!r} names clients by {called(rule.key_func)}, for "
                f"which {shown(self.principal)} is no client. "
                f"{_advice(rule.key_func)}"
            )
            raise CommandError(msg)
        return checked_principal(principal, rule.key_func)

    async def _asked(self, rule: Rule, scope: Scope) -> str | None:
        """Return what the key function of *rule* answers to *scope*."""
        function = called(rule.key_func)
        if is_late(rule.key_func):
            msg = (
                f"Limit {rule.name!r} names clients by {function}, which FastAPI has "
                "to solve in a request. Give what it returns as PRINCIPAL"
            )
            raise CommandError(msg)
        try:
            return await rule.principal(scope, NOTHING_SOLVED)
        except CommandError as error:
            msg = f"Limit {rule.name!r}: {error}"
            raise CommandError(msg) from None
        except Exception as error:
            if option_for(rule.key_func) is not None:
                msg = (
                    f"Limit {rule.name!r} names clients by {function}. "
                    f"{_advice(rule.key_func)}"
                )
                raise CommandError(msg) from error
            msg = (
                f"Limit {rule.name!r} names clients by {function}, which fails with "
                f"what is known of this one: {error!r}. Say more by --address, "
                "--header and --path, or give what it returns as PRINCIPAL"
            )
            raise CommandError(msg) from error

    def _request(self, found: Found) -> Scope:
        """Return a request of this client to *found*."""
        [method, *_] = found.methods or ("GET",)
        return {
            "type": "websocket" if method == WEBSOCKET else "http",
            "method": method,
            "scheme": "http",
            "server": None,
            "root_path": "",
            "path": found.path,
            "path_params": dict(self.path),
            "query_string": b"",
            "headers": [
                (name.lower().encode("latin-1"), value.encode("latin-1"))
                for name, value in self.headers.items()
            ],
            "client": _UNSAID if self.address is None else (self.address, 0),
        }


def _advice(key_func: object) -> str:
    option = option_for(key_func)
    return f"Write {option}" if option else "Give what it returns as PRINCIPAL"


class _Unsaid:
    """Stands for the address of a client that was not given: none is guessed."""

    def __getitem__(self, _index: int) -> NoReturn:
        msg = (
            "Whose count it is depends on the address of the client. "
            "Write --address 203.0.113.7, or what the key function returns as PRINCIPAL"
        )
        raise CommandError(msg)


_UNSAID = _Unsaid()


def checked_address(text: str | None) -> str | None:
    """
    Return *text* if it is an address, or is not given.

    Raises:
        CommandError: It is none.
    """
    if text is not None and address_of(text) is None:
        msg = (
            f"{text!r} is no address. Write --address 203.0.113.7, or what the key "
            "function returns as PRINCIPAL"
        )
        raise CommandError(msg)
    return text


def fields(texts: Iterable[str]) -> dict[str, str]:
    """
    Return *texts* as header fields.

    Raises:
        CommandError: One of them cannot come to an application.
    """
    found = pairs(texts, ":", "X-API-Key: secret")
    for name, value in found.items():
        if not is_field_name(name):
            msg = f"{name!r} is no field name. Write 'X-API-Key: secret'"
            raise CommandError(msg)
        if not _FIELD_VALUE.fullmatch(value):
            msg = (
                f"{name} cannot be {value!r}: a field has characters of Latin-1, and "
                "no line breaks. Give what the key function returns as PRINCIPAL"
            )
            raise CommandError(msg)
    return found


def pairs(texts: Iterable[str], separator: str, example: str) -> dict[str, str]:
    """
    Return *texts* as names and values.

    Raises:
        CommandError: One of them has no *separator*; the message shows an *example*.
    """
    found: dict[str, str] = {}
    for text in texts:
        name, separated, value = text.partition(separator)
        if not separated or not name.strip():
            msg = f"{text!r} has no name and value. Write {example!r}"
            raise CommandError(msg)
        found[name.strip()] = value.strip()
    return found
