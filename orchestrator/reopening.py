"""Reopening: a step that runs again, in a new epoch, and a request that goes on because of it. Pure."""

from __future__ import annotations

from orchestrator.views import View
from schemas import fields
from schemas.requests import RequestStatus, Role, StatusRecord, StepRecord, StepState, check_request_transition, check_step_transition


def reopened(record: StepRecord) -> StepRecord:
    """Return the record of a step that is to run again: PENDING, epoch + 1, attempt 0.

    Raises:
        IllegalTransition: it is PENDING already.
    """
    check_step_transition(record.state, StepState.PENDING, Role.ORCHESTRATOR)
    return record.model_copy(
        update={
            "state": StepState.PENDING,
            "epoch": record.epoch + 1,
            "attempt": 0,
            "not_before_ms": 0,
            "failure": None,
            "first_error": None,
            "worker": None,
            "reused": None,
        }
    )


def going_on(view: View) -> StatusRecord:
    """Return the status of a request that goes on, with a new deadline.

    Raises:
        IllegalTransition: it was cancelled.
    """
    status = view.status
    check_request_transition(status.status, RequestStatus.RUNNING, Role.ORCHESTRATOR)
    return StatusRecord(status=RequestStatus.RUNNING, deadline_ms=status.deadline_ms, replays=status.replays + 1)


def expected(view: View, *names: str) -> dict[str, str]:
    """Return what a write expects that was decided on these fields: plan and status besides."""
    return {name: view.version(name) for name in (fields.PLAN, fields.STATUS, *names)}
