"""Black boxes: a user's function as an agent, and how far it is believed."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from schemas.errors import AgentFailed, InvalidPlan, InvalidTeam
from schemas.facts import Fact, Provenance
from schemas.results import AgentResult, FailureCode, ResultStatus, Termination
from tests.workers.agents.runs import brief_of
from workers.agents.agent import AgentBrief
from workers.agents.blackbox import BlackBox
from workers.team import Team


async def test_a_text_that_comes_back_is_the_answer() -> None:
    result = await BlackBox("greeter", lambda brief: f"Hello from {brief.step.title}").run(brief_of())

    assert (result.summary, result.status, result.termination) == ("Hello from Looking", ResultStatus.COMPLETED, Termination.ANSWERED)
    assert (result.agent, result.step_id, result.facts) == ("greeter", "look", ())


async def test_coroutine_functions_objects_with_run_and_callable_objects_are_agents_too() -> None:
    async def function(brief: AgentBrief) -> str:
        return "async"

    class WithRun:
        async def run(self, brief: AgentBrief) -> str:
            return "object"

    class Called:
        async def __call__(self, brief: AgentBrief) -> str:
            return "called"

    answers = [(await BlackBox("a", each).run(brief_of())).summary for each in (function, WithRun(), Called())]

    assert answers == ["async", "object", "called"]


async def test_a_blocking_function_runs_beside_the_loop() -> None:
    release, main = threading.Event(), threading.get_ident()

    def block(brief: AgentBrief) -> str:
        release.wait(30)
        return "other thread" if threading.get_ident() != main else "same thread"

    task = asyncio.create_task(BlackBox("a", block).run(brief_of()))
    await asyncio.sleep(0)
    release.set()

    assert (await task).summary == "other thread"


async def test_what_the_function_raises_reaches_the_worker_as_it_is() -> None:
    def fail(brief: AgentBrief) -> str:
        raise AgentFailed("NO_STOCK", "nothing left", retryable=True)

    with pytest.raises(AgentFailed) as raised:
        await BlackBox("a", fail).run(brief_of())
    assert (raised.value.code, raised.value.retryable) == ("NO_STOCK", True)


@pytest.mark.parametrize("returned", [None, 3, {"summary": "x"}, b"x"])
async def test_anything_but_a_text_or_a_result_is_a_bad_result(returned: object) -> None:
    with pytest.raises(AgentFailed) as raised:
        await BlackBox("a", lambda brief: returned).run(brief_of())
    assert raised.value.code == FailureCode.BAD_RESULT


def result_with(fact: Fact) -> AgentResult:
    """A result that carries this fact."""
    return AgentResult(agent="a", step_id="look", status=ResultStatus.COMPLETED, summary="x", facts=(fact,))


async def test_facts_of_a_black_box_count_only_when_declared_and_with_provenance() -> None:
    sourced = Fact(key="price", value=1, provenance=Provenance(step="look", tool="erp", call_id="7", path="amount"))
    unsourced = Fact(key="price", value=1, provenance=Provenance(step="look", tool="", call_id="", path=""))

    result = await BlackBox("a", lambda brief: result_with(sourced), facts=("price",)).run(brief_of())
    assert result.facts == (sourced,)
    for box in (BlackBox("a", lambda brief: result_with(sourced)), BlackBox("a", lambda brief: result_with(unsourced), facts=("price",))):
        with pytest.raises(AgentFailed, match="price"):
            await box.run(brief_of())


def test_trap_T01_a_plan_that_needs_facts_of_a_black_box_is_refused_when_the_team_loads() -> None:
    steps: list[dict[str, Any]] = [
        {"agent": "first", "title": "First", "task": "a"},
        {"agent": "second", "title": "Second", "task": "b", "depends_on": ["first"], "needs": ["first.price"]},
    ]
    with pytest.raises(InvalidPlan, match="declares no facts"):
        Team("t", [BlackBox("first", lambda brief: ""), BlackBox("second", lambda brief: "")], steps)
    with pytest.raises(InvalidPlan, match="nothing would cross"):
        Team("t", [BlackBox("first", lambda b: ""), BlackBox("second", lambda b: "")], [steps[0], {**steps[1], "needs": None}])

    Team("t", [BlackBox("first", lambda brief: "", facts=("price",)), BlackBox("second", lambda brief: "")], steps)


def test_something_that_cannot_be_called_is_no_black_box() -> None:
    with pytest.raises(InvalidTeam):
        BlackBox("a", "text")
