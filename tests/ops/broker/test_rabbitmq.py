"""What only a RabbitMQ can do to the broker: refused queues, frames that nobody can read, lost confirms, a line that is cut."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from decimal import Decimal

import aiormq
import pytest
import pytest_asyncio
from aiormq import spec
from pamqp.common import FieldTable
from structlog.testing import capture_logs

from ops.broker.rabbitmq import RabbitMQBroker
from ops.broker.topology import BROKER_DEAD_KEY
from ops.own_servers import free_port
from schemas.broker import BROKER_DEAD_QUEUE, RESULT_READY, RESULTS_QUEUE, UNREADABLE_QUEUE, Delivery, to_agent
from schemas.errors import LimitExceeded, OutcomeUnknown, Unavailable, Undeliverable, UnsafeServer
from schemas.messages import to_wire
from tests.ops.broker.bench import AGENT, TASKS, RabbitMQBench, Seen, Taken, eventually, rabbitmq_bench, task
from tests.ops.broker.proxy import Proxy, proxied


@pytest_asyncio.fixture
async def bench(rabbitmq_url: str, topology_prefix: str) -> AsyncIterator[RabbitMQBench]:
    """A broker over the shared RabbitMQ."""
    async with rabbitmq_bench(rabbitmq_url, topology_prefix) as bench:
        yield bench


async def test_every_queue_is_quorum_with_a_limit_and_dead_letters_at_least_once(bench: RabbitMQBench) -> None:
    for name in (TASKS, RESULTS_QUEUE):
        arguments = bench.topology.queue(name).arguments
        assert arguments["x-delivery-limit"] == 20
        assert (arguments["x-dead-letter-strategy"], arguments["x-overflow"]) == ("at-least-once", "reject-publish")
        assert arguments["x-dead-letter-routing-key"] == BROKER_DEAD_KEY
        channel = await bench.channel()
        with pytest.raises(aiormq.exceptions.ChannelPreconditionFailed):
            await channel.queue_declare(bench.topology.full(name), durable=True, arguments={**arguments, "x-delivery-limit": 19})


async def test_messages_are_persistent_and_each_publish_has_an_id_of_its_own(bench: RabbitMQBench) -> None:
    same = task()
    await asyncio.gather(*(bench.broker.publish(to_agent(AGENT), same) for _ in range(3)))
    channel = await bench.channel()
    found = [await channel.basic_get(bench.topology.full(TASKS)) for _ in range(3)]
    await channel.close()
    assert [got.header.properties.delivery_mode for got in found] == [2, 2, 2]
    assert {got.header.properties.content_type for got in found} == {"application/cloudevents+json"}
    assert len({got.header.properties.message_id for got in found}) == 3  # F19


async def test_a_message_over_the_limit_is_refused_before_it_is_sent(bench: RabbitMQBench) -> None:  # F22
    with pytest.raises(LimitExceeded):
        await bench.broker.publish(to_agent(AGENT), task("x" * 300_000))
    await bench.broker.publish(to_agent(AGENT), task())
    await bench.has(TASKS, 1)


async def test_a_full_queue_refuses_and_says_so(bench: RabbitMQBench) -> None:
    channel = await bench.channel()
    name = bench.topology.full("full")
    await channel.queue_declare(name, durable=True, arguments={"x-queue-type": "quorum", "x-max-length": 1, "x-overflow": "reject-publish"})
    await channel.queue_bind(name, bench.topology.full("tasks"), "full")
    with pytest.raises(Unavailable, match="full") as refused:
        for _ in range(50):  # a quorum queue takes some more before it says that it is full
            await bench.broker.publish(to_agent("full"), task())
    assert type(refused.value) is Unavailable  # not unknown: it is not stored
    await channel.queue_delete(name)


async def test_a_cancelled_publish_leaves_the_line_to_the_others(bench: RabbitMQBench) -> None:
    publishes = [asyncio.create_task(bench.broker.publish(to_agent(AGENT), task())) for _ in range(10)]
    await asyncio.sleep(0)
    publishes[3].cancel()
    publishes[7].cancel()
    outcomes = await asyncio.gather(*publishes, return_exceptions=True)
    assert sum(isinstance(outcome, asyncio.CancelledError) for outcome in outcomes) == 2
    assert sum(outcome is None for outcome in outcomes) == 8


# One bad queue.


async def test_a_queue_with_other_arguments_is_named_and_stops_nobody_else(
    bench: RabbitMQBench, rabbitmq_url: str, topology_prefix: str
) -> None:  # F09, F10
    channel = await bench.channel()
    bad = bench.topology.full("tasks.bad")
    await channel.queue_declare(bad, durable=True, arguments={"x-queue-type": "quorum", "x-max-length": 5})
    with pytest.raises(UnsafeServer, match=rf"{bad} exists with other arguments.*inequivalent arg 'x-"):
        await bench.broker.declare_agent("bad")
    seen = Seen()
    with capture_logs() as logs:
        async with (
            bench.broker.consume("tasks.bad", Seen(), prefetch=1) as refused,
            bench.broker.consume(TASKS, seen, prefetch=1) as consumer,
        ):
            assert (refused.consuming, consumer.consuming) == (False, True)
            for number in range(5):
                await bench.broker.publish(to_agent(AGENT), task(str(number)))
                assert (await seen.next()).content == str(number)
            await asyncio.sleep(0.5)  # long enough for several of the pauses that a lost line gets
    mismatches = [entry for entry in logs if entry["event"] == "queue_mismatched"]
    assert [entry["queue"] for entry in mismatches] == [bad]
    await channel.queue_delete(bad)


async def test_a_fixed_queue_with_other_arguments_does_not_keep_the_broker_from_publishing(
    bench: RabbitMQBench, rabbitmq_url: str, topology_prefix: str
) -> None:
    await bench.delete(RESULTS_QUEUE)
    channel = await bench.channel()
    await channel.queue_declare(bench.topology.full(RESULTS_QUEUE), durable=True, arguments={"x-queue-type": "classic"})
    async with RabbitMQBroker(rabbitmq_url, prefix=topology_prefix) as second:
        await second.publish(to_agent(AGENT), task())
    await bench.has(TASKS, 1)


async def test_a_frame_that_the_client_cannot_read_ends_in_quarantine_and_starves_nobody(
    rabbitmq_url: str, topology_prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:  # F21
    async with rabbitmq_bench(rabbitmq_url, topology_prefix, longest_pause_seconds=0.05) as bench:
        channel = await bench.channel()
        properties = spec.Basic.Properties(correlation_id="marker", delivery_mode=2)
        marshal = type(properties).marshal
        with monkeypatch.context() as patch:
            patch.setattr(type(properties), "marshal", lambda self: marshal(self).replace(b"marker", b"\xff" * 6))
            await channel.basic_publish(b"poison", routing_key=bench.topology.full(TASKS), properties=properties)
        await bench.broker.declare_agent("other")
        poisoned, other, notices = Seen(), Seen(), Seen()
        async with (
            bench.broker.consume(TASKS, poisoned, prefetch=5),
            bench.broker.consume("tasks.other", other, prefetch=5),
            bench.broker.consume(BROKER_DEAD_QUEUE, notices, prefetch=5),
        ):
            for number in range(20):
                await bench.broker.publish(to_agent("other"), task(str(number)))
                assert (await other.next(1)).content == str(number)
            await bench.has(UNREADABLE_QUEUE, 1, seconds=15)
            await bench.broker.publish(to_agent(AGENT), task("after"))
            assert (await poisoned.next()).content == "after"
        assert other.redelivered == [False] * 20
        for queue in bench.topology.of_agent("other"):
            await bench.delete(queue.name)


async def test_a_message_with_any_headers_can_be_parked(bench: RabbitMQBench) -> None:  # F20
    headers: FieldTable = {
        "text": "第一",
        "long": "x" * 3000,
        "number": 7,
        "big": 2**40,
        "float": 1.5,
        "exact": Decimal("1.25"),
        "when": datetime(2026, 1, 1, tzinfo=UTC),
        "table": {"a": [1, "b"]},
        "nothing": None,
        "bytes": bytearray(b"\xff\xfe"),
    }
    body = to_wire(task())
    channel = await bench.channel()
    properties = spec.Basic.Properties(headers=headers, content_type="application/json", correlation_id="关联", delivery_mode=2)
    await channel.basic_publish(body, routing_key=bench.topology.full(TASKS), properties=properties)

    async def handler(delivery: Delivery) -> None:
        await delivery.park("because \ud800 " + "x" * 2000)

    async with bench.broker.consume(TASKS, handler, prefetch=1):
        await bench.has(UNREADABLE_QUEUE, 1)
    got = await channel.basic_get(bench.topology.full(UNREADABLE_QUEUE))
    kept = got.header.properties
    assert (got.body, kept.content_type, kept.correlation_id, kept.delivery_mode) == (body, "application/json", "关联", 2)
    assert kept.headers is not None
    assert (kept.headers["text"], kept.headers["number"], kept.headers["x-briefline-queue"]) == ("第一", 7, TASKS)
    assert len(str(kept.headers["x-briefline-reason"])) == 500
    await channel.close()


# The line.


async def test_a_lost_confirm_is_an_unknown_outcome_and_the_message_is_there(
    bench: RabbitMQBench, rabbitmq_url: str, topology_prefix: str
) -> None:  # F07
    async with proxied(rabbitmq_url) as proxy, RabbitMQBroker(proxy.url, prefix=topology_prefix, call_timeout_seconds=1.5) as broker:
        proxy.deafen()
        with pytest.raises(OutcomeUnknown, match="in time"):
            await broker.publish(to_agent(AGENT), task())
        await bench.has(TASKS, 1)
        await broker.publish(to_agent(AGENT), task())  # a line on which nothing is confirmed is given up for another
        await bench.has(TASKS, 2)


async def test_a_line_cut_before_the_confirm_is_an_unknown_outcome_at_once(
    bench: RabbitMQBench, rabbitmq_url: str, topology_prefix: str
) -> None:
    async with proxied(rabbitmq_url) as proxy, RabbitMQBroker(proxy.url, prefix=topology_prefix, call_timeout_seconds=10) as broker:
        proxy.deafen()
        publishes = [asyncio.create_task(broker.publish(to_agent(AGENT), task())) for _ in range(5)]
        await bench.has(TASKS, 5)
        began = time.monotonic()
        proxy.hear()
        await proxy.cut()
        outcomes = await asyncio.gather(*publishes, return_exceptions=True)
        assert [type(outcome) for outcome in outcomes] == [OutcomeUnknown] * 5
        assert time.monotonic() - began < 1
        await broker.publish(to_agent(AGENT), task())  # waits for the next line, within its deadline
        await bench.has(TASKS, 6)


async def test_a_broker_that_is_not_there_is_unavailable_within_the_deadline_and_used_once_it_is(
    bench: RabbitMQBench, rabbitmq_url: str, topology_prefix: str
) -> None:  # F08
    proxy = Proxy(rabbitmq_url, free_port())
    async with RabbitMQBroker(proxy.url, prefix=topology_prefix, call_timeout_seconds=0.3) as broker:
        began = time.monotonic()
        with pytest.raises(Unavailable):
            await broker.publish(to_agent(AGENT), task())
        with pytest.raises(Unavailable):
            await broker.declare_agent(AGENT)
        seen = Seen()
        async with broker.consume(TASKS, seen, prefetch=1) as consumer:
            assert not consumer.consuming
            assert time.monotonic() - began < 2
            with pytest.raises(Unavailable):
                await broker.publish(to_agent(AGENT), task(), confirm=False)
            await proxy.listen()
            try:
                await bench.broker.publish(to_agent(AGENT), task("now"))
                assert (await seen.next(3)).content == "now"
                assert consumer.consuming
            finally:
                await consumer.stop()
    await proxy.close()


async def test_a_running_handler_outlives_its_line_and_its_late_ack_is_only_logged(
    bench: RabbitMQBench, rabbitmq_url: str, topology_prefix: str
) -> None:  # F03, F04, F05
    taken = Taken()
    async with (
        proxied(rabbitmq_url) as proxy,
        RabbitMQBroker(proxy.url, prefix=topology_prefix) as broker,
        broker.consume(TASKS, taken, prefetch=1) as consumer,
    ):
        await bench.broker.publish(to_agent(AGENT), task("long"))
        first = await taken.next()
        await proxy.cut()
        copy = await taken.next(3)  # the broker hands it out again while the first still runs
        assert (copy.message, copy.redelivered) == (first.message, True)
        with capture_logs() as logs:
            await first.ack()
        assert [entry["event"] for entry in logs] == ["settling_failed"]
        await taken.ack(copy)
        await bench.has(TASKS, 0)
        assert consumer.consuming


async def test_a_credit_that_changed_while_the_line_was_down_holds_on_the_next_one(
    bench: RabbitMQBench, rabbitmq_url: str, topology_prefix: str
) -> None:
    taken = Taken()
    async with (
        proxied(rabbitmq_url) as proxy,
        RabbitMQBroker(proxy.url, prefix=topology_prefix) as broker,
        broker.consume(TASKS, taken, prefetch=1) as consumer,
    ):
        await proxy.cut()
        await consumer.resize(3)
        await asyncio.gather(*(bench.broker.publish(to_agent(AGENT), task()) for _ in range(5)))
        in_hand = [await taken.next() for _ in range(3)]
        await bench.has(TASKS, 2)
        assert taken.nothing()
        await consumer.stop()
        for delivery in in_hand:
            await taken.ack(delivery)
    await bench.has(TASKS, 2)


async def test_a_consumer_whose_call_gets_no_answer_goes_to_another_line(
    bench: RabbitMQBench, rabbitmq_url: str, topology_prefix: str
) -> None:
    seen = Seen()
    async with (
        proxied(rabbitmq_url) as proxy,
        RabbitMQBroker(proxy.url, prefix=topology_prefix, call_timeout_seconds=0.5) as broker,
        broker.consume(TASKS, seen, prefetch=2) as consumer,
    ):
        proxy.deafen()
        await consumer.resize(1)
        await bench.broker.publish(to_agent(AGENT), task("heard"))
        assert (await seen.next(5)).content == "heard"
        assert consumer.consuming


async def test_a_consumer_of_a_deleted_queue_declares_it_with_its_binding(bench: RabbitMQBench) -> None:  # F02
    taken = Taken()
    async with bench.broker.consume(TASKS, taken, prefetch=1):
        await bench.broker.publish(to_agent(AGENT), task("in hand"))
        delivery = await taken.next()
        await bench.delete(TASKS)

        async def bound_again() -> bool:
            try:
                await bench.broker.publish(to_agent(AGENT), task("next"))
            except Undeliverable:
                return False
            return True

        await eventually(bound_again, seconds=15)
        await delivery.ack()  # its queue is gone: nothing breaks
        assert (await taken.next(15)).message.content == "next"


async def test_a_result_reaches_a_consumer_that_had_to_declare_its_queue(bench: RabbitMQBench) -> None:
    seen = Seen()
    await bench.delete(RESULTS_QUEUE)
    async with bench.broker.consume(RESULTS_QUEUE, seen, prefetch=1):
        await bench.broker.publish(RESULT_READY, task("result"))
        assert (await seen.next()).content == "result"
