"""Agents that outlast the broker's acknowledgement timeout: with an early ack, and without one."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from schemas import fields
from schemas.messages import AgentMessage, MessageType
from tests.faults.conftest import served_by, worker
from tests.support.servers import OwnRabbitMQ
from tests.system.cast import Cast, Gate, step
from tests.system.conftest import System, hold_still
from tests.system.reports import named

pytestmark = [pytest.mark.timeout(120), pytest.mark.own_server, pytest.mark.xdist_group("faults-rabbitmq")]

TIMEOUT_SECONDS = 2.0
TICK_SECONDS = 0.25
"""How often RabbitMQ looks for deliveries that were not acked in time; a minute, unless it is told otherwise."""


async def patience(server: OwnRabbitMQ, timeout_ms: int, tick_ms: int) -> None:
    """Set the acknowledgement timeout, and how often it is looked at, for channels that are opened from now on."""
    settings = {"consumer_timeout": timeout_ms, "channel_tick_interval": tick_ms}
    told = ", ".join(f"application:set_env(rabbit, {name}, {value})" for name, value in settings.items())
    await asyncio.to_thread(server.control, "eval", f"{told}.")


@pytest_asyncio.fixture
async def system(rabbitmq: OwnRabbitMQ, redis_url: str, key_prefix: str, topology_prefix: str) -> AsyncIterator[System]:
    """A system on a RabbitMQ without patience."""
    await patience(rabbitmq, int(TIMEOUT_SECONDS * 1000), int(TICK_SECONDS * 1000))
    try:
        async with served_by(rabbitmq.url, rabbitmq.url, topology_prefix, redis_url, key_prefix) as made:
            yield made
    finally:
        await patience(rabbitmq, 1_800_000, 60_000)


async def test_an_agent_that_outlasts_the_ack_timeout_runs_once_on_the_line_that_it_began_on(system: System) -> None:  # F11
    gate, cast = Gate(), Cast()
    cast.acts["a"] = gate
    team = cast.team(step("a"), step("b"))
    async with system.serve(team, workers=0) as runtime, worker(system, team, concurrency=2, ack_after_seconds=0.4, lease_seconds=1):
        began = time.monotonic()
        accepted = await runtime.submit(team, "Please.")
        await gate.entered.wait()
        await asyncio.sleep(TIMEOUT_SECONDS * 2.5)  # nothing may happen, and only time can show it
        gate.opened.set()
        report = await runtime.result(accepted)
        took = time.monotonic() - began

    assert took > TIMEOUT_SECONDS * 2
    assert report.status == "COMPLETED" and cast.runs == {"a": 1, "b": 1}
    assert {bell.step_id: times for bell, times in tasks(system)} == {"a": 1, "b": 1}, "no task came twice: the channel stayed open"
    assert sum(fields.result("a") in event.put for event in report.events) == 1


async def test_an_agent_that_is_not_acked_early_loses_its_channel_and_still_runs_once(system: System) -> None:  # F11, F04
    """RabbitMQ closes the channel and hands out again all that was in hand on it; each copy finds its step held, and is settled."""
    long, neighbour = Gate(), Gate()
    cast = Cast({"a": long, "b": neighbour})
    team = cast.team(step("a"), step("b"))
    async with system.serve(team, workers=0) as runtime, worker(system, team, concurrency=2, ack_after_seconds=600, lease_seconds=1):
        accepted = await runtime.submit(team, "Please.")
        await asyncio.gather(long.entered.wait(), neighbour.entered.wait())
        for bell in [each for _, each in system.broker.published if each.type is MessageType.TASK]:
            await asyncio.wait_for(system.broker.was_handled(bell), 30)  # the copy; the first is still at its gate
        assert cast.runs == {"a": 1, "b": 1} and not long.stopped.is_set() and not neighbour.stopped.is_set()
        for gate in (long, neighbour):
            gate.opened.set()
        report = await runtime.result(accepted)

    assert report.status == "COMPLETED" and cast.runs == {"a": 1, "b": 1}
    assert [event.labels["attempt"] for event in named(report.events, "step_claimed")] == ["1", "1"]
    await hold_still(system.board, accepted.request_id)
    for each in ("a", "b"):
        assert sum(fields.result(each) in event.put for event in report.events) == 1


def tasks(system: System) -> list[tuple[AgentMessage, int]]:
    """Each TASK that was rung, and how often a handler has returned from it."""
    return [(bell, system.broker.handled[bell.id]) for _, bell in system.broker.published if bell.type is MessageType.TASK]
