"""What is written in one turn of the loop leaves in one piece, in its order, and not by a line that is gone."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import uvloop

from ops.broker.streams import GatheringWriter


@asynccontextmanager
async def line() -> AsyncIterator[tuple[GatheringWriter, asyncio.StreamReader, asyncio.StreamWriter]]:
    """A writer of ours, and what the other end reads and writes."""
    accepted: asyncio.Queue[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = asyncio.Queue()
    server = await asyncio.start_server(lambda *streams: accepted.put_nowait(streams), "127.0.0.1")
    loop, reader = asyncio.get_running_loop(), asyncio.StreamReader()
    protocol = asyncio.StreamReaderProtocol(reader)
    transport, _ = await loop.create_connection(lambda: protocol, *server.sockets[0].getsockname())
    far_reader, far_writer = await accepted.get()
    writer = GatheringWriter(transport, protocol, reader, loop)
    try:
        yield writer, far_reader, far_writer
    finally:
        writer.close()
        far_writer.close()
        server.close()


async def test_what_is_written_in_one_turn_leaves_together_and_in_order() -> None:
    async with line() as (writer, far, _):
        for part in (b"a", b"b", b"c"):
            writer.write(part)
        assert await far.read(100) == b"abc"
        writer.write(b"d")
        await writer.drain()
        writer.write(b"e")
        writer.close()
        assert await far.read() == b"de"


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
def test_what_was_to_leave_by_a_line_that_broke_is_lost_without_a_word(run: object, caplog: pytest.LogCaptureFixture) -> None:
    async def write_to_a_broken_line() -> None:
        async with line() as (writer, far, _):
            writer.transport.abort()
            assert await far.read() == b""
            writer.write(b"too late")
            for _ in range(3):
                await asyncio.sleep(0)

    with caplog.at_level(logging.WARNING):
        assert callable(run)
        run(write_to_a_broken_line())
    assert not caplog.records
