"""Who the client is, behind proxies, and whoever else claims to be one."""

import logging
from collections.abc import Callable
from ipaddress import IPv4Address, IPv6Address
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.requests import HTTPConnection
from starlette.types import Scope

from throttled_views import ClientIP, ConfigurationError
from throttled_views._principals import encoded_principal

PROXY = "10.0.0.1"
FRONT_PROXY = "10.9.9.9"
CLIENT = "203.0.113.9"
BY_LIST = ClientIP(trusted_proxies=["10.0.0.0/8", "fd00::/8"])
BY_FORWARDED = ClientIP(trusted_proxies=["10.0.0.0/8"], header="Forwarded")


def scope_of(peer: str, *lines: str, field: str = "X-Forwarded-For") -> Scope:
    """Return the scope of a request that *peer* sends with *lines* of a field."""
    name = field.lower().encode()
    headers = [(name, line.encode("latin-1")) for line in lines]
    return {"type": "http", "client": (peer, 50_000), "headers": headers}


def client(key_func: ClientIP, peer: str, *lines: str) -> str:
    """Return the principal of a request, which both ways of asking give."""
    scope = scope_of(peer, *lines, field=key_func.header)
    principal = key_func(HTTPConnection(scope))

    assert encoded_principal(principal) == key_func.encoded_from_scope(scope)
    return principal


# --- X-Forwarded-For ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lines", "principal"),
    [
        pytest.param([CLIENT], CLIENT, id="one hop"),
        pytest.param([f"6.6.6.6, {CLIENT}"], CLIENT, id="what the client wrote"),
        pytest.param([f"{CLIENT}, {FRONT_PROXY}"], CLIENT, id="a second proxy"),
        pytest.param(
            [f"6.6.6.6, {CLIENT}, {FRONT_PROXY}, 10.1.1.1"], CLIENT, id="more proxies"
        ),
        pytest.param(["6.6.6.6", CLIENT], CLIENT, id="two lines"),
        pytest.param([CLIENT, FRONT_PROXY], CLIENT, id="two lines, two proxies"),
        pytest.param([f"{CLIENT}:4711"], CLIENT, id="port"),
        pytest.param([f" {CLIENT}\t"], CLIENT, id="spaces"),
        pytest.param([f'"{CLIENT}"'], CLIENT, id="quotes"),
        pytest.param(["[2001:db8:1:2::1]:4711"], "2001:db8:1:2::/64", id="brackets"),
        pytest.param(["2001:db8:1:2::1"], "2001:db8:1:2::/64", id="IPv6"),
        pytest.param(["2001:DB8:1:2:0::1"], "2001:db8:1:2::/64", id="IPv6 in capitals"),
        pytest.param(["fe80::1%eth0"], "fe80::/64", id="zone"),
        pytest.param(["[fe80::1%25eth0]:80"], "fe80::/64", id="zone in brackets"),
        pytest.param(["::ffff:203.0.113.9"], CLIENT, id="mapped"),
        pytest.param(["[::ffff:cb00:7109]:80"], CLIENT, id="mapped in hex"),
        pytest.param([f"{CLIENT}, ::ffff:10.1.1.1"], CLIENT, id="mapped proxy"),
        pytest.param(["64:ff9b::203.0.113.9"], CLIENT, id="NAT64"),
        pytest.param(["2001:db8:1:2::1.2.3.4"], "2001:db8:1:2::/64", id="dotted tail"),
        pytest.param([f"{CLIENT}, fd00::7"], CLIENT, id="proxy of another network"),
        pytest.param([f"{FRONT_PROXY}, 10.1.1.1"], FRONT_PROXY, id="only proxies"),
        pytest.param([], PROXY, id="no header"),
        pytest.param([""], PROXY, id="nothing in it"),
        pytest.param([f"{CLIENT}, "], PROXY, id="empty entry"),
        pytest.param([f"{CLIENT}, unknown"], PROXY, id="unknown"),
        pytest.param([f"{CLIENT}, _hidden"], PROXY, id="hidden"),
        pytest.param([f"{CLIENT}, 203.0.113.999"], PROXY, id="no address"),
        pytest.param([f"{CLIENT}, 203.0.113.009"], PROXY, id="leading zeros"),
        pytest.param([f"{CLIENT}, {CLIENT}:"], PROXY, id="no port"),
        pytest.param([f"{CLIENT}, []"], PROXY, id="empty brackets"),
        pytest.param([f"{CLIENT}, [::1"], PROXY, id="open bracket"),
        pytest.param([f"{CLIENT}, \xe9"], PROXY, id="not ASCII"),
        pytest.param([f"{CLIENT}, {'1' * 60_000}"], PROXY, id="long"),
        pytest.param(
            [f"{CLIENT}, unknown, {FRONT_PROXY}"], FRONT_PROXY, id="unknown behind one"
        ),
        pytest.param(
            [CLIENT + f", {FRONT_PROXY}" * 40], FRONT_PROXY, id="more than there can be"
        ),
    ],
)
def test_behind_a_proxy_the_last_hop_that_is_none_is_the_client(
    lines: list[str], principal: str
) -> None:
    """Read from the right, past proxies; what is no address ends at its proxy."""
    assert principal == client(BY_LIST, PROXY, *lines)


