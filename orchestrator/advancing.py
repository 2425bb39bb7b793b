"""Advancing: the one pure function that decides what happens to a request. Every path of the orchestrator goes through it.

It reads a view and a cause and says what to write or ring, or what else to read. It does no I/O and keeps nothing, so
two orchestrators, or the same bell twice, come to the same end.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import lru_cache

from orchestrator import absorbing, commanding, desk, ending, retracting, reusing
from orchestrator.causes import (
    CancelAsked,
    Cause,
    Continued,
    DecideAsked,
    DropAsked,
    Noticed,
    ReplayAsked,
    ResultCame,
    RetractAsked,
    RulesAsked,
    Submitted,
    Swept,
)
from orchestrator.decisions import Change, Decision, Ring, RingTask, Verdict
from orchestrator.growing import check_further, still_asleep
from orchestrator.judging import judge
from orchestrator.scheduling import (
    FIRST_LOOK_MS,
    Standing,
    full_fields,
    inputs_settled,
    is_full,
    next_look_ms,
    partial_fields,
    ready_since_ms,
    standings,
)
from orchestrator.views import Outline, View, outline_fields
from orchestrator.waiting import is_open, stopper_fields
from schemas import fields, plans
from schemas.blackboard import ABSENT
from schemas.errors import InvalidPlan, Refused
from schemas.packets import OnFailure
from schemas.plans import Step
from schemas.reducers import REDUCERS, Reducer
from schemas.requests import PlanRecord, RequestStatus, Role, StatusRecord, StepRecord, StepState, check_request_transition
from schemas.results import Failure, FailureCode
from schemas.teams import TeamCard


def advance(
    view: View, cause: Cause, *, retention_seconds: int, reducers: Mapping[str, Reducer] = REDUCERS, stopper: str | None = None
) -> Decision:
    """Return what follows for the request in `view` from `cause`.

    `retention_seconds` is how long a request is kept once it is over, `reducers` what merges shared fields, by name. `stopper`
    is a step without which nothing follows from a result (`orchestrator.waiting`): while it is seen open, no other is looked at. The
    decision asks for more fields, or names one write, or says what to ring and when to look again; after a write the function is
    asked again with the view as it is then.
    """
    if not view.exists:
        return Decision(verdict=Verdict.UNKNOWN, reason="the board has no such request: gone by retention, or lost by the board")
    if isinstance(cause, ResultCame):
        if judged := judge(view, cause):
            return judged
        if cause.again:  # no news of one step, but a reason to look at all: who was to act on it may be gone
            cause = Continued(cause.message_id)
    if missing := view.missing((fields.STATUS, fields.PLAN)):
        return Decision(read_more=missing)
    match cause:
        case CancelAsked():
            return commanding.cancel(view, cause, retention_seconds=retention_seconds)
        case ReplayAsked():
            return commanding.replay(view, cause)
        case DropAsked():
            return commanding.drop(view, cause)
        case RetractAsked():
            return retracting.retract(view, cause)
        case DecideAsked():
            return desk.decide(view, cause)
        case RulesAsked():
            return desk.change_rules(view, cause)
        case Noticed():
            return commanding.notice(view, cause)
        case Submitted() | ResultCame() | Swept() | Continued():
            return _onward(view, cause, retention_seconds, reducers, stopper)


def _onward(view: View, cause: Cause, retention_seconds: int, reducers: Mapping[str, Reducer], stopper: str | None) -> Decision:
    """Plan, take in, ring, answer: whatever comes next of a request that goes on."""
    if view.status.status.over:
        return Decision(verdict=Verdict.LATE if isinstance(cause, Submitted) else Verdict.FITS, over=True)
    if isinstance(cause, Swept) and (late := _past_deadline(view, retention_seconds)):
        return late
    if view.plan is None:
        return _open_plan(view, retention_seconds, reducers)
    outline = view.outline
    if outline is None:
        return Decision(read_more=outline_fields(view))
    if missing := view.missing(_looked_at(view, outline, cause, stopper)):
        return Decision(read_more=missing)
    standing = standings(view, outline)
    if growth := _take_in(view, outline, standing, retention_seconds):
        return growth
    if taking_over := reusing.take_over(view, outline):
        return taking_over
    if is_full(view, outline) and (follows := _follows(view, outline, standing, reducers)):
        return follows
    rings = _rings(view, outline, standing, cause)
    if rings or any(state in (Standing.READY, Standing.RUNNING, Standing.WAITING) for state in standing.values()):
        return Decision(rings=rings, next_look_ms=_next_look(view, outline, standing), look_at=_look_at(view, standing))
    if missing := ending.needed_for_answer(view, outline, standing):
        return Decision(read_more=missing)
    if late := absorbing.absorb_late(view, outline, standing, reducers):
        return late
    return ending.answer(view, outline, standing, retention_seconds=retention_seconds)


def _looked_at(view: View, outline: Outline, cause: Cause, stopper: str | None) -> tuple[str, ...]:
    """What has to be read: an orchestrator that sees the request for the first time has not looked at all that decides a ring."""
    if isinstance(cause, ResultCame) and not _looks_at_all(view, outline, cause):
        if stopper is not None and is_open(view, stopper):
            return stopper_fields(cause.step_id, stopper, outline)
        return partial_fields(cause.step_id, outline)
    return full_fields(outline)


def _looks_at_all(view: View, outline: Outline, cause: Cause) -> bool:
    """Whether what follows can be decided on a full view only. A result of a step that changes nothing else needs its part."""
    if not isinstance(cause, ResultCame) or cause.step_id in outline.graph.absorbing:
        return True
    rechecks = cause.state is StepState.FAILED and outline.definitions[cause.step_id].on_failure is OnFailure.RECHECK
    return rechecks or cause.epoch > 0 or bool(view.version(fields.BOUNDARY) != ABSENT and view.boundary.retractions)


def _follows(view: View, outline: Outline, standing: Mapping[str, Standing], reducers: Mapping[str, Reducer]) -> Decision | None:
    """What has to be written before anything is rung: withdrawn values followed, changes taken in, producers asked again."""
    return (
        retracting.follow(view, outline, standing)
        or absorbing.absorb(view, outline, standing, reducers)
        or retracting.recheck(view, outline, standing)
    )


def _past_deadline(view: View, retention_seconds: int) -> Decision | None:
    """The deadline is a length since the opening, or since the last replay, by the board's clock."""
    if missing := view.missing((fields.REQUEST,)):
        return Decision(read_more=missing)
    if view.now_ms < deadline_at_ms(view):
        return None
    if view.outline is None and view.plan is not None:
        return Decision(read_more=outline_fields(view))
    if view.outline is not None:
        if missing := view.missing(full_fields(view.outline)):
            return Decision(read_more=missing)
        if all(state.settled for state in standings(view, view.outline).values()):
            return None
    failure = Failure(code=FailureCode.DEADLINE, description=f"not finished within {view.status.deadline_ms / 1000:g} s")
    return ending.end_now(view, view.outline, failure, retention_seconds=retention_seconds)


