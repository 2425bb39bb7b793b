"""The records of a request on the blackboard, and the two state machines: of a request and of a step.

Ready, waiting and SKIPPED are no states: `orchestrator.scheduling` derives them from plan and steps.
"""

from __future__ import annotations

import uuid
from enum import StrEnum
from typing import Annotated

from pydantic import Field

from schemas.errors import IllegalTransition
from schemas.frozen import Frozen, Scalar
from schemas.results import Failure

_REQUEST_NAMESPACE = uuid.UUID("6f1c9b1e-3a0b-5b57-9f0c-0b6d1f2e7a51")
_SESSION_NAMESPACE = uuid.UUID("b2d1f3a4-7c55-5e0e-8a41-55f1a9d0c6e3")

RequestId = Annotated[str, Field(min_length=1, max_length=200, pattern=r"^[^{}#\x00]+$")]
"""What keys and index members can carry."""


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


class ForkedFrom(Frozen):
    """What a fork takes up: a request as it was after one event, from one step on."""

    request: RequestId
    position: int
    """The source was read as it was after this event; what came later is not reused."""
    step: str
    """It and everything below it run anew."""
    reused: tuple[str, ...] = ()
    """The steps whose results are reused, in the order of their commits there."""
    changed: dict[str, str] = {}
    """Constraints that are others in the fork -> how they read in the source: the reused steps saw that. Empty: there was none."""


class SessionTurn(Frozen):
    """A request's place in its session."""

    name: str
    turn: int
    """Counted from 1."""
    previous: str | None = None
    """The request before it, where the session has one."""


class SessionRecord(Frozen):
    """Field `session`, under an id of its own (`session_id`): who may speak next is decided by its version."""

    name: str
    turn: int
    last: str
    """The session's newest request; it may be announced here a moment before it is opened."""
    previous: str | None = None
    """The one before that."""


class RequestRecord(Frozen):
    """What the user submitted. Field `request`, written once by the producer."""

    id: str
    tenant: str
    team: str
    text: str
    constraints: tuple[str, ...] = ()
    """Names in declared order; their values stand in `constraint/<name>`."""
    idempotency_key: str
    content_sha256: str
    """Of team, text and given constraints: the same key with other content is refused."""
    trace: str | None = None
    forked_from: ForkedFrom | None = None
    session: SessionTurn | None = None


class Origin(StrEnum):
    """Where a constraint's value comes from. Given wins over extracted."""

    GIVEN = "given"
    EXTRACTED = "extracted"


class ConstraintRecord(Frozen):
    """A shared constraint of the request. Field `constraint/<name>`, written once by the producer."""

    name: str
    label: str
    value: Scalar
    unit: str = ""
    origin: Origin
    text: str
    """How the value reads in a brief, unit and wording included."""


class StatusRecord(Frozen):
    """Field `status`. The deadline is a length: since the opening, or since the last replay where there was one."""

    status: RequestStatus
    deadline_ms: int
    replays: int = 0
    failure: Failure | None = None


class PlanRecord(Frozen):
    """Field `plan`: the ids of all steps in plan order, and whose further steps were taken in (`step`, `epoch`)."""

    steps: tuple[str, ...]
    taken_in: tuple[tuple[str, int], ...] = ()


class Reused(Frozen):
    """Where a reused result was made: the request, and the position of its commit there."""

    request: str
    position: int

    def __str__(self) -> str:
        return f"{self.request}@{self.position}"


class StepRecord(Frozen):
    """Field `step/<id>`. Its version is the fencing token; `not_before_ms` is a length since this record's own write."""

    state: StepState
    agent: str
    epoch: int = 0
    """How many times the step has been reopened."""
    attempt: int = 0
    """How many times this epoch's task has been tried."""
    max_attempts: int = 3
    not_before_ms: int = 0
    failure: Failure | None = None
    """Why it is FAILED, or why the last attempt is to be repeated."""
    first_error: str | None = None
    worker: str | None = None
    """Who holds or held it, for people; a hold is the claim's version, never a name."""
    reused: Reused | None = None
    """Its result was made in another request; nobody ran it here."""


class Gap(Frozen):
    """What the answer does not have: a failed step, and the steps that stopped because of it.

    `step` is empty where the request as a whole could not be carried out.
    """

    step: str
    reason: str
    """The failure's code."""
    description: str = ""
    stopped: tuple[str, ...] = ()


class Correction(Frozen):
    """What an answer says otherwise than the one before it: a value that was withdrawn, and what takes its place."""

    step: str
    key: str
    before: str
    after: str = ""
    """Empty where nothing takes its place."""
    reason: str = ""


class AnswerRecord(Frozen):
    """Field `answer`: the text for the user, the steps whose sections it holds in commit order, and every gap."""

    status: RequestStatus
    text: str
    sections: tuple[str, ...] = ()
    gaps: tuple[Gap, ...] = ()
    corrections: tuple[Correction, ...] = ()


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


def request_id(tenant: str, idempotency_key: str) -> str:
    """Return the id that a request of this tenant with this key has, always (uuid5), so that no look-up is needed."""
    return str(uuid.uuid5(_REQUEST_NAMESPACE, f"{tenant}\x00{idempotency_key}"))


def session_id(tenant: str, name: str) -> str:
    """Return the id under which the record of a tenant's session stands, always (uuid5)."""
    return str(uuid.uuid5(_SESSION_NAMESPACE, f"{tenant}\x00{name}"))
