"""Judgements: what an agent concludes, held against what its step declares, and completed with what makes it a packet. Pure.

An agent says value, confidence, evidence and reason. Who said it, when, until when, under which rules and model, and what may be
done with it stands in the step and is filled in here, whatever the agent wrote there. Called when a result is accepted; the
first part also while a model runs, so that it learns at once what is wrong.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from schemas.errors import InvalidValue
from schemas.packets import Control, Kind, Output, Packet, Payload, output_problem
from schemas.results import AgentResult, Failure, FailureCode, MadeWith
from workers.evidence import Grounds

_NEEDS_NONE = (Kind.RETRACTION, Kind.ARTIFACT_REF)
"""What rests on nothing but what it names."""


def checked(output: Output, packet: Packet, grounds: Grounds) -> Packet:
    """Return a judgement with its payload and evidence resolved.

    Raises:
        InvalidValue: another type or choice, evidence that is missing or refers to nothing, a withdrawal of what was not read.
    """
    if problem := output_problem(output, packet.payload):
        raise InvalidValue(problem)
    evidence = grounds.again(packet.control.evidence)
    if output.needs_evidence and not evidence and output.kind not in _NEEDS_NONE:
        raise InvalidValue("names no evidence")
    control = packet.control.model_copy(update={"evidence": evidence})
    return packet.model_copy(update={"payload": _payload(output, packet.payload, grounds), "control": control})


def _payload(output: Output, payload: Payload, grounds: Grounds) -> Payload:
    if output.kind is Kind.ARTIFACT_REF and not grounds.is_readable(payload):
        raise InvalidValue(f"no material {str(payload)[:100]!r} was given to this task")
    if output.kind is not Kind.RETRACTION:
        return payload
    names = grounds.named(str(payload))
    if len(names) != 1:
        said = "stands for several values here" if names else "is nothing that was read here"
        raise InvalidValue(f"{str(payload)[:100]!r} {said}, so it cannot be withdrawn")
    return names[0]


def judgements(
    result: AgentResult, grounds: Grounds, made_with: MadeWith, *, request_id: str, epoch: int, now: datetime
) -> tuple[Packet, ...] | Failure:
    """Return a result's judgements as they are kept, or why the step is FAILED.

    `BAD_RESULT` for one that the step does not declare, or that is not what it declares; `MISSING_OUTPUT` for a required one
    that is not there.
    """
    step = grounds.brief.step
    declared = {output.key: output for output in step.outputs}
    kept: list[Packet] = []
    for packet in result.packets:
        output = declared.get(packet.key)
        if output is None or output.kind is not packet.kind:
            return _bad(f"step {step.id!r} declares no {packet.kind} {packet.key!r}")
        if packet.control.producer != step.id:
            return _bad(f"{packet.kind} {packet.key!r} says that step {packet.control.producer!r} made it")
        if any(packet.key == other.key for other in kept):
            return _bad(f"{packet.kind} {packet.key!r} is there twice")
        try:
            found = checked(output, packet, grounds)
        except InvalidValue as error:
            return _bad(f"{packet.kind} {packet.key!r}: {error}")
        control = _control(output, found.control, grounds, made_with, now)
        control = control.model_copy(update={"idempotency_key": f"{request_id}:{step.id}:{packet.key}:v{epoch + 1}"})
        kept.append(Packet(kind=output.kind, key=output.key, payload=found.payload, unit=output.unit, basis=packet.basis, control=control))
    missing = [output.key for output in step.outputs if output.required and output.key not in {each.key for each in kept}]
    if missing:
        return Failure(code=FailureCode.MISSING_OUTPUT, description=f"required outputs are missing: {', '.join(missing)}")
    return tuple(kept)


def _control(output: Output, said: Control, grounds: Grounds, made_with: MadeWith, now: datetime) -> Control:
    return Control(
        producer=grounds.brief.step_id,
        evidence=said.evidence,
        confidence=said.confidence,
        created_at=now,
        expires_at=None if output.ttl_seconds is None else now + timedelta(seconds=output.ttl_seconds),
        policy_version=grounds.brief.brief.manifest.boundary,
        model_version=made_with.model,
        rules_version=made_with.rules,
        sensitivity=output.sensitivity,
        allowed_use=output.allowed_use,
        forbidden_use=output.forbidden_use,
        seen={name: read.version for name, read in grounds.brief.reads.items()},
        on_failure=output.on_failure,
        reason=said.reason,
    )


def _bad(description: str) -> Failure:
    return Failure(code=FailureCode.BAD_RESULT, description=description)
