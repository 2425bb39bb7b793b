"""FastStream, chained by hand: quorum queues, persistent messages, confirms, acknowledged after the handler.

Only the last result is kept.
"""

from __future__ import annotations

import sys

import uvloop
from faststream import FastStream
from faststream.rabbit import Channel, QueueType, RabbitBroker, RabbitQueue

from ops.bench.figures import Figures
from ops.bench.loads import Load
from ops.bench.peers import chained
from ops.bench.peers.peer import RABBITMQ_URL, Peer

PREFIX = "peer.faststream"
QUEUES = {step: RabbitQueue(f"{PREFIX}.{step}", durable=True, queue_type=QueueType.QUORUM) for step in chained.STEPS}

broker = RabbitBroker(RABBITMQ_URL, default_channel=Channel(prefetch_count=50), logger=None)
app = FastStream(broker, logger=None)


async def send(letter: chained.Letter, queue: str) -> None:
    """Publish with a confirm; the step's queue by its declaration, so that nothing is declared anew."""
    await broker.publish(letter, queue=queue, persist=True)


@broker.subscriber(QUEUES["a"])
async def a(letter: dict) -> None:  # type: ignore[type-arg]  # it converts the message by its annotation
    await chained.act("a", letter, PREFIX, send)


@broker.subscriber(QUEUES["b"])
async def b(letter: dict) -> None:  # type: ignore[type-arg]
    await chained.act("b", letter, PREFIX, send)


@broker.subscriber(QUEUES["c"])
async def c(letter: dict) -> None:  # type: ignore[type-arg]
    await chained.act("c", letter, PREFIX, send)


@broker.subscriber(QUEUES["d"])
async def d(letter: dict) -> None:  # type: ignore[type-arg]
    await chained.act("d", letter, PREFIX, send)


def drive(case: str, load: Load) -> Figures:
    """Put the load on one case."""
    return uvloop.run(chained.drive(case, PREFIX, load))


WORKER = ("python", "-m", "ops.bench.peers.on_faststream")
PEER = Peer(drive, workers=(WORKER, WORKER), consumers={f"{PREFIX}.{step}": 2 for step in chained.STEPS})

if __name__ == "__main__":
    sys.exit(uvloop.run(app.run()))
