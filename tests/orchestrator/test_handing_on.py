"""Handing on: which steps a worker may ring by itself once it has completed one, and where it leaves that to an orchestrator."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from ops.bench.counting import CountedBoard, Counts
from ops.blackboard.memory import MemoryBlackboard
from ops.broker.memory import MemoryBroker
from ops.producer import submit
from orchestrator.acting import Actor
from orchestrator.causes import Submitted
from orchestrator.handing_on import HandingOn
from schemas import fields
from schemas.blackboard import Blackboard, Written
from schemas.broker import to_agent
from schemas.plans import Step
from schemas.requests import StepState
from schemas.results import AgentResult, ResultStatus
from tests.system.cast import Cast, step
from workers import accepting, claiming, recording
from workers.receiving import task_of
from workers.recording import Hold


class Stage:
    """A request whose tasks are claimed and ended by hand, as a worker does it."""

    def __init__(self, board: Blackboard, broker: MemoryBroker, request_id: str) -> None:
        self.board, self.broker, self.request_id = board, broker, request_id
        self.rule = HandingOn(board, broker)

    async def end(self, step_id: str, state: StepState = StepState.COMPLETED, **said: Any) -> set[str] | None:
        """End a step whose TASK waits, ring what follows, and return what that was; None where an orchestrator is to look."""
        task = task_of(next(each for each in self.broker.messages("tasks.hand") if each.step_id == step_id), "hand")
        claim = await claiming.claim(self.board, task, writer="worker/w", lease_ms=5000, also=(fields.PLAN,))
        assert isinstance(claim, claiming.Claimed)
        following = await self.rule.following(step_id, claim.snapshot)
        hold = Hold(self.request_id, step_id, claim.record, claim.version, task.message_id, "worker/w")
        record = claim.record.model_copy(update={"state": state})
        result = AgentResult(agent="hand", step_id=step_id, status=ResultStatus.COMPLETED, **said)
        puts, labels = accepting.puts_of(step_id, record, result), {"event": "ended", "step": step_id}
        returning = () if following is None else following.fields
        written = await recording.record(self.board, hold, puts, labels, returning=returning)
        assert isinstance(written, Written)
        tasks = None if following is None else following.tasks(written.returned, record, written.versions[fields.step(step_id)])
        for each in tasks or ():
            await self.broker.publish(to_agent(each.agent), each.bell())
        return None if tasks is None else {str(each.step_id) for each in tasks}


@asynccontextmanager
async def staged(*steps: dict[str, Any], counts: Counts | None = None) -> AsyncIterator[Stage]:
    async with MemoryBlackboard() as memory, MemoryBroker() as broker:
        accepted = await submit(memory, broker, Cast().team(*steps), "Please.")
        await Actor(memory, broker, writer="orchestrator/o", retention_seconds=60).act(accepted.request_id, Submitted())
        yield Stage(memory if counts is None else CountedBoard(memory, counts), broker, accepted.request_id)


async def test_what_waited_for_a_completed_step_is_rung() -> None:
    async with staged(step("a"), step("b", "a"), step("c", "a"), step("d", "b", "c")) as stage:
        assert await stage.end("a") == {"b", "c"}


async def test_invariant_3_a_step_is_rung_by_whoever_completes_the_last_of_its_inputs() -> None:
    async with staged(step("a"), step("b", "a"), step("c", "a"), step("d", "b", "c")) as stage:
        await stage.end("a")
        assert await stage.end("c") == set(), "d waits for b as well"
        assert await stage.end("b") == {"d"}


async def test_the_end_of_the_last_step_is_told_to_an_orchestrator() -> None:
    async with staged(step("a"), step("b", "a")) as stage:
        await stage.end("a")
        assert await stage.end("b") is None


async def test_an_end_that_nobody_waits_for_is_told_once_no_other_step_is_open() -> None:
    async with staged(step("a"), step("b"), step("c")) as stage:
        assert [await stage.end(each) for each in ("a", "b", "c")] == [set(), set(), None]


async def test_a_failure_is_told_to_an_orchestrator() -> None:
    async with staged(step("a"), step("b", "a")) as stage:
        assert await stage.end("a", StepState.FAILED) is None


async def test_further_steps_are_told_to_an_orchestrator() -> None:
    async with staged(step("a", may_plan=True), step("b", "a")) as stage:
        further = Step.model_validate(step("x", "a"))
        assert await stage.end("a", steps=(further,)) is None


async def test_in_a_large_plan_one_open_step_spares_the_look_at_all_others() -> None:
    names = [f"s{number}" for number in range(60)]
    async with staged(*map(step, names), step("last", *names)) as stage:
        following = await stage.rule.following("s0", await stage.board.read(stage.request_id, (fields.PLAN, fields.REQUEST)))
        assert following is not None and len(following.fields) < 8
        assert await stage.end("s0") == set()
        assert await stage.end("s59") == set()
        assert await stage.end("s1") is None, "the one that is looked at has ended, and many more may be open"


async def test_the_definitions_of_a_plan_are_read_once_for_all_requests_that_have_them() -> None:
    counts = Counts()
    async with staged(step("a"), step("b", "a"), counts=counts) as stage:
        await stage.end("a")
        again = await submit(stage.board, stage.broker, Cast().team(step("a"), step("b", "a")), "Please.")
        await Actor(stage.board, stage.broker, writer="orchestrator/o", retention_seconds=60).act(again.request_id, Submitted())
        reads = counts.calls["read"]
        claimed = await stage.board.read(again.request_id, (fields.PLAN, fields.REQUEST))
        assert await stage.rule.following("a", claimed) is not None
        assert counts.calls["read"] == reads + 1


@pytest.mark.parametrize("missing", [fields.PLAN, fields.REQUEST])
async def test_nothing_is_handed_on_where_the_claim_did_not_return_the_plan_or_the_request(missing: str) -> None:
    async with staged(step("a"), step("b", "a")) as stage:
        claimed = await stage.board.read(stage.request_id, (fields.PLAN, fields.REQUEST))
        assert await stage.rule.following("a", claimed.without(missing)) is None


async def test_nothing_is_handed_on_by_a_worker_whose_user_may_not_ring_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MemoryBroker, "may_ring_tasks", False)
    async with staged(step("a"), step("b", "a")) as stage:
        assert await stage.end("a") is None
