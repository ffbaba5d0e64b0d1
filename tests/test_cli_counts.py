"""``throttled-views peek`` and ``reset``: where a client stands, and that it is new."""

import asyncio
import json
import sys
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

import pytest
from fastapi import FastAPI, WebSocket
from typer.testing import CliRunner

from tests import apps_cli
from tests.asgi import CLIENT, Relay, answers, frozen_store, http_scope, sent
from throttled_views import Charge, Limit, Quota, RateLimitMiddleware, client_ip
from throttled_views.cli._app import app
from throttled_views.cli._handlers import counted_for

HERE = "tests.apps_cli"
APP = (f"{HERE}:create_app", "--factory")


@pytest.fixture(name="store", autouse=True)
def store_fixture(monkeypatch: pytest.MonkeyPatch) -> Relay:
    """Give the store of the application: no time passes in it."""
    store = Relay(frozen_store())
    monkeypatch.setitem(apps_cli.stores, "relay", store)
    monkeypatch.setattr(sys, "path", [*sys.path])
    return store


def request(
    *requests: str, client: str = CLIENT, headers: Mapping[str, str] | None = None
) -> None:
    """Let the application serve *requests*."""
    served = apps_cli.create_app()
    asyncio.run(answers(served, *requests, client=client, headers=headers))


def printed(command: str, *words: str) -> str:
    """Run a command that goes well; return what it prints."""
    result = CliRunner().invoke(app, [command, *APP, *words])
    assert 0 == result.exit_code, result.output
    return result.stdout


def peeked(*words: str) -> dict[str, dict[str, Any]]:
    """Return what ``peek`` tells of each limit."""
    found = json.loads(printed("peek", *words, "--json"))
    return {each["name"]: each for each in found}


def left(*words: str) -> dict[str, int]:
    """Return what each limit has left."""
    return {name: each["remaining"] for name, each in peeked(*words).items()}


def mistake(*words: str) -> str:
    """Run a command that goes wrong; return what it says, as one line."""
    result = CliRunner().invoke(app, words)
    assert 2 == result.exit_code, result.output
    return " ".join(result.output.split())


# --- who is meant ---------------------------------------------------------------------


def test_a_client_is_its_address() -> None:
    """As the principal, or said to be one; others have other counts."""
    request("GET /v1/items", "GET /v1/items")

    assert {"reads": 3} == left("Items.get", CLIENT)
    assert {"reads": 3} == left("Items.get", "--address", CLIENT)
    assert {"reads": 5} == left("Items.get", "192.0.2.99")


def test_an_address_counts_by_its_network() -> None:
    """It is for the key function to say what a client is, here too."""
    request("GET /v1/items", client="2001:db8::1")

    assert {"reads": 4} == left("Items.get", "2001:db8::2")
    assert {"reads": 4} == left("Items.get", "2001:db8::/64")
    assert {"reads": 5} == left("Items.get", "2001:db8:0:1::1")


def test_a_client_is_what_it_sends() -> None:
    """A header is digested as in a request; a limit of no header does not apply."""
    request("POST /v1/items", headers={"X-API-Key": "k-alice"})
    request("POST /v1/items")

    assert {"writes": 2, "all": 98} == left("Items.post", "-H", "X-API-Key: k-alice")
    assert {"writes": 3, "all": 98} == left("Items.post", "-H", "x-api-key: k-bob")
    assert {"all": 98} == left("Items.post")


def test_a_field_may_have_what_servers_let_through() -> None:
    """Letters of Latin-1, for example, as they are in a request."""
    scope = http_scope("/v1/items", "POST")
    scope["headers"].append((b"x-api-key", "café".encode("latin-1")))
    asyncio.run(sent(apps_cli.create_app(), scope, {"type": "http.request"}))

    assert {"writes": 2, "all": 99} == left("Items.post", "-H", "X-API-Key: café")