@pytest.mark.parametrize("peer", ["203.0.113.50", "192.168.0.1", "2001:db8::5", "junk"])
def test_nobody_else_can_forward(peer: str) -> None:
    """The header of a peer that is no proxy of ours changes nothing."""
    assert client(BY_LIST, peer) == client(BY_LIST, peer, CLIENT)
    assert client(ClientIP(), peer) == client(ClientIP(), peer, CLIENT)


def test_a_proxy_may_be_named_by_its_address() -> None:
    """A single address is a network of one."""
    one = ClientIP(trusted_proxies=[PROXY])

    assert CLIENT == client(one, PROXY, CLIENT)
    assert "10.0.0.2" == client(one, "10.0.0.2", CLIENT)
    assert CLIENT == client(one, f"::ffff:{PROXY}", CLIENT)


def test_a_network_may_be_written_as_mapped() -> None:
    """It is the network of IPv4 that it carries."""
    mapped = ClientIP(trusted_proxies=["::ffff:10.0.0.0/104"])

    assert ("10.0.0.0/8",) == mapped.trusted_proxies
    assert CLIENT == client(mapped, PROXY, CLIENT)


def test_a_proxy_behind_nat64_is_not_trusted_by_what_it_carries() -> None:
    """RFC 6052 forbids private addresses there, so that it is somebody's claim."""
    assert PROXY == client(BY_LIST, f"64:ff9b::{PROXY}", CLIENT)


def test_forwarded_clients_count_by_the_prefix_too() -> None:
    """What is said of the peer holds for whoever is behind it."""
    wide = ClientIP(trusted_proxies=["10.0.0.0/8"], ipv6_prefix=48)

    assert "2001:db8:1::/48" == client(wide, PROXY, "2001:db8:1:2::1")


# --- Forwarded ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lines", "principal"),
    [
        pytest.param([f"for={CLIENT}"], CLIENT, id="one hop"),
        pytest.param([f"For={CLIENT};proto=http;by=10.0.0.1"], CLIENT, id="more pairs"),
        pytest.param([f"proto=https;by=_x;FOR={CLIENT}"], CLIENT, id="in any order"),
        pytest.param([f"for=6.6.6.6, for={CLIENT}"], CLIENT, id="the client's own"),
        pytest.param([f"for=6.6.6.6,for={CLIENT}"], CLIENT, id="no space"),
        pytest.param(["for=6.6.6.6", f"for={CLIENT}"], CLIENT, id="two lines"),
        pytest.param([f"for={CLIENT}, for={FRONT_PROXY}"], CLIENT, id="two proxies"),
        pytest.param([f'for="{CLIENT}:4711"'], CLIENT, id="quoted, with port"),
        pytest.param([f"for={CLIENT}:4711"], CLIENT, id="port without quotes"),
        pytest.param([f'for="{CLIENT}:_port"'], CLIENT, id="hidden port"),
        pytest.param(
            ['for="[2001:db8:1:2::1]:4711"'], "2001:db8:1:2::/64", id="brackets"
        ),
        pytest.param(["for=[2001:db8:1:2::1]"], "2001:db8:1:2::/64", id="no quotes"),
        pytest.param(['for="203\\.0.113.9"'], CLIENT, id="escaped"),
        pytest.param([f" for={CLIENT} ; proto=http "], CLIENT, id="spaces"),
        pytest.param([f"for={CLIENT};"], CLIENT, id="semicolon at the end"),
        pytest.param(
            [f'for={CLIENT};host="a, for=6.6.6.6"'], CLIENT, id="comma in quotes"
        ),
        pytest.param(
            [f'for={CLIENT};host="a;for=6.6.6.6"'], CLIENT, id="semicolon in quotes"
        ),
        pytest.param(
            [f'for={CLIENT};host="\\", for=6.6.6.6\\\\"'], CLIENT, id="quote in quotes"
        ),
        pytest.param([f'for=", for={CLIENT}'], CLIENT, id="quote of the client's"),
        pytest.param([f'for="\\, for={CLIENT}'], CLIENT, id="its escape"),
        pytest.param(
            [f'for="x, for="{CLIENT}";host="b"'], CLIENT, id="quote before quotes"
        ),
        pytest.param([], PROXY, id="no header"),
        pytest.param([""], PROXY, id="nothing in it"),
        pytest.param([f"for={CLIENT}, "], PROXY, id="empty element"),
        pytest.param([f"for={CLIENT}, proto=http"], PROXY, id="no node"),
        pytest.param([f"for={CLIENT}, for="], PROXY, id="no value"),
        pytest.param([f'for={CLIENT}, for=""'], PROXY, id="empty value"),
        pytest.param([f"for={CLIENT}, for=unknown"], PROXY, id="unknown"),
        pytest.param([f"for={CLIENT}, for=_hidden"], PROXY, id="hidden"),
        pytest.param([f"for={CLIENT};for=6.6.6.6"], PROXY, id="two nodes"),
        pytest.param([f"for = {CLIENT}"], PROXY, id="spaces at the sign"),
        pytest.param([f"for={CLIENT} proto=http"], PROXY, id="no semicolon"),
        pytest.param([CLIENT], PROXY, id="written as the other field"),
        pytest.param([f'for="{CLIENT}'], PROXY, id="open quote"),
    ],
)
def test_forwarded_is_read_from_the_right_too(lines: list[str], principal: str) -> None:
    """As RFC 7239 has it; an element that is not well-formed ends at its proxy."""
    assert principal == client(BY_FORWARDED, PROXY, *lines)


