"""taskiq on RabbitMQ with its defaults: quorum queue, persistent messages, confirms, acknowledged after the task was saved.

Its pipelines have no fan-out into different tasks: the diamond maps one task over two items, and a task of its own looks
for both results every 20 ms (0.5 s by default). The client looks for the result as often as its documents let it.
"""

from __future__ import annotations

import uvloop
from taskiq_aio_pika import AioPikaBroker
from taskiq_aio_pika.exchange import Exchange
from taskiq_aio_pika.queue import Queue
from taskiq_pipelines import Pipeline, PipelineMiddleware
from taskiq_redis import RedisAsyncResultBackend

from ops.bench.figures import Figures
from ops.bench.loads import Load
from ops.bench.peers.peer import RABBITMQ_URL, REDIS_URL, Payload, Peer, joined, stamped

QUEUE = "peer.taskiq"
LOOK_SECONDS = 0.02
PATIENCE_SECONDS = 60

broker = (
    AioPikaBroker(
        RABBITMQ_URL,
        qos=50,
        exchange=Exchange(name=QUEUE),
        task_queues=[Queue(name=QUEUE)],
        dead_letter_queue=Queue(name=f"{QUEUE}.dead"),
    )
    .with_result_backend(RedisAsyncResultBackend(REDIS_URL))
    .with_middlewares(PipelineMiddleware())
)


@broker.task
async def a(given: dict) -> dict:  # type: ignore[type-arg]  # it converts arguments by their annotation
    return stamped(given)


@broker.task
async def b(given: dict) -> dict:  # type: ignore[type-arg]
    return stamped(given)


@broker.task
async def c(given: dict) -> dict:  # type: ignore[type-arg]
    return stamped(given)


@broker.task
async def fork(given: dict) -> list:  # type: ignore[type-arg]
    return [stamped(given)] * 2


@broker.task
async def d(branches: list) -> dict:  # type: ignore[type-arg]
    return joined(branches)


async def _drive(case: str, load: Load) -> Figures:
    await broker.startup()

    async def ask(given: Payload) -> Payload:
        if case == "chain":
            pipeline = Pipeline(broker, a).call_next(b).call_next(c)
        else:
            pipeline = Pipeline(broker, fork).map(b, check_interval=LOOK_SECONDS).call_next(d)
        task = await pipeline.kiq(given)
        result = await task.wait_result(check_interval=LOOK_SECONDS, timeout=PATIENCE_SECONDS)
        result.raise_for_error()
        return result.return_value

    figures = await load.lanes(ask)
    await broker.shutdown()
    return figures


def drive(case: str, load: Load) -> Figures:
    """Put the load on one case."""
    return uvloop.run(_drive(case, load))


PEER = Peer(drive, workers=(("taskiq", "worker", f"{__name__}:broker", "--workers", "2", "--log-level", "ERROR"),), consumers={QUEUE: 2})
