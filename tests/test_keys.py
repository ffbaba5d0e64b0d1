"""Who is charged for what: keys, and the functions that name clients."""

import functools
import inspect
import logging
import re
import weakref
from collections.abc import Awaitable, Callable
from ipaddress import IPv4Address, IPv6Address
from typing import Annotated, Any, ParamSpec
from urllib.parse import unquote

import pytest
from fastapi import Depends
from hypothesis import given
from hypothesis import strategies as st
from starlette.requests import HTTPConnection, Request
from starlette.types import Scope
from starlette.websockets import WebSocket

from tests import key_functions
from tests.coroutines import at_once
from throttled_views import (
    ClientIP,
    ConfigurationError,
    InvalidKeyError,
    KeyParts,
    client_ip,
    compose_key,
    everyone,
    get_remote_address,
)
from throttled_views._early import Reader, early_parameter, early_reader_of
from throttled_views._kinds import scope_reader_of
from throttled_views._principals import (
    checked_principal,
    encoded,
    encoded_principal,
)

P = ParamSpec("P")

any_text = st.text(st.characters())  # lone surrogates included
tricky_text = st.text(st.sampled_from("ab|%#+/27C25é例\ud800\udc00"), max_size=5)
parts_of_keys = st.builds(
    KeyParts, *[any_text | tricky_text] * 2, any_text | tricky_text | tricky_text
)


# --- keys


def test_a_key_is_its_parts_with_bars_between() -> None:
    """Each part is percent-encoded, with nothing safe but letters, digits and -._~."""
    key = compose_key(KeyParts("GET+HEAD", "app.views.Items.get", "a|b/c d%é~"))

    assert "GET%2BHEAD|app.views.Items.get|a%7Cb%2Fc%20d%25%C3%A9~" == key


@given(parts_of_keys.filter(lambda parts: len(as_utf8(parts.principal)) <= 64))
def test_a_key_tells_its_parts(parts: KeyParts) -> None:
    """The parts can be read back, so different parts never give the same key."""
    pieces = compose_key(parts).split("|")

    assert list(parts) == [unquote(piece, errors="surrogatepass") for piece in pieces]


@given(parts_of_keys, parts_of_keys)
def test_keys_are_equal_if_their_parts_are(one: KeyParts, other: KeyParts) -> None:
    """Different parts, long principals included, have different keys."""
    assert (one == other) == (compose_key(one) == compose_key(other))


@given(any_text | tricky_text)
def test_a_key_is_plain_ascii(principal: str) -> None:
    """Whatever a client sends, a key can be stored, logged and sent anywhere."""
    key = compose_key(KeyParts("GET", "app.items", principal))

    assert re.fullmatch(r"GET\|app\.items\|[A-Za-z0-9%._~#-]*", key)


@given(any_text | st.integers(0, 10**4).map(lambda times: "例" * times))
def test_a_key_is_bounded(principal: str) -> None:
    """No client decides how long a key becomes."""
    assert 192 >= len(encoded_principal(principal))


def test_a_long_principal_is_digested() -> None:
    """Of more than 64 bytes, 128 bits of BLAKE2 remain: the same in every process."""
    assert "a" * 64 == encoded_principal("a" * 64)
    assert "#6c79be0b5947a7307cdad5a8757bb005" == encoded_principal("a" * 65)


@given(st.text(min_size=65), st.text(min_size=65))
def test_long_principals_are_told_apart(one: str, other: str) -> None:
    """The whole of a principal counts, wherever it differs."""
    assert (one == other) == (encoded_principal(one) == encoded_principal(other))


def test_no_principal_imitates_a_digest() -> None:
    """A client that names itself after somebody's digest is somebody else."""
    digest = encoded_principal("a" * 65)

    assert digest != encoded_principal(digest)


class Sent(str):
    """Text of which one can tell whether somebody still holds it."""

    __slots__ = ("__weakref__",)


