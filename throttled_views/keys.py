"""
Who is charged for what: keys, and the functions that name clients.

A key says three things: the methods of the handler, what is limited, and who asks. The
concrete URL is never part of it. In a store the limiter's prefix stands before it, and
the name of the limit behind it.

Who asks is a *principal*. Those that the functions here give tell of what kind they
are, so that what a client writes into a header is never taken for an address.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from hashlib import blake2b
from itertools import chain, pairwise
from typing import Literal, NamedTuple, TypeAlias, TypeGuard, cast
from urllib.parse import quote

from starlette.requests import HTTPConnection, Request
from starlette.types import Scope

from throttled_views._addresses import (
    Address,
    address_of,
    client_of,
    networks_of,
    node_of,
)
from throttled_views._early import (
    Reader,
    called,
    early_parameter,
    early_reader_of,
)
from throttled_views._fields import (
    FORWARDED,
    X_FORWARDED_FOR,
    is_field_name,
    nodes_of,
)
from throttled_views._peers import Warnings, host_of, lines_of
from throttled_views.errors import ConfigurationError, InvalidKeyError
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

_LONGEST_PRINCIPAL = 64  # bytes of UTF-8
_HOSTS_KNOWN = 4096
_DIGEST_BYTES = 16  # 128 bits
_DIGEST_MARK = "#"  # never left as it is by percent-encoding, so no text imitates it
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

    The key of a store is ``<prefix>|<this>|<name of the limit>``.

    No value can imitate the separator, and different parts never give the same key.
    A principal of more than 64 bytes is replaced by its 128-bit BLAKE2 digest, so that
    no client decides how long a key becomes.
    """
    method, route, principal = parts
    return f"{encoded(method)}|{encoded(route)}|{encoded_principal(principal)}"


def encoded(text: str) -> str:
    """Return *text* percent-encoded as UTF-8, lone surrogates included."""
    return quote(text, safe="", errors="surrogatepass")


def encoded_principal(principal: str) -> str:
    """Return *principal* as it stands in keys."""
    if len(principal) > _LONGEST_PRINCIPAL:  # not to be held by a cache
        return _encoded_or_digested(principal)
    return _encoded_short(principal)


def _encoded_or_digested(principal: str) -> str:
    raw = principal.encode("utf-8", "surrogatepass")
    if len(raw) > _LONGEST_PRINCIPAL:
        return _DIGEST_MARK + _digest(raw)
    return encoded(principal)


def _digest(raw: bytes) -> str:
    """Return a digest without a key, so that it is the same in every process."""
    return blake2b(raw, digest_size=_DIGEST_BYTES).hexdigest()


_encoded_short = lru_cache(maxsize=4096)(_encoded_or_digested)


# --- addresses ------------------------------------------------------------------------


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
        if host and is_by_peer_alone and len(host) <= _LONGEST_PRINCIPAL:
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


class _Header:
    """Key function: the value of a header field, digested."""

    def __init__(self, name: str) -> None:
        self._name = name.lower()
        self._raw_name = self._name.encode()

    def __repr__(self) -> str:
        return f"header_key({self._name!r}, otherwise=None)"

    def __call__(self, connection: HTTPConnection) -> str | None:
        return self.from_scope(connection.scope)

    def from_scope(self, scope: Scope) -> str | None:
        """Return the principal; None if the field is missing, or is empty."""
        # The first of several, which `request.headers[…]` is, too.
        for name, value in scope["headers"]:
            if name == self._raw_name:
                secret = value.strip()
                return f"header {self._name} {_digest(secret)}" if secret else None
        return None


class _Path:
    """Key function: a parameter of the path."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __repr__(self) -> str:
        return f"path_key({self._name!r})"

    def __call__(self, connection: HTTPConnection) -> str:
        return self.from_scope(connection.scope)

    def from_scope(self, scope: Scope) -> str:
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


_Own: TypeAlias = ClientIP | _Everyone | _Header | _Path


class _FirstOf:
    """Key function: the first principal that one of several functions gives."""

    def __init__(self, members: Sequence[KeyFunc]) -> None:
        self.members = members
        self._steps = [
            self._step(member, position) for position, member in enumerate(members, 1)
        ]
        self.is_own = all(map(_is_own, members))
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
        if isinstance(member, _Path) and position < len(self.members):
            return member, "", member.found_in
        if _is_own(member):
            return member, "", member.from_scope
        reader = early_reader_of(member)
        if reader is None:
            msg = (
                "first_of asks functions of the connection alone, and "
                f"{called(member)} is none. Write one function that takes what it "
                "needs, and chooses"
            )
            raise ConfigurationError(msg)
        return member, f"{position} ", reader


def _is_own(function: object) -> TypeGuard[_Own]:
    """Tell whether *function* is of ours: a subclass may have another idea of a key."""
    return type(function) in {ClientIP, _Everyone, _Header, _Path}


def _always_answers(function: object) -> bool:
    return type(function) in {ClientIP, _Everyone}


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
    header = _Header(name)
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
    return _Path(name)


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
    *earlier, last = map(_members_of, key_funcs)
    if _always_answers(last[-1]):
        earlier = [_without_fallback(members) for members in earlier]
    members = [*chain.from_iterable(earlier), *last]
    for member, after in pairwise(members):
        if _always_answers(member):
            msg = (
                f"{called(member)} always names a client, so that {called(after)} is "
                f"never asked. Write first_of(…, {called(member)}); if it stands in a "
                "header_key, header_key(…, otherwise=None)"
            )
            raise ConfigurationError(msg)
    return _FirstOf(members)


def _members_of(key_func: KeyFunc) -> Sequence[KeyFunc]:
    return key_func.members if isinstance(key_func, _FirstOf) else [key_func]


def _without_fallback(members: Sequence[KeyFunc]) -> Sequence[KeyFunc]:
    """Return *members* without one that answers when no other does."""
    has_one = len(members) > 1 and _always_answers(members[-1])
    return members[:-1] if has_one else members


def scope_reader_of(key_func: object) -> Callable[[Scope], str] | None:
    """
    Return what reads an encoded principal straight from a scope.

    None if *key_func* is not one of ours, or may have no principal to give.
    """
    if isinstance(key_func, _FirstOf):
        is_sure = key_func.is_own and not isinstance(key_func.members[-1], _Header)
        return key_func.encoded_from_scope if is_sure else None
    if not _is_own(key_func) or isinstance(key_func, _Header):
        return None
    return key_func.encoded_from_scope


def checked_principal(principal: object, source: object) -> str:
    """Return *principal* if it can be one, else raise InvalidKeyError."""
    if not isinstance(principal, str) or not principal:
        raise InvalidKeyError(principal, f"The key function {called(source)}")
    return principal
