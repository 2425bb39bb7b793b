"""Retracting: what was said is withdrawn, and what rests on it runs again, level by level. Pure.

A retraction is one write. What follows from it is found on the board each time the request is looked at: which completed steps
had the withdrawn value in their brief, by the versions recorded with their results. They are reopened; what rests on them is
looked at once they have ended again, and is left alone where they say the same as before.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from orchestrator.absorption import WAITS_FOR_A_PERSON
from orchestrator.causes import RetractAsked
from orchestrator.decisions import Change, Decision, by, refused
from orchestrator.reopening import expected, going_on, reopened
from orchestrator.said import retraction_of, values_of
from orchestrator.scheduling import Standing
from orchestrator.views import Outline, View, outline_fields
from schemas import fields
from schemas.blackboard import DeadEntry
from schemas.packets import OnFailure, fingerprint
from schemas.plans import descendants, needs_of
from schemas.requests import RequestStatus, Role, StepState, check_step_transition
from schemas.results import Failure, FailureCode, ReadOf

_RECHECKED_CODES = frozenset({FailureCode.BLOCKED, FailureCode.MISSING_FACT, FailureCode.UNREADABLE_ARTIFACT})


def retract(view: View, cause: RetractAsked) -> Decision:
    """Withdraw one value of a completed step; a request that was over goes on, so that its answer is made anew.

    With `recheck` the step itself runs again as well, in the same write; also where the value had been withdrawn without it.
    """
    if view.status.status is RequestStatus.CANCELLED:
        return refused("the request was cancelled, for good")
    outline = view.outline
    if outline is None:
        return Decision(read_more=outline_fields(view)) if view.plan is not None else refused("the request has no plan yet")
    step, name = cause.step_id, fields.step(cause.step_id)
    if missing := view.missing((name, fields.result(step), fields.BOUNDARY)):
        return Decision(read_more=missing)
    seen = view.step(step)
    if seen is None:
        return refused(f"the plan has no step {step!r}; there are: {', '.join(outline.definitions)}")
    if cause.version not in ("", view.version(fields.result(step))):
        # Also a command that was refused once and is delivered again: what it was refused for may have come to be since.
        return refused(f"step {step!r} has ended anew since; look at what it says now")
    if seen.record.state is not StepState.COMPLETED:
        return refused(f"step {step!r} is {seen.record.state}; only what a completed step said can be withdrawn")
    result = view.result(step)
    retraction = retraction_of(view, step, cause.key, cause.reason, by=cause.sender)
    if retraction is None or result is None:
        there = ", ".join(values_of(result))
        return refused(f"step {step!r} says nothing of {cause.key!r}; it says: {there or 'nothing'}")
    known = bool(view.boundary.retracted(step, cause.key, retraction.version))
    if known and not cause.recheck:
        return refused(f"{step}.{cause.key} was withdrawn already")
    puts = {fields.STATUS: going_on(view).to_json()}
    if not known:
        boundary = view.boundary.model_copy(update={"retractions": (*view.boundary.retractions, retraction)})
        puts[fields.BOUNDARY] = boundary.to_json()
    if cause.recheck:
        puts[name] = reopened(seen.record).to_json()
    return Decision(
        change=Change(
            event="retracted",
            details={"step": step, "key": cause.key, "reason": cause.reason, **by(cause.sender)},
            expect=expected(view, name, fields.result(step), fields.BOUNDARY),
            put=puts,
            expire_after_seconds=0,
            enter_first=True,
        )
    )


def follow(view: View, outline: Outline, standing: Mapping[str, Standing]) -> Decision | None:
    """Return the write that deals with everything that is stale by now, or None. A full view; results are asked for."""
    if not view.boundary.retractions:
        if not _may_recheck(outline):
            return None
        if missing := view.missing((fields.ABSORBED,)):
            return Decision(read_more=missing)
        if not view.absorbed.rechecked:
            return None
    results = tuple(map(fields.result, outline.definitions))
    shared = tuple(dict.fromkeys(fields.shared(name) for each in outline.definitions.values() for name in (*each.reads, *each.writes)))
    if missing := view.missing((*results, *shared, *((fields.ABSORBED, fields.CARD) if shared else ()))):
        return Decision(read_more=missing)
    stale = dict(_stale(view, outline, standing))
    absorbed = view.absorbed
    puts: dict[str, bytes] = {}
    details: dict[str, list[str]] = {"reopened": [], "given_up": [], "to_a_person": [], "flagged": []}
    dead: list[DeadEntry] = []
    for step, why in stale.items():
        seen = view.step(step)
        assert seen is not None, "only a step of the view is stale"
        if said := _said_to_a_user(view, step):
            for name in said:
                record = view.shared[name].model_copy(update={"flagged": f"it was said, and rests on what was withdrawn: {why}"})
                puts[fields.shared(name)] = record.to_json()
            details["flagged"] += said
            dead.append(DeadEntry(view.request_id, WAITS_FOR_A_PERSON, 0))
            continue
        done = outline.definitions[step].irreversible and seen.record.state is StepState.COMPLETED
        policy = "person" if done else outline.definitions[step].on_stale
        if policy == "rerun" or seen.record.state is StepState.RUNNING:
            puts[fields.step(step)] = reopened(seen.record).to_json()
            details["reopened"].append(step)
            continue
        check_step_transition(seen.record.state, StepState.FAILED, Role.ORCHESTRATOR)
        asks = policy == "person"
        code = FailureCode.NEEDS_PERSON if asks else FailureCode.STALE
        how = "it was carried out already, which cannot be taken back, and rests on" if done else "it rests on"
        failure = Failure(code=code, description=f"{how} {why}", about=(why.split()[0],))
        failed = seen.record.model_copy(update={"state": StepState.FAILED, "failure": failure, "not_before_ms": 0})
        puts[fields.step(step)] = failed.to_json()
        details["to_a_person" if asks else "given_up"].append(step)
        dead.append(DeadEntry(view.request_id, step, seen.record.epoch))
        if (step, seen.record.epoch) in absorbed.steps:  # what it had added is taken back like that of any failed step
            absorbed = absorbed.model_copy(update={"steps": tuple(each for each in absorbed.steps if each[0] != step)})
            puts[fields.ABSORBED] = absorbed.to_json()
    if not puts:
        return None
    told = {name: ",".join(steps) for name, steps in details.items() if steps}
    read = (*map(fields.step, outline.definitions), *results, *shared, fields.BOUNDARY, *((fields.ABSORBED,) if shared else ()))
    return Decision(
        change=Change(
            event="stale_found",
            details={**told, "why": "; ".join(dict.fromkeys(stale.values()))[:1_000]},
            expect=expected(view, *read),
            put=puts,
            dead_first=tuple(dead),
        )
    )


def _stale(view: View, outline: Outline, standing: Mapping[str, Standing]) -> Iterator[tuple[str, str]]:
    """Each step that rests on what is no longer so, with the reason; nothing below one that is still to be settled."""
    boundary = view.stored.get(fields.BOUNDARY)
    boundary_at = 0 if boundary is None else boundary.position
    for step in outline.graph.order:
        seen, result = view.step(step), view.result(step)
        if seen is None:
            continue
        if seen.record.state is StepState.RUNNING:
            why = _cannot_go_on(outline, standing, step)
            if not why and seen.position < boundary_at:
                why = _briefed_with_withdrawn(view, outline, step)
            if why:
                yield step, why
        elif seen.record.state is StepState.COMPLETED and result is not None and result.made_with is not None:
            if _already_flagged(view, step):
                continue
            reads = result.made_with.reads
            if any(_is_open(standing, name) for name in reads):
                continue
            own = _changes_below(view, outline, step)
            why = next((told for name, read in reads.items() if name not in own and (told := _outdated(view, standing, name, read))), "")
            if why:
                yield step, why


def _changes_below(view: View, outline: Outline, step: str) -> frozenset[str]:
    """The shared fields that a step itself, or one that rests on it, changed: no step is outdated by what follows from it."""
    below = descendants([step], outline.definitions.values()) | {step}
    own = outline.definitions[step].writes
    return frozenset(fields.shared(name) for name, record in view.shared.items() if record.step in below or name in own)


def _is_open(standing: Mapping[str, Standing], name: str) -> bool:
    state = standing.get(name.partition(".")[0])
    return state is not None and not state.settled


def _cannot_go_on(outline: Outline, standing: Mapping[str, Standing], step: str) -> str:
    """Why a step that runs would not be started now: what it waits for was given up, or failed when it ran again."""
    for each in outline.graph.inputs[step]:
        if standing[each] is Standing.SKIPPED or (standing[each] is Standing.FAILED and outline.definitions[each].critical):
            return f"{each}, which did not end well"
    return ""


def _briefed_with_withdrawn(view: View, outline: Outline, step: str) -> str:
    """Why a step that runs has to stop: it was claimed before the retraction, and what it needs is what was withdrawn."""
    needs = needs_of(outline.definitions[step])
    for each in view.boundary.retractions:
        current = view.version(fields.result(each.step)) == each.version
        if current and any(need.step == each.step and need.key in ("*", each.key) for need in needs):
            return f"{each.name} was withdrawn: {each.reason}"
    return ""


def _outdated(view: View, standing: Mapping[str, Standing], name: str, read: ReadOf) -> str:
    """Why what a brief carried is no longer so; empty where it is."""
    if name.startswith(fields.SHARED_PREFIX):
        return _outdated_field(view, name.removeprefix(fields.SHARED_PREFIX), read)
    step, _, key = name.partition(".")
    if standing.get(step) is not Standing.COMPLETED:
        return f"{name}, whose step did not end well"
    version, result = view.version(fields.result(step)), view.result(step)
    if read.version == version:
        why = view.boundary.retracted(step, key, version)
        return f"{name} was withdrawn: {why}" if why else ""
    values = values_of(result)
    if key not in values:
        return f"{name} is not said any more"
    return "" if fingerprint(values[key]) == read.fingerprint else f"{name} says otherwise now"


def _outdated_field(view: View, name: str, read: ReadOf) -> str:
    """A shared field is outdated where a step that ran again gave it another value; other changes are the field's own life."""
    record = view.shared.get(name)
    if record is None or fingerprint(record.value) == read.fingerprint or view.version(fields.shared(name)) == read.version:
        return ""
    again = record.epoch > 0 or any(each.epoch > 0 for each in record.claims)
    return f"{fields.shared(name)} says otherwise now" if again else ""


