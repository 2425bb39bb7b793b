"""Reports: everything that can be said of one request, folded from its events. Pure; shown by the CLI, returned by the runtime."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property

from ops.records import unreadable
from orchestrator.desk import DeskItem, desk_of
from orchestrator.scheduling import standings
from orchestrator.views import View, outlined
from schemas import fields
from schemas.blackboard import Event, Stored, fold
from schemas.boundary import Retraction
from schemas.briefs import Brief
from schemas.codec import Json
from schemas.errors import NotFound, ProtocolViolation, Unreadable
from schemas.facts import Fact
from schemas.packets import Packet
from schemas.plans import Step
from schemas.requests import AnswerRecord, ConstraintRecord, Gap, RequestRecord, RequestStatus, StatusRecord, StepRecord
from schemas.results import AgentResult, Failure, Usage
from schemas.shared import FieldRecord
from workers.agents.agent import AgentBrief
from workers.briefing import NoBrief
from workers.preparing import brief_of, material_of
from workers.team import Team


@dataclass(frozen=True, slots=True)
class StepReport:
    """One step: how it stands (derived states included), its record and result, and how long its last attempt took."""

    step: Step
    state: str
    record: StepRecord
    result: AgentResult | None
    duration_ms: int | None

    @property
    def failure(self) -> Failure | None:
        """Why it is FAILED."""
        return self.record.failure if self.state == "FAILED" else None


@dataclass(frozen=True, slots=True)
class BriefReport:
    """A brief rebuilt from the board as it was at the claim. `as_given` compares it with the hash kept beside the result.

    `as_given` is None where no result was kept; False says that the team's code has changed since.
    """

    brief: Brief
    facts: tuple[str, ...]
    as_given: bool | None


@dataclass(frozen=True)
class Report:
    """One request as it is: answer, steps in plan order, facts with sources, gaps, briefs, usage and every event."""

    request: RequestRecord
    status: RequestStatus
    answer: str
    steps: tuple[StepReport, ...]
    facts: tuple[tuple[str, Fact], ...]
    gaps: tuple[Gap, ...]
    events: tuple[Event, ...]
    failure: Failure | None = None
    constraints: tuple[ConstraintRecord, ...] = ()
    """In declared order."""
    judgements: tuple[tuple[str, Packet], ...] = ()
    """Step and judgement, of completed steps."""
    shared: Mapping[str, FieldRecord] = field(default_factory=dict)
    """The team's shared fields, by name."""
    retractions: tuple[Retraction, ...] = ()
    desk: tuple[DeskItem, ...] = ()
    """What waits for a person."""
    later: int = 0
    """How many events came after the moment that is shown; 0 for a report of now."""
    team: Team | None = field(default=None, compare=False, repr=False)
    """Whose code rebuilds the briefs; without it there are none."""

    @property
    def request_id(self) -> str:
        """The request's id."""
        return self.request.id

    @cached_property
    def briefs(self) -> tuple[BriefReport, ...]:
        """The briefs of all steps that were given one, rebuilt when they are first looked at.

        Raises:
            Unreadable: naming each field that cannot be read.
        """
        return () if self.team is None else _briefs(self, self.team)

    @property
    def position(self) -> int:
        """Position of the last event that the report knows of."""
        return self.events[-1].position

    @property
    def text(self) -> str:
        """The answer's text; empty as long as there is none."""
        return self.answer

    @property
    def usage(self) -> Usage:
        """What all results used that were made in this request."""
        return sum((step.result.usage for step in self.steps if step.result and not step.record.reused), Usage())

    def step(self, step_id: str) -> StepReport:
        """Return one step.

        Raises:
            NotFound: the plan has no such step.
        """
        for each in self.steps:
            if each.step.id == step_id:
                return each
        known = ", ".join(each.step.id for each in self.steps)
        raise NotFound(f"the plan has no step {step_id!r}; it has: {known or 'none yet'}", path="step")

    def _boundary_json(self) -> dict[str, Json]:
        """What there is of judgements, shared fields, retractions and the desk; nothing where the request has none."""
        parts: dict[str, Json] = {
            "judgements": [_judgement_json(step, packet) for step, packet in self.judgements],
            "shared": {name: record.model_dump(mode="json", exclude_defaults=True) for name, record in self.shared.items()},
            "retractions": [each.model_dump(mode="json") for each in self.retractions],
            "desk": [{"item": each.id, "question": each.question, "choices": list(each.choices)} for each in self.desk],
        }
        return {name: part for name, part in parts.items() if part}

    def as_json(self, *, timeline: bool = False) -> dict[str, Json]:
        """Return the report as the JSON object that the command line prints."""
        shape = {
            "request_id": self.request_id,
            "status": self.status.value,
            "answer": self.answer,
            **{name: part.model_dump(mode="json") for name in ("forked_from", "session") if (part := getattr(self.request, name))},
            "steps": [_step_json(each) for each in self.steps],
            "facts": [_fact_json(step, fact) for step, fact in self.facts],
            "gaps": [{"step": gap.step, "reason": gap.reason, "stopped": list(gap.stopped)} for gap in self.gaps],
            "briefs": [_brief_json(each) for each in self.briefs],
            "usage": {
                "model_calls": self.usage.model_calls,
                "input_tokens": self.usage.input_tokens,
                "output_tokens": self.usage.output_tokens,
            },
            "events": len(self.events),
            **self._boundary_json(),
            **({"at": self.position, "later_events": self.later} if self.later else {}),
        }
        return {**shape, "timeline": [_event_json(event) for event in self.events]} if timeline else shape


