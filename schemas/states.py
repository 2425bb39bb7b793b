"""The two state machines: of a request and of a step. They stand by themselves, so that the command line knows its words at once.

Ready, waiting and SKIPPED are no states: `orchestrator.scheduling` derives them from plan and steps.
"""

from __future__ import annotations

from enum import StrEnum

from schemas.errors import IllegalTransition


class RequestStatus(StrEnum):
    """ACCEPTED means opened; the last four are terminal."""

    ACCEPTED = "ACCEPTED"
    RUNNING = "RUNNING"
    COMPLETED = "COMPLETED"
    DEGRADED = "DEGRADED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"

    @property
    def over(self) -> bool:
        """Whether nothing more happens unless a person replays."""
        return self not in (RequestStatus.ACCEPTED, RequestStatus.RUNNING)


class StepState(StrEnum):
    """What a step's record may say."""

    PENDING = "PENDING"
    RUNNING = "RUNNING"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"

    @property
    def over(self) -> bool:
        """Whether this epoch of the step has ended."""
        return self in (StepState.COMPLETED, StepState.FAILED)


class Role(StrEnum):
    """Who writes: decides which fields and transitions are allowed."""

    PRODUCER = "producer"
    ORCHESTRATOR = "orchestrator"
    WORKER = "worker"


_STEP_TRANSITIONS: dict[tuple[StepState | None, StepState], frozenset[Role]] = {
    (None, StepState.PENDING): frozenset({Role.ORCHESTRATOR}),
    (StepState.FAILED, StepState.PENDING): frozenset({Role.ORCHESTRATOR}),
    # A person says that what waited for them is not to be done.
    (StepState.FAILED, StepState.FAILED): frozenset({Role.ORCHESTRATOR}),
    # What rests on something that was withdrawn is run again, or given up.
    (StepState.COMPLETED, StepState.PENDING): frozenset({Role.ORCHESTRATOR}),
    (StepState.COMPLETED, StepState.FAILED): frozenset({Role.ORCHESTRATOR}),
    (StepState.PENDING, StepState.COMPLETED): frozenset({Role.ORCHESTRATOR}),  # a fork takes over what its source had
    (StepState.RUNNING, StepState.FAILED): frozenset({Role.ORCHESTRATOR, Role.WORKER}),
    (StepState.PENDING, StepState.FAILED): frozenset({Role.ORCHESTRATOR, Role.WORKER}),
    (StepState.PENDING, StepState.RUNNING): frozenset({Role.WORKER}),
    (StepState.RUNNING, StepState.RUNNING): frozenset({Role.WORKER}),
    (StepState.RUNNING, StepState.PENDING): frozenset({Role.WORKER, Role.ORCHESTRATOR}),
    (StepState.RUNNING, StepState.COMPLETED): frozenset({Role.WORKER}),
}

_REQUEST_TRANSITIONS: dict[tuple[RequestStatus | None, RequestStatus], frozenset[Role]] = {
    (None, RequestStatus.ACCEPTED): frozenset({Role.PRODUCER}),
    **{
        (before, after): frozenset({Role.ORCHESTRATOR})
        for before in (RequestStatus.ACCEPTED, RequestStatus.RUNNING)
        for after in (RequestStatus.RUNNING, RequestStatus.COMPLETED, RequestStatus.DEGRADED, RequestStatus.FAILED, RequestStatus.CANCELLED)
    },
    **{
        (before, RequestStatus.RUNNING): frozenset({Role.ORCHESTRATOR})
        for before in (RequestStatus.COMPLETED, RequestStatus.DEGRADED, RequestStatus.FAILED)
    },
}


def check_step_transition(before: StepState | None, after: StepState, role: Role) -> None:
    """Refuse a change of a step's state that the state machine does not have, or not for this role.

    Raises:
        IllegalTransition: naming both states and the role.
    """
    if role not in _STEP_TRANSITIONS.get((before, after), frozenset()):
        raise IllegalTransition(f"a step does not go from {before or 'absent'} to {after} by {role}")


def check_request_transition(before: RequestStatus | None, after: RequestStatus, role: Role) -> None:
    """Refuse a change of a request's status that the state machine does not have, or not for this role.

    Raises:
        IllegalTransition: naming both statuses and the role.
    """
    if role not in _REQUEST_TRANSITIONS.get((before, after), frozenset()):
        raise IllegalTransition(f"a request does not go from {before or 'absent'} to {after} by {role}")
