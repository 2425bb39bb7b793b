"""Records: which of them stands in which field of a request, and which fields cannot be read. Pure.

Called by `ops.reporting` and `ops.client`, to name the field where something is wrong.
"""

from __future__ import annotations

from collections.abc import Mapping

from schemas import fields
from schemas.blackboard import Stored
from schemas.boundary import AbsorbedRecord, BoundaryRecord
from schemas.errors import Unreadable
from schemas.frozen import Frozen
from schemas.plans import Step
from schemas.requests import AnswerRecord, ConstraintRecord, PlanRecord, RequestRecord, SessionRecord, StatusRecord, StepRecord
from schemas.results import AgentResult
from schemas.shared import FieldRecord
from schemas.teams import TeamCard

RECORDS: Mapping[str, type[Frozen]] = {
    fields.REQUEST: RequestRecord,
    fields.CARD: TeamCard,
    fields.STATUS: StatusRecord,
    fields.PLAN: PlanRecord,
    fields.ANSWER: AnswerRecord,
    fields.SESSION: SessionRecord,
    fields.CONSTRAINT_PREFIX: ConstraintRecord,
    fields.PLAN_PREFIX: Step,
    fields.STEP_PREFIX: StepRecord,
    fields.RESULT_PREFIX: AgentResult,
    fields.SHARED_PREFIX: FieldRecord,
    fields.BOUNDARY: BoundaryRecord,
    fields.ABSORBED: AbsorbedRecord,
}
"""Field, or namespace with its slash -> what stands there."""


def record_of(name: str) -> type[Frozen] | None:
    """Return the record that stands in a field, or None for one that is not ours."""
    namespace, slash, _ = name.partition("/")
    return RECORDS.get(namespace + slash)


def unreadable(state: Mapping[str, Stored]) -> dict[str, str]:
    """Return the fields that cannot be read, each with the reason."""
    found: dict[str, str] = {}
    for name, stored in state.items():
        record = record_of(name)
        if record is not None:
            try:
                record.from_json(stored.value)
            except Unreadable as error:
                found[name] = str(error)
    return found


def damaged(stored: Mapping[str, Stored], folded: Mapping[str, Stored]) -> dict[str, str]:
    """Return the fields that are not what their own events say, each with the reason: nobody of ours wrote them so."""
    found = unreadable(stored)
    for name, expected in folded.items():
        if name not in stored:
            found.setdefault(name, "it is gone")
        elif stored[name] != expected:
            found.setdefault(name, "it is not what its last event says")
    return found
