"""
Who is charged for what: keys, and the functions that name clients.

A key says three things: the methods of the handler, what is limited, and who asks. The
concrete URL is never part of it. In a store the limiter's prefix stands before it, and
the name of the limit behind it.

Who asks is a *principal*. Those that the functions here give tell of what kind they
are, so that what a client writes into a header is never taken for an address.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, NamedTuple, cast

from starlette.requests import HTTPConnection
from starlette.types import Scope

from throttled_views._addresses import (
    Address,
    address_of,
    client_of,
    networks_of,
    node_of,
)
from throttled_views._fields import (
    FORWARDED,
    X_FORWARDED_FOR,
    is_field_name,
    nodes_of,
)
from throttled_views._kinds import FirstOf, Header, Path, always_answering
from throttled_views._peers import Warnings, host_of, lines_of
from throttled_views._principals import (
    LONGEST_PRINCIPAL,
    encoded,
    encoded_principal,
)
from throttled_views.errors import ConfigurationError
from throttled_views.limits import KeyFunc

__all__ = [
    "ClientIP",
    "KeyParts",
    "client_ip",
    "compose_key",
    "everyone",
    "first_of",
    "get_remote_address",
    "header_key",
    "path_key",
]

_HOSTS_KNOWN = 4096
_IPV6_BITS = 128


class KeyParts(NamedTuple):
    """
    What a key says.

    Attributes:
        method: The methods the handler serves, sorted and joined with ``+``.
        route: What is limited: ``module.qualname`` of a function, or
            ``module.Class.handler`` of a view; a bucket's name where one is given.
        principal: Who asks, as the key function named it.
    """

    method: str
    route: str
    principal: str


def compose_key(parts: KeyParts, /) -> str:
    """
    Join *parts* with ``|``, each percent-encoded with nothing safe.

    The key of a store is ``<prefix>|<this>|<name of the limit>``, with braces around
    the principal.

    No value can imitate the separator, and different parts never give the same key.
    A principal of more than 64 bytes is replaced by its 128-bit BLAKE2 digest, so that
    no client decides how long a key becomes.
    """
    method, route, principal = parts
    return f"{encoded(method)}|{encoded(route)}|{encoded_principal(principal)}"


# --- addresses ------------------------------------------------------------------------


@always_answering
class ClientIP:
    """
    Key function: the address of the client.

    It is that of the peer. If the peer is a proxy of yours, it is the address that the
    proxy forwards for: the header is read from its right, past further proxies of
    yours, up to the first hop that is none. What stands before that was written by the
    client, and is not read. Where a hop is no address, its proxy is the client.

    IPv6 addresses are taken by their /64, which is what one host usually owns;
    IPv4-mapped ones (RFC 4291, section 2.5.5.2) and those behind a NAT64 gateway
    (``64:ff9b::/96``, RFC 6052) are taken as the IPv4 address they carry. A peer
    without an address, as on a Unix socket, is ``"unknown"``, one key for all of them.

    Args:
        trusted_proxies: Networks or addresses of your proxies. Anybody else's
            forwarding header is ignored.
        header: What your proxies write: ``"X-Forwarded-For"``, or ``"Forwarded"`` of
            RFC 7239.
        ipv6_prefix: Leading bits of an IPv6 address that tell clients apart.

    Raises:
        ConfigurationError: One of *trusted_proxies* is no network, or holds all
            addresses; *header* is another; *ipv6_prefix* is not between 1 and 128.
    """

    def __init__(
        self,
        *,
        trusted_proxies: Iterable[str] = (),
        header: Literal["X-Forwarded-For", "Forwarded"] = "X-Forwarded-For",
        ipv6_prefix: int = 64,
    ) -> None:
        if type(ipv6_prefix) is not int or not 1 <= ipv6_prefix <= _IPV6_BITS:
            msg = f"ipv6_prefix={ipv6_prefix!r} is not between 1 and 128. Write 64"
            raise ConfigurationError(msg)
        if header not in (X_FORWARDED_FOR, FORWARDED):
            msg = f"header={header!r} is not read. Write header='X-Forwarded-For'"
            raise ConfigurationError(msg)
        self._networks = networks_of(trusted_proxies)
        self.trusted_proxies = tuple(map(str, self._networks))
        self.header = header
        self.ipv6_prefix = ipv6_prefix
        self._known: dict[str, str] = {}
        self._warnings = Warnings()

    def __repr__(self) -> str:
        """Return the call that makes this key function."""
        trust = ""
        if self._networks:
            trust = f"trusted_proxies={self.trusted_proxies}, header={self.header!r}, "
        return f"ClientIP({trust}ipv6_prefix={self.ipv6_prefix})"

    def __call__(self, connection: HTTPConnection) -> str:
        """Return the principal of *connection*."""
        return self.from_scope(connection.scope)

    def from_scope(self, scope: Scope, /) -> str:
        """Return the principal of the connection."""
        principal, _ = self._principal(scope)
        return principal

    def encoded_from_scope(self, scope: Scope, /) -> str:
        """Return the principal of the connection, as it stands in keys."""
        client = scope.get("client")
        try:
            return self._known[client[0] if client else ""]
        except KeyError:  # of a new peer, or one that is to be looked at
            return self._met(scope)

    def _met(self, scope: Scope) -> str:
        principal, is_by_peer_alone = self._principal(scope)
        encoded = encoded_principal(principal)
        host = host_of(scope)
        if host and is_by_peer_alone and len(host) <= LONGEST_PRINCIPAL:
            if len(self._known) >= _HOSTS_KNOWN:
                self._known.clear()
            self._known[host] = encoded
        return encoded

    def _principal(self, scope: Scope) -> tuple[str, bool]:
        """Return the principal, and whether its peer has the same in all requests."""
        host = host_of(scope)
        if not host:
            self._warnings.about_a_peer_without_address()
            return "unknown", True
        peer = address_of(host)
        if peer is None:
            return host, True
        if self._trusts(peer):
            return client_of(self._behind(peer, scope), self.ipv6_prefix), False
        is_done = self._warnings.looked_at(host, peer, scope)
        return client_of(peer, self.ipv6_prefix), is_done

    def _trusts(self, address: Address) -> bool:
        return any(address in network for network in self._networks)

    def _behind(self, proxy: Address, scope: Scope) -> Address:
        """Return the first hop before *proxy* that is no proxy, or the last known."""
        client = proxy
        for node in nodes_of(self.header, lines_of(scope, self.header)):
            hop = node_of(node)
            if hop is None:
                break
            client = hop
            if not self._trusts(hop):
                break
        return client


client_ip = ClientIP()
"""The peer's address, IPv6 by its /64: the default key function."""