def test_only_the_field_that_was_named_is_read() -> None:
    """A proxy passes on the other one, which a client may have written."""
    scope = scope_of(PROXY, CLIENT, field="X-Forwarded-For")

    assert PROXY == BY_FORWARDED(HTTPConnection(scope))


# --- nobody chooses a key -------------------------------------------------------------

words = st.sampled_from(
    ["for=", '"', "\\", ",", ", ", ";", "[", "]", ":", "%", "_x", "unknown", "6.6.6.6"]
)
written = st.lists(words | st.text(st.characters(max_codepoint=255), max_size=5)).map(
    "".join
)
"""What a client may write into a field."""

public = st.ip_addresses(v=4, network="32.0.0.0/3") | st.ip_addresses(
    v=6, network="2000::/3"
)
"""Where clients are, and none of our proxies."""


def in_a_list(address: IPv4Address | IPv6Address) -> str:
    """Write the entry of a proxy."""
    return str(address)


def as_an_element(address: IPv4Address | IPv6Address) -> str:
    """Write the element of a proxy, with all that it may say."""
    node = str(address) if address.version == 4 else f'"[{address}]:4711"'
    return f'for={node};host="a\\", b\\\\";proto=https'


KINDS = {
    "X-Forwarded-For": (BY_LIST, in_a_list),
    "Forwarded": (BY_FORWARDED, as_an_element),
}
kinds = pytest.mark.parametrize(("key_func", "entry"), KINDS.values(), ids=KINDS)


@kinds
@given(
    lines=st.lists(written, max_size=3),
    joint=st.sampled_from([",", ", ", None]),
    hops=st.tuples(public, *[st.ip_addresses(v=4, network="10.0.0.0/8")] * 2),
)
def test_a_client_behind_a_proxy_cannot_choose_its_key(
    key_func: ClientIP,
    entry: Callable[[IPv4Address | IPv6Address], str],
    lines: list[str],
    joint: str | None,
    hops: tuple[IPv4Address | IPv6Address, ...],
) -> None:
    """Whatever it writes, what the proxies add to it is what counts."""
    added = [entry(each) for each in hops]
    if lines and joint:  # not in a line of its own
        added[0] = lines.pop() + joint + added[0]

    assert client(ClientIP(), str(hops[0])) == client(key_func, PROXY, *lines, *added)


@kinds
@given(lines=st.lists(written, max_size=3), address=public)
def test_any_other_client_cannot_choose_its_key(
    key_func: ClientIP,
    entry: Callable[[IPv4Address | IPv6Address], str],
    lines: list[str],
    address: IPv4Address | IPv6Address,
) -> None:
    """However it claims to be a proxy, it has one key, which is its own."""
    told = [*lines, entry(address)]

    assert client(ClientIP(), str(address)) == client(key_func, str(address), *told)


@kinds
@given(lines=st.lists(written, max_size=3))
def test_whatever_a_proxy_passes_on_has_a_key(
    key_func: ClientIP,
    entry: Callable[[IPv4Address | IPv6Address], str],
    lines: list[str],
) -> None:
    """Nothing in a field is an error, or no client at all."""
    assert client(key_func, PROXY, *lines)


# --- warnings -------------------------------------------------------------------------


