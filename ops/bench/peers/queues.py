"""Asking RabbitMQ how many consumers a queue has: so the load begins when every worker serves, and not after a guess."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import aio_pika
from aio_pika.exceptions import ChannelNotFoundEntity

LOOK_SECONDS = 0.1
PATIENCE_SECONDS = 60.0


async def served(url: str, consumers: Mapping[str, int]) -> None:
    """Return once each queue has at least that many consumers; the broker tells nobody, so it is asked again and again.

    Raises:
        TimeoutError: they have not come within a minute.
    """
    async with asyncio.timeout(PATIENCE_SECONDS), await aio_pika.connect(url) as connection:
        for queue, wanted in consumers.items():
            while await _count(connection, queue) < wanted:  # noqa: ASYNC110 - the broker tells nobody of it
                await asyncio.sleep(LOOK_SECONDS)


async def _count(connection: aio_pika.abc.AbstractConnection, queue: str) -> int:
    try:
        async with connection.channel() as channel:
            declared = await channel.declare_queue(queue, passive=True)
            return declared.declaration_result.consumer_count or 0
    except ChannelNotFoundEntity:
        return 0
