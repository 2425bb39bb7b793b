"""Handing on: a worker rings what follows a step that it completed, or goes on with it by itself."""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from typing import Any

import pytest

from ops.embedded import serving
from orchestrator.handing_on import HandingOn
from orchestrator.orchestrator import Orchestrator
from schemas.broker import Address, to_agent
from schemas.errors import OutcomeUnknown
from schemas.ids import new_id
from schemas.messages import AgentMessage, MessageType
from schemas.requests import RequestStatus
from tests.system.cast import Cast, Gate, answers, step
from tests.system.conftest import System, happened
from tests.system.watched import CutLine
from workers.agents.agent import AgentBrief
from workers.agents.blackbox import BlackBox
from workers.team import Team
from workers.worker import Worker


def told(system: System) -> list[tuple[MessageType, str | None]]:
    """What was rung of steps, in its order."""
    kinds = (MessageType.TASK, MessageType.RESULT_READY, MessageType.RESULT_FAILED)
    return [(bell.type, bell.step_id) for _, bell in system.broker.published if bell.type in kinds]


async def test_between_the_first_task_and_the_last_result_an_orchestrator_is_not_asked(system: System) -> None:
    async with system.serve(Cast().team(step("a"), step("b", "a"), step("c", "b"))) as runtime:
        report = await runtime.ask("Please.")

    assert report.status is RequestStatus.COMPLETED
    assert [each for each in told(system) if each[0] is not MessageType.TASK] == [(MessageType.RESULT_READY, "c")]
    assert (MessageType.TASK, "a") in told(system)


async def test_a_worker_goes_on_by_itself_with_an_agent_that_is_quick(system: System) -> None:
    async with system.serve(Cast().team(step("a"), step("b", "a"), step("c", "b"))) as runtime:
        await runtime.ask("Please.")  # by then it is known to be
        system.broker.published.clear()
        await runtime.ask("Please.")

    assert told(system) == [(MessageType.TASK, "a"), (MessageType.RESULT_READY, "c")]


async def slow(brief: AgentBrief) -> Any:
    """Take longer than a quick agent."""
    await asyncio.sleep(0.15)
    return await answers(brief)


async def test_a_step_that_is_slow_goes_to_whichever_worker_is_free(system: System) -> None:
    async with system.serve(Cast({"a": slow, "b": slow}).team(step("a"), step("b", "a"))) as runtime:
        for _ in range(2):
            await runtime.ask("Please.")

    assert [each for each in told(system) if each == (MessageType.TASK, "b")] == [(MessageType.TASK, "b")] * 2


@pytest.mark.parametrize("concurrency", [1, 3])
async def test_no_agent_runs_more_steps_at_a_time_than_it_has_places(system: System, concurrency: int) -> None:
    now: Counter[str] = Counter()
    most: Counter[str] = Counter()

    async def counted(brief: AgentBrief) -> str:
        agent = brief.step.agent
        now[agent] += 1
        most[agent] = max(most[agent], now[agent])
        await asyncio.sleep(0.002)
        now[agent] -= 1
        return "done"

    agents = [BlackBox("hand", counted), BlackBox("foot", counted)]
    feet = [step(name, "a", agent="foot", needs=()) for name in ("b", "c", "d")]
    wide = Team("wide", agents, [step("a"), *feet, step("e", "b", "c", "d", needs=())])
    alone = Team("alone", agents, [step("a", agent="foot")])
    async with system.serve(wide, concurrency=concurrency) as runtime:
        accepted = [await runtime.submit(team, "Please.") for _ in range(12) for team in (wide, alone, alone)]
        assert {await runtime.wait(each.request_id) for each in accepted} == {RequestStatus.COMPLETED}
    assert most["foot"] == concurrency and most["hand"] <= concurrency


async def test_invariant_1_what_a_worker_went_on_with_is_run_elsewhere_once_it_is_gone(system: System) -> None:
    gate = Gate()
    first, second = Cast({"b": gate}), Cast()
    steps = (step("a"), step("b", "a"))
    line = CutLine(system.board)
    async with asyncio.TaskGroup() as group:
        stop = asyncio.Event()
        rule = HandingOn(system.board, system.broker)
        group.create_task(Orchestrator(system.board, system.broker).run(stop=stop))
        worker = Worker(line, system.broker, first.team(*steps), concurrency=1, lease_seconds=0.5, onward=rule, quick_seconds=math.inf)
        dies = asyncio.create_task(worker.run())
        async with serving(system.board, system.broker, second.team(*steps), orchestrators=0, workers=0) as runtime:
            accepted = await runtime.submit(runtime.team, "Please.")
            await gate.entered.wait()
            assert (MessageType.TASK, "b") not in told(system), "it went on by itself"
            line.cut = True
            dies.cancel()
            group.create_task(Worker(system.board, system.broker, second.team(*steps), lease_seconds=0.5).run(stop=stop))
            async with asyncio.timeout(20):
                assert await runtime.wait(accepted.request_id) is RequestStatus.COMPLETED
        stop.set()
    assert (MessageType.TASK, "b") in told(system)


async def test_where_a_task_cannot_be_rung_the_step_is_told_to_an_orchestrator(system: System) -> None:
    lost = 0

    def refuse(address: Address, bell: AgentMessage) -> int:
        nonlocal lost
        if bell.type is MessageType.TASK and bell.step_id == "b" and not lost:
            lost += 1
            raise OutcomeUnknown("no confirm came")
        return 1

    system.broker.fault = refuse
    async with system.serve(Cast({"a": slow}).team(step("a"), step("b", "a"))) as runtime:
        report = await runtime.ask("Please.")
    assert lost and report.status is RequestStatus.COMPLETED
    assert (MessageType.RESULT_READY, "a") in told(system)


async def test_a_step_whose_next_one_is_somebody_elses_is_handed_on_in_the_orchestrators_name(system: System) -> None:
    async with system.serve(Cast().team(step("a"), step("b", "a"))) as runtime:
        accepted = await runtime.submit(runtime.team, "Please.")
        await runtime.wait(accepted.request_id)
        await happened(system.board, accepted.request_id, "step_completed")
    tasks = [bell for _, bell in system.broker.published if bell.type is MessageType.TASK]
    assert {bell.sender for bell in tasks} == {"orchestrator"}


async def test_a_step_that_was_rung_twice_is_told_as_any_other_and_not_as_if_its_worker_had_died(system: System) -> None:
    gate = Gate()
    async with system.serve(Cast({"b": gate}).team(step("a"), step("b"))) as runtime:
        accepted = await runtime.submit(runtime.team, "Please.")
        await happened(system.board, accepted.request_id, "step_completed")
        first = await system.broker.was_published(lambda bell: bell.type is MessageType.TASK and bell.step_id == "a")
        copy = first.model_copy(update={"id": new_id()})
        await system.broker.publish(to_agent("hand"), copy)
        await system.broker.was_handled(copy)
        gate.opened.set()
        await runtime.result(accepted)
    results = [bell for _, bell in system.broker.published if bell.type is MessageType.RESULT_READY and bell.step_id == "a"]
    assert [bell.again for bell in results] == [False]
