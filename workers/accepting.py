"""Accepting: what an agent returned, checked against its step before anything is kept. Pure."""

from __future__ import annotations

from schemas import fields
from schemas.errors import InvalidValue
from schemas.limits import MAX_VALUE_BYTES
from schemas.plans import Step
from schemas.requests import StepRecord, StepState
from schemas.results import AgentResult, Failure, FailureCode, MadeWith, ResultStatus, Termination
from workers.agents.agent import TERMINATION_CODES

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


def accept(result: object, step: Step, made_with: MadeWith) -> tuple[AgentResult | None, Failure | None]:
    """Return the result as it is to be kept, and the failure if the step is FAILED.

    FAILED is a result that is none, is signed with another name, did not end in an answer, lacks an expected fact, has a
    fact that names another step, is too large, or cannot be stored. Where nothing can be kept the result is None.
    """
    if not isinstance(result, AgentResult):
        return None, Failure(code=FailureCode.BAD_RESULT, description=f"the agent returned {type(result).__name__}, not a result")
    if result.agent != step.agent or result.step_id != step.id:
        description = f"the result is signed by {result.agent!r} for step {result.step_id!r}, not by {step.agent!r} for {step.id!r}"
        return None, Failure(code=FailureCode.WRONG_SIGNATURE, description=description)
    failure = _failure(result, step)
    kept = result.model_copy(update={"made_with": made_with})
    if not step.may_plan and kept.steps:
        kept = kept.model_copy(update={"steps": ()})
    if failure is not None:
        kept = kept.model_copy(update={"status": ResultStatus.FAILED, "failure": failure, "steps": ()})
    try:
        size = len(kept.to_json())
    except InvalidValue as error:
        return None, Failure(code=FailureCode.BAD_RESULT, description=str(error))
    if size > MAX_VALUE_BYTES:
        description = f"the result has {size:,} bytes, the limit is {MAX_VALUE_BYTES:,}"
        return None, Failure(code=FailureCode.BAD_RESULT, description=description)
    return kept, failure


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
    missing = [key for key in step.expects if key not in {fact.key for fact in result.facts}]
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
