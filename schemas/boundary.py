"""The boundary's own records on the blackboard: what was withdrawn, confirmed, approved and taken in. Written by the orchestrator."""

from __future__ import annotations

from schemas.frozen import Frozen
from schemas.gate import BoundaryRules
from schemas.packets import Payload

APPROVE, REFUSE = "approve", "refuse"
"""What a person may choose, except where a claim is to be named."""


class Retraction(Frozen):
    """One value that was withdrawn: `key` of `step`, as the result at `version` said it."""

    step: str
    key: str
    version: str
    reason: str
    value: str = ""
    """What had been said, as text."""
    by: str = ""
    at_ms: int = 0

    @property
    def name(self) -> str:
        """`step.key`."""
        return f"{self.step}.{self.key}"


class Promotion(Frozen):
    """A finding that another step confirmed as a fact from a source of its own; both are kept."""

    finding: str
    """`step.key` of the finding."""
    version: str
    """Of the result that holds the finding."""
    fact: str
    """`step.key` of the fact that says the same."""
    fact_version: str
    source: str = ""
    """What the confirming fact names as its origin."""


class Ruling(Frozen):
    """What a person decided about one item of the desk."""

    choice: str
    """`approve`, `refuse`, or the id of the claim that holds."""
    by: str = ""
    reason: str = ""
    at_ms: int = 0
    rests_on: str = ""
    """Fingerprint of what was approved: where that changes, a person is asked again."""
    value: Payload | None = None


class BoundaryRecord(Frozen):
    """Field `boundary`: every brief is built with it, and every claim expects its version."""

    retractions: tuple[Retraction, ...] = ()
    promotions: tuple[Promotion, ...] = ()
    rulings: dict[str, Ruling] = {}
    """Desk item -> what was decided."""
    rules: BoundaryRules | None = None
    """The rules that hold instead of the team card's, where somebody changed them for this request."""

    def retracted(self, step: str, key: str, version: str) -> str:
        """Why what this version of the step's result says of `key` was withdrawn; empty where it was not."""
        for each in self.retractions:
            if each.step == step and each.key == key and each.version == version:
                return each.reason or "withdrawn"
        return ""

    def confirmed(self, name: str, version: str) -> bool:
        """Whether a step confirmed what this version says of `step.key`."""
        return any(each.finding == name and each.version == version for each in self.promotions)


class AbsorbedRecord(Frozen):
    """Field `absorbed`: whose result was taken in, and whom the gate sent back to run again.

    `steps` are (step, epoch): changes to shared fields, confirmations and action requests of that run are in.
    """

    steps: tuple[tuple[str, int], ...] = ()
    rechecked: tuple[tuple[str, int], ...] = ()
    """(consumer, epoch) whose producers ran once more for it."""
    refused: tuple[str, ...] = ()
    """Changes that no field took, as `step: why`."""


NO_BOUNDARY = BoundaryRecord()
NOTHING_ABSORBED = AbsorbedRecord()
