"""Handing messages in: one connection that is kept open, and publishes in flight together, each with a confirm of its own.

A publish ends within its deadline, in one of four ways: confirmed, unroutable, refused or not sent, or unknown. It never
sends twice: whether to ring again is the caller's decision, as a new message. Called by `ops.broker.rabbitmq`.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from typing import Any

import structlog
from aiormq import Channel, spec
from aiormq.abc import AbstractConnection
from aiormq.exceptions import ChannelInvalidStateError, DeliveryError, PublishError

from ops.broker.backoff import delays
from ops.broker.line import Server, cancelled_by_us, close, connected, opened, prepared, report_mismatch, told, why_closed
from ops.broker.topology import Queue
from schemas.errors import NotPermitted, OutcomeUnknown, Unavailable, Undeliverable, UnsafeServer
from schemas.messages import CONTENT_TYPE

FIRST_PAUSE_SECONDS = 0.1
STABLE_SECONDS = 10.0
"""A line that held this long starts over with short pauses."""
PERSISTENT = 2

log = structlog.get_logger(__name__)


@contextlib.contextmanager
def outcome(address: str) -> Iterator[None]:
    """Translate what became of one publish; see `schemas.broker.Broker.publish`."""
    try:
        yield
    except PublishError as error:
        raise Undeliverable(f"no queue takes a message to {address}") from error
    except DeliveryError as error:
        raise Unavailable(f"RabbitMQ refuses a message to {address}: its queue is full or not available") from error
    except ChannelInvalidStateError as error:  # raised before anything is sent
        raise Unavailable(f"the connection was lost before a message to {address} was sent") from error
    except asyncio.CancelledError as error:
        if cancelled_by_us():
            raise
        raise OutcomeUnknown(f"the connection was lost before the confirm of a message to {address}") from error
    except TimeoutError as error:
        raise OutcomeUnknown(f"no confirm of a message to {address} came in time") from error
    except Exception as error:
        if isinstance(error, TypeError | ValueError) and not isinstance(error, UnicodeDecodeError):
            raise  # it cannot be sent at all; a frame that cannot be decoded, however, breaks the line
        raise OutcomeUnknown(f"no confirm of a message to {address}: {told(error)}") from error


async def is_blocked(channel: Channel) -> bool:
    """Whether the broker has said that it takes nothing for now."""
    try:
        async with asyncio.timeout(0):
            await channel.connection.ready()
    except TimeoutError:
        return True
    return False


@dataclass(slots=True)
class _Line:
    """What one connection offers: publishing with a confirm, and without."""

    confirmed: Channel
    unconfirmed: Channel
    lost: asyncio.Event
    heard_at: float
    """When it last confirmed something, on the loop's clock."""


class Publisher:
    """The publishing side of one process."""

    def __init__(self, server: Server, random: Random) -> None:
        self._server = server
        self._random = random
        self._current: _Line | None = None
        self._open = asyncio.Event()
        self._tried = asyncio.Event()
        # Returned messages are matched by message id: two publishes in flight must never share one.
        self._ids = (f"{run}.{number}" for run in (uuid.uuid4().hex[:16],) for number in itertools.count())

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
        address, loop = f"{exchange} {key}", asyncio.get_running_loop()
        began = loop.time()
        deadline = began + self._server.call_timeout_seconds
        line = await self._line(address, deadline, waits=confirm)
        channel = line.confirmed if confirm else line.unconfirmed
        header = spec.Basic.Properties(
            delivery_mode=PERSISTENT, message_id=next(self._ids), **(properties or {"content_type": CONTENT_TYPE})
        )
        try:
            with outcome(address):
                async with asyncio.timeout_at(deadline):
                    await channel.basic_publish(body, exchange=exchange, routing_key=key, properties=header, mandatory=confirm, wait=False)
        except OutcomeUnknown:
            # Where nothing at all was confirmed for so long, and the broker has not said that it is blocked, the line is
            # dead, or as good as dead: the next publish goes over another one.
            if line.heard_at < began and not await is_blocked(channel):
                line.lost.set()
            raise
        except Undeliverable:
            line.heard_at = loop.time()
            raise
        if confirm:
            line.heard_at = loop.time()

    async def declare(self, *queues: Queue) -> None:
        """Declare queues with their bindings.

        Raises:
            UnsafeServer: one exists with other arguments.
            NotPermitted: one is missing that this user may not declare.
            Unavailable: not done within the deadline.
        """
        try:
            async with asyncio.timeout(self._server.call_timeout_seconds):
                await self._open.wait()
                assert self._current is not None  # set before `_open`
                await self._declare_on(self._current.confirmed.connection, *queues)
        except TimeoutError as error:
            raise Unavailable(f"queues not declared within {self._server.call_timeout_seconds:g} s") from error

    async def _line(self, address: str, deadline: float, *, waits: bool) -> _Line:
        if not waits and not self._open.is_set():
            raise Unavailable("RabbitMQ is not there, and an unconfirmed message does not wait for it")
        try:
            async with asyncio.timeout_at(deadline):
                await self._open.wait()
                assert self._current is not None  # set before `_open`
                # Under a memory or disk alarm the broker reads nothing from us: what is sent now would go out some day,
                # long after the caller was told that it is unknown.
                await self._current.confirmed.connection.ready()
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
            line = self._current = _Line(confirmed, unconfirmed, asyncio.Event(), asyncio.get_running_loop().time())
            for channel in (confirmed, unconfirmed):
                channel.closing.add_done_callback(lambda _: line.lost.set())
            self._open.set()
            self._tried.set()
            log.info("publishing_line_opened", prefix=self._server.topology.prefix)
            try:
                await line.lost.wait()
            finally:
                self._open.clear()
            closed = [channel for channel in (confirmed, unconfirmed) if channel.is_closed]
            raise Unavailable(why_closed(closed[0]) if closed else "it confirms nothing")

    async def _declare_on(self, connection: AbstractConnection, *queues: Queue) -> None:
        # A refusal closes the channel that it happened on, so this one is never one that publishes.
        await close(self._server, await prepared(self._server, connection, *queues))
