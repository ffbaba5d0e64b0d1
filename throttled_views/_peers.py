"""Who sends a request, as a server tells it, and what is to be warned about."""

from __future__ import annotations

import logging

from starlette.types import Scope

from throttled_views._addresses import Address
from throttled_views._fields import FORWARDED, X_FORWARDED_FOR

__all__ = ["Warnings", "host_of", "lines_of"]

_logger = logging.getLogger("throttled_views")

_MOST_PEERS = 4096
_LOOKS_AT_A_PEER = 100


def host_of(scope: Scope) -> str:
    """Return the host of the peer; empty if the server does not tell."""
    client = scope.get("client")
    return (client and client[0]) or ""


def lines_of(scope: Scope, field: str) -> list[str]:
    """Return the lines of a header field, in order."""
    name = field.lower().encode()
    lines: list[tuple[bytes, bytes]] = scope.get("headers") or []
    return [value.decode("latin-1") for each, value in lines if each == name]


class Warnings:
    """What one `ClientIP` warns about, once each."""

    def __init__(self) -> None:
        self._is_without_address_told = False
        self._is_forwarding_told = False
        self._looks: dict[str, int] = {}

    def about_a_peer_without_address(self) -> None:
        """Warn that all clients are one, as far as the server tells."""
        if not self._is_without_address_told:
            self._is_without_address_told = True
            _logger.warning(
                "The server gives no peer address (a Unix socket?), so all clients "
                "share the key 'unknown'. Choose another key_func"
            )

    def looked_at(self, host: str, peer: Address, scope: Scope) -> bool:
        """
        Warn if *peer*, which is no trusted proxy, seems to be one all the same.

        Returns:
            Whether to look at it no more: it is a client of the internet, it is known
            not to be alone, or it has forwarded nothing in many requests.
        """
        if self._is_forwarding_told or peer.is_global:
            return True
        looks = self._looks.get(host, 0)
        if looks == _LOOKS_AT_A_PEER:
            return True
        for field in (X_FORWARDED_FOR, FORWARDED):
            if lines_of(scope, field):
                self._is_forwarding_told = True
                _logger.warning(
                    "A peer in a private network sends %s, and is no trusted proxy, so "
                    "all clients behind it share its key. If it is a proxy of yours, "
                    "write ClientIP(trusted_proxies=[…], header=%r), and give that to "
                    "each limit that has client_ip, also as header_key(…, otherwise=…)",
                    field,
                    field,
                )
                return True
        if len(self._looks) >= _MOST_PEERS:
            self._looks.clear()
        self._looks[host] = looks + 1
        return False
