"""The wall to the AMQP driver: open a connection, open a channel, declare what the topology says, each within a deadline.

Whatever the driver raises leaves this room as an error of ours, the cancellations that it invents for a lost line
included. It never retries: publisher and consumers do. `aiormq` is the layer below aio-pika's objects; a message costs
a third less CPU there, and its connections end instead of mending themselves behind our back.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from urllib.parse import parse_qsl, urlencode, urlsplit

import aiormq
import structlog
from aiormq import Channel
from aiormq.abc import FieldTable
from aiormq.exceptions import ChannelAccessRefused, ChannelClosed, ChannelPreconditionFailed

from ops.broker.frames import Listener
from ops.broker.streams import Streams
from ops.broker.topology import KINDS, Queue, Topology
from schemas.errors import NotPermitted, Unavailable, UnsafeServer

HEARTBEAT_SECONDS = 10
"""A line on which nothing arrives for three of these is given up (unless the URL says another `heartbeat`)."""
FAREWELL_SECONDS = 0.5
"""How long a closing connection waits for the broker's answer; a dead line never gives one."""
CLOSE_SECONDS = 3.0

log = structlog.get_logger(__name__)


@dataclass(slots=True, eq=False)
class Server:
    """Where the broker is, how we name ourselves there, and how long one call may take."""

    url: str = field(repr=False)  # it holds a password
    topology: Topology
    instance: str
    call_timeout_seconds: float
    longest_pause_seconds: float
    """Between two tries to reach it."""
    may_declare: bool = field(default=False, init=False)
    """Whether the last declaration was not refused for want of rights."""


@contextlib.contextmanager
def translated(doing: str) -> Iterator[None]:
    """Raise `Unavailable` for whatever the driver raises; a cancellation of our own task passes.

    A call that waits when the line breaks gets the reason why it broke, whatever that is: a frame that cannot be decoded
    comes out of a declaration as `UnicodeDecodeError`. So nothing but driver calls belongs into the block.

    Raises:
        Unavailable: the line is lost, the broker refused, or a deadline has passed.
    """
    try:
        yield
    except asyncio.CancelledError as error:
        if cancelled_by_us():
            raise
        raise Unavailable(f"{doing}: the connection was lost") from error
    except Exception as error:  # a bare `Exception`, too, is the driver's word for a line that was closed
        raise Unavailable(f"{doing}: {told(error)}") from error


def cancelled_by_us() -> bool:
    """Whether somebody asked this task to end. The driver raises `CancelledError` for a lost line too."""
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0


def told(error: BaseException) -> str:
    """Return what an error of the driver says, or its name when it says nothing."""
    return str(error) or type(error).__name__


class Line(aiormq.Connection):
    """A connection of the driver's, over streams that let messages pass beside it."""

    def __init__(self, server: Server, role: str) -> None:
        self.streams = Streams()
        properties: FieldTable = {"connection_name": f"{server.instance} {role}"}
        super().__init__(with_heartbeat(server.url), transport_factory=self.streams, client_properties=properties)

    @property
    def blocked(self) -> bool:
        """Whether the broker has said that it takes nothing for now."""
        return self.streams.sorter.blocked

    def listen(self, channel: Channel, listener: Listener) -> None:
        """Hand the messages and confirms of a channel to `listener` until the channel is closed."""
        sorter, number = self.streams.sorter, channel.number
        sorter.listeners[number] = listener

        def forget(_: object) -> None:
            if sorter.listeners.get(number) is listener:
                sorter.forget(number)

        channel.closing.add_done_callback(forget)

    def send(self, frames: bytes) -> None:
        """Send frames of a message's way. What is written to a line that breaks is lost with it."""
        if self.streams.writer is not None and not self.is_closed:
            self.streams.writer.write(frames)

    async def flushed(self) -> None:
        """Return once what was sent has left this process, as far as the system takes it."""
        if self.streams.writer is not None:
            await self.streams.writer.drain()


async def connect(server: Server, role: str) -> Line:
    """Open a connection.

    Raises:
        Unavailable: it cannot be had within the deadline.
    """
    line = Line(server, role)
    line.READER_CLOSE_TIMEOUT = FAREWELL_SECONDS  # type: ignore[assignment] # the driver takes seconds in any number
    with translated("connecting to RabbitMQ"):
        async with asyncio.timeout(server.call_timeout_seconds):
            await line.connect()
    return line


async def disconnect(line: Line) -> None:
    """Close a connection, whatever state it is in."""
    with contextlib.suppress(Unavailable), translated("closing the connection"):
        async with asyncio.timeout(CLOSE_SECONDS):
            await line.close()


