"""What is broken: a RabbitMQ and a Redis of the run's own, lines that can be cut, and processes that are started anew.

Every second process reaches the servers through a proxy, so that a line can be cut in one direction while others go on.
"""

from __future__ import annotations

import asyncio
import signal
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from tests.crash import teams
from tests.crash.lanes import environment
from tests.crash.nursery import Child, Nursery, nursery
from tests.ops.broker.proxy import Proxy, proxied
from tests.support.servers import OwnRabbitMQ, OwnRedis

LEASE_SECONDS = 2.0
PAUSE_SECONDS = 0.3
"""Before a process that ended is started anew."""
KEY_PREFIX = "briefline-chaos"
TOPOLOGY_PREFIX = "briefline.chaos"
QUEUES = (f"tasks.{teams.AGENT}", f"dead.{teams.AGENT}", "results", "commands", "dead.broker", "dead.unreadable")


@dataclass
class Kept:
    """One process that is kept running."""

    role: str
    name: str
    environment: dict[str, str]
    child: Child | None = None
    starts: int = 0
    ends: Counter[int] = field(default_factory=Counter)
    """Exit code -> how often."""

    def send(self, sign: signal.Signals) -> bool:
        """Send it a signal, and say whether there was a process to get it."""
        if self.child is None or not self.child.runs:
            return False
        self.child.send(sign)
        return True

    async def keep(self, forks: Nursery) -> None:
        """Start it, and again whenever it ends."""
        while True:
            self.child = await forks.start(self.role, environment=self.environment)
            self.starts += 1
            self.ends[await asyncio.shield(self.child.ended)] += 1
            await asyncio.sleep(PAUSE_SECONDS)


@dataclass
class World:
    """Servers, lines and processes of one run."""

    redis: OwnRedis
    rabbitmq: OwnRabbitMQ
    redis_line: Proxy
    rabbitmq_line: Proxy
    processes: list[Kept]

    def of(self, role: str) -> list[Kept]:
        """The processes of one role."""
        return [each for each in self.processes if each.role == role]

    async def control(self, *arguments: str) -> str:
        """Run rabbitmqctl beside the loop."""
        return await asyncio.to_thread(self.rabbitmq.control, *arguments)


@asynccontextmanager
async def world(folder: Path, *, orchestrators: int = 2, workers: int = 4) -> AsyncIterator[World]:
    """A world whose processes run until the context is left.

    Redis flushes each write before it answers: that is the setting under which a kill of it loses nothing.
    """
    async with AsyncExitStack() as stack:
        redis = await stack.enter_async_context(OwnRedis(folder / "redis", options={"appendfsync": "always"}))
        rabbitmq = await stack.enter_async_context(OwnRabbitMQ(folder / "rabbitmq"))
        rabbitmq_line = await stack.enter_async_context(proxied(rabbitmq.url))
        redis_line = await stack.enter_async_context(proxied(redis.url))
        forks = await stack.enter_async_context(nursery(folder / "children"))
        far = urlsplit(rabbitmq.url)._replace(netloc=f"guest:guest@127.0.0.1:{_port(rabbitmq_line)}").geturl()
        farther = f"redis://127.0.0.1:{_port(redis_line)}/0"
        processes = [
            Kept(role, f"{role} {number}", _environment(*((farther, far) if number % 2 else (redis.url, rabbitmq.url))))
            for role, count in (("orchestrator", orchestrators), ("worker", workers))
            for number in range(count)
        ]
        keeping = [asyncio.create_task(each.keep(forks), name=each.name) for each in processes]
        try:
            yield World(redis, rabbitmq, redis_line, rabbitmq_line, processes)
        finally:
            for task in keeping:
                task.cancel()
            await asyncio.gather(*keeping, return_exceptions=True)
            for each in processes:
                each.send(signal.SIGKILL)


def _port(line: Proxy) -> int:
    port = urlsplit(line.url).port
    assert port is not None
    return port


def _environment(redis_url: str, rabbitmq_url: str) -> dict[str, str]:
    return environment(
        redis_url,
        rabbitmq_url,
        KEY_PREFIX,
        TOPOLOGY_PREFIX,
        lease_seconds=LEASE_SECONDS,
        sweep_seconds=0.3,
        ack_after_seconds=1,
        grace_seconds=1,
        call_timeout_seconds=2,
        call_deadline_seconds=6,
        pool_size=8,
    )
