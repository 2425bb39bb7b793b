"""The records of a request on the blackboard; the state machines of requests and steps come from `schemas.states`."""

from __future__ import annotations

import uuid
from enum import StrEnum
from typing import Annotated

from pydantic import Field

from schemas.frozen import Frozen, Scalar
from schemas.results import Failure
from schemas.states import RequestStatus as RequestStatus
from schemas.states import Role as Role
from schemas.states import StepState as StepState
from schemas.states import check_request_transition as check_request_transition
from schemas.states import check_step_transition as check_step_transition

_REQUEST_NAMESPACE = uuid.UUID("6f1c9b1e-3a0b-5b57-9f0c-0b6d1f2e7a51")
_SESSION_NAMESPACE = uuid.UUID("b2d1f3a4-7c55-5e0e-8a41-55f1a9d0c6e3")

RequestId = Annotated[str, Field(min_length=1, max_length=200, pattern=r"^[^{}#\x00]+$")]
"""What keys and index members can carry."""


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
    definitions: str = ""
    """Fingerprint of the steps' definitions: who knows them from another request need not read them. Empty: not given."""


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


def request_id(tenant: str, idempotency_key: str) -> str:
    """Return the id that a request of this tenant with this key has, always (uuid5), so that no look-up is needed."""
    return str(uuid.uuid5(_REQUEST_NAMESPACE, f"{tenant}\x00{idempotency_key}"))


def session_id(tenant: str, name: str) -> str:
    """Return the id under which the record of a tenant's session stands, always (uuid5)."""
    return str(uuid.uuid5(_SESSION_NAMESPACE, f"{tenant}\x00{name}"))
