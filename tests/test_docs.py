"""The pages of the documentation run, and are complete."""

import re
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from fastapi import APIRouter, Depends, FastAPI, HTTPException, Request, Response
from fastapi.responses import PlainTextResponse, StreamingResponse
from fastapi.testclient import TestClient

import throttled_views
from tests.documents import ROOT, blocks, run
from throttled_views import Limiter, MemoryStore, ThrottledRouter, ThrottledViewsError

PAGES = {
    str(page.relative_to(ROOT)): page for page in sorted((ROOT / "docs").rglob("*.md"))
}
WITH_CODE = {name: page for name, page in PAGES.items() if blocks(page)}


@pytest.mark.parametrize("page", WITH_CODE.values(), ids=WITH_CODE)
def test_page_runs(page: Path) -> None:
    """The Python code of a page runs from top to bottom."""
    if "fastapi.sse" in page.read_text("utf-8"):
        pytest.importorskip("fastapi.sse", reason="this FastAPI streams no events")
    run(page)


def test_the_tutorial_prints_what_it_says(capsys: pytest.CaptureFixture[str]) -> None:
    """The client of the tutorial is admitted three times and then refused."""
    run(PAGES["docs/tutorials/first-view.md"], first=2)

    assert "200 2\n200 1\n200 0\n429 0\n" == capsys.readouterr().out


def test_the_tests_on_testing_pass(tmp_path: Path) -> None:
    """The tests that a page shows are collected by pytest, and pass."""
    page = PAGES["docs/how-to/test-an-application.md"]
    code = "\n".join(block.code for block in blocks(page))
    (tmp_path / "test_page.py").write_text(code, "utf-8")
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "--rootdir", str(tmp_path), "."],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )

    assert "5 passed" in ran.stdout, ran.stdout


def test_every_page_is_in_the_navigation() -> None:
    """mkdocs.yml lists each page once."""
    settings = (ROOT / "mkdocs.yml").read_text("utf-8")
    listed = re.findall(r"- (\S+\.md)$", settings, re.MULTILINE)

    assert sorted(name.removeprefix("docs/") for name in PAGES) == sorted(listed)


def test_every_error_has_an_anchor() -> None:
    """Each error that can be imported has a heading of its own."""
    page = PAGES["docs/reference/errors.md"].read_text("utf-8")
    errors = {
        name
        for name in throttled_views.__all__
        if isinstance(value := getattr(throttled_views, name), type)
        and issubclass(value, ThrottledViewsError)
    }

    assert errors == set(re.findall(r"^## (\w+Error)$", page, re.MULTILINE))


# --- where header fields appear -------------------------------------------------------


class Told(NamedTuple):
    """Whether a response has the header fields, and whether it is counted."""

    on_ours: tuple[bool, bool]
    decorated: tuple[bool, bool]
    depending: tuple[bool, bool]


YES, NOT_TOLD, NEITHER = (True, True), (False, True), (False, False)
RESPONSES = {
    "GET /model": Told(YES, YES, YES),
    "GET /own": Told(YES, YES, NOT_TOLD),
    "GET /streamed": Told(YES, YES, NOT_TOLD),
    "GET /missing": Told(YES, YES, NOT_TOLD),
    "GET /conflict": Told(YES, NOT_TOLD, NOT_TOLD),
    "GET /broken": Told(NOT_TOLD, NOT_TOLD, NOT_TOLD),
    "GET /number": Told(YES, NEITHER, NOT_TOLD),
    "GET /guarded": Told(YES, NEITHER, NOT_TOLD),
    "POST /model": Told(NEITHER, NEITHER, NEITHER),
    "GET /nowhere": Told(NEITHER, NEITHER, NEITHER),
}


class TakenError(Exception):
    """Answered by an exception handler of the application."""


async def answer_taken(_request: Request, _error: Exception) -> Response:
    """Answer as an application may."""
    return PlainTextResponse("taken", 409)


def refuse_to_log_in() -> None:
    """Refuse whoever asks."""
    raise HTTPException(401)


async def model() -> list[str]:
    """Return data."""
    return []


async def own() -> Response:
    """Return a response."""
    return PlainTextResponse("")


async def streamed() -> Response:
    """Return a stream."""
    return StreamingResponse(iter(["a", "b"]))


async def missing() -> None:
    """Raise an HTTPException."""
    raise HTTPException(404)


async def conflict() -> None:
    """Raise what the application answers."""
    raise TakenError


async def broken() -> None:
    """Raise what nobody answers."""
    raise ZeroDivisionError


async def number(n: int) -> int:
    """Want what is not given."""
    return n


async def guarded() -> None:
    """Be guarded by a dependency."""


@pytest.mark.parametrize("way", Told._fields)
@pytest.mark.parametrize("asked", RESPONSES)
def test_header_fields_appear_where_the_table_says(way: str, asked: str) -> None:
    """The table of the reference, and the one of what is counted, are right."""
    store = MemoryStore()
    limiter = Limiter("5/h", store=store)
    router = ThrottledRouter(limiter) if way == "on_ours" else APIRouter()
    limit: list[Any] = []
    if way == "depending":
        limit = [Depends(limiter.dependency())]
    for function in (model, own, streamed, missing, conflict, broken, number, guarded):
        login = [Depends(refuse_to_log_in)] if function is guarded else []
        router.add_api_route(
            f"/{function.__name__}",
            limiter.limit()(function) if way == "decorated" else function,
            dependencies=[*limit, *login],
            response_model=None,
        )
    app = FastAPI(exception_handlers={TakenError: answer_taken})
    app.include_router(router)
    with closing(TestClient(app, raise_server_exceptions=False)) as client:
        response = client.request(*asked.split())

    told, counted = "RateLimit-Limit" in response.headers, len(store) == 1
    assert getattr(RESPONSES[asked], way) == (told, counted)
