"""Commanding: cancel, replay, drop, and the broker's notice. Pure; each becomes one write, or a refusal that is said."""

from __future__ import annotations

from orchestrator.causes import CancelAsked, DropAsked, Noticed, ReplayAsked
from orchestrator.decisions import Change, Decision, RingDead, Verdict, by, refused
from orchestrator.ending import end_now
from orchestrator.reopening import expected, going_on, reopened
from orchestrator.scheduling import full_fields
from orchestrator.views import View, outline_fields
from schemas import fields
from schemas.blackboard import DeadEntry
from schemas.requests import RequestStatus, Role, StepState, check_step_transition
from schemas.results import Failure, FailureCode


def cancel(view: View, cause: CancelAsked, *, retention_seconds: int) -> Decision:
    """End the request CANCELLED, for good, with what is committed. Its steps are no dead letters."""
    status = view.status.status
    if status is RequestStatus.CANCELLED:
        return Decision(reason="already cancelled", over=True)
    if status.over:
        return refused(f"the request is over ({status}); only what is running can be cancelled")
    if cause.replays < view.status.replays:
        # Refused once while it was over, and delivered again after somebody had replayed it: that must not end it now.
        return refused("the request has been replayed since; cancel it again if it is still to end")
    outline = view.outline
    if outline is None and view.plan is not None:
        return Decision(read_more=outline_fields(view))
    if outline is not None and (missing := view.missing(full_fields(outline))):
        return Decision(read_more=missing)
    failure = Failure(code=FailureCode.CANCELLED, description=cause.reason or "cancelled by a person")
    return end_now(view, outline, failure, retention_seconds=retention_seconds)


def replay(view: View, cause: ReplayAsked) -> Decision:
    """Reopen a failed step: `FAILED -> PENDING`, epoch + 1, attempt 0, status RUNNING, a new deadline, no expiry.

    All that the failure had stopped is thereby ready or waiting again; what is finished stays.
    """
    name = fields.step(cause.step_id)
    if missing := view.missing((name,)):
        return Decision(read_more=missing)
    seen = view.step(cause.step_id)
    status = view.status
    if status.status is RequestStatus.CANCELLED:
        return refused("the request was cancelled, for good")
    if seen is None:
        return refused(f"the plan has no step {cause.step_id!r}")
    if seen.record.epoch > cause.epoch:
        return refused(f"epoch {cause.epoch} has been replayed already; the step is {seen.record.state} in epoch {seen.record.epoch}")
    if seen.record.state is not StepState.FAILED or seen.record.epoch != cause.epoch:
        return refused(f"step {cause.step_id!r} is {seen.record.state} in epoch {seen.record.epoch}; only a failed step is replayed")
    again = reopened(seen.record)
    return Decision(
        change=Change(
            event="step_replayed",
            details={"step": cause.step_id, "epoch": str(again.epoch), **by(cause.sender)},
            expect=expected(view, name),
            put={name: again.to_json(), fields.STATUS: going_on(view).to_json()},
            expire_after_seconds=0,
            enter_first=True,
            dead_after=(DeadEntry(view.request_id, cause.step_id, cause.epoch),),
        )
    )


def drop(view: View, cause: DropAsked) -> Decision:
    """Take a dead letter out of the list, with a note of who wanted it and why; the step stays FAILED."""
    name = fields.step(cause.step_id)
    if missing := view.missing((name,)):
        return Decision(read_more=missing)
    seen = view.step(cause.step_id)
    if seen is None or seen.record.state is not StepState.FAILED or seen.record.epoch != cause.epoch:
        return refused(f"step {cause.step_id!r} is no dead letter of epoch {cause.epoch}")
    return Decision(
        change=Change(
            event="dead_letter_dropped",
            details={"step": cause.step_id, "epoch": str(cause.epoch), "reason": cause.reason, **by(cause.sender)},
            expect={name: seen.version},
            dead_after=(DeadEntry(view.request_id, cause.step_id, cause.epoch),),
        )
    )


def notice(view: View, cause: Noticed) -> Decision:
    """The broker gave up a TASK. A hint: of the current epoch, not over, without a live lease, the step is FAILED."""
    name = fields.step(cause.step_id)
    if missing := view.missing((name,)):
        return Decision(read_more=missing)
    seen = view.step(cause.step_id)
    if seen is None or seen.record.epoch < cause.epoch:
        return Decision(verdict=Verdict.AHEAD, reason="the notice is of an epoch that the board does not have")
    if view.status.status.over or seen.record.state.over or seen.record.epoch > cause.epoch:
        return Decision(verdict=Verdict.LATE)
    if seen.held(view.now_ms):
        return Decision(look_at={cause.step_id: seen.lease_until_ms - view.now_ms})
    if seen.record.state is StepState.PENDING and seen.version != cause.version:
        return Decision(look_at={cause.step_id: 0}, reason="the notice is of an earlier attempt")
    check_step_transition(seen.record.state, StepState.FAILED, Role.ORCHESTRATOR)
    failure = Failure(code=FailureCode.WORKER_DIED, description="the broker gave the task up: whoever took it never answered")
    failed = seen.record.model_copy(update={"state": StepState.FAILED, "failure": failure, "not_before_ms": 0})
    return Decision(
        change=Change(
            event="step_failed",
            details={"step": cause.step_id, "code": failure.code},
            expect={name: seen.version, fields.STATUS: view.version(fields.STATUS)},
            put={name: failed.to_json()},
            unheld=(cause.step_id,),
            dead_first=(DeadEntry(view.request_id, cause.step_id, seen.record.epoch),),
            rings=(RingDead(cause.step_id),),
        )
    )
