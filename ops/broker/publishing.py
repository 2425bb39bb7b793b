"""Handing messages in: one connection that is kept open, and publishes in flight together, each with a confirm of its own.

A publish ends within its deadline, in one of four ways: confirmed, unroutable, refused or not sent, or unknown. It never
sends twice: whether to ring again is the caller's decision, as a new message. Called by `ops.broker.rabbitmq`.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from dataclasses import dataclass
from random import Random
from typing import Any

import structlog
from aiormq import Channel

from ops.broker.backoff import delays
from ops.broker.confirming import Confirms
from ops.broker.frames import other_properties, publication, usual_properties
from ops.broker.line import Line, Server, close, connected, opened, prepared, report_mismatch, waiting_in, why_closed
from ops.broker.topology import Queue
from schemas.errors import NotPermitted, Unavailable, UnsafeServer
from schemas.ids import new_id
from schemas.messages import CONTENT_TYPE

FIRST_PAUSE_SECONDS = 0.1
STABLE_SECONDS = 10.0
"""A line that held this long starts over with short pauses."""

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class _Lines:
    """What one connection offers: publishing with a confirm, and without."""

    line: Line
    confirms: Confirms
    unconfirmed: Channel
    lost: asyncio.Event

    def gone_silent(self, since: float) -> None:
        """Give the line up on which nothing at all was confirmed for so long, unless the broker has said that it is blocked.

        It is dead, or as good as dead: the next publish goes over another one.
        """
        if self.confirms.heard_at < since and not self.line.blocked:
            self.lost.set()


class Publisher:
    """The publishing side of one process."""

    def __init__(self, server: Server, random: Random) -> None:
        self._server = server
        self._random = random
        self._current: _Lines | None = None
        self._open = asyncio.Event()
        self._tried = asyncio.Event()
        # Returned messages are matched by message id: two publishes in flight must never share one.
        self._ids = (f"{run}.{number}" for run in (new_id()[:16],) for number in itertools.count())

    async def run(self) -> None:
        """Keep a connection open for ever."""
        pauses = delays(FIRST_PAUSE_SECONDS, self._server.longest_pause_seconds, self._random)
        while True:
            began = asyncio.get_running_loop().time()
            try:
                await self._one_connection()
            except Unavailable as error:
                log.warning("publishing_line_lost", error=str(error))
            self._tried.set()
            if asyncio.get_running_loop().time() - began > STABLE_SECONDS:
                pauses = delays(FIRST_PAUSE_SECONDS, self._server.longest_pause_seconds, self._random)
            await asyncio.sleep(next(pauses))

    async def tried(self) -> None:
        """Return once the first try to connect has ended, well or badly, or the deadline has passed."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._server.call_timeout_seconds):
                await self._tried.wait()

    async def publish(
        self, exchange: str, key: str, body: bytes, *, confirm: bool = True, properties: dict[str, Any] | None = None
    ) -> None:
        """Hand one body in; see `schemas.broker.Broker.publish` for what is raised when."""
        until = asyncio.get_running_loop().time() + self._server.call_timeout_seconds
        lines = self._current
        if lines is None or not self._open.is_set() or lines.line.blocked:
            lines = await self._lines(f"{exchange} {key}", until, waits=confirm)
        message_id = next(self._ids)
        marshalled = usual_properties(CONTENT_TYPE, message_id) if properties is None else other_properties(message_id, properties)
        if confirm:
            await lines.confirms.publish(exchange, key, message_id, marshalled, body, until=until)
        else:
            line, channel = lines.line, lines.unconfirmed
            frame_max = line.connection_tune.frame_max
            line.send(publication(channel.number, exchange, key, marshalled, body, mandatory=False, frame_max=frame_max))

    async def declare(self, *queues: Queue) -> int:
        """Declare queues with their bindings, and return how many messages wait in the last one.

        Raises:
            UnsafeServer: one exists with other arguments.
            NotPermitted: one is missing that this user may not declare.
            Unavailable: not done within the deadline.
        """
        try:
            async with asyncio.timeout(self._server.call_timeout_seconds):
                await self._open.wait()
                assert self._current is not None  # set before `_open`
                return await self._declare_on(self._current.line, *queues)
        except TimeoutError as error:
            raise Unavailable(f"queues not declared within {self._server.call_timeout_seconds:g} s") from error

    async def _lines(self, address: str, until: float, *, waits: bool) -> _Lines:
        if not waits and not self._open.is_set():
            raise Unavailable("RabbitMQ is not there, and an unconfirmed message does not wait for it")
        try:
            async with asyncio.timeout_at(until):
                await self._open.wait()
                assert self._current is not None  # set before `_open`
                # Under a memory or disk alarm the broker reads nothing from us: what is sent now would go out some day,
                # long after the caller was told that it is unknown.
                await self._current.line.ready()
                return self._current
        except TimeoutError as error:
            raise Unavailable(f"RabbitMQ takes no message to {address} ({self._server.call_timeout_seconds:g} s)") from error

    async def _one_connection(self) -> None:
        async with connected(self._server, "publishing") as connection:
            for queue in self._server.topology.fixed:  # one by one: a queue with other arguments must not stop the others
                try:
                    await self._declare_on(connection, queue)
                except UnsafeServer as error:
                    report_mismatch(queue.name, error)
                except NotPermitted as error:  # others declare; what cannot be handed in for want of a queue says so
                    log.warning("queue_missing", reason=str(error))
            confirmed = await opened(self._server, connection, confirms=True)
            unconfirmed = await opened(self._server, connection)
            confirms = Confirms(connection, confirmed, silent=lambda since: lines.gone_silent(since))
            lines = self._current = _Lines(connection, confirms, unconfirmed, asyncio.Event())
            for channel in (confirmed, unconfirmed):
                channel.closing.add_done_callback(lambda _: lines.lost.set())
            self._open.set()
            self._tried.set()
            log.info("publishing_line_opened", prefix=self._server.topology.prefix)
            try:
                await lines.lost.wait()
            finally:
                self._open.clear()
            closed = [channel for channel in (confirmed, unconfirmed) if channel.is_closed]
            raise Unavailable(why_closed(closed[0]) if closed else "it confirms nothing")

    async def _declare_on(self, connection: Line, *queues: Queue) -> int:
        # A refusal closes the channel that it happened on, so this one is never one that publishes.
        channel = await prepared(self._server, connection, *queues)
        waiting = await waiting_in(self._server, channel, queues[-1].name)
        await close(self._server, channel)
        return waiting
