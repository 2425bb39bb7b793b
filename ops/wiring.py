"""Wiring: settings turned into connected parts. The one place where a process learns which servers it talks to."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from ops.blackboard.redis import RedisBlackboard
from ops.broker.rabbitmq import RabbitMQBroker
from ops.settings import Settings


@asynccontextmanager
async def connected(settings: Settings) -> AsyncIterator[tuple[RedisBlackboard, RabbitMQBroker]]:
    """Connect blackboard and broker as the settings say.

    Raises:
        Unavailable: a server is not there.
        UnsafeServer: Redis could drop state.
    """
    board = RedisBlackboard(
        settings.redis_url,
        prefix=settings.key_prefix,
        call_timeout_seconds=settings.call_timeout_seconds,
        deadline_seconds=settings.call_deadline_seconds,
        pool_size=settings.pool_size,
        lease_seconds=settings.lease_seconds,
    )
    broker = RabbitMQBroker(settings.rabbitmq_url, prefix=settings.topology_prefix, call_timeout_seconds=settings.call_timeout_seconds)
    async with board, broker:
        yield board, broker
