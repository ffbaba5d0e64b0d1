"""Functions that return, or raise, one of each kind of what FastAPI serves."""

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import httpx
from fastapi import HTTPException, Response
from fastapi.responses import (
    FileResponse,
    JSONResponse,
    PlainTextResponse,
    RedirectResponse,
    StreamingResponse,
)
from pydantic import BaseModel
from starlette.exceptions import HTTPException as StarletteHTTPException

from tests.ways import Endpoint, RouteOptions

THIS_FILE = Path(__file__)


class Item(BaseModel):
    """A model that is returned."""

    name: str
    price: int = 0


class NamedItem(BaseModel):
    """What is shown of it."""

    name: str


class Teapot(JSONResponse):
    """A response class of the user."""

    media_type = "application/tea"


async def a_dict() -> dict[str, str]:
    """Return what FastAPI has to render."""
    return {"name": "book"}


async def a_list() -> list[int]:
    """Return a list, which is nearly a tuple that Flask would take apart."""
    return [1, 404]


async def a_model() -> Item:
    """Return a model, of which the route shows less."""
    return Item(name="book", price=7)


async def nothing() -> None:
    """Return nothing at all."""


async def a_header(response: Response) -> dict[str, str]:
    """Set a header and a status on the response that FastAPI merges."""
    response.headers["X-Mine"] = "kept"
    response.headers["Vary"] = "Accept"
    response.status_code = 202
    return {}


async def a_response() -> Response:
    """Return a finished response, with fields of its own."""
    return PlainTextResponse("text", 203, {"X-Mine": "kept", "Vary": "Accept"})


async def a_subclass() -> Response:
    """Return a response of a class of the user."""
    return Teapot("tea", 418)


async def a_redirect() -> Response:
    """Send the client elsewhere."""
    return RedirectResponse("/elsewhere")


async def a_stream() -> Response:
    """Return a response that is made while it is sent."""

    async def chunks() -> AsyncIterator[str]:
        for chunk in "abc":
            yield chunk

    return StreamingResponse(chunks())


async def a_file() -> Response:
    """Return a file."""
    return FileResponse(THIS_FILE)


async def not_found() -> None:
    """Raise what FastAPI renders."""
    raise HTTPException(404, headers={"X-Mine": "kept"})


async def unauthorized() -> None:
    """Raise what Starlette renders."""
    raise StarletteHTTPException(401)


@dataclass
class Kind:
    """A function, and what FastAPI makes of what it returns or raises."""

    endpoint: Endpoint
    status: int
    body: str
    options: RouteOptions = field(default_factory=RouteOptions)
    headers: Mapping[str, str] = field(default_factory=dict[str, str])


MINE = {"X-Mine": "kept", "Vary": "Accept"}

RENDERED: dict[str, Kind] = {
    "dict": Kind(a_dict, 200, '{"name":"book"}'),
    "list": Kind(a_list, 200, "[1,404]"),
    "model": Kind(a_model, 200, '{"name":"book","price":7}'),
    "model shown as another": Kind(
        a_model, 200, '{"name":"book"}', {"response_model": NamedItem}
    ),
    "status 201": Kind(a_dict, 201, '{"name":"book"}', {"status_code": 201}),
    "None": Kind(nothing, 200, "null"),
    "no content": Kind(nothing, 204, "", {"status_code": 204}),
    "own headers": Kind(a_header, 202, "{}", headers=MINE),
    "another default class": Kind(
        a_dict, 200, '{"name":"book"}', {"response_class": Teapot}
    ),
}
"""What FastAPI makes a response of."""

RETURNED: dict[str, Kind] = {
    "Response": Kind(a_response, 203, "text", headers=MINE),
    "subclass of Response": Kind(a_subclass, 418, '"tea"'),
    "redirect": Kind(a_redirect, 307, "", headers={"Location": "/elsewhere"}),
    "stream": Kind(a_stream, 200, "abc"),
    "file": Kind(a_file, 200, THIS_FILE.read_text(encoding="utf-8")),
}
"""What is a response already."""

RAISED: dict[str, Kind] = {
    "HTTPException": Kind(
        not_found, 404, '{"detail":"Not Found"}', headers={"X-Mine": "kept"}
    ),
    "HTTPException of Starlette": Kind(unauthorized, 401, '{"detail":"Unauthorized"}'),
}
"""What ends as a response, but is none yet."""

EVERY_KIND: dict[str, Kind] = {**RENDERED, **RETURNED, **RAISED}


def assert_is(kind: Kind, answer: httpx.Response) -> None:
    """Check that *answer* is what FastAPI makes of *kind* without any limit."""
    assert (kind.status, kind.body) == (answer.status_code, answer.text)
    assert kind.headers == {name: answer.headers[name] for name in kind.headers}
