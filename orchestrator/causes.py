"""Causes: why the orchestrator looks at a request. Values only; what follows from one is decided in `orchestrator.advancing`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from schemas.gate import BoundaryRules
from schemas.messages import AgentMessage
from schemas.requests import StepState


@dataclass(frozen=True, slots=True)
class Submitted:
    """A producer opened the request."""

    message_id: str = ""


@dataclass(frozen=True, slots=True)
class ResultCame:
    """A worker says that a step has ended."""

    step_id: str
    epoch: int
    state: StepState
    version: str
    sender: str
    recipient: str
    message_id: str = ""
    again: bool = False
    """Found ended by who was to run it: whatever should have come next may not have been rung, or lost its worker."""


@dataclass(frozen=True, slots=True)
class CancelAsked:
    """Somebody wants the request to end now."""

    reason: str
    message_id: str = ""
    replays: int = 0
    """How often the request had been replayed when it was asked for."""


@dataclass(frozen=True, slots=True)
class ReplayAsked:
    """Somebody wants a failed step to be tried again; `epoch` is the one that failed."""

    step_id: str
    epoch: int
    message_id: str = ""
    sender: str = ""
    """Who asked, for the record."""


@dataclass(frozen=True, slots=True)
class DropAsked:
    """Somebody wants a dead letter out of the list, for a reason."""

    step_id: str
    epoch: int
    reason: str
    message_id: str = ""
    sender: str = ""
    """Who asked, for the record."""


@dataclass(frozen=True, slots=True)
class RetractAsked:
    """Somebody withdraws what a step said."""

    step_id: str
    key: str
    reason: str
    recheck: bool = False
    """Whether the step itself is to run again."""
    message_id: str = ""
    sender: str = ""
    version: str = ""
    """Of the step's result as whoever asks had seen it; empty where nobody says."""


@dataclass(frozen=True, slots=True)
class DecideAsked:
    """Somebody decided an item of the desk."""

    item: str
    choice: str
    reason: str
    message_id: str = ""
    sender: str = ""
    version: str = ""
    """Of what the item is read off, as whoever decides had seen it; empty where nobody says."""


@dataclass(frozen=True, slots=True)
class RulesAsked:
    """Somebody wants other boundary rules for the request."""

    rules: BoundaryRules
    message_id: str = ""
    sender: str = ""
    replays: int | None = None
    """How often the request had gone on when it was asked for; None where nobody says."""


@dataclass(frozen=True, slots=True)
class Noticed:
    """The broker gave up a TASK: nobody who took it ever settled it."""

    step_id: str
    epoch: int
    version: str
    message_id: str = ""


@dataclass(frozen=True, slots=True)
class Swept:
    """The request's time to be looked at has come."""

    message_id: str = "sweep"


@dataclass(frozen=True, slots=True)
class Continued:
    """A write of our own has just landed; what follows from it?"""

    message_id: str = ""


Commanded: TypeAlias = CancelAsked | ReplayAsked | DropAsked | RetractAsked | DecideAsked | RulesAsked
Cause: TypeAlias = Submitted | ResultCame | Commanded | Noticed | Swept | Continued


def cause_of_result(bell: AgentMessage, state: StepState) -> ResultCame:
    """Read a RESULT message."""
    step = bell.step_id or ""
    return ResultCame(step, bell.epoch, state, bell.seen.get(f"step/{step}", ""), bell.sender, bell.recipient, bell.id, bell.again)
