"""
Lines to a server: the edge to redis-py.

Whatever redis-py or the network raises becomes one of two errors here. A line that may
have a stale reply on its way is closed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any, NamedTuple

from redis.asyncio import RedisCluster
from redis.asyncio.connection import ConnectionPool
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import (
    AskError,
    ReadOnlyError,
    RedisError,
    ResponseError,
)
from redis.exceptions import (
    NoScriptError as RedisNoScriptError,
)

from throttled_views.errors import StoreUnavailableError
from throttled_views.stores.courier import NoScriptError

__all__ = ["ClusterLine", "ConnectionLine", "packed"]

_IDLE_S = 1.0  # after so long the server may have closed a connection


class ConnectionLine:
    """
    One connection, made as those of a pool are.

    It does without what a connection of redis-py does around a command: deadlines are
    the courier's, and a retry would charge twice.
    """

    def __init__(self, pool: ConnectionPool | _Place) -> None:
        options: dict[str, Any] = {
            **pool.connection_kwargs,
            "decode_responses": False,
            "health_check_interval": 0,
            "retry": Retry(NoBackoff(), 0),
            "socket_timeout": None,
        }
        # What is used of it, redis-py 5 to 8 have alike.
        self._connection: Any = pool.connection_class(**options)
        self._used_at = 0.0

    async def ask(self, *command: Any) -> Any:
        """Send a command and return its reply; see `Line.ask`."""
        connection = self._connection
        try:
            await self._renew()
            if not connection.is_connected:
                # To send would connect too, but where a sentinel was not asked.
                await connection.connect()
            await connection.send_packed_command(packed(command), check_health=False)
            return await connection.read_response()
        except ResponseError as error:
            if isinstance(error, ReadOnlyError):  # another is the primary by now
                await self.hang_up()
            raise _translated(error) from error
        except (RedisError, OSError) as error:
            await self.hang_up()
            raise StoreUnavailableError(str(error)) from error

    async def _renew(self) -> None:
        """Close the connection if the server did so while it was idle."""
        connection, now = self._connection, asyncio.get_running_loop().time()
        was_idle = connection.is_connected and now - self._used_at > _IDLE_S
        self._used_at = now
        if not was_idle:
            return
        # Its name changed with redis-py 8.
        has_something = getattr(connection, "can_read", None)
        try:
            ended = await (has_something or connection.can_read_destructive)()
        except (RedisError, OSError):
            ended = True
        if ended:
            await self.hang_up()

    async def hang_up(self) -> None:
        """Close the connection; see `Line.hang_up`."""
        await self._connection.disconnect(nowait=True)


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
            return await self._node.execute_command(*command, **options)
        except AskError as error:
            raise _AskedElsewhere(error, self._node) from error


class ClusterLine:
    """Whatever connection the client of a cluster takes for a key."""

    def __init__(self, client: RedisCluster) -> None:
        self._client: Any = client
        self._nodes = dict(self._client.nodes_manager.startup_nodes)

    async def ask(self, *command: Any) -> Any:
        """Send a command and return its reply; see `Line.ask`."""
        client = self._client
        # Redis-py 5 strikes off each node it lost, and finds none when all were lost.
        for name, known in self._nodes.items():
            client.nodes_manager.startup_nodes.setdefault(name, known)
        try:
            await client.initialize()
            # To name the node turns the client's retries off. It still follows what the
            # servers say of slots that moved: there nothing was executed.
            key = command[3] if command[0].startswith("EVAL") else command[1]
            node = _Node(client.get_node_from_key(key))
            return await client.execute_command(*command, target_nodes=[node])
        except _AskedElsewhere as asked:
            return await _asked(asked.place, command)
        except ResponseError as error:
            raise _translated(error) from error
        except (RedisError, OSError) as error:
            raise StoreUnavailableError(str(error)) from error

    async def hang_up(self) -> None:
        """Do nothing: the client closes a connection whose command was given up."""


async def _asked(place: _Place, command: Iterable[Any]) -> Any:
    """Ask a node for what is to be its own, on a connection of its own."""
    line = ConnectionLine(place)
    try:
        await line.ask("ASKING")
        return await line.ask(*command)
    finally:
        await line.hang_up()


def packed(command: Iterable[bytes | str | int]) -> bytes:
    """
    Return *command* as the protocol has it.

    As `pack_command` of redis-py does, in a third of the time: it is a good part of
    what a batch costs.
    """
    words = [
        each if isinstance(each, bytes) else str(each).encode() for each in command
    ]
    strings = b"".join([b"$%d\r\n%b\r\n" % (len(word), word) for word in words])
    return b"*%d\r\n%b" % (len(words), strings)


def _translated(error: ResponseError) -> Exception:
    if isinstance(error, RedisNoScriptError) or "NOSCRIPT" in str(error):
        return NoScriptError(str(error))
    return StoreUnavailableError(str(error))
