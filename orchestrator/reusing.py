"""Reusing: what a fork takes over from the request that it takes up, before any of its own steps runs. Pure.

A fork stays ACCEPTED until then, so nothing of it is rung. Each reused step is one write, in the order of the commits in the
source, so that the fork's answer has its sections in that order. What the source no longer has as it was when it was forked
(it expired, the step was reopened, or the board was set back) runs anew, with what is below it.
"""

from __future__ import annotations

from orchestrator.decisions import Change, Decision
from orchestrator.scheduling import full_fields
from orchestrator.views import Outline, StepView, View
from schemas import fields
from schemas.blackboard import ABSENT, Snapshot
from schemas.errors import Unreadable
from schemas.plans import Step
from schemas.requests import ForkedFrom, RequestStatus, Reused, Role, StepRecord, StepState, check_request_transition, check_step_transition
from schemas.results import AgentResult


def take_over(view: View, outline: Outline) -> Decision | None:
    """Return what a fork has still to take over, or that it begins; None where it has begun, and for a request that is no fork."""
    if view.status.status is not RequestStatus.ACCEPTED:
        return None
    if missing := view.missing(full_fields(outline)):
        return Decision(read_more=missing)
    origin = view.request.forked_from if view.request is not None else None
    for step in origin.reused if origin is not None else ():
        seen = view.step(step)
        if origin is None or seen is None or seen.record.state is not StepState.PENDING or not _rests_on_reused(step, view, outline):
            continue
        names = (fields.step(step), fields.result(step), fields.definition(step))
        if view.source is None or not view.source.asked.issuperset(names):
            return Decision(read_source=names)
        if change := _taken_over(step, seen, view, outline, origin, view.source):
            return Decision(change=change)
    return Decision(change=_begin(view, outline, origin))


def _rests_on_reused(step_id: str, view: View, outline: Outline) -> bool:
    """Whether everything that the step depends on was taken over: else its result was made from something else."""
    return all((seen := view.step(each)) is not None and seen.record.reused for each in outline.definitions[step_id].depends_on)


def _taken_over(step_id: str, seen: StepView, view: View, outline: Outline, origin: ForkedFrom, source: Snapshot) -> Change | None:
    """The write that completes a step with the source's result; None where the source has none that fits."""
    definition, kept = outline.definitions[step_id], source.value(fields.result(step_id))
    try:
        record = StepRecord.from_json(source.fields[fields.step(step_id)].value)
        same = Step.from_json(source.fields[fields.definition(step_id)].value) == definition
        signed = kept is not None and AgentResult.from_json(kept).step_id == step_id
    except (KeyError, Unreadable):
        return None
    position = source.fields[fields.step(step_id)].position
    if kept is None or not (same and signed) or record.state is not StepState.COMPLETED or position > origin.position:
        return None
    check_step_transition(seen.record.state, StepState.COMPLETED, Role.ORCHESTRATOR)
    reused = record.reused or Reused(request=origin.request, position=position)
    taken = seen.record.model_copy(update={"state": StepState.COMPLETED, "worker": record.worker, "reused": reused})
    decided_on = (fields.PLAN, fields.STATUS, fields.step(step_id), *map(fields.step, definition.depends_on))
    return Change(
        event="step_reused",
        details={"step": step_id, "from": str(reused)},
        expect={**{name: view.version(name) for name in decided_on}, fields.result(step_id): ABSENT},
        put={fields.result(step_id): kept, fields.step(step_id): taken.to_json()},
    )


def _begin(view: View, outline: Outline, origin: ForkedFrom | None) -> Change:
    """The write after which the fork goes on like any request."""
    check_request_transition(view.status.status, RequestStatus.RUNNING, Role.ORCHESTRATOR)
    running = view.status.model_copy(update={"status": RequestStatus.RUNNING})
    wanted = origin.reused if origin is not None else ()
    lost = [step for step in wanted if not ((seen := view.step(step)) is not None and seen.record.reused)]
    decided_on = (fields.PLAN, fields.STATUS, *map(fields.step, outline.definitions))
    return Change(
        event="fork_begun",
        details={"reused": str(len(wanted) - len(lost)), **({"run_anew": ", ".join(lost)} if lost else {})},
        expect={name: view.version(name) for name in decided_on},
        put={fields.STATUS: running.to_json()},
    )