def deadline_at_ms(view: View) -> int:
    """Return the board time at which the request's time is over."""
    status = view.status
    since = view.stored[fields.STATUS if status.replays else fields.REQUEST].at_ms
    return since + status.deadline_ms


def _open_plan(view: View, retention_seconds: int, reducers: Mapping[str, Reducer]) -> Decision:
    """Write the plan of the team's card: definitions, steps, status RUNNING (a fork is RUNNING once it has what it reuses)."""
    if missing := view.missing((fields.REQUEST, fields.CARD)):
        return Decision(read_more=missing)
    card, request = view.card, view.request
    fork = request is not None and request.forked_from is not None
    if card is None:
        failure = Failure(code=FailureCode.REFUSED_PLAN, description="the request has no team card")
        return ending.refuse_plan(view, failure, retention_seconds=retention_seconds)
    if unknown := [each for each in card.fields.values() if each.reducer is not None and each.reducer not in reducers]:
        said = f"field {unknown[0].name!r} is merged by {unknown[0].reducer!r}, which this orchestrator does not have (--reducers)"
        return ending.refuse_plan(view, Failure(code=FailureCode.REFUSED_PLAN, description=said), retention_seconds=retention_seconds)
    try:
        puts = _puts_of(view.stored[fields.CARD].value)
    except Refused as error:
        failure = Failure(code=FailureCode.REFUSED_PLAN, description=str(error))
        return ending.refuse_plan(view, failure, retention_seconds=retention_seconds)
    check_request_transition(view.status.status, RequestStatus.RUNNING, Role.ORCHESTRATOR)
    running = StatusRecord(status=RequestStatus.RUNNING, deadline_ms=view.status.deadline_ms, replays=view.status.replays)
    return Decision(
        change=Change(
            event="plan_written",
            expect={fields.PLAN: ABSENT, fields.STATUS: view.version(fields.STATUS), **_absent(card.steps)},
            put={**({} if fork else {fields.STATUS: running.to_json()}), **puts},
        )
    )


@lru_cache(maxsize=256)
def _puts_of(value: bytes) -> Mapping[str, bytes]:
    """Plan, definitions and first records of a card's steps. Requests of one team have the same card, so it is validated once.

    Raises:
        Refused: the steps are no plan.
    """
    card = TeamCard.from_json(value)
    plans.validate(card.steps, card.agents, shared=card.fields)
    puts = _puts(card.steps)
    definitions = [puts[fields.definition(step.id)] for step in card.steps]
    plan = PlanRecord(steps=tuple(step.id for step in card.steps), definitions=hashlib.sha256(b"\0".join(definitions)).hexdigest()[:32])
    return {fields.PLAN: plan.to_json(), **puts}


