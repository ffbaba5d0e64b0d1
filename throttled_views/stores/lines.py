"""
Lines to a server: the edge to redis-py.

Whatever redis-py or the network raises becomes one of two errors here. A line that may
have a stale reply on its way is closed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

from redis.asyncio import RedisCluster
from redis.asyncio.connection import ConnectionPool
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import (
    NoScriptError as RedisNoScriptError,
)
from redis.exceptions import (
    ReadOnlyError,
    RedisError,
    ResponseError,
)

from throttled_views.errors import StoreUnavailableError
from throttled_views.stores.courier import NoScriptError

__all__ = ["ClusterLine", "ConnectionLine"]

_IDLE_S = 1.0  # after so long the server may have closed a connection


class ConnectionLine:
    """
    One connection, made as those of a pool are.

    It does without what a connection of redis-py does around a command: deadlines are
    the courier's, and a retry would charge twice.
    """

    def __init__(self, pool: ConnectionPool) -> None:
        options = {
            **pool.connection_kwargs,
            "decode_responses": False,
            "health_check_interval": 0,
            "retry": Retry(NoBackoff(), 0),
            "socket_timeout": None,
        }
        self._connection = pool.connection_class(**options)
        self._used_at = 0.0

    async def ask(self, *command: Any) -> Any:
        """Send a command and return its reply; see `Line.ask`."""
        connection = self._connection
        try:
            await self._renew()
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


class ClusterLine:
    """Whatever connection the client of a cluster takes for a key."""

    def __init__(self, client: RedisCluster) -> None:
        self._client = client

    async def ask(self, *command: Any) -> Any:
        """Send a command and return its reply; see `Line.ask`."""
        client: Any = self._client
        try:
            await client.initialize()
            # To name the node turns the client's retries off. It still follows what the
            # servers say of slots that moved: there nothing was executed.
            key = command[3] if command[0].startswith("EVAL") else command[1]
            node = client.get_node_from_key(key)
            return await client.execute_command(*command, target_nodes=[node])
        except ResponseError as error:
            raise _translated(error) from error
        except (RedisError, OSError) as error:
            raise StoreUnavailableError(str(error)) from error

    async def hang_up(self) -> None:
        """Do nothing: the client closes a connection whose command was given up."""


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
