"""Keys from headers and paths, and the first of several."""

import inspect
from collections.abc import Mapping
from typing import Any

import pytest
from fastapi import Request
from hypothesis import given
from hypothesis import strategies as st
from starlette.requests import HTTPConnection
from starlette.types import Scope

from tests.asgi import http_scope
from tests.coroutines import at_once
from throttled_views import (
    ClientIP,
    ConfigurationError,
    InvalidKeyError,
    KeyFunc,
    client_ip,
    everyone,
    first_of,
    header_key,
    path_key,
)
from throttled_views._early import early_reader_of
from throttled_views._kinds import scope_reader_of
from throttled_views._principals import encoded_principal

CLIENT = "192.0.2.1"
BEHIND_A_PROXY = ClientIP(trusted_proxies=["192.0.2.0/24"])


def scope_with(
    *headers: tuple[str, str], path_params: Mapping[str, object] | None = None
) -> Scope:
    """Return the scope of a request with *headers*, on a route with parameters."""
    raw = [(name.encode(), value.encode("latin-1")) for name, value in headers]
    return {**http_scope(), "headers": raw, "path_params": path_params or {}}


def principal(key_func: KeyFunc, scope: Scope) -> str | None:
    """Return what a key function answers, however it is asked."""

    async def answer() -> str | None:
        read = early_reader_of(key_func)
        assert read is not None
        answered: Any = read(scope)
        if inspect.isawaitable(answered):
            answered = await answered
        told: str | None = answered
        return told

    found = at_once(answer())
    read = scope_reader_of(key_func)

    assert read is None or encoded_principal(found or "") == read(scope)
    return found


# --- headers --------------------------------------------------------------------------

KEY_DIGEST = "8f64bfc250ac98ecf5a0f6a52cde7ec5"


def test_a_header_is_digested() -> None:
    """The key tells the field and 128 bits of its value, the same in every process."""
    found = principal(header_key("X-API-Key"), scope_with(("x-api-key", "secret")))

    assert f"header x-api-key {KEY_DIGEST}" == found


@given(st.text(st.characters(max_codepoint=255), min_size=1))
def test_a_value_is_in_no_key(value: str) -> None:
    """However short it is, a secret is nowhere to be read."""
    found = principal(header_key("X-API-Key"), scope_with(("x-api-key", value + "!!")))

    assert found is not None
    assert "!!" not in found
    assert 33 + len("header x-api-key") == len(found)


def test_the_whole_value_counts() -> None:
    """Keys that begin alike are those of different clients."""
    by_key = header_key("X-API-Key")
    values = ["live_" + "a" * 40 + str(number) for number in range(50)]

    assert 50 == len(
        {principal(by_key, scope_with(("x-api-key", each))) for each in values}
    )


@pytest.mark.parametrize(
    "headers",
    [
        pytest.param([("x-api-key", " secret\t")], id="spaces"),
        pytest.param([("x-api-key", "secret"), ("x-api-key", "x")], id="another line"),
        pytest.param([("x-other", "x"), ("x-api-key", "secret")], id="another field"),
    ],
)
@pytest.mark.parametrize("name", ["X-API-Key", "x-api-key", "X-API-KEY"])
def test_one_value_is_one_client(name: str, headers: list[tuple[str, str]]) -> None:
    """It is what the application reads as the value, however the field is written."""
    found = principal(header_key(name), scope_with(*headers))

    assert f"header x-api-key {KEY_DIGEST}" == found


def by_tenant(request: Request) -> str | None:
    """Name a tenant, if there is one."""
    return request.headers.get("x-tenant")


@pytest.mark.parametrize("headers", [[], [("x-api-key", "")], [("x-api-key", " ")]])
@pytest.mark.parametrize(
    ("key_func", "expected"),
    [
        pytest.param(header_key("X-API-Key"), CLIENT, id="address"),
        pytest.param(header_key("X-API-Key", otherwise=None), None, id="no limit"),
        pytest.param(
            header_key("X-API-Key", otherwise=BEHIND_A_PROXY), "203.0.113.9", id="proxy"
        ),
        pytest.param(
            header_key("X-API-Key", otherwise=everyone), "everyone", id="everyone"
        ),
        pytest.param(
            header_key("X-API-Key", otherwise=by_tenant), "2 acme", id="function"
        ),
    ],
)
def test_without_a_value_another_function_is_asked(
    key_func: KeyFunc, expected: str | None, headers: list[tuple[str, str]]
) -> None:
    """It is the address, unless another was given; None has to be written."""
    others = [("x-forwarded-for", "203.0.113.9"), ("x-tenant", "acme")]

    assert expected == principal(key_func, scope_with(*headers, *others))