@pytest.mark.parametrize("tenant", ["Жук", "a/b", "a\nb", "\udcff", " ", "%2F"])
def test_a_parameter_of_a_path_may_be_any_text(tenant: str) -> None:
    """As in a URL, where all of it can be encoded."""
    assert {"1": 9} == left("Items.of_tenant", "--path", f"tenant={tenant}")


def test_a_client_is_named_in_the_path() -> None:
    """By the parameter of the route."""
    request("GET /v1/items/of/acme")

    assert {"1": 8} == left("Items.of_tenant", "--path", "tenant=acme")
    assert {"1": 9} == left("Items.of_tenant", "--path", "tenant=other")


def test_a_client_is_what_a_key_function_returns() -> None:
    """Where that needs a request, a person says what it returns."""
    request("GET /v1/items/mine", headers={"User": "alice"})

    assert {"1": 8} == left("Items.mine", "user alice", "--limit", "1")


def test_a_client_of_a_socket_can_be_asked_for() -> None:
    """A handshake is no request of HTTP."""
    assert {"reads": 5} == left("Items.socket", "--address", CLIENT)


def test_all_clients_have_one_key_where_everyone_is_counted(store: Relay) -> None:
    """Whoever is named: others would have a key that no request has."""
    request("POST /v1/items")

    for client in (CLIENT, "alice"):
        assert {"all": 99} == left("Items.post", client, "--limit", "all")


def test_a_principal_may_be_told_as_a_function_gives_it(store: Relay) -> None:
    """A digest, a parameter, or an answer that is marked by its function."""
    request("PUT /v1/items", headers={"X-API-Key": "k-alice"})
    request("GET /v1/items/of/acme", "GET /v1/items/chosen?name=bob")
    digest = unquote(store.keys[1].partition("{")[2].partition("}")[0])

    assert {"1": 8} == left("Items.put", digest)
    assert {"1": 8} == left("Items.of_tenant", "path tenant acme")
    assert {"1": 8} == left("Items.chosen", "1 bob")
    assert {"1": 9} == left("Items.chosen", "everyone")
    assert {"reads": 5} == left("Items.get", "unknown")


@pytest.mark.parametrize("command", ["peek", "reset"])
def test_limits_whose_client_is_not_known_are_left_out(command: str) -> None:
    """It is said which option names their client, and nothing fails."""
    words = [command, *APP, "Items.post", CLIENT, "--json"]
    result = CliRunner().invoke(app, words)

    assert 0 == result.exit_code
    assert ["all"] == [each["name"] for each in json.loads(result.stdout)]
    assert result.stderr.startswith("Left out: Limit 'writes' names clients by")
    assert result.stderr.endswith("Write -H 'x-api-key: …'\n")