def principal_at(host: str) -> str:
    """Read the principal of a client from its scope."""
    return client_ip.encoded_from_scope(scope_from(host))


@pytest.mark.parametrize("read", [encoded_principal, principal_at])
def test_long_text_is_not_kept(read: Callable[[str], str]) -> None:
    """No client fills our memory with what it sends, and no secret stays there."""
    sent = Sent("secret" * 10_000)
    held, key = weakref.ref(sent), read(sent)
    del sent

    assert 33 == len(key)
    assert held() is None


def as_utf8(text: str) -> bytes:
    """Encode *text*, lone surrogates included."""
    return text.encode("utf-8", "surrogatepass")


# --- the client's address


def scope_from(host: str | None, kind: str = "http") -> Scope:
    """Return the scope of a connection from *host*."""
    client = None if host is None else (host, 50_000)
    return {"type": kind, "client": client, "method": "GET", "path": "/", "headers": []}


@pytest.mark.parametrize(
    ("host", "principal"),
    [
        pytest.param("192.0.2.1", "192.0.2.1", id="IPv4"),
        pytest.param("2001:db8:1:2::1", "2001:db8:1:2::/64", id="IPv6"),
        pytest.param("2001:db8:1:2:ffff::", "2001:db8:1:2::/64", id="same host"),
        pytest.param("2001:db8:1:3::1", "2001:db8:1:3::/64", id="another host"),
        pytest.param(
            "2001:0db8:0001:0002:0000:0000:0000:0001", "2001:db8:1:2::/64", id="in full"
        ),
        pytest.param("2001:DB8:1:2::1", "2001:db8:1:2::/64", id="upper case"),
        pytest.param("2001:db8:1:2::1%eth0", "2001:db8:1:2::/64", id="zone"),
        pytest.param("fe80::1%eth0", "fe80::/64", id="link-local with zone"),
        pytest.param("::1", "::/64", id="loopback"),
        pytest.param("0:0:0:0:0:0:0:1", "::/64", id="loopback in full"),
        pytest.param("::ffff:192.0.2.1", "192.0.2.1", id="mapped"),
        pytest.param("::ffff:c000:201", "192.0.2.1", id="mapped in hex"),
        pytest.param("::FFFF:192.0.2.1%eth0", "192.0.2.1", id="mapped with zone"),
        pytest.param("64:ff9b::192.0.2.1", "192.0.2.1", id="NAT64"),
        pytest.param("64:ff9b::c000:201", "192.0.2.1", id="NAT64 in hex"),
        pytest.param("64:ff9b:1::c000:201", "64:ff9b:1::/64", id="not NAT64"),
        pytest.param(
            "2001:db8:1:2::192.0.2.1", "2001:db8:1:2::/64", id="dotted tail of IPv6"
        ),
        pytest.param("testclient", "testclient", id="test client"),
        pytest.param("/run/app.sock", "/run/app.sock", id="path"),
        pytest.param("192.0.2.1:80", "192.0.2.1:80", id="junk: port"),
        pytest.param("[2001:db8::1]", "[2001:db8::1]", id="junk: brackets"),
        pytest.param("192.0.2.001", "192.0.2.001", id="junk: leading zeros"),
        pytest.param("%", "%", id="junk: no address before the zone"),
        pytest.param("", "unknown", id="empty"),
    ],
)
def test_a_client_is_its_address(host: str, principal: str) -> None:
    """All spellings of an address are one client, and junk is taken as it is."""
    assert principal == client_ip(HTTPConnection(scope_from(host)))


@given(st.ip_addresses(v=4))
def test_ipv4_counts_in_full(address: IPv4Address) -> None:
    """An IPv4 address is itself, mapped into IPv6 or not."""
    hosts = [str(address), f"::ffff:{address}", f"64:ff9b::{address}"]

    assert {str(address)} == {
        client_ip(HTTPConnection(scope_from(host))) for host in hosts
    }


