"""What comes out of one run of an agent: the result, its true termination, its failure and its usage."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from schemas.artifacts import ArtifactRef
from schemas.facts import Fact
from schemas.frozen import Frozen
from schemas.limits import MAX_SUMMARY_CHARACTERS
from schemas.packets import Packet
from schemas.plans import Step
from schemas.shared import FieldChange


class ResultStatus(StrEnum):
    """`COMPLETED` says that the agent ended normally, not that its prose is true."""

    COMPLETED = "COMPLETED"
    FAILED = "FAILED"


class Termination(StrEnum):
    """The true end state of an agent's loop. Only `ANSWERED` may be `COMPLETED`."""

    ANSWERED = "ANSWERED"
    MAX_STEPS = "MAX_STEPS"
    NO_PROGRESS = "NO_PROGRESS"
    BUDGET_EXHAUSTED = "BUDGET_EXHAUSTED"
    TIMEOUT = "TIMEOUT"
    ERROR = "ERROR"


class FailureCode(StrEnum):
    """Why a step is FAILED. An agent may use codes of its own beside these."""

    MAX_STEPS = "MAX_STEPS"
    NO_PROGRESS = "NO_PROGRESS"
    BUDGET_EXHAUSTED = "BUDGET_EXHAUSTED"
    TIMEOUT = "TIMEOUT"
    AGENT_ERROR = "AGENT_ERROR"
    """The agent or one of its tools raised."""
    CONTRADICTORY_TASK = "CONTRADICTORY_TASK"
    """The agent says that its task contradicts itself or its facts."""
    WRONG_SIGNATURE = "WRONG_SIGNATURE"
    """The result names another agent or step than the one that was scheduled."""
    BAD_RESULT = "BAD_RESULT"
    """The agent returned something that is no result, or one that is too large."""
    MISSING_OUTPUT = "MISSING_OUTPUT"
    """An expected fact is not among the result's facts."""
    MISSING_FACT = "MISSING_FACT"
    """A required need that no completed step supplied."""
    BRIEF_TOO_LARGE = "BRIEF_TOO_LARGE"
    """Constraints and required facts alone are over the brief's limit."""
    UNREADABLE_ARTIFACT = "UNREADABLE_ARTIFACT"
    """An artifact that the step was given is gone from the store, or damaged: run the step again that made it."""
    BLOCKED = "BLOCKED"
    """The gate let a needed value not cross, and says why."""
    NEEDS_PERSON = "NEEDS_PERSON"
    """A person has to decide first (`briefline desk`)."""
    REFUSED = "REFUSED"
    """A person decided that it is not to be done."""
    FIELD_REFUSED = "FIELD_REFUSED"
    """A shared field does not take what the step wants of it."""
    STALE = "STALE"
    """It rested on something that was withdrawn since, and is not to run again by itself."""
    FACTS_DIFFER = "FACTS_DIFFER"
    """A rule that demands the same value of every call saw two."""
    ATTEMPTS_EXHAUSTED = "ATTEMPTS_EXHAUSTED"
    """Every attempt ended without a result: the workers that held the step died, or its errors stayed."""
    WORKER_DIED = "WORKER_DIED"
    """The broker gave the task up: whoever took it never answered."""
    UNKNOWN_AGENT = "UNKNOWN_AGENT"
    """The worker that took the task does not have this agent."""
    DEADLINE = "DEADLINE"
    """The request's time was over."""
    CANCELLED = "CANCELLED"
    """The request was cancelled."""
    REFUSED_PLAN = "REFUSED_PLAN"
    """The plan, or further steps made at run time, were refused."""


class Failure(Frozen):
    """A code and a plain description, for people. Never a stack trace."""

    code: str
    description: str
    retryable: bool = False
    about: tuple[str, ...] = ()
    """What could not cross: `step.key`, or `field/<name>`."""
    rests_on: str = ""
    """Where a person is asked: fingerprint of the values that were offered."""


class Usage(Frozen):
    """What one run used, as the agent's loop counted it."""

    model_calls: int = 0
    tool_calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            model_calls=self.model_calls + other.model_calls,
            tool_calls=self.tool_calls + other.tool_calls,
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
        )


class ReadOf(Frozen):
    """One value that a brief carried: the version it was read at, and a fingerprint of what it said."""

    version: str
    fingerprint: str = ""


class MadeWith(Frozen):
    """What a result was made with, so that a later reader can say what has changed since. Versions are short content hashes."""

    brief_sha256: str
    position: int
    """Event position of the claim: the brief was built from the board as it was there."""
    team: str = ""
    persona: str = ""
    tools: str = ""
    rules: str = ""
    model: str = ""
    boundary: str = ""
    """Version of the boundary rules."""
    reads: dict[str, ReadOf] = {}
    """`step.key` or `field/<name>` -> what the brief said of it; by this a retraction finds what rests on it."""


CROSSINGS_LABEL = "crossings"
"""Label of an event that ends an attempt: the gate's decisions on what went into its brief, as JSON."""

MADE_WITH_LABEL = "made_with"
"""Label of an event that ends an attempt without a result: its `MadeWith` as JSON."""

PRIVATE_LABEL = "private"
"""Label of an event that ends an attempt: id of the artifact with the run's messages and tool calls, for people alone."""


class AgentResult(Frozen):
    """The outcome of one run. `summary` is for the user and goes only into the answer; `facts` is what downstream steps get."""

    agent: str
    step_id: str
    status: ResultStatus
    summary: Annotated[str, Field(max_length=MAX_SUMMARY_CHARACTERS)] = ""
    facts: tuple[Fact, ...] = ()
    packets: tuple[Packet, ...] = ()
    """Judgements of the agent: findings, suggestions, decisions, action requests. Never facts."""
    changes: tuple[FieldChange, ...] = ()
    """What it wants of the team's shared fields."""
    superseded: tuple[Fact, ...] = ()
    """Facts that a later call of the same run replaced."""
    artifacts: tuple[ArtifactRef, ...] = ()
    """What the run made and is too big for a field; never a private one."""
    tool_faults: tuple[str, ...] = ()
    """Calls that failed on the way, `tool: why` each; the run went on without them."""
    termination: Termination = Termination.ANSWERED
    usage: Usage = Usage()
    failure: Failure | None = None
    made_with: MadeWith | None = None
    steps: tuple[Step, ...] = ()
    """Further steps, from a step declared `may_plan`; refused and recorded from any other."""

    @property
    def completed(self) -> bool:
        """Whether the agent ended in an answer."""
        return self.status is ResultStatus.COMPLETED