def warnings_in(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return the warnings that were logged."""
    return [
        record.getMessage()
        for record in caplog.records
        if (record.name, record.levelno) == ("throttled_views", logging.WARNING)
    ]


@pytest.mark.parametrize("field", ["X-Forwarded-For", "Forwarded"])
@pytest.mark.parametrize("peer", ["10.0.0.1", "127.0.0.1", "fd00::1", "100.64.0.1"])
@pytest.mark.parametrize("earlier", [0, 99])
def test_a_proxy_that_nobody_trusts_is_warned_about_once(
    earlier: int, peer: str, field: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A field from a private peer is most likely of a proxy, wherever it is."""
    by_peer = ClientIP()
    for _ in range(earlier):
        by_peer.encoded_from_scope(scope_of(peer))
    assert [] == warnings_in(caplog)

    for read in (by_peer.encoded_from_scope, by_peer.from_scope) * 2:
        read(scope_of(peer, CLIENT, field=field))

    [warning] = warnings_in(caplog)
    assert f"sends {field}, and is no trusted proxy" in warning
    assert f"write ClientIP(trusted_proxies=[…], header='{field}')" in warning
    assert peer not in warning


def test_a_peer_that_forwards_nothing_is_looked_at_no_more(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """After a hundred requests a private peer is a client like any other."""
    by_peer = ClientIP()
    for _ in range(100):
        by_peer.encoded_from_scope(scope_of(PROXY))

    assert PROXY == by_peer.encoded_from_scope(scope_of(PROXY, CLIENT))
    assert [] == warnings_in(caplog)


@pytest.mark.parametrize(
    ("key_func", "peer"),
    [
        pytest.param(ClientIP(), "8.8.8.8", id="public"),
        pytest.param(ClientIP(), "2606:4700::1111", id="public IPv6"),
        pytest.param(ClientIP(), "testclient", id="test client"),
        pytest.param(ClientIP(trusted_proxies=[PROXY]), PROXY, id="trusted"),
    ],
)
def test_other_peers_are_not_warned_about(
    key_func: ClientIP, peer: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A client of the internet may send what it likes, and a trusted proxy is heard."""
    client(key_func, peer, CLIENT)

    assert [] == warnings_in(caplog)


def remembered(holder: object, *names: str) -> dict[str, object]:
    """Return what an object holds under a name, of what it holds under another."""
    for name in names:
        holder = getattr(holder, name)

    assert isinstance(holder, dict)
    return cast("dict[str, object]", holder)


def test_private_peers_that_are_looked_at_are_bounded() -> None:
    """However many private peers come, the memory for them is bounded."""
    by_peer = ClientIP()
    hosts = [f"10.0.{number // 256}.{number % 256}" for number in range(5_000)]

    keys = [by_peer.encoded_from_scope(scope_of(host)) for host in hosts]

    assert hosts == keys
    assert len(hosts) > len(remembered(by_peer, "_warnings", "_looks"))


# --- declarations ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("proxies", "message"),
    [
        pytest.param("10.0.0.0/8", r"Write trusted_proxies=\['10\.0", id="text"),
        pytest.param(None, r"Write trusted_proxies=\['10\.0", id="nothing"),
        pytest.param(["*"], "Write the network of your proxies", id="star"),
        pytest.param(["localhost"], "Write the network of your proxies", id="name"),
        pytest.param([""], "Write the network of your proxies", id="empty"),
        pytest.param([8], "it is not text", id="number"),
        pytest.param(["10.0.0.1/8"], "has host bits set", id="host bits"),
        pytest.param(["10.0.0.0/33"], "Write the network", id="too many bits"),
        pytest.param(["0.0.0.0/0"], "it trusts everybody", id="everybody"),
        pytest.param(["::/0"], "it trusts everybody", id="everybody of IPv6"),
        pytest.param(["::ffff:0:0/96"], "it trusts everybody", id="mapped everybody"),
        pytest.param(["10.0.0.0/8", "x"], "trusted_proxies has 'x'", id="the second"),
    ],
)
def test_proxies_that_are_none_are_refused(proxies: object, message: str) -> None:
    """The error shows what was given and what to write."""
    unchecked: Any = ClientIP

    with pytest.raises(ConfigurationError, match=message):
        unchecked(trusted_proxies=proxies)


@pytest.mark.parametrize("header", ["X-Real-IP", "", None, "forwarded", ["Forwarded"]])
def test_a_header_that_is_not_read_is_refused(header: object) -> None:
    """A field that is not listed hop by hop could not be read safely."""
    unchecked: Any = ClientIP

    with pytest.raises(ConfigurationError, match="Write header='X-Forwarded-For'"):
        unchecked(trusted_proxies=[PROXY], header=header)


def test_trust_is_shown_as_it_is_written() -> None:
    """The repr is the call that makes it."""
    assert (
        "ClientIP(trusted_proxies=('10.0.0.0/8',), header='Forwarded', ipv6_prefix=64)"
    ) == repr(BY_FORWARDED)