@given(
    st.ip_addresses(v=6, network="2000::/3"),
    st.integers(0, 2**64 - 1),
    st.sampled_from([48, 56, 64]),
)
def test_ipv6_counts_by_its_prefix(
    address: IPv6Address, within: int, prefix: int
) -> None:
    """The bits after the prefix do not tell clients apart, the last one in it does."""
    by_prefix = ClientIP(ipv6_prefix=prefix)
    neighbour = IPv6Address(int(address) >> 64 << 64 | within)
    stranger = IPv6Address(int(address) ^ 1 << (128 - prefix))
    mine, neighbours, strangers = (
        by_prefix(HTTPConnection(scope_from(str(each))))
        for each in (address, neighbour, stranger)
    )

    assert mine == neighbours
    assert mine != strangers


@given(st.ip_addresses().map(str) | st.text(min_size=1))
def test_the_quick_way_gives_the_same_principal(host: str) -> None:
    """What is read straight from the scope is what the function returns, encoded."""
    scope = scope_from(host)

    assert encoded_principal(client_ip(HTTPConnection(scope))) == (
        client_ip.encoded_from_scope(scope)
    )


@pytest.mark.parametrize(
    "scope",
    [
        pytest.param(scope_from(None), id="None"),
        pytest.param({"type": "http", "headers": []}, id="not there"),
    ],
)
def test_a_client_without_address_is_unknown(
    scope: Scope, caplog: pytest.LogCaptureFixture
) -> None:
    """All such clients share one key, and one warning says so."""
    by_address = ClientIP()
    principals = {
        *(by_address(HTTPConnection(scope)) for _ in range(3)),
        *(by_address.encoded_from_scope(scope) for _ in range(3)),
    }

    assert {"unknown"} == principals
    assert [("throttled_views", logging.WARNING)] == [
        (record.name, record.levelno) for record in caplog.records
    ]
    assert "share the key 'unknown'" in caplog.text


def test_a_prefix_may_be_the_whole_address() -> None:
    """Every IPv6 address can be made a client of its own."""
    each = ClientIP(ipv6_prefix=128)

    assert "2001:db8::1/128" == each(HTTPConnection(scope_from("2001:db8::1")))


@pytest.mark.parametrize("prefix", [0, 129, -64])
def test_a_prefix_that_is_none_is_refused(prefix: int) -> None:
    """The error shows what was given and what to write."""
    with pytest.raises(ConfigurationError, match=f"ipv6_prefix={prefix} .* Write 64"):
        ClientIP(ipv6_prefix=prefix)


@pytest.mark.parametrize("prefix", [64.5, "64", True, None])
def test_a_prefix_of_another_type_is_refused(prefix: object) -> None:
    """A wrong type fails where it is written, and not at the first request."""
    unchecked: Any = ClientIP

    with pytest.raises(ConfigurationError, match="Write 64"):
        unchecked(ipv6_prefix=prefix)


def test_a_client_function_is_shown_as_it_is_written() -> None:
    """Its repr is the call that makes it."""
    assert "ClientIP(ipv6_prefix=56)" == repr(ClientIP(ipv6_prefix=56))


def test_the_client_has_the_name_that_others_use() -> None:
    """Code written for other limiters finds the same function."""
    assert client_ip is get_remote_address


def test_everyone_is_one() -> None:
    """All clients share one key, and the function is shown by its name."""
    principals = {
        everyone(HTTPConnection(scope_from("192.0.2.1"))),
        everyone.encoded_from_scope(scope_from("192.0.2.2")),
    }

    assert {"everyone"} == principals
    assert "everyone" == repr(everyone)


class ByNetwork(ClientIP):
    """A function with another idea of the key."""

    def __call__(self, connection: HTTPConnection) -> str:
        """Return it."""
        return "network"


