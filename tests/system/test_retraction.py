"""What is withdrawn, rechecked, asked of a person or judged anew: on both backends, from the client."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from schemas import fields
from schemas.boundary import BoundaryRecord
from schemas.errors import Refused
from schemas.gate import BoundaryRules
from schemas.packets import Control, Kind, Packet
from schemas.requests import StepRecord
from schemas.results import FailureCode
from schemas.shared import FieldCard, FieldChange, Operation
from tests.system.cast import Act, Cast, Gate, answers, step, told
from tests.system.conftest import System
from tests.system.reports import states
from workers.agents.agent import AgentBrief

pytestmark = pytest.mark.timeout(40)


def _turn(**values: list[Any]) -> Any:
    """An act whose facts change from run to run; the last ones stay."""
    runs = 0

    async def act(brief: AgentBrief) -> Any:
        nonlocal runs
        facts = {key: each[min(runs, len(each) - 1)] for key, each in values.items()}
        runs += 1
        return told(brief, f"{brief.step.title} says {facts}.", **facts)

    return act


async def _record(system: System, request_id: str, step_id: str) -> StepRecord:
    value = (await system.board.read(request_id, (fields.step(step_id),))).value(fields.step(step_id))
    assert value is not None
    return StepRecord.from_json(value)


async def _epochs(system: System, request_id: str, *steps: str) -> list[int]:
    return [(await _record(system, request_id, each)).epoch for each in steps]


async def _again(runtime: Any, request_id: str) -> Any:
    await runtime.wait(request_id)
    return await runtime.show(request_id)


async def test_what_is_sent_back_is_written_again_once_and_what_follows_from_a_step_never_makes_it_stale(system: System) -> None:
    """The draft reads the verdict, which is written below it: a new verdict is an answer to the new draft, and outdates none."""
    verdict = FieldCard(name="verdict", owner="judge")
    verdicts = iter(["too long", "fine"])

    async def judge(brief: AgentBrief) -> Any:
        said = next(verdicts)
        change = FieldChange(field="verdict", operation=Operation.SET, value=said)
        back = Packet(kind=Kind.RETRACTION, key="back", payload="draft.finding", control=Control(producer="judge", reason=said))
        return told(brief).model_copy(update={"changes": (change,), "packets": (back,) if said != "fine" else ()})

    cast = Cast({"draft": _turn(finding=[1, 2]), "judge": judge})
    outputs = ({"key": "back", "kind": "retraction", "required": False},)
    plan = (
        step("draft", reads=("verdict",)),
        step("judge", "draft", needs=("draft.finding",), reads=("verdict",), outputs=outputs, on_failure="recheck"),
        step("send", "judge", reads=("verdict",), needs=()),
    )
    async with system.serve(cast.team(*plan, fields=(verdict,))) as runtime:
        report = await runtime.ask("Do it.")
    assert report.status == "COMPLETED"
    assert [cast.runs[each] for each in ("draft", "judge", "send")] == [2, 2, 1]
    assert cast.briefs["draft"][1].shared["verdict"] == "too long" and cast.briefs["send"][0].shared["verdict"] == "fine"


async def test_what_was_briefed_with_a_withdrawn_value_runs_again_and_nothing_else(system: System) -> None:
    cast = Cast({"a": _turn(colour=["red", "blue"]), "b": answers, "c": answers, "d": answers})
    plan = (step("a"), step("b", "a", needs=("a.colour",)), step("c", needs=()), step("d", "b", "c", needs=("b.finding", "c.finding")))
    async with system.serve(cast.team(*plan)) as runtime:
        first = await runtime.ask("Do it.")
        await runtime.retract(first.request_id, "a.colour", "it was the wrong part", recheck=True)
        report = await _again(runtime, first.request_id)
        assert await _epochs(system, first.request_id, "a", "b", "c", "d") == [1, 1, 0, 0]  # b says the same, so d stays

    assert report.status == "COMPLETED"
    assert len(cast.briefs["a"]) == 2 and len(cast.briefs["b"]) == 2 and len(cast.briefs["c"]) == 1 and len(cast.briefs["d"]) == 1
    assert "blue" in cast.briefs["b"][1].text and "red" not in cast.briefs["b"][1].text
    assert "corrects an earlier one" in report.answer and "red" in report.answer and "blue" in report.answer


async def test_an_answer_corrects_what_was_withdrawn_since_the_last_one_and_nothing_before_it(system: System) -> None:
    cast = Cast({"a": _turn(colour=["red", "blue", "green"])})
    async with system.serve(cast.team(step("a"))) as runtime:
        first = await runtime.ask("Do it.")
        for reason in ("the first mistake", "the second mistake"):
            await runtime.retract(first.request_id, "a.colour", reason, recheck=True)
            report = await _again(runtime, first.request_id)
    assert "the second mistake" in report.answer and "the first mistake" not in report.answer


async def test_a_change_goes_on_level_by_level_as_far_as_anything_says_otherwise(system: System) -> None:
    cast = Cast({"a": _turn(colour=["red", "blue"]), "b": _turn(size=[1, 2]), "c": answers})
    plan = (step("a"), step("b", "a", needs=("a.colour",)), step("c", "b", needs=("b.size",)))
    async with system.serve(cast.team(*plan)) as runtime:
        first = await runtime.ask("Do it.")
        await runtime.retract(first.request_id, "a.colour", "wrong", recheck=True)
        await _again(runtime, first.request_id)
        assert await _epochs(system, first.request_id, "a", "b", "c") == [1, 1, 1]


async def test_a_withdrawn_value_is_never_briefed_again_and_its_need_is_named_as_the_gap(system: System) -> None:
    cast = Cast({"a": answers, "b": answers})
    async with system.serve(cast.team(step("a"), step("b", "a", needs=("a.finding",)))) as runtime:
        first = await runtime.ask("Do it.")
        await runtime.retract(first.request_id, "a.finding", "it was made up")
        report = await _again(runtime, first.request_id)
        record = await _record(system, first.request_id, "b")

    assert len(cast.briefs["b"]) == 1 and report.status == "DEGRADED"
    assert record.failure is not None and record.failure.code == FailureCode.BLOCKED and "retracted" in record.failure.description
    assert "it was made up" in report.answer


async def test_a_step_that_runs_on_a_withdrawn_value_is_stopped_and_runs_again(system: System) -> None:
    gate = Gate()
    turns: Iterator[Act] = iter([gate, answers])

    async def act(brief: AgentBrief) -> Any:
        return await next(turns)(brief)

    cast = Cast({"a": _turn(colour=["red", "blue"]), "b": act})
    async with system.serve(cast.team(step("a"), step("b", "a", needs=("a.colour",))), lease_seconds=0.6) as runtime:
        accepted = await runtime.submit(runtime.team, "Do it.")
        await gate.entered.wait()
        await runtime.retract(accepted.request_id, "a.colour", "wrong", recheck=True)
        report = await _again(runtime, accepted.request_id)

    assert report.status == "COMPLETED" and len(cast.briefs["b"]) == 2 and "blue" in cast.briefs["b"][1].text


@pytest.mark.parametrize(("policy", "code"), [("rollback", FailureCode.STALE), ("person", FailureCode.NEEDS_PERSON)])
async def test_the_owner_of_what_is_stale_decides_what_becomes_of_it(system: System, policy: str, code: FailureCode) -> None:
    cast = Cast({"a": _turn(finding=[7, 8]), "b": answers})
    plan = (step("a"), step("b", "a", needs=("a.finding",), on_stale=policy))
    async with system.serve(cast.team(*plan)) as runtime:
        first = await runtime.ask("Do it.")
        await runtime.retract(first.request_id, "a.finding", "wrong", recheck=True)
        report = await _again(runtime, first.request_id)
        record = await _record(system, first.request_id, "b")
        assert record.failure is not None and record.failure.code == code and report.status == "DEGRADED"
        if policy == "person":
            ((request, item),) = await runtime.desk()
            assert (request, item.id) == (first.request_id, "step:b")
            await runtime.decide(request, item.id, "approve", "run it again")
            report = await _again(runtime, first.request_id)
            assert report.status == "COMPLETED" and len(cast.briefs["b"]) == 2 and await runtime.desk() == []


async def test_a_retraction_that_does_not_fit_is_refused_by_name(system: System) -> None:
    cast = Cast({"a": answers})
    async with system.serve(cast.team(step("a"))) as runtime:
        first = await runtime.ask("Do it.")
        for name, said in (("a.colour", "says nothing of 'colour'"), ("z.finding", "no step 'z'")):
            with pytest.raises(Refused, match=said):
                await runtime.retract(first.request_id, name, "wrong")
        await runtime.retract(first.request_id, "a.finding", "wrong")
        with pytest.raises(Refused, match="already"):
            await runtime.retract(first.request_id, "a.finding", "wrong")


async def test_a_blocked_need_lets_its_producer_run_once_more_where_the_step_says_recheck(system: System) -> None:
    cast = Cast({"a": _turn(colour=["red"]), "b": answers})
    plan = (step("a"), step("b", "a", needs=("a.colour", "a.size"), on_failure="recheck"))
    runs = 0

    async def second_time_whole(brief: AgentBrief) -> Any:
        nonlocal runs
        runs += 1
        return told(brief, colour="red", size=4) if runs > 1 else told(brief, colour="red")

    cast.acts["a"] = second_time_whole
    async with system.serve(cast.team(*plan)) as runtime:
        report = await runtime.ask("Do it.")
        assert report.status == "COMPLETED" and await _epochs(system, report.request_id, "a", "b") == [1, 1]


async def test_a_recheck_that_brings_nothing_ends_as_a_gap_after_one_more_run(system: System) -> None:
    cast = Cast({"a": _turn(colour=["red"]), "b": answers})
    async with system.serve(cast.team(step("a"), step("b", "a", needs=("a.size",), on_failure="recheck"))) as runtime:
        report = await runtime.ask("Do it.")
        assert report.status == "DEGRADED" and await _epochs(system, report.request_id, "a", "b") == [1, 1]


async def test_what_cannot_be_taken_back_asks_a_person_and_runs_once_one_has_approved(system: System) -> None:
    cast = Cast({"a": answers, "b": answers})
    plan = (step("a"), step("b", "a", needs=("a.finding",), may="commit", irreversible=True))
    async with system.serve(cast.team(*plan)) as runtime:
        first = await runtime.ask("Do it.")
        assert first.status == "DEGRADED" and cast.briefs["b"] == []
        ((request, item),) = await runtime.desk()
        assert (item.id, item.choices) == ("step:b", ("approve", "refuse")) and "a.finding = 7" in item.question
        with pytest.raises(Refused, match="no choice"):
            await runtime.decide(request, item.id, "perhaps", "")
        with pytest.raises(Refused, match="no 'step:a' on the desk"):
            await runtime.decide(request, "step:a", "approve", "")
        await runtime.decide(request, item.id, "approve", "I looked at it")
        report = await _again(runtime, request)
        assert report.status == "COMPLETED" and len(cast.briefs["b"]) == 1 and await runtime.desk() == []


async def test_a_person_who_refuses_leaves_the_gap_and_an_empty_desk(system: System) -> None:
    cast = Cast({"a": answers})
    async with system.serve(cast.team(step("a", may="commit", irreversible=True))) as runtime:
        report = await runtime.ask("Do it.")
        ((_, item),) = await runtime.desk()
        await runtime.decide(report.request_id, item, "refuse", "too risky")
        report = await runtime.result(report.request_id)
        assert await runtime.desk() == [] and await runtime.dead() == []
        assert report.status == "FAILED" and cast.briefs["a"] == [] and "a person decided against it" in report.answer


async def test_a_decision_holds_for_the_item_as_its_sender_saw_it(system: System) -> None:
    cast = Cast({"a": _turn(colour=["red", "blue"]), "b": answers})
    plan = (step("a"), step("b", "a", needs=("a.colour",), may="commit", irreversible=True))
    async with system.serve(cast.team(*plan)) as runtime:
        first = await runtime.ask("Do it.")
        ((_, seen),) = await runtime.desk()
        await runtime.decide(first.request_id, seen, "approve", "checked")
        await runtime.result(first.request_id)
        await runtime.retract(first.request_id, "a.colour", "wrong", recheck=True)
        await runtime.result(first.request_id)
        ((_, now),) = await runtime.desk()
        assert "carried out already" in now.question and cast.runs["b"] == 1
        with pytest.raises(Refused, match="changed since"):
            await runtime.decide(first.request_id, seen, "approve", "checked")
        await runtime.decide(first.request_id, now, "approve", "once more, then")
        await runtime.result(first.request_id)
        ((_, again),) = await runtime.desk()
        assert "'blue'" in again.question and cast.runs["b"] == 1  # and it asks anew, with what it would rest on now


async def test_what_was_withdrawn_without_a_recheck_may_be_rechecked_later(system: System) -> None:
    cast = Cast({"a": _turn(colour=["red", "blue"]), "b": answers})
    async with system.serve(cast.team(step("a"), step("b", "a", needs=("a.colour",), on_failure="person"))) as runtime:
        first = await runtime.ask("Do it.")
        await runtime.retract(first.request_id, "a.colour", "wrong")
        await runtime.result(first.request_id)
        for _ in range(2):  # approving lets nothing cross that was withdrawn, and the item stays
            ((_, item),) = await runtime.desk()
            assert "retracted" in item.question
            await runtime.decide(first.request_id, item, "approve", "go on")
            await runtime.result(first.request_id)
        await runtime.retract(first.request_id, "a.colour", "wrong", recheck=True)
        await runtime.result(first.request_id)
        await runtime.replay(first.request_id, "b")
        report = await runtime.result(first.request_id)
    assert report.status == "COMPLETED" and "blue" in cast.briefs["b"][-1].text


async def test_other_rules_hold_for_what_is_claimed_from_then_on(system: System) -> None:
    gate = Gate()
    cast = Cast({"a": gate, "b": answers})
    async with system.serve(cast.team(step("a"), step("b", "a", needs=("a.finding",), may="commit"))) as runtime:
        accepted = await runtime.submit(runtime.team, "Do it.")
        await gate.entered.wait()
        rules = (await runtime.rules(accepted.request_id)).model_copy(update={"named": "strict", "commit_confidence": 1.0})
        await runtime.set_rules(accepted.request_id, rules)
        gate.opened.set()
        report = await _again(runtime, accepted.request_id)
        value = (await system.board.read(report.request_id, (fields.BOUNDARY,))).value(fields.BOUNDARY)
        assert value is not None and BoundaryRecord.from_json(value).rules == rules
        with pytest.raises(Refused, match="over"):
            await runtime.set_rules(accepted.request_id, BoundaryRules())
    assert cast.briefs["b"][0].brief.manifest.boundary == rules.version


async def test_rules_that_say_stop_let_what_runs_begin_anew(system: System) -> None:
    gate = Gate()
    turns: Iterator[Act] = iter([gate, answers])

    async def act(brief: AgentBrief) -> Any:
        return await next(turns)(brief)

    cast = Cast({"a": act})
    async with system.serve(cast.team(step("a")), lease_seconds=0.6) as runtime:
        accepted = await runtime.submit(runtime.team, "Do it.")
        await gate.entered.wait()
        await runtime.set_rules(accepted.request_id, BoundaryRules(named="new", on_rules_change="stop"))
        report = await _again(runtime, accepted.request_id)
        assert report.status == "COMPLETED" and await _epochs(system, report.request_id, "a") == [1]


async def test_a_retraction_while_its_dependant_commits_leaves_no_result_that_rests_on_it(system: System) -> None:
    """Whichever of the two writes lands first, the other one is decided anew."""
    for _ in range(5):
        gate = Gate()
        turns: Iterator[Act] = iter([gate, *[answers] * 5])

        async def act(brief: AgentBrief, turns: Any = turns) -> Any:
            return await next(turns)(brief)

        cast = Cast({"a": _turn(colour=["red", "blue"]), "b": act})
        async with system.serve(cast.team(step("a"), step("b", "a", needs=("a.colour",)))) as runtime:
            accepted = await runtime.submit(runtime.team, "Do it.")
            await gate.entered.wait()
            gate.opened.set()
            await runtime.retract(accepted.request_id, "a.colour", "wrong", recheck=True)
            async with asyncio.timeout(20):
                report = await _again(runtime, accepted.request_id)
            made_with = next(each.result.made_with for each in report.steps if each.step.id == "b" and each.result)
            snapshot = await system.board.read(report.request_id, (fields.result("a"),))
            assert states(report) == {"a": "COMPLETED", "b": "COMPLETED"}
            assert made_with is not None and made_with.reads["a.colour"].version == snapshot.version(fields.result("a"))
