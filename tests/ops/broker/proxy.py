"""A TCP line to a server that a test can cut, or on which the server's words get lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from urllib.parse import urlsplit


class Proxy:
    """Lines to the server at `url`, through a port of its own."""

    def __init__(self, url: str, port: int = 0) -> None:
        self._parts = urlsplit(url)
        self._port = port
        self._server: asyncio.Server | None = None
        self._lines: set[asyncio.Task[None]] = set()
        self._opened = 0
        self._deaf = 0

    @property
    def url(self) -> str:
        """Where clients go."""
        user = f"{self._parts.username}:{self._parts.password}@"
        return self._parts._replace(netloc=f"{user}127.0.0.1:{self._port}").geturl()

    async def listen(self) -> None:
        """Take connections from now on."""
        self._server = await asyncio.start_server(self._on_client, "127.0.0.1", self._port)
        self._port = self._server.sockets[0].getsockname()[1]

    def deafen(self) -> None:
        """Throw away what the server says on every line that is open now, and on none that is opened later."""
        self._deaf = self._opened

    def hear(self) -> None:
        """Let through again what the server says."""
        self._deaf = 0

    async def cut(self) -> None:
        """Break every line."""
        for line in list(self._lines):
            line.cancel()
        await asyncio.gather(*self._lines, return_exceptions=True)

    async def close(self) -> None:
        """Break every line and take no more."""
        if self._server is not None:
            self._server.close()
        await self.cut()

    async def _on_client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._lines.add(task)
        try:
            with suppress(asyncio.CancelledError):
                try:
                    await self._join(reader, writer)
                except* OSError:  # the server is away, or one end has reset the line
                    pass
        finally:
            self._lines.discard(task)

    async def _join(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._opened += 1
        number = self._opened
        try:
            far_reader, far_writer = await asyncio.open_connection(self._parts.hostname, self._parts.port or 5672)
            try:
                async with asyncio.TaskGroup() as group:
                    group.create_task(self._pump(reader, far_writer))
                    group.create_task(self._pump(far_reader, writer, line=number))
            finally:
                far_writer.transport.abort()
        finally:
            writer.transport.abort()

    async def _pump(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, *, line: int | None = None) -> None:
        while data := await source.read(65536):
            if line is None or line > self._deaf:
                sink.write(data)
                await sink.drain()
        sink.close()


@asynccontextmanager
async def proxied(url: str) -> AsyncIterator[Proxy]:
    """A listening proxy."""
    proxy = Proxy(url)
    await proxy.listen()
    try:
        yield proxy
    finally:
        await proxy.close()
