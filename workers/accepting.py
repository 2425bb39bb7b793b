"""Accepting: what an agent returned, checked against its step before anything is kept. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from schemas import fields
from schemas.errors import InvalidValue
from schemas.limits import MAX_VALUE_BYTES
from schemas.plans import Step
from schemas.requests import StepRecord, StepState
from schemas.results import AgentResult, Failure, FailureCode, MadeWith, ResultStatus, Termination
from workers.agents.actions import Action
from workers.agents.agent import TERMINATION_CODES, AgentBrief
from workers.changes import changes
from workers.evidence import grounds_of
from workers.judgements import judgements

MAX_CODE_CHARACTERS = 64
MAX_DESCRIPTION_CHARACTERS = 2_000


def keepable(code: str, description: str, *, retryable: bool = False) -> Failure:
    """Return a failure that can be kept whatever an agent said: Unicode, with a short code and a description of some lines."""
    return Failure(
        code=_unicode(code[:MAX_CODE_CHARACTERS]),
        description=_unicode(description[:MAX_DESCRIPTION_CHARACTERS]),
        retryable=retryable,
    )


def _unicode(text: str) -> str:
    return text.encode("utf-8", "replace").decode()


@dataclass(frozen=True, slots=True)
class Terms:
    """What a result is held against: the brief that it answers, and whatever says what is allowed."""

    brief: AgentBrief
    made_with: MadeWith
    request_id: str
    epoch: int
    now: datetime
    """By the team's clock."""
    actions: tuple[Action, ...] = ()
    """The team's."""


def accept(result: object, terms: Terms) -> tuple[AgentResult | None, Failure | None]:
    """Return the result as it is to be kept, and the failure if the step is FAILED.

    FAILED is a result that is none, is signed with another name, did not end in an answer, lacks an expected fact or a required
    judgement, has a fact that names another step, a judgement that the step does not declare or a change that a shared field
    does not take, is too large, or cannot be stored. Where nothing can be kept the result is None.
    """
    step, made_with = terms.brief.step, terms.made_with
    if not isinstance(result, AgentResult):
        return None, Failure(code=FailureCode.BAD_RESULT, description=f"the agent returned {type(result).__name__}, not a result")
    if result.agent != step.agent or result.step_id != step.id:
        description = f"the result is signed by {result.agent!r} for step {result.step_id!r}, not by {step.agent!r} for {step.id!r}"
        return None, Failure(code=FailureCode.WRONG_SIGNATURE, description=description)
    kept = result.model_copy(update={"made_with": made_with})
    failure = _failure(result, step)
    if failure is None:
        kept, failure = _with_what_it_says(kept, terms)
    if not step.may_plan and kept.steps:
        kept = kept.model_copy(update={"steps": ()})
    if failure is not None:
        kept = failing(kept, failure)
    try:
        size = len(kept.to_json())
    except InvalidValue as error:
        return None, Failure(code=FailureCode.BAD_RESULT, description=str(error))
    if size > MAX_VALUE_BYTES:
        description = f"the result has {size:,} bytes, the limit is {MAX_VALUE_BYTES:,}"
        return None, Failure(code=FailureCode.BAD_RESULT, description=description)
    return kept, failure


def failing(result: AgentResult, failure: Failure) -> AgentResult:
    """Return the result as that of a FAILED step: it plans nothing, says nothing to others and changes nothing."""
    return result.model_copy(update={"status": ResultStatus.FAILED, "failure": failure, "steps": (), "packets": (), "changes": ()})


def _with_what_it_says(result: AgentResult, terms: Terms) -> tuple[AgentResult, Failure | None]:
    """Hold judgements and changes against step and fields, and complete them."""
    if not (result.packets or result.changes or terms.brief.step.outputs):
        return result, None
    grounds = grounds_of(terms.brief, result)
    said = judgements(result, grounds, terms.made_with, request_id=terms.request_id, epoch=terms.epoch, now=terms.now)
    if isinstance(said, Failure):
        return result, said
    wanted = changes(result, grounds, terms.actions, now=terms.now)
    if isinstance(wanted, Failure):
        return result, wanted
    return result.model_copy(update={"packets": said, "changes": wanted}), None


def _failure(result: AgentResult, step: Step) -> Failure | None:
    if not result.completed:
        if result.failure is None:
            return Failure(code=FailureCode.AGENT_ERROR, description="the agent says that it failed, and not why")
        return keepable(result.failure.code, result.failure.description, retryable=result.failure.retryable)
    if result.termination is not Termination.ANSWERED:
        description = f"the agent says COMPLETED, but its run ended with {result.termination}"
        return Failure(code=TERMINATION_CODES[result.termination], description=description)
    for fact in result.facts:
        if fact.provenance.step != step.id:
            description = f"fact {fact.key!r} says that step {fact.provenance.step!r} observed it"
            return Failure(code=FailureCode.BAD_RESULT, description=description)
    brought: set[str] = set()
    for fact in result.facts:
        if fact.key in brought:
            return Failure(code=FailureCode.BAD_RESULT, description=f"fact {fact.key!r} is there twice")
        brought.add(fact.key)
    brought.update(packet.key for packet in result.packets)
    missing = [key for key in step.expects if key not in brought]
    if missing:
        return Failure(code=FailureCode.MISSING_OUTPUT, description=f"expected facts are missing: {', '.join(missing)}{faults_of(result)}")
    return None


def faults_of(result: AgentResult) -> str:
    """Return what to say of the tool calls that failed in a run, where something is missing that they might have brought."""
    return f" (failed tool calls: {'; '.join(result.tool_faults[:3])})" if result.tool_faults else ""


def refused_steps(result: object, step: Step) -> int:
    """Return how many further steps came from a step that may not plan; they are dropped, and recorded."""
    return len(result.steps) if isinstance(result, AgentResult) and not step.may_plan else 0


def end_of(record: StepRecord, failure: Failure | None) -> StepRecord:
    """Return the step's record at the end of this epoch."""
    state = StepState.COMPLETED if failure is None else StepState.FAILED
    first = record.first_error or (f"{failure.code}: {failure.description}"[:500] if failure else None)
    return record.model_copy(update={"state": state, "failure": failure, "first_error": first, "not_before_ms": 0})


def puts_of(step_id: str, record: StepRecord, result: AgentResult | None) -> dict[str, bytes]:
    """Return the fields of the one write that ends a step: its record, and its result where there is one."""
    puts = {fields.step(step_id): record.to_json()}
    if result is not None:
        puts[fields.result(step_id)] = result.to_json()
    return puts
