"""
Who is charged for what: keys, and the functions that name clients.

A key says three things: the methods of the handler, what is limited, and who asks. The
concrete URL is never part of it. In a store the limiter's prefix stands before it, and
the name of the limit behind it.
"""

from __future__ import annotations

import inspect
import ipaddress
import logging
from collections.abc import Awaitable, Callable
from functools import lru_cache, partial
from hashlib import blake2b
from typing import NamedTuple, TypeAlias
from urllib.parse import quote

from starlette.requests import HTTPConnection, Request
from starlette.types import Scope

from throttled_views.errors import ConfigurationError, InvalidKeyError

__all__ = [
    "ClientIP",
    "KeyParts",
    "client_ip",
    "compose_key",
    "everyone",
    "get_remote_address",
]

_logger = logging.getLogger("throttled_views")

_LONGEST_PRINCIPAL = 64  # bytes of UTF-8
_HOSTS_KNOWN = 4096
_DIGEST_BYTES = 16  # 128 bits
_DIGEST_MARK = "#"  # never left as it is by percent-encoding, so no text imitates it
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")  # RFC 6052, section 2.1
_IPV4_MASK = 0xFFFFFFFF
_IPV6_BITS = 128
_VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


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
        return _DIGEST_MARK + blake2b(raw, digest_size=_DIGEST_BYTES).hexdigest()
    return encoded(principal)


_encoded_short = lru_cache(maxsize=4096)(_encoded_or_digested)


class _Known(dict[str, str]):
    """What hosts are in keys; a host that is not known yet is looked at."""

    def __init__(self, encode: Callable[[str], str]) -> None:
        super().__init__()
        self._encode = encode

    def __missing__(self, host: str | None) -> str:
        encoded = self._encode(host or "")
        if host and len(host) <= _LONGEST_PRINCIPAL:  # a proxy may say anything
            if len(self) >= _HOSTS_KNOWN:
                self.clear()
            self[host] = encoded
        return encoded


class ClientIP:
    """
    Key function: the address of the peer.

    IPv6 addresses are taken by their /64, which is what one host usually owns;
    IPv4-mapped ones (RFC 4291, section 2.5.5.2) and those behind a NAT64 gateway
    (``64:ff9b::/96``, RFC 6052) are taken as the IPv4 address they carry. A peer
    without an address, as on a Unix socket, is ``"unknown"``, one key for all of them.
    Forwarding headers are not read.

    Args:
        ipv6_prefix: Leading bits of an IPv6 address that tell clients apart.

    Raises:
        ConfigurationError: *ipv6_prefix* is not between 1 and 128.
    """

    def __init__(self, *, ipv6_prefix: int = 64) -> None:
        if type(ipv6_prefix) is not int or not 1 <= ipv6_prefix <= _IPV6_BITS:
            msg = f"ipv6_prefix={ipv6_prefix!r} is not between 1 and 128. Write 64"
            raise ConfigurationError(msg)
        self.ipv6_prefix = ipv6_prefix
        self._known = _Known(lambda host: encoded_principal(self._principal(host)))
        self._warned = False

    def __repr__(self) -> str:
        """Return the call that makes this key function."""
        return f"ClientIP(ipv6_prefix={self.ipv6_prefix})"

    def __call__(self, connection: HTTPConnection) -> str:
        """Return the principal of *connection*."""
        client = connection.scope.get("client")
        return self._principal((client and client[0]) or "")

    def encoded_from_scope(self, scope: Scope, /) -> str:
        """Return the principal of the connection, as it stands in keys."""
        client = scope.get("client")
        return self._known[client[0] if client else ""]

    def _principal(self, host: str) -> str:
        if not host:
            self._warn_about_unknown_peers()
            return "unknown"
        try:
            address = ipaddress.ip_address(host.partition("%")[0])
        except ValueError:
            return host
        if isinstance(address, ipaddress.IPv4Address):
            return str(address)
        if address.ipv4_mapped is not None:
            return str(address.ipv4_mapped)
        if address in _NAT64:
            return str(ipaddress.IPv4Address(int(address) & _IPV4_MASK))
        network = ipaddress.IPv6Network((address, self.ipv6_prefix), strict=False)
        return str(network)

    def _warn_about_unknown_peers(self) -> None:
        if not self._warned:
            self._warned = True
            _logger.warning(
                "The server gives no peer address (a Unix socket?), so all clients "
                "share the key 'unknown'. Choose another key_func"
            )


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

    def encoded_from_scope(self, _scope: Scope, /) -> str:
        return "everyone"


