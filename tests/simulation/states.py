"""A request's state as plain values, folded from events by a way of its own: the checker shares no judgement with what it checks."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache

from schemas import fields
from schemas.blackboard import Event, Stored
from schemas.boundary import NO_BOUNDARY, NOTHING_ABSORBED, AbsorbedRecord, BoundaryRecord
from schemas.packets import Kind
from schemas.plans import Step, inputs_of
from schemas.requests import AnswerRecord, PlanRecord, StatusRecord, StepRecord, StepState
from schemas.results import AgentResult
from schemas.shared import FieldCard, FieldRecord
from schemas.teams import TeamCard


@lru_cache(maxsize=8192)
def _step(value: bytes) -> Step:
    return Step.from_json(value)


@lru_cache(maxsize=8192)
def _record(value: bytes) -> StepRecord:
    return StepRecord.from_json(value)


@lru_cache(maxsize=8192)
def _result(value: bytes) -> AgentResult:
    return AgentResult.from_json(value)


@lru_cache(maxsize=64)
def _cards(value: bytes) -> dict[str, FieldCard]:
    return TeamCard.from_json(value).fields


@dataclass
class State:
    """What a request's events add up to, so far."""

    stored: dict[str, Stored] = field(default_factory=dict)
    last_event: dict[str, Event] = field(default_factory=dict)
    """Field -> the event that put it last."""
    status: StatusRecord | None = None
    plan: PlanRecord | None = None
    answer: AnswerRecord | None = None
    steps: dict[str, StepRecord] = field(default_factory=dict)
    definitions: dict[str, Step] = field(default_factory=dict)
    results: dict[str, AgentResult] = field(default_factory=dict)
    boundary: BoundaryRecord = NO_BOUNDARY
    absorbed: AbsorbedRecord = NOTHING_ABSORBED
    shared: dict[str, FieldRecord] = field(default_factory=dict)
    cards: dict[str, FieldCard] = field(default_factory=dict)

    def take(self, event: Event) -> None:
        """Apply one event."""
        for name, (version, value) in event.put.items():
            self.stored[name] = Stored(value, version, event.position, event.at_ms)
            self.last_event[name] = event
            self._decode(name, value)

    def _decode(self, name: str, value: bytes) -> None:
        if name.startswith(fields.STEP_PREFIX):
            self.steps[name.removeprefix(fields.STEP_PREFIX)] = _record(value)
        elif name.startswith(fields.PLAN_PREFIX):
            self.definitions[name.removeprefix(fields.PLAN_PREFIX)] = _step(value)
        elif name.startswith(fields.RESULT_PREFIX):
            self.results[name.removeprefix(fields.RESULT_PREFIX)] = _result(value)
        elif name == fields.STATUS:
            self.status = StatusRecord.from_json(value)
        elif name == fields.PLAN:
            self.plan = PlanRecord.from_json(value)
        elif name == fields.ANSWER:
            self.answer = AnswerRecord.from_json(value)
        elif name == fields.BOUNDARY:
            self.boundary = BoundaryRecord.from_json(value)
        elif name == fields.ABSORBED:
            self.absorbed = AbsorbedRecord.from_json(value)
        elif name == fields.CARD:
            self.cards = _cards(value)
        elif name.startswith(fields.SHARED_PREFIX):
            self.shared[name.removeprefix(fields.SHARED_PREFIX)] = FieldRecord.from_json(value)

    def stopped(self, step: str) -> bool:
        """Whether a step that has not run stands below a failed critical one."""
        if self.steps[step].state is not StepState.PENDING:
            return False
        for each in inputs_of(self.definitions[step]):
            if self.steps[each].state is StepState.FAILED and self.definitions[each].critical and self.taken_in(each):
                return True
            if self.stopped(each):
                return True
        return False

    def passed(self, step: str) -> bool:
        """Whether what depends on `step` need not wait for it: it has ended well, and was taken in."""
        return self.ended_well(step) and self.taken_in(step)

    def ended_well(self, step: str) -> bool:
        """Whether a step is completed, or failed and not critical."""
        record = self.steps[step]
        return record.state is StepState.COMPLETED or (record.state is StepState.FAILED and not self.definitions[step].critical)

    def taken_in(self, step: str) -> bool:
        """Whether nothing of a step that has ended is still to be taken in: its changes, and those of its superstep."""
        return not _changes(self.definitions[step]) or (step, self.steps[step].epoch) in self.absorbed.steps

    def ready(self, step: str) -> bool:
        """Whether a step may be claimed."""
        return self.steps[step].state is StepState.PENDING and all(self.passed(each) for each in inputs_of(self.definitions[step]))

    def settled(self, step: str) -> bool:
        """Whether nothing more happens to a step by itself."""
        return self.steps[step].state.over or self.stopped(step)

    def growth_taken_in(self) -> bool:
        """Whether the further steps of every completed step that may plan are in the plan."""
        taken = set(self.plan.taken_in) if self.plan else set()
        return all(
            (step, record.epoch) in taken
            for step, record in self.steps.items()
            if record.state is StepState.COMPLETED and self.definitions[step].may_plan
        )


def _changes(step: Step) -> bool:
    """Whether the end of a step is the business of others than those that need its facts."""
    asks = any(output.kind in (Kind.ACTION_REQUEST, Kind.RETRACTION) for output in step.outputs)
    return bool(step.writes or step.confirms or step.superstep or asks)


def state_of(events: Iterable[Event]) -> State:
    """Return the state after all of these events."""
    state = State()
    for event in events:
        state.take(event)
    return state