def _judgement_json(step: str, packet: Packet) -> dict[str, Json]:
    return {
        "step": step,
        "kind": packet.kind.value,
        "key": packet.key,
        "value": packet.payload,
        "confidence": packet.control.confidence,
        "reason": packet.control.reason,
        "evidence": [str(each) for each in packet.control.evidence],
        "expires_at": None if packet.control.expires_at is None else packet.control.expires_at.isoformat(),
    }


def report(request_id: str, events: Sequence[Event], team: Team | None = None, *, at: int | None = None) -> Report:
    """Fold a request's events into a report; with its team's code its briefs can be rebuilt.

    `at` is an event position: the report is of the board as it was after that event, whatever came later.

    Raises:
        NotFound: the board has no such request, or the request no such event.
        Unreadable: naming each field that cannot be read.
    """
    known = events if at is None else _up_to(request_id, events, at)
    with _naming_fields(request_id, known):
        return replace(_told(request_id, known, fold(known)), later=len(events) - len(known), team=team)


def _up_to(request_id: str, events: Sequence[Event], at: int) -> Sequence[Event]:
    if events and not 1 <= at <= events[-1].position:
        raise NotFound(f"request {request_id} has events 1 to {events[-1].position}, and no event {at}", path="at")
    return [event for event in events if event.position <= at]


@contextmanager
def _naming_fields(request_id: str, events: Sequence[Event]) -> Iterator[None]:
    """Say of a request that cannot be read which of its fields that is."""
    try:
        yield
    except Unreadable as error:
        said = "; ".join(f"field {name!r}: {why}" for name, why in unreadable(fold(events)).items())
        raise Unreadable(f"request {request_id} cannot be read: {said or error}") from error


def _told(request_id: str, events: Sequence[Event], state: Mapping[str, Stored]) -> Report:
    """The report without briefs."""
    if fields.REQUEST not in state or fields.STATUS not in state:
        raise NotFound(f"the board has no request {request_id!r}: never opened, or past its retention", path="request")
    status = StatusRecord.from_json(state[fields.STATUS].value)
    view = outlined(View(request_id, events[-1].at_ms, events[-1].position, state, frozenset(state)))
    steps = _steps(view, events, over=status.status.over)
    answer = AnswerRecord.from_json(state[fields.ANSWER].value) if fields.ANSWER in state and status.status.over else None
    request = RequestRecord.from_json(state[fields.REQUEST].value)
    completed = [(each.step.id, each.result) for each in steps if each.result and each.result.completed and each.state == "COMPLETED"]
    return Report(
        request=request,
        status=status.status,
        answer=answer.text if answer else "",
        steps=steps,
        facts=tuple((step, fact) for step, result in completed for fact in result.facts),
        judgements=tuple((step, packet) for step, result in completed for packet in result.packets),
        shared=view.shared,
        retractions=view.boundary.retractions,
        desk=desk_of(view, view.outline) if view.outline and status.status is not RequestStatus.CANCELLED else (),
        gaps=answer.gaps if answer else (),
        events=tuple(events),
        failure=status.failure,
        constraints=tuple(record for name in request.constraints if (record := view.constraint(name)) is not None),
    )


def _steps(view: View, events: Sequence[Event], *, over: bool) -> tuple[StepReport, ...]:
    outline = view.outline
    if outline is None:
        return ()
    standing = standings(view, outline)
    reports = []
    for step, definition in outline.definitions.items():
        seen = view.step(step)
        if seen is None:
            continue
        state = standing[step]
        shown = "SKIPPED" if over and not state.settled else state.value
        result = view.result(step) if _is_of_this_epoch(step, view, events) else None
        reports.append(StepReport(definition, shown, seen.record, result, _duration_ms(step, events)))
    return tuple(reports)


def _is_of_this_epoch(step_id: str, view: View, events: Sequence[Event]) -> bool:
    """Whether a step's result was written since the step was last reopened: a later epoch may have ended without one."""
    stored, name = view.stored.get(fields.result(step_id)), fields.step(step_id)
    return stored is not None and stored.position > _reopened_at(name, events)


