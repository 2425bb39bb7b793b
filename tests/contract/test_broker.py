"""What every broker promises, whether it is RabbitMQ or in memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from schemas.broker import (
    BROKER_DEAD_QUEUE,
    COMMANDS,
    COMMANDS_QUEUE,
    RESULT_FAILED,
    RESULT_READY,
    RESULTS_QUEUE,
    UNREADABLE_QUEUE,
    Delivery,
    dead_queue,
    request_event,
    to_agent,
    to_dead,
)
from schemas.errors import InvalidValue, Unavailable, Undeliverable
from schemas.messages import MessageType, message, to_wire
from tests.ops.broker.bench import AGENT, TASKS, Bench, Seen, Taken, eventually, memory_bench, rabbitmq_bench, task


@pytest_asyncio.fixture(params=["memory", pytest.param("rabbitmq", marks=pytest.mark.servers)])
async def bench(request: pytest.FixtureRequest) -> AsyncIterator[Bench]:
    """Each broker with the queues of one agent."""
    if request.param == "memory":
        async with memory_bench() as memory:
            yield memory
    else:
        url, prefix = request.getfixturevalue("rabbitmq_url"), request.getfixturevalue("topology_prefix")
        async with rabbitmq_bench(url, prefix) as rabbitmq:
            yield rabbitmq


# Routing.


async def test_each_message_reaches_the_queue_of_its_address_and_no_other(bench: Bench) -> None:
    for address in (to_agent(AGENT), RESULT_READY, RESULT_FAILED, COMMANDS, to_dead(AGENT)):
        await bench.broker.publish(address, task(str(address)))
    for queue, count in ((TASKS, 1), (RESULTS_QUEUE, 2), (COMMANDS_QUEUE, 1), (dead_queue(AGENT), 1), (UNREADABLE_QUEUE, 0)):
        await bench.has(queue, count)


async def test_a_message_arrives_as_it_was_sent(bench: Bench) -> None:
    sent = message(
        MessageType.TASK,
        "请求-1",
        sender="orchestrator",
        recipient=AGENT,
        step_id="查询",
        content="预算两千元以内 🏠",
        epoch=3,
        seen={"step/查询": "7.k3f9"},
        trace="00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    )
    seen = Seen()
    async with bench.broker.consume(TASKS, seen, prefetch=1):
        await bench.broker.publish(to_agent(AGENT), sent)
        assert await seen.next() == sent
    assert seen.redelivered == [False]


async def test_a_task_waits_for_an_agent_that_no_worker_serves_yet(bench: Bench) -> None:
    await bench.broker.publish(to_agent(AGENT), task("early"))
    seen = Seen()
    async with bench.broker.consume(TASKS, seen, prefetch=1):
        assert (await seen.next()).content == "early"


async def test_a_message_to_an_agent_that_nobody_declared_is_undeliverable(bench: Bench) -> None:
    with pytest.raises(Undeliverable, match="nobody"):
        await bench.broker.publish(to_agent("nobody"), task())


async def test_declaring_an_agent_tells_how_many_tasks_wait_for_it(bench: Bench) -> None:
    assert await bench.broker.declare_agent(AGENT) == 0
    for _ in range(3):
        await bench.broker.publish(to_agent(AGENT), task())
    await bench.has(TASKS, 3)
    assert await bench.broker.declare_agent(AGENT) == 3


async def test_a_deleted_agent_is_undeliverable_until_it_is_declared_again(bench: Bench) -> None:
    await bench.delete(TASKS)
    with pytest.raises(Undeliverable):
        await bench.broker.publish(to_agent(AGENT), task())
    await bench.broker.declare_agent(AGENT)
    await bench.broker.publish(to_agent(AGENT), task())
    await bench.has(TASKS, 1)


@pytest.mark.parametrize(("address", "queue"), [(RESULT_READY, RESULTS_QUEUE), (COMMANDS, COMMANDS_QUEUE)])
async def test_a_deleted_queue_of_the_fixed_topology_comes_back_with_the_next_message(bench: Bench, address: object, queue: str) -> None:
    await bench.delete(queue)
    await bench.broker.publish(address, task("after"))  # type: ignore[arg-type] # parametrized
    await bench.has(queue, 1)


async def test_an_unconfirmed_message_needs_no_listener(bench: Bench) -> None:
    await bench.broker.publish(request_event("COMPLETED"), task(), confirm=False)
    with pytest.raises(Undeliverable):
        await bench.broker.publish(request_event("COMPLETED"), task())


async def test_declaring_an_agent_again_changes_nothing(bench: Bench) -> None:
    await bench.broker.publish(to_agent(AGENT), task())
    await bench.has(TASKS, 1)
    await bench.broker.declare_agent(AGENT)
    await bench.has(TASKS, 1)


@pytest.mark.parametrize("agent", ["broker", "unreadable"])
async def test_an_agent_named_like_a_queue_of_the_brokers_gets_its_own_messages(bench: Bench, agent: str) -> None:
    await bench.broker.declare_agent(agent)
    seen = Seen()
    async with bench.broker.consume(f"tasks.{agent}", seen, prefetch=1):
        await bench.broker.publish(to_agent(agent), task("mine"))
        assert (await seen.next()).content == "mine"
    await bench.broker.publish(to_dead(agent), task())
    await bench.has(dead_queue(agent), 1)
    await bench.delete(f"tasks.{agent}")


async def test_messages_in_flight_together_are_each_confirmed_or_returned_for_themselves(bench: Bench) -> None:
    same = task()
    addresses = [to_agent(AGENT), to_agent("nobody")] * 20
    outcomes = await asyncio.gather(*(bench.broker.publish(address, same) for address in addresses), return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [type(None), Undeliverable] * 20
    await bench.has(TASKS, 20)


async def test_there_is_no_consuming_from_a_queue_that_the_topology_does_not_have(bench: Bench) -> None:
    with pytest.raises(InvalidValue, match="no queue 'letters'"):
        async with bench.broker.consume("letters", Seen(), prefetch=1):
            pass


# Who gets what, and how much of it.


async def test_consumers_of_one_queue_share_its_messages(bench: Bench) -> None:
    one, other = Taken(), Taken()
    async with bench.broker.consume(TASKS, one, prefetch=5), bench.broker.consume(TASKS, other, prefetch=5):
        for number in range(10):
            await bench.broker.publish(to_agent(AGENT), task(str(number)))
        deliveries = [(taken, await taken.next()) for taken in (one, other) for _ in range(5)]
        assert sorted(delivery.message.content for _, delivery in deliveries) == [str(number) for number in range(10)]
        for taken, delivery in deliveries:
            await taken.ack(delivery)


async def test_no_more_than_the_prefetch_is_in_hand(bench: Bench) -> None:  # F16
    running = peak = 0
    done = asyncio.Semaphore(0)

    async def handler(delivery: Delivery) -> None:
        nonlocal running, peak
        running += 1
        peak = max(peak, running)
        await asyncio.sleep(0.01)
        running -= 1
        await delivery.ack()
        done.release()

    await asyncio.gather(*(bench.broker.publish(to_agent(AGENT), task()) for _ in range(40)))
    async with bench.broker.consume(TASKS, handler, prefetch=4):
        for _ in range(40):
            await asyncio.wait_for(done.acquire(), 5)
    assert peak == 4
    await bench.has(TASKS, 0)


async def test_what_was_in_hand_of_a_consumer_that_left_is_handed_out_again(bench: Bench) -> None:
    taken = Taken()
    await asyncio.gather(*(bench.broker.publish(to_agent(AGENT), task(str(number))) for number in range(3)))
    async with bench.broker.consume(TASKS, taken, prefetch=2):
        first = await taken.next()
        await taken.next()
        await taken.ack(first)
    seen = Seen()
    async with bench.broker.consume(TASKS, seen, prefetch=10):
        assert sorted([*await seen.contents(2), first.message.content]) == ["0", "1", "2"]
    assert True in seen.redelivered
    assert await bench.depth(UNREADABLE_QUEUE) == 0  # leaving is no failure (F14)


async def test_a_smaller_credit_counts_what_is_in_hand_and_loses_nothing(bench: Bench) -> None:
    taken = Taken()
    await asyncio.gather(*(bench.broker.publish(to_agent(AGENT), task(str(number))) for number in range(10)))
    async with bench.broker.consume(TASKS, taken, prefetch=4) as consumer:
        in_hand = [await taken.next() for _ in range(4)]
        await consumer.resize(3)
        assert consumer.consuming
        await taken.ack(in_hand.pop())
        await bench.has(TASKS, 6)
        assert taken.nothing()  # three are still in hand
        await taken.ack(in_hand.pop())
        in_hand.append(await taken.next())
        await bench.has(TASKS, 5)
        for delivery in in_hand:
            await taken.ack(delivery)
        rest = [await taken.next() for _ in range(3)]
        assert taken.nothing()
        for delivery in rest:
            await taken.ack(delivery)
        for delivery in [await taken.next() for _ in range(2)]:
            assert not delivery.redelivered
            await taken.ack(delivery)
    await bench.has(TASKS, 0)


async def test_a_larger_credit_takes_more_at_once(bench: Bench) -> None:
    taken = Taken()
    await asyncio.gather(*(bench.broker.publish(to_agent(AGENT), task(str(number))) for number in range(5)))
    async with bench.broker.consume(TASKS, taken, prefetch=1) as consumer:
        in_hand = [await taken.next()]
        await consumer.resize(3)
        in_hand += [await taken.next(), await taken.next()]
        await bench.has(TASKS, 2)
        assert taken.nothing()
        for delivery in in_hand:
            await taken.ack(delivery)
        for delivery in [await taken.next(), await taken.next()]:
            await taken.ack(delivery)


async def test_a_stopped_consumer_takes_nothing_more_and_settles_what_it_has(bench: Bench) -> None:
    taken = Taken()
    await asyncio.gather(*(bench.broker.publish(to_agent(AGENT), task(str(number))) for number in range(3)))
    async with bench.broker.consume(TASKS, taken, prefetch=1) as consumer:
        assert consumer.consuming
        delivery = await taken.next()
        await consumer.stop()
        assert not consumer.consuming
        await taken.ack(delivery)
        await bench.has(TASKS, 2)
        assert taken.nothing()
    await bench.has(TASKS, 2)


async def test_an_error_in_the_consumers_block_comes_out_as_it_is(bench: Bench) -> None:
    with pytest.raises(KeyError, match="mine"):
        async with bench.broker.consume(TASKS, Seen(), prefetch=1):
            raise KeyError("mine")


# What goes wrong with one message.


async def test_a_message_that_is_handed_back_comes_again_after_the_delay(bench: Bench) -> None:
    times: list[float] = []
    over = asyncio.Event()

    async def handler(delivery: Delivery) -> None:
        times.append(asyncio.get_running_loop().time())
        if len(times) == 1:
            await delivery.nack(0.3)
        else:
            assert delivery.redelivered
            await delivery.ack()
            over.set()

    async with bench.broker.consume(TASKS, handler, prefetch=1):
        await bench.broker.publish(to_agent(AGENT), task())
        await asyncio.wait_for(over.wait(), 5)
    assert times[1] - times[0] >= 0.3


async def test_a_message_that_comes_back_too_often_lies_with_what_the_broker_gave_up(bench: Bench) -> None:
    handed_out = 0

    async def handler(delivery: Delivery) -> None:
        nonlocal handed_out
        handed_out += 1
        await delivery.nack()

    poison = task("poison")
    await bench.broker.publish(to_agent(AGENT), poison)
    await bench.drained(handler, TASKS, 21)
    await bench.has(BROKER_DEAD_QUEUE, 1)
    assert handed_out == 21
    seen = Seen()
    async with bench.broker.consume(BROKER_DEAD_QUEUE, seen, prefetch=1):
        assert await seen.next() == poison


async def test_a_parked_message_lies_there_with_its_reason_and_the_consumer_goes_on(bench: Bench) -> None:
    seen = Seen()

    async def handler(delivery: Delivery) -> None:
        if delivery.message.content == "bad":
            await delivery.park("第 7 步不存在: it contradicts the board")
        else:
            await seen(delivery)

    bad = task("bad")
    async with bench.broker.consume(TASKS, handler, prefetch=1):
        await bench.broker.publish(to_agent(AGENT), bad)
        await bench.broker.publish(to_agent(AGENT), task("good"))
        assert (await seen.next()).content == "good"
    assert await bench.bodies(UNREADABLE_QUEUE) == [to_wire(bad)]
    assert await bench.reasons(UNREADABLE_QUEUE) == ["第 7 步不存在: it contradicts the board"]


UNREADABLE_BODIES = {
    "empty": b"",
    "no JSON": b"hello",
    "bad UTF-8": b'{"specversion":"1.0","type":"\xff"}',
    "NaN": b'{"specversion":"1.0","type":"briefline.task.v1","data":{"epoch":NaN}}',
    "deep": b"[" * 3000 + b"]" * 3000,
    "no event": b"[1,2,3]",
    "a lone surrogate": b'{"specversion":"1.0","type":"\\ud800","data":{}}',
    "an unknown type": to_wire(task()).replace(b"briefline.task.v1", b"briefline.dance.v1"),
    "another major version": to_wire(task()).replace(b'"data":{', b'"data":{"schema_version":"2.0",'),
    "a missing field": to_wire(task()).replace(b'"recipient"', b'"reciipient"'),
    "a huge integer": to_wire(task()).replace(b'"data":{', b'"data":{"epoch":1e999,'),
    "too large": b'{"specversion":"1.0","data":{"x":"' + b"x" * 300_000 + b'"}}',
}


async def test_invariant_15_what_cannot_be_read_is_parked_as_it_came_and_the_consumer_goes_on(bench: Bench) -> None:
    seen = Seen()
    async with bench.broker.consume(TASKS, seen, prefetch=3) as consumer:
        for body in UNREADABLE_BODIES.values():
            await bench.put(TASKS, body)
        await bench.broker.publish(to_agent(AGENT), task("readable"))
        assert (await seen.next()).content == "readable"
        await bench.has(UNREADABLE_QUEUE, len(UNREADABLE_BODIES))
        assert consumer.consuming
    assert seen.messages.empty()
    assert sorted(await bench.bodies(UNREADABLE_QUEUE)) == sorted(UNREADABLE_BODIES.values())
    assert all(await bench.reasons(UNREADABLE_QUEUE))
    await bench.has(TASKS, 0)


async def test_a_newer_minor_version_is_read_and_its_unknown_fields_are_ignored(bench: Bench) -> None:
    seen = Seen()
    async with bench.broker.consume(TASKS, seen, prefetch=1):
        await bench.put(TASKS, to_wire(task("new")).replace(b'"data":{', b'"data":{"schema_version":"1.7","mood":"calm",'))
        assert (await seen.next()).content == "new"


@pytest.mark.parametrize("how", ["raises", "is cancelled by what it awaits", "returns without settling"])
async def test_a_message_whose_handler_fails_five_times_is_parked_with_the_last_error(bench: Bench, how: str) -> None:
    calls = 0

    async def handler(delivery: Delivery) -> None:
        nonlocal calls
        calls += 1
        if how == "raises":
            raise KeyError(f"call {calls}")
        if how != "returns without settling":
            raise asyncio.CancelledError("a tool's own")

    broken = task()
    async with bench.broker.consume(TASKS, handler, prefetch=1):
        await bench.broker.publish(to_agent(AGENT), broken)
        await bench.has(UNREADABLE_QUEUE, 1, seconds=10)
    assert calls == 5
    assert await bench.bodies(UNREADABLE_QUEUE) == [to_wire(broken)]
    expected = {"raises": "KeyError: 'call 5'", "returns without settling": "without settling"}.get(how, "CancelledError: a tool's own")
    assert expected in (await bench.reasons(UNREADABLE_QUEUE))[0]
    await bench.has(TASKS, 0)


async def test_a_message_is_kept_in_hand_for_as_long_as_a_server_is_unavailable(bench: Bench) -> None:
    calls = 0
    seen = Seen()

    async def handler(delivery: Delivery) -> None:
        nonlocal calls
        calls += 1
        if calls <= 6:
            error = Unavailable("the board does not answer")
            raise error if calls % 2 else ExceptionGroup("both", [error, error])
        await seen(delivery)

    async with bench.broker.consume(TASKS, handler, prefetch=1):
        await bench.broker.publish(to_agent(AGENT), task("first"))
        await bench.broker.publish(to_agent(AGENT), task("second"))
        assert await seen.contents(2) == ["first", "second"]  # the second was not taken before the first
    assert calls == 8
    assert seen.redelivered == [False, False]
    assert await bench.depth(UNREADABLE_QUEUE) == 0


async def test_settling_twice_is_an_error_of_the_handlers_and_settles_once(bench: Bench) -> None:
    errors: list[str] = []

    async def handler(delivery: Delivery) -> None:
        await delivery.ack()
        try:
            await delivery.nack()
        except RuntimeError as error:
            errors.append(str(error))

    await bench.broker.publish(to_agent(AGENT), task())
    await bench.drained(handler, TASKS, 1)
    assert len(errors) == 1
    assert "settled already" in errors[0]


async def test_a_handler_that_raises_after_settling_is_not_called_again(bench: Bench) -> None:
    calls = 0

    async def handler(delivery: Delivery) -> None:
        nonlocal calls
        calls += 1
        await delivery.ack()
        raise ValueError("too late")

    await bench.broker.publish(to_agent(AGENT), task())
    await bench.drained(handler, TASKS, 1)
    assert calls == 1
    assert await bench.depth(UNREADABLE_QUEUE) == 0


async def test_a_consumer_outlives_the_deletion_of_its_queue(bench: Bench) -> None:  # F02
    seen = Seen()
    async with bench.broker.consume(TASKS, seen, prefetch=2) as consumer:
        await bench.delete(TASKS)

        async def taken_again() -> bool:
            try:
                await bench.broker.publish(to_agent(AGENT), task("again"))
            except Undeliverable:
                return False
            return True

        await eventually(taken_again, seconds=3)
        assert (await seen.next(3)).content == "again"
        assert consumer.consuming
