"""What a model says beside prose: judgements by `conclude_<key>`, changes by the team's actions, each checked while it runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson
import pytest

from schemas.errors import InvalidTeam
from schemas.packets import Evidence, Kind, Output
from schemas.results import AgentResult
from schemas.shared import FieldCard, Operation, Transition
from tests.workers.agents.runs import replies, run
from tests.workers.said import NOW, REPORT, briefed
from workers.agents.actions import Action
from workers.agents.agent import AgentBrief
from workers.agents.models import Call, Reply, Say, ScriptedModel, Turn
from workers.agents.specialist import Specialist
from workers.agents.tools import ToolContext, tool
from workers.facts import FactRules

CAUSE = Output(key="cause", choices=("wear", "misuse"), description="why it broke")
DAYS = Output(key="days", kind=Kind.DECISION, type="integer", required=False, needs_evidence=False)


def look() -> dict[str, Any]:
    """Look it up."""
    return {"size": 3}


class Recorded:
    """A model that gives these replies in turn, and what it saw."""

    def __init__(self, *given: Reply) -> None:
        self.turns: list[Turn] = []
        self.given = given
        self.model = ScriptedModel(self._reply, recorder=lambda seen: self.seen.append(seen))
        self.seen: list[Any] = []

    def _reply(self, turn: Turn) -> Reply:
        self.turns.append(turn)
        return self.given[min(turn.round, len(self.given)) - 1]

    def schema(self, name: str) -> Mapping[str, Any]:
        """What the model was told of a tool."""
        return next(each for each in self.seen[0].tools if each["name"] == name)

    def returned(self, name: str) -> list[Any]:
        """What the calls of a tool came to."""
        return [orjson.loads(each.text) for each in self.turns[-1].returns if each.tool == name]


async def result_of(said: Recorded, brief: AgentBrief) -> AgentResult:
    """Run a specialist that can look things up."""
    return await run(tool(look), model=said.model, brief=brief, rules=FactRules.of(("look", "size", "size")), now=lambda: NOW)


def cause(value: Any, *evidence: str, confidence: Any = 0.9, **given: Any) -> Call:
    """A call that concludes."""
    return Call(("conclude_cause", {"value": value, "confidence": confidence, "evidence": list(evidence), **given}))


async def test_a_tool_for_each_output_says_what_is_asked_and_only_where_the_step_asks() -> None:
    said = Recorded(Say("done"))
    await result_of(said, briefed(outputs=(CAUSE, DAYS)))
    assert set(said.turns[0].tools) >= {"conclude_cause", "conclude_days"}
    schema = said.schema("conclude_cause")
    assert "why it broke" in schema["description"] and "not done" in schema["description"]
    assert schema["parameters"]["properties"]["value"]["enum"] == ["wear", "misuse"]
    assert "price, report, mood" in schema["parameters"]["properties"]["evidence"]["description"]
    assert set(schema["parameters"]["required"]) == {"value", "confidence", "evidence"}
    assert said.schema("conclude_days")["parameters"]["properties"]["value"]["type"] == "integer"

    plain = Recorded(Say("done"))
    await result_of(plain, briefed())
    assert not [name for name in plain.turns[0].tools if name.startswith("conclude_")]


async def test_a_judgement_rests_on_the_brief_or_on_what_the_run_looked_up() -> None:
    said = Recorded(Call(("look", {})), cause("wear", "price", "size", f"{REPORT.id}#r12,r18"), Say("done"))
    (packet,) = (await result_of(said, briefed(outputs=(CAUSE,)))).packets
    assert packet.payload == "wear" and packet.control.confidence == 0.9
    assert packet.control.evidence == (
        Evidence(ref="shop.price", version="2.abc"),
        Evidence(ref="look.size"),
        Evidence(ref=REPORT.id, items=("r12", "r18")),
    )


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (cause("rain", "price"), "bad arguments"),
        (cause(3, "price"), "bad arguments"),
        (cause("wear", "price", confidence=1.5), "bad arguments"),
        (cause("wear"), "names no evidence"),
        (cause("wear", "size"), "nothing here is called 'size'"),
        (cause("wear", "art_" + "0" * 32), "no material"),
        (cause("wear", "price", field="x"), "bad arguments"),
    ],
)
async def test_a_model_is_told_at_once_what_is_wrong_and_may_do_better(call: Call, told: str) -> None:
    said = Recorded(call, cause("misuse", "price"), Say("done"))
    result = await result_of(said, briefed(outputs=(CAUSE,)))
    assert told in said.returned("conclude_cause")[0]["error"]
    assert [each.payload for each in result.packets] == ["misuse"]


async def test_a_repeated_conclusion_replaces_the_first() -> None:
    said = Recorded(cause("wear", "price"), cause("misuse", "mood"), Say("done"))
    (packet,) = (await result_of(said, briefed(outputs=(CAUSE,)))).packets
    assert (packet.payload, packet.control.evidence[0].ref) == ("misuse", "mind.mood")


@pytest.mark.parametrize(("value", "kept"), [(3, 3), ("3", None), (3.0, None), (True, None)])
async def test_a_value_is_taken_as_it_is_and_never_converted(value: Any, kept: Any) -> None:
    said = Recorded(Call(("conclude_days", {"value": value, "confidence": 1, "reason": "x"})), Say("done"))
    packets = (await result_of(said, briefed(outputs=(DAYS,)))).packets
    assert [each.payload for each in packets] == ([] if kept is None else [kept])


HOTEL = FieldCard(name="hotel", type="object", members={"name": "text", "cost": "number"}, owner="look", protected=True)
NOTES = FieldCard(name="notes", label="Notes so far", type="list", members={"value": "text"}, reducer="append")
FLIGHT = FieldCard(name="flight", owner="fly", label="Flight")
STATE = FieldCard(
    name="state",
    owner="look",
    transitions=(Transition(target="open", by=("look",)), Transition(source="open", target="shut", by=("shop",))),
)


def hotel(name: str, cost: float) -> dict[str, Any]:
    """Record the hotel."""
    return {"name": name, "cost": cost}


def text(text: str) -> str:
    """Say it."""
    return text


ACTIONS = (
    Action("record_hotel", "hotel", hotel, channel="mail", approval="standard offer", needs_evidence=True),
    Action("note", "notes", text, operation=Operation.ADD),
    Action("wish_flight", "flight", text, operation=Operation.PROPOSE),
    Action("set_state", "state", text),
    Action("take_up", "flight", operation=Operation.TAKE_UP),
)


def acting(**given: Any) -> AgentBrief:
    """A brief of a step that books."""
    return briefed(
        cards=(HOTEL, NOTES, FLIGHT, STATE),
        actions=ACTIONS,
        reads=("hotel", "flight", "state"),
        writes=("hotel", "notes", "state"),
        **{"shared": {"flight": "late"}, **given},
    )


async def test_a_model_changes_fields_by_named_typed_actions_alone() -> None:
    said = Recorded(
        Call(("record_hotel", {"name": "Inn", "cost": 90.5, "evidence": ["price"]})),
        Call(("note", {"text": "late"}), ("note", {"text": "two beds"})),
        Call(("wish_flight", {"text": "early", "reason": "Sooner."})),
        Say("done"),
    )
    result = await result_of(said, acting())
    first, late, beds, wish = result.changes
    assert set(said.turns[0].tools) == {"look", "record_hotel", "note", "wish_flight", "set_state", "report_contradiction"}
    assert set(said.schema("record_hotel")["parameters"]["properties"]) == {"name", "cost", "evidence", "reason"}
    assert (first.field, first.value, first.action) == ("hotel", {"name": "Inn", "cost": 90.5}, "record_hotel")
    assert (first.channel, first.approval, first.source, first.seen, first.at) == ("mail", "standard offer", "catalogue", "0", NOW)
    assert first.evidence == (Evidence(ref="shop.price", version="2.abc"),)
    assert (late.value, beds.value, late.operation) == ("late", "two beds", Operation.ADD)
    assert (wish.operation, wish.seen, wish.reason) == (Operation.PROPOSE, "5.fff", "Sooner.")


@pytest.mark.parametrize(
    ("tool", "arguments", "told"),
    [
        ("record_hotel", {"name": "Inn", "cost": "dear", "evidence": ["price"]}, "bad arguments"),
        ("record_hotel", {"name": "Inn", "cost": 1, "stars": 3, "evidence": ["price"]}, "bad arguments"),
        ("record_hotel", {"name": "Inn", "cost": 1}, "bad arguments"),
        ("record_hotel", {"name": "Inn", "cost": 1, "evidence": []}, "names no evidence"),
        ("record_hotel", {"name": "Inn", "cost": 1, "evidence": ["colour"]}, "nothing here is called"),
        ("set_state", {"text": "shut"}, "does not go from nothing to 'shut'"),
        ("wish_flight", {"text": "early"}, "bad arguments"),
    ],
)
async def test_a_call_that_a_field_does_not_take_is_answered_with_why_and_changes_nothing(
    tool: str, arguments: dict[str, Any], told: str
) -> None:
    said = Recorded(Call((tool, arguments)), Say("done"))
    result = await result_of(said, acting())
    assert told in said.returned(tool)[0]["error"]
    assert result.changes == ()


async def test_a_model_reads_no_step_name_in_a_refusal() -> None:
    said = Recorded(Call(("set_state", {"text": "shut"})), Say("done"))
    await result_of(said, acting(shared={"flight": "late", "state": "open"}))
    assert said.returned("set_state") == [{"error": "this change of state is for somebody else to make; propose it, or leave it"}]


async def test_a_state_is_checked_after_what_the_same_run_did_before() -> None:
    said = Recorded(Call(("set_state", {"text": "open"})), Call(("set_state", {"text": "gone"})), Say("done"))
    result = await result_of(said, acting())
    assert [each.value for each in result.changes] == ["open"]
    assert "does not go from 'open' to 'gone'" in said.returned("set_state")[1]["error"]


async def test_a_draft_that_differs_from_what_was_told_is_answered_with_both_texts() -> None:
    inn = {"name": "Inn", "cost": 90.5}
    said = Recorded(Call(("record_hotel", {"name": "Inn", "cost": 95, "evidence": ["price"]})), Say("done"))
    result = await result_of(said, acting(shared={"hotel": inn}, told={"hotel": inn}))
    (error,) = said.returned("record_hotel")
    assert '"cost":90.5' in error["error"] and '"cost":95' in error["error"] and result.changes == ()


async def test_what_a_failed_run_wanted_is_not_kept() -> None:
    said = replies(Call(("note", {"text": "late"})), Call(("report_contradiction", {"reason": "no"})))
    result = await run(model=said, brief=acting())
    assert not result.completed and result.changes == ()


async def test_a_tool_reads_shared_fields_and_neither_it_nor_an_agent_changes_them_in_place() -> None:
    seen: list[Any] = []

    def peek(context: ToolContext) -> str:
        """Peek."""
        seen.append(context.shared)
        return "ok"

    brief = acting(shared={"hotel": {"name": "Inn", "rooms": [1, {"beds": 2}]}})
    await run(tool(peek), model=replies(Call(("peek", {})), Say("done")), brief=brief)
    given: list[Any] = [seen[0], brief.shared]
    for shared in given:
        assert shared["hotel"]["rooms"][1]["beds"] == 2
        rooms = shared["hotel"]["rooms"]
        for place, key in ((shared, "hotel"), (shared["hotel"], "name"), (rooms, 0), (rooms[1], "beds")):
            with pytest.raises(TypeError):
                place[key] = "other"


def test_no_tool_of_a_specialist_is_named_like_one_that_concludes() -> None:
    with pytest.raises(InvalidTeam, match="give a step's outputs"):
        Specialist("a", "p", [tool(look, name="conclude_it")])