@contextlib.asynccontextmanager
async def connected(server: Server, role: str) -> AsyncIterator[Line]:
    """Open a connection; leaving the block closes it.

    Raises:
        Unavailable: it cannot be had within the deadline.
    """
    line = await connect(server, role)
    try:
        yield line
    finally:
        await disconnect(line)


async def opened(server: Server, connection: Line, *, confirms: bool = False) -> Channel:
    """Open a channel.

    Raises:
        Unavailable: the line is lost, or the deadline has passed.
    """
    with translated("opening a channel"):
        async with asyncio.timeout(server.call_timeout_seconds):
            channel = await connection.channel(publisher_confirms=confirms, on_return_raises=True)
    assert isinstance(channel, Channel)  # the driver's own class knows more than its abstract one says
    return channel


async def close(server: Server, channel: Channel) -> None:
    """Close a channel.

    Raises:
        Unavailable: the line is lost, or the deadline has passed.
    """
    with translated("closing a channel"):
        await channel.close(timeout=server.call_timeout_seconds)


async def declare(server: Server, channel: Channel, *queues: Queue) -> None:
    """Declare the exchanges, the queues and their bindings; all of it is idempotent.

    Raises:
        UnsafeServer: a queue or an exchange exists with other arguments; says which and how. The channel is closed.
        NotPermitted: this user may not declare. The channel is closed.
        Unavailable: the line is lost, or the deadline has passed.
    """
    topology, name = server.topology, "exchanges"
    try:
        with translated(f"declaring below {topology.prefix}"):
            async with asyncio.timeout(server.call_timeout_seconds):
                for exchange, kind in KINDS.items():
                    await channel.exchange_declare(topology.full(exchange), exchange_type=kind, durable=True)
                for queue in queues:
                    name = topology.full(queue.name)
                    await channel.queue_declare(name, durable=True, arguments={**queue.arguments})
                    for binding in queue.bindings:
                        await channel.queue_bind(name, topology.full(binding.exchange), binding.key)
                server.may_declare = True
    except Unavailable as error:
        if isinstance(error.__cause__, ChannelAccessRefused):
            server.may_declare = False
            raise NotPermitted(f"this user may not declare {name}") from error
        if isinstance(error.__cause__, ChannelPreconditionFailed):
            raise UnsafeServer(f"{name} exists with other arguments than this version declares: {error.__cause__}") from error
        raise


async def prepared(server: Server, connection: Line, *queues: Queue) -> Channel:
    """Open a channel and declare the queues. A user that may not declare needs them to be there already.

    Raises:
        UnsafeServer: a queue or an exchange exists with other arguments.
        NotPermitted: a queue is missing that this user may not declare.
        Unavailable: the line is lost, or the deadline has passed.
    """
    channel = await opened(server, connection)
    try:
        await declare(server, channel, *queues)
    except NotPermitted as error:
        channel = await opened(server, connection)
        for queue in queues:
            if not await is_declared(server, channel, queue.name):
                missing = server.topology.full(queue.name)
                raise NotPermitted(f"there is no queue {missing}, and this user may not declare it (docs/security.md)") from error
    return channel


async def is_declared(server: Server, channel: Channel, name: str) -> bool:
    """Whether a queue exists, by its name without the prefix; if not, the channel is closed."""
    try:
        with translated(f"looking for {name}"):
            async with asyncio.timeout(server.call_timeout_seconds):
                await channel.queue_declare(server.topology.full(name), passive=True)
    except Unavailable as error:
        if isinstance(error.__cause__, ChannelClosed):
            return False
        raise
    return True


async def waiting_in(server: Server, channel: Channel, name: str) -> int:
    """How many messages of a queue that exists wait for a consumer, by its name without the prefix."""
    with translated(f"looking into {name}"):
        async with asyncio.timeout(server.call_timeout_seconds):
            declared = await channel.queue_declare(server.topology.full(name), passive=True)
    return declared.message_count or 0


def report_mismatch(name: str, error: UnsafeServer) -> None:
    """Say that a queue exists with other arguments: it stays as it is until a person has looked."""
    log.error("queue_mismatched", queue=name, error=str(error))


def why_closed(channel: Channel) -> str:
    """Return why a closed channel was closed, in the broker's words where it said so."""
    closing = channel.closing
    if not closing.done() or closing.cancelled():
        return "the connection was lost"
    error = closing.exception()
    return told(error) if error is not None else "it was closed"


def with_heartbeat(url: str) -> str:
    """Return the URL with our heartbeat unless it names one."""
    parts = urlsplit(url)
    query = dict(parse_qsl(parts.query))
    return parts._replace(query=urlencode({"heartbeat": str(HEARTBEAT_SECONDS), **query})).geturl()