UNKNOWN = {
    "nobody": (
        ("Items.get",),
        (
            "Limit 'reads': Whose count it is depends on the address of the client. "
            "Write --address 203.0.113.7"
        ),
    ),
    "nobody, where a field is missing": (("Items.put",), "Write --address"),
    "what FastAPI solves": (
        ("Items.mine", "--address", CLIENT, "--limit", "1"),
        (
            "names clients by by_user, which FastAPI has to solve in a request. "
            "Give what it returns as PRINCIPAL"
        ),
    ),
    "what fails": (
        ("Items.named", "--address", CLIENT),
        (
            "names clients by by_query, which fails with what is known of this one: "
            "KeyError('name')"
        ),
    ),
    "whom no limit is about": (
        ("Items.post", "--limit", "writes"),
        "No limit of 'Items.post' applies to such a client",
    ),
    "an empty name": (("Items.mine", "", "--limit", "1"), "a non-empty str"),
    "a text where addresses are clients": (
        ("Items.get", "alice"),
        "for which 'alice' is no client. Write --address 203.0.113.7",
    ),
    "another network": (("Items.get", "2001:db8::/48"), "is no client"),
    "a value of a field": (
        ("Items.post", "k-alice", "--limit", "writes"),
        "for which 'k-alice' is no client. Write -H 'x-api-key: …'",
    ),
    "what is no digest": (
        ("Items.post", "header x-api-key k", "--limit", "writes"),
        "Write -H",
    ),
    "a field or an address": (
        ("Items.put", "k-alice"),
        "Write -H 'x-api-key: …' or --address 203.0.113.7",
    ),
    "a value of a parameter": (("Items.of_tenant", "acme"), "Write --path tenant=…"),
    "no parameter": (
        ("Items.of_tenant", "--address", CLIENT),
        "names clients by path_key('tenant'). Write --path tenant=…",
    ),
    "a text that functions would mark": (
        ("Items.chosen", "alice"),
        "for which 'alice' is no client. Give what it returns",
    ),
    "two ways": (("Items.get", "a", "--address", "b"), "Give one"),
    "a field without a value": (
        ("Items.get", "-H", "X-API-Key"),
        "Write 'X-API-Key: secret'",
    ),
    "a field of other letters": (
        ("Items.post", "-H", "X-API-Key: \u0416\u0443\u043a"),
        "X-API-Key cannot be '\u0416\u0443\u043a': a field has characters of Latin-1",
    ),
    "a field that is no text": (
        ("Items.post", "-H", "X-API-Key: \udcff"),
        "X-API-Key cannot be '\\udcff'",
    ),
    "a field of two lines": (
        ("Items.post", "-H", "X-API-Key: a\nB: b"),
        "X-API-Key cannot be 'a\\nB: b'",
    ),
    "a field with a zero": (
        ("Items.post", "-H", "X-API-Key: a\0"),
        "X-API-Key cannot be 'a\\x00'",
    ),
    "a name of other letters": (
        ("Items.post", "-H", "\u041a\u043b\u044e\u0447: a"),
        "'\u041a\u043b\u044e\u0447' is no field name. Write 'X-API-Key: secret'",
    ),
    "a name of two words": (
        ("Items.post", "-H", "X API: a"),
        "'X API' is no field name",
    ),
    "no address": (
        ("Items.get", "--address", "nonsense"),
        "'nonsense' is no address. Write --address 203.0.113.7",
    ),
    "an empty address": (("Items.get", "--address", ""), "'' is no address"),
    "a parameter without a name": (
        ("Items.get", "--path", "=acme"),
        "Write 'tenant_id=acme'",
    ),
}


@pytest.mark.parametrize(("words", "told"), UNKNOWN.values(), ids=UNKNOWN)
@pytest.mark.parametrize("command", ["peek", "reset"])
def test_a_client_that_is_not_known_is_asked_for(
    command: str, words: tuple[str, ...], told: str
) -> None:
    """None is guessed."""
    assert told in mistake(command, *APP, *words)


# --- which limits are meant -----------------------------------------------------------


@pytest.mark.parametrize("handler", ["Items.get", f"{HERE}.Items.get", "GET /v1/items"])
def test_a_handler_is_called_in_several_ways(handler: str) -> None:
    """By its class and name, with its module, or by its method and path."""
    assert {"reads": 5} == left(handler, CLIENT)


def test_a_path_that_one_handler_serves_names_it() -> None:
    """Without a method."""
    assert {"1": 9} == left("/v1/items/of/{tenant}", "--path", "tenant=acme")


def test_one_limit_may_be_meant() -> None:
    """By its name."""
    assert {"all": 100} == left("Items.post", "--limit", "all")


def test_what_a_dependency_limits_is_found() -> None:
    """Under the name that it has in results."""
    request("GET /search")

    assert {"dependency 7/m": 6} == left("search", CLIENT)


def test_what_a_middleware_limits_has_a_name_of_its_own() -> None:
    """It is no handler's."""
    request("GET /search", "GET /v1/items")

    assert {"app 1000/m": 998} == left("APP", CLIENT)


def test_what_is_asked_for_the_application_is_asked_for_no_route_of_it() -> None:
    """A key function may let one through, or not know what to do with a socket."""
    served = FastAPI()
    limit = Limit("9/m", key_func=client_ip)
    served.add_middleware(RateLimitMiddleware, throttle=limit)
    served.get("/health")(lambda: "up")

    @served.websocket("/socket")
    async def socket(websocket: WebSocket) -> None:
        """Be a socket."""

    [counted] = counted_for(served, "APP", None)

    assert ("/", ("GET",)) == (counted.found.path, counted.found.methods)


