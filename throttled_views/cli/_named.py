"""
Principals, as a person gives them: what a key function of ours would make of one.

A key that no request could have is never made up.
"""

# pyright: reportPrivateUsage=false

from __future__ import annotations

import re
from ipaddress import IPv6Network

from throttled_views._addresses import address_of
from throttled_views._kinds import FirstOf, Header, Path
from throttled_views.keys import ClientIP, everyone

__all__ = ["option_for", "principal_of"]

_UNKNOWN = "unknown"  # what `ClientIP` calls a peer without an address
_EVERYONE = "everyone"
_DIGEST = re.compile(r"[0-9a-f]{32}")


def principal_of(key_func: object, text: str) -> str | None:
    """
    Return whom *key_func* charges for the client that a person calls *text*.

    None if it can name nobody so. What is no function of ours may give any text.
    """
    if key_func is everyone:
        return _EVERYONE
    if isinstance(key_func, ClientIP):
        return _principal_at(key_func, text)
    if isinstance(key_func, Header):
        field, _, digest = text.rpartition(" ")
        is_its_own = field == _kind(key_func) and _DIGEST.fullmatch(digest)
        return text if is_its_own else None
    if isinstance(key_func, Path):
        return text if text.startswith(f"{_kind(key_func)} ") else None
    if isinstance(key_func, FirstOf):
        return _principal_of_first(key_func, text)
    return text


def _kind(key_func: Header | Path) -> str:
    """Return what principals of *key_func* begin with."""
    return f"{'header' if isinstance(key_func, Header) else 'path'} {_name(key_func)}"


def _name(key_func: Header | Path) -> str:
    """Return what *key_func* reads: the name of a field, or of a parameter."""
    return key_func._name  # noqa: SLF001 - it is one of ours


def _principal_at(key_func: ClientIP, text: str) -> str | None:
    if address_of(text):
        return key_func.from_scope({"client": (text, 0), "headers": []})
    if text == _UNKNOWN or type(key_func) is not ClientIP:
        return text
    try:
        network = IPv6Network(text)
    except ValueError:
        return None
    return str(network) if network.prefixlen == key_func.ipv6_prefix else None


def _principal_of_first(key_func: FirstOf, text: str) -> str | None:
    for position, member in enumerate(key_func.members, 1):
        if member is everyone:
            found = text if text == _EVERYONE else None
        elif option_for(member) is None:
            # Answers of a user's function are marked by its position.
            found = text if text.startswith(f"{position} ") else None
        else:
            found = principal_of(member, text)
        if found is not None:
            return found
    return None


def option_for(key_func: object) -> str | None:
    """Return the option that tells *key_func* of a client; None if none is known."""
    if isinstance(key_func, FirstOf):
        return " or ".join(filter(None, map(option_for, key_func.members))) or None
    if isinstance(key_func, ClientIP):
        return "--address 203.0.113.7"
    if isinstance(key_func, Header):
        return f"-H '{_name(key_func)}: …'"
    if isinstance(key_func, Path):
        return f"--path {_name(key_func)}=…"
    return None
