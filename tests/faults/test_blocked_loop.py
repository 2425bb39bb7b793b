"""Agents that block: in a thread they hold up nobody; on the loop they are named while they do, and their steps are run elsewhere."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from structlog.testing import capture_logs

from ops.embedded import embedded
from ops.watchdog import watched_loop
from tests.end_to_end.processes import Commands
from tests.end_to_end.processes import System as Processes
from tests.faults.teams import BLOCKED_SECONDS
from tests.system.cast import Cast, answers, step
from tests.system.conftest import System
from tests.system.reports import code_of
from workers.agents.agent import AgentBrief
from workers.agents.blackbox import BlackBox
from workers.team import Team

pytestmark = pytest.mark.timeout(90)

BLOCKS = {"id": "a", "agent": "sleeper", "title": "A nap", "task": "Sleep."}


async def test_an_agent_that_blocks_the_loop_is_named_while_it_does_with_the_line_that_it_is_at() -> None:  # F12
    with capture_logs() as logs:
        seen: list[Any] = []

        async def block_until_told(brief: AgentBrief) -> str:
            give_up = time.monotonic() + 20
            while not seen and time.monotonic() < give_up:
                time.sleep(0.01)  # noqa: ASYNC251 - this is what is shown
                seen.extend(each for each in logs if each["event"] == "loop_blocked")
            return "Done."

        team = Team("slow", [BlackBox("sleeper", block_until_told)], [BLOCKS])
        with watched_loop(0.1):
            async with embedded(team) as runtime:
                report = await runtime.ask("Please.")

    (told,) = seen
    assert report.status == "COMPLETED"
    assert (told["task"], told["agents"]) == ("agent sleeper", ["sleeper"])
    assert __file__ in told["at"] and "block_until_told" in told["at"]


async def test_a_loop_that_is_only_busy_is_not_reported_and_the_watchdog_ends_with_its_block() -> None:
    with capture_logs() as logs:
        with watched_loop(0.5):
            over = time.monotonic() + 1.0
            while time.monotonic() < over:  # noqa: ASYNC110 - a busy loop is what is shown
                await asyncio.sleep(0)
            watchdogs = [each for each in threading.enumerate() if each.name == "loop-watchdog"]
        for each in watchdogs:
            await asyncio.to_thread(each.join, 10)
    assert len(watchdogs) == 1 and not watchdogs[0].is_alive()
    assert not logs


async def test_a_thread_that_never_ends_frees_its_place_at_the_timeout_and_is_told_of(system: System) -> None:  # F59
    enough = threading.Event()

    def spin(brief: AgentBrief) -> str:
        while not enough.wait(0.001):
            pass
        return "too late"

    cast = Cast({"b": answers})
    ends = cast.team(step("b"), agents=(BlackBox("spinner", spin),))
    hangs = cast.team(step("a", agent="spinner", timeout_seconds=0.3), step("b"), agents=(BlackBox("spinner", spin),))
    with capture_logs() as logs:
        async with system.serve(ends, concurrency=1) as runtime:
            stuck = await runtime.result(await runtime.submit(hangs, "Please."))
            again = await runtime.result(await runtime.submit(hangs, "And again: its place is free."))
            enough.set()
            after = await runtime.ask("And something else.")

    assert [code_of(each, "a") for each in (stuck, again)] == ["TIMEOUT", "TIMEOUT"]
    assert (stuck.status, after.status) == ("DEGRADED", "COMPLETED")
    assert "too late" not in stuck.answer + again.answer
    assert [each["what"] for each in logs if each["event"] == "thread_left_behind"] == ["agent spinner"] * 2


@pytest.fixture
def processes(commands: Commands, redis_url: str, rabbitmq_url: str) -> Iterator[Processes]:
    """Processes whose lines to RabbitMQ are given up after three silent seconds."""
    with Processes(commands, redis_url, f"{rabbitmq_url}?heartbeat=1") as made:
        yield made


def test_a_worker_that_is_blocked_for_longer_than_its_heartbeat_loses_the_step_and_nothing_else(processes: Processes) -> None:  # F12
    serve = ("--team", "tests.faults.teams:blocking")
    processes.orchestrator(sweep_seconds=0.2)
    blocked = processes.worker(*serve, lease_seconds=1)
    blocked.wait_until_started()
    request_id = processes.run("submit", "Please.", *serve).stdout.strip()
    processes.wait_for_event(request_id, event="step_claimed", step="a")
    told = blocked.wait_for("loop_blocked")
    other = processes.worker(*serve, lease_seconds=1)
    assert processes.wait(request_id) == "COMPLETED"

    assert told["agents"] == ["sleeper"] and "teams.py" in told["at"]
    assert blocked.wait_for("loop_went_on")["after_seconds"] > BLOCKED_SECONDS - 2
    processes.wait_for_event(request_id, event="late_result_refused", step="a")
    claims = processes.events(request_id, event="step_claimed", step="a")
    assert [(event.writer, event.labels["attempt"]) for event in claims] == [(blocked.name, "1"), (other.name, "2")]
    (done,) = processes.events(request_id, event="step_completed", step="a")
    assert done.writer == other.name
    assert blocked.code is None, "it goes on"
