"""Further steps that an agent planned: taken in once, never wider than their parent, and the end of the request where refused."""

from __future__ import annotations

import pytest

from orchestrator.causes import Continued, Swept
from schemas import fields
from schemas.blackboard import ABSENT
from schemas.plans import Step
from schemas.requests import AnswerRecord, PlanRecord, RequestStatus, StatusRecord, StepRecord, StepState
from tests.orchestrator.building import Request, rung, step

PLANNER = step("p", may_plan=True, tools=("look",), budget={"model_calls": 3})


def further(id: str, *depends_on: str, **rest: object) -> Step:
    return step(id, *depends_on, **{"tools": ("look",), "budget": {"model_calls": 3}, **rest})


def test_further_steps_are_taken_in_before_the_request_can_end() -> None:
    """Else the answer and the growth race: X is COMPLETED with further steps, and all else is settled."""
    request = Request((PLANNER, step("a"))).planned().completed("a").completed("p", steps=[further("x", "p"), further("y", "x")])
    change = request.change(request.result_came("p"))
    assert change.event == "further_steps_taken_in"
    assert change.expect == {
        **{name: request.version(name) for name in ("plan", "status", "step/p")},
        "step/x": ABSENT,
        "step/y": ABSENT,
    }
    assert PlanRecord.from_json(change.put[fields.PLAN]) == PlanRecord(steps=("p", "a", "x", "y"), taken_in=(("p", 0),))
    assert StepRecord.from_json(change.put[fields.step("y")]).state is StepState.PENDING


def test_a_result_is_taken_in_once_for_each_epoch() -> None:
    request = Request((PLANNER, step("a"))).planned().completed("p", steps=[further("x", "p")])
    request.put({fields.PLAN: PlanRecord(steps=("p", "a"), taken_in=(("p", 0),))})
    decision = request.after(Continued("m"))
    assert (decision.change, rung(decision)) == (None, ["a"])


def test_a_planner_without_further_steps_is_noted_as_taken_in() -> None:
    request = Request((PLANNER,)).planned().completed("p")
    assert PlanRecord.from_json(request.change(Swept()).put[fields.PLAN]).taken_in == (("p", 0),)


def test_further_steps_of_a_step_that_may_not_plan_change_nothing() -> None:
    request = Request((step("a"),)).planned().completed("a", steps=[further("x", "a")])
    assert request.change(Swept()).event == "request_completed"


@pytest.mark.parametrize(
    ("wider", "said"),
    [
        (further("x", "p", tools=None), "tool"),
        (further("x", "p", tools=("look", "ask")), "tool"),
        (further("x", "p", budget={}), "model_calls"),
        (further("x", "p", budget={"model_calls": 4}), "model_calls"),
        (further("x", "a"), "need"),
        (further("x", "p", agent="nobody"), "agent"),
        (further("a", "p"), "twice"),
        (further("x", "x"), "circle"),
        (further("x", "nowhere"), "nowhere"),
    ],
)
def test_further_steps_beyond_their_parent_end_the_request_failed(wider: Step, said: str) -> None:
    request = Request((PLANNER, step("a"), step("b"))).planned().completed("a").completed("p", steps=[wider]).running("b")
    change = request.change(request.result_came("p"))
    assert change.event == "further_steps_refused"
    status = StatusRecord.from_json(change.put[fields.STATUS])
    assert status.status is RequestStatus.FAILED
    assert status.failure is not None and said in status.failure.description
    answer = AnswerRecord.from_json(change.put[fields.ANSWER])
    assert (answer.sections, [gap.reason for gap in answer.gaps]) == ((), ["REFUSED_PLAN"])


def test_refused_further_steps_fence_off_what_runs() -> None:
    request = Request((PLANNER, step("b"))).planned().completed("p", steps=[further("x", "p", agent="nobody")]).running("b")
    change = request.change(Swept())
    assert StepRecord.from_json(change.put["step/b"]).state is StepState.FAILED
    assert change.expect == {name: request.version(name) for name in ("plan", "status", "step/p", "step/b")}


def test_a_further_step_may_need_what_its_parent_needed() -> None:
    planner = step("p", "a", may_plan=True, needs=("a.out",))
    fits = step("x", "p", "a", needs=("a.out", "p.out"))
    request = Request((step("a"), planner)).planned().completed("a").completed("p", steps=[fits])
    assert request.change(Swept()).event == "further_steps_taken_in"
    widened = step("x", "p", "a", needs=("a.more",))
    request = Request((step("a"), planner)).planned().completed("a").completed("p", steps=[widened])
    assert request.change(Swept()).event == "further_steps_refused"


def test_a_further_step_may_do_no_more_than_its_parent() -> None:
    request = Request((PLANNER,)).planned().completed("p", steps=[further("x", "p", may="commit")])
    change = request.change(Swept())
    assert change.event == "further_steps_refused"
    status = StatusRecord.from_json(change.put[fields.STATUS])
    assert status.failure is not None and "may commit, which is more than 'p' may (propose)" in status.failure.description


ON_CALL = step("x", may="commit", needs=())


def test_a_step_on_call_is_woken_with_the_rights_that_the_team_gave_it() -> None:
    request = Request((PLANNER,), on_call=(ON_CALL,)).planned().completed("p", steps=[ON_CALL])
    change = request.change(Swept())
    assert change.event == "further_steps_taken_in"
    assert Step.from_json(change.put[fields.definition("x")]) == ON_CALL


@pytest.mark.parametrize("wider", [ON_CALL.model_copy(update={"task": "Something else."}), further("y", "p")])
def test_where_steps_are_on_call_a_planner_invents_none(wider: Step) -> None:
    request = Request((PLANNER,), on_call=(ON_CALL,)).planned().completed("p", steps=[wider])
    change = request.change(Swept())
    status = StatusRecord.from_json(change.put[fields.STATUS])
    assert status.failure is not None and "no step that the team keeps on call; there are: x" in status.failure.description


def test_a_step_on_call_that_is_awake_is_not_woken_again() -> None:
    request = Request((PLANNER,), on_call=(ON_CALL,)).planned().completed("p", steps=[ON_CALL])
    waiting = StepRecord(state=StepState.PENDING, agent="ann")
    request.put({fields.PLAN: PlanRecord(steps=("p", "x")), fields.definition("x"): ON_CALL, fields.step("x"): waiting})
    change = request.change(Swept())
    assert PlanRecord.from_json(change.put[fields.PLAN]) == PlanRecord(steps=("p", "x"), taken_in=(("p", 0),))
