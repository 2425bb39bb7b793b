"""What breaks, and how each is mended again: a seeded draw of faults, each counted, at processes and servers side by side.

Every fault mends what it broke, also when the run is cut short in the middle of it.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from random import Random

import aio_pika
import redis.asyncio

from tests.chaos.history import History
from tests.chaos.world import LEASE_SECONDS, QUEUES, TOPOLOGY_PREFIX, World

QUORUM_SECONDS = 4.0
"""RabbitMQ 3.10 never brings a quorum queue back that it was killed with right after the declaration."""
MAXMEMORY = "1gb"
HIGH_WATERMARK = "0.6"

Fault = Callable[[], Awaitable[None]]


class Breaker:
    """Breaks things until it is told to stop."""

    def __init__(self, world: World, history: History, seed: int) -> None:
        self._world = world
        self._history = history
        self._random = Random(seed)
        self._declared_at = time.monotonic()
        self.happened: Counter[str] = Counter()
        self.kills = 0
        """Processes and servers that were ended by SIGKILL."""

    @property
    def processes(self) -> tuple[Fault, ...]:
        """Faults of our own processes."""
        return (self.worker_killed, self.orchestrator_killed, self.worker_stopped, self.orchestrator_stopped, self.worker_told_to_end)

    @property
    def servers(self) -> tuple[Fault, ...]:
        """Faults of servers and lines. The order is that of the first round: what takes longest to recover from comes first."""
        return (
            self.queues_deleted,
            self.redis_killed,
            self.rabbitmq_killed,
            self.rabbitmq_stopped,
            self.redis_full,
            self.rabbitmq_connections_closed,
            self.redis_clients_killed,
            self.rabbitmq_deaf_line,
            self.redis_deaf_line,
            self.rabbitmq_memory_alarm,
            self.redis_functions_lost,
            self.redis_paused,
        )

    async def run(self, faults: tuple[Fault, ...], pause_seconds: float, stop: asyncio.Event, *, shuffled: bool) -> None:
        """Break one thing after the other, each kind once in a round, until told to stop (never in the middle of a fault)."""
        while True:
            for fault in self._random.sample(faults, len(faults)) if shuffled else faults:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(stop.wait(), self._random.uniform(0.3, 1.7) * pause_seconds)
                if stop.is_set():
                    return
                name = fault.__name__
                self._history.note(name, "invoke")
                await fault()
                self.happened[name] += 1
                self._history.note(name, "ok")
            shuffled = True

    # Our own processes.

    async def worker_killed(self) -> None:
        """SIGKILL."""
        self._kill("worker")

    async def orchestrator_killed(self) -> None:
        """SIGKILL."""
        self._kill("orchestrator")

    def _kill(self, role: str) -> None:
        self.kills += self._random.choice(self._world.of(role)).send(signal.SIGKILL)

    async def worker_stopped(self) -> None:
        """SIGSTOP for longer than a lease, then SIGCONT."""
        await self._stop("worker")

    async def orchestrator_stopped(self) -> None:
        """SIGSTOP for longer than a lease, then SIGCONT."""
        await self._stop("orchestrator")

    async def _stop(self, role: str) -> None:
        one = self._random.choice(self._world.of(role))
        one.send(signal.SIGSTOP)
        try:
            await asyncio.sleep(LEASE_SECONDS * self._random.uniform(1.2, 2.0))
        finally:
            one.send(signal.SIGCONT)

    async def worker_told_to_end(self) -> None:
        """SIGTERM: it hands back what it cannot finish."""
        self._random.choice(self._world.of("worker")).send(signal.SIGTERM)

    # RabbitMQ.

    async def rabbitmq_stopped(self) -> None:
        """stop_app, start_app: the node lives on, the broker does not."""
        await self._quorum()
        await self._world.control("stop_app")
        try:
            await asyncio.sleep(self._random.uniform(0.2, 1.5))
        finally:
            await self._world.control("start_app")

    async def rabbitmq_killed(self) -> None:
        """SIGKILL, and a start on the same data."""
        await self._quorum()
        await asyncio.to_thread(self._world.rabbitmq.kill)
        self.kills += 1
        await asyncio.to_thread(self._world.rabbitmq.start)

    async def _quorum(self) -> None:
        await asyncio.sleep(max(0.0, self._declared_at + QUORUM_SECONDS - time.monotonic()))

    async def rabbitmq_connections_closed(self) -> None:
        """By an operator."""
        await self._world.control("close_all_connections", "chaos")

    async def rabbitmq_memory_alarm(self) -> None:
        """Nobody may publish for a while."""
        await self._world.control("set_vm_memory_high_watermark", "0.0000001")
        try:
            await asyncio.sleep(self._random.uniform(0.5, 3.0))
        finally:
            await self._world.control("set_vm_memory_high_watermark", HIGH_WATERMARK)

    async def queues_deleted(self) -> None:
        """All of ours, with all that is in them."""
        async with await aio_pika.connect(self._world.rabbitmq.url) as connection:
            channel = await connection.channel()
            for queue in QUEUES:
                await channel.queue_delete(f"{TOPOLOGY_PREFIX}.{queue}")
        self._declared_at = time.monotonic()

    async def rabbitmq_deaf_line(self) -> None:
        """What RabbitMQ says on the lines that are open now is lost for a while; then they break."""
        line = self._world.rabbitmq_line
        line.deafen()
        try:
            await asyncio.sleep(self._random.uniform(0.5, 3.0))
        finally:
            await line.cut()
            line.hear()

    # Redis.

    async def redis_killed(self) -> None:
        """SIGKILL, and a start from its append-only file."""
        await asyncio.to_thread(self._world.redis.kill)
        self.kills += 1
        await asyncio.sleep(self._random.uniform(0.0, 1.0))
        await asyncio.to_thread(self._world.redis.start)

    async def redis_paused(self) -> None:
        """SIGSTOP for longer than a lease."""
        self._world.redis.pause()
        try:
            await asyncio.sleep(LEASE_SECONDS * 1.3)
        finally:
            self._world.redis.resume()

    async def redis_clients_killed(self) -> None:
        """Every connection is closed by the server."""
        async with redis.asyncio.Redis.from_url(self._world.redis.url) as client:
            for kind in ("normal", "pubsub"):
                await client.client_kill_filter(_type=kind, skipme=True)

    async def redis_functions_lost(self) -> None:
        """The functions of the blackboard are gone."""
        async with redis.asyncio.Redis.from_url(self._world.redis.url) as client:
            await client.function_flush("SYNC")

    async def redis_full(self) -> None:
        """`maxmemory` is reached, then raised."""
        async with redis.asyncio.Redis.from_url(self._world.redis.url) as client:
            await client.config_set("maxmemory", "1")
            try:
                await asyncio.sleep(self._random.uniform(0.5, 2.0))
            finally:
                await client.config_set("maxmemory", MAXMEMORY)

    async def redis_deaf_line(self) -> None:
        """What Redis says on the lines that are open now is lost for a while; then they break."""
        line = self._world.redis_line
        line.deafen()
        try:
            await asyncio.sleep(self._random.uniform(0.5, 3.0))
        finally:
            await line.cut()
            line.hear()
