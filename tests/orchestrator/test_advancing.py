"""What follows from a bell: plan, rings, partial views, looks. Commands, ends and growth have files of their own."""

from __future__ import annotations

from orchestrator.advancing import advance
from orchestrator.bells import bell_of
from orchestrator.causes import Continued, Submitted, Swept
from orchestrator.decisions import RingTask, Verdict
from orchestrator.scheduling import partial_fields
from orchestrator.views import view_of
from schemas import fields
from schemas.blackboard import ABSENT, Snapshot
from schemas.codec import decode
from schemas.messages import MessageType
from schemas.requests import RequestStatus, StatusRecord, StepRecord, StepState
from tests.orchestrator.building import RETENTION_SECONDS, Request, rung, step

DIAMOND = (step("a"), step("b", "a"), step("c", "a"), step("d", "b", "c"))


def test_a_request_that_the_board_does_not_have_is_unknown_and_nothing_is_opened() -> None:
    view = view_of(Snapshot("r-9", {}, 1, 0, {}, frozenset((fields.REQUEST, fields.STATUS, fields.PLAN))))
    for cause in (Submitted("m"), Swept(), Request(DIAMOND).planned().result_came("a")):
        decision = advance(view, cause, retention_seconds=1)
        assert (decision.verdict, decision.change, decision.rings) == (Verdict.UNKNOWN, None, ())


def test_a_submitted_request_gets_its_plan_in_one_write_that_expects_it_absent() -> None:
    request = Request(DIAMOND).opened()
    change = request.change(Submitted("m"))
    assert change.event == "plan_written"
    assert change.expect == {
        fields.PLAN: ABSENT,
        fields.STATUS: request.version(fields.STATUS),
        **{fields.step(each.id): ABSENT for each in DIAMOND},
    }
    assert StatusRecord.from_json(change.put[fields.STATUS]).status is RequestStatus.RUNNING
    assert decode(change.put[fields.PLAN])["steps"] == ["a", "b", "c", "d"]
    record = StepRecord.from_json(change.put[fields.step("d")])
    assert (record.state, record.epoch, record.attempt) == (StepState.PENDING, 0, 0)


def test_a_plan_that_cannot_be_carried_out_ends_the_request_failed_with_the_reason_as_its_answer() -> None:
    request = Request((step("a"), step("b", "nowhere"))).opened()
    change = request.change(Submitted("m"))
    assert change.expect == {fields.PLAN: ABSENT, fields.STATUS: request.version(fields.STATUS)}
    status = StatusRecord.from_json(change.put[fields.STATUS])
    assert status.status is RequestStatus.FAILED
    assert status.failure is not None and "there is no step 'nowhere'" in status.failure.description
    assert "REFUSED_PLAN" in decode(change.put[fields.ANSWER])["text"]
    assert change.expire_after_seconds == RETENTION_SECONDS


def test_submitting_twice_rings_again_and_writes_nothing() -> None:
    request = Request(DIAMOND).planned()
    for _ in range(2):
        decision = request.after(Submitted("m"))
        assert (decision.change, rung(decision)) == (None, ["a"])


def test_every_step_without_inputs_is_rung_at_once() -> None:
    request = Request((step("a"), step("b"), step("c", "b"))).planned()
    assert rung(request.after(Continued("m"))) == ["a", "b"]


def test_a_task_carries_the_versions_of_the_step_the_status_and_every_input() -> None:
    request = Request(DIAMOND).planned().completed("a").completed("b").failed("c", epoch=0)
    request.steps = (*DIAMOND[:2], step("c", "a", critical=False), DIAMOND[3])
    request.put({fields.definition("c"): request.steps[2]})
    address, bell = bell_of(RingTask("d"), request.view())
    assert (bell.type, address.key, bell.recipient) == (MessageType.TASK, "ann", "ann")
    assert bell.seen == {name: request.version(name) for name in ("step/d", "status", "step/b", "step/c")}
    assert bell.task is not None
    assert bell.task.record == StepRecord(state=StepState.PENDING, agent="ann")
    assert set(bell.task.fields) == {
        *("request", "boundary", "plan", "plan/d"),
        *("plan/b", "step/b", "result/b"),
        *("plan/c", "step/c", "result/c"),
    }


def test_a_step_that_needs_an_ancestor_waits_for_it_and_sees_its_version() -> None:
    far = (step("a"), step("b", "a", needs=()), step("c", "b", needs=("a.out",)))
    request = Request(far).planned().completed("a").completed("b")
    _, bell = bell_of(RingTask("c"), request.view())
    assert set(bell.seen) == {"step/c", "status", "step/b", "step/a"}


def test_a_result_in_a_partial_view_rings_what_waited_for_it_and_nothing_else() -> None:
    steps = (step("a"), step("b", "a"), step("x"), step("y", "x"))
    request = Request(steps).planned().completed("a")
    outline = request.view().outline
    assert outline is not None
    names = partial_fields("a", outline)
    assert set(names) == {"status", "plan", "step/a", "step/b", "boundary"}
    view = request.view(*names, outline=outline)
    decision = advance(view, request.result_came("a"), retention_seconds=1)
    assert (rung(decision), decision.read_more, decision.change) == (["b"], (), None)