def test_a_template_has_counts_of_its_own() -> None:
    """A handler that is included twice is told with both, and a path is one."""
    request("GET /a/notes")

    assert [4, 5] == [
        each["remaining"]
        for each in json.loads(printed("peek", "Notes.get", CLIENT, "--json"))
    ]
    assert {"1": 4} == left("GET /a/notes", CLIENT)
    assert {"1": 5} == left("GET /b/notes", CLIENT)


def test_a_dynamic_quota_has_to_be_said() -> None:
    """A function chooses it for each request, and there is none."""
    request("PATCH /v1/items")

    assert (
        "The quota of limit 'plan' is dynamic: quota_of_plan chooses it for each "
        "request. Give the one to look by: --quota 100/m"
    ) in mistake("peek", *APP, "Items.patch", CLIENT)
    assert {"plan": 3} == left("Items.patch", CLIENT, "--quota", "5/m")


COSTS = {
    "what it has left": (("--cost", "3"), 0.0, False),
    "more": (("--cost", "4"), 12.0, True),
    "nothing": (("--cost", "0"), 0.0, False),
    "more than there ever is": (("--cost", "6"), None, True),
}


@pytest.mark.parametrize(("words", "after", "limited"), COSTS.values(), ids=COSTS)
def test_a_request_may_be_of_any_cost(
    words: tuple[str, ...], after: float | None, *, limited: bool
) -> None:
    """Where a function tells it for each request."""
    request("PATCH /v1/items")
    found = peeked("Items.patch", CLIENT, "--quota", "5/m", *words)["plan"]

    assert (3, after, limited) == (
        found["remaining"],
        found["retry_after"],
        found["limited"],
    )


def test_a_cost_that_a_limit_has_is_no_question() -> None:
    """It would not be what a request costs."""
    said = mistake("peek", *APP, "Items.get", CLIENT, "--cost", "3")

    assert "costs what its limits say, and not 3. Leave --cost out" in said


WRONG = {
    "a path": (
        ("GET /v1/items/of/acme",),
        (
            "'GET /v1/items/of/acme' is one of many paths, which count together. Write "
            "the template, 'GET /v1/items/of/{tenant}'"
        ),
    ),
    "a path without a method": (
        ("/v1/items/of/acme",),
        "Write the template, '/v1/items/of/{tenant}'",
    ),
    "a path of another method": (("PUT /v1/items/of/acme",), "No route is called"),
    "no handler": (("Items.gte", CLIENT), "No route is called 'Items.gte'"),
    "two handlers": (
        ("get", CLIENT),
        f"'get' may be any of {HERE}.Items.get, {HERE}.Notes.get. Write one of them",
    ),
    "no limits": (("Items.free", CLIENT), "'Items.free' has no limits"),
    "another limit": (
        ("Items.post", CLIENT, "--limit", "reads"),
        "has no limit 'reads'. Write one of 'writes', 'all'",
    ),
}


@pytest.mark.parametrize(("words", "told"), WRONG.values(), ids=WRONG)
def test_what_is_not_there_is_told(words: tuple[str, ...], told: str) -> None:
    """With what there is."""
    assert told in mistake("peek", *APP, *words)


@pytest.mark.parametrize("command", ["peek", "reset"])
def test_the_memory_of_another_process_cannot_be_seen(command: str) -> None:
    """It is no answer that nothing is in ours."""
    said = mistake(command, f"{HERE}:in_memory", "--factory", "Items.get", CLIENT)

    assert "counts in the memory of the process that serves" in said


def test_redis_needs_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    """One line says what to install."""
    monkeypatch.delitem(sys.modules, "throttled_views.stores.redis", raising=False)
    monkeypatch.setitem(sys.modules, "redis.asyncio", None)

    said = mistake("peek", *APP, "Items.get", CLIENT, "--redis", "redis://localhost")

    assert "pip install 'throttled_views[redis]'" in said


