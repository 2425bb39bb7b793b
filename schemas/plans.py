"""Plans: steps, what they need of each other, and the pure graph functions over them.

A plan is a DAG and the work contract of a request. `validate` is the one gate: the producer passes a team's fixed plan
through it before anything is opened, the orchestrator passes through it what an agent plans at run time.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from graphlib import CycleError, TopologicalSorter
from typing import Annotated, Literal

from pydantic import Field, model_validator

from schemas.agents import AgentCard
from schemas.errors import InvalidPlan
from schemas.frozen import Frozen, Name
from schemas.gate import May
from schemas.limits import MAX_STEPS, within
from schemas.packets import OUTPUT_TYPES, Kind, OnFailure, Output, output_problem
from schemas.shared import FieldCard
from schemas.sharing import Sharer, check_sharers


class Budget(Frozen):
    """What one attempt of a step may use; `None` leaves the agent's own limit."""

    tokens: Annotated[int, Field(gt=0)] | None = None
    model_calls: Annotated[int, Field(gt=0)] | None = None
    tool_calls: Annotated[int, Field(gt=0)] | None = None


class Step(Frozen):
    """One piece of work: who does it, what it gets, what it must bring, and what it may use."""

    id: Name
    """Defaults to the agent's name."""
    title: Annotated[str, Field(min_length=1, max_length=200)]
    """What a user or a model may read. Internal names never stand here."""
    agent: Name
    task: Annotated[str, Field(min_length=1)]
    out_of_scope: str = ""
    depends_on: tuple[Name, ...] = ()
    needs: tuple[str, ...] | None = None
    """`step.key` or `step.*`, optional with a trailing `?`. `None`: all facts of the steps in `depends_on`."""
    expects: tuple[str, ...] = ()
    """Fact keys without which the step did not complete."""
    tools: tuple[str, ...] | None = None
    """Narrows the agent's tools; `None` leaves them all."""
    critical: bool = True
    may_plan: bool = False
    share_summary: bool = False
    """Whether this step's brief carries the summaries of the steps it depends on, as background."""
    timeout_seconds: Annotated[float, Field(gt=0)] = 300.0
    budget: Budget = Budget()
    max_attempts: Annotated[int, Field(ge=1, le=100)] = 3
    may: May = May.PROPOSE
    """What the step may do with what it learns: the gate asks more of what goes into one that may commit."""
    irreversible: bool = False
    """Whether what it commits cannot be taken back: then a person is asked first, however good the facts."""
    uses: tuple[str, ...] = ()
    """What it does with what it learns, in the words of a packet's allowed and forbidden use."""
    min_confidence: Annotated[float, Field(ge=0, le=1)] | None = None
    """Of what goes into its brief; None: what the boundary rules ask for what it may do."""
    outputs: tuple[Output, ...] = ()
    """Judgements that it may or must bring."""
    confirms: dict[str, str] = {}
    """Fact key of this step -> the finding (`step.key`) of another that it confirms from a source of its own."""
    reads: tuple[Name, ...] = ()
    """Shared fields that stand in its brief."""
    writes: tuple[Name, ...] = ()
    """Shared fields that it changes, adds to or reserves from."""
    superstep: Name | None = None
    """Steps of one superstep see one state of the shared fields, and what they add is merged when all of them have ended."""
    on_failure: OnFailure = OnFailure.FAIL
    """What happens where the gate blocks a value that it needs."""
    on_stale: Literal["rerun", "rollback", "person"] = "rerun"
    """What happens to its result when something that its brief carried was retracted."""

    @model_validator(mode="before")
    @classmethod
    def _id_defaults_to_agent(cls, data: object) -> object:
        if isinstance(data, dict) and "id" not in data and "agent" in data:
            return {**data, "id": data["agent"]}
        return data


@dataclass(frozen=True, slots=True)
class Need:
    """One entry of `Step.needs`, read."""

    step: str
    key: str
    """A fact key, or `*` for all."""
    optional: bool

    def __str__(self) -> str:
        return f"{self.step}.{self.key}{'?' if self.optional else ''}"


def parse_need(text: str, *, path: str = "") -> Need:
    """Read `step.key`, `step.*`, `step.key?` or `step.*?`.

    Raises:
        InvalidPlan: in any other form.
    """
    step, dot, key = text.partition(".")
    optional = key.endswith("?")
    key = key.removesuffix("?")
    if not (step and dot and key):
        raise InvalidPlan(f"a need has the form 'step.key' or 'step.*', optional with a trailing '?'; got {text!r}", path=path)
    return Need(step, key, optional)