everyone = _Everyone()
"""Key function: one bucket for all clients together."""


def scope_reader_of(key_func: object) -> Callable[[Scope], str] | None:
    """
    Return what reads an encoded principal straight from a scope.

    None if *key_func* is not one of ours: a subclass may have another idea of the key.
    """
    if type(key_func) is ClientIP or type(key_func) is _Everyone:
        return key_func.encoded_from_scope
    return None


def early_parameter(
    function: Callable[..., object],
) -> Callable[[Scope], HTTPConnection] | None:
    """
    Return what makes of a scope the one argument that *function* wants.

    That is `Request` or `HTTPConnection`, as the one parameter is annotated; a lambda,
    which cannot be annotated, gets what fits. None if *function* wants anything else,
    so that it cannot be called before something is read.
    """
    parameters = parameters_of(function) or ()
    if len(parameters) != 1 or parameters[0].kind in _VARIADIC:
        return None
    wanted = parameters[0].annotation
    if wanted is inspect.Parameter.empty:
        is_lambda = getattr(function, "__name__", "") == "<lambda>"
        return _what_fits if is_lambda else None
    if isinstance(wanted, str):  # a name that exists for type checkers only
        name = wanted.rpartition(".")[2]
        return {"Request": Request, "HTTPConnection": HTTPConnection}.get(name)
    return wanted if wanted in (Request, HTTPConnection) else None


def _what_fits(scope: Scope) -> HTTPConnection:
    return (Request if scope["type"] == "http" else HTTPConnection)(scope)


def parameters_of(function: Callable[..., object]) -> list[inspect.Parameter] | None:
    """
    Return the parameters of *function*, None if it does not tell.

    What a partial gives by keyword is none of them: nobody else is to give that.
    """
    try:
        signature = inspect.signature(function, eval_str=True)
    except NameError:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # no function, or one of C
        return None
    given = function.keywords if isinstance(function, partial) else {}
    return [each for each in signature.parameters.values() if each.name not in given]


_Reader: TypeAlias = Callable[[Scope], object | Awaitable[object]]
"""A function of the request, made a function of its scope."""


def early_reader_of(function: Callable[..., object]) -> _Reader | None:
    """
    Return *function*, which takes the connection or nothing, as one of the scope.

    None if it wants anything else, so that it cannot be called before something of the
    request is read.
    """
    parameters = parameters_of(function)
    if parameters is None:
        return None
    if not parameters:
        return lambda _scope: function()
    wanted = early_parameter(function)
    if wanted is None:
        return None
    name = parameters[0].name
    if parameters[0].kind is inspect.Parameter.KEYWORD_ONLY:
        return lambda scope: function(**{name: wanted(scope)})
    return lambda scope: function(wanted(scope))


def reader_of(function: Callable[..., object], role: str) -> _Reader:
    """
    Return *function* as a function of the scope.

    Args:
        function: A key, quota or cost function.
        role: What it is, for the error.

    Raises:
        ConfigurationError: It wants more than the connection.
    """
    reader = early_reader_of(function)
    if reader is None:
        name = getattr(function, "__name__", role).replace("<lambda>", role)
        msg = (
            f"The {role} function {called(function)} does not take just the "
            f"connection. Write 'def {name}(request: Request)'"
        )
        raise ConfigurationError(msg)
    return reader


def called(function: object) -> str:
    """Return what *function* is called in messages."""
    return getattr(function, "__qualname__", None) or repr(function)


def checked_principal(principal: object, source: object) -> str:
    """Return *principal* if it can be one, else raise InvalidKeyError."""
    if not isinstance(principal, str) or not principal:
        raise InvalidKeyError(principal, f"The key function {called(source)}")
    return principal
