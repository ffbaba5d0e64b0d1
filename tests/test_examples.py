"""Each example runs and limits as it says."""

import sys
from types import SimpleNamespace

import pytest
from fastapi import FastAPI

from examples import bookshop, functions, quickstart
from tests.clients import client_of

ALICE = {"X-API-Key": "k-alice"}
EMMA = {"isbn": "978-0-14-143958-7", "title": "Emma"}


async def statuses(app: FastAPI, path: str, count: int) -> list[int]:
    """Send *count* requests from one address and list how they are answered."""
    async with client_of(app) as client:
        return [(await client.get(path)).status_code for _ in range(count)]


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


class TestBookshop:
    """examples/bookshop.py."""

    @pytest.fixture(name="shop")
    def shop_fixture(self) -> FastAPI:
        """Open a shop whose counters are fresh."""
        return bookshop.create_app()

    async def test_a_book_can_be_stored_listed_and_found(self, shop: FastAPI) -> None:
        """The injected shelf is the same one in all handlers."""
        async with client_of(shop) as client:
            await client.post("/books", json=EMMA)

            assert [EMMA] == (await client.get("/books")).json()
            assert EMMA == (await client.get(f"/books/{EMMA['isbn']}")).json()
            assert "1" == (await client.head("/books")).headers["X-Books"]

    async def test_a_missing_book_is_counted(self, shop: FastAPI) -> None:
        """A 404 of the handler carries the headers of its quota."""
        async with client_of(shop) as client:
            answer = await client.get("/books/0")

        assert (404, "9") == (
            answer.status_code,
            answer.headers["RateLimit-Remaining"],
        )

    async def test_the_third_write_within_a_second_is_refused(
        self, shop: FastAPI
    ) -> None:
        """Writes have a limit of their own, and the headers describe it."""
        async with client_of(shop) as client:
            answers = [await client.post("/books", json=EMMA) for _ in range(3)]

        assert [200, 200, 429] == [answer.status_code for answer in answers]
        assert "2" == answers[-1].headers["RateLimit-Limit"]

    async def test_a_customer_is_counted_by_name(self, shop: FastAPI) -> None:
        """A known key has one counter at all addresses."""
        async with client_of(shop) as one, client_of(shop) as other:
            first = await one.get("/account", headers=ALICE)
            second = await other.get("/account", headers=ALICE)

        assert [{"limit": 5, "remaining": 4}, {"limit": 5, "remaining": 3}] == [
            first.json(),
            second.json(),
        ]

    async def test_an_invented_key_is_counted_by_address(self, shop: FastAPI) -> None:
        """Changing an unknown key does not give a fresh quota."""
        async with client_of(shop) as client:
            remaining = [
                (await client.get("/account", headers={"X-API-Key": key})).json()[
                    "remaining"
                ]
                for key in ("made", "up")
            ]

        assert [4, 3] == remaining

    async def test_the_health_check_is_never_refused(self, shop: FastAPI) -> None:
        """An exempt view answers as often as it is asked, without headers."""
        async with client_of(shop) as client:
            answers = [await client.get("/health") for _ in range(100)]

        assert {200} == {answer.status_code for answer in answers}
        assert "RateLimit-Limit" not in answers[-1].headers