def needs_of(step: Step) -> tuple[Need, ...]:
    """Return what crosses into `step`; without `needs`, everything of the steps it depends on (as optional wildcards)."""
    return _needs(step.needs, step.depends_on)


@lru_cache(maxsize=4096)
def _needs(needs: tuple[str, ...] | None, depends_on: tuple[str, ...]) -> tuple[Need, ...]:
    if needs is None:
        return tuple(Need(dependency, "*", optional=True) for dependency in depends_on)
    return tuple(parse_need(need) for need in needs)


def inputs_of(step: Step) -> tuple[str, ...]:
    """Return the steps that `step` reads or waits for, in declared order, each once."""
    return _inputs(step.needs, step.depends_on)


@lru_cache(maxsize=4096)
def _inputs(needs: tuple[str, ...] | None, depends_on: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*depends_on, *(need.step for need in _needs(needs, depends_on)))))


def is_absorbed(step: Step) -> bool:
    """Whether the end of `step` has to be taken in before what depends on it may run: it changes or confirms something."""
    asks = any(output.kind in (Kind.ACTION_REQUEST, Kind.RETRACTION) for output in step.outputs)
    return bool(step.writes or step.confirms or step.superstep or asks)


def dependents(steps: Iterable[Step]) -> dict[str, tuple[str, ...]]:
    """Return for each step the ids of the steps that directly depend on it."""
    found: dict[str, list[str]] = {}
    for step in steps:
        found.setdefault(step.id, [])
        for dependency in dict.fromkeys(step.depends_on):
            found.setdefault(dependency, []).append(step.id)
    return {step: tuple(ids) for step, ids in found.items()}


def ancestors(step_id: str, steps: Mapping[str, Step]) -> frozenset[str]:
    """Return every step that `step_id` depends on, directly or not."""
    seen: set[str] = set()
    pending = list(steps[step_id].depends_on)
    while pending:
        current = pending.pop()
        if current not in seen and current in steps:
            seen.add(current)
            pending.extend(steps[current].depends_on)
    return frozenset(seen)


def descendants(step_ids: Iterable[str], steps: Iterable[Step]) -> frozenset[str]:
    """Return every step that depends on one of `step_ids`, directly or not."""
    below = dependents(steps)
    seen: set[str] = set()
    pending = list(step_ids)
    while pending:
        for child in below.get(pending.pop(), ()):
            if child not in seen:
                seen.add(child)
                pending.append(child)
    return frozenset(seen)


def facts_of(step: Step, agent: AgentCard) -> frozenset[str]:
    """Return the keys of what may cross from `step`: facts of the rules whose tool it may use, and the judgements it declares."""
    judged = frozenset(output.key for output in step.outputs)
    if step.tools is None:
        return judged | frozenset(agent.facts)
    return judged | frozenset(key for key, tools in agent.facts.items() if not tools or set(tools) & set(step.tools))


def validate(
    steps: Sequence[Step],
    agents: Mapping[str, AgentCard],
    *,
    known: Mapping[str, Step] | None = None,
    shared: Mapping[str, FieldCard] | None = None,
    path: str = "steps",
) -> None:
    """Refuse a plan that could not be carried out; `known` are steps that the request has already, `shared` the team's fields.

    Without `shared` it is not asked what the steps do with shared fields.

    Raises:
        InvalidPlan: naming the step, dependency, need, tool, output, shared field or circle, with its path.
        LimitExceeded: more steps than a plan may have.
    """
    known = known or {}
    within(len(steps) + len(known), MAX_STEPS, "the plan", path=path, unit="steps")
    if not steps and not known:
        raise InvalidPlan("a plan has at least one step", path=path)
    every: dict[str, Step] = dict(known)
    for index, step in enumerate(steps):
        if step.id in every:
            raise InvalidPlan(f"step id {step.id!r} is used twice", path=f"{path}.{index}.id")
        every[step.id] = step
    for index, step in enumerate(steps):
        _check_agent(step, agents, f"{path}.{index}")
        for position, dependency in enumerate(step.depends_on):
            if dependency not in every:
                raise InvalidPlan(
                    f"there is no step {dependency!r}{_did_you_mean(dependency, every)}", path=f"{path}.{index}.depends_on.{position}"
                )
    _refuse_circle(every, path)
    for index, step in enumerate(steps):
        _check_needs(step, every, agents, f"{path}.{index}")
        _check_confirms(step, every, agents, f"{path}.{index}")
    if shared is not None:
        places = {step.id: f"{path}.{index}" for index, step in enumerate(steps)}
        check_sharers(
            [
                Sharer(step.id, step.reads, step.writes, step.superstep, ancestors(step.id, every), places.get(step.id, ""))
                for step in every.values()
            ],
            shared,
        )


