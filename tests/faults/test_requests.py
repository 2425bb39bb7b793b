"""Requests under faults of agents, queues and input: joins, retries, lost dead letters, what is too large, clocks."""

from __future__ import annotations

import ast
import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

from schemas.broker import dead_queue
from schemas.errors import LimitExceeded, Unavailable
from schemas.messages import AgentMessage, MessageType
from tests.system.cast import Act, Cast, Gate, fails, step, told
from tests.system.conftest import System
from tests.system.reports import code_of, named, states
from workers import recording
from workers.agents.agent import AgentBrief

pytestmark = pytest.mark.timeout(60)

ROOT = Path(__file__).parents[2]


# F54: a join waits for ends of any kind.


async def raises_cancelled(brief: AgentBrief) -> Any:
    """End by a cancellation that nobody asked for."""
    raise asyncio.CancelledError


async def test_a_join_goes_on_however_its_ten_inputs_have_ended(system: System) -> None:  # F54
    inputs = [f"i{number}" for number in range(10)]
    acts: dict[str, Act] = {
        "i0": fails("NO_STOCK"),
        "i1": Gate(),  # times out
        "i2": raises_cancelled,
        "i3": fails("BUSY", retryable=True),  # is tried again, and given up
    }
    system.broker.fault = lambda address, bell: 2 if bell.step_id == "i4" else 1
    more: dict[str, dict[str, Any]] = {"i1": {"timeout_seconds": 0.4}, "i3": {"max_attempts": 2}}
    cast = Cast(acts)
    plan = [step(each, critical=False, **more.get(each, {})) for each in inputs]
    async with system.serve(cast.team(*plan, step("join", *inputs)), workers=2, concurrency=10) as runtime:
        report = await runtime.ask("Please.")
        letters = {letter.step_id for letter in await runtime.dead()}

    assert states(report) == {each: "FAILED" if each in acts else "COMPLETED" for each in inputs} | {"join": "COMPLETED"}
    assert [code_of(report, each) for each in acts] == ["NO_STOCK", "TIMEOUT", "AGENT_ERROR", "BUSY"]
    assert letters == acts.keys() and report.status == "DEGRADED"
    assert cast.runs == dict.fromkeys((*inputs, "join"), 1) | {"i3": 2}
    (brief,) = cast.briefs["join"]
    assert all(f"Part I{number}" in brief.brief.text for number in range(10)), "what came, and what did not"


# F24, F30: retries.


