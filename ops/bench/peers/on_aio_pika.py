"""aio-pika alone, chained by hand: quorum queues, persistent messages, confirms, acknowledged after the step.

Only the last result is kept.
"""

from __future__ import annotations

import asyncio
import sys

import aio_pika
import orjson
import uvloop

from ops.bench.figures import Figures
from ops.bench.loads import Load
from ops.bench.peers import chained
from ops.bench.peers.peer import RABBITMQ_URL, Peer

PREFIX = "peer.aio-pika"


async def serve() -> None:
    """Run all steps until the process is ended."""
    async with await aio_pika.connect_robust(RABBITMQ_URL) as connection:
        channel = await connection.channel()
        await channel.set_qos(50)

        async def send(letter: chained.Letter, queue: str) -> None:
            message = aio_pika.Message(
                orjson.dumps(letter), delivery_mode=aio_pika.DeliveryMode.PERSISTENT, content_type="application/json"
            )
            await channel.default_exchange.publish(message, queue)

        async def consume(step: str) -> None:
            queue = await channel.declare_queue(f"{PREFIX}.{step}", durable=True, arguments={"x-queue-type": "quorum"})

            async def handle(message: aio_pika.abc.AbstractIncomingMessage) -> None:
                async with message.process():
                    await chained.act(step, orjson.loads(message.body), PREFIX, send)

            await queue.consume(handle)

        for step in chained.STEPS:
            await consume(step)
        await asyncio.Event().wait()


def drive(case: str, load: Load) -> Figures:
    """Put the load on one case."""
    return uvloop.run(chained.drive(case, PREFIX, load))


WORKER = ("python", "-m", "ops.bench.peers.on_aio_pika")
PEER = Peer(drive, workers=(WORKER, WORKER), consumers={f"{PREFIX}.{step}": 2 for step in chained.STEPS})

if __name__ == "__main__":
    sys.exit(uvloop.run(serve()))
