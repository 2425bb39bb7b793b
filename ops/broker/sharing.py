"""The one connection on which a process consumes: every queue has a channel of its own on it.

One socket carries all that comes in and all acknowledgements: what is ready together is read, and leaves, in one call of
the system. A refused declaration ends the channel that it happens on, and a frame that nobody can read is looked at only
where its message is parked, so no queue starves another one. Called by `ops.broker.consuming`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiormq import Channel

from ops.broker.line import Line, Server, close, connect, disconnect
from schemas.errors import Unavailable


class SharedLine:
    """A connection that is open as long as somebody uses it."""

    def __init__(self, server: Server, role: str) -> None:
        self._server = server
        self._role = role
        self._line: Line | None = None
        self._users: dict[Line, int] = {}
        self._opening = asyncio.Lock()
        self._tries = 0
        self._trouble = ""

    @asynccontextmanager
    async def used(self) -> AsyncIterator[Line]:
        """Give the connection, opened if need be.

        Raises:
            Unavailable: it cannot be had within the deadline.
        """
        line = await self._open()
        self._users[line] += 1
        try:
            yield line
        finally:
            await self._left(line)

    async def give_back(self, line: Line, channel: Channel) -> None:
        """Close a channel, so that what is unsettled on it goes back. A connection on which even that gets no answer is given up."""
        if channel.is_closed or line.is_closed:
            return
        try:
            await close(self._server, channel)
        except Unavailable:
            if self._line is line:
                self._line = None
            await disconnect(line)

    async def _open(self) -> Line:
        seen = self._tries
        async with self._opening:
            if self._line is None or self._line.is_closed:
                if self._tries != seen:  # who waited here while another one tried would only fail again
                    raise Unavailable(self._trouble)
                self._line = None
                try:
                    self._line = await connect(self._server, self._role)
                except Unavailable as error:
                    self._tries += 1
                    self._trouble = str(error)
                    raise
                self._users[self._line] = 0
            return self._line

    async def _left(self, line: Line) -> None:
        self._users[line] -= 1
        if not self._users[line]:
            del self._users[line]
            if self._line is line:
                self._line = None
            await disconnect(line)
