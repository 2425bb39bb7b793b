"""Onward: what a worker may do about the steps that wait for the one it has just completed. A port; it decides nothing here.

The rule is the orchestrator's (`orchestrator.handing_on`), brought into the worker's process by the wiring. Without it, and wherever
it says nothing, the worker rings RESULT and an orchestrator decides.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from schemas.blackboard import Snapshot
from schemas.requests import StepRecord
from schemas.tasks import Task


class Following(Protocol):
    """What waits for one step of one request."""

    @property
    def fields(self) -> tuple[str, ...]:
        """What the write that ends the step has to return, so that it can be seen who is ready."""
        ...

    def tasks(self, after: Snapshot, record: StepRecord, version: str) -> Sequence[Task] | None:
        """Return the steps that are ready now; None where RESULT is to be rung instead.

        `after` is what that write returned, `record` and `version` are the step as it was committed. None are ready where
        another input is still open: whoever commits the last one sees that it is the last.
        """
        ...


class Onward(Protocol):
    """The rule by which steps are handed on."""

    async def following(self, step_id: str, claimed: Snapshot) -> Following | None:
        """Return what waits for a step, by what its claim returned (`plan` and `request` among it); None: leave it to an orchestrator."""
        ...
