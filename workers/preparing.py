"""Preparing: the agent's brief out of what the claim returned, reading what is missing. Nothing is taken from the message."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from schemas import fields
from schemas.artifacts import ArtifactRef
from schemas.blackboard import ABSENT, Blackboard, Snapshot, Stored
from schemas.boundary import NO_BOUNDARY, BoundaryRecord
from schemas.errors import ProtocolViolation
from schemas.facts import Sensitivity
from schemas.frozen import deep_frozen
from schemas.plans import Step, inputs_of, needs_of
from schemas.requests import ConstraintRecord, PlanRecord, RequestRecord, StepRecord, StepState
from schemas.results import AgentResult
from schemas.shared import FieldRecord
from schemas.teams import TeamCard
from workers.agents.actions import actions_of
from workers.agents.agent import AgentBrief
from workers.briefing import BuiltBrief, NoBrief, build_brief
from workers.gating import SHARED_STEP, Boundary, Weighed, weigh_all
from workers.team import Team


@dataclass(frozen=True, slots=True)
class Material:
    """What a brief is built from, as it stood at one position of the board."""

    step: Step
    request: RequestRecord
    constraints: tuple[ConstraintRecord, ...]
    inputs: tuple[Step, ...]
    results: Mapping[str, AgentResult]
    versions: Mapping[str, str]
    position: int
    boundary: BoundaryRecord = NO_BOUNDARY
    shared: Mapping[str, FieldRecord] = field(default_factory=dict)
    now_ms: int | None = None
    """Board time of the claim; None: nothing expires."""


async def gather(board: Blackboard, step_id: str, have: Snapshot, position: int) -> Material:
    """Return the material of a step's brief, reading from the board what the claim did not bring.

    Raises:
        Unavailable: the board is not there.
        ProtocolViolation: the board has no such step or request.
    """
    stored, known = have.fields, have.asked
    while missing := [name for name in material_fields(step_id, stored) if name not in known]:
        snapshot = await board.read(have.request_id, missing)
        stored, known = {**stored, **snapshot.fields}, known.union(missing)
    return material_of(step_id, stored, position, now_ms=have.now_ms)


def material_fields(step_id: str, stored: Mapping[str, Stored]) -> tuple[str, ...]:
    """Return the fields that a step's brief is built from, as far as they can be named from what was read so far."""
    request, definition = stored.get(fields.REQUEST), stored.get(fields.definition(step_id))
    step = None if definition is None else _definition(definition.value)
    return fields.of_brief(
        step_id,
        () if step is None else inputs_of(step),
        () if request is None else _request(request.value).constraints,
        () if step is None else step.reads,
    )


def material_of(step_id: str, stored: Mapping[str, Stored], position: int, *, now_ms: int | None = None) -> Material:
    """Read the material out of fields.

    Raises:
        ProtocolViolation: the board has no such step or request.
    """
    if fields.REQUEST not in stored or fields.definition(step_id) not in stored:
        raise ProtocolViolation(f"the board has no definition of step {step_id!r}")
    request = _request(stored[fields.REQUEST].value)
    step = _definition(stored[fields.definition(step_id)].value)
    constraints = [stored[name] for name in map(fields.constraint, request.constraints) if name in stored]
    inputs = [each for each in inputs_of(step) if fields.definition(each) in stored]
    completed = [each for each in inputs if fields.result(each) in stored and _is_completed(each, stored)]
    results = {each: AgentResult.from_json(stored[fields.result(each)].value) for each in completed}
    return Material(
        step=step,
        request=request,
        constraints=tuple(ConstraintRecord.from_json(each.value) for each in constraints),
        inputs=_in_plan_order([_definition(stored[fields.definition(each)].value) for each in inputs], stored),
        results=results,
        versions={name: each.version for name, each in stored.items() if each.version != ABSENT},
        position=position,
        boundary=BoundaryRecord.from_json(stored[fields.BOUNDARY].value) if fields.BOUNDARY in stored else NO_BOUNDARY,
        shared={name: FieldRecord.from_json(stored[fields.shared(name)].value) for name in step.reads if fields.shared(name) in stored},
        now_ms=now_ms,
    )


