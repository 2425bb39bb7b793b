"""A RabbitMQ that stops, comes back, throws its connections out or runs out of memory: one of our own, hurt test by test."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio

from ops.broker.safety import look_at_broker
from ops.findings import Level
from schemas.broker import Delivery, to_agent
from schemas.errors import OutcomeUnknown, Unavailable
from tests.ops.broker.bench import AGENT, TASKS, RabbitMQBench, Seen, Taken, rabbitmq_bench, task
from tests.support.servers import OwnRabbitMQ

pytestmark = pytest.mark.own_server

DEADLINE_SECONDS = 1.0


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OwnRabbitMQ]:
    """One RabbitMQ for all tests of this module; each leaves it running."""
    with OwnRabbitMQ(tmp_path_factory.mktemp("rabbitmq")) as server:
        yield server


@pytest.fixture
def prefix() -> str:
    """Names of a test's own."""
    return f"briefline.{secrets.token_hex(4)}"


@pytest_asyncio.fixture
async def bench(server: OwnRabbitMQ, prefix: str) -> AsyncIterator[RabbitMQBench]:
    """A broker over that server. What it declared stays there: the tests hurt the connection that would delete it."""
    opened = rabbitmq_bench(server.url, prefix, call_timeout_seconds=DEADLINE_SECONDS)
    yield await opened.__aenter__()
    with contextlib.suppress(Exception):
        await opened.__aexit__(None, None, None)


async def control(server: OwnRabbitMQ, *arguments: str) -> str:
    """Run rabbitmqctl beside the loop."""
    return await asyncio.to_thread(server.control, *arguments)


async def test_no_confirmed_message_is_lost_over_a_restart_and_every_call_keeps_its_deadline(
    server: OwnRabbitMQ, bench: RabbitMQBench
) -> None:  # F01, F08, F23
    confirmed: list[str] = []
    longest = 0.0
    over = asyncio.Event()

    async def publish_all_the_time() -> None:
        nonlocal longest
        number = 0
        while not over.is_set():
            number += 1
            began = time.monotonic()
            try:
                await bench.broker.publish(to_agent(AGENT), task(str(number)))
                confirmed.append(str(number))
            except Unavailable:
                pass
            longest = max(longest, time.monotonic() - began)
            await asyncio.sleep(0.02)

    received: set[str] = set()

    async def handler(delivery: Delivery) -> None:
        received.add(delivery.message.content)
        await delivery.ack()

    async with bench.broker.consume(TASKS, handler, prefetch=4) as consumer, asyncio.TaskGroup() as group:
        group.create_task(publish_all_the_time())
        await control(server, "stop_app")
        assert not consumer.consuming
        began = time.monotonic()
        with pytest.raises(Unavailable):
            await bench.broker.declare_agent("another")
        assert time.monotonic() - began < DEADLINE_SECONDS + 0.5
        before = len(confirmed)
        await control(server, "start_app")
        back = time.monotonic()
        while len(confirmed) == before or confirmed[-1] not in received:
            assert time.monotonic() - back < 3
            await asyncio.sleep(0.02)
        assert consumer.consuming
        over.set()
    assert longest < DEADLINE_SECONDS + 0.5
    async with bench.broker.consume(TASKS, handler, prefetch=4), asyncio.timeout(5):
        while not set(confirmed) <= received:  # noqa: ASYNC110 - what is not there comes from the server
            await asyncio.sleep(0.02)


async def test_connections_that_an_operator_closes_cancel_no_handler_and_come_back(
    server: OwnRabbitMQ, bench: RabbitMQBench
) -> None:  # F01, F03, F05
    finished: list[str] = []
    started, go_on, all_finished = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def handler(delivery: Delivery) -> None:
        started.set()
        await go_on.wait()
        await delivery.ack()
        finished.append(delivery.message.content)
        if len(finished) == 2:
            all_finished.set()

    async with bench.broker.consume(TASKS, handler, prefetch=1):
        await bench.broker.publish(to_agent(AGENT), task("long"))
        await started.wait()
        started.clear()
        await control(server, "close_all_connections", "maintenance")
        await asyncio.wait_for(started.wait(), 3)  # its copy
        go_on.set()
        await asyncio.wait_for(all_finished.wait(), 3)
    assert finished == ["long", "long"]
    seen = Seen()
    async with bench.broker.consume(TASKS, seen, prefetch=1) as consumer:
        for number in range(3):
            await control(server, "close_all_connections", "maintenance")
            began = time.monotonic()
            while True:
                with contextlib.suppress(Unavailable):
                    await bench.broker.publish(to_agent(AGENT), task(str(number)))
                    break
            assert (await seen.next(3)).content == str(number)
            assert consumer.consuming
            assert time.monotonic() - began < 3


