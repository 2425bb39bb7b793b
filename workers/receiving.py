"""Receiving: a TASK message read as what it asks for, before anything is claimed. Pure."""

from __future__ import annotations

from schemas import fields
from schemas.errors import ProtocolViolation
from schemas.messages import ORCHESTRATOR, AgentMessage, MessageType
from schemas.tasks import Task


def task_of(bell: AgentMessage, agent: str) -> Task:
    """Read a TASK from an agent's queue.

    Raises:
        ProtocolViolation: no TASK, or one with a wrong sender or recipient, or without what a claim needs.
    """
    if bell.type is not MessageType.TASK or bell.step_id is None or bell.task is None:
        raise ProtocolViolation(f"a {bell.type} without a task does not belong to the queue of an agent")
    if bell.sender != ORCHESTRATOR or bell.recipient != agent:
        raise ProtocolViolation(f"a task of {bell.sender!r} for {bell.recipient!r} came to agent {agent!r}")
    told = fields.step(bell.step_id) in bell.seen and fields.STATUS in bell.seen
    if not told or bell.task.record.agent != agent or bell.task.record.epoch != bell.epoch:
        raise ProtocolViolation(f"the task for step {bell.step_id!r} does not say which state of it was seen")
    return Task(
        request_id=bell.request_id,
        step_id=bell.step_id,
        agent=agent,
        epoch=bell.epoch,
        record=bell.task.record,
        seen=bell.seen,
        fields=bell.task.fields,
        message_id=bell.id,
        trace=bell.trace,
    )
