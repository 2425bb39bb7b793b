"""Tasks: a step that is ready, as whoever saw that it is says so. On its way it is a TASK message."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from schemas.messages import ORCHESTRATOR, AgentMessage, MessageType, TaskData, message
from schemas.requests import StepRecord


@dataclass(frozen=True, slots=True)
class Task:
    """The step as it was seen, and the versions that make it ready.

    Only versions and names are used from here. Task, needs and rights are taken from the board.
    """

    request_id: str
    step_id: str
    agent: str
    epoch: int
    record: StepRecord
    seen: Mapping[str, str]
    """Field -> version: of the step, the status, and all that it depends on or reads."""
    fields: tuple[str, ...]
    """What its claim is to return."""
    message_id: str
    """Of the message that brought it, or an id of its own where none did."""
    trace: str | None = None

    def bell(self) -> AgentMessage:
        """Return it as a new message to the step's agent."""
        return message(
            MessageType.TASK,
            self.request_id,
            step_id=self.step_id,
            sender=ORCHESTRATOR,
            recipient=self.agent,
            epoch=self.epoch,
            seen=dict(self.seen),
            task=TaskData(record=self.record, fields=self.fields),
            trace=self.trace,
        )