def _said_to_a_user(view: View, step: str) -> list[str]:
    """The protected fields of a step that were said already: they stay as they were said."""
    return [name for name, record in view.shared.items() if record.step == step and record.communicated and not record.flagged]


def _already_flagged(view: View, step: str) -> bool:
    return any(record.step == step and record.communicated and record.flagged for record in view.shared.values())


def _may_recheck(outline: Outline) -> bool:
    return any(each.on_failure is OnFailure.RECHECK for each in outline.definitions.values())


def recheck(view: View, outline: Outline, standing: Mapping[str, Standing]) -> Decision | None:
    """Let the producers of what the gate blocked run once more, and then the step that needed it."""
    for step, state in standing.items():
        seen = view.step(step)
        if state is not Standing.FAILED or seen is None or outline.definitions[step].on_failure is not OnFailure.RECHECK:
            continue
        failure = seen.record.failure
        if failure is None or failure.code not in _RECHECKED_CODES or not failure.about:
            continue
        if missing := view.missing((fields.ABSORBED,)):
            return Decision(read_more=missing)
        if any(each[0] == step for each in view.absorbed.rechecked):
            continue
        producers = [name.partition(".")[0] for name in failure.about if not name.startswith(fields.SHARED_PREFIX)]
        again = [each for each in dict.fromkeys(producers) if standing.get(each) is Standing.COMPLETED]
        if not again:
            continue
        puts = {fields.step(each): reopened(found.record).to_json() for each in (*again, step) if (found := view.step(each)) is not None}
        rechecked = (*view.absorbed.rechecked, (step, seen.record.epoch))
        return Decision(
            change=Change(
                event="rechecked",
                details={"step": step, "producers": ",".join(again), "why": failure.description[:500]},
                expect=expected(view, fields.ABSORBED, *map(fields.step, (*again, step))),
                put={**puts, fields.ABSORBED: view.absorbed.model_copy(update={"rechecked": rechecked}).to_json()},
                dead_after=(DeadEntry(view.request_id, step, seen.record.epoch),),
            )
        )
    return None
