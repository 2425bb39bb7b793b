"""A RESULT beside the board: fitting, late, ahead, or against the rules."""

from __future__ import annotations

from typing import Any

import pytest

from orchestrator.decisions import Verdict
from schemas.requests import RequestStatus, StepState
from tests.orchestrator.building import Request, rung, step

STEPS = (step("a"), step("b", "a"))


def test_invariant_9_a_result_that_was_on_its_way_when_its_step_was_replayed_is_late_and_no_violation() -> None:
    request = Request(STEPS).planned().failed("a")
    bell = request.result_came("a", StepState.FAILED)
    decision = request.is_at("a", StepState.PENDING, epoch=1).after(bell)
    assert (decision.verdict, decision.change, decision.rings) == (Verdict.LATE, None, ())


def test_a_result_of_a_request_that_is_over_is_late() -> None:
    request = Request(STEPS).planned().completed("a").status(RequestStatus.CANCELLED)
    assert request.after(request.result_came("a")).verdict is Verdict.LATE


@pytest.mark.parametrize("state", [StepState.PENDING, StepState.RUNNING])
def test_a_result_of_an_end_that_the_board_does_not_have_is_ahead_since_the_board_was_set_back(state: StepState) -> None:
    request = Request(STEPS).planned().is_at("a", state)
    decision = request.after(request.result_came("a", version="9.lost99"))
    assert (decision.verdict, decision.change) == (Verdict.AHEAD, None)


def test_a_result_of_a_later_epoch_or_of_a_step_that_the_board_does_not_have_is_ahead() -> None:
    request = Request(STEPS).planned().completed("a")
    assert request.after(request.result_came("a", epoch=1)).verdict is Verdict.AHEAD
    assert request.after(request.result_came("z")).verdict is Verdict.AHEAD


def test_a_result_that_contradicts_the_board_at_its_own_version_is_a_violation() -> None:
    request = Request(STEPS).planned().completed("a")
    assert request.after(request.result_came("a", StepState.FAILED)).verdict is Verdict.VIOLATION


@pytest.mark.parametrize("wrong", [{"sender": "bob"}, {"recipient": "ann"}])
def test_a_result_with_a_wrong_sender_or_recipient_is_a_violation(wrong: dict[str, Any]) -> None:
    request = Request(STEPS).planned().completed("a")
    assert request.after(request.result_came("a", **wrong)).verdict is Verdict.VIOLATION


def test_a_result_that_comes_twice_fits_twice() -> None:
    request = Request(STEPS).planned().completed("a")
    for _ in range(2):
        decision = request.after(request.result_came("a"))
        assert (decision.verdict, rung(decision)) == (Verdict.FITS, ["b"])
