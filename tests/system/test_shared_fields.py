"""Shared fields over the whole line: owners, merging at the barrier, contested values, proposals, state machines, carrying."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from rich.console import Console

from ops import rendering, trails
from schemas import fields
from schemas.errors import Refused
from schemas.gate import BoundaryRules
from schemas.results import AgentResult, FailureCode
from schemas.shared import Claim, FieldCard, FieldChange, FieldRecord, Operation, Transition
from tests.system.cast import Cast, Gate, fails, step, told
from tests.system.conftest import System, happened
from tests.system.reports import named
from workers.agents.agent import AgentBrief

pytestmark = pytest.mark.timeout(40)

ADD, SET, PROPOSE = Operation.ADD, Operation.SET, Operation.PROPOSE


def _wants(*changes: tuple[str, Operation, Any], **more: Any) -> Callable[[AgentBrief], Any]:
    """An act that ends well and wants these changes."""

    async def act(brief: AgentBrief) -> AgentResult:
        wanted = tuple(
            FieldChange(
                field=name, operation=operation, value=value, seen=_seen(brief, name), **{"source": f"source of {brief.step_id}", **more}
            )
            for name, operation, value in changes
        )
        return told(brief).model_copy(update={"changes": wanted})

    return act


def _seen(brief: AgentBrief, name: str) -> str | None:
    read = brief.reads.get(fields.shared(name))
    return read.version if read is not None else None


async def _field(system: System, request_id: str, name: str) -> FieldRecord:
    value = (await system.board.read(request_id, (fields.shared(name),))).value(fields.shared(name))
    return FieldRecord() if value is None else FieldRecord.from_json(value)


SPOTS = FieldCard(name="spots", type="list", members={"name": "text", "cost": "integer"}, reducer="append")
SPENT = FieldCard(name="spent", type="integer", reducer="sum", unit="CNY", capacity=100)
COLOUR = FieldCard(name="colour", type="text", owner="a")
CLAIMED = FieldCard(name="claimed", label="What it is", type="text", reducer="agree")
OFFER = FieldCard(
    name="offer",
    type="object",
    members={"limit": "integer", "state": "text"},
    owner="a",
    state_key="state",
    transitions=(
        Transition(source=None, target="draft", by=("a",)),
        Transition(source="draft", target="approved", by=("a",), when={"verdict": "pass"}),
    ),
)


@pytest.mark.parametrize("first", ["b", "c"])
async def test_steps_of_one_superstep_are_merged_at_the_barrier_and_no_order_of_arrival_shows(system: System, first: str) -> None:
    gates = {"b": Gate(_wants(("spots", ADD, {"name": "b1", "cost": 1}), ("spent", ADD, 40))), "c": Gate()}
    gates["c"] = Gate(_wants(("spots", ADD, {"name": "c1", "cost": 2}), ("spots", ADD, {"name": "c2", "cost": 3}), ("spent", ADD, 50)))
    cast = Cast({**gates})
    both = {"superstep": "look", "writes": ("spots", "spent"), "needs": ()}
    plan = (step("b", **both), step("c", **both), step("d", "b", "c", reads=("spots", "spent"), needs=()))
    async with system.serve(cast.team(*plan, fields=(SPOTS, SPENT))) as runtime:
        accepted = await runtime.submit(runtime.team, "Do it.")
        await asyncio.gather(gates["b"].entered.wait(), gates["c"].entered.wait())
        gates[first].opened.set()
        await happened(system.board, accepted.request_id, "step_completed")
        assert await _field(system, accepted.request_id, "spots") == FieldRecord()  # nothing before the barrier
        gates[{"b": "c", "c": "b"}[first]].opened.set()
        report = await runtime.result(accepted)
        spots = await _field(system, accepted.request_id, "spots")

    assert report.status == "COMPLETED"
    assert spots.value == [{"name": "b1", "cost": 1}, {"name": "c1", "cost": 2}, {"name": "c2", "cost": 3}]
    assert cast.briefs["d"][0].shared["spent"] == 90
    assert {"result/b", "result/c"} <= set(trails.basis(report, "field/spots").names())
    (merged,) = named(report.events, "changes_absorbed")
    assert merged.labels["steps"] == "b,c" and {"field/spots", "field/spent", "absorbed"} == set(merged.put)


async def test_a_failed_member_contributes_nothing_and_the_gap_is_named(system: System) -> None:
    cast = Cast({"b": _wants(("spent", ADD, 40)), "c": fails()})
    both = {"superstep": "look", "writes": ("spent",), "needs": ()}
    plan = (step("b", **both), step("c", critical=False, **both), step("d", "b", "c", reads=("spent",), needs=()))
    async with system.serve(cast.team(*plan, fields=(SPENT,))) as runtime:
        report = await runtime.ask("Do it.")
        assert (await _field(system, report.request_id, "spent")).value == 40
    assert report.status == "DEGRADED" and [gap.step for gap in report.gaps] == ["c"] and cast.briefs["d"][0].shared["spent"] == 40


async def test_a_sum_never_goes_over_its_limit_and_what_is_refused_is_a_gap(system: System) -> None:
    cast = Cast({"b": _wants(("spent", ADD, 70)), "c": _wants(("spent", ADD, 60))})
    both = {"superstep": "look", "writes": ("spent",), "needs": ()}
    async with system.serve(cast.team(step("b", **both), step("c", **both), fields=(SPENT,))) as runtime:
        report = await runtime.ask("Do it.")
        assert (await _field(system, report.request_id, "spent")).value == 70
    assert report.status == "DEGRADED" and [(gap.step, gap.reason) for gap in report.gaps] == [("c", FailureCode.FIELD_REFUSED)]


async def test_a_reducer_that_raises_refuses_what_it_was_given_and_the_request_ends(system: System) -> None:
    def boom(claims: Sequence[Claim]) -> Any:
        if any(each.value == 13 for each in claims):
            raise ValueError("thirteen")
        return sum(each.value for each in claims)

    odd = FieldCard(name="odd", type="integer", reducer="boom")
    cast = Cast({"b": _wants(("odd", ADD, 13))})
    async with system.serve(cast.team(step("b", writes=("odd",)), fields=(odd,), reducers={"boom": boom})) as runtime:
        report = await runtime.ask("Do it.")
        assert (await _field(system, report.request_id, "odd")).value is None
    assert report.status == "DEGRADED" and "thirteen" in report.gaps[0].description


async def test_a_step_that_runs_again_replaces_what_it_had_added(system: System) -> None:
    amounts = iter([30, 50])

    async def act(brief: AgentBrief) -> Any:
        return await _wants(("spent", ADD, next(amounts)))(brief)

    cast = Cast({"b": act})
    async with system.serve(cast.team(step("b", writes=("spent",)), fields=(SPENT,))) as runtime:
        first = await runtime.ask("Do it.")
        await runtime.retract(first.request_id, "b.finding", "wrong", recheck=True)
        await runtime.wait(first.request_id)
        assert (await _field(system, first.request_id, "spent")).value == 50


async def test_only_its_owner_sets_a_field_and_anybody_else_is_refused_by_name(system: System) -> None:
    cast = Cast({"a": _wants(("colour", SET, "red")), "b": _wants(("colour", SET, "blue")), "c": _wants(("nothing", SET, 1))})
    plan = (step("a"), step("b", "a", needs=()), step("c", "a", needs=()), step("d", "a", reads=("colour",), needs=()))
    async with system.serve(cast.team(*plan, fields=(COLOUR,))) as runtime:
        report = await runtime.ask("Do it.")
        assert (await _field(system, report.request_id, "colour")).value == "red"
    assert report.status == "DEGRADED" and cast.briefs["d"][0].shared["colour"] == "red"
    assert "belongs to step 'a'" in str([gap.description for gap in report.gaps if gap.step == "b"])
    assert "declares no field 'nothing'" in str([gap.description for gap in report.gaps if gap.step == "c"])


async def test_a_proposal_stands_beside_the_field_until_its_owner_takes_it_up_or_refuses_it(system: System) -> None:
    cast = Cast({"b": _wants(("colour", PROPOSE, "blue")), "c": _wants(("colour", PROPOSE, "green"))})

    async def owner(brief: AgentBrief) -> Any:
        return await _wants(("colour", Operation.TAKE_UP, "b.0.0"), ("colour", Operation.REFUSE, "c.0.0"), reason="too dark")(brief)

    cast.acts["a"] = owner
    both = {"needs": (), "superstep": "wish"}
    plan = (step("b", **both), step("c", **both), step("a", "b", "c", needs=(), writes=("colour",)))
    async with system.serve(cast.team(*plan, fields=(COLOUR,))) as runtime:
        report = await runtime.ask("Do it.")
        record = await _field(system, report.request_id, "colour")
    assert (report.status, record.value, record.step) == ("COMPLETED", "blue", "a")
    assert [(each.id, each.refused) for each in record.proposals] == [("c.0.0", "too dark")]


async def test_different_claims_are_contested_and_nobody_sees_either_until_a_person_decides(system: System) -> None:
    cast = Cast({"b": _wants(("claimed", ADD, "a lamp")), "c": _wants(("claimed", ADD, "a chair"))})
    both = {"superstep": "look", "writes": ("claimed",), "needs": ()}
    plan = (
        *(step("b", **both), step("c", **both)),
        step("d", "b", "c", reads=("claimed",), needs=()),
        step("e", "b", "c", reads=("claimed",), needs=(), may="commit"),
    )
    async with system.serve(cast.team(*plan, fields=(CLAIMED,))) as runtime:
        report = await runtime.ask("Do it.")
        assert report.status == "DEGRADED" and cast.briefs["e"] == []
        text = cast.briefs["d"][0].text
        assert "contested" in text and "lamp" not in text and "chair" not in text
        items = {item.id: item for _, item in await runtime.desk()}
        shown = Console(width=200, record=True, file=io.StringIO())
        shown.print(rendering.full(report))
        text = shown.export_text()
        assert "contested" in text and "briefline desk decide" in text and report.as_json()["shared"]["claimed"]["contested"] is True
        assert set(items) == {"field:claimed", "step:e"} and "2 independent sources" in items["field:claimed"].question
        with pytest.raises(Refused, match="no claim 'a sofa'"):
            await runtime.decide(report.request_id, "field:claimed", "a sofa", "")
        await runtime.decide(report.request_id, "field:claimed", "c.0.0", "I looked at it")
        report = await runtime.result(report.request_id)
        record = await _field(system, report.request_id, "claimed")
        assert await runtime.desk() == []
    assert (record.value, record.contested, record.settled_by) == ("a chair", False, "client")
    assert report.status == "COMPLETED" and cast.briefs["e"][0].shared["claimed"] == "a chair"


async def test_an_arbiter_settles_what_is_contested_and_alone_is_shown_the_claims(system: System) -> None:
    claimed = CLAIMED.model_copy(update={"arbiter": "judge"})
    cast = Cast({"b": _wants(("claimed", ADD, "a lamp")), "c": _wants(("claimed", ADD, "a chair"))})
    cast.acts["judge"] = _wants(("claimed", Operation.SETTLE, "b.0.0"))
    both = {"superstep": "look", "writes": ("claimed",), "needs": ()}
    plan = (
        *(step("b", **both), step("c", **both)),
        step("judge", "b", "c", reads=("claimed",), writes=("claimed",), needs=()),
        step("d", "judge", reads=("claimed",), needs=()),
    )
    async with system.serve(cast.team(*plan, fields=(claimed,))) as runtime:
        report = await runtime.ask("Do it.")
    assert report.status == "COMPLETED" and cast.briefs["d"][0].shared["claimed"] == "a lamp"
    assert "a lamp" in cast.briefs["judge"][0].text and "a chair" in cast.briefs["judge"][0].text


async def test_no_arbiter_settles_what_independent_sources_say_differently_where_a_step_may_commit_on_it(system: System) -> None:
    claimed = CLAIMED.model_copy(update={"arbiter": "judge"})
    cast = Cast({"b": _wants(("claimed", ADD, "a lamp")), "c": _wants(("claimed", ADD, "a chair"))})
    cast.acts["judge"] = _wants(("claimed", Operation.SETTLE, "b.0.0"))
    both = {"superstep": "look", "writes": ("claimed",), "needs": ()}
    plan = (
        *(step("b", **both), step("c", **both)),
        step("judge", "b", "c", reads=("claimed",), writes=("claimed",), needs=()),
        step("d", "judge", reads=("claimed",), needs=(), may="commit"),
    )
    async with system.serve(cast.team(*plan, fields=(claimed,))) as runtime:
        report = await runtime.ask("Do it.")
        assert "field:claimed" in {item.id for _, item in await runtime.desk()}
    assert report.status == "DEGRADED" and cast.briefs["d"] == []


async def test_claims_of_one_source_count_once(system: System) -> None:
    cast = Cast({each: _wants(("claimed", ADD, "a lamp"), source="the same page") for each in ("b", "c")})
    both = {"superstep": "look", "writes": ("claimed",), "needs": ()}
    plan = (step("b", **both), step("c", **both), step("d", "b", "c", reads=("claimed",), needs=()))
    async with system.serve(cast.team(*plan, fields=(CLAIMED,))) as runtime:
        report = await runtime.ask("Do it.")
    assert report.status == "COMPLETED" and cast.briefs["d"][0].shared["claimed"] == "a lamp"


async def test_a_state_changes_along_its_machine_only_and_its_conditions_are_held(system: System) -> None:
    verdict = FieldCard(name="verdict", type="text", owner="b")
    for said, ends in (("pass", "approved"), ("block", "draft")):
        cast = Cast({"b": _wants(("verdict", SET, said))})
        turns = iter([{"limit": 500, "state": "draft"}, {"limit": 500, "state": "approved"}])

        async def act(brief: AgentBrief, turns: Any = turns) -> Any:
            return await _wants(("offer", SET, next(turns)))(brief)

        cast.acts["a"] = act
        plan = (step("a", writes=("offer",)), step("b", "a", writes=("verdict",), needs=()))
        async with system.serve(cast.team(*plan, fields=(OFFER, verdict))) as runtime:
            first = await runtime.ask("Do it.")
            await runtime.retract(first.request_id, "a.finding", "once more", recheck=True)
            report = await runtime.result(first.request_id)
            record = await _field(system, report.request_id, "offer")
        assert record.value == {"limit": 500, "state": ends}
        assert report.status == ("COMPLETED" if said == "pass" else "DEGRADED")
        if said == "block":
            assert "verdict is not 'pass'" in report.gaps[0].description


async def test_a_value_past_its_time_stands_in_no_brief_and_its_event_stays(system: System) -> None:
    risk = FieldCard(name="risk", type="text", owner="a", ttl_seconds=0.05)

    async def slow(brief: AgentBrief) -> Any:
        await asyncio.sleep(0.2)
        return told(brief)

    cast = Cast({"a": _wants(("risk", SET, "angry")), "b": slow})
    plan = (step("a", writes=("risk",)), step("b", "a", needs=()), step("c", "b", reads=("risk",), needs=()))
    async with system.serve(cast.team(*plan, fields=(risk,))) as runtime:
        report = await runtime.ask("Do it.")
    assert "angry" not in cast.briefs["c"][0].text and "expired" in cast.briefs["c"][0].text
    assert any(b"angry" in value for event in report.events for name, (_, value) in event.put.items() if name == "field/risk")


async def test_what_was_said_to_a_user_stays_as_it_was_said_is_flagged_and_goes_to_a_person(system: System) -> None:
    said = FieldCard(name="said", type="text", owner="b", protected=True)
    cast = Cast({"b": _wants(("said", SET, "500 it is"), channel="chat", approval="the rules")})
    plan = (step("a"), step("b", "a", reads=("said",), writes=("said",), needs=("a.finding",), on_failure="gap"))

    async def act(brief: AgentBrief) -> Any:
        change = FieldChange(field="said", operation=SET, value="500 it is", channel="chat", approval="the rules", seen="0")
        return told(brief).model_copy(update={"changes": (change,)})

    cast.acts["b"] = act
    async with system.serve(cast.team(*plan, fields=(said,), rules=BoundaryRules())) as runtime:
        first = await runtime.ask("Do it.")
        assert (await _field(system, first.request_id, "said")).communicated[0].channel == "chat"
        await runtime.retract(first.request_id, "a.finding", "it was made up")
        report = await runtime.result(first.request_id)
        record = await _field(system, first.request_id, "said")
        ((_, item),) = await runtime.desk()
        assert record.value == "500 it is" and "made up" in record.flagged and item.id == "said:said"
        assert cast.runs["b"] == 1 and "made up" in report.answer
        await runtime.decide(first.request_id, item.id, "approve", "told the customer")
        assert await runtime.desk() == []


MOVED = FieldCard(
    name="offer",
    type="object",
    members={"limit": "integer", "state": "text"},
    owner="a",
    state_key="state",
    transitions=(
        Transition(source=None, target="draft", by=("a",)),
        Transition(source="draft", target="approved", by=("b",)),
        Transition(source="approved", target="sent", by=("c",)),
    ),
)


async def test_a_field_goes_through_its_states_by_the_steps_that_its_transitions_name_and_they_change_nothing_else(system: System) -> None:
    cast = Cast({"a": _wants(("offer", SET, {"limit": 500, "state": "draft"}))})
    cast.acts["b"] = _wants(("offer", Operation.MOVE, "approved"))
    cast.acts["c"] = _wants(("offer", Operation.MOVE, "sent"))
    both = {"needs": (), "reads": ("offer",)}
    async with system.serve(cast.team(step("a"), step("b", "a", **both), step("c", "b", **both), fields=(MOVED,))) as runtime:
        report = await runtime.ask("Do it.")
        record = await _field(system, report.request_id, "offer")
    assert report.status == "COMPLETED"
    assert (record.value, record.step) == ({"limit": 500, "state": "sent"}, "a")


@pytest.mark.parametrize(
    ("operation", "value", "said"),
    [
        (SET, {"limit": 400, "state": "approved"}, "belongs to step 'a'"),
        (Operation.MOVE, "sent", "does not go from 'draft' to 'sent'"),
        (Operation.MOVE, "gone", "there is no state 'gone'"),
        (Operation.MOVE, {"limit": 400, "state": "approved"}, "there is no state"),
    ],
)
async def test_who_moves_a_state_changes_neither_the_value_nor_a_state_of_somebody_else(
    system: System, operation: Operation, value: Any, said: str
) -> None:
    cast = Cast({"a": _wants(("offer", SET, {"limit": 500, "state": "draft"})), "b": _wants(("offer", operation, value))})
    plan = (step("a"), step("b", "a", needs=(), reads=("offer",)), step("c", "b", needs=()))
    async with system.serve(cast.team(*plan, fields=(MOVED,))) as runtime:
        report = await runtime.ask("Do it.")
        record = await _field(system, report.request_id, "offer")
    assert record.value == {"limit": 500, "state": "draft"}
    assert [(gap.step, gap.reason) for gap in report.gaps] == [("b", FailureCode.FIELD_REFUSED)]
    assert said in report.gaps[0].description
