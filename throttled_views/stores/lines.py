"""
Lines to a server: the edge to redis-py.

Redis-py connects: it knows of addresses, passwords, encryption and sentinels, and a
cluster's client knows where a slot is. Once a connection stands, what is written to it
and read from it is ours: a task and a stream for each command would cost more than all
the rest of a check.

Whatever redis-py or the network raises becomes one of two errors here. A line that may
have a stale reply on its way is closed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from contextvars import Context
from typing import Any, NamedTuple

from redis.asyncio import RedisCluster
from redis.asyncio.connection import ConnectionPool
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.client import NEVER_DECODE
from redis.exceptions import (
    AskError,
    RedisClusterException,
    RedisError,
    ResponseError,
)
from redis.exceptions import (
    NoScriptError as RedisNoScriptError,
)

from throttled_views.errors import StoreUnavailableError
from throttled_views.stores.courier import (
    Answered,
    NoScriptError,
    Word,
    unavailable,
)
from throttled_views.stores.resp import (
    IncompleteError,
    Push,
    ServerError,
    packed,
    reply_in,
)

__all__ = ["ClusterLine", "ConnectionLine"]


class _Errand:
    """What takes a line a while; nobody is told of what was given up."""

    def __init__(self) -> None:
        self._task: asyncio.Task[None] | None = None

    def begin(self, work: Coroutine[Any, Any, None]) -> None:
        """Do *work* while others go on."""
        # In a context of its own: a request's variables are not to live on in it.
        loop = asyncio.get_running_loop()
        self._task = loop.create_task(work, context=Context())

    def give_up(self) -> None:
        """Stop it, if it is under way."""
        if self._task is not None:
            self._task.cancel()

    async def end(self) -> None:
        """Stop it, and wait until it has ended."""
        self.give_up()
        if self._task is not None:
            await asyncio.wait([self._task])


class ConnectionLine(asyncio.Protocol):
    """
    One connection, made as those of a pool are.

    It does without what a connection of redis-py does around a command: deadlines are
    the courier's, and a retry would charge twice.
    """

    def __init__(self, pool: ConnectionPool | _Place) -> None:
        self._connection_class: Any = pool.connection_class
        self._options: dict[str, Any] = {
            **pool.connection_kwargs,
            "decode_responses": False,
            "health_check_interval": 0,
            "retry": Retry(NoBackoff(), 0),
            "socket_timeout": None,
        }
        self._opening = _Errand()
        # A writer that nobody holds closes its transport.
        self._writer: asyncio.StreamWriter | None = None
        self._unread = b""
        self._answered: Answered | None = None

    def ask(self, command: Sequence[Word], answered: Answered) -> None:
        """Send a command; see `Line.ask`."""
        self._answered = answered
        if self._writer is None:
            self._opening.begin(self._open(command))
        else:
            self._writer.transport.write(packed(command))

    async def _open(self, command: Sequence[Word]) -> None:
        try:
            connection = self._connection_class(**self._options)
            try:
                await connection.connect()
                self._writer = _taken_from(connection)
                self._writer.transport.set_protocol(self)
                self._writer.transport.write(packed(command))
            finally:
                await connection.disconnect(nowait=True)
        except (RedisError, OSError) as error:
            self._end(unavailable(error))
        except Exception as error:  # noqa: BLE001 - it is told to those who wait
            self._end(error)

    def data_received(self, data: bytes) -> None:
        """Tell who waits, once a reply is whole."""
        self._unread += data
        try:
            reply = self._next()
            while isinstance(reply, Push):
                reply = self._next()
        except IncompleteError:
            return
        except (ValueError, RecursionError) as error:
            self._end(StoreUnavailableError(f"The server answers nonsense: {error}"))
            return
        is_error = isinstance(reply, ServerError)
        is_replica = is_error and "READONLY" in str(reply)  # another is the primary
        if is_replica or self._unread or self._answered is None:  # more than was asked
            self._close()
        self._tell(_translated(reply) if is_error else reply)

    def _next(self) -> Any:
        reply, end = reply_in(self._unread)
        self._unread = self._unread[end:]
        return reply

    def eof_received(self) -> None:
        """Close the connection, as the server did."""
        self._end(StoreUnavailableError("The server closed the connection"))

    def connection_lost(self, exc: Exception | None) -> None:
        """Close the connection, as the network did."""
        self._end(unavailable(exc or ConnectionError("The connection was lost")))

    def _end(self, error: Exception) -> None:
        self._close()
        self._tell(error)

    def _tell(self, reply: Any) -> None:
        answered, self._answered = self._answered, None
        if answered is not None:
            answered(reply)

    def hang_up(self) -> None:
        """Close the connection; see `Line.hang_up`."""
        self._answered = None
        self._opening.give_up()
        self._close()

    def _close(self) -> None:
        self._unread = b""
        if self._writer is not None:
            transport = self._writer.transport
            transport.set_protocol(asyncio.Protocol())  # the next is not to hear of it
            transport.abort()
            self._writer = None

    async def aclose(self) -> None:
        """See `Line.aclose`."""
        self.hang_up()
        await self._opening.end()


def _taken_from(connection: Any) -> asyncio.StreamWriter:
    """
    Take what *connection* opened; it is closed for redis-py, and open for us.

    The names are private, and the same in redis-py 5 to 8.
    """
    writer: asyncio.StreamWriter = connection._writer  # noqa: SLF001
    connection._reader = connection._writer = None  # noqa: SLF001
    return writer


class _Place(NamedTuple):
    """Where to connect to, as a pool says it."""

    connection_class: Any
    connection_kwargs: dict[str, Any]


class _AskedElsewhere(Exception):  # noqa: N818 - no error, but what is to be done
    """A slot is on its way to another node, and this key is there already, or new."""

    def __init__(self, error: Any, node: Any) -> None:
        super().__init__(str(error))
        where = {"host": error.host, "port": error.port}
        self.place = _Place(node.connection_class, {**node.connection_kwargs, **where})


class _Node:
    """
    A node that lets nobody but us follow an ASK.

    The client does so on two connections, either of which may be any of the node's,
    and a node listens only if they are one (redis-py 5 to 8).
    """

    def __init__(self, node: Any) -> None:
        self._node = node

    def __getattr__(self, name: str) -> Any:
        return getattr(self._node, name)

    async def execute_command(self, *command: Any, **options: Any) -> Any:
        """Send a command and return its reply."""
        try:
            options[NEVER_DECODE] = True
            return await self._node.execute_command(*command, **options)
        except AskError as error:
            raise _AskedElsewhere(error, self._node) from error


class ClusterLine:
    """Whatever connection the client of a cluster takes for a key."""

    def __init__(self, client: RedisCluster) -> None:
        self._client: Any = client
        self._nodes = dict(self._client.nodes_manager.startup_nodes)
        self._asking = _Errand()

    def ask(self, command: Sequence[Word], answered: Answered) -> None:
        """Send a command; see `Line.ask`."""
        self._asking.begin(self._ask(command, answered))

    async def _ask(self, command: Sequence[Word], answered: Answered) -> None:
        try:
            reply = await self._reply(command)
        except Exception as error:  # noqa: BLE001 - it is told to those who wait
            reply = error
        answered(reply)

    async def _reply(self, command: Sequence[Word]) -> Any:
        client = self._client
        # Redis-py 5 strikes off each node it lost, and finds none when all were lost.
        for name, known in self._nodes.items():
            client.nodes_manager.startup_nodes.setdefault(name, known)
        try:
            await client.initialize()
            # To name the node turns the client's retries off. It still follows what the
            # servers say of slots that moved: there nothing was executed.
            is_script = command[0] in {"EVALSHA", "EVAL"}
            node = _Node(client.get_node_from_key(command[3 if is_script else 1]))
            return await client.execute_command(*command, target_nodes=[node])
        except _AskedElsewhere as asked:
            return await _asked(asked.place, command)
        except ResponseError as error:
            return _translated(error)
        except (RedisError, RedisClusterException, OSError) as error:
            return unavailable(error)

    def hang_up(self) -> None:
        """Give up: the client closes a connection that waits for a reply."""
        self._asking.give_up()

    async def aclose(self) -> None:
        """See `Line.aclose`."""
        await self._asking.end()


async def _asked(place: _Place, command: Sequence[Word]) -> Any:
    """Ask a node for what is to be its own, on a connection of its own."""
    line, loop = ConnectionLine(place), asyncio.get_running_loop()
    reply: Any = None
    try:
        for words in (("ASKING",), command):
            future: asyncio.Future[Any] = loop.create_future()
            line.ask(words, future.set_result)
            reply = await future
    finally:
        await line.aclose()
    return reply


def _translated(error: Exception) -> Exception:
    if "NOSCRIPT" in str(error) or isinstance(error, RedisNoScriptError):
        return NoScriptError(str(error))
    return unavailable(error)
