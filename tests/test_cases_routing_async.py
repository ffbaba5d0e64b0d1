"""Scenarios from public bug reports, by number: loops, threads, streams, memory."""

import asyncio
import contextvars
import gc
import threading
import weakref
from collections.abc import AsyncGenerator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager

import pytest
from anyio.lowlevel import checkpoint
from fastapi import Depends, FastAPI, Response
from fastapi.responses import JSONResponse, StreamingResponse
from starlette.background import BackgroundTask
from starlette.testclient import TestClient
from starlette.types import Message

from tests.asgi import (
    Relay,
    answers,
    app_of,
    fields_of,
    frozen,
    http_scope,
    sent,
    statuses,
)
from tests.ways import DECORATED, DEPENDENT, EARLY, WAYS, Way
from throttled_views import Limit, Limiter, MemoryStore, ThrottledRouter

ways = pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)


async def hello() -> str:
    """Be a handler."""
    return "hello"


def blocking() -> str:
    """Be a handler that FastAPI runs in a thread."""
    return "blocking"


# --- loops ----------------------------------------------------------------------------


@ways
def test_case_53_a_limiter_serves_one_loop_after_another(way: Way) -> None:
    """What was counted in one loop counts in the next; nothing is bound to a loop."""
    app = way(frozen("4/min"), hello)

    def run() -> list[int]:
        return asyncio.run(statuses(app, "GET /", "GET /"))

    with ThreadPoolExecutor(1) as thread:  # which no other loop is bound to
        runs = [thread.submit(run).result() for _ in range(3)]

    assert [[200, 200], [200, 200], [429, 429]] == runs


@ways
def test_case_53_a_test_client_needs_no_lifespan(way: Way) -> None:
    """With or without one, as often as one likes, there is a decision."""
    app = way(frozen("4/min"), hello)
    codes: list[int] = []

    for _ in range(2):
        codes.append(TestClient(app).get("/").status_code)
        with TestClient(app) as client:
            codes += [client.get("/").status_code for _ in range(2)]

    assert [200] * 4 + [429] * 2 == codes


async def test_case_53_an_application_with_a_lifespan_is_limited() -> None:
    """The limits do not depend on what it does."""

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncGenerator[None]:
        yield

    app = FastAPI(lifespan=lifespan)
    router = ThrottledRouter(frozen("1/min"))
    router.add_api_route("/", hello)
    app.include_router(router)

    with TestClient(app) as client:
        assert [200, 429] == [client.get("/").status_code for _ in range(2)]


@ways
def test_case_53_a_limiter_serves_two_loops_at_once(way: Way) -> None:
    """Two threads with a loop each get what one would have got."""
    app = way(frozen("10/min"), hello)
    together = threading.Barrier(2)

    def run() -> list[int]:
        together.wait()
        return asyncio.run(statuses(app, *["GET /"] * 10))

    with ThreadPoolExecutor(2) as threads:
        runs = [threads.submit(run) for _ in range(2)]
        codes = [code for each in runs for code in each.result()]

    assert [200] * 10 + [429] * 10 == sorted(codes)


# --- background tasks and streams -----------------------------------------------------


@ways
async def test_case_56_background_tasks_hold_nothing_up(way: Way) -> None:
    """The body is out before the task ends, and three tasks of three requests end."""
    ending = asyncio.Event()
    done: list[str] = []

    async def task() -> None:
        await ending.wait()
        done.append("task")

    async def get() -> Response:
        return JSONResponse("body", background=BackgroundTask(task))

    app = way(frozen("5/min"), get)
    bodies: asyncio.Queue[bytes] = asyncio.Queue()

    async def receive() -> Message:
        await ending.wait()
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        if message["type"] == "http.response.body" and not message.get("more_body"):
            await bodies.put(message["body"])

    requests = [asyncio.create_task(app(http_scope(), receive, send)) for _ in range(3)]
    assert [b'"body"'] * 3 == [await bodies.get() for _ in range(3)]
    assert [] == done

    ending.set()
    await asyncio.gather(*requests)
    assert ["task"] * 3 == done


CHUNKS = [f"chunk {number}\n" for number in range(10)]
LENGTH = str(sum(map(len, CHUNKS)))

STREAMS: dict[str, dict[str, str]] = {
    "of unknown length": {},
    "of known length": {"Content-Length": LENGTH},
    "of events": {"Content-Type": "text/event-stream"},
}