def _absent(steps: tuple[Step, ...]) -> dict[str, str]:
    return {fields.step(step.id): ABSENT for step in steps}


def _puts(steps: tuple[Step, ...]) -> dict[str, bytes]:
    records = {
        fields.step(step.id): StepRecord(state=StepState.PENDING, agent=step.agent, max_attempts=step.max_attempts).to_json()
        for step in steps
    }
    return {**{fields.definition(step.id): step.to_json() for step in steps}, **records}


def _take_in(view: View, outline: Outline, standing: Mapping[str, Standing], retention_seconds: int) -> Decision | None:
    """Add the further steps of a completed result whose step may plan, each (step, epoch) once."""
    for step, state in standing.items():
        definition, seen = outline.definitions[step], view.step(step)
        if not definition.may_plan or state is not Standing.COMPLETED or seen is None:
            continue
        if (step, seen.record.epoch) in outline.record.taken_in:
            continue
        if missing := view.missing((fields.result(step), fields.CARD)):
            return Decision(read_more=missing)
        result, card = view.result(step), view.card
        try:
            if card is None:
                raise InvalidPlan("the request has no team card", path=f"{step}.steps")
            further = still_asleep(result.steps if result else (), outline, card)
            check_further(definition, further, outline, card)
        except Refused as error:
            failure = Failure(code=FailureCode.REFUSED_PLAN, description=str(error))
            return ending.refuse_growth(view, outline, failure, retention_seconds=retention_seconds)
        plan = PlanRecord(
            steps=(*outline.record.steps, *(new.id for new in further)),
            taken_in=(*outline.record.taken_in, (step, seen.record.epoch)),
        )
        expected = {name: view.version(name) for name in (fields.PLAN, fields.STATUS, fields.step(step))}
        return Decision(
            change=Change(
                event="further_steps_taken_in",
                details={"step": step, "steps": str(len(further))},
                expect={**expected, **_absent(further)},
                put={fields.PLAN: plan.to_json(), **_puts(further)},
            )
        )
    return None


def _rings(view: View, outline: Outline, standing: Mapping[str, Standing], cause: Cause) -> tuple[Ring, ...]:
    """Which agents to tell: after a result those that waited for it, else all that are ready; on a sweep also where the holder is gone.

    A step whose holder is gone is claimed anew, so it waits like any other for an input that was reopened meanwhile.
    """
    waited = outline.graph.waiters.get(cause.step_id, ()) if isinstance(cause, ResultCame) else standing
    ready = [step for step in waited if standing.get(step) is Standing.READY and not _wait_ms(view, step)]
    if isinstance(cause, Swept):
        ready += [
            step
            for step, state in standing.items()
            if state is Standing.RUNNING
            and (seen := view.step(step))
            and not seen.held(view.now_ms)
            and inputs_settled(step, view, outline, standing)
        ]
    return tuple(RingTask(step) for step in ready)


def _wait_ms(view: View, step_id: str) -> int:
    """How long a pending step is still to wait before it may be tried again."""
    seen = view.step(step_id)
    return max(0, seen.at_ms + seen.record.not_before_ms - view.now_ms) if seen else 0


def _next_look(view: View, outline: Outline, standing: Mapping[str, Standing]) -> int:
    """In how long to look at the request again if no bell comes. Holds have marks of their own, so this may be generous."""
    if fields.REQUEST not in view.stored:
        return FIRST_LOOK_MS
    looks = [deadline_at_ms(view) - view.now_ms]
    for step, state in standing.items():
        seen = view.step(step)
        if state is Standing.READY:
            looks.append(_wait_ms(view, step) or next_look_ms(ready_since_ms(step, view, outline), view.now_ms))
        elif state is Standing.RUNNING and seen is not None:
            looks.append(next_look_ms(seen.at_ms, view.now_ms))
    return max(min(looks), 0)


def _look_at(view: View, standing: Mapping[str, Standing]) -> dict[str, int]:
    """When to look at single steps again: at the end of a hold, or of a retry's delay."""
    looks: dict[str, int] = {}
    for step, state in standing.items():
        seen = view.step(step)
        if seen is None:
            continue
        if state is Standing.RUNNING:
            looks[step] = seen.lease_until_ms - view.now_ms if seen.held(view.now_ms) else FIRST_LOOK_MS
        elif state is Standing.READY and (wait := _wait_ms(view, step)):
            looks[step] = wait
    return looks
