"""
A proxy in front of a server, on which the network fails as a test tells it to.

It takes one command after the other from each connection, and one reply for each, so it
is no place for subscriptions.
"""

import asyncio
from asyncio import StreamReader, StreamWriter
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from enum import Enum, auto
from typing import NamedTuple, Self

from tests.redis.servers import HOST, PATIENCE_SECONDS, free_port


class Mode(Enum):
    """What becomes of a command."""

    PASS = auto()  # It reaches the server, and the reply reaches the client.
    DROP_REPLY = auto()  # The server carries it out; then the connection is closed.
    DROP_BEFORE = auto()  # The connection is closed, the server is not told.
    STALL = auto()  # No reply comes, the server is not told.
    REFUSE = auto()  # All connections are closed, and new ones refused.


class Stream(NamedTuple):
    """One side of a connection."""

    reader: StreamReader
    writer: StreamWriter


class Rewriting(NamedTuple):
    """What a client is told instead of the reply, and whether the server is asked."""

    reply: bytes
    forward: bool


class Proxy:
    """
    Pass commands on to the server that listens on the port *upstream*.

    Attributes:
        port: Where it listens itself.
        arrived: How often clients sent each command, by its name in capitals.
        forwarded: How often each was passed to the server.
    """

    def __init__(self, upstream: int) -> None:
        self.port = free_port()
        self.arrived = Counter[str]()
        self.forwarded = Counter[str]()
        self._upstream = upstream
        self._mode = Mode.PASS
        self._only = frozenset[str]()
        self._times: int | None = None
        self._rewritings: dict[str, list[Rewriting]] = {}
        self._listener: asyncio.Server | None = None
        self._links = set[asyncio.Task[None]]()
        self._stalled = set[asyncio.Task[None]]()
        self._news = asyncio.Event()

    async def __aenter__(self) -> Self:
        await self._listen()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._refuse()

    @property
    def url(self) -> str:
        """Where a client finds database 0."""
        return f"redis://{HOST}:{self.port}/0"

    async def switch(self, mode: Mode, *only: str, times: int | None = None) -> None:
        """
        Treat commands by *mode* from now on, also on connections that there are.

        Args:
            mode: What becomes of commands.
            only: Names of the commands that are meant, in capitals; all if there are
                none. A client sends some when it connects.
            times: How many commands are meant, after which they pass; all if None.
        """
        # Clients were sent no reply there, so the next one would be taken for it.
        await _end(self._stalled)
        self._mode, self._only, self._times = mode, frozenset(only), times
        if mode is Mode.REFUSE:
            await self._refuse()
        elif self._listener is None:
            await self._listen()

    def rewrite(
        self, name: str, reply: str, times: int = 1, *, forward: bool = True
    ) -> None:
        """
        Tell clients *reply* the next *times* that a command passes.

        Args:
            name: The command, in capitals.
            reply: A line of the protocol, such as "-ERR no".
            times: How often.
            forward: Whether the server carries the command out all the same.
        """
        rewriting = Rewriting(reply.encode() + b"\r\n", forward)
        self._rewritings[name] = [rewriting] * times

    async def arrival(self, name: str, count: int = 1) -> None:
        """Return when a command has arrived *count* times; TimeoutError if not."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while self.arrived[name] < count:
                self._news.clear()
                await self._news.wait()

    async def _listen(self) -> None:
        self._listener = await asyncio.start_server(self._accept, HOST, self.port)

    async def _refuse(self) -> None:
        listener, self._listener = self._listener, None
        if listener is not None:
            listener.close()
            await _end(self._links)
            await listener.wait_closed()

    def _accept(self, reader: StreamReader, writer: StreamWriter) -> None:
        link = asyncio.create_task(self._serve(Stream(reader, writer)))
        self._links.add(link)
        link.add_done_callback(self._links.discard)
        # One that is cancelled before it began does not do so itself.
        link.add_done_callback(lambda _: writer.transport.abort())
        if self._listener is None:  # It was closed in the meantime.
            link.cancel()

    async def _serve(self, client: Stream) -> None:
        # Each of the errors is that one side hung up, which the other is then told.
        with suppress(OSError, EOFError):
            async with _closing(client):
                upstream = await asyncio.open_connection(HOST, self._upstream)
                async with _closing(Stream(*upstream)) as server:
                    while await self._pass_on(client, server):
                        pass

    async def _pass_on(self, client: Stream, server: Stream) -> bool:
        """Treat the next command; return whether the connection goes on."""
        name, command = await self._next_command(client.reader)
        mode = self._mode_of(name)
        if mode is Mode.STALL:
            await self._stall(client.reader)
        if mode is Mode.DROP_BEFORE:
            return False
        rewriting = self._rewriting_of(name)
        reply = b""
        if rewriting is None or rewriting.forward:
            self.forwarded[name] += 1
            server.writer.write(command)
            reply = await read_reply(server.reader)
        if mode is Mode.DROP_REPLY:
            return False
        client.writer.write(reply if rewriting is None else rewriting.reply)
        await client.writer.drain()
        return True

    async def _stall(self, reader: StreamReader) -> None:
        link = asyncio.current_task()
        if link is not None:
            self._stalled.add(link)
        while True:
            await self._next_command(reader)

    async def _next_command(self, reader: StreamReader) -> tuple[str, bytes]:
        command = await read_frame(reader)
        name = name_of(command)
        self.arrived[name] += 1
        self._news.set()
        return name, command

    def _mode_of(self, name: str) -> Mode:
        if self._times == 0 or (self._only and name not in self._only):
            return Mode.PASS
        if self._times is not None:
            self._times -= 1
        return self._mode

    def _rewriting_of(self, name: str) -> Rewriting | None:
        waiting = self._rewritings.get(name)
        return waiting.pop() if waiting else None


# --- the protocol


async def read_frame(reader: StreamReader) -> bytes:
    """Return the next command, or the next value of a reply, as it was sent."""
    frame = await reader.readuntil(b"\r\n")
    kind, head = frame[:1], frame[1:-2]
    if kind in b"$=!" and head != b"-1":
        return frame + await reader.readexactly(int(head) + 2)
    if kind in b"*~>%|" and head != b"-1":
        values = int(head) * (2 if kind in b"%|" else 1)
        # What is described by attributes comes after them.
        for _ in range(values + (kind == b"|")):
            frame += await read_frame(reader)
    return frame


async def read_reply(reader: StreamReader) -> bytes:
    """Return the next reply, with the pushes that come before it."""
    frame = await read_frame(reader)
    return frame + await read_reply(reader) if frame.startswith(b">") else frame


def name_of(command: bytes) -> str:
    """Return the first word of a command, in capitals."""
    return command.split(b"\r\n", 3)[2].decode().upper()


# --- connections


@asynccontextmanager
async def _closing(stream: Stream) -> AsyncGenerator[Stream]:
    try:
        yield stream
    finally:
        stream.writer.transport.abort()
        with suppress(OSError):
            await stream.writer.wait_closed()


async def _end(links: set[asyncio.Task[None]]) -> None:
    ending = [*links]
    links.clear()
    for link in ending:
        link.cancel()
    await asyncio.gather(*ending, return_exceptions=True)