@pytest.mark.parametrize("headers", STREAMS.values(), ids=STREAMS)
@ways
async def test_case_58_a_stream_is_not_held_back(
    way: Way, headers: dict[str, str]
) -> None:
    """There is one start, before the first chunk; no chunk waits for the next one."""
    events: list[str] = []

    async def chunks() -> AsyncGenerator[str]:
        for chunk in CHUNKS:
            events.append(f"made {chunk}")
            yield chunk

    async def get() -> Response:
        return StreamingResponse(chunks(), headers=headers)

    async def receive() -> Message:
        await asyncio.Event().wait()
        raise AssertionError

    starts: list[Message] = []

    async def send(message: Message) -> None:
        if message["type"] == "http.response.start":
            starts.append(message)
            events.append("start")
        elif message["body"]:
            events.append(f"sent {message['body'].decode()}")

    store = Relay()
    app = way(Limiter("5/min", store=store), get)

    await app(http_scope(), receive, send)

    in_turn = [f"{what} {chunk}" for chunk in CHUNKS for what in ("made", "sent")]
    assert ["start", *in_turn] == events
    names = [name for name, _ in starts[0]["headers"]]
    told = 1 if way in {*EARLY.values(), *DECORATED.values()} else 0
    assert told == names.count(b"ratelimit-remaining")
    assert 1 == len(store.keys)


@ways
async def test_case_58_a_stream_ends_when_its_client_leaves(way: Way) -> None:
    """Its generator is closed, and the request was charged once."""
    left = asyncio.Event()
    events: list[str] = []

    async def chunks() -> AsyncGenerator[str]:
        try:
            yield CHUNKS[0]
            await asyncio.Event().wait()
        finally:
            events.append("closed")

    async def get() -> Response:
        return StreamingResponse(chunks())

    async def receive() -> Message:
        await left.wait()
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        events.append(message["type"])
        if message["type"] == "http.response.body":
            left.set()

    store = Relay()
    app = way(Limiter("5/min", store=store), get)

    await app(http_scope(), receive, send)

    assert ["http.response.start", "http.response.body", "closed"] == events
    assert 1 == len(store.keys)


# --- threads --------------------------------------------------------------------------

SYNC: dict[str, Way] = {"on a ThrottledRouter": EARLY["on a ThrottledRouter"]}
SYNC.update(DEPENDENT)


@pytest.mark.parametrize("way", SYNC.values(), ids=SYNC)
async def test_case_59_functions_in_threads_do_not_overshoot(way: Way) -> None:
    """Of 400 requests at once as many pass as may."""
    app = way(frozen("50/min"), blocking)

    served = await asyncio.gather(*[sent(app, http_scope()) for _ in range(400)])

    codes = [messages[0]["status"] for messages in served]
    assert [200] * 50 + [429] * 350 == sorted(codes)


async def test_case_59_sync_and_async_functions_share_a_bucket() -> None:
    """One quota for both is one counter, however they are served."""
    router = ThrottledRouter(frozen(Limit("50/min", bucket="all")))
    router.add_api_route("/sync", blocking)
    router.add_api_route("/async", hello)
    app = app_of(router)

    served = await asyncio.gather(
        *[sent(app, http_scope(path)) for path in ["/sync", "/async"] * 100]
    )

    codes = [messages[0]["status"] for messages in served]
    assert [200] * 50 + [429] * 150 == sorted(codes)


def test_case_59_sync_dependencies_are_limited_too() -> None:
    """A dependency in a thread does not get around the one that limits."""
    limiter = frozen()

    def in_a_thread() -> str:
        return "thread"

    app = FastAPI(dependencies=[Depends(in_a_thread)])
    limited = Depends(limiter.dependency("2/min"))
    app.add_api_route("/", blocking, dependencies=[limited, Depends(in_a_thread)])

    client = TestClient(app)
    assert [200, 200, 429] == [client.get("/").status_code for _ in range(3)]


# --- memory ---------------------------------------------------------------------------


class Big:
    """Something that a request holds."""

    def __init__(self) -> None:
        self.content = bytes(1_000_000)


holding: contextvars.ContextVar[Big] = contextvars.ContextVar("holding")


@ways
async def test_case_107_nothing_keeps_a_request_alive(way: Way) -> None:
    """What a request held is gone when it is answered; no task or timer remains."""
    held: list[weakref.ref[Big]] = []

    async def get() -> None:
        big = Big()
        holding.set(big)
        held.append(weakref.ref(big))

    app = way(frozen("1000/hour"), get)

    for _ in range(200):  # each in a task of its own, whose context ends with it
        await asyncio.create_task(sent(app, http_scope()))
    await checkpoint()  # until then the loop has the last task in its hands
    gc.collect()

    assert 200 == len(held)
    assert [None] * 200 == [reference() for reference in held]
    assert {asyncio.current_task()} == asyncio.all_tasks()


@ways
async def test_case_107_nothing_is_kept_for_a_denied_request(way: Way) -> None:
    """Denials leave no more behind than what counts them."""
    store = MemoryStore()
    app = way(Limiter("1/hour", store=store), hello)

    received = await answers(app, *["GET /"] * 50)

    assert "0" == fields_of(received[-1])["RateLimit-Remaining"]
    assert 1 == len(store)
