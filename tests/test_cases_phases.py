"""Scenarios from public bug reports, by number: what is limited before who asks."""

import json
from collections import Counter
from collections.abc import Callable
from typing import Annotated

import pytest
from fastapi import APIRouter, Depends, FastAPI, Header, HTTPException
from pydantic import BaseModel

from tests.asgi import Relay, answers, app_of, fields_of, frozen, statuses
from throttled_views import (
    InvalidKeyError,
    Limit,
    Limiter,
    ThrottledRouter,
    ThrottledView,
    client_ip,
)


class Item(BaseModel):
    """What is sent."""

    name: str


async def current_user(authorization: Annotated[str, Header()] = "") -> str:
    """Let nobody in but one."""
    if authorization != "Bearer right":
        raise HTTPException(401)
    return "alice"


CurrentUser = Annotated[str, Depends(current_user)]


async def by_user(user: CurrentUser) -> str:
    """Name who is logged in."""
    return f"user {user}"


async def greet(user: CurrentUser) -> str:
    """Be a handler for who is logged in."""
    return user


async def put(item: Item) -> None:
    """Be a handler that takes a body."""


def in_a_view(limiter: Limiter) -> FastAPI:
    """Serve both as methods of a view."""

    class Items(ThrottledView):
        async def get(self, user: CurrentUser) -> str:
            return user

        async def put(self, item: Item) -> None:
            pass

    return app_of(Items.as_router(limiter, prefix="/items"))


def on_a_throttled_router(limiter: Limiter) -> FastAPI:
    """Serve both as functions, limited by their router."""
    router = ThrottledRouter(limiter)
    router.get("/items")(greet)
    router.put("/items")(put)
    return app_of(router)


def by_a_dependency(limiter: Limiter) -> FastAPI:
    """Serve both as functions, limited by the first dependency."""
    router = APIRouter(dependencies=[Depends(limiter.dependency())])
    router.get("/items")(greet)
    router.put("/items")(put)
    return app_of(router)


def decorated(limiter: Limiter) -> FastAPI:
    """Serve both as functions of an application, limited by their decorators."""
    app = FastAPI()
    app.get("/items")(limiter.limit()(greet))
    app.put("/items")(limiter.limit()(put))
    return app


Serve = Callable[[Limiter], FastAPI]
FIRST: list[Serve] = [in_a_view, on_a_throttled_router, by_a_dependency]
by_address = Limit("100/min", key_func=client_ip)
of_user = Limit("100/min", key_func=by_user)


@pytest.mark.parametrize("serve", FIRST)
async def test_case_76_guessing_tokens_is_limited_by_address(serve: Serve) -> None:
    """Of 150 guesses a hundred are looked at."""
    codes = await statuses(serve(frozen(by_address)), *["GET /items"] * 150)

    assert [401] * 100 + [429] * 50 == codes


@pytest.mark.parametrize("serve", FIRST)
@pytest.mark.parametrize("content", [b"{}", b"[", b""])
async def test_case_76_bodies_that_are_wrong_are_limited_by_address(
    serve: Serve, content: bytes
) -> None:
    """What cannot be served counts, too; a dependency sees only what is JSON."""
    app = serve(frozen(by_address))
    received = await answers(app, *["PUT /items"] * 150, content=content)

    unseen = serve is by_a_dependency and content == b"["
    expected = {422: 150} if unseen else {422: 100, 429: 50}
    assert expected == Counter(answer.status_code for answer in received)


@pytest.mark.parametrize("serve", [*FIRST, decorated])
async def test_case_76_a_limit_by_user_does_not_stop_guesses(serve: Serve) -> None:
    """Nobody is named before the token is right: it counts none of them."""
    app = serve(frozen(of_user))
    (right,) = await answers(app, "GET /items", headers=RIGHT)
    codes = await statuses(app, *["GET /items"] * 150)
    (again,) = await answers(app, "GET /items", headers=RIGHT)

    assert [401] * 150 == codes
    assert ["99", "98"] == [
        fields_of(answer)["RateLimit-Remaining"] for answer in (right, again)
    ]


RIGHT = {"Authorization": "Bearer right"}


async def test_case_76_a_decorator_elsewhere_comes_after_the_guess() -> None:
    """Its place is right before the function, so that no address stops a guess."""
    codes = await statuses(decorated(frozen(by_address)), *["GET /items"] * 150)

    assert [401] * 150 == codes


@pytest.mark.parametrize("serve", FIRST[:2])
async def test_case_76_both_side_by_side_stop_guesses_and_share_fairly(
    serve: Serve,
) -> None:
    """The address counts every request, the user those that got in."""
    app = serve(frozen([Limit("10/min", key_func=client_ip), of_user]))
    guesses = await statuses(app, *["GET /items"] * 4)
    received = await answers(app, *["GET /items"] * 7, headers=RIGHT)
    (elsewhere,) = await answers(app, "GET /items", headers=RIGHT, client="192.0.2.2")

    assert [401] * 4 + [200] * 6 + [429] == [
        *guesses,
        *(answer.status_code for answer in received),
    ]
    assert "9" == fields_of(elsewhere)["RateLimit-Remaining"]


TEXTS: dict[str, str] = {
    "100 kB": "x" * 100_000,
    "100 kB and one": "x" * 100_001,
    "NFC": "naïve/пример/例",
    "NFD": "nai\u0308ve/пример/例",
    "a space": "a b",
    "NUL": "a\0b",
    "CR LF": "a\r\nRateLimit-Limit: 5",
    "braces": "{x}",
    "bars": "|x|",
    "a lone surrogate": "\ud800",
}


async def by_name(item: Item) -> str:
    """Name a client by what its body says."""
    return item.name


@pytest.mark.parametrize("serve", [*FIRST, decorated])
async def test_case_49_any_text_of_a_body_is_a_client_of_its_own(serve: Serve) -> None:
    """The first of each is admitted, the second is not, and keys stay short."""
    store = Relay()
    app = serve(Limiter(Limit("1/min", key_func=by_name), store=store))
    for name in TEXTS.values():
        body = json.dumps({"name": name}).encode()
        received = await answers(app, *["PUT /items"] * 2, content=body)

        assert [200, 429] == [answer.status_code for answer in received]

    assert len(TEXTS) == len({*store.keys})
    assert all(len(key) <= 300 and key.isprintable() for key in store.keys)


@pytest.mark.parametrize("serve", [*FIRST, decorated])
async def test_case_49_what_is_no_text_is_no_client(serve: Serve) -> None:
    """Pydantic refuses what is of another type, and nothing is charged."""
    store = Relay()
    app = serve(Limiter(Limit("1/min", key_func=by_name), store=store))
    for value in (b"null", b"1", b"[]"):
        body = b'{"name": %b}' % value
        received = await answers(app, *["PUT /items"] * 2, content=body)

        assert [422, 422] == [answer.status_code for answer in received]

    assert [] == store.keys


@pytest.mark.parametrize("serve", [*FIRST, decorated])
async def test_case_110_an_empty_text_of_a_body_is_an_error(serve: Serve) -> None:
    """It is not one big bucket of all who say nothing, and no way around the limit."""
    store = Relay()
    app = serve(Limiter(Limit("1/min", key_func=by_name), store=store))

    with pytest.raises(InvalidKeyError):
        await answers(app, "PUT /items", content=b'{"name": ""}')
    assert [] == store.keys
