"""dramatiq on RabbitMQ: confirmed publishing, results in Redis, its default of eight threads in each of two processes.

It knows classic queues only. A chain is its pipeline. The diamond is a group with a completion callback: its documents'
way to go on after several; the last step reads the results of the branches.
"""

from __future__ import annotations

from typing import Any

import dramatiq
import redis
from dramatiq import group, pipeline
from dramatiq.brokers.rabbitmq import RabbitmqBroker
from dramatiq.message import Message
from dramatiq.middleware import GroupCallbacks
from dramatiq.rate_limits.backends import RedisBackend as Barriers
from dramatiq.results import Results
from dramatiq.results.backends import RedisBackend

from ops.bench.figures import Figures
from ops.bench.loads import Load
from ops.bench.peers.peer import RABBITMQ_URL, REDIS_URL, Payload, Peer, joined, stamped

QUEUE = "peer.dramatiq"
PATIENCE_MS = 60_000

broker = RabbitmqBroker(url=RABBITMQ_URL, confirm_delivery=True)
results = RedisBackend(client=redis.Redis.from_url(REDIS_URL))
broker.add_middleware(Results(backend=results))
broker.add_middleware(GroupCallbacks(Barriers(client=redis.Redis.from_url(REDIS_URL))))
dramatiq.set_broker(broker)


@dramatiq.actor(queue_name=QUEUE, store_results=True)
def a(given: Payload) -> Payload:
    return stamped(given)


@dramatiq.actor(queue_name=QUEUE, store_results=True)
def b(given: Payload) -> Payload:
    return stamped(given)


@dramatiq.actor(queue_name=QUEUE, store_results=True)
def c(given: Payload) -> Payload:
    return stamped(given)


@dramatiq.actor(queue_name=QUEUE, store_results=True)
def fork(given: Payload, last: dict[str, Any]) -> Payload:
    given = stamped(given)
    branches = [b.message(given), c.message(given)]
    both = group(branches)
    both.add_completion_callback(Message(**last).copy(args=[[each.asdict() for each in branches]]))
    both.run()
    return given


@dramatiq.actor(queue_name=QUEUE, store_results=True)
def d(branches: list[dict[str, Any]]) -> Payload:
    # A callback may run before the result of the last branch can be seen.
    return joined([results.get_result(Message(**each), block=True, timeout=5000) for each in branches])


def drive(case: str, load: Load) -> Figures:
    """Put the load on one case."""
    if case == "chain":
        return load.threads(
            lambda given: pipeline([a.message(given), b.message(), c.message()]).run(),
            lambda handle: handle.get_result(block=True, timeout=PATIENCE_MS),
        )

    def submit(given: Payload) -> Any:
        last = d.message(None)
        fork.send(given, last.asdict())
        return last

    return load.threads(submit, lambda last: results.get_result(last, block=True, timeout=PATIENCE_MS))


PEER = Peer(drive, workers=(("dramatiq", __name__, "--processes", "2"),), consumers={QUEUE: 2})
