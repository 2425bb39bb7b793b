"""One way to look into either broker from outside, and to do to it what no port call does."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import aiormq
from aiormq import spec

from ops.broker.memory import MemoryBroker
from ops.broker.rabbitmq import REASON_HEADER, RabbitMQBroker
from ops.broker.topology import Topology
from schemas.broker import Broker, Delivery, Handler
from schemas.messages import AgentMessage, MessageType, message

AGENT = "iot"
TASKS = "tasks.iot"


def task(content: str = "", *, agent: str = AGENT) -> AgentMessage:
    """A TASK to an agent, told apart by its content."""
    return message(MessageType.TASK, "r1", sender="orchestrator", recipient=agent, step_id="s1", content=content)


async def eventually(check: Callable[[], Awaitable[bool]], *, seconds: float = 5.0) -> None:
    """Return once what a server shows is as it should be; it tells nobody, so it is asked again and again."""
    async with asyncio.timeout(seconds):
        while not await check():  # noqa: ASYNC110 - what is asked lies in a server, which sends no event
            await asyncio.sleep(0.02)


class Taken:
    """A handler that keeps what it gets until the test settles it."""

    def __init__(self) -> None:
        self.deliveries: asyncio.Queue[Delivery] = asyncio.Queue()
        self._over: dict[str, asyncio.Event] = {}

    async def __call__(self, delivery: Delivery) -> None:
        over = self._over.setdefault(delivery.message.id, asyncio.Event())
        self.deliveries.put_nowait(delivery)
        await over.wait()

    async def next(self, seconds: float = 5.0) -> Delivery:
        """The next delivery."""
        return await asyncio.wait_for(self.deliveries.get(), seconds)

    async def ack(self, delivery: Delivery) -> None:
        """Settle it and let its handler return."""
        await delivery.ack()
        self._over[delivery.message.id].set()

    def nothing(self) -> bool:
        """Whether nothing more has come."""
        return self.deliveries.empty()


class Seen:
    """A handler that acks at once and keeps the messages."""

    def __init__(self) -> None:
        self.messages: asyncio.Queue[AgentMessage] = asyncio.Queue()
        self.redelivered: list[bool] = []

    async def __call__(self, delivery: Delivery) -> None:
        self.redelivered.append(delivery.redelivered)
        await delivery.ack()
        self.messages.put_nowait(delivery.message)

    async def next(self, seconds: float = 5.0) -> AgentMessage:
        """The next message."""
        return await asyncio.wait_for(self.messages.get(), seconds)

    async def contents(self, count: int, seconds: float = 10.0) -> list[str]:
        """The contents of the next `count` messages."""
        async with asyncio.timeout(seconds):
            return [(await self.messages.get()).content for _ in range(count)]


class Bench(ABC):
    """A broker under test, seen from outside."""

    broker: Broker

    @abstractmethod
    async def depth(self, queue: str) -> int:
        """How many messages wait there."""

    @abstractmethod
    async def bodies(self, queue: str) -> list[bytes]:
        """What waits there; it stays."""

    @abstractmethod
    async def reasons(self, queue: str) -> list[str]:
        """Why each message was parked there."""

    @abstractmethod
    async def put(self, queue: str, body: bytes) -> None:
        """Store any bytes there, as a foreign publisher might."""

    @abstractmethod
    async def delete(self, queue: str) -> None:
        """Delete the queue with all that is in it."""

    async def has(self, queue: str, count: int, seconds: float = 5.0) -> None:
        """Return once exactly `count` messages wait there."""

        async def fits() -> bool:
            return await self.depth(queue) == count

        await eventually(fits, seconds=seconds)

    async def drained(self, handler: Handler, queue: str, count: int) -> None:
        """Consume the queue until `count` deliveries were settled and nothing waits."""
        settled = asyncio.Semaphore(0)

        async def counting(delivery: Delivery) -> None:
            try:
                await handler(delivery)
            finally:
                settled.release()

        async with self.broker.consume(queue, counting, prefetch=10):
            for _ in range(count):
                await asyncio.wait_for(settled.acquire(), 10)
            await self.has(queue, 0)


class MemoryBench(Bench):
    """Over the broker in memory."""

    def __init__(self, broker: MemoryBroker) -> None:
        self.broker = self.memory = broker

    async def depth(self, queue: str) -> int:
        return self.memory.depth(queue)

    async def bodies(self, queue: str) -> list[bytes]:
        return self.memory.bodies(queue)

    async def reasons(self, queue: str) -> list[str]:
        return self.memory.reasons(queue)

    async def put(self, queue: str, body: bytes) -> None:
        self.memory.put(queue, body)

    async def delete(self, queue: str) -> None:
        self.memory.delete(queue)


class RabbitMQBench(Bench):
    """Over a RabbitMQ, by a connection that is not the broker's."""

    def __init__(self, broker: RabbitMQBroker, connection: aiormq.Connection, topology: Topology) -> None:
        self.broker = self.rabbitmq = broker
        self.connection = connection
        self.topology = topology

    async def channel(self) -> aiormq.Channel:
        """A channel of the bench's own."""
        channel = await self.connection.channel()
        assert isinstance(channel, aiormq.Channel)
        return channel

    async def depth(self, queue: str) -> int:
        channel = await self.channel()
        found = await channel.queue_declare(self.topology.full(queue), passive=True)
        await channel.close()
        return found.message_count or 0

    async def bodies(self, queue: str) -> list[bytes]:
        return [body for body, _ in await self._peek(queue)]

    async def reasons(self, queue: str) -> list[str]:
        return [reason for _, reason in await self._peek(queue)]

    async def _peek(self, queue: str) -> list[tuple[bytes, str]]:
        channel = await self.channel()
        found: list[tuple[bytes, str]] = []
        while not isinstance((got := await channel.basic_get(self.topology.full(queue))).delivery, spec.Basic.GetEmpty):
            headers = got.header.properties.headers or {}
            found.append((got.body, str(headers.get(REASON_HEADER, ""))))
        await channel.close()  # which gives back what was looked at
        return found

    async def put(self, queue: str, body: bytes) -> None:
        channel = await self.channel()
        await channel.basic_publish(body, routing_key=self.topology.full(queue), mandatory=True)
        await channel.close()

    async def delete(self, queue: str) -> None:
        channel = await self.channel()
        await channel.queue_delete(self.topology.full(queue))
        await channel.close()


@asynccontextmanager
async def memory_bench() -> AsyncIterator[MemoryBench]:
    """A broker in memory with the queues of one agent."""
    async with MemoryBroker() as broker:
        await broker.declare_agent(AGENT)
        yield MemoryBench(broker)


@asynccontextmanager
async def rabbitmq_bench(url: str, prefix: str, **options: float) -> AsyncIterator[RabbitMQBench]:
    """A broker over RabbitMQ with the queues of one agent, deleted at the end with all others below the prefix."""
    topology = Topology(prefix)
    connection = await aiormq.connect(url)
    try:
        async with RabbitMQBroker(url, prefix=prefix, instance="test", **options) as broker:
            await broker.declare_agent(AGENT)
            bench = RabbitMQBench(broker, connection, topology)
            yield bench
        for queue in (*topology.fixed, *topology.of_agent(AGENT)):
            await bench.delete(queue.name)
    finally:
        await connection.close()
