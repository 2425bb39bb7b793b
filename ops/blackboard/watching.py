"""One connection per process that hears of every write of the requests somebody watches.

What arrives is a hint to look, never the news itself: a message can be lost with the connection, and a slow listener
is cut off. So every waiter is also woken after each (re)subscription. This room reads no events. Called by
`ops.blackboard.redis`.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from redis.asyncio import BlockingConnectionPool
from redis.asyncio.connection import AbstractConnection
from redis.exceptions import RedisError
from tenacity import AsyncRetrying, retry_if_exception_type, wait_random_exponential

from ops.blackboard.connecting import take_connection
from ops.blackboard.refusals import NO_LINE

_ALL = [b"*"]
"""What a hint names where every field may have changed."""


class Hints:
    """Who waits for which channel, and the one connection that listens for all of them.

    `pool` is this room's own; `silence_seconds` is how long the line may be silent before it is tried by a PING.
    """

    def __init__(self, pool: BlockingConnectionPool, *, call_timeout_seconds: float, silence_seconds: float) -> None:
        self._pool = pool
        self._call_timeout = call_timeout_seconds
        self._silence = silence_seconds
        self._waiters: dict[str, dict[asyncio.Event, bytes | None]] = {}
        self._wanted = asyncio.Event()
        self._line: AbstractConnection | None = None

    @asynccontextmanager
    async def of(self, channel: str, name: str | None = None) -> AsyncIterator[asyncio.Event]:
        """Give an event that is set whenever the channel's state should be read (again), until the block is left.

        With `name`, writes that did not put this field set nothing.
        """
        wake = asyncio.Event()
        waiters = self._waiters.setdefault(channel, {})
        waiters[wake] = None if name is None else name.encode()
        self._wanted.set()
        try:
            # Also when others listen already: the confirmation wakes this waiter once.
            await self._tell("SUBSCRIBE", channel)
            yield wake
        finally:
            del waiters[wake]
            if not waiters and self._waiters.get(channel) is waiters:
                del self._waiters[channel]
                await self._tell("UNSUBSCRIBE", channel)

    async def run(self) -> None:
        """Listen until cancelled; a background task of the board. The first waiter opens the connection."""
        while True:
            await self._wanted.wait()
            again = AsyncRetrying(
                retry=retry_if_exception_type((*NO_LINE, RedisError)), wait=wait_random_exponential(multiplier=0.05, max=2.0)
            )
            await again(self._listen)

    async def _listen(self) -> None:
        """Hold the line until it breaks. Raises what redis-py raises where it never came to be; returns when nobody waits for one."""
        if not self._waiters:
            self._wanted.clear()
            return
        async with asyncio.timeout(self._call_timeout):
            line = await take_connection(self._pool)
        heard = False
        try:
            self._line = line  # before anything is awaited: who comes now tells it
            if self._waiters:
                await line.send_command("SUBSCRIBE", *self._waiters, check_health=False)
            while True:
                self._take_in(await self._next(line))
                heard = True
        except (*NO_LINE, RedisError):
            if not heard:
                raise
        finally:
            self._line = None
            await line.disconnect(nowait=True)
            await self._pool.release(line)

    async def _next(self, line: AbstractConnection) -> list[bytes]:
        """Return the next message; a line that stays silent is asked for a sign of life."""
        try:
            async with asyncio.timeout(self._silence):
                return await self._read(line)
        except TimeoutError:
            async with asyncio.timeout(self._call_timeout):
                await line.send_command("PING", check_health=False)
                return await self._read(line)

    async def _read(self, line: AbstractConnection) -> list[bytes]:
        # A time limit may cut a read short: the bytes that came so far stay in the parser, the line stays good.
        message: list[bytes] = await line.read_response(disable_decoding=True, timeout=math.inf, disconnect_on_error=False)
        return message

    def _take_in(self, message: list[bytes]) -> None:
        if message[0] not in (b"message", b"subscribe"):
            return
        put = message[2].split(b"\0")[1:] if message[0] == b"message" else _ALL
        for wake, name in self._waiters.get(message[1].decode(), {}).items():
            if name is None or name in put or put == _ALL:
                wake.set()

    async def _tell(self, command: str, channel: str) -> None:
        """Change what the line listens to; when it is broken, the next one subscribes to everything anyway."""
        if self._line is not None:
            with suppress(RedisError, OSError):
                async with asyncio.timeout(self._call_timeout):
                    await self._line.send_command(command, channel, check_health=False)
