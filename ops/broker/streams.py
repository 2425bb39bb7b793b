"""The streams between the driver and its socket: messages and confirms are taken out on the way in, and writes gathered on the way out.

What is written in one turn of the loop leaves in one call of the system. Called by `ops.broker.line`, through the driver's
transport factory.
"""

from __future__ import annotations

import asyncio
from typing import Any

from aiormq.connection import TransportFactory
from aiormq.exceptions import AMQPConnectionError
from yarl import URL

from ops.broker.frames import HEARTBEAT_FRAME, Sorter

SIGN_OF_LIFE_SECONDS = 1.0
"""The driver counts heartbeats, and a broker sends none while it sends messages: so often it is told that the line lives."""


class _Incoming(asyncio.StreamReaderProtocol):
    """What the socket hands over: sorted, and the driver's part of it passed on."""

    def __init__(self, reader: asyncio.StreamReader, loop: asyncio.AbstractEventLoop, sorter: Sorter) -> None:
        super().__init__(reader, loop=loop)
        self._sort = sorter.sort
        self._clock = loop.time
        self._told = loop.time()

    def data_received(self, data: bytes) -> None:
        """Sort what came. Where the driver gets nothing of it, it gets a sign of life now and then."""
        passed = self._sort(data)
        if not passed:
            now = self._clock()
            if now - self._told < SIGN_OF_LIFE_SECONDS:
                return
            self._told, passed = now, HEARTBEAT_FRAME
        super().data_received(passed)


class GatheringWriter(asyncio.StreamWriter):
    """A stream writer that keeps what is written until the loop has run what is ready now."""

    def __init__(
        self,
        transport: asyncio.WriteTransport,
        protocol: asyncio.StreamReaderProtocol,
        reader: asyncio.StreamReader,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        super().__init__(transport, protocol, reader, loop)
        self._later = loop.call_soon
        self._kept: list[bytes | bytearray | memoryview] = []

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Keep the bytes; they leave in their order, in this turn of the loop or the next."""
        if not self._kept:
            self._later(self._send)
        self._kept.append(data)

    def write_eof(self) -> None:
        """Send what is kept, then close the writing end."""
        self._send()
        super().write_eof()

    def close(self) -> None:
        """Send what is kept, then close."""
        self._send()
        super().close()

    async def drain(self) -> None:
        """Send what is kept, and wait while the other side takes nothing."""
        self._send()
        await super().drain()

    def _send(self) -> None:
        if self._kept:
            kept, self._kept = self._kept, []
            if not self.is_closing():  # a line that was lost meanwhile: what was to leave by it is lost with it
                super().write(b"".join(kept))


class Streams(TransportFactory):
    """Opens the streams of one connection for the driver, and keeps what publisher and consumers need of them."""

    def __init__(self) -> None:
        self.sorter = Sorter()
        self.writer: GatheringWriter | None = None

    async def create(self, url: URL, **options: Any) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connect, with TLS where the URL asks for it: the driver passes along what it knows of that."""
        context = await options["ssl_context_provider"].get_context() if url.scheme == "amqps" else None
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(loop=loop)
        protocol = _Incoming(reader, loop, self.sorter)
        try:
            transport, _ = await loop.create_connection(lambda: protocol, url.host or "localhost", url.port or 5672, ssl=context)
        except OSError as error:
            raise AMQPConnectionError(*error.args) from error
        self.writer = GatheringWriter(transport, protocol, reader, loop)
        return reader, self.writer
