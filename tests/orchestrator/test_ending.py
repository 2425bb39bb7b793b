"""The writes that finish a request: what they expect, what they say, whom they fence off."""

from __future__ import annotations

import pytest

from orchestrator.advancing import advance
from orchestrator.causes import CancelAsked, Cause, Continued, Submitted, Swept
from orchestrator.decisions import Change, RingDead, RingStatus
from schemas import fields
from schemas.blackboard import DeadEntry
from schemas.requests import AnswerRecord, RequestStatus, StatusRecord, StepRecord, StepState
from tests.orchestrator.building import DEADLINE_MS, RETENTION_SECONDS, Request, rung, step

THREE = (step("a"), step("b"), step("c", "b"))


def answer_of(change: Change) -> AnswerRecord:
    answer, status = AnswerRecord.from_json(change.put[fields.ANSWER]), StatusRecord.from_json(change.put[fields.STATUS])
    assert answer.status is status.status
    return answer


@pytest.mark.parametrize("cause", [Submitted("m"), Swept(), Continued("m")])
def test_invariants_8_and_10_an_answer_expects_plan_status_and_every_step(cause: Cause) -> None:
    """Else a replay between its read and its write would end a request whose step runs."""
    request = Request(THREE).planned().completed("b").completed("a").completed("c")
    change = request.change(cause)
    assert change.expect == {name: request.version(name) for name in ("plan", "status", "step/a", "step/b", "step/c")}
    assert change.expire_after_seconds == RETENTION_SECONDS
    assert change.rings == (RingStatus(RequestStatus.COMPLETED),)


def test_invariant_8_the_sections_stand_in_commit_order() -> None:
    request = Request(THREE).planned().completed("b").completed("a").completed("c")
    answer = answer_of(request.change(Continued("m")))
    assert (answer.sections, answer.gaps, answer.status) == (("b", "a", "c"), (), RequestStatus.COMPLETED)
    assert answer.text.startswith("## Title of b\n\nText of b.\n\n## Title of a")


def test_invariant_8_an_answer_names_what_failed_and_what_that_stopped() -> None:
    request = Request(THREE).planned().completed("a").failed("b", "NO_PROGRESS")
    answer = answer_of(request.change(request.result_came("b", StepState.FAILED)))
    assert answer.status is RequestStatus.DEGRADED
    assert [(gap.step, gap.reason, gap.stopped) for gap in answer.gaps] == [("b", "NO_PROGRESS", ("c",))]


def test_without_a_section_the_request_is_failed() -> None:
    request = Request(THREE).planned().failed("a").failed("b")
    assert answer_of(request.change(Swept())).status is RequestStatus.FAILED


def test_the_results_are_read_before_the_answer_is_written() -> None:
    request = Request(THREE).planned().completed("a").completed("b").completed("c")
    names = [*(name for name in request.stored if not name.startswith("result/")), "boundary"]
    decision = advance(request.view(*names), Swept(), retention_seconds=1)
    assert (decision.change, set(decision.read_more)) == (None, {"result/a", "result/b", "result/c"})


def test_a_step_that_runs_keeps_the_request_open() -> None:
    request = Request(THREE).planned().completed("a").failed("b").running("a")
    assert request.after(Swept()).change is None


# The deadline.


def test_a_deadline_fails_what_runs_and_what_is_ready_and_leaves_what_waits() -> None:
    request = Request((*THREE, step("d"))).planned().completed("a").running("b").later(DEADLINE_MS)
    change = request.change(Swept())
    assert change.event == "deadline_passed"
    assert change.expect == {name: request.version(name) for name in ("plan", "status", "step/a", "step/b", "step/c", "step/d")}
    failed = {name: StepRecord.from_json(value) for name, value in change.put.items() if name.startswith("step/")}
    assert set(failed) == {"step/b", "step/d"}
    assert all(record.state is StepState.FAILED and record.failure and record.failure.code == "DEADLINE" for record in failed.values())
    answer = answer_of(change)
    assert (answer.status, answer.sections) == (RequestStatus.DEGRADED, ("a",))
    assert {gap.step: gap.stopped for gap in answer.gaps} == {"b": ("c",), "d": ()}


