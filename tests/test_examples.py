"""Each example runs and limits as it says."""

import re
import sys
from collections.abc import Mapping
from importlib import import_module
from importlib.util import find_spec
from types import SimpleNamespace

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from starlette.testclient import WebSocketDenialResponse

from examples import (
    api_keys,
    chat,
    constructor,
    controller,
    crud,
    functions,
    plans,
    proxy,
    quickstart,
    versions,
)
from tests.clients import client_of
from tests.documents import ROOT
from throttled_views import MemoryStore, audit

ALICE = {"X-API-Key": "k-alice"}
EMMA = {"isbn": "978-0-14-143958-7", "title": "Emma"}


async def statuses(
    app: FastAPI, path: str, count: int, headers: Mapping[str, str] | None = None
) -> list[int]:
    """Send *count* requests from one address and list how they are answered."""
    async with client_of(app) as client:
        return [
            (await client.get(path, headers=headers)).status_code for _ in range(count)
        ]


EXAMPLES = ROOT / "examples"
MODULES = sorted(path.stem for path in EXAMPLES.glob("*.py"))
# Those that run on the FastAPI at hand: it has to know streams of events for one.
SERVED = [each for each in MODULES if each != "stream" or find_spec("fastapi.sse")]
PACKAGES = sorted(f"{path.parent.name}.main" for path in EXAMPLES.glob("*/main.py"))


@pytest.mark.parametrize("name", [*SERVED, *PACKAGES])
def test_an_example_can_be_served(name: str) -> None:
    """It has an application, under the name that its docstring gives uvicorn."""
    module = import_module(f"examples.{name}")
    package = import_module(f"examples.{name.partition('.')[0]}")
    said = f"{package.__doc__}"

    assert isinstance(module.app, FastAPI)
    assert name == "quickstart" or f"uvicorn examples.{name}:app" in said


@pytest.mark.parametrize("name", [*SERVED, *PACKAGES])
def test_an_example_forgets_no_route(name: str) -> None:
    """Each is limited, or says that it is not, and no limit is misplaced."""
    routes = audit(import_module(f"examples.{name}").app)

    assert [] == [each.path for each in routes if each.is_unlimited or each.problem]


def test_the_index_lists_all_examples() -> None:
    """Each file, and each package, stands there once."""
    index = (EXAMPLES / "README.md").read_text("utf-8")
    listed = re.findall(r"^\| \[(\S+)\]\(\1\) \|", index, re.MULTILINE)

    files = [f"{name}.py" for name in MODULES]
    directories = [f"{each.parent.name}/" for each in EXAMPLES.glob("*/__init__.py")]

    assert sorted([*files, *directories]) == sorted(listed)


