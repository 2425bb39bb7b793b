"""Lines to RabbitMQ that break at the worst moment: under a running agent, before, at and after the ack, at a submit."""

from __future__ import annotations

import asyncio
import secrets

import pytest

from ops.broker.rabbitmq import RabbitMQBroker
from ops.client import Client
from ops.own_servers import free_port
from schemas import fields
from schemas.broker import task_queue
from schemas.messages import AgentMessage, MessageType
from tests.faults.conftest import Lines
from tests.faults.lines import BASIC_ACK
from tests.ops.broker.proxy import proxied
from tests.system.cast import Cast, Gate, step
from tests.system.conftest import hold_still
from tests.system.reports import named

pytestmark = [pytest.mark.timeout(60), pytest.mark.servers]


def is_task(bell: AgentMessage) -> bool:
    """Whether a message is a TASK."""
    return bell.type is MessageType.TASK


@pytest.mark.parametrize("workers", [1, 2, 3])
async def test_a_line_that_breaks_under_a_running_agent_starts_no_second_run_and_stops_none(lines: Lines, workers: int) -> None:  # F03, F04
    system, gate = lines.system, Gate()
    cast = Cast({"a": gate})
    async with system.serve(cast.team(step("a")), workers=workers) as runtime:
        accepted = await runtime.submit(runtime.team, "Please.")
        await gate.entered.wait()
        bell = await system.broker.was_published(is_task)
        await lines.proxy.cut()
        await system.broker.was_handled(bell)  # the copy that the broker hands out again is settled while the first runs
        assert cast.runs == {"a": 1} and not gate.stopped.is_set()
        gate.opened.set()
        report = await runtime.result(accepted)

    assert report.status == "COMPLETED" and cast.runs == {"a": 1}
    assert [event.labels["attempt"] for event in named(report.events, "step_claimed")] == ["1"]
    assert sum(fields.result("a") in event.put for event in report.events) == 1


@pytest.mark.parametrize("how", ["the line breaks before the ack", "the ack is lost on its way"])
async def test_a_finished_task_that_comes_again_is_told_again_and_runs_nothing(lines: Lines, how: str) -> None:  # F05, F06
    system = lines.system
    hurt: asyncio.Queue[AgentMessage] = asyncio.Queue()

    async def on_ack(bell: AgentMessage) -> None:
        if is_task(bell) and bell.step_id == "a":
            system.broker.on_ack = None
            if how == "the line breaks before the ack":
                await lines.proxy.cut()
            else:
                lines.proxy.mute()
            hurt.put_nowait(bell)

    system.broker.on_ack = on_ack
    gate = Gate()  # of a neighbour that keeps the request open: once it is over, a copy is late and nothing is told
    cast = Cast({"b": gate})
    async with system.serve(cast.team(step("a"), step("b"))) as runtime:
        accepted = await runtime.submit(runtime.team, "Please.")
        bell = await hurt.get()
        if how == "the ack is lost on its way":
            await lines.proxy.lost(BASIC_ACK)
            await lines.proxy.speak()
        await system.broker.was_handled(bell, 2)
        told = [each for _, each in system.broker.published if each.type is MessageType.RESULT_READY]
        gate.opened.set()
        report = await runtime.result(accepted)

    assert report.status == "COMPLETED" and cast.runs == {"a": 1, "b": 1}
    assert [(each.step_id, each.again) for each in told] == [("a", True)], "at first there was nothing to tell: b was open"
    await system.look.has(task_queue("hand"), 0)
    await hold_still(system.board, accepted.request_id)
    assert sum(fields.result("a") in event.put for event in report.events) == 1


async def test_a_submit_whose_confirm_is_lost_and_that_is_sent_again_is_carried_out_once(
    lines: Lines, rabbitmq_url: str, topology_prefix: str
) -> None:  # F07
    system, cast = lines.system, Cast()
    team = cast.team(step("a"))
    async with (
        system.serve(team) as runtime,
        proxied(rabbitmq_url) as proxy,
        RabbitMQBroker(proxy.url, prefix=topology_prefix, call_timeout_seconds=0.5) as broker,
    ):
        client, key = Client(system.board, broker), secrets.token_hex(4)
        proxy.deafen()
        first = await client.submit(team, "Please.", idempotency_key=key)  # accepted means opened: it is on the board
        again = await client.submit(team, "Please.", idempotency_key=key)
        assert (first.new, again.new) == (True, False) and first.request_id == again.request_id
        report = await runtime.result(first.request_id)

    assert report.status == "COMPLETED" and cast.runs == {"a": 1}
    assert len(named(report.events, "request_opened")) == len(named(report.events, "plan_written")) == 1


async def test_fifty_clients_that_a_broker_turns_away_come_back_one_by_one_and_seldom() -> None:  # F55
    loop, times = asyncio.get_running_loop(), list[float]()

    def turn_away(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        times.append(loop.time())
        writer.transport.abort()

    server = await asyncio.start_server(turn_away, "127.0.0.1", port := free_port(), backlog=200)
    brokers = [RabbitMQBroker(f"amqp://guest:guest@127.0.0.1:{port}/") for _ in range(50)]
    await asyncio.gather(*(broker.__aenter__() for broker in brokers))
    began = loop.time()
    await asyncio.sleep(6)
    await asyncio.gather(*(broker.__aexit__(None, None, None) for broker in brokers))
    server.close()
    await server.wait_closed()

    late = [time for time in times if time > began + 2]
    assert len(late) >= 50, "they go on trying"
    assert len(times) < 50 * 14, "and not without a pause"
    assert max(sum(start <= time < start + 0.1 for time in late) for start in late) < 40, "and not all at once"
