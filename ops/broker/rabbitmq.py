"""The broker port over RabbitMQ: persistent messages, publisher confirms, mandatory routing, manual acks, quorum queues.

The broker is the doorbell: what is lost here is rung again from the blackboard. So this room promises deadlines and true
outcomes rather than delivery at any price: it keeps no message in memory for a broker that is not there. Built by the
wiring; orchestrator and workers know only `schemas.broker.Broker`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from random import Random
from types import TracebackType
from typing import Any, Self

import structlog

from ops.broker.background import background
from ops.broker.consuming import RabbitMQConsumer
from ops.broker.dispatching import Dispatcher
from ops.broker.frames import Delivered
from ops.broker.line import Server
from ops.broker.publishing import Publisher
from ops.broker.sharing import SharedLine
from ops.broker.topology import DEFAULT_PREFIX, UNREADABLE, Topology, takes
from schemas.broker import Address, Consumer, Handler
from schemas.errors import NotPermitted, Unavailable, Undeliverable
from schemas.messages import AgentMessage, to_wire

REASON_HEADER = "x-briefline-reason"
QUEUE_HEADER = "x-briefline-queue"
MAX_KEPT_HEADERS = 16
MAX_KEPT_CHARACTERS = 1000

log = structlog.get_logger(__name__)


class RabbitMQBroker:
    """A process's broker, open inside `async with`.

    `prefix` begins every name, `instance` names this process in RabbitMQ's lists, `call_timeout_seconds` is the deadline
    of every call, and `longest_pause_seconds` bounds the pauses between two tries to reach a broker that is away.

    Entering waits until the first try to connect has ended, and does not fail without a broker: processes start in any
    order, and every call says for itself that it is unavailable.
    """

    def __init__(
        self,
        url: str,
        *,
        prefix: str = DEFAULT_PREFIX,
        instance: str = "briefline",
        call_timeout_seconds: float = 5.0,
        longest_pause_seconds: float = 2.0,
    ) -> None:
        self._topology = Topology(prefix)
        self._server = Server(url, self._topology, instance, call_timeout_seconds, longest_pause_seconds)
        self._random = Random()
        self._publisher = Publisher(self._server, self._random)
        self._consuming = SharedLine(self._server, "consuming")
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            tasks = await stack.enter_async_context(background())
            tasks.start(self._publisher.run())
            await self._publisher.tried()
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> bool | None:
        return await self._stack.__aexit__(kind, error, trace)

    async def publish(self, address: Address, bell: AgentMessage, *, confirm: bool = True) -> None:
        """Hand a message in; see `schemas.broker.Broker.publish`."""
        body = to_wire(bell)
        try:
            await self._publisher.publish(self._topology.full(address.exchange), address.key, body, confirm=confirm)
        except Undeliverable:
            if not await self._restored(address):
                raise
            await self._publisher.publish(self._topology.full(address.exchange), address.key, body)

    @property
    def may_ring_tasks(self) -> bool:
        """Whether this user may declare what is below the prefix: then it has all rights there, and no other one was set up for workers."""
        return self._server.may_declare

    async def declare_agent(self, agent: str) -> int:
        """Make sure that an agent's queues exist, and return how many TASKs wait there that nobody has.

        Raises:
            UnsafeServer: one exists with other arguments.
            Unavailable: the broker is not there, or one is missing that this user may not declare.
        """
        try:
            return await self._publisher.declare(*self._topology.of_agent(agent))
        except NotPermitted as error:
            raise Unavailable(str(error)) from error

    @asynccontextmanager
    async def consume(self, queue: str, handler: Handler, *, prefetch: int) -> AsyncIterator[Consumer]:
        """Hand out a queue's messages to `handler`; see `schemas.broker.Broker.consume`.

        Entering returns once the broker knows the consumer, or the first try has failed or taken too long: the consumer
        then goes on trying, and `consuming` says how it is. Leaving cancels the handlers that still run.

        Raises:
            InvalidValue: there is no such queue.
        """
        declaration = self._topology.queue(queue)

        async def park(message: Delivered, reason: str) -> None:
            await self._park(message, reason, queue)

        async with background() as lines, background() as handling:
            consumer = RabbitMQConsumer(
                self._server,
                self._consuming,
                declaration,
                Dispatcher(queue, handler, self._random),
                handling,
                park,
                prefetch=prefetch,
                random=self._random,
            )
            lines.start(consumer.run())
            try:
                await consumer.tried()
                yield consumer
            finally:
                consumer.refuse()

    async def _park(self, message: Delivered, reason: str, queue: str) -> None:
        exchange, key = self._topology.full(UNREADABLE.exchange), UNREADABLE.key
        properties = _kept(message) | {"headers": _kept_headers(message) | {REASON_HEADER: reason, QUEUE_HEADER: queue}}
        try:
            await self._publisher.publish(exchange, key, message.body, properties=properties)
        except Undeliverable:
            if not await self._restored(UNREADABLE):
                raise
            await self._publisher.publish(exchange, key, message.body, properties=properties)

    async def _restored(self, address: Address) -> bool:
        """Declare again what the fixed topology has for this address, in case that somebody deleted it; whether it has anything."""
        missing = [queue for queue in self._topology.fixed if any(takes(binding, address) for binding in queue.bindings)]
        if missing:
            try:
                await self._publisher.declare(*missing)
            except NotPermitted as error:
                log.warning("queue_missing", reason=str(error))
                return False
        return bool(missing)


def _kept(message: Delivered) -> dict[str, Any]:
    """The properties that say what the body is; never the message id, which must be new for every publish."""
    names = ("content_type", "content_encoding", "message_type", "correlation_id")
    properties = message.properties()
    return {name: value for name in names if (value := getattr(properties, name, None))}


def _kept_headers(message: Delivered) -> dict[str, Any]:
    """Short texts and small numbers only: other headers can be received, and yet not be sent without risk to the line."""
    headers = message.properties().headers or {}
    kept = {
        key: value
        for key, value in headers.items()
        if (isinstance(value, bool | int) and abs(value) < 2**31) or (isinstance(value, str) and len(value) <= MAX_KEPT_CHARACTERS)
    }
    return dict(list(kept.items())[:MAX_KEPT_HEADERS])