get_remote_address = client_ip
"""`client_ip` under the name that other limiters use."""


@always_answering
class _Everyone:
    """Key function: one bucket for all clients together."""

    def __repr__(self) -> str:
        return "everyone"

    def __call__(self, _connection: HTTPConnection) -> str:
        return "everyone"

    def from_scope(self, _scope: Scope, /) -> str:
        return "everyone"

    def encoded_from_scope(self, _scope: Scope, /) -> str:
        return "everyone"


everyone = _Everyone()
"""Key function: one bucket for all clients together."""


# --- headers, paths, and alternatives -------------------------------------------------


def header_key(name: str, *, otherwise: KeyFunc | None = client_ip) -> KeyFunc:
    """
    Return a key function: the value of the header field *name*, digested.

    Whoever sends another value is another client. Use it for values that were checked
    before, by a gateway say, or together with a limit that counts by address.

    Args:
        name: Name of the field.
        otherwise: Names the client where the field is missing or empty; with None the
            limit does not apply then.

    Raises:
        ConfigurationError: *name* is no field name, or *otherwise* no key function.
    """
    if not is_field_name(name):
        msg = f"{name!r} is no field name. Write for example header_key('X-API-Key')"
        raise ConfigurationError(msg)
    header = Header(name)
    return header if otherwise is None else first_of(header, otherwise)


def path_key(name: str) -> KeyFunc:
    """
    Return a key function: the parameter *name* of the path, as it stands in the URL.

    Raises:
        ConfigurationError: *name* is none that a parameter can have. On a route whose
            path has no such parameter it raises when it is asked.
    """
    if not isinstance(cast("object", name), str) or not name.isidentifier():
        msg = f"{name!r} is no name of a parameter. Write path_key('tenant_id')"
        raise ConfigurationError(msg)
    return Path(name)


def first_of(*key_funcs: KeyFunc) -> KeyFunc:
    """
    Return a key function: the first principal that one of *key_funcs* gives.

    They are asked in order until one gives another answer than None; a `path_key` gives
    none where the path has no such parameter. The answer of the last one stands. What
    functions of yours answer is marked by their position, so that none of them can name
    the client of another.

    If the last one always names a client, as `client_ip` does, no earlier one needs to:
    ``first_of(header_key("X-API-Key"), client_ip)`` asks for the address once.

    Raises:
        ConfigurationError: There is none, one takes more than the connection, or one
            would never be asked.
    """
    if not key_funcs:
        msg = "first_of() asks nobody. Write first_of(path_key('tenant'), client_ip)"
        raise ConfigurationError(msg)
    return FirstOf.of(key_funcs)