def _is_completed(step_id: str, stored: Mapping[str, Stored]) -> bool:
    """Whether what a step said still holds: one that ran again and failed, or was given up as stale, has its old result on the board."""
    record = stored.get(fields.step(step_id))
    return record is None or StepRecord.from_json(record.value).state is StepState.COMPLETED


def references_of(material: Material) -> tuple[ArtifactRef, ...]:
    """Return the references among the facts that the step needs: the brief is of no use where what they stand for is gone."""
    needs = needs_of(material.step)
    facts = ((step, fact) for step, result in material.results.items() if result.completed for fact in result.facts)
    return tuple(
        fact.artifact
        for step, fact in facts
        if fact.artifact is not None and any(need.step == step and need.key in ("*", fact.key) for need in needs)
    )


def brief_of(material: Material, *, attempt: int, team: Team, unreadable: Collection[str] = ()) -> AgentBrief | NoBrief:
    """Return the brief for the agent, text and values, or why there is none.

    `unreadable` are the ids of artifacts that the store does not have, or has damaged.
    """
    built = build_brief(
        material.step,
        request=material.request,
        constraints=material.constraints,
        inputs=material.inputs,
        results=material.results,
        versions=material.versions,
        position=material.position,
        phrases=team.phrases,
        limits=team.limits,
        boundary=_boundary_of(material, team.card, unreadable),
    )
    if isinstance(built, NoBrief):
        return built
    return AgentBrief(
        brief=built.brief,
        step=material.step,
        constraints={each.name: each.value for each in material.constraints},
        facts=built.facts,
        packets={name: each.model_copy(update={"payload": deep_frozen(each.payload)}) for name, each in built.packets.items()},
        shared=deep_frozen(built.shared),
        empty=_empty(material, built),
        told=deep_frozen({name: each.communicated[-1].content for name, each in material.shared.items() if each.communicated}),
        cards=team.card.fields,
        actions=actions_of(material.step, team.actions, team.card.fields),
        crossings=built.crossings,
        reads=built.reads,
        attempt=attempt,
        phrases=team.phrases,
    )


def _empty(material: Material, built: BuiltBrief) -> dict[str, str]:
    """The shared fields that the step reads and that have no value, with their versions; one that the gate stopped has."""
    if not material.step.reads:
        return {}
    offered = {fields.shared(each.need.partition(".")[2]) for each in built.crossings if each.need.startswith(f"{SHARED_STEP}.")}
    unset = [name for name in material.step.reads if fields.shared(name) not in offered]
    return {name: material.versions.get(fields.shared(name), ABSENT) for name in unset}


def weigh(material: Material, card: TeamCard, unreadable: Collection[str] = ()) -> list[Weighed]:
    """Return what is offered to the step and what the gate decides of each, as the brief of this material has it."""
    completed = {each.id: material.results[each.id] for each in material.inputs if each.id in material.results}
    completed = {step: result for step, result in completed.items() if result.completed}
    return weigh_all(material.step, completed, material.versions, _boundary_of(material, card, unreadable))


def _boundary_of(material: Material, card: TeamCard, unreadable: Collection[str]) -> Boundary:
    agent = card.agents.get(material.step.agent)
    return Boundary(
        rules=card.rules,
        record=material.boundary,
        clearance=agent.clearance if agent is not None else Sensitivity.INTERNAL,
        cards=card.fields,
        shared=material.shared,
        now_ms=material.now_ms,
        unreadable=frozenset(unreadable),
    )


def _in_plan_order(steps: Sequence[Step], stored: Mapping[str, Stored]) -> tuple[Step, ...]:
    if fields.PLAN not in stored or len(steps) < 2:
        return tuple(steps)
    place = {step: index for index, step in enumerate(PlanRecord.from_json(stored[fields.PLAN].value).steps)}
    return tuple(sorted(steps, key=lambda step: place.get(step.id, len(place))))


@lru_cache(maxsize=256)
def _request(value: bytes) -> RequestRecord:
    """Each step of a request reads it, and more than once."""
    return RequestRecord.from_json(value)


@lru_cache(maxsize=4096)
def _definition(value: bytes) -> Step:
    """Requests of one team share their definitions, so the bytes are decoded once."""
    return Step.from_json(value)