@pytest.mark.parametrize("name", ["", "X API Key", "X-API-Key:", "é", None, 5, b"X"])
def test_a_name_that_no_field_has_is_refused(name: object) -> None:
    """It fails where it is written."""
    unchecked: Any = header_key

    with pytest.raises(ConfigurationError, match="is no field name"):
        unchecked(name)


# --- paths ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("acme", "path tenant_id acme"),
        ("", "path tenant_id "),
        (7, "path tenant_id 7"),
        (CLIENT, f"path tenant_id {CLIENT}"),
    ],
)
def test_a_parameter_of_the_path_is_a_client(value: object, expected: str) -> None:
    """The key tells the parameter and its value, as the route read it."""
    scope = scope_with(path_params={"tenant_id": value, "other": "x"})

    assert expected == principal(path_key("tenant_id"), scope)


@given(st.text(min_size=1))
def test_a_long_parameter_is_digested(value: str) -> None:
    """No client decides how long a key becomes."""
    scope = scope_with(path_params={"tenant_id": value * 100})
    found = principal(path_key("tenant_id"), scope)

    assert 33 == len(encoded_principal(found or ""))


def test_a_route_without_the_parameter_is_an_error() -> None:
    """It is no reason not to limit, and the message says what to write."""
    with pytest.raises(
        ConfigurationError,
        match=r"Write '\{tenant\}' into its path; .*=first_of\(path_key\('tenant'\), c",
    ):
        principal(path_key("tenant"), scope_with(path_params={"tenant_id": "acme"}))


def test_the_error_comes_on_the_quick_way_too() -> None:
    """However the key is read, no route goes without a limit unseen."""
    read = scope_reader_of(path_key("tenant"))

    assert read is not None
    with pytest.raises(ConfigurationError, match="route without such a parameter"):
        read(http_scope())


@pytest.mark.parametrize("name", ["", "{tenant_id}", "tenant id", "7", None, 7])
def test_a_name_that_no_parameter_has_is_refused(name: object) -> None:
    """It fails where it is written."""
    unchecked: Any = path_key

    with pytest.raises(ConfigurationError, match=r"Write path_key\('tenant_id'\)"):
        unchecked(name)


# --- the first of several -------------------------------------------------------------


async def by_session(connection: HTTPConnection) -> str | None:
    """Name a session, if there is one, and be waited for."""
    return connection.headers.get("x-session")


ALL = first_of(
    header_key("X-API-Key"), path_key("tenant"), by_tenant, by_session, client_ip
)


@pytest.mark.parametrize(
    ("headers", "path_params", "expected"),
    [
        pytest.param(
            [("x-session", "s"), ("x-tenant", "t"), ("x-api-key", "secret")],
            {"tenant": "p"},
            f"header x-api-key {KEY_DIGEST}",
            id="all",
        ),
        pytest.param(
            [("x-session", "s"), ("x-tenant", "t")],
            {"tenant": "p"},
            "path tenant p",
            id="all but the first",
        ),
        pytest.param([("x-session", "s"), ("x-tenant", "t")], {}, "3 t", id="two"),
        pytest.param([("x-session", "s")], {}, "4 s", id="one"),
        pytest.param([], {}, CLIENT, id="none"),
    ],
)
def test_the_first_answer_counts(
    headers: list[tuple[str, str]], path_params: dict[str, object], expected: str
) -> None:
    """Functions are asked in order, and each answer tells of what kind it is."""
    assert expected == principal(ALL, scope_with(*headers, path_params=path_params))


def test_a_function_after_the_answer_is_not_asked() -> None:
    """What is not needed costs nothing, and cannot fail."""

    def never(_request: Request) -> str:
        raise AssertionError

    key_func = first_of(header_key("X-API-Key", otherwise=None), never)

    assert principal(key_func, scope_with(("x-api-key", "secret")))


def test_no_answer_is_none() -> None:
    """If nobody answers, the limit does not apply: the last one said so."""
    assert principal(first_of(by_session, by_tenant), scope_with()) is None
    assert principal(first_of(by_session), scope_with()) is None


def test_the_last_one_is_asked_as_if_it_were_alone() -> None:
    """A path without its parameter is an error there, too."""
    with pytest.raises(ConfigurationError, match="route without such a parameter"):
        principal(first_of(by_session, path_key("tenant")), scope_with())


