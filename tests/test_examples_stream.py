"""The example that streams, on the FastAPIs that do."""

import json

import pytest

from tests.clients import client_of

pytest.importorskip("fastapi.sse", reason="this FastAPI streams no events")

from examples import stream


async def test_a_stream_costs_what_it_sends() -> None:
    """Of a hundred lines a minute, sixty leave forty, which are too few for fifty."""
    async with client_of(stream.app) as client:
        long, longer, short = [
            await client.get(f"/ticks?count={count}") for count in (60, 50, 40)
        ]

    assert (60, "40") == (
        len(long.text.splitlines()),
        long.headers["RateLimit-Remaining"],
    )
    assert (429, "6") == (longer.status_code, longer.headers["Retry-After"])
    assert (40, "0") == (
        len(short.text.splitlines()),
        short.headers["RateLimit-Remaining"],
    )


async def test_what_is_no_length_costs_nothing() -> None:
    """It is a 422 of FastAPI, before the limit is decided."""
    async with client_of(stream.app) as client:
        assert 422 == (await client.get("/ticks?count=101")).status_code
        assert "90" == (await client.get("/ticks")).headers["RateLimit-Remaining"]


async def test_events_are_streamed_three_times() -> None:
    """Each stream is counted once; the fourth is refused, with no event."""
    async with client_of(stream.app) as client:
        answers = [await client.get("/ticks/events") for _ in range(4)]

    numbers = [
        [json.loads(event.removeprefix("data: "))["number"] for event in events]
        for events in (answer.text.split("\n\n")[:-1] for answer in answers)
    ]
    assert [[3, 2], [3, 2, 1], [3, 2, 1, 0], []] == numbers
    assert [200] * 3 + [429] == [answer.status_code for answer in answers]
    assert "text/event-stream" in answers[0].headers["Content-Type"]
    assert {"detail": "Rate limit exceeded"} == answers[-1].json()


async def test_a_function_streams_twice() -> None:
    """A decorated function has a count of its own."""
    async with client_of(stream.app) as client:
        answers = [await client.get("/log") for _ in range(3)]

    assert "line 0\nline 1\nline 2\n" == answers[0].text
    assert [(200, "1"), (200, "0"), (429, "0")] == [
        (answer.status_code, answer.headers["RateLimit-Remaining"])
        for answer in answers
    ]