class TestQuickstart:
    """examples/quickstart.py."""

    async def test_admits_five_and_refuses_the_sixth(self) -> None:
        """Five requests in a row are greeted, the sixth is refused."""
        answers = await statuses(quickstart.app, "/hello", 6)

        assert [200] * 5 + [429] == answers

    async def test_counts_down(self) -> None:
        """Each greeting says how many are left."""
        async with client_of(quickstart.app) as client:
            answers = [await client.get("/hello") for _ in range(5)]

        assert ["4", "3", "2", "1", "0"] == [
            answer.headers["RateLimit-Remaining"] for answer in answers
        ]

    @pytest.mark.parametrize(
        ("argv", "port"),
        [([], 8000), (["--port", "8042"], 8042)],
        ids=["default", "given"],
    )
    def test_serves_on_the_loopback_address(
        self,
        argv: list[str],
        port: int,
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        """It serves on 127.0.0.1 at the given port and says what to try."""
        served: list[tuple[object, object]] = []

        def run(app: FastAPI, *, host: str, port: int) -> None:
            assert quickstart.app is app
            served.append((host, port))

        monkeypatch.setitem(sys.modules, "uvicorn", SimpleNamespace(run=run))
        quickstart.main(argv)

        assert [("127.0.0.1", port)] == served
        assert f"curl -i http://127.0.0.1:{port}/hello\n" in capsys.readouterr().out

    def test_says_how_to_install_what_it_needs(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Without uvicorn it ends with the command that installs it."""
        monkeypatch.setitem(sys.modules, "uvicorn", None)

        with pytest.raises(SystemExit, match=r'pip install -e "\.\[demo\]"'):
            quickstart.main([])


class TestFunctions:
    """examples/functions.py."""

    @pytest.mark.parametrize(("path", "quota"), [("/search?q=tea", 10), ("/report", 3)])
    async def test_each_route_has_its_own_quota(self, path: str, quota: int) -> None:
        """A route admits its quota and refuses the next request."""
        answers = await statuses(functions.app, path, quota + 1)

        assert [200] * quota + [429] == answers

    async def test_the_export_has_one_counter_for_all(self) -> None:
        """Two exports by different clients leave none for a third."""
        async with client_of(functions.app) as one, client_of(functions.app) as other:
            answers = [
                await one.get("/export"),
                await other.get("/export"),
                await one.get("/export"),
            ]

        assert [200, 200, 429] == [answer.status_code for answer in answers]
        assert "row 0\nrow 1\nrow 2\n" == answers[0].text
        assert ["1", "0", "0"] == [
            answer.headers["RateLimit-Remaining"] for answer in answers
        ]


class TestController:
    """examples/controller.py."""

    @pytest.fixture(autouse=True)
    def _empty_shelf(self) -> None:
        controller.SHELF.clear()

    async def test_a_book_can_be_stored_listed_and_found(self) -> None:
        """The handlers of the class are routes to one shelf."""
        async with client_of(controller.app) as client:
            await client.post("/books", json=EMMA)

            assert [EMMA] == (await client.get("/books")).json()
            assert EMMA == (await client.get(f"/books/{EMMA['isbn']}")).json()
            assert "1" == (await client.head("/books")).headers["X-Books"]

    async def test_a_missing_book_is_counted(self) -> None:
        """A 404 of the handler carries the headers of its quota."""
        async with client_of(controller.app) as client:
            answer = await client.get("/books/0")

        assert (404, "9") == (
            answer.status_code,
            answer.headers["RateLimit-Remaining"],
        )

    async def test_the_third_write_within_a_second_is_refused(self) -> None:
        """Writes have a limit of their own, and the headers describe it."""
        async with client_of(controller.app) as client:
            answers = [await client.post("/books", json=EMMA) for _ in range(3)]

        assert [200, 200, 429] == [answer.status_code for answer in answers]
        assert "2" == answers[-1].headers["RateLimit-Limit"]

    async def test_the_exempt_handler_is_never_refused(self) -> None:
        """It answers as often as it is asked, without fields."""
        async with client_of(controller.app) as client:
            answers = [await client.head("/books") for _ in range(100)]

        assert {200} == {answer.status_code for answer in answers}
        assert "RateLimit-Limit" not in answers[-1].headers


class TestApiKeys:
    """examples/api_keys.py."""

    async def test_a_customer_is_counted_by_name(self) -> None:
        """A known key has one counter at all addresses."""
        async with (
            client_of(api_keys.app) as one,
            client_of(api_keys.app) as other,
        ):
            first = await one.get("/account", headers=ALICE)
            second = await other.get("/account", headers=ALICE)

        assert [{"limit": 5, "remaining": 4}, {"limit": 5, "remaining": 3}] == [
            first.json(),
            second.json(),
        ]

    async def test_an_invented_key_is_counted_by_address(self) -> None:
        """Changing an unknown key does not give a fresh quota."""
        async with client_of(api_keys.app) as client:
            remaining = [
                (await client.get("/account", headers={"X-API-Key": key})).json()[
                    "remaining"
                ]
                for key in ("made", "up")
            ]

        assert [4, 3] == remaining


class TestPlans:
    """examples/plans.py."""

    @pytest.mark.parametrize(
        ("token", "admitted"), [("t-alice", 2), ("t-bob", 20)], ids=["free", "pro"]
    )
    async def test_a_plan_says_how_much(self, token: str, admitted: int) -> None:
        """A user is admitted as often as the plan says, and is told of the plan's."""
        headers = {"X-Token": token}
        expected = [200] * admitted + [429]

        assert expected == await statuses(plans.app, "/reports", admitted + 1, headers)

    async def test_guessing_tokens_is_limited_by_address(self) -> None:
        """After thirty wrong tokens nobody looks at the next one."""
        headers = {"X-Token": "guessed"}
        expected = [401] * 30 + [429]

        assert expected == await statuses(plans.app, "/reports", 31, headers)


class TestCrud:
    """examples/crud.py."""

    @pytest.fixture(autouse=True)
    def _empty_tables(self) -> None:
        crud.BOOKS.clear()
        crud.AUTHORS.clear()

    @pytest.mark.parametrize(
        ("path", "new"),
        [("/books", {"title": "Emma"}), ("/authors", {"name": "Jane Austen"})],
        ids=["books", "authors"],
    )
    async def test_a_model_is_made_listed_found_and_removed(
        self, path: str, new: dict[str, str]
    ) -> None:
        """Each subclass serves its own model with the handlers of the base."""
        row = {"id": 1, **new}
        async with client_of(crud.app) as client:
            assert row == (await client.post(path, json=new)).json()
            assert [row] == (await client.get(path)).json()
            assert row == (await client.get(f"{path}/1")).json()
            assert 204 == (await client.delete(f"{path}/1")).status_code
            assert 404 == (await client.get(f"{path}/1")).status_code

    async def test_what_is_sent_is_checked(self) -> None:
        """An author has no title."""
        async with client_of(crud.app) as client:
            answer = await client.post("/authors", json={"title": "Emma"})

        assert 422 == answer.status_code

    @pytest.mark.parametrize(("path", "quota"), [("/books", 60), ("/authors", 5)])
    async def test_a_subclass_may_have_a_quota_of_its_own(
        self, path: str, quota: int
    ) -> None:
        """Reads are held to the quota of the class, or of its base."""
        answers = await statuses(crud.app, path, quota + 1)

        assert [200] * quota + [429] == answers

    @pytest.mark.parametrize("path", ["/books", "/authors"])
    async def test_writes_are_held_to_what_the_base_says(self, path: str) -> None:
        """The limit of a handler is inherited with it."""
        async with client_of(crud.app) as client:
            answer = await client.delete(f"{path}/7")

        assert "10" == answer.headers["RateLimit-Limit"]


class TestConstructor:
    """examples/constructor.py."""

    async def test_handlers_share_what_the_constructor_prepares(self) -> None:
        """Both see the invoices of the tenant that asks."""
        tenant = {"X-Tenant": "ACME"}
        async with client_of(constructor.app) as client:
            listed = await client.get("/invoices", headers=tenant)
            total = await client.get("/invoices/total", headers=tenant)

        assert ([120, 80], 200) == (listed.json(), total.json())

    async def test_the_session_of_each_request_is_closed(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """It is open while the handler runs; a refused request opens none."""
        opened: list[constructor.Session] = []

        class Noted(constructor.Session):
            async def invoices(self, tenant: str) -> list[int]:
                assert self.is_open
                opened.append(self)
                return []

        monkeypatch.setattr(constructor, "Session", Noted)
        answers = await statuses(constructor.app, "/invoices", 6, {"X-Tenant": "a"})

        assert [200] * 5 + [429] == answers
        assert [False] * 5 == [session.is_open for session in opened]

    async def test_a_parameter_of_the_constructor_is_required(self) -> None:
        """Who does not say for whom is told so."""
        assert [422] == await statuses(constructor.app, "/invoices", 1)


class TestVersions:
    """examples/versions.py."""

    async def test_the_same_view_has_one_counter(self) -> None:
        """What was spent in one version is not there in the other."""
        async with client_of(versions.app) as client:
            answers = [
                await client.get(f"/{version}/items")
                for version in ("v1", "v2", "v1", "v2", "v1")
            ]

        assert [200, 200, 200, 429, 429] == [answer.status_code for answer in answers]

    async def test_different_views_of_one_path_are_counted_apart(self) -> None:
        """The new version of a view has a quota of its own."""
        async with client_of(versions.app) as client:
            old = [await client.get("/v1/orders") for _ in range(4)]
            new = await client.get("/v2/orders")

        assert [200, 200, 200, 429] == [answer.status_code for answer in old]
        assert {"apple": 1} == new.json()


class TestChat:
    """examples/chat.py."""

    @pytest.fixture(name="client")
    def client_fixture(self) -> TestClient:
        """Give a client that did not connect before."""
        store = chat.limiter.store
        assert isinstance(store, MemoryStore)
        store.clear()
        return TestClient(chat.app)

    def test_the_sixth_message_is_not_acted_upon(self, client: TestClient) -> None:
        """Five messages are answered, the next is told to wait; the socket stays."""
        with client.websocket_connect("/chat") as socket:
            answers: list[str] = []
            for number in range(7):
                socket.send_text(str(number))
                answers.append(socket.receive_text())

        heard = [f"You said {number}" for number in range(5)]
        assert [*heard, "Slow down", "Slow down"] == answers

    def test_a_new_connection_gives_no_new_messages(self, client: TestClient) -> None:
        """Messages are counted by client, and not by connection."""
        for expected in ("You said a", "Slow down"):
            with client.websocket_connect("/chat") as socket:
                for _ in range(5):
                    socket.send_text("a")
                    assert expected == socket.receive_text()

    def test_the_third_connection_is_refused(self, client: TestClient) -> None:
        """It is a 429, before it is accepted, and says when to come again."""
        for _ in range(2):
            with client.websocket_connect("/chat"):
                pass
        with (
            pytest.raises(WebSocketDenialResponse) as caught,
            client.websocket_connect("/chat"),
        ):
            pass

        refusal = caught.value
        assert (429, "30") == (refusal.status_code, refusal.headers["Retry-After"])


class TestProxy:
    """examples/proxy.py."""

    async def test_clients_behind_the_proxy_are_told_apart(self) -> None:
        """One is refused, and the next one is not."""
        one, other = ({"X-Forwarded-For": f"203.0.113.{last}"} for last in (1, 2))
        async with client_of(proxy.app, "10.0.0.1") as client:
            answers = [await client.get("/items", headers=one) for _ in range(4)]
            answers.append(await client.get("/items", headers=other))

        assert [200, 200, 200, 429, 200] == [answer.status_code for answer in answers]

    async def test_a_client_cannot_name_itself(self) -> None:
        """What it forwards is not believed, through the proxy or past it."""
        named = [{"X-Forwarded-For": f"6.6.6.{n}, 203.0.113.3"} for n in range(4)]
        async with (
            client_of(proxy.app, "10.0.0.1") as through,
            client_of(proxy.app) as past,
        ):
            behind = [await through.get("/items", headers=name) for name in named]
            direct = [await past.get("/items", headers=name) for name in named]

        for answers in (behind, direct):
            assert [200, 200, 200, 429] == [answer.status_code for answer in answers]
