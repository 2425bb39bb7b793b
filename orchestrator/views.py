"""Views: what the orchestrator knows of one request at one moment, read from snapshots. Pure; no decision is made here.

A view may be partial: a step that is not in it is unknown, never settled.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from graphlib import TopologicalSorter
from typing import Literal, TypeVar

from schemas import fields
from schemas.blackboard import ABSENT, Snapshot, Stored, Write, Written
from schemas.boundary import NO_BOUNDARY, NOTHING_ABSORBED, AbsorbedRecord, BoundaryRecord
from schemas.errors import Unreadable
from schemas.frozen import Frozen
from schemas.plans import Step, inputs_of, is_absorbed
from schemas.requests import ConstraintRecord, PlanRecord, RequestRecord, StatusRecord, StepRecord
from schemas.results import AgentResult
from schemas.shared import FieldRecord
from schemas.teams import TeamCard


@dataclass(frozen=True, slots=True)
class StepView:
    """One step as it was read: its record, the version that fences it, and when and where in the order it was written."""

    record: StepRecord
    version: str
    position: int
    at_ms: int
    lease_until_ms: int = 0
    """End of the lease that fits this version; 0 where there is none."""

    def held(self, now_ms: int) -> bool:
        """Whether somebody has a live lease on the step."""
        return self.lease_until_ms > now_ms


@dataclass(frozen=True, slots=True, eq=False)
class Graph:
    """The steps of a plan and how they hang together; one object for all requests with the same steps, compared by identity."""

    definitions: Mapping[str, Step]
    """In plan order."""
    inputs: Mapping[str, tuple[str, ...]]
    """Step -> the steps that it reads or waits for."""
    order: tuple[str, ...]
    """The steps, each after its inputs."""
    waiters: Mapping[str, tuple[str, ...]]
    """Step -> the steps that have it among their inputs."""
    absorbing: frozenset[str] = frozenset()
    """Steps whose end is taken in (`orchestrator.absorbing`) before anything that depends on them runs."""


@dataclass(frozen=True, slots=True)
class Outline:
    """What a plan's version says and no later write changes: its steps, and of the request the constraints' names.

    It may be kept and used for a request as long as `plan` still has `version`.
    """

    version: str
    record: PlanRecord
    graph: Graph
    constraints: tuple[str, ...]
    language: Literal["en", "zh"] | None = None
    """The team's, where its card was read."""
    trace: str | None = None

    @property
    def definitions(self) -> Mapping[str, Step]:
        """The steps' definitions in plan order."""
        return self.graph.definitions


@dataclass(frozen=True, slots=True)
class View:
    """What was read of one request: each field with its version (`ABSENT` included), so that a write can expect all of it."""

    request_id: str
    now_ms: int
    position: int
    stored: Mapping[str, Stored]
    asked: frozenset[str]
    leases: Mapping[str, int] = field(default_factory=dict)
    outline: Outline | None = None
    source: Snapshot | None = None
    """Of a fork: what was read of the request that it takes up."""
    _steps: dict[str, StepView] = field(default_factory=dict, init=False, repr=False, compare=False)
    """The steps that were looked at: one look asks for each of them many times."""

    @property
    def exists(self) -> bool:
        """Whether the board knows the request."""
        return self.position > 0

    @property
    def request(self) -> RequestRecord | None:
        """The request's record, where it was read."""
        return _decode(RequestRecord, self.stored.get(fields.REQUEST))

    @property
    def card(self) -> TeamCard | None:
        """The team's card, where it was read."""
        stored = self.stored.get(fields.CARD)
        return _decode(TeamCard, stored)

    @property
    def status(self) -> StatusRecord:
        """The request's status; asked of an existing request only."""
        status: StatusRecord = decoded(StatusRecord, self.stored[fields.STATUS].value)
        return status

    @property
    def plan(self) -> PlanRecord | None:
        """The plan as it was read now."""
        return _decode(PlanRecord, self.stored.get(fields.PLAN))

    @property
    def boundary(self) -> BoundaryRecord:
        """What was withdrawn, confirmed and decided, where it was read."""
        return _decode(BoundaryRecord, self.stored.get(fields.BOUNDARY)) or NO_BOUNDARY

    @property
    def absorbed(self) -> AbsorbedRecord:
        """Whose changes were taken in, where it was read."""
        return _decode(AbsorbedRecord, self.stored.get(fields.ABSORBED)) or NOTHING_ABSORBED

    @property
    def shared(self) -> dict[str, FieldRecord]:
        """The shared fields that were read and exist, by name."""
        prefix = fields.SHARED_PREFIX
        found = ((name, stored) for name, stored in self.stored.items() if name.startswith(prefix))
        return {name.removeprefix(prefix): FieldRecord.from_json(stored.value) for name, stored in found}

    def version(self, name: str) -> str:
        """Version of a field that was read."""
        stored = self.stored.get(name)
        return ABSENT if stored is None else stored.version

    def step(self, step_id: str) -> StepView | None:
        """A step, or None where it is unknown in this view."""
        if (known := self._steps.get(step_id)) is not None:
            return known
        stored = self.stored.get(fields.step(step_id))
        if stored is None:
            return None
        seen = StepView(decoded(StepRecord, stored.value), stored.version, stored.position, stored.at_ms, self.leases.get(step_id, 0))
        self._steps[step_id] = seen
        return seen

    def result(self, step_id: str) -> AgentResult | None:
        """A step's result, where it was read and exists."""
        return _decode(AgentResult, self.stored.get(fields.result(step_id)))

    def constraint(self, name: str) -> ConstraintRecord | None:
        """A shared constraint, where it was read."""
        return _decode(ConstraintRecord, self.stored.get(fields.constraint(name)))

    def knows(self, names: Iterable[str]) -> bool:
        """Whether all of these fields were read (absent ones count as read)."""
        return self.asked.issuperset(names)

    def missing(self, names: Iterable[str]) -> tuple[str, ...]:
        """Those of the fields that were not read yet."""
        return tuple(name for name in names if name not in self.asked)

    def joined(self, snapshot: Snapshot) -> View:
        """This view with what a further read saw; fields read twice count as read last."""
        return replace(
            self,
            now_ms=snapshot.now_ms,
            position=max(self.position, snapshot.position),
            stored={**self.stored, **snapshot.fields},
            asked=self.asked | snapshot.asked,
            leases={**self.leases, **snapshot.leases},
        )

    def with_source(self, snapshot: Snapshot) -> View:
        """This view with what a further read of the source saw."""
        if self.source is None:
            return replace(self, source=snapshot)
        known = {**self.source.fields, **snapshot.fields}
        return replace(self, source=replace(snapshot, fields=known, asked=self.source.asked | snapshot.asked))

    def after(self, write: Write, written: Written) -> View:
        """This view as it is after a write of our own."""
        stored = dict(self.stored)
        for name, value in write.put.items():
            stored[name] = Stored(value, written.versions[name], written.position, written.at_ms)
        return replace(self, now_ms=written.at_ms, position=written.position, stored=stored, asked=self.asked | write.put.keys())


