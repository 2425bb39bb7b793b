"""One connection per process that hears of every write of the requests somebody watches.

What arrives is a hint to look, never the news itself: a message can be lost with the connection, and a slow listener
is cut off. So every waiter is also woken after each (re)subscription. This room reads no events. Called by
`ops.blackboard.redis`.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterator
from contextlib import contextmanager

import hiredis
from redis.asyncio import BlockingConnectionPool
from redis.asyncio.connection import AbstractConnection
from redis.exceptions import RedisError
from tenacity import AsyncRetrying, retry_if_exception_type, wait_random_exponential

from ops.blackboard.connecting import take_connection
from ops.blackboard.refusals import NO_LINE

LEAVING_SECONDS = 1.0
"""How long a channel that nobody waits for is still listened to, where no SUBSCRIBE takes its UNSUBSCRIBE along before."""

_ALL = [b"*"]
"""What a hint names where every field may have changed."""
_PING = hiredis.pack_command(("PING",))


class Hints:
    """Who waits for which channel, and the one connection that listens for all of them.

    Whoever comes and goes in the same moment is told to the server at once. `pool` is this room's own; `silence_seconds` is
    how long the line may be silent before it is tried by a PING.
    """

    def __init__(self, pool: BlockingConnectionPool, *, call_timeout_seconds: float, silence_seconds: float) -> None:
        self._pool = pool
        self._call_timeout = call_timeout_seconds
        self._silence = silence_seconds
        self._waiters: dict[bytes, dict[asyncio.Event, bytes | None]] = {}
        self._wanted = asyncio.Event()
        self._told: set[bytes] = set()
        """The channels that the line, while there is one, was told to listen to."""
        self._coming: dict[bytes, None] = {}
        self._leaving: dict[bytes, None] = {}
        self._untold = asyncio.Event()
        self._heard = False

    @contextmanager
    def of(self, channel: str, name: str | None = None) -> Iterator[asyncio.Event]:
        """Give an event that is set whenever the channel's state should be read (again), until the block is left.

        With `name`, writes that did not put this field set nothing.
        """
        key = channel.encode()
        wake = asyncio.Event()
        waiters = self._waiters.setdefault(key, {})
        waiters[wake] = None if name is None else name.encode()
        self._come(key)
        try:
            yield wake
        finally:
            del waiters[wake]
            if not waiters and self._waiters.get(key) is waiters:
                del self._waiters[key]
                self._leave(key)

    def _come(self, channel: bytes) -> None:
        # Also when others listen already: the confirmation wakes this waiter once.
        self._coming[channel] = None
        self._leaving.pop(channel, None)
        self._untold.set()
        self._wanted.set()

    def _leave(self, channel: bytes) -> None:
        self._coming.pop(channel, None)
        if channel in self._told:
            if not self._leaving:
                asyncio.get_running_loop().call_later(LEAVING_SECONDS, self._untold.set)
            self._leaving[channel] = None

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
        self._heard = False
        self._coming = dict.fromkeys(self._waiters)
        self._untold.set()
        telling = asyncio.create_task(self._tell(line), name="blackboard-hints-telling")
        try:
            while not telling.done():
                await self._hear(line)
        except (*NO_LINE, RedisError):
            if not self._heard:
                raise
        finally:
            telling.cancel()
            await asyncio.wait([telling])
            self._told.clear()
            self._leaving.clear()
            await line.disconnect(nowait=True)
            await self._pool.release(line)

    async def _tell(self, line: AbstractConnection) -> None:
        """Tell the server who has come and gone, again and again. When that fails the line is given up, which whoever hears it notices."""
        try:
            while True:
                await self._untold.wait()
                self._untold.clear()
                coming, leaving = tuple(self._coming), tuple(self._leaving)
                self._coming.clear()
                self._leaving.clear()
                self._told.update(coming)
                self._told.difference_update(leaving)
                told = (("UNSUBSCRIBE", leaving), ("SUBSCRIBE", coming))
                commands = [hiredis.pack_command((verb, *channels)) for verb, channels in told if channels]  # type: ignore[arg-type]  # its stub knows tuples of one item only
                if commands:
                    async with asyncio.timeout(self._call_timeout):
                        await line.send_packed_command(commands, check_health=False)
        except (*NO_LINE, RedisError):
            pass
        finally:
            await line.disconnect(nowait=True)

    async def _hear(self, line: AbstractConnection) -> None:
        """Take in what comes, until the line was silent for long: then it is asked for a sign of life."""
        loop = asyncio.get_running_loop()
        heard = loop.time()
        try:
            async with asyncio.timeout(self._silence) as limit:
                while True:
                    self._take_in(await self._read(line))
                    now = loop.time()
                    if now - heard > self._silence / 10:  # not for each: a timer costs as much as a hint
                        heard = now
                        limit.reschedule(now + self._silence)
        except TimeoutError:
            async with asyncio.timeout(self._call_timeout):
                await line.send_packed_command(_PING, check_health=False)
                self._take_in(await self._read(line))

    async def _read(self, line: AbstractConnection) -> list[bytes]:
        # A time limit may cut a read short: the bytes that came so far stay in the parser, the line stays good.
        message: list[bytes] = await line.read_response(disable_decoding=True, timeout=math.inf, disconnect_on_error=False)
        self._heard = True
        return message

    def _take_in(self, message: list[bytes]) -> None:
        if message[0] not in (b"message", b"subscribe"):
            return
        put = message[2].split(b"\0")[1:] if message[0] == b"message" else _ALL
        for wake, name in self._waiters.get(message[1], {}).items():
            if name is None or name in put or put == _ALL:
                wake.set()
