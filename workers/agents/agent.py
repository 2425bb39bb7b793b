"""The agent port: what the worker line passes to an agent, and what it gets back.

An agent is anything with a name, a card, versions, and `run(brief) -> AgentResult`: a `Specialist` (agents.specialist), or a
`BlackBox` around a user's own function (agents.blackbox). It never touches the board or a queue. The worker line calls `run`
in a task of its own, checks signature, expected facts and size of what comes back, and turns every exception into a failure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from schemas.agents import AgentCard
from schemas.briefs import Brief
from schemas.facts import Fact
from schemas.frozen import Scalar
from schemas.gate import Crossing
from schemas.packets import Packet, Payload
from schemas.plans import Step
from schemas.results import AgentResult, Failure, FailureCode, ReadOf, ResultStatus, Termination, Usage
from schemas.shared import FieldCard
from workers.agents.actions import Action
from workers.artifacts import NO_ARTIFACTS, RunArtifacts
from workers.phrases import EN, Phrases
from workers.reserving import NO_RESERVATIONS, Reservations
from workers.transcripts import Transcript


@dataclass(frozen=True, slots=True)
class AgentBrief:
    """Everything an agent gets for one attempt: the text, and the same values for code.

    `constraints` and `facts` hold what the text shows and nothing more: constraint name -> value, `step.key` -> fact.
    """

    brief: Brief
    step: Step
    constraints: Mapping[str, Scalar] = field(default_factory=dict)
    facts: Mapping[str, Fact] = field(default_factory=dict)
    packets: Mapping[str, Packet] = field(default_factory=dict)
    """`step.key` -> judgement of another step."""
    shared: Mapping[str, Payload] = field(default_factory=dict)
    """Shared field -> its value, frozen all the way down: mappings and tuples (`schemas.frozen.thawed` gives a copy to change)."""
    empty: Mapping[str, str] = field(default_factory=dict)
    """Shared field that the step reads and that has no value yet -> its version."""
    told: Mapping[str, Payload] = field(default_factory=dict)
    """Shared field -> what a user was told last of it."""
    cards: Mapping[str, FieldCard] = field(default_factory=dict)
    """The team's shared fields, as they are declared."""
    actions: tuple[Action, ...] = ()
    """What this step may do to them."""
    crossings: tuple[Crossing, ...] = ()
    """What the gate decided of all that was offered."""
    reads: Mapping[str, ReadOf] = field(default_factory=dict)
    """`step.key` or `field/<name>` -> the version that stands in the brief."""
    attempt: int = 1
    phrases: Phrases = EN
    artifacts: RunArtifacts = NO_ARTIFACTS
    """What this run may read beside the text (`await brief.artifacts.read(fact.value)`), and where it puts what is too big."""
    reservations: Reservations = NO_RESERVATIONS
    """Where a run takes its part of a resource (`await brief.reservations.reserve("seats", 2)`)."""
    transcript: Transcript = field(default_factory=Transcript)
    """Where the run leaves what was said and called in it, for people."""

    @property
    def text(self) -> str:
        """The brief as a model reads it."""
        return self.brief.text

    @property
    def step_id(self) -> str:
        """The step that is being worked on; a result must name it."""
        return self.step.id


@dataclass(frozen=True, slots=True)
class AgentVersions:
    """Short content hashes of what an agent is made of; empty where there is no such part."""

    persona: str = ""
    tools: str = ""
    rules: str = ""
    model: str = ""


class Agent(Protocol):
    """What the worker line runs."""

    @property
    def name(self) -> str:
        """The name by which steps ask for it."""
        ...

    @property
    def card(self) -> AgentCard:
        """What a plan may ask of it."""
        ...

    @property
    def versions(self) -> AgentVersions:
        """What it is made of now."""
        ...

    async def run(self, brief: AgentBrief) -> AgentResult:
        """Do the task once.

        Raises:
            AgentFailed: with a code, a description and whether another attempt can help.
            Exception: anything else is an `AGENT_ERROR` of this attempt.
        """
        ...


TERMINATION_CODES: dict[Termination, FailureCode] = {
    Termination.MAX_STEPS: FailureCode.MAX_STEPS,
    Termination.NO_PROGRESS: FailureCode.NO_PROGRESS,
    Termination.BUDGET_EXHAUSTED: FailureCode.BUDGET_EXHAUSTED,
    Termination.TIMEOUT: FailureCode.TIMEOUT,
    Termination.ERROR: FailureCode.AGENT_ERROR,
}
"""The failure code of each way to end without an answer."""


def failed(
    agent: str,
    step_id: str,
    failure: Failure,
    *,
    termination: Termination = Termination.ERROR,
    usage: Usage | None = None,
    summary: str = "",
) -> AgentResult:
    """Return a FAILED result: no facts, whatever was seen on the way."""
    return AgentResult(
        agent=agent,
        step_id=step_id,
        status=ResultStatus.FAILED,
        summary=summary,
        termination=termination,
        usage=usage or Usage(),
        failure=failure,
    )
