"""The protocol, as far as it is used."""

from typing import Any

import pytest

from throttled_views.stores.resp import (
    IncompleteError,
    Push,
    ServerError,
    packed,
    reply_in,
)

REPLIES: dict[str, tuple[bytes, object]] = {
    "number": (b":-12\r\n", -12),
    "text": (b"+OK\r\n", b"OK"),
    "string": (b"$4\r\n\r\n:1\r\n", b"\r\n:1"),
    "empty string": (b"$0\r\n\r\n", b""),
    "verbatim string": (b"=7\r\ntxt:abc\r\n", b"txt:abc"),
    "nothing, version 2": (b"$-1\r\n", None),
    "nothing, version 3": (b"_\r\n", None),
    "no array": (b"*-1\r\n", None),
    "truth": (b"#t\r\n", b"t"),
    "fraction": (b",0.5\r\n", b"0.5"),
    "large number": (b"(340282366920938463463\r\n", b"340282366920938463463"),
    "array": (b"*3\r\n:1\r\n$1\r\na\r\n*1\r\n_\r\n", [1, b"a", [None]]),
    "empty array": (b"*0\r\n", []),
    "set": (b"~2\r\n:1\r\n:2\r\n", [1, 2]),
    "map": (b"%1\r\n+a\r\n:1\r\n", [b"a", 1]),
}


@pytest.mark.parametrize(("data", "value"), REPLIES.values(), ids=REPLIES)
def test_a_reply_is_read(data: bytes, value: object) -> None:
    """It is read up to its end, and not further."""
    assert (value, len(data)) == reply_in(data + b":5\r\n")


@pytest.mark.parametrize("data", [data for data, _ in REPLIES.values()], ids=REPLIES)
def test_a_part_of_a_reply_is_none(data: bytes) -> None:
    """Wherever it is cut, the rest is waited for."""
    for length in range(len(data)):
        with pytest.raises(IncompleteError):
            reply_in(data[:length])


def test_an_error_is_told_apart() -> None:
    """It is a value, of a class that no other reply is of; bad bytes are shown."""
    error, end = reply_in(b"-ERR no\xff\r\n")

    assert isinstance(error, ServerError)
    assert ("ERR no\ufffd", 10) == (str(error), end)


def test_what_nobody_asked_for_is_told_apart() -> None:
    """It is a list of its own class."""
    push, _ = reply_in(b">2\r\n+moving\r\n:1\r\n")

    assert isinstance(push, Push)
    assert [b"moving", 1] == push


@pytest.mark.parametrize(
    "data",
    [
        b"HTTP/1.1 400\r\n",
        b"\r\n",
        b":x\r\n",
        b"$x\r\n",
        b"$-7\r\n",
        b"*99999999\r\n$-7\r\n",
        b"*-2\r\n",
    ],
)
def test_nonsense_is_no_reply(data: bytes) -> None:
    """What begins no reply, or has no length where one belongs, is refused."""
    with pytest.raises(ValueError, match=r"."):
        reply_in(data)


WORDS: list[tuple[list[Any], bytes]] = [
    (["PING"], b"*1\r\n$4\r\nPING\r\n"),
    (["A", b"\x00\r\n", -12], b"*3\r\n$1\r\nA\r\n$3\r\n\x00\r\n\r\n$3\r\n-12\r\n"),
    (["é", ""], b"*2\r\n$2\r\n\xc3\xa9\r\n$0\r\n\r\n"),
]


@pytest.mark.parametrize(("words", "data"), WORDS)
def test_a_command_is_packed(words: list[bytes | str | int], data: bytes) -> None:
    """Each word is a string of bytes, with its length."""
    assert data == packed(words)
