"""Celery with the settings under which a killed worker loses nothing: late acks, rejection of what a lost worker held,
quorum queues, confirmed publishing. Results in Redis; one worker with two child processes.
"""

from __future__ import annotations

from typing import Any

from celery import Celery, chain, group

from ops.bench.figures import Figures
from ops.bench.loads import Load
from ops.bench.peers.peer import RABBITMQ_URL, REDIS_URL, Payload, Peer, joined, stamped

QUEUE = "peer.celery"
LOOK_SECONDS = 0.005
PATIENCE_SECONDS = 60

app = Celery("on_celery", broker=RABBITMQ_URL, backend=REDIS_URL)
app.conf.update(
    task_default_queue=QUEUE,
    task_default_queue_type="quorum",
    task_acks_late=True,
    task_reject_on_worker_lost=True,
    broker_transport_options={"confirm_publish": True},
)


@app.task
def a(given: Payload) -> Payload:
    return stamped(given)


@app.task
def b(given: Payload) -> Payload:
    return stamped(given)


@app.task
def c(given: Payload) -> Payload:
    return stamped(given)


@app.task
def d(branches: list[Payload]) -> Payload:
    return joined(branches)


def drive(case: str, load: Load) -> Figures:
    """Put the load on one case."""

    def submit(given: Payload) -> Any:
        if case == "chain":
            return chain(a.s(given), b.s(), c.s()).apply_async()
        return chain(a.s(given), group(b.s(), c.s()), d.s()).apply_async()

    return load.in_order(submit, lambda handle: handle.get(timeout=PATIENCE_SECONDS, interval=LOOK_SECONDS))


PEER = Peer(drive, workers=(("celery", "-A", __name__, "worker", "-c", "2", "-l", "ERROR"),), consumers={QUEUE: 1})