def view_of(snapshot: Snapshot, outline: Outline | None = None) -> View:
    """The view of one read; an outline is kept only if `plan` still has its version."""
    fitting = outline if outline is not None and outline.version == snapshot.version(fields.PLAN) else None
    view = View(snapshot.request_id, snapshot.now_ms, snapshot.position, snapshot.fields, snapshot.asked, snapshot.leases, fitting)
    return outlined(view, outline)


def outlined(view: View, known: Outline | None = None) -> View:
    """The view with its plan's outline: the known one if it still fits, one made from what was read, or none.

    Raises:
        Unreadable: the plan names a step whose definition the board does not have.
    """
    version = view.version(fields.PLAN)
    if known is not None and known.version == version:
        return _with_outline(view, known)
    plan, request = view.plan, view.request
    if plan is None or request is None or not view.knows(map(fields.definition, plan.steps)):
        return _with_outline(view, None)
    if lost := [step for step in plan.steps if fields.definition(step) not in view.stored]:
        raise Unreadable(f"the plan of {view.request_id} names {lost[0]!r}, and the board has no definition of it")
    graph = graph_of(tuple(view.stored[fields.definition(step)].value for step in plan.steps))
    card = view.card
    language = card.language if card else None
    return _with_outline(view, Outline(version, plan, graph, request.constraints, language, request.trace))


def _with_outline(view: View, outline: Outline | None) -> View:
    return view if view.outline is outline else replace(view, outline=outline)


def outline_fields(view: View) -> tuple[str, ...]:
    """What has to be read for an outline and a full view. Where `plan` changed between two reads, all of it anew."""
    plan = view.plan
    steps = plan.steps if plan else ()
    needed = (fields.REQUEST, *map(fields.definition, steps))
    return view.missing((*needed, *map(fields.step, steps))) or (fields.PLAN, *needed)


_Record = TypeVar("_Record", bound=Frozen)


def _decode(record: type[_Record], stored: Stored | None) -> _Record | None:
    return None if stored is None else decoded(record, stored.value)


@lru_cache(maxsize=512)
def decoded(record: type[_Record], value: bytes) -> _Record:
    """A look reads its records several times, and the same ones stand in the views of its next looks."""
    return record.from_json(value)


@lru_cache(maxsize=256)
def graph_of(definitions: tuple[bytes, ...]) -> Graph:
    """Requests of one team have the same definitions, so these are decoded, and their graph is made, once."""
    steps = {step.id: step for step in map(Step.from_json, definitions)}
    inputs = {step.id: inputs_of(step) for step in steps.values()}
    waiters: dict[str, list[str]] = {step: [] for step in inputs}
    for step, needed in inputs.items():
        for other in needed:
            waiters[other].append(step)
    order = tuple(TopologicalSorter(inputs).static_order())
    absorbing = frozenset(step.id for step in steps.values() if is_absorbed(step))
    return Graph(steps, inputs, order, {step: tuple(waiting) for step, waiting in waiters.items()}, absorbing)