def _check_agent(step: Step, agents: Mapping[str, AgentCard], path: str) -> None:
    agent = agents.get(step.agent)
    if agent is None:
        raise InvalidPlan(f"the team has no agent {step.agent!r}{_did_you_mean(step.agent, agents)}", path=f"{path}.agent")
    if step.irreversible and step.may is not May.COMMIT:
        raise InvalidPlan("only a step that may commit does what cannot be taken back; say may='commit'", path=f"{path}.irreversible")
    for tool in step.tools or ():
        if tool not in agent.tools:
            raise InvalidPlan(f"agent {agent.name!r} has no tool {tool!r}{_did_you_mean(tool, agent.tools)}", path=f"{path}.tools")
    _check_outputs(step, agent, path)
    producible = facts_of(step, agent)
    for key in step.expects:
        if key not in producible:
            raise InvalidPlan(
                f"no rule of agent {agent.name!r} produces fact {key!r}{_did_you_mean(key, producible)}", path=f"{path}.expects"
            )


def _check_outputs(step: Step, agent: AgentCard, path: str) -> None:
    for index, output in enumerate(step.outputs):
        where = f"{path}.outputs.{index}"
        if output.kind in (Kind.FACT, Kind.ERROR):
            raise InvalidPlan(f"no agent says a {output.kind}: facts are copied from tool returns by rule", path=f"{where}.kind")
        if output.key in agent.facts or any(output.key == other.key for other in step.outputs[:index]):
            raise InvalidPlan(f"{output.key!r} is there twice", path=f"{where}.key")
        if output.type not in OUTPUT_TYPES:
            raise InvalidPlan(f"there is no type {output.type!r}{_did_you_mean(output.type, OUTPUT_TYPES)}", path=f"{where}.type")
        for choice in output.choices:
            if output_problem(output, choice):
                raise InvalidPlan(f"the choice {choice!r} is not {output.type}", path=f"{where}.choices")


def _check_confirms(step: Step, every: Mapping[str, Step], agents: Mapping[str, AgentCard], path: str) -> None:
    for key, text in step.confirms.items():
        where = f"{path}.confirms.{key}"
        facts = facts_of(step.model_copy(update={"outputs": ()}), agents[step.agent])
        if key not in facts:
            raise InvalidPlan(f"no rule of step {step.id!r} produces fact {key!r}{_did_you_mean(key, facts)}", path=where)
        finding = parse_need(text, path=where)
        if finding.step not in every:
            raise InvalidPlan(f"there is no step {finding.step!r}{_did_you_mean(finding.step, every)}", path=where)
        judged = [output.key for output in every[finding.step].outputs]
        if finding.key not in judged:
            raise InvalidPlan(f"step {finding.step!r} declares no output {finding.key!r}{_did_you_mean(finding.key, judged)}", path=where)


def _check_needs(step: Step, every: Mapping[str, Step], agents: Mapping[str, AgentCard], path: str) -> None:
    if step.needs is None:
        for position, dependency in enumerate(step.depends_on):
            if not facts_of(every[dependency], agents[every[dependency].agent]):
                raise InvalidPlan(
                    f"agent {every[dependency].agent!r} of step {dependency!r} declares no facts, so nothing would cross; "
                    "declare its facts, or write needs=() to depend on the order alone",
                    path=f"{path}.depends_on.{position}",
                )
        return
    above = ancestors(step.id, every)
    for position, text in enumerate(step.needs):
        where = f"{path}.needs.{position}"
        need = parse_need(text, path=where)
        if need.step not in above:
            raise InvalidPlan(f"{need.step!r} is no step that {step.id!r} depends on, directly or not", path=where)
        producible = facts_of(every[need.step], agents[every[need.step].agent])
        if not producible:
            raise InvalidPlan(f"agent {every[need.step].agent!r} of step {need.step!r} declares no facts", path=where)
        if need.key != "*" and need.key not in producible:
            raise InvalidPlan(f"no rule of step {need.step!r} produces fact {need.key!r}{_did_you_mean(need.key, producible)}", path=where)


def _refuse_circle(steps: Mapping[str, Step], path: str) -> None:
    try:
        TopologicalSorter({step.id: step.depends_on for step in steps.values()}).prepare()
    except CycleError as error:
        raise InvalidPlan(f"the steps wait for each other in a circle: {' -> '.join(reversed(error.args[1]))}", path=path) from error


def _did_you_mean(name: str, known: Collection[str]) -> str:
    listed = ", ".join(sorted(known)[:12])
    return f"; there are: {listed}" if listed else ""
