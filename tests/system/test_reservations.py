"""Reservations over the whole line: never more than there is, kept by who completes, given back by everybody else."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from schemas import fields
from schemas.errors import NotPermitted
from schemas.results import AgentResult, FailureCode
from schemas.shared import FieldCard, FieldRecord
from tests.system.cast import Cast, Gate, fails, step, told
from tests.system.conftest import System
from workers.agents.agent import AgentBrief
from workers.agents.models import Call, Say, ScriptedModel
from workers.agents.specialist import Specialist
from workers.agents.tools import ToolContext, tool
from workers.team import Constraint

pytestmark = pytest.mark.timeout(40)

SEATS = FieldCard(name="seats", capacity=3)
BUDGET = FieldCard(name="budget", capacity_of="limit")


async def held(system: System, request_id: str, name: str = "seats") -> dict[str, tuple[float, bool]]:
    """Step -> what it holds, and whether for good."""
    value = (await system.board.read(request_id, (fields.shared(name),))).value(fields.shared(name))
    record = FieldRecord() if value is None else FieldRecord.from_json(value)
    return {each.step: (each.amount, each.confirmed) for each in record.reservations.values()}


def takes(amount: float, name: str = "seats", **more: Any) -> Any:
    """An act that reserves and then does something."""
    then = more.get("then")

    async def act(brief: AgentBrief) -> AgentResult:
        await brief.reservations.reserve(name, amount)
        return told(brief) if then is None else await then(brief)

    return act


async def test_steps_side_by_side_never_hold_more_than_there_is_and_the_rest_is_said(system: System) -> None:
    cast = Cast(dict.fromkeys("abcde", takes(1)))
    plan = [step(name, writes=("seats",), critical=False) for name in "abcde"]
    async with system.serve(cast.team(*plan, fields=[SEATS])) as runtime:
        report = await runtime.ask("Book.")
    failed = [each.failure for each in report.steps if each.failure is not None]
    assert len(failed) == 2 and all("0 of 3 is left" in each.description for each in failed)
    assert sorted((await held(system, report.request_id)).values()) == [(1, True)] * 3


async def test_a_step_that_fails_or_is_tried_again_gives_back_what_it_held(system: System) -> None:
    cast = Cast({"a": takes(3, then=fails()), "b": takes(3, then=fails(times=1, retryable=True)), "c": takes(3)})
    plan = [step("a", writes=("seats",), critical=False), step("b", "a", writes=("seats",), needs=())]
    async with system.serve(cast.team(*plan, fields=[SEATS])) as runtime:
        report = await runtime.ask("Book.")
    assert report.step("b").state == "COMPLETED" and cast.runs["b"] == 2
    assert await held(system, report.request_id) == {"b": (3, True)}


async def test_the_capacity_may_be_a_constraint_of_the_request(system: System) -> None:
    cast = Cast({"a": takes(120.5, "budget"), "b": takes(100, "budget")})
    plan = [step("a", writes=("budget",)), step("b", "a", writes=("budget",), needs=(), critical=False)]
    team = cast.team(*plan, fields=[BUDGET], constraints=[Constraint("limit", "Limit", "number")])
    async with system.serve(team) as runtime:
        report = await runtime.ask("Book.", constraints={"limit": 200})
    failure = report.step("b").failure
    assert failure is not None and "100 cannot be reserved: 79.5 of 200 is left" in failure.description
    assert await held(system, report.request_id, "budget") == {"a": (120.5, True)}


async def test_nobody_reserves_from_what_its_step_does_not_say(system: System) -> None:
    cast = Cast({"a": takes(1)})
    async with system.serve(cast.team(step("a"), fields=[SEATS])) as runtime:
        report = await runtime.ask("Book.")
    failure = report.step("a").failure
    assert failure is not None and "nothing is reserved from 'seats' here" in failure.description


async def test_who_lost_the_step_reserves_nothing(system: System) -> None:
    said: list[str] = []

    async def late(brief: AgentBrief) -> AgentResult:
        try:
            await brief.reservations.reserve("seats", 1)
        except NotPermitted as error:
            said.append(str(error))
        return told(brief)

    gate = Gate(late)
    async with system.serve(Cast({"a": gate}).team(step("a", writes=("seats",)), fields=[SEATS])) as runtime:
        accepted = await runtime.submit(runtime.team, "Book.")
        await gate.entered.wait()
        await runtime.cancel(accepted.request_id)
        gate.opened.set()
        await runtime.wait(accepted.request_id)
        for _ in range(200):
            if said or gate.stopped.is_set():
                break
            await asyncio.sleep(0.05)
    assert gate.stopped.is_set() or "is not held any more" in said[0]
    assert await held(system, accepted.request_id) == {}


async def test_a_tool_reserves_and_a_model_reads_what_is_left(system: System) -> None:
    async def book(context: ToolContext, seats: int) -> dict[str, float]:
        """Book seats."""
        return {"left": await context.reserve("seats", seats)}

    seen: list[str] = []

    def script(turn: Any) -> Any:
        seen[:] = [each.text for each in turn.returns]
        return Call(("book", {"seats": (5, 2)[turn.round - 1]})) if turn.round < 3 else Say("Booked.")

    desk = Specialist("desk", "You book.", [tool(book)], model=ScriptedModel(script))
    plan = [{**step("a", writes=("seats",)), "agent": "desk"}]
    async with system.serve(Cast().team(*plan, agents=[desk], fields=[SEATS])) as runtime:
        report = await runtime.ask("Book.")
    assert seen == ['{"error":"5 cannot be reserved: 3 of 3 is left"}', '{"left":1.0}']
    assert await held(system, report.request_id) == {"a": (2, True)}


async def test_a_step_that_completes_without_its_part_fails(system: System) -> None:
    """Its reservation went meanwhile, as it would where it lapsed and somebody else took the part."""

    async def act(brief: AgentBrief) -> AgentResult:
        await brief.reservations.reserve("seats", 2)
        await brief.reservations.release()
        return told(brief)

    async with system.serve(Cast({"a": act}).team(step("a", writes=("seats",)), fields=[SEATS])) as runtime:
        report = await runtime.ask("Book.")
    failure = report.step("a").failure
    assert failure is not None and (failure.code, "is gone" in failure.description) == (FailureCode.FIELD_REFUSED, True)
