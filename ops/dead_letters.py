"""Dead letters: what a failed step is, as the board has it, and what would be different if it ran again. Pure.

A rehearsal compares the failed attempt with now: its brief (as of its claim, and as of now), and what it was made with.
It says *unknown* where nothing was kept to compare with. Called by `ops.client` and the command line's `dead`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from ops.reporting import brief_at
from orchestrator.scheduling import Standing, standings, stopped_by
from orchestrator.views import Outline, View, outlined
from schemas import fields
from schemas.blackboard import DeadEntry, Event, Snapshot, fold
from schemas.codec import Json
from schemas.errors import NotFound
from schemas.plans import Step, inputs_of
from schemas.requests import RequestStatus, StatusRecord, StepRecord, StepState
from schemas.results import MADE_WITH_LABEL, AgentResult, Failure, MadeWith
from workers.agents.agent import AgentBrief
from workers.team import Team

INGREDIENTS = ("persona", "model", "tools", "rules", "team")
"""What a result is made with, beside its brief; `team` is the hash of the whole team."""


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A step that was given up, as the board has it now."""

    request_id: str
    step_id: str
    title: str
    record: StepRecord
    request_status: RequestStatus
    failed_at_ms: int
    now_ms: int

    @property
    def reason(self) -> str:
        """The failure's code."""
        return self.record.failure.code if self.record.failure else ""


def letter_fields(step_id: str) -> tuple[str, ...]:
    """Return what has to be read of a dead letter."""
    return fields.step(step_id), fields.definition(step_id), fields.STATUS


def letter_of(entry: DeadEntry, snapshot: Snapshot) -> DeadLetter | None:
    """Return the dead letter that an entry of the index stands for, or None where the board says otherwise by now.

    Raises:
        Unreadable: a field of it cannot be read.
    """
    stored, status = snapshot.fields.get(fields.step(entry.step_id)), snapshot.value(fields.STATUS)
    if stored is None or status is None:
        return None
    record = StepRecord.from_json(stored.value)
    if record.state is not StepState.FAILED or record.epoch != entry.epoch:
        return None
    planned = snapshot.value(fields.definition(entry.step_id))
    title = Step.from_json(planned).title if planned is not None else entry.step_id
    return DeadLetter(entry.request_id, entry.step_id, title, record, StatusRecord.from_json(status).status, stored.at_ms, snapshot.now_ms)


class Comparison(StrEnum):
    """How something now compares with the failed attempt."""

    SAME = "same"
    CHANGED = "changed"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class FactChange:
    """A fact of the brief, `step.key`, that is not what the failed attempt was given. None: not in the brief."""

    name: str
    before: Json
    now: Json


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """What a replay of one step would do."""

    step_id: str
    runs_again: tuple[str, ...]
    """The step, then what it had stopped and would stop no longer, in plan order."""
    still_stopped: tuple[str, ...]
    """What it had stopped, and what another failed step still stops."""
    brief: Comparison
    """The brief's text, as the failed attempt was given it, against the text as it would be now."""
    facts: tuple[FactChange, ...] | None
    """What changed among the facts; None where it cannot be said."""
    made_with: Mapping[str, Comparison]
    """Each of `INGREDIENTS`."""
    notes: tuple[str, ...] = ()
    """Why something is unknown, and what else there is to know."""

    def as_json(self) -> dict[str, Json]:
        """Return the rehearsal as a JSON object, without the step."""
        changes = None if self.facts is None else [{"fact": each.name, "before": each.before, "now": each.now} for each in self.facts]
        return {
            "runs_again": list(self.runs_again),
            "still_stopped": list(self.still_stopped),
            "brief": self.brief.value,
            "facts_changed": changes,
            "made_with": {name: comparison.value for name, comparison in self.made_with.items()},
            "notes": list(self.notes),
        }


def rehearse(request_id: str, events: Sequence[Event], step_id: str, team: Team | None, together: Collection[str] = ()) -> Rehearsal:
    """Say what a replay of `step_id` would do, if the failed steps `together` of the request were replayed with it.

    `team` is the code that a worker here and now would run, None where it is not at hand.

    Raises:
        NotFound: the board has no such request, or its plan no such step.
        Unreadable: a field of the request cannot be read.
    """
    if not events:
        raise NotFound(f"the board has no request {request_id!r}", path="request")
    state = fold(events)
    view = outlined(View(request_id, events[-1].at_ms, events[-1].position, state, frozenset(state)))
    outline = view.outline
    if outline is None or view.step(step_id) is None:
        raise NotFound(f"request {request_id} has no step {step_id!r}", path="step")
    stopped = stopped_by(step_id, outline, standings(view, outline))
    after = standings(_reopened(view, outline, {step_id, *together}), outline)
    runs = tuple(each for each in stopped if after[each] is not Standing.SKIPPED)
    failed = _failed_attempt(events, step_id)
    brief, facts, notes = _compare_briefs(step_id, events, failed, team)
    renewed = [each for each in inputs_of(outline.definitions[step_id]) if each in together]
    if renewed:
        notes += (f"its inputs are replayed too: {', '.join(renewed)}",)
    return Rehearsal(
        step_id=step_id,
        runs_again=(step_id, *runs),
        still_stopped=tuple(each for each in stopped if each not in runs),
        brief=brief,
        facts=facts,
        made_with=_compare_ingredients(outline.definitions[step_id].agent, failed.made_with, team),
        notes=notes,
    )