def _reopened_at(name: str, events: Sequence[Event]) -> int:
    """Position of the write that began the present epoch of a step; 0 in its first one."""
    epochs = [(event.position, StepRecord.from_json(event.put[name][1]).epoch) for event in events if name in event.put]
    last = epochs[-1][1] if epochs else 0
    return min((position for position, epoch in epochs if epoch == last), default=0) if last else 0


def _duration_ms(step_id: str, events: Sequence[Event]) -> int | None:
    """From the last claim of a step to the write that ended it; None while it runs, or where it never did."""
    claimed: int | None = None
    took: int | None = None
    for event in events:
        if fields.step(step_id) in event.put:
            if event.labels.get("event") == "step_claimed":
                claimed, took = event.at_ms, None
            elif claimed is not None and took is None:
                took = event.at_ms - claimed
    return took


def _briefs(report: Report, team: Team) -> tuple[BriefReport, ...]:
    found = []
    with _naming_fields(report.request_id, report.events):
        for each in report.steps:
            with suppress(NotFound):
                found.append(brief_report(report, each.step.id, team))
    return tuple(found)


def brief_report(report: Report, step_id: str, team: Team) -> BriefReport:
    """Rebuild one step's brief as of its last claim.

    Raises:
        NotFound: no such step, it was never claimed, or no brief could be built for it.
    """
    each = report.step(step_id)
    if each.record.reused is not None:
        raise NotFound(f"step {step_id!r} was given no brief here: its result is that of {each.record.reused}", path="step")
    position = _claimed_at(each, report.events)
    if position is None:
        raise NotFound(f"step {step_id!r} was never claimed, so nobody was given a brief ({each.state})", path="step")
    built = brief_at(step_id, report.events, position, team)
    if isinstance(built, Failure):
        raise NotFound(f"step {step_id!r} was given no brief: {built.code}: {built.description}", path="step")
    kept = each.result.made_with if each.result is not None else None
    as_given = None if kept is None else kept.brief_sha256 == built.brief.sha256
    return BriefReport(built.brief, tuple(built.facts), as_given)


def _claimed_at(each: StepReport, events: Sequence[Event]) -> int | None:
    if each.result is not None and each.result.made_with is not None:
        return each.result.made_with.position
    name = fields.step(each.step.id)
    claims = (event.position for event in reversed(events) if event.labels.get("event") == "step_claimed" and name in event.put)
    return next(claims, None)


def brief_at(step_id: str, events: Sequence[Event], position: int, team: Team) -> AgentBrief | Failure:
    """Rebuild a step's brief from the board as it was at an event position, with the team's code as it is now.

    Raises:
        NotFound: the step did not exist then.
    """
    state: Mapping[str, Stored] = fold(event for event in events if event.position <= position)
    try:
        at_ms = next((event.at_ms for event in reversed(events) if event.position <= position), None)
        material = material_of(step_id, state, position, now_ms=at_ms)
    except ProtocolViolation as error:
        raise NotFound(f"step {step_id!r} had not been planned at event {position}", path="step") from error
    built = brief_of(material, attempt=1, team=team)
    return built.failure if isinstance(built, NoBrief) else built


def _step_json(each: StepReport) -> dict[str, Json]:
    usage = each.result.usage if each.result else Usage()
    termination = each.result.termination.value if each.result else None
    shape: dict[str, Json] = {
        "id": each.step.id,
        "agent": each.step.agent,
        "title": each.step.title,
        "state": each.state,
        "epoch": each.record.epoch,
        "attempt": each.record.attempt,
        "termination": termination,
        "duration_ms": each.duration_ms,
        "model_calls": usage.model_calls,
        "tool_calls": usage.tool_calls,
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
    }
    if each.record.reused is not None:
        shape["reused_from"] = str(each.record.reused)
    if each.failure is not None:
        shape["failure"] = {"code": each.failure.code, "description": each.failure.description}
    return shape


def _fact_json(step: str, fact: Fact) -> dict[str, Json]:
    source = {"tool": fact.provenance.tool, "path": fact.provenance.path, "call_id": fact.provenance.call_id}
    shape: dict[str, Json] = {"step": step, "key": fact.key, "value": fact.value, "source": source}
    return shape if fact.artifact is None else {**shape, "artifact": fact.artifact.model_dump(mode="json")}


def _brief_json(each: BriefReport) -> dict[str, Json]:
    manifest = each.brief.manifest
    return {
        "step": each.brief.step_id,
        "facts": list(each.facts),
        "left_out": [left.model_dump(mode="json") for left in manifest.left_out],
        "characters": manifest.characters,
        "tokens": manifest.tokens,
        "sha256": each.brief.sha256,
        "as_given": each.as_given,
    }


def _event_json(event: Event) -> dict[str, Json]:
    at = datetime.fromtimestamp(event.at_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return {
        "position": event.position,
        "at": at,
        "writer": event.writer,
        "cause": event.cause,
        "fields": sorted(event.put),
        **{key: value for key, value in event.labels.items() if key not in ("position", "at", "writer", "cause", "fields")},
    }