@pytest.mark.parametrize(
    ("key_func", "principal"),
    [
        pytest.param(client_ip, "192.0.2.1", id="address"),
        pytest.param(ClientIP(ipv6_prefix=56), "192.0.2.1", id="another prefix"),
        pytest.param(everyone, "everyone", id="everyone"),
        pytest.param(ByNetwork(), None, id="subclass"),
        pytest.param(key_functions.by_name, None, id="function"),
        pytest.param(None, None, id="none"),
    ],
)
def test_only_functions_of_ours_are_read_from_the_scope(
    key_func: object, principal: str | None
) -> None:
    """What a user wrote is called, a subclass too."""
    read = scope_reader_of(key_func)

    assert principal == (None if read is None else read(scope_from("192.0.2.1")))


# --- functions of the request


async def by_method(request: Request) -> str:
    """Take a request, and be waited for."""
    return request.method


def by_position(request: Request, /) -> str:
    """Take a request by position only."""
    return request.method


def by_connection(connection: HTTPConnection) -> str:
    """Take any connection."""
    return connection.url.path


def by_text(request: "Request") -> str:
    """Take a request, annotated in quotes."""
    return request.method


def by_prefix(prefix: str, request: Request) -> str:
    """Take a prefix before the request."""
    return prefix + request.method


def nothing() -> str:
    """Take nothing."""
    return "k"


def by_keyword(*, request: Request) -> str:
    """Take a request by keyword only."""
    return request.method


def with_default(request: Request, prefix: str = "k") -> str:
    """Take more than a request."""
    return prefix + request.method


class Keys:
    """Key functions of other kinds."""

    def method(self, request: Request) -> str:
        """Take a request, as a method."""
        return request.method

    @staticmethod
    def static(request: Request) -> str:
        """Take a request, without self."""
        return request.method

    async def __call__(self, request: Request) -> str:
        """Take a request, as an object, and be waited for."""
        return request.method


def returning(key: str) -> Callable[..., str]:
    """Return a lambda that takes nothing."""
    return lambda: key


def decorated(function: Callable[P, str]) -> Callable[P, str]:
    """Wrap a function in another, as decorators do."""

    @functools.wraps(function)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> str:
        return function(*args, **kwargs)

    return wrapper


def one(function: Callable[[Any], Any]) -> Callable[..., Any]:
    """Tell type checkers that a lambda takes one argument."""
    return function


EARLY: dict[str, tuple[Callable[..., Any], object]] = {
    "async function": (by_method, "GET"),
    "positional only": (by_position, "GET"),
    "connection": (by_connection, "/"),
    "annotation in quotes": (by_text, "GET"),
    "method": (Keys().method, "GET"),
    "static method": (Keys.static, "GET"),
    "object": (Keys(), "GET"),
    "partial": (functools.partial(by_prefix, "k"), "kGET"),
    "partial by keyword": (functools.partial(with_default, prefix="l"), "lGET"),
    "nothing": (nothing, "k"),
    "lambda of nothing": (returning("k"), "k"),
    "keyword only": (by_keyword, "GET"),
    "decorated": (decorated(by_connection), "/"),
    "lambda": (one(lambda request: request.method), "GET"),
    "built in": (client_ip, "192.0.2.1"),
    "everyone": (everyone, "everyone"),
    "name for checkers": (key_functions.by_name, "GET"),
    "module for checkers": (key_functions.by_module, "GET"),
    "package for checkers": (key_functions.by_package, "/"),
    "result for checkers": (key_functions.cost, 1),
}
"""Functions that can run early, and what they return for `GET /`."""


def settled(value: object) -> object:
    """Return *value*, or what it gives when awaited."""

    async def wait(awaitable: Awaitable[object]) -> object:
        return await awaitable

    return at_once(wait(value)) if inspect.isawaitable(value) else value


def early(function: Callable[..., Any]) -> Reader:
    """Return *function* as one of the scope, which it has to be."""
    read = early_reader_of(function)

    assert read is not None
    return read


