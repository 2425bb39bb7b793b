"""Bells: the messages that decisions ring, built from what was read. No decision is made here."""

from __future__ import annotations

from orchestrator.decisions import Ring, RingDead, RingStatus, RingTask
from orchestrator.views import View
from schemas import broker, fields
from schemas.broker import Address
from schemas.messages import ORCHESTRATOR, AgentMessage, MessageType, TaskData, message
from schemas.plans import inputs_of
from schemas.requests import StepState


def bell_of(ring: Ring, view: View) -> tuple[Address, AgentMessage]:
    """Return where a ring goes and its message; the view holds the step it names."""
    match ring:
        case RingTask():
            return _task(ring.step_id, view)
        case RingStatus():
            bell = message(MessageType.REQUEST, view.request_id, sender=ORCHESTRATOR, recipient="*", content=ring.status)
            return broker.request_event(ring.status), bell
        case RingDead():
            return _dead(ring.step_id, view)


def _task(step_id: str, view: View) -> tuple[Address, AgentMessage]:
    """A TASK with the versions that make the step ready, so that the worker's claim needs no read before it."""
    seen, outline = view.step(step_id), view.outline
    assert seen is not None and outline is not None, "a step is rung from a view that holds it"
    definition = outline.definitions[step_id]
    shared = tuple(map(fields.shared, definition.reads))
    expected = (fields.step(step_id), fields.STATUS, *map(fields.step, inputs_of(definition)), *shared)
    bell = message(
        MessageType.TASK,
        view.request_id,
        step_id=step_id,
        sender=ORCHESTRATOR,
        recipient=seen.record.agent,
        epoch=seen.record.epoch,
        seen={name: view.version(name) for name in expected},
        task=TaskData(record=seen.record, fields=fields.of_brief(step_id, inputs_of(definition), outline.constraints, definition.reads)),
        trace=outline.trace,
    )
    return broker.to_agent(seen.record.agent), bell


def _dead(step_id: str, view: View) -> tuple[Address, AgentMessage]:
    seen = view.step(step_id)
    assert seen is not None, "a dead letter is rung from a view that holds its step"
    failure = seen.record.failure
    bell = message(
        MessageType.RESULT_FAILED,
        view.request_id,
        step_id=step_id,
        sender=seen.record.agent,
        recipient="people",
        content=f"{failure.code}: {failure.description}"[:500] if failure else "",
        epoch=seen.record.epoch,
        seen={fields.step(step_id): seen.version},
        state=StepState.FAILED,
    )
    return broker.to_dead(seen.record.agent), bell
