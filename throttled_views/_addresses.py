"""Addresses, as servers and proxies write them, and networks, as users do."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from ipaddress import (
    IPv4Address,
    IPv4Network,
    IPv6Address,
    IPv6Network,
    ip_address,
    ip_network,
)
from typing import TypeAlias, cast

from throttled_views.errors import ConfigurationError

__all__ = ["Address", "Network", "address_of", "client_of", "networks_of", "node_of"]

Address: TypeAlias = IPv4Address | IPv6Address
Network: TypeAlias = IPv4Network | IPv6Network

_LONGEST = 45  # characters of an address, without a zone
# RFC 7239, section 6. IPv6 is also written without brackets, but never with a port.
_NODE = re.compile(
    r"""
    (?: \[ (?P<bracketed> [^\[\]]+ ) \] | (?P<dotted> [0-9.]+ ) )
        (?: : (?: [0-9]{1,5} | _[0-9A-Za-z._-]+ ) )?
    | (?P<bare> [^\[\]]+ )
    """,
    re.VERBOSE,
)
_MAPPED = IPv6Network("::ffff:0:0/96")  # RFC 4291, section 2.5.5.2
_NAT64 = IPv6Network("64:ff9b::/96")  # RFC 6052, section 2.1
_IPV4_MASK = 0xFFFFFFFF


def address_of(host: str) -> Address | None:
    """
    Return the address that *host* is, without its zone; None if it is none.

    IPv4-mapped IPv6 is IPv4. A dotted tail of other IPv6 is notation.
    """
    text = host.partition("%")[0]
    # What is too long for an address is not to be held by a cache.
    return _address_of(text) if len(text) <= _LONGEST else None


@lru_cache(maxsize=4096)
def _address_of(text: str) -> Address | None:
    try:
        address = ip_address(text)
    except ValueError:
        return None
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped
    return address


def node_of(text: str) -> Address | None:
    """
    Return the address of a hop in a forwarding header; None if it gives none.

    It may have a port and be in brackets or quotes. ``unknown``, names that hide an
    address (``_hidden``) and whatever else there is are no addresses.
    """
    found = _NODE.fullmatch(text.strip(' \t"'))
    return address_of(found[found.lastgroup or 0]) if found else None


@lru_cache(maxsize=4096)
def client_of(address: Address, ipv6_prefix: int) -> str:
    """
    Return what a client at *address* is called.

    IPv4 is itself, behind a NAT64 gateway too; IPv6 is the network of its first bits.
    """
    if isinstance(address, IPv4Address):
        return str(address)
    if address in _NAT64:
        return str(IPv4Address(int(address) & _IPV4_MASK))
    return str(IPv6Network((address, ipv6_prefix), strict=False))


def networks_of(cidrs: object) -> tuple[Network, ...]:
    """
    Return the networks that *cidrs* name; a single address is a network of one.

    Raises:
        ConfigurationError: They are not a list, one is no network, or holds all
            addresses there are.
    """
    if isinstance(cidrs, str) or not isinstance(cidrs, Iterable):
        msg = (
            f"trusted_proxies={cidrs!r} is no list of networks. "
            "Write trusted_proxies=['10.0.0.0/8']"
        )
        raise ConfigurationError(msg)
    return tuple(map(_network_of, cast("Iterable[object]", cidrs)))


def _network_of(cidr: object) -> Network:
    try:
        network = ip_network(cidr) if isinstance(cidr, str) else None
    except ValueError as error:
        raise _untrusted(cidr, str(error)) from None
    if network is None:
        raise _untrusted(cidr, "it is not text")
    if isinstance(network, IPv6Network) and network.subnet_of(_MAPPED):
        first = IPv4Address(int(network.network_address) & _IPV4_MASK)
        network = IPv4Network((first, network.prefixlen - _MAPPED.prefixlen))
    if not network.prefixlen:
        raise _untrusted(cidr, "it trusts everybody, so that clients name themselves")
    return network


def _untrusted(cidr: object, reason: str) -> ConfigurationError:
    return ConfigurationError(
        f"trusted_proxies has {cidr!r}: {reason}. "
        "Write the network of your proxies, for example '10.0.0.0/8' or '192.0.2.7'"
    )