def test_what_a_deadline_fails_is_indexed_as_dead_letters_before_it_is_written() -> None:
    request = Request(THREE).planned().running("b", epoch=2).later(DEADLINE_MS)
    change = request.change(Swept())
    assert set(change.dead_first) == {DeadEntry("r-1", "a", 0), DeadEntry("r-1", "b", 2)}
    assert {ring.step_id for ring in change.rings if isinstance(ring, RingDead)} == {"a", "b"}


def test_a_deadline_with_nothing_done_ends_failed() -> None:
    assert answer_of(Request(THREE).planned().later(DEADLINE_MS).change(Swept())).status is RequestStatus.FAILED


def test_a_deadline_that_passes_before_the_plan_was_written_ends_the_request_with_an_answer() -> None:
    change = Request(THREE).opened().later(DEADLINE_MS).change(Swept())
    answer = answer_of(change)
    assert (answer.status, [gap.reason for gap in answer.gaps]) == (RequestStatus.FAILED, ["DEADLINE"])
    assert fields.PLAN not in change.put


def test_a_request_that_is_settled_is_answered_even_after_its_deadline() -> None:
    request = Request(THREE).planned().completed("a").completed("b").completed("c").later(DEADLINE_MS)
    assert request.change(Swept()).event == "request_completed"


def test_a_deadline_is_a_length_since_the_opening_and_since_a_replay_after_one() -> None:
    request = Request(THREE).planned().later(DEADLINE_MS - 1)
    assert request.after(Swept()).change is None
    request.status(RequestStatus.RUNNING, replays=1).later(DEADLINE_MS - 1)
    assert request.after(Swept()).change is None
    assert request.later(1).change(Swept()).event == "deadline_passed"


def test_only_the_sweeper_ends_by_deadline() -> None:
    request = Request(THREE).planned().completed("b").later(DEADLINE_MS)
    decision = request.after(request.result_came("b"))
    assert (decision.change, rung(decision)) == (None, ["c"])


# Cancel.


def test_a_cancel_fences_off_what_runs_in_the_same_write_and_is_for_good() -> None:
    request = Request(THREE).planned().completed("a").running("b")
    change = request.change(CancelAsked("enough", "m"))
    assert change.event == "request_cancelled"
    assert change.expect == {name: request.version(name) for name in ("plan", "status", "step/a", "step/b", "step/c")}
    assert [name for name in change.put if name.startswith("step/")] == ["step/b"]
    answer = answer_of(change)
    assert (answer.status, answer.sections) == (RequestStatus.CANCELLED, ("a",))
    assert (change.dead_first, change.rings) == ((), (RingStatus(RequestStatus.CANCELLED),))


def test_a_cancel_before_the_plan_ends_the_request_and_keeps_the_plan_from_being_written() -> None:
    request = Request(THREE).opened()
    change = request.change(CancelAsked("", "m"))
    assert change.expect["plan"] == "0"
    assert answer_of(change).status is RequestStatus.CANCELLED


def test_a_cancel_that_comes_twice_is_done_and_one_after_the_end_is_refused() -> None:
    request = Request(THREE).planned().status(RequestStatus.CANCELLED)
    again = request.after(CancelAsked("", "m"))
    assert (again.change, again.over, again.verdict.value) == (None, True, "fits")
    for status in (RequestStatus.COMPLETED, RequestStatus.DEGRADED, RequestStatus.FAILED):
        assert request.status(status).after(CancelAsked("", "m")).verdict.value == "refused"


def test_a_cancel_that_was_sent_before_a_replay_does_not_end_what_was_reopened() -> None:
    request = Request(THREE).planned().completed("a").failed("b").status(RequestStatus.FAILED)
    request.put({"status": StatusRecord(status=RequestStatus.RUNNING, deadline_ms=DEADLINE_MS, replays=1)})
    late = request.after(CancelAsked("enough", "m", replays=0))
    assert (late.change, late.verdict.value) == (None, "refused") and "replayed since" in late.reason
    assert request.change(CancelAsked("enough", "m", replays=1)).event == "request_cancelled"


def test_a_cancel_is_decided_on_a_full_view() -> None:
    request = Request(THREE).planned().running("b")
    decision = advance(request.view("status", "plan", "request"), CancelAsked("", "m"), retention_seconds=1)
    assert (decision.change, {"step/a", "step/b", "step/c"} <= set(decision.read_more)) == (None, True)
