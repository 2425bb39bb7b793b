"""The system under test: board and broker in memory, then Redis and RabbitMQ; and what must hold after every test."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Collection, Iterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, aclosing
from dataclasses import dataclass
from typing import Any

import aiormq
import pytest
import pytest_asyncio
import structlog
from redis.asyncio import Redis

from ops.blackboard.memory import MemoryBlackboard
from ops.blackboard.redis import RedisBlackboard
from ops.broker.memory import MemoryBroker
from ops.broker.rabbitmq import RabbitMQBroker
from ops.broker.topology import Topology
from ops.embedded import Runtime, serving
from schemas.blackboard import Blackboard, Event, fold
from schemas.broker import task_queue
from schemas.fields import RESULT_PREFIX, step
from schemas.messages import from_wire
from schemas.requests import StepRecord
from tests.ops.broker.bench import Bench, MemoryBench, RabbitMQBench, eventually
from tests.system.watched import WatchedBroker
from workers.team import Team


@pytest.fixture(autouse=True)
def _plain_logs() -> Iterator[None]:
    """What a test logs is shown where it fails; rich tracebacks would take seconds, and hold up the loop meanwhile."""
    before = structlog.get_config()
    renderer = structlog.dev.ConsoleRenderer(colors=False, exception_formatter=structlog.dev.plain_traceback)
    structlog.configure(processors=[structlog.processors.add_log_level, structlog.processors.TimeStamper(fmt="iso"), renderer])
    yield
    structlog.configure(**before)


@dataclass
class Clock:
    """The real time, plus what a test has let pass."""

    passed: float = 0.0

    def __call__(self) -> float:
        return time.time() + self.passed


@dataclass
class System:
    """One pair of board and broker, with a look into the broker from outside."""

    board: MemoryBlackboard | RedisBlackboard
    broker: WatchedBroker
    look: Bench
    clock: Clock | None = None
    redis: Redis | None = None

    def serve(self, team: Team, **options: Any) -> AbstractAsyncContextManager[Runtime]:
        """Run orchestrators and workers until the block is left."""
        return serving(self.board, self.broker, team, **options)

    async def tasks_lie(self, agent: str, *steps: str) -> None:
        """Return once a TASK of each of these steps, and of no other, waits for the agent (any of them more than once)."""
        await self.broker.declare_agent(agent)

        async def there() -> bool:
            return {from_wire(body).step_id for body in await self.look.bodies(task_queue(agent))} == set(steps)

        await eventually(there, seconds=15)

    async def look_now(self, request_id: str, seconds: float = 0.0) -> None:
        """Let the sweeper look at a request without waiting for its time; in memory the board's time passes too."""
        if self.clock is not None:
            self.clock.passed += seconds
        await self.board.enter(request_id, 0)


@pytest_asyncio.fixture(params=["memory", pytest.param("servers", marks=pytest.mark.servers)])
async def system(request: pytest.FixtureRequest) -> AsyncIterator[System]:
    """Each pair, one after the other. After the test every request that it opened is checked for what must always hold."""
    async with AsyncExitStack() as stack:
        if request.param == "memory":
            clock = Clock()
            memory = await stack.enter_async_context(MemoryBroker())
            board = await stack.enter_async_context(MemoryBlackboard(clock=clock))
            system = System(board, WatchedBroker(memory), MemoryBench(memory), clock)
        else:
            system = await _on_servers(stack, request)
        yield system
        for request_id in await system.board.recent("default"):
            await hold_still(system.board, request_id)
        if request.param == "servers":
            for queue in await _declared(system):
                await system.look.delete(queue)


async def _on_servers(stack: AsyncExitStack, request: pytest.FixtureRequest) -> System:
    url, prefix = request.getfixturevalue("rabbitmq_url"), request.getfixturevalue("topology_prefix")
    redis_url, keys = request.getfixturevalue("redis_url"), request.getfixturevalue("key_prefix")
    client = await stack.enter_async_context(Redis.from_url(redis_url))
    connection = await aiormq.connect(url)
    stack.push_async_callback(connection.close)
    rabbitmq = await stack.enter_async_context(RabbitMQBroker(url, prefix=prefix, instance="test"))
    board = await stack.enter_async_context(RedisBlackboard(redis_url, prefix=keys, lease_seconds=0.5))
    return System(board, WatchedBroker(rabbitmq), RabbitMQBench(rabbitmq, connection, Topology(prefix)), redis=client)


async def happened(board: Blackboard, request_id: str, name: str) -> Event:
    """Return the first event of a name, once it is there."""
    async with asyncio.timeout(15), aclosing(board.watch(request_id)) as events:
        async for event in events:
            if event.labels.get("event") == name:
                return event
    raise AssertionError("a watch has no end")


async def expires(system: System, request_id: str) -> bool:
    """Return whether a request will be gone some day, with all that belongs to it."""
    if isinstance(system.board, MemoryBlackboard):
        return system.board._requests[request_id].expires_at_ms is not None
    assert system.redis is not None
    keys = [key async for key in system.redis.scan_iter(match=f"*{{{request_id}}}*", count=1000)]
    ends = {await system.redis.ttl(key) > 0 for key in keys}
    assert len(keys) >= 2 and len(ends) == 1, (keys, ends)
    return ends.pop()


async def _declared(system: System) -> Collection[str]:
    fixed = {queue.name for queue in Topology("any").fixed}
    return fixed | {f"{kind}.{queue.removeprefix('tasks.')}" for queue in system.broker.queues - fixed for kind in ("tasks", "dead")}


async def hold_still(board: Blackboard, request_id: str) -> None:
    """Check what holds of every request at any time: its events add up to its state, and no step has two results in one epoch."""
    events = await board.events(request_id)
    state = fold(events)
    snapshot = await board.read(request_id, tuple(state))
    if snapshot.position == len(events):
        assert snapshot.fields == state
    results: set[tuple[str, int]] = set()
    for event in events:
        for name in event.put:
            if name.startswith(RESULT_PREFIX):
                step_id = name.removeprefix(RESULT_PREFIX)
                key = step_id, _epoch(event, step_id)
                assert key not in results, f"two results of {key}"
                results.add(key)


def _epoch(event: Event, step_id: str) -> int:
    return StepRecord.from_json(event.put[step(step_id)][1]).epoch
