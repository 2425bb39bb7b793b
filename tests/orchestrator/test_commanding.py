"""Replay, drop and the broker's notice. (A cancel is an end: `test_ending`.)"""

from __future__ import annotations

import pytest

from orchestrator.causes import DropAsked, Noticed, ReplayAsked, Swept
from orchestrator.decisions import RingDead, Verdict
from schemas import fields
from schemas.blackboard import DeadEntry
from schemas.requests import RequestStatus, StatusRecord, StepRecord, StepState
from tests.orchestrator.building import Request, rung, step

STEPS = (step("a"), step("b", "a"), step("c"))


def ended() -> Request:
    return Request(STEPS).planned().completed("c").failed("a", attempt=3, first_error="E").status(RequestStatus.DEGRADED)


def test_invariant_13_a_replay_is_one_write_that_reopens_the_step_and_the_request_and_nothing_else() -> None:
    request = ended()
    change = request.change(ReplayAsked("a", 0, "m"))
    assert change.expect == {name: request.version(name) for name in ("plan", "status", "step/a")}
    assert set(change.put) == {"step/a", "status"}
    record = StepRecord.from_json(change.put["step/a"])
    assert record == StepRecord(state=StepState.PENDING, agent="ann", epoch=1, attempt=0)
    status = StatusRecord.from_json(change.put["status"])
    assert (status.status, status.replays) == (RequestStatus.RUNNING, 1)
    assert change.expire_after_seconds == 0
    assert change.enter_first
    assert change.dead_after == (DeadEntry("r-1", "a", 0),)


def test_invariant_13_what_a_replay_makes_ready_is_the_step_and_then_what_it_had_stopped() -> None:
    request = ended().is_at("a", StepState.PENDING, epoch=1).status(RequestStatus.RUNNING, replays=1)
    assert rung(request.after(Swept())) == ["a"]
    assert rung(request.completed("a", epoch=1).after(Swept())) == ["b"]


def test_two_failed_branches_above_one_step_are_both_to_be_replayed_before_it_runs() -> None:
    diamond = (step("a"), step("b"), step("d", "a", "b"))
    request = Request(diamond).planned().failed("a").failed("b").completed("a", epoch=1)
    assert rung(request.after(Swept())) == []
    assert rung(request.completed("b", epoch=1).after(Swept())) == ["d"]


def test_a_replay_in_a_request_that_runs_on_is_done_too() -> None:
    request = Request(STEPS).planned().failed("a").running("c")
    assert StepRecord.from_json(request.change(ReplayAsked("a", 0, "m")).put["step/a"]).epoch == 1


@pytest.mark.parametrize("epoch", [1, 7])
def test_a_replay_of_an_epoch_that_has_not_failed_is_refused(epoch: int) -> None:
    assert ended().after(ReplayAsked("a", epoch, "m")).verdict is Verdict.REFUSED


def test_a_second_replay_of_the_same_epoch_is_refused_and_says_so() -> None:
    request = ended().is_at("a", StepState.RUNNING, epoch=1)
    decision = request.after(ReplayAsked("a", 0, "m"))
    assert (decision.verdict, decision.change) == (Verdict.REFUSED, None)
    assert "replayed already" in decision.reason


@pytest.mark.parametrize("state", [StepState.PENDING, StepState.RUNNING, StepState.COMPLETED])
def test_only_a_failed_step_is_replayed(state: StepState) -> None:
    decision = Request(STEPS).planned().is_at("a", state).after(ReplayAsked("a", 0, "m"))
    assert (decision.verdict, decision.change) == (Verdict.REFUSED, None)


def test_a_cancelled_request_is_not_replayed() -> None:
    request = Request(STEPS).planned().failed("a", "CANCELLED").status(RequestStatus.CANCELLED)
    assert request.after(ReplayAsked("a", 0, "m")).verdict is Verdict.REFUSED


def test_a_replay_of_a_step_that_the_plan_does_not_have_is_refused() -> None:
    assert ended().after(ReplayAsked("z", 0, "m")).verdict is Verdict.REFUSED


# Drop.


def test_a_drop_is_a_note_that_says_why_and_leaves_the_step_failed() -> None:
    request = ended()
    change = request.change(DropAsked("a", 0, "known", "m"))
    assert (change.put, change.expect) == ({}, {"step/a": request.version("step/a")})
    assert change.details == {"step": "a", "epoch": "0", "reason": "known"}
    assert change.dead_after == (DeadEntry("r-1", "a", 0),)


def test_what_is_no_dead_letter_is_not_dropped() -> None:
    for cause in (DropAsked("c", 0, "", "m"), DropAsked("a", 1, "", "m"), DropAsked("b", 0, "", "m")):
        assert ended().after(cause).verdict is Verdict.REFUSED


# The broker's notice.


def notice(request: Request, epoch: int = 0, version: str = "") -> Noticed:
    return Noticed("a", epoch, version or request.version(fields.step("a")), "m")


def test_a_task_that_the_broker_gave_up_fails_its_step_if_nobody_holds_it() -> None:
    request = Request(STEPS).planned().running("a", lease_ms=1_000).later(1_000)
    change = request.change(notice(request))
    record = StepRecord.from_json(change.put["step/a"])
    assert record.state is StepState.FAILED and record.failure is not None and record.failure.code == "WORKER_DIED"
    assert change.expect == {"step/a": request.version("step/a"), "status": request.version("status")}
    assert change.unheld == ("a",)
    assert change.dead_first == (DeadEntry("r-1", "a", 0),)
    assert change.rings == (RingDead("a"),)


def test_a_notice_of_a_healthy_step_only_sets_a_look_at_the_end_of_its_lease() -> None:
    """Three lost connections while its agent goes on are no failure."""
    request = Request(STEPS).planned().running("a", lease_ms=4_000)
    decision = request.after(notice(request))
    assert (decision.change, decision.look_at) == (None, {"a": 4_000})


def test_a_notice_of_a_task_that_was_never_claimed_fails_the_step() -> None:
    request = Request(STEPS).planned()
    assert request.change(notice(request)).event == "step_failed"


def test_a_notice_of_an_earlier_attempt_only_sets_a_look() -> None:
    request = Request(STEPS).planned()
    old = notice(request)
    decision = request.is_at("a", StepState.PENDING, attempt=1).after(old)
    assert (decision.change, decision.look_at) == (None, {"a": 0})


def test_a_notice_of_an_older_epoch_or_of_what_has_ended_is_late() -> None:
    request = Request(STEPS).planned().is_at("a", StepState.PENDING, epoch=1)
    assert request.after(notice(request)).verdict is Verdict.LATE
    assert request.completed("a").after(notice(request)).verdict is Verdict.LATE
    request = Request(STEPS).planned().status(RequestStatus.CANCELLED)
    assert request.after(notice(request)).verdict is Verdict.LATE


def test_a_notice_of_an_epoch_that_the_board_does_not_have_is_ahead() -> None:
    request = Request(STEPS).planned()
    assert request.after(notice(request, epoch=3)).verdict is Verdict.AHEAD


def test_after_a_notice_the_request_goes_on_to_its_end() -> None:
    request = Request(STEPS).planned().completed("c").failed("a", "WORKER_DIED")
    assert request.change(Swept()).event == "request_degraded"