async def test_under_a_memory_alarm_publishing_ends_within_its_deadline_and_consuming_goes_on(
    server: OwnRabbitMQ, bench: RabbitMQBench
) -> None:  # F15
    taken = Taken()
    async with bench.broker.consume(TASKS, taken, prefetch=1):
        for number in range(3):
            await bench.broker.publish(to_agent(AGENT), task(str(number)))
        await control(server, "set_vm_memory_high_watermark", "0.00001")
        try:
            began = time.monotonic()
            with pytest.raises(OutcomeUnknown):  # the broker says that it is blocked once somebody publishes
                await bench.broker.publish(to_agent(AGENT), task("unknown"))
            with pytest.raises(Unavailable) as refused:
                await bench.broker.publish(to_agent(AGENT), task("refused"))
            assert type(refused.value) is Unavailable  # not sent, so not unknown
            assert time.monotonic() - began < 2 * DEADLINE_SECONDS + 0.5
            for number in range(3):
                delivery = await taken.next(1)
                assert delivery.message.content == str(number)
                await taken.ack(delivery)
        finally:
            await control(server, "set_vm_memory_high_watermark", "0.6")
        last = await taken.next(3)
        assert last.message.content == "unknown"
        await taken.ack(last)
        await bench.broker.publish(to_agent(AGENT), task("after"))
        after = await taken.next(3)
        assert after.message.content == "after"
        await taken.ack(after)


async def test_confirmed_messages_survive_a_killed_server(server: OwnRabbitMQ, bench: RabbitMQBench) -> None:  # F23
    await asyncio.gather(*(bench.broker.publish(to_agent(AGENT), task(str(number))) for number in range(50)))
    # RabbitMQ 3.10 registers a new quorum queue on disk some moments after it says that it is declared. Killed before
    # that, it comes back with a queue that answers nobody. Nothing tells when it is done.
    await asyncio.sleep(2)
    await asyncio.to_thread(server.kill)
    await asyncio.to_thread(server.start)
    seen = Seen()
    async with bench.broker.consume(TASKS, seen, prefetch=10):
        contents = await seen.contents(50)
    assert sorted(contents, key=int) == [str(number) for number in range(50)]


async def test_the_look_at_a_server_names_what_is_missing_and_what_does_not_fit(
    server: OwnRabbitMQ, bench: RabbitMQBench, prefix: str
) -> None:
    channel = await bench.channel()
    await channel.queue_declare(bench.topology.full("tasks.bad"), durable=True, arguments={"x-queue-type": "quorum"})
    found = await look_at_broker(server.url, prefix=prefix, agents=[AGENT, "bad", "new"], ack_after_seconds=300)
    assert found[0].what.startswith("RabbitMQ 3.")
    by_level = {level: " ".join(finding.what for finding in found if finding.level is level) for level in Level}
    assert f"{prefix}.{TASKS} is declared" in by_level[Level.OK]
    assert f"{prefix}.tasks.new is not declared" in by_level[Level.WARN]
    assert f"{prefix}.tasks.bad exists with other arguments" in by_level[Level.FAIL]
    assert "inequivalent arg" in by_level[Level.FAIL]
    assert "consumer_timeout" in found[-1].advice
    assert "300 s" in found[-1].what
    found = await look_at_broker(server.url.replace("guest:guest", "guest:wrong"), prefix=prefix)
    assert [finding.level for finding in found] == [Level.FAIL]
    assert "ACCESS_REFUSED" in found[0].what
