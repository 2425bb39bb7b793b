"""Ending: the writes that finish a request: the answer, a deadline, a cancel, a plan that cannot be carried out. Pure.

Each expects everything that it was decided on: `plan`, `status` and every step.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Literal

from orchestrator.assembling import assemble, corrections_of, gaps_of, sections_in_commit_order
from orchestrator.decisions import Change, Decision, RingDead, RingStatus
from orchestrator.scheduling import Standing, full_fields, standings
from orchestrator.views import Outline, View
from schemas import fields
from schemas.blackboard import DeadEntry, Stored
from schemas.requests import (
    AnswerRecord,
    Gap,
    RequestStatus,
    Role,
    StatusRecord,
    StepState,
    check_request_transition,
    check_step_transition,
)
from schemas.results import Failure, FailureCode


def needed_for_answer(view: View, outline: Outline, standing: Mapping[str, Standing]) -> tuple[str, ...]:
    """Return what has still to be read before an answer can be assembled: the results of the completed steps, and the card."""
    results = (fields.result(step) for step, state in standing.items() if state is Standing.COMPLETED)
    card = () if outline.language else (fields.CARD,)
    before = (fields.ANSWER,) if view.boundary.retractions else ()
    return view.missing((*full_fields(outline), *card, *before, *results))


def answer(view: View, outline: Outline, standing: Mapping[str, Standing], *, retention_seconds: int) -> Decision:
    """Return the write of the final answer; every step is settled and every result read."""
    sections = sections_in_commit_order(view, standing)
    record = assemble(
        sections, outline, gaps_of(view, outline, standing), language=_language(view), corrections=corrections_of(view, standing)
    )
    return Decision(change=_end(view, outline, record, {}, retention_seconds=retention_seconds, event=_event_of(record.status)))


def end_now(view: View, outline: Outline | None, failure: Failure, *, retention_seconds: int) -> Decision:
    """Return the write that ends the request from outside, by deadline or cancel.

    One write: status, an answer from what is committed, and every running step to FAILED with that reason; a deadline
    fails every ready one too. The new versions are the fence: a holder learns of it at its next renewal.
    """
    if outline is None:
        return refuse_plan(view, failure, retention_seconds=retention_seconds)
    standing = standings(view, outline)
    if missing := needed_for_answer(view, outline, standing):
        return Decision(read_more=missing)
    cancelled = failure.code == FailureCode.CANCELLED
    puts = _failed(view, standing, failure, ready_too=not cancelled)
    then = _assuming(view, puts)
    after = standings(then, outline)
    record = assemble(
        sections_in_commit_order(then, after),
        outline,
        gaps_of(then, outline, after, ended_by=failure),
        language=_language(view),
        cancelled=cancelled,
    )
    event = "request_cancelled" if cancelled else "deadline_passed"
    change = _end(view, outline, record, puts, retention_seconds=retention_seconds, event=event)
    dead = () if cancelled else _dead_of(then, puts)
    rings = (*change.rings, *(RingDead(entry.step_id) for entry in dead))
    return Decision(change=replace(change, dead_first=dead, rings=rings, details={"reason": failure.description}))


def _failed(view: View, standing: Mapping[str, Standing], failure: Failure, *, ready_too: bool) -> dict[str, bytes]:
    """The records of the steps that the end of the request takes away from their holders."""
    puts: dict[str, bytes] = {}
    for step, state in standing.items():
        seen = view.step(step)
        if seen is not None and (state is Standing.RUNNING or (state is Standing.READY and ready_too)):
            check_step_transition(seen.record.state, StepState.FAILED, Role.ORCHESTRATOR)
            record = seen.record.model_copy(update={"state": StepState.FAILED, "failure": failure, "not_before_ms": 0})
            puts[fields.step(step)] = record.to_json()
    return puts


def refuse_plan(view: View, failure: Failure, *, retention_seconds: int) -> Decision:
    """Return the write that ends a request which has no plan: its answer is the reason. (A cancel ends it CANCELLED.)"""
    if missing := view.missing((fields.CARD,)):
        return Decision(read_more=missing)
    cancelled = failure.code == FailureCode.CANCELLED
    gaps = () if cancelled else (Gap(step="", reason=failure.code, description=failure.description),)
    record = assemble([], None, gaps, language=_language(view), cancelled=cancelled)
    change = _end(view, None, record, {}, retention_seconds=retention_seconds, event=_event_of(record.status), failure=failure)
    return Decision(change=replace(change, details={"reason": failure.description}))


def refuse_growth(view: View, outline: Outline, failure: Failure, *, retention_seconds: int) -> Decision:
    """Return the write that ends a request FAILED because steps planned at run time were refused; what runs is fenced off."""
    if missing := view.missing((*full_fields(outline), fields.CARD)):
        return Decision(read_more=missing)
    gap = Gap(step="", reason=failure.code, description=failure.description)
    record = assemble([], None, (gap,), language=_language(view))
    puts = _failed(view, standings(view, outline), failure, ready_too=False)
    change = _end(view, outline, record, puts, retention_seconds=retention_seconds, event="further_steps_refused", failure=failure)
    return Decision(change=replace(change, details={"reason": failure.description}))


def _end(
    view: View,
    outline: Outline | None,
    record: AnswerRecord,
    puts: Mapping[str, bytes],
    *,
    retention_seconds: int,
    event: str,
    failure: Failure | None = None,
) -> Change:
    before = view.status
    check_request_transition(before.status, record.status, Role.ORCHESTRATOR)
    status = StatusRecord(status=record.status, deadline_ms=before.deadline_ms, replays=before.replays, failure=failure)
    steps = map(fields.step, outline.definitions) if outline else ()
    expected = (fields.PLAN, fields.STATUS, *steps)
    return Change(
        event=event,
        expect={name: view.version(name) for name in expected},
        put={**puts, fields.ANSWER: record.to_json(), fields.STATUS: status.to_json()},
        expire_after_seconds=retention_seconds,
        rings=(RingStatus(record.status),),
    )


def _assuming(view: View, puts: Mapping[str, bytes]) -> View:
    """The view as if `puts` were written, with the old versions: for what an answer will say, never for a write's expectations."""
    stored = {name: Stored(value, view.version(name), view.stored[name].position, view.now_ms) for name, value in puts.items()}
    return replace(view, stored={**view.stored, **stored})


def _dead_of(view: View, puts: Mapping[str, bytes]) -> tuple[DeadEntry, ...]:
    steps = (name.removeprefix(fields.STEP_PREFIX) for name in puts)
    return tuple(DeadEntry(view.request_id, step, seen.record.epoch) for step in steps if (seen := view.step(step)))


def _event_of(status: RequestStatus) -> str:
    return f"request_{status.lower()}"


def _language(view: View) -> Literal["en", "zh"]:
    if view.outline is not None and view.outline.language is not None:
        return view.outline.language
    card = view.card
    return "en" if card is None else card.language