def test_a_join_whose_other_branch_is_open_is_not_rung_and_ends_nothing() -> None:
    request = Request(DIAMOND).planned().completed("a").completed("b")
    for other in (StepState.PENDING, StepState.RUNNING):
        request.is_at("c", other)
        decision = request.after(request.result_came("b"))
        assert (rung(decision), decision.change) == ([], None)


def test_a_step_that_is_not_in_the_view_is_unknown_and_never_settled() -> None:
    request = Request(DIAMOND).planned().completed("a").completed("b")
    outline = request.view().outline
    assert outline is not None
    names = ("status", "plan", "step/b", "step/d")
    view = request.view(*names, outline=outline)
    decision = advance(view, request.result_came("b"), retention_seconds=1)
    assert rung(decision) == []
    assert {"step/a", "step/c"} <= set(decision.read_more)


def test_a_plan_that_changed_since_the_outline_was_kept_is_read_anew() -> None:
    request = Request(DIAMOND).planned().completed("a")
    old = request.view().outline
    request.steps = (*DIAMOND, step("e", "a"))
    request.planned()
    view = request.completed("a").view("status", "plan", "step/a", outline=old)
    assert view.outline is None
    decision = advance(view, request.result_came("a"), retention_seconds=1)
    assert "plan/e" in decision.read_more


def test_invariant_7_nothing_below_a_failed_critical_step_is_rung_and_other_branches_go_on() -> None:
    steps = (step("a"), step("b"), step("c", "a"), step("d", "c"), step("e", "b"))
    request = Request(steps).planned().failed("a").completed("b")
    assert rung(request.after(request.result_came("a", StepState.FAILED))) == []
    assert rung(request.after(Submitted("m"))) == ["e"]


def test_a_failed_step_that_is_not_critical_lets_its_dependents_run() -> None:
    request = Request((step("a", critical=False), step("b", "a"))).planned().failed("a")
    assert rung(request.after(request.result_came("a", StepState.FAILED))) == ["b"]


def test_a_step_that_is_to_be_retried_is_not_rung_before_its_time_and_then_is() -> None:
    request = Request((step("a"),)).planned().is_at("a", StepState.PENDING, attempt=1, not_before_ms=2_000)
    early = request.after(Swept())
    assert (rung(early), early.look_at, early.next_look_ms) == ([], {"a": 2_000}, 2_000)
    assert rung(request.later(2_000).after(Swept())) == ["a"]


def test_a_sweep_rings_a_step_whose_holder_is_gone_and_leaves_one_that_is_held() -> None:
    request = Request((step("a"), step("b"))).planned().running("a", lease_ms=1_000).running("b", lease_ms=9_000).later(1_000)
    decision = request.after(Swept())
    assert rung(decision) == ["a"]
    assert decision.look_at == {"a": 30_000, "b": 8_000}


def test_no_bell_but_a_sweep_rings_a_running_step() -> None:
    request = Request((step("a"), step("b", "a"))).planned().running("a", lease_ms=1).later(5_000)
    assert rung(request.after(Submitted("m"))) == []


def test_invariant_3_a_step_whose_holder_is_gone_waits_for_an_input_that_was_reopened() -> None:
    steps = (step("a", critical=False), step("b", "a"))
    request = Request(steps).planned().failed("a").running("b", lease_ms=1_000)
    request.is_at("a", StepState.PENDING, epoch=1).later(5_000)
    assert rung(request.after(Swept())) == ["a"]
    assert rung(request.failed("a", epoch=1).after(Swept())) == ["b"]


def test_a_waiting_step_is_looked_at_after_as_long_as_it_has_waited_between_30_s_and_10_minutes() -> None:
    for waited, look in ((0, 30_000), (29_999, 30_000), (45_000, 45_000), (600_000, 600_000), (2_000_000, 600_000)):
        assert Request((step("a"),)).planned().later(waited).after(Swept()).next_look_ms == look


def test_no_look_is_set_beyond_the_deadline() -> None:
    request = Request((step("a"),)).planned(deadline_ms=50_000).later(40_000)
    assert request.after(Swept()).next_look_ms == 10_000


def test_invariant_9_a_request_that_is_over_takes_in_nothing_whatever_rings() -> None:
    for status in (RequestStatus.COMPLETED, RequestStatus.DEGRADED, RequestStatus.FAILED, RequestStatus.CANCELLED):
        request = Request((step("a"), step("b"))).planned().completed("a").status(status)
        for cause in (Submitted("m"), Swept(), Continued("m"), request.result_came("a")):
            decision = request.after(cause)
            assert (decision.change, decision.rings, decision.over) == (None, (), True)


def test_what_is_missing_is_asked_for_and_not_guessed() -> None:
    request = Request(DIAMOND).planned()
    assert advance(request.view("step/a"), Submitted("m"), retention_seconds=1).read_more == ("status", "plan")
    decision = advance(request.view("request", "status", "plan"), Submitted("m"), retention_seconds=1)
    assert {"plan/a", "plan/d", "step/a", "step/d"} <= set(decision.read_more)
