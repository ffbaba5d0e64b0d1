"""An application that moves here answers as it did before."""

import re
from collections.abc import Callable, Sequence
from contextlib import closing
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from tests.documents import ROOT, run

HOW_TO = ROOT / "docs" / "how-to"
_BEFORE = re.compile(r"^```py\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL)


class Asked(NamedTuple):
    """Requests, and how each of them is answered."""

    request: str
    statuses: Sequence[int]


MOVES: dict[str, Sequence[Asked]] = {
    "slowapi": [
        Asked("GET /books", [200, 200, 200, 429]),
        Asked("POST /books?title=Emma", [200, 429]),
        Asked("GET /export.csv", [200]),
        Asked("GET /export.json", [200, 429]),
        Asked("GET /export.csv", [429]),
        Asked("GET /health", [200, 200, 200, 200]),
    ],
    "fastapi-limiter": [
        Asked("GET /books", [200, 200, 200, 429]),
        Asked("GET /report", [200, 429]),
    ],
    "throttled-py": [
        Asked("GET /books", [200, 200, 200, 429]),
        Asked("POST /books?title=Emma", [200, 429]),
    ],
    "cbv": [
        Asked("GET /books", [200, 200, 200, 200]),
        Asked("GET /books/2", [200]),
        Asked("POST /books?title=Emma", [201]),
    ],
}


def before(page: Path) -> FastAPI:
    """Run the application of *page* as it is written for the other limiter."""
    [found] = _BEFORE.finditer(page.read_text("utf-8"))
    names: dict[str, Any] = {"__name__": f"before_{page.stem}"}
    exec(found["code"], names)
    app: FastAPI = names["app"]
    return app


def first(page: Path) -> FastAPI:
    """Run the first application that *page* shows for us."""
    app: FastAPI = run(page, first=1).app
    return app


def after(page: Path) -> FastAPI:
    """Run the application of *page* as it is written for us in the end."""
    app: FastAPI = run(page).app
    return app


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("application", [before, first, after])
@pytest.mark.parametrize("name", MOVES)
def test_both_applications_answer_alike(
    name: str, application: Callable[[Path], FastAPI]
) -> None:
    """The page's application gives the same answers before it moves and after."""
    app = application(HOW_TO / f"migrate-from-{name}.md")
    asked = MOVES[name]
    with closing(TestClient(app)) as client:
        statuses = [
            client.request(*each.request.split()).status_code
            for each in asked
            for _ in each.statuses
        ]
    ends = [*accumulate(len(each.statuses) for each in asked)]

    assert asked == [
        Asked(each.request, statuses[end - len(each.statuses) : end])
        for each, end in zip(asked, ends, strict=True)
    ]
