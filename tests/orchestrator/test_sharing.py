"""Shared fields, retraction and the desk: what the orchestrator decides where steps run again, are given up, or commands come twice."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from orchestrator.advancing import advance
from orchestrator.causes import DecideAsked, RetractAsked, RulesAsked, Swept
from orchestrator.decisions import Verdict
from schemas import fields
from schemas.blackboard import DeadEntry
from schemas.boundary import AbsorbedRecord, BoundaryRecord, Retraction
from schemas.gate import BoundaryRules
from schemas.packets import OnFailure
from schemas.plans import Step
from schemas.requests import RequestStatus, StepRecord, StepState
from schemas.results import Failure, FailureCode, MadeWith, ReadOf
from schemas.shared import Claim, FieldCard, FieldRecord, Operation
from schemas.shared import FieldChange as Wanted
from schemas.teams import TeamCard
from tests.orchestrator.building import Request, result
from tests.orchestrator.building import step as plain

COMPLETED, PENDING = StepState.COMPLETED, StepState.PENDING
FIVE_OF_B = FieldRecord(value=5, claims=(Claim(step="b", value=5),))


def _step(step_id: str, *after: str, **more: Any) -> Step:
    return plain(step_id, *after).model_copy(update=more)


def _record(put: Mapping[str, bytes], step_id: str) -> StepRecord:
    return StepRecord.from_json(put[fields.step(step_id)])


def _absorbed(put: Mapping[str, bytes]) -> AbsorbedRecord:
    return AbsorbedRecord.from_json(put[fields.ABSORBED])


def _read(request: Request, name: str, value: str = "") -> dict[str, ReadOf]:
    source = name.partition(".")[0]
    return {name: ReadOf(version=request.version(fields.result(source)), fingerprint=value)}


def _made_with(request: Request, step_id: str, *names: str, **changes: Any) -> Any:
    """The result of a step whose brief carried these values as they are now."""
    reads = {key: value for name in names for key, value in _read(request, name).items()}
    made = MadeWith(brief_sha256="0" * 64, position=request.position, reads=reads)
    return result(step_id).model_copy(update={"made_with": made, **changes})


def _withdrawn(request: Request, step_id: str) -> Request:
    retraction = Retraction(step=step_id, key="out", version=request.version(fields.result(step_id)), reason="wrong")
    return request.put({fields.BOUNDARY: BoundaryRecord(retractions=(retraction,))})


def test_a_step_that_is_given_up_takes_back_what_it_had_added() -> None:
    request = Request((_step("a"), _step("b", "a", on_stale="rollback", writes=("total",)))).planned().completed("a")
    request.is_at("b", COMPLETED, of=_made_with(request, "b", "a.out"))
    request.put(
        {
            fields.shared("total"): FieldRecord(value=5, claims=(Claim(step="b", value=5),)),
            fields.ABSORBED: AbsorbedRecord(steps=(("b", 0),)),
        }
    )
    change = _withdrawn(request, "a").change(Swept())
    assert (change.event, _record(change.put, "b").state, _absorbed(change.put).steps) == ("stale_found", StepState.FAILED, ())


def test_a_step_that_will_not_run_again_takes_back_what_it_had_added() -> None:
    request = Request((_step("a"), _step("b", "a", writes=("total",)))).planned().failed("a", epoch=1).is_at("b", PENDING, epoch=1)
    request.put(
        {
            fields.shared("total"): FieldRecord(value=5, claims=(Claim(step="b", value=5),)),
            fields.ABSORBED: AbsorbedRecord(steps=(("b", 0),)),
        }
    )
    change = request.change(Swept())
    assert change.event == "changes_absorbed" and _absorbed(change.put).steps == ()
    assert FieldRecord.from_json(change.put[fields.shared("total")]).claims == ()


def test_who_rests_on_what_a_recheck_made_anew_runs_again_too() -> None:
    steps = (_step("a"), _step("b", "a"), _step("c", "a", on_failure=OnFailure.RECHECK))
    request = Request(steps).planned().completed("a")
    request.is_at("b", COMPLETED, of=_made_with(request, "b", "a.out")).completed("a", epoch=1)
    request.put({fields.ABSORBED: AbsorbedRecord(rechecked=(("c", 0),))})
    change = request.change(Swept())
    assert change.event == "stale_found" and (_record(change.put, "b").state, _record(change.put, "b").epoch) == (PENDING, 1)


def test_a_step_that_runs_below_one_that_was_given_up_is_stopped() -> None:
    request = Request((_step("a"), _step("b", "a", needs=()))).planned().completed("a")
    _withdrawn(request, "a").running("b").failed("a", FailureCode.STALE)
    change = request.change(Swept())
    assert change.event == "stale_found" and _record(change.put, "b").state is PENDING


def test_a_barrier_is_reached_by_what_all_members_are_and_the_write_expects_them() -> None:
    steps = (_step("x"), _step("a", superstep="s"), _step("b", "x", superstep="s"))
    request = Request(steps).planned().completed("a").failed("x")
    assert {fields.step(each) for each in ("x", "a", "b")} <= request.change(Swept()).expect.keys()


def test_contributions_that_did_not_fit_come_in_when_an_earlier_one_is_taken_back() -> None:
    """Whoever came first, the sum is the same."""
    steps = (_step("a", writes=("total",)), _step("b", writes=("total",)))
    request = Request(steps).planned()
    card = TeamCard.from_json(request.stored[fields.CARD].value)
    total = FieldCard(name="total", type="integer", reducer="sum", capacity=20)
    request.put({fields.CARD: card.model_copy(update={"fields": {"total": total}})})
    found = []
    for amount in (15, 5):
        for step_id, value in (("a", amount), ("b", 10)):
            wanted = (Wanted(field="total", operation=Operation.ADD, value=value),)
            epoch = 0 if amount == 15 or step_id == "b" else 1
            request.is_at(step_id, COMPLETED, of=result(step_id).model_copy(update={"changes": wanted}), epoch=epoch)
        for _ in range(2):
            decision = request.after(Swept())
            if decision.change is not None and decision.change.event == "changes_absorbed":
                puts = decision.change.put
                request.put({name: (FieldRecord if name.startswith("field/") else AbsorbedRecord).from_json(puts[name]) for name in puts})
        found.append(FieldRecord.from_json(request.stored[fields.shared("total")].value).value)
    assert found == [15, 15]
    assert AbsorbedRecord.from_json(request.stored[fields.ABSORBED].value).refused == ()


def test_a_command_means_what_its_sender_saw_so_that_one_that_was_refused_is_refused_when_it_comes_again() -> None:
    request = Request((_step("a"),)).planned().completed("a")
    seen = request.version(fields.result("a"))
    assert request.change(RetractAsked("a", "out", "wrong", version=seen)).event == "retracted"
    late = request.completed("a", epoch=1).after(RetractAsked("a", "out", "wrong", version=seen))
    assert late.verdict is Verdict.REFUSED and "anew" in late.reason
    late = request.after(DecideAsked("step:a", "approve", "", version="1.other"))
    assert late.verdict is Verdict.REFUSED and "changed since" in late.reason
    request.status(RequestStatus.RUNNING, replays=1)
    assert request.after(RulesAsked(BoundaryRules(), replays=0)).verdict is Verdict.REFUSED


def test_rules_may_be_changed_before_there_is_a_plan() -> None:
    change = Request((_step("a"),)).opened().change(RulesAsked(BoundaryRules(named="other")))
    assert change.event == "rules_changed" and set(change.put) == {fields.BOUNDARY}


def test_a_refusal_that_comes_again_takes_the_dead_letter_away_and_the_first_one_is_said_in_a_new_answer() -> None:
    request = Request((_step("a"),)).planned()
    failure = Failure(code=FailureCode.NEEDS_PERSON, description="asks", rests_on="x")
    request.is_at("a", StepState.FAILED, failure=failure).status(RequestStatus.FAILED)
    refusing = DecideAsked("step:a", "refuse", "no")
    first = request.change(refusing)
    assert set(first.put) == {fields.BOUNDARY, fields.STATUS, fields.step("a")}
    refused = StepRecord.from_json(first.put[fields.step("a")])
    assert refused.state is StepState.FAILED and refused.failure is not None and refused.failure.code == FailureCode.REFUSED
    request.put({fields.step("a"): refused, fields.BOUNDARY: BoundaryRecord.from_json(first.put[fields.BOUNDARY])})
    again = request.change(refusing)
    assert again.put == {} and again.dead_after == (DeadEntry(request.id, "a", 0),)


def test_an_orchestrator_that_sees_a_request_for_the_first_time_knows_what_was_taken_in() -> None:
    request = Request((_step("w", writes=("total",)), _step("a"), _step("b", "w", "a"))).planned().completed("w").completed("a")
    request.put({fields.ABSORBED: AbsorbedRecord(steps=(("w", 0),))})
    asked = (fields.REQUEST, fields.STATUS, fields.PLAN, fields.BOUNDARY)
    names: tuple[str, ...] = asked
    while (decision := advance(request.view(*names), request.result_came("a"), retention_seconds=1)).read_more:
        names += decision.read_more
    assert [getattr(ring, "step_id", "") for ring in decision.rings] == ["b"]


def test_a_step_whose_holder_is_gone_waits_for_an_input_that_is_still_to_be_taken_in() -> None:
    steps = (_step("c", superstep="s", critical=False), _step("e", superstep="s"), _step("d", "c"))
    request = Request(steps).planned().failed("c", epoch=1).running("d", lease_ms=0)
    request.put({fields.ABSORBED: AbsorbedRecord(steps=(("c", 0),))})
    assert "d" not in [getattr(ring, "step_id", "") for ring in request.after(Swept()).rings]
    request.completed("e").put({fields.ABSORBED: AbsorbedRecord(steps=(("c", 1), ("e", 0)))})
    assert "d" in [getattr(ring, "step_id", "") for ring in request.after(Swept()).rings]