@pytest.mark.parametrize(("function", "returned"), EARLY.values(), ids=EARLY)
def test_a_function_of_the_request_can_be_given_a_scope(
    function: Callable[[Any], Any], returned: object
) -> None:
    """Whatever it is, a function of the connection alone runs early."""
    assert returned == settled(early(function)(scope_from("192.0.2.1")))


def test_a_lambda_gets_what_fits() -> None:
    """A lambda, which cannot be annotated, gets a request if there is one."""
    read = early(one(lambda connection: [type(connection)]))

    assert [Request] == read(scope_from("192.0.2.1"))
    assert [HTTPConnection] == read(scope_from("192.0.2.1", "websocket"))


def two(function: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    """Tell type checkers that a lambda takes two arguments."""
    return function


def unannotated() -> Callable[..., Any]:
    """Return a function that does not say what it takes."""

    def by_anything(request: Request) -> str:
        return request.method

    by_anything.__annotations__.clear()
    return by_anything


def by_any(*requests: Request) -> str:
    """Take any number of requests."""
    return requests[0].method


def by_two(request: Request, connection: HTTPConnection) -> str:
    """Take two of them."""
    return request.method


def by_socket(socket: WebSocket) -> str:
    """Take a socket."""
    return socket.url.path


def by_dependency(user: Annotated[str, Depends(nothing)]) -> str:
    """Take what a dependency gives."""
    return user


def by_query(tenant: str) -> str:
    """Take a parameter of the query."""
    return tenant


LATE: dict[str, Callable[..., Any]] = {
    "unannotated": unannotated(),
    "any number": by_any,
    "two": by_two,
    "socket": by_socket,
    "dependency": by_dependency,
    "query": by_query,
    "with a default": with_default,
    "lambda of two": two(lambda request, user: user),
    "parameter for checkers": key_functions.by_number,
}
"""Functions that want something else than the connection alone."""


@pytest.mark.parametrize("function", LATE.values(), ids=LATE)
def test_a_function_of_more_cannot_run_early(function: Callable[..., Any]) -> None:
    """A function that wants anything else cannot be called with a scope alone."""
    assert early_parameter(function) is None
    assert early_reader_of(function) is None


# --- principals


@pytest.mark.parametrize("principal", ["a", " ", "0", "\0", "\ud800", "a" * 100_000])
def test_any_text_is_a_principal(principal: str) -> None:
    """Whatever a key function returns is a client, if it is text and not empty."""
    assert principal == checked_principal(principal, by_query)


@pytest.mark.parametrize("principal", ["", None, 0, False, 5, b"a", ["a"]])
def test_what_is_no_principal_is_refused(principal: object) -> None:
    """Empty text, which would be one big bucket, and other types are errors."""
    with pytest.raises(
        InvalidKeyError, match="The key function by_query gave"
    ) as caught:
        checked_principal(principal, by_query)

    assert principal is caught.value.given


def test_a_key_function_without_a_name_is_shown() -> None:
    """An object that made no key is shown as it is written."""
    with pytest.raises(
        InvalidKeyError, match=r"function ClientIP\(ipv6_prefix=64\) gave"
    ):
        checked_principal("", client_ip)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("", ""), ("a-b.c_d~e", "a-b.c_d~e"), ("\ud800", "%ED%A0%80"), ("/", "%2F")],
)
def test_parts_are_percent_encoded(text: str, expected: str) -> None:
    """Nothing is safe but what RFC 3986 calls unreserved."""
    assert expected == encoded(text)


def test_a_function_that_does_not_tell_its_parameters_cannot_run_early() -> None:
    """A function of C may have no signature."""
    assert early_reader_of(max) is None


def test_hosts_that_are_remembered_are_bounded() -> None:
    """However many hosts come, the memory for them is bounded, and keys are right."""
    identity = ClientIP()
    hosts = [f"32.0.{number // 256}.{number % 256}" for number in range(5_000)]

    keys = [identity.encoded_from_scope({"client": (host, 1)}) for host in hosts]

    assert hosts == keys
    assert len(hosts) > len(vars(identity)["_known"])