def _reopened(view: View, outline: Outline, steps: Collection[str]) -> View:
    """The view as it would be after a replay of these steps, as far as they are FAILED."""
    stored = dict(view.stored)
    for step in steps:
        seen = view.step(step) if step in outline.definitions else None
        if seen is not None and seen.record.state is StepState.FAILED:
            pending = seen.record.model_copy(update={"state": StepState.PENDING})
            stored[fields.step(step)] = stored[fields.step(step)]._replace(value=pending.to_json())
    return replace(view, stored=stored)


@dataclass(frozen=True, slots=True)
class _Attempt:
    """The failed epoch's last attempt: the position of its claim (None: nobody was given a brief), what it was made with."""

    position: int | None
    made_with: MadeWith | None


def _failed_attempt(events: Sequence[Event], step_id: str) -> _Attempt:
    """Find it among the events since the step was last reopened: what an earlier epoch left behind does not count."""
    name, result = fields.step(step_id), fields.result(step_id)
    claimed: int | None = None
    made_with: MadeWith | None = None
    for event in events:
        if name not in event.put:
            continue
        what = event.labels.get("event")
        if what == "step_replayed":
            claimed, made_with = None, None
        elif what == "step_claimed":
            claimed = event.position
        elif result in event.put:
            made_with = AgentResult.from_json(event.put[result][1]).made_with
        elif MADE_WITH_LABEL in event.labels:
            made_with = MadeWith.from_json(event.labels[MADE_WITH_LABEL].encode())
    if made_with is not None:
        claimed = made_with.position
    return _Attempt(claimed, made_with)


def _compare_briefs(
    step_id: str, events: Sequence[Event], failed: _Attempt, team: Team | None
) -> tuple[Comparison, tuple[FactChange, ...] | None, tuple[str, ...]]:
    """Rebuild the brief as of the failed claim and as of now, both with the code of here and now, and compare.

    Whether the text is what the failed attempt was given is said by the hash that was kept, if one was.
    """
    if team is None:
        return Comparison.UNKNOWN, None, ("the team's code is not at hand, so no brief can be rebuilt",)
    if failed.position is None:
        return Comparison.UNKNOWN, None, ("nobody had taken the step, so no brief was given",)
    then = brief_at(step_id, events, failed.position, team)
    now = brief_at(step_id, events, events[-1].position, team)
    notes = _built(then, now)
    facts = _fact_changes(then, now)
    if isinstance(then, Failure) or isinstance(now, Failure):
        same = isinstance(then, Failure) and isinstance(now, Failure) and (then.code, then.description) == (now.code, now.description)
        return (Comparison.SAME if same else Comparison.CHANGED), facts, notes
    if failed.made_with is not None:
        given = failed.made_with.brief_sha256
        if given != then.brief.sha256:
            notes += ("the code that words the brief has changed since",)
        return (Comparison.SAME if given == now.brief.sha256 else Comparison.CHANGED), facts, notes
    if then.brief.sha256 != now.brief.sha256:
        return Comparison.CHANGED, facts, notes
    return Comparison.UNKNOWN, facts, (*notes, "what the failed attempt was made with was not kept")


def _built(then: AgentBrief | Failure, now: AgentBrief | Failure) -> tuple[str, ...]:
    match then, now:
        case Failure(), Failure():
            return (f"no brief could be built then, and none can now: {now.code}: {now.description}",)
        case Failure(), _:
            return (f"no brief could be built then ({then.code}: {then.description}); it can be now",)
        case _, Failure():
            return (f"a brief was built then, and none can be now: {now.code}: {now.description}",)
    return ()


def _fact_changes(then: AgentBrief | Failure, now: AgentBrief | Failure) -> tuple[FactChange, ...] | None:
    if isinstance(then, Failure) or isinstance(now, Failure):
        return None
    before = {name: (fact.value, fact.unit) for name, fact in then.facts.items()}
    after = {name: (fact.value, fact.unit) for name, fact in now.facts.items()}
    differing = [name for name in dict.fromkeys((*before, *after)) if _typed(before.get(name)) != _typed(after.get(name))]
    return tuple(FactChange(name, _shown(before.get(name)), _shown(after.get(name))) for name in differing)


def _typed(value: tuple[Json, str | None] | None) -> tuple[Json, ...]:
    """`True` is no 1, and 1.0 is none either."""
    return () if value is None else (type(value[0]), *value)


def _shown(value: tuple[Json, str | None] | None) -> Json:
    if value is None:
        return None
    return f"{value[0]} {value[1]}" if value[1] else value[0]


def _compare_ingredients(agent: str, kept: MadeWith | None, team: Team | None) -> dict[str, Comparison]:
    if kept is None or team is None:
        return dict.fromkeys(INGREDIENTS, Comparison.UNKNOWN)
    if agent not in team.agents:
        return dict.fromkeys(INGREDIENTS, Comparison.CHANGED)
    now = team.made_with(agent, brief_sha256="", position=0)
    return {name: Comparison.SAME if getattr(kept, name) == getattr(now, name) else Comparison.CHANGED for name in INGREDIENTS}
