"""A line to a server on which the client's words get lost: what it sends is taken, and never arrives."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.ops.broker.proxy import Proxy

BASIC_ACK = b"\x00\x3c\x00\x50"
"""How the frame of an acknowledgement begins, behind its size: class 60, method 80."""


class MutableProxy(Proxy):
    """A proxy that can also throw away what its clients say, on every line."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self._muted = False
        self._lost = b""
        self._more = asyncio.Condition()

    def mute(self) -> None:
        """Throw away from now on what clients say."""
        self._muted = True

    async def speak(self) -> None:
        """Break every line that has lost something, and let the next ones through."""
        self._muted = False
        await self.cut()

    async def lost(self, words: bytes) -> None:
        """Return once these bytes were thrown away."""
        async with self._more:
            await self._more.wait_for(lambda: words in self._lost)

    async def _pump(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, *, line: int | None = None) -> None:
        if line is not None:
            return await super()._pump(source, sink, line=line)
        while data := await source.read(65536):
            if self._muted:
                async with self._more:
                    self._lost += data
                    self._more.notify_all()
            else:
                sink.write(data)
                await sink.drain()
        sink.close()
        return None


@asynccontextmanager
async def muted(url: str) -> AsyncIterator[MutableProxy]:
    """A listening proxy."""
    proxy = MutableProxy(url)
    await proxy.listen()
    try:
        yield proxy
    finally:
        await proxy.close()
