"""Raw AMQP from a foreign publisher: broken bodies and properties of every kind, into every queue of a running system."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from decimal import Decimal
from random import Random
from typing import Any

import aiormq
import pytest
from aiormq import spec
from aiormq.abc import AbstractConnection
from aiormq.exceptions import AMQPError

from ops.blackboard.memory import MemoryBlackboard
from ops.embedded import serving
from schemas.broker import BROKER_DEAD_QUEUE, COMMANDS_QUEUE, RESULTS_QUEUE, UNREADABLE_QUEUE, task_queue
from schemas.errors import Unreadable
from schemas.messages import AgentMessage, MessageType, from_wire, message, to_wire
from tests.fuzz.strategies import junk_bytes
from tests.ops.broker.bench import AGENT, RabbitMQBench, rabbitmq_bench
from tests.system.cast import Cast, step
from workers.agents.blackbox import BlackBox
from workers.team import Team

pytestmark = pytest.mark.timeout(60)

QUEUES = (task_queue(AGENT), RESULTS_QUEUE, COMMANDS_QUEUE, BROKER_DEAD_QUEUE)
EACH = 30
SEED = 20260101


def a_task() -> AgentMessage:
    """A message as it should be."""
    return message(MessageType.TASK, "r-ähm", sender="orchestrator", recipient=AGENT, step_id="a", content="x" * 50)


def unreadable_body(random: Random, good: bytes) -> bytes:
    """A body that is no message."""
    while True:
        body = junk_bytes(random, good)
        try:
            from_wire(body)
        except Unreadable:
            return body


def strange_properties(random: Random) -> spec.Basic.Properties:
    """Properties that the protocol allows and nobody of ours would send."""
    headers: dict[str, Any] = {
        "long": "长" * random.randrange(1, 2000),
        "k" * 120: None,
        "deep": {"a": [{"b": [[[1]]]}]},
        "exact": Decimal("1.25"),
        "bytes": bytearray(random.randbytes(20)),
        "when": datetime(1970, 1, 1, tzinfo=UTC),
        "x-briefline-reason": "a reason of somebody else's",
        "x-death": [{"count": 7, "queue": "nowhere"}],
        "x-delivery-count": -1,
    }
    if random.random() < 0.05:  # the broker cannot read these either, and ends the publisher's connection
        headers = {"number": random.choice([float("nan"), float("-inf")])}
    kept = {key: headers[key] for key in random.sample(sorted(headers), random.randrange(len(headers) + 1))}
    text = random.choice(["", "x" * 255, "关联" * 40, "a/b;c=\x00\x01", "application/cloudevents+json"])
    return spec.Basic.Properties(
        headers=kept or None,
        content_type=text,
        content_encoding=random.choice([None, "gzip", "\u0000"]),
        correlation_id=random.choice([None, text]),
        message_id=random.choice([None, "m" * 255, "1"]),
        reply_to=random.choice([None, "nowhere"]),
        app_id=random.choice([None, text]),
        message_type=random.choice([None, text]),
        delivery_mode=random.choice([None, 1, 2]),
        priority=random.choice([None, 0, 255]),
        timestamp=random.choice([None, datetime(2036, 1, 1, tzinfo=UTC)]),
    )


class Foreigner:
    """A publisher that is not ours, over connections of its own: RabbitMQ ends one that sends what it cannot read itself."""

    def __init__(self, url: str, bench: RabbitMQBench) -> None:
        self._url = url
        self._bench = bench
        self._connection: AbstractConnection | None = None
        self.refused = 0

    async def publish(self, queue: str, body: bytes, properties: spec.Basic.Properties) -> bool:
        """Hand a message in; return whether it is in the queue."""
        if self._connection is None:
            self._connection = await aiormq.connect(self._url)
        try:
            channel = await self._connection.channel(publisher_confirms=True)
            await channel.basic_publish(body, routing_key=self._bench.topology.full(queue), properties=properties, mandatory=True)
            await channel.close()
        except (AMQPError, asyncio.CancelledError):
            await self.leave()
            self.refused += 1
            return False
        return True

    async def leave(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            with suppress(AMQPError, asyncio.CancelledError):
                await self._connection.close()
        self._connection = None


@asynccontextmanager
async def edges(url: str, prefix: str, **options: float) -> AsyncIterator[tuple[RabbitMQBench, MemoryBlackboard, Foreigner]]:
    """A broker with the queues of one agent, a board, and somebody who publishes what nobody should."""
    async with rabbitmq_bench(url, prefix, **options) as bench, MemoryBlackboard() as board:
        foreigner = Foreigner(url, bench)
        try:
            yield bench, board, foreigner
        finally:
            await foreigner.leave()


def team_of(cast: Cast) -> Team:
    """The agent whose queues the bench has made."""
    return Team("stage", [BlackBox(AGENT, cast.play, facts=("finding",))], [{**step("a"), "agent": AGENT}])


async def test_invariant_15_broken_messages_in_every_queue_are_parked_whole_with_a_reason_and_work_goes_on(
    rabbitmq_url: str, topology_prefix: str
) -> None:
    random = Random(SEED)
    good = to_wire(a_task())
    given: Counter[bytes] = Counter()
    async with edges(rabbitmq_url, topology_prefix) as (bench, board, foreigner):
        for queue in QUEUES:
            for _ in range(EACH):
                body = unreadable_body(random, good)
                given[body] += await foreigner.publish(queue, body, strange_properties(random))
        async with serving(board, bench.broker, team_of(Cast())) as runtime:
            report = await asyncio.wait_for(runtime.ask("Please."), 30)
            await bench.has(UNREADABLE_QUEUE, given.total(), seconds=20)
            assert report.status == "COMPLETED"
            for queue in QUEUES:
                assert await bench.depth(queue) == 0
        assert given.total() == len(QUEUES) * EACH - foreigner.refused > 3 * EACH
        assert Counter(await bench.bodies(UNREADABLE_QUEUE)) == +given, "to the byte, and nothing lost"
        reasons = await bench.reasons(UNREADABLE_QUEUE)
        assert all(reasons) and "a reason of somebody else's" not in reasons


async def test_invariant_15_whole_messages_that_make_no_sense_are_parked_or_late_and_write_nothing(
    rabbitmq_url: str, topology_prefix: str
) -> None:
    random = Random(SEED)
    async with edges(rabbitmq_url, topology_prefix) as (bench, board, foreigner):
        cast = Cast()
        async with serving(board, bench.broker, team_of(cast)) as runtime:
            report = await asyncio.wait_for(runtime.ask("Please."), 30)
            before = await board.events(report.request_id)
            sent = 0
            for queue in QUEUES:
                for kind in MessageType:
                    for request_id in (report.request_id, "unknown", "{broken}#", "x" * 500):
                        bell = message(
                            kind,
                            request_id,
                            sender=random.choice(["orchestrator", AGENT, "", "名"]),
                            recipient=random.choice([AGENT, "orchestrator", ""]),
                            step_id=random.choice([None, "a", "", "nobody", "a/b", "\x00"]),
                            epoch=random.choice([0, -1, 7, 2**40]),
                            seen=random.choice([{}, {"step/a": "1.zzzzzz"}, {"status": ""}]),
                            content="名" * random.randrange(0, 50),
                        )
                        sent += await foreigner.publish(queue, to_wire(bell), strange_properties(random))
            again = await asyncio.wait_for(runtime.ask("Please, once more."), 30)
            assert again.status == "COMPLETED"
            async with asyncio.timeout(30):
                for queue in QUEUES:
                    await bench.has(queue, 0, seconds=20)
        after = await board.events(report.request_id)
        assert cast.runs == {"a": 2} and not [event for event in after[len(before) :] if event.put], "no field was changed"
        assert (await board.read("unknown", ("status",))).position == 0
        assert 0 < await bench.depth(UNREADABLE_QUEUE) <= sent
        assert all(await bench.reasons(UNREADABLE_QUEUE))


async def test_a_property_that_breaks_the_frame_reader_ends_in_quarantine_while_the_other_queues_go_on(
    rabbitmq_url: str, topology_prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:  # F21
    async with edges(rabbitmq_url, topology_prefix, longest_pause_seconds=0.05) as (bench, board, foreigner):
        poison = spec.Basic.Properties(correlation_id="marker", delivery_mode=2)
        marshal = type(poison).marshal
        with monkeypatch.context() as patch:
            patch.setattr(type(poison), "marshal", lambda self: marshal(self).replace(b"marker", b"\xff" * 6))
            for queue in QUEUES[:3]:
                assert await foreigner.publish(queue, b"poison for " + queue.encode(), poison)
        async with serving(board, bench.broker, team_of(Cast())) as runtime:
            report = await asyncio.wait_for(runtime.ask("Please."), 30)
            assert report.status == "COMPLETED"
            await bench.has(UNREADABLE_QUEUE, 3, seconds=30)
            assert (await asyncio.wait_for(runtime.ask("Please, once more."), 30)).status == "COMPLETED"