def test_kinds_do_not_meet() -> None:
    """Nobody can name the client of another kind, whatever they write."""
    key_func = first_of(
        header_key("X-API-Key"), path_key("tenant"), by_tenant, by_session, client_ip
    )
    found = [
        principal(key_func, scope_with(*headers, path_params=path_params))
        for headers, path_params in (
            ([("x-api-key", CLIENT)], {}),
            ([], {"tenant": CLIENT}),
            ([("x-tenant", CLIENT)], {}),
            ([("x-session", CLIENT)], {}),
            ([], {}),
        )
    ]

    assert 5 == len(set(found))


def test_an_empty_answer_is_an_error() -> None:
    """It is not one big client, and the message names the function."""
    with pytest.raises(InvalidKeyError, match="The key function by_tenant gave ''"):
        principal(first_of(by_tenant, client_ip), scope_with(("x-tenant", "")))


@pytest.mark.parametrize(
    ("key_func", "text"),
    [
        pytest.param(
            first_of(header_key("A"), client_ip),
            "first_of(header_key('a', otherwise=None), ClientIP(ipv6_prefix=64))",
            id="header, then the address",
        ),
        pytest.param(
            first_of(header_key("A"), header_key("B"), BEHIND_A_PROXY),
            "first_of(header_key('a', otherwise=None), header_key('b', otherwise=None),"
            f" {BEHIND_A_PROXY!r})",
            id="another address",
        ),
        pytest.param(
            first_of(by_tenant, header_key("A", otherwise=by_session)),
            "first_of(by_tenant, header_key('a', otherwise=None), by_session)",
            id="header last",
        ),
        pytest.param(
            first_of(first_of(by_tenant, by_session), first_of(path_key("p"))),
            "first_of(by_tenant, by_session, path_key('p'))",
            id="nested",
        ),
    ],
)
def test_alternatives_are_one_list(key_func: KeyFunc, text: str) -> None:
    """What is nested is asked in its place; an early fallback gives way to the last."""
    assert text == repr(key_func)


@pytest.mark.parametrize(
    "key_funcs",
    [
        pytest.param((client_ip, by_tenant), id="address first"),
        pytest.param((client_ip, everyone), id="address before everyone"),
        pytest.param((header_key("A"), by_tenant), id="fallback before a function"),
        pytest.param((by_tenant, everyone, client_ip), id="everyone in the middle"),
    ],
)
def test_a_function_that_would_never_be_asked_is_refused(
    key_funcs: tuple[KeyFunc, ...],
) -> None:
    """After one that always answers there is nothing to ask."""
    with pytest.raises(ConfigurationError, match="always names a client"):
        first_of(*key_funcs)


class ByNetwork(ClientIP):
    """A function with another idea of the key."""

    def __call__(self, connection: HTTPConnection) -> str:
        """Return it."""
        return "network"


def test_a_subclass_is_a_function_of_the_user() -> None:
    """It may give any answer, so that it is told apart, and may stand anywhere."""
    assert "1 network" == principal(first_of(ByNetwork(), client_ip), scope_with())


def by_both(request: Request, tenant: str) -> str:
    """Take more than the connection."""
    return tenant


NO_MEMBERS: dict[str, object] = {
    "late": by_both,
    "text": "X-API-Key",
    "nothing": None,
    "class": ClientIP,
}


@pytest.mark.parametrize("function", NO_MEMBERS.values(), ids=NO_MEMBERS)
def test_what_cannot_be_asked_early_is_refused(function: object) -> None:
    """A function that takes more than the connection chooses by itself."""
    unchecked: Any = first_of

    with pytest.raises(ConfigurationError, match="functions of the connection alone"):
        unchecked(function, client_ip)


def test_nobody_to_ask_is_refused() -> None:
    """An empty list is a mistake."""
    with pytest.raises(ConfigurationError, match="asks nobody"):
        first_of()


# --- where they can be used -----------------------------------------------------------


@pytest.mark.parametrize(
    ("key_func", "is_read"),
    [
        pytest.param(header_key("A"), True, id="header, else the address"),
        pytest.param(header_key("A", otherwise=None), False, id="header, else none"),
        pytest.param(header_key("A", otherwise=by_tenant), False, id="else a function"),
        pytest.param(path_key("p"), True, id="path"),
        pytest.param(first_of(path_key("p"), everyone), True, id="path, else everyone"),
        pytest.param(
            first_of(path_key("p"), header_key("A", otherwise=None)),
            False,
            id="or none",
        ),
        pytest.param(ALL, False, id="with functions"),
    ],
)
def test_what_always_has_an_answer_is_read_from_the_scope(
    key_func: KeyFunc, *, is_read: bool
) -> None:
    """Such keys cost as little as the address does."""
    assert is_read == (scope_reader_of(key_func) is not None)