# --- what is told ---------------------------------------------------------------------


def test_a_peek_tells_all_that_is_to_be_known(store: Relay) -> None:
    """The quota, the key as the store has it, and where that stands."""
    request(*["GET /v1/items"] * 6)

    assert {
        "reads": {
            "name": "reads",
            "quota": "5/m",
            "key": store.keys[-1],
            "limited": True,
            "limit": 5,
            "remaining": 0,
            "reset_after": 60.0,
            "retry_after": 12.0,
            "delay": 0.0,
        }
    } == peeked("Items.get", CLIENT)


NEXT = {
    "a fresh key": (0, ("Items.get",), "5/m 5 of 5 0s now"),
    "one that has some left": (2, ("Items.get",), "5/m 3 of 5 24s now"),
    "a spent one": (5, ("Items.get",), "5/m 0 of 5 1m in 12s"),
    "a quota of nothing": (0, ("Items.patch", "--quota", "0/m"), "0/m 0 of 0 0s never"),
}


@pytest.mark.parametrize(("spent", "words", "told"), NEXT.values(), ids=NEXT)
def test_people_are_told_when_the_next_request_passes(
    spent: int, words: tuple[str, ...], told: str
) -> None:
    """Now, in a while, or never."""
    request(*["GET /v1/items"] * spent)

    assert told in " ".join(printed("peek", *words, CLIENT).split())


def test_people_are_told_what_the_next_request_waits(store: Relay) -> None:
    """Where it would be admitted, and have its turn later."""
    words = "Items.delete", CLIENT
    key = peeked(*words)["turns"]["key"]
    charge = Charge(key, Quota.per_minute(1), cost=1, max_delay=300.0)
    asyncio.run(store.acquire([charge]))

    assert "1/m 0 of 1 1m waits 1m" in " ".join(printed("peek", *words).split())
    assert 60.0 == peeked(*words)["turns"]["delay"]


def test_a_peek_charges_nothing() -> None:
    """However often it is asked."""
    assert [{"reads": 5}] * 3 == [left("Items.get", CLIENT) for _ in range(3)]


def test_a_reset_makes_a_client_new(store: Relay) -> None:
    """It says which keys it reset, and others keep what they spent."""
    request("POST /v1/items", headers={"X-API-Key": "k-alice"})
    request("POST /v1/items", headers={"X-API-Key": "k-bob"})
    alice = "Items.post", "-H", "X-API-Key: k-alice"

    said = printed("reset", *alice, "--limit", "writes")

    key, _ = [each for each in store.keys if "writes" in each]
    assert f"Reset limit 'writes': {key}\n" == said
    assert {"writes": 3, "all": 98} == left(*alice)
    assert {"writes": 2, "all": 98} == left("Items.post", "-H", "X-API-Key: k-bob")


def test_a_reset_is_told_to_programs(store: Relay) -> None:
    """As JSON."""
    request("GET /v1/items")

    assert [
        {"name": "reads", "key": store.keys[-1], "was_counted": True}
    ] == json.loads(printed("reset", "Items.get", CLIENT, "--json"))


def test_a_reset_of_nothing_says_so() -> None:
    """Somebody else may be meant."""
    said = printed("reset", "Items.get", CLIENT)

    assert said.startswith("Nothing was counted for limit 'reads': ")


def test_a_reset_needs_no_quota() -> None:
    """A key is forgotten whatever it is held to, and if nothing was counted."""
    request("PATCH /v1/items")
    assert printed("reset", "Items.patch", CLIENT).startswith("Reset limit 'plan'")

    assert {"plan": 5} == left("Items.patch", CLIENT, "--quota", "5/m")


def test_a_reset_needs_no_quota_that_would_admit_a_request() -> None:
    """Whatever a request costs."""
    assert printed("reset", "Items.dear", CLIENT).startswith("Reset limit '1': ")
