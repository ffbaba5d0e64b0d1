"""How it is measured: contenders take turns in short rounds, in shuffled order."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from time import perf_counter
from typing import NamedTuple, TypeAlias

from fastapi import FastAPI
from starlette.types import ASGIApp, Message, Scope

_US_PER_S = 1_000_000
CLIENT = ("203.0.113.7", 1234)

Work: TypeAlias = Callable[[], Awaitable[object]]
"""Does what one round is."""


class Effort(NamedTuple):
    """
    How much is measured.

    Attributes:
        rounds: Rounds of each contender.
        requests: Requests in a round, unless there are more at the same time.
        seconds: How long a server is kept busy, where rounds are of a length of time.
        largest: The most clients, routes, keys and arrivals that are tried.
    """

    rounds: int
    requests: int
    seconds: float
    largest: int

    @property
    def is_smoke(self) -> bool:
        """Whether it is only to be seen that everything runs."""
        return self == QUICK

    def up_to(self, *sizes: int) -> list[int]:
        """Return those of *sizes* that are tried; at least the first."""
        return [sizes[0], *(size for size in sizes[1:] if size <= self.largest)]


FULL = Effort(rounds=100, requests=128, seconds=2.0, largest=1_000_000)
QUICK = Effort(rounds=2, requests=4, seconds=0.1, largest=64)


async def race(works: Mapping[str, Work], rounds: int) -> dict[str, list[float]]:
    """Let *works* take turns; return the seconds that each round of each took."""
    order = list(works)
    taken: dict[str, list[float]] = {name: [] for name in order}
    for work in works.values():
        await work()
    for _ in range(rounds):
        random.shuffle(order)
        for name in order:
            began = perf_counter()
            await works[name]()
            taken[name].append(perf_counter() - began)
    return taken


async def race_of_apps(
    apps: Mapping[str, ASGIApp],
    effort: Effort,
    concurrency: int = 1,
    *,
    path: str = "/items",
    clients: Sequence[tuple[str, int]] = (CLIENT,),
) -> dict[str, list[float]]:
    """
    Let *apps* take turns; return microseconds for a request, for each round of each.

    Args:
        apps: What is asked.
        effort: How many rounds, and how many requests in each.
        concurrency: How many clients ask at the same time.
        path: What they ask for.
        clients: Their addresses, given to them in turn.
    """
    each = max(1, effort.requests // concurrency)
    if concurrency > 1:
        each = max(2, each)

    def work_of(app: ASGIApp) -> Work:
        async def client(number: int) -> None:
            for _ in range(each):
                scope = request_scope(path, clients[number % len(clients)])
                await app(scope, receive, ignore)

        async def work() -> None:
            if concurrency == 1:
                await client(0)
            else:
                await asyncio.gather(*map(client, range(concurrency)))

        return work

    works = {name: work_of(app) for name, app in apps.items()}
    taken = await race(works, _rounds(effort, concurrency))
    scale = _US_PER_S / (each * concurrency)
    return {
        name: [seconds * scale for seconds in rounds] for name, rounds in taken.items()
    }


def _rounds(effort: Effort, concurrency: int) -> int:
    """Return fewer rounds where each is long."""
    return max(2, effort.rounds * 64 // max(64, concurrency))


# --- requests -------------------------------------------------------------------------


def request_scope(path: str, client: tuple[str, int] = CLIENT) -> Scope:
    """Return the scope of a GET request, as a server makes it."""
    return {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "GET",
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "root_path": "",
        "headers": [(b"host", b"api.example"), (b"user-agent", b"benchmark")],
        "client": client,
        "server": ("api.example", 80),
        "state": {},
    }


async def receive() -> Message:
    """Return the body of a request that has none."""
    return {"type": "http.request", "body": b"", "more_body": False}


async def ignore(_message: Message) -> None:
    """Take what the application says, as fast as a server can."""


class UnexpectedAnswerError(Exception):
    """An application does not answer as it should, so it is not measured."""


async def checked_answer(app: ASGIApp, status: int, path: str = "/items") -> str:
    """Ask once; return a note if no field tells of the limit."""
    seen: list[Message] = []

    async def send(message: Message) -> None:
        seen.append(message)

    await app(request_scope(path), receive, send)
    if seen[0]["status"] != status:
        msg = f"{status} was expected, not {seen[0]['status']}"
        raise UnexpectedAnswerError(msg)
    names = [name.lower() for name, _ in seen[0]["headers"]]
    return "" if any(b"ratelimit" in name for name in names) else "no header fields"


@asynccontextmanager
async def running(app: FastAPI) -> AsyncGenerator[FastAPI]:
    """Start *app*, and end it."""
    async with app.router.lifespan_context(app):
        yield app


# --- the machine ----------------------------------------------------------------------

CLIENT_CORE, SERVER_CORE = 0, 1


def pin(core: int, pid: int = 0) -> None:
    """Keep a process, this one unless given, on a core, where there are two."""
    if hasattr(os, "sched_setaffinity") and (os.cpu_count() or 1) > SERVER_CORE:
        os.sched_setaffinity(pid, {core})
