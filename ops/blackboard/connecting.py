"""Connections to Redis: how they are made, and what a new one is asked first.

redis-py's own retries are off (a retried command would run twice, and its waiting would be hidden); time limits are
set by the callers here, around whole exchanges. Called by `ops.blackboard.redis` and `ops.blackboard.watching`.
"""

from __future__ import annotations

import math
from typing import Any

from redis.asyncio import BlockingConnectionPool
from redis.asyncio.connection import AbstractConnection
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import ResponseError

from ops.blackboard.functions import Library


def connection_pool(url: str, *, size: int, wait_seconds: float) -> BlockingConnectionPool:
    """Return a pool of at most `size` connections; who comes when all are in use waits, and gets an error after `wait_seconds`."""
    return BlockingConnectionPool.from_url(
        url,
        max_connections=size,
        timeout=wait_seconds,
        socket_timeout=None,
        socket_connect_timeout=wait_seconds,
        socket_keepalive=True,
        retry=Retry(NoBackoff(), 0),
        retry_on_timeout=False,
        health_check_interval=0,
        decode_responses=False,
        protocol=2,
        driver_info=None,
    )


async def take_connection(pool: BlockingConnectionPool) -> AbstractConnection:
    """Return a connection of the pool, connected; the caller sets the time limit and releases it."""
    connection: AbstractConnection = await pool.get_connection()  # type: ignore[no-untyped-call]  # redis-py leaves it untyped
    return connection


async def ask(connection: AbstractConnection, *command: str | bytes | int) -> Any:
    """Send one command and return its reply; the caller sets the time limit. Raises what redis-py raises."""
    await connection.send_command(*command, check_health=False)
    return await connection.read_response(disable_decoding=True, timeout=math.inf)


async def put_library(connection: AbstractConnection, library: Library) -> None:
    """Load the function library unless the server has it; its name says which it is."""
    try:
        await ask(connection, "FUNCTION", "LOAD", library.source)
    except ResponseError as error:
        if "already exists" not in str(error):
            raise


async def read_info(connection: AbstractConnection, *sections: str) -> dict[str, str]:
    """Return what INFO says, as texts."""
    reply: bytes = await ask(connection, "INFO", *sections)
    pairs = (line.partition(":") for line in reply.decode(errors="replace").splitlines() if line and not line.startswith("#"))
    return {name: value for name, _, value in pairs}


async def read_clock(connection: AbstractConnection) -> int:
    """Return the server's time in ms."""
    return clock_ms(await ask(connection, "TIME"))


def clock_ms(reply: list[bytes]) -> int:
    """Return the ms of a reply to TIME."""
    seconds, micros = reply
    return int(seconds) * 1000 + int(micros) // 1000
