"""Scenarios from public bug reports, by number: who the client is."""

import logging
from collections.abc import Sequence

import httpx
import pytest
from fastapi import FastAPI, Request, WebSocket

from tests.asgi import Relay, app_of, frozen, handshake
from throttled_views import (
    ClientIP,
    KeyFunc,
    Limiter,
    ThrottledRouter,
    ViewDefinitionError,
    client_ip,
    first_of,
    header_key,
    path_key,
)

PROXY = "10.0.0.1"
CLIENT = "203.0.113.9"


async def hello() -> str:
    """Be a handler."""
    return "hello"


def app_with(key_func: KeyFunc, quota: str = "5/m", path: str = "/") -> FastAPI:
    """Return an application with one route, and clients that *key_func* names."""
    router = ThrottledRouter(frozen(quota, key_func))
    router.add_api_route(path, hello)
    return app_of(router)


async def course(
    app: FastAPI, *sent: Sequence[tuple[str, str]], peer: str = PROXY, path: str = "/"
) -> str:
    """Send a request with each of the headers *sent*; return A or D for each."""
    transport = httpx.ASGITransport(app=app, client=(peer, 50_000))
    async with httpx.AsyncClient(
        transport=transport, base_url="http://example.test"
    ) as client:
        codes = [
            (await client.get(path, headers=[*headers])).status_code for headers in sent
        ]
    return "".join({200: "A", 429: "D"}.get(code, f"<{code}>") for code in codes)


def forwarded_for(*lines: str) -> list[tuple[str, str]]:
    """Return headers of a proxy."""
    return [("X-Forwarded-For", line) for line in lines]


async def test_case_37_what_the_client_wrote_is_not_believed() -> None:
    """Twenty names of its own do not give a client a second quota."""
    app = app_with(ClientIP(trusted_proxies=["10.0.0.0/8"]))
    sent = [forwarded_for(f"6.6.6.{number}, {CLIENT}") for number in range(1, 21)]

    assert "A" * 5 + "D" * 15 == await course(app, *sent)


@pytest.mark.parametrize(
    "lines",
    [
        pytest.param(["6.6.6.6", CLIENT], id="two lines"),
        pytest.param([f"6.6.6.6, {CLIENT}:4711"], id="port"),
        pytest.param([f"6.6.6.6, ::ffff:{CLIENT}"], id="mapped"),
        pytest.param([f"[2001:db8::1]:80, [::ffff:{CLIENT}]:80"], id="brackets"),
        pytest.param([f"6.6.6.6, {CLIENT}, 10.0.0.2"], id="another proxy"),
        pytest.param([f"garbage, {CLIENT}"], id="garbage before it"),
    ],
)
async def test_case_37_one_client_in_all_spellings(lines: list[str]) -> None:
    """However proxies write it, it is the client that was charged before."""
    app = app_with(ClientIP(trusted_proxies=["10.0.0.0/8"]), "1/m")

    assert "AD" == await course(app, forwarded_for(CLIENT), forwarded_for(*lines))


@pytest.mark.parametrize("entry", ["", "garbage", "unknown", "_hidden", "10.0.0"])
async def test_case_37_garbage_is_the_proxy_that_wrote_it(entry: str) -> None:
    """It is no error, and no key for the garbage of everybody."""
    app = app_with(ClientIP(trusted_proxies=["10.0.0.0/8"]), "1/m")
    sent = forwarded_for(f"{CLIENT}, {entry}")

    assert "AD" == await course(app, sent, sent)
    assert "A" == await course(app, forwarded_for(CLIENT))


async def test_case_38_behind_an_unknown_proxy_all_are_one(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Nobody is believed, and one warning says why all are one client."""
    app = app_with(ClientIP())
    sent = [forwarded_for("203.0.113.1")] * 5 + [forwarded_for("203.0.113.2")] * 2

    assert "AAAAADD" == await course(app, *sent)
    [warning] = [
        record.getMessage()
        for record in caplog.records
        if record.levelno == logging.WARNING
    ]
    assert "write ClientIP(trusted_proxies=[…]" in warning


async def test_case_38_behind_a_known_proxy_clients_are_told_apart() -> None:
    """One user does not lock out all."""
    app = app_with(ClientIP(trusted_proxies=[PROXY]))
    sent = [forwarded_for("203.0.113.1")] * 6 + [forwarded_for("203.0.113.2")]

    assert "AAAAADA" == await course(app, *sent)


async def test_case_38_users_behind_one_address_are_told_apart() -> None:
    """Where users are named, an address that many share does not matter."""
    app = app_with(header_key("X-User"), "1/m")
    sent = [[("X-User", name)] for name in ("alice", "bob", "alice")]

    assert "AAD" == await course(app, *sent)


async def test_case_40_the_whole_value_of_a_header_counts() -> None:
    """Fifty keys that begin alike are fifty clients."""
    app = app_with(header_key("X-API-Key"), "1/m")
    sent = [[("X-API-Key", "k" * 40 + str(number))] for number in range(50)]

    assert "A" * 50 + "D" * 50 == await course(app, *sent, *sent)


async def test_case_40_a_secret_is_in_no_key() -> None:
    """What a store holds and what logs may show does not tell it."""
    store = Relay()
    router = ThrottledRouter(Limiter("5/m", store=store, key_func=header_key("X-Key")))
    router.add_api_route("/", hello)
    await course(app_of(router), [("X-Key", "secret")])

    [key] = store.keys
    assert "secret" not in key
    assert "header%20x-key%20" in key


def by_user(request: Request) -> str | None:
    """Name a user, if there is one."""
    return request.headers.get("X-User")


@pytest.mark.parametrize(
    "key_func",
    [
        pytest.param(first_of(by_user, client_ip), id="function"),
        pytest.param(header_key("X-User"), id="header"),
    ],
)
async def test_case_41a_a_user_is_not_an_address(key_func: KeyFunc) -> None:
    """Whoever is called like an address is not whoever comes from there."""
    app = app_with(key_func, "1/m")
    sent = [[("X-User", PROXY)], []]

    assert "AADD" == await course(app, *sent, *sent)


async def test_case_44_a_parameter_of_the_path_counts_where_it_is_asked_to() -> None:
    """Each tenant has a quota of its own, and a text like an address is one of them."""
    app = app_with(path_key("tenant"), "1/m", "/{tenant}/items")

    assert "AD" == await course(app, [], [], path="/acme/items")
    assert "AD" == await course(app, [], [], path=f"/{PROXY}/items")


def socket_with(key_func: KeyFunc) -> FastAPI:
    """Return an application with a socket."""
    router = ThrottledRouter(frozen("1/m", key_func))

    @router.websocket("/{tenant}")
    async def echo(websocket: WebSocket) -> None:
        await websocket.accept()
        await websocket.close()

    return app_of(router)


@pytest.mark.parametrize(
    "key_func",
    [header_key("X-User"), path_key("tenant"), first_of(path_key("x"), client_ip)],
    ids=["header", "path", "first of"],
)
async def test_sockets_have_clients_too(key_func: KeyFunc) -> None:
    """A handshake is a request like any other to the functions of ours."""
    app = socket_with(key_func)

    assert ["websocket.accept", "websocket.close"] == [
        (await handshake(app, "/acme"))[0]["type"] for _ in range(2)
    ]


def test_a_socket_has_no_request_to_give() -> None:
    """A function that wants one is found, however deep it is among others."""
    with pytest.raises(ViewDefinitionError, match="WebSocket has no Request"):
        socket_with(first_of(by_user, client_ip))
