"""Bells: the messages that decisions ring, built from what was read. No decision is made here."""

from __future__ import annotations

from orchestrator.decisions import Ring, RingDead, RingStatus, RingTask
from orchestrator.views import View
from schemas import broker, fields
from schemas.broker import Address
from schemas.ids import new_id
from schemas.messages import ORCHESTRATOR, AgentMessage, MessageType, message
from schemas.requests import StepState
from schemas.tasks import Task


def bell_of(ring: Ring, view: View) -> tuple[Address, AgentMessage]:
    """Return where a ring goes and its message; the view holds the step it names."""
    match ring:
        case RingTask():
            task = task_of(ring.step_id, view)
            return broker.to_agent(task.agent), task.bell()
        case RingStatus():
            bell = message(MessageType.REQUEST, view.request_id, sender=ORCHESTRATOR, recipient="*", content=ring.status)
            return broker.request_event(ring.status), bell
        case RingDead():
            return _dead(ring.step_id, view)


def task_of(step_id: str, view: View) -> Task:
    """Return a ready step with the versions that make it ready, so that the worker's claim needs no read before it."""
    seen, outline = view.step(step_id), view.outline
    assert seen is not None and outline is not None, "a step is rung from a view that holds it"
    definition = outline.definitions[step_id]
    inputs = outline.graph.inputs[step_id]
    expected = (fields.step(step_id), fields.STATUS, *map(fields.step, inputs), *map(fields.shared, definition.reads))
    return Task(
        request_id=view.request_id,
        step_id=step_id,
        agent=seen.record.agent,
        epoch=seen.record.epoch,
        record=seen.record,
        seen={name: view.version(name) for name in expected},
        fields=fields.of_brief(step_id, inputs, outline.constraints, definition.reads),
        message_id=new_id(),
        trace=outline.trace,
    )


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