async def test_a_step_that_always_fails_is_tried_so_often_and_no_oftener_with_growing_pauses(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:  # F24
    monkeypatch.setattr(recording, "RETRY_FIRST_MS", 400)
    cast = Cast({"a": fails("BUSY", retryable=True)})
    async with system.serve(cast.team(step("a", max_attempts=4))) as runtime:
        began, spent = time.monotonic(), time.process_time()
        report = await runtime.ask("Please.")
        took, spent = time.monotonic() - began, time.process_time() - spent
    tasks = [bell for _, bell in system.broker.published if bell.type is MessageType.TASK]

    assert cast.runs == {"a": 4} and code_of(report, "a") == "BUSY"
    pauses = [int(event.labels["in_ms"]) for event in named(report.events, "step_to_be_retried")]
    assert [longest // 2 <= pause <= longest for pause, longest in zip(pauses, (400, 800, 1600), strict=True)] == [True] * 3
    began_at = [event.at_ms for event in named(report.events, "step_claimed")]
    failed_at = [event.at_ms for event in named(report.events, "step_to_be_retried")]
    assert all(began_at[each + 1] - failed_at[each] >= pauses[each] for each in range(3)), "none came before its time"
    assert len(tasks) <= 8, "a bell or two for each attempt"
    assert spent < took / 2, "and the time between was idle"


async def test_a_short_pause_is_not_held_up_by_a_long_one_that_began_before(system: System, monkeypatch: pytest.MonkeyPatch) -> None:  # F30
    pauses = iter((6_000, 200))  # the first to fail waits long, the second hardly
    monkeypatch.setattr(recording, "RETRY_LAST_MS", 60_000)
    make = recording.retry_of

    def retry_of(*args: Any, **more: Any) -> Any:
        return make(*args, **more).model_copy(update={"not_before_ms": next(pauses)})

    monkeypatch.setattr(recording, "retry_of", retry_of)
    failed = asyncio.Event()

    async def first(brief: AgentBrief) -> Any:
        return await fails("BUSY", times=2 - brief.attempt, retryable=True)(brief)

    async def second(brief: AgentBrief) -> Any:
        await failed.wait()
        return await fails("BUSY", times=2 - brief.attempt, retryable=True)(brief)

    cast = Cast({"long": first, "short": second})
    async with system.serve(cast.team(step("long"), step("short"))) as runtime:
        accepted = await runtime.submit(runtime.team, "Please.")
        async for report in runtime.follow(accepted.request_id):
            if named(report.events, "step_to_be_retried"):
                failed.set()
            if [event for event in named(report.events, "step_completed") if event.labels["step"] == "short"]:
                break
        assert cast.runs == {"long": 1, "short": 2}
        await runtime.cancel(accepted.request_id)


# F28: a dead letter whose queue is gone.


async def test_a_step_that_fails_after_its_dead_letter_queue_was_deleted_is_listed_all_the_same(system: System) -> None:  # F28
    gate = Gate(then=fails("NO_STOCK"))
    cast = Cast({"a": gate})
    async with system.serve(cast.team(step("a"))) as runtime:
        accepted = await runtime.submit(runtime.team, "Please.")
        await gate.entered.wait()
        await system.look.delete(dead_queue("hand"))
        gate.opened.set()
        await runtime.wait(accepted.request_id)
        assert [(letter.step_id, letter.reason) for letter in await runtime.dead()] == [("a", "NO_STOCK")]
        await system.broker.was_published(lambda bell: bell.recipient == "people", times=2)  # once in vain, once declared anew
        await system.look.has(dead_queue("hand"), 1)


# F22: what is too large.


@pytest.mark.parametrize("mebibytes", [1, 17, 140])
async def test_a_text_that_is_far_too_long_is_refused_at_once_and_the_lines_stay_good(system: System, mebibytes: int) -> None:  # F22
    async with system.serve(Cast().team(step("a"))) as runtime:
        began = time.monotonic()
        with pytest.raises(LimitExceeded, match="65,536"):
            await runtime.submit(runtime.team, "x" * (mebibytes * 2**20))
        assert time.monotonic() - began < 5
        assert not await runtime.recent() and (await runtime.ask("Please.")).status == "COMPLETED"


async def test_a_result_that_is_far_too_large_is_a_failure_of_its_step_and_the_worker_goes_on(system: System) -> None:  # F22, F57
    async def says_much(brief: AgentBrief) -> Any:
        return told(brief).model_copy(update={"tool_faults": ("x" * 17 * 2**20,)})

    cast = Cast({"a": says_much})
    async with system.serve(cast.team(step("a"), step("b"))) as runtime:
        report = await runtime.ask("Please.")

    assert states(report) == {"a": "FAILED", "b": "COMPLETED"} and code_of(report, "a") == "BAD_RESULT"


# F57: every attempt ends in a result or a failure, whatever breaks behind the agent.


async def test_a_result_whose_telling_fails_is_told_again_and_the_agent_does_not_run_again(system: System) -> None:  # F57
    lost: list[AgentMessage] = []

    def fail_twice(address: object, bell: AgentMessage) -> int:
        if bell.type is MessageType.RESULT_READY and bell.step_id == "b" and len(lost) < 2:
            lost.append(bell)
            raise Unavailable("the line is lost")
        return 1

    system.broker.fault = fail_twice
    cast = Cast()
    async with system.serve(cast.team(step("a"), step("b", "a"))) as runtime:
        report = await runtime.ask("Please.")

    assert len(lost) == 2 and report.status == "COMPLETED" and cast.runs == {"a": 1, "b": 1}


# F50: nobody decides by a wall clock.

WALL_CLOCKS = {
    *("time.time", "time.time_ns", "time.localtime", "time.gmtime"),
    *("datetime.now", "datetime.utcnow", "datetime.today", "date.today"),
}
ALLOWED = {
    "schemas/messages.py": "a message says when it was made, for people",
    "workers/agents/tools.py": "when a tool was called, and the clock that a team may replace",
    "ops/blackboard/memory.py": "the one clock of a board in memory",
    "ops/artifacts/folder.py": "how old a file is, by the clock of the machine that it lies on",
    "ops/artifacts/keeping.py": "how old an artifact is, for the sweep that nothing waits for",
    "ops/artifacts/memory.py": "how old an artifact is, in memory",
    "workers/teams/trip/team.py": "when pages were read, unless a test says",
    "workers/teams/bitmall/team.py": "which day it is in the shop, unless a test says",
}


def test_no_room_reads_a_wall_clock_but_to_show_it_to_people() -> None:  # F50
    found = set()
    for floor in ("schemas", "orchestrator", "workers", "ops"):
        for module in (ROOT / floor).rglob("*.py"):
            names = {ast.unparse(node) for node in ast.walk(ast.parse(module.read_text())) if isinstance(node, ast.Attribute)}
            if names & WALL_CLOCKS and "ops/bench" not in module.as_posix():
                found.add(str(module.relative_to(ROOT)))
    assert found == set(ALLOWED)
