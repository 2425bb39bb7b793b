"""Actions over the whole line: what a model does by name and type becomes a shared field; refusals fail the step."""

from __future__ import annotations

from typing import Any

import pytest

from schemas import fields
from schemas.packets import Kind, Output
from schemas.results import AgentResult
from schemas.shared import FieldCard, FieldChange, FieldRecord, Operation
from tests.system.cast import Cast, step, told
from tests.system.conftest import System
from tests.system.reports import code_of, states
from workers.agents.actions import Action
from workers.agents.agent import AgentBrief
from workers.agents.models import Call, Say, ScriptedModel, Turn
from workers.agents.specialist import Specialist

pytestmark = pytest.mark.timeout(40)

COLOUR = FieldCard(name="colour", label="Colour", owner="a")
TAKE_UP = Action("take_up", "colour", operation=Operation.TAKE_UP)


async def wishes(brief: AgentBrief) -> AgentResult:
    """Want another colour."""
    change = FieldChange(field="colour", operation=Operation.PROPOSE, value="blue", reason="It is calmer.")
    return told(brief).model_copy(update={"changes": (change,)})


async def test_an_owner_is_shown_what_others_wish_and_takes_it_up_by_an_action(system: System) -> None:
    briefs: list[str] = []

    def script(turn: Turn) -> Any:
        briefs.append(turn.brief)
        return Call(("take_up", {"id": "b.0.0"})) if turn.round == 1 else Say("Blue it is.")

    owner = Specialist("owner", "You decide.", model=ScriptedModel(script))
    plan = [
        step("b", superstep="wishing"),
        {**step("a", "b", reads=("colour",), needs=()), "agent": "owner"},
        step("c", "a", reads=("colour",), needs=()),
    ]
    cast = Cast({"b": wishes})
    async with system.serve(cast.team(*plan, agents=[owner], fields=[COLOUR], actions=[TAKE_UP])) as runtime:
        report = await runtime.ask("Paint it.")
        audit = await runtime.audit(report.request_id)
    assert "- Colour: somebody wishes [b.0.0]: blue (because: It is calmer.)" in briefs[0]
    assert "- Colour: blue" in cast.briefs["c"][0].text and cast.briefs["c"][0].shared == {"colour": "blue"}
    assert "wishes" not in cast.briefs["c"][0].text
    assert states(report) == dict.fromkeys("abc", "COMPLETED")
    assert audit.passed, audit.found


async def test_a_refused_change_and_a_missing_judgement_fail_the_step_and_change_nothing(system: System) -> None:
    async def sets(brief: AgentBrief) -> AgentResult:
        return told(brief).model_copy(update={"changes": (FieldChange(field="colour", operation=Operation.SET, value="red"),)})

    plan = [step("a"), step("b", critical=False), step("c", critical=False, outputs=(Output(key="mood", kind=Kind.DECISION),))]
    async with system.serve(Cast({"b": sets}).team(*plan, fields=[COLOUR])) as runtime:
        report = await runtime.ask("Paint it.")
    assert (code_of(report, "b"), code_of(report, "c")) == ("FIELD_REFUSED", "MISSING_OUTPUT")
    assert (await system.board.read(report.request_id, (fields.shared("colour"),))).fields == {}


async def test_what_an_owner_does_in_one_run_stands_in_the_field_in_that_order(system: System) -> None:
    def paint(name: str) -> str:
        """Paint it."""
        return name

    def script(turn: Turn) -> Any:
        return Call(("paint", {"name": ("red", "green")[turn.round - 1]})) if turn.round < 3 else Say("Green.")

    owner = Specialist("owner", "You decide.", model=ScriptedModel(script))
    team = Cast().team({**step("a"), "agent": "owner"}, agents=[owner], fields=[COLOUR], actions=[Action("paint", "colour", paint)])
    async with system.serve(team) as runtime:
        report = await runtime.ask("Paint it.")
    stored = (await system.board.read(report.request_id, (fields.shared("colour"),))).value(fields.shared("colour"))
    assert stored is not None and FieldRecord.from_json(stored).value == "green"
