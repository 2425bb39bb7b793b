"""Asking RabbitMQ how many consumers a queue has: so the load begins when every worker serves, and not after a guess."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping

import aio_pika
from aio_pika.exceptions import AMQPError

LOOK_SECONDS = 0.1
ANSWER_SECONDS = 3.0
PATIENCE_SECONDS = 60.0


async def served(url: str, consumers: Mapping[str, int]) -> None:
    """Return once each queue has at least that many consumers; the broker tells nobody, so it is asked again and again.

    Raises:
        TimeoutError: they have not come within a minute.
    """
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not await _are_served(url, consumers):  # noqa: ASYNC110 - the broker tells nobody
            await asyncio.sleep(LOOK_SECONDS)


async def _are_served(url: str, consumers: Mapping[str, int]) -> bool:
    """Look once, on a connection of its own: a queue that is not there yet, or just being made, can end or stall it."""
    with contextlib.suppress(AMQPError, ConnectionError, TimeoutError):
        async with asyncio.timeout(ANSWER_SECONDS), await aio_pika.connect(url) as connection:
            channel = await connection.channel()
            for queue, wanted in consumers.items():
                declared = await channel.declare_queue(queue, passive=True)
                if (declared.declaration_result.consumer_count or 0) < wanted:
                    return False
            return True
    return False
