"""The system of `tests.system` under faults: over lines that a test can break, and on servers of the tests' own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import aiormq
import pytest
import pytest_asyncio

from ops.blackboard.redis import RedisBlackboard
from ops.broker.rabbitmq import RabbitMQBroker
from ops.broker.topology import Topology
from tests.end_to_end.conftest import commands, gate
from tests.faults.lines import MutableProxy, muted
from tests.ops.broker.bench import RabbitMQBench
from tests.support.servers import OwnRabbitMQ
from tests.system.conftest import System, _plain_logs, system
from tests.system.watched import WatchedBroker
from workers.team import Team
from workers.worker import Worker

__all__ = ["_plain_logs", "commands", "gate", "lines", "rabbitmq", "system"]


@dataclass
class Lines:
    """A system whose broker is reached over lines that can be broken."""

    system: System
    proxy: MutableProxy


@pytest_asyncio.fixture
async def lines(rabbitmq_url: str, topology_prefix: str, redis_url: str, key_prefix: str) -> AsyncIterator[Lines]:
    """Redis directly, RabbitMQ behind a proxy; the look into RabbitMQ goes past it."""
    async with muted(rabbitmq_url) as proxy, served_by(proxy.url, rabbitmq_url, topology_prefix, redis_url, key_prefix) as made:
        yield Lines(made, proxy)


@asynccontextmanager
async def served_by(url: str, look_url: str, prefix: str, redis_url: str, keys: str) -> AsyncIterator[System]:
    """A system on these servers. What its broker declared is left there."""
    connection = await aiormq.connect(look_url)
    try:
        async with (
            RabbitMQBroker(url, prefix=prefix, instance="test") as broker,
            RedisBlackboard(redis_url, prefix=keys, lease_seconds=1.0) as board,
        ):
            yield System(board, WatchedBroker(broker), RabbitMQBench(broker, connection, Topology(prefix)))
    finally:
        await connection.close()


@pytest.fixture(scope="session")
def rabbitmq(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OwnRabbitMQ]:
    """One RabbitMQ for all tests of this folder that hurt one; each leaves it running and with its usual settings."""
    with OwnRabbitMQ(tmp_path_factory.mktemp("rabbitmq")) as server:
        yield server


@asynccontextmanager
async def worker(system: System, team: Team, **options: Any) -> AsyncIterator[Worker]:
    """A worker of the test's own beside those that serve."""
    stop, ready = asyncio.Event(), asyncio.Event()
    serves = Worker(system.board, system.broker, team, **{"grace_seconds": 0.0, **options})
    async with asyncio.TaskGroup() as group:
        group.create_task(serves.run(stop=stop, ready=ready))
        await ready.wait()
        try:
            yield serves
        finally:
            stop.set()
