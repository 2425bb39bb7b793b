"""Specialists: a model with a persona, tools and fact rules.

The loop is the library's (agents.loop); what comes out of it is ours: the true termination, every tool call as it was, and
facts copied by rule. Called by the worker line through the agent port.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any

import structlog

from schemas.agents import AgentCard
from schemas.codec import digest
from schemas.errors import AgentFailed, InvalidTeam
from schemas.facts import Sensitivity
from schemas.limits import MAX_SUMMARY_CHARACTERS
from schemas.results import AgentResult, Failure, FailureCode, ResultStatus, Termination
from workers.agents.acting import Acted
from workers.agents.actions import CONCLUDE
from workers.agents.agent import TERMINATION_CODES, AgentBrief, AgentVersions, failed
from workers.agents.concluding import Concluded
from workers.agents.limits import LoopLimits
from workers.agents.models import Model
from workers.agents.tools import CONTRADICTION_TOOL, READ_TOOL, Tool, ToolContext, in_thread, tool, utc_now
from workers.evidence import Grounds
from workers.facts import FactRules

if TYPE_CHECKING:
    from workers.agents.loop import LoopOutcome

_LOOP = "workers.agents.loop"


MAX_FAULTS = 20
MAX_FAULT_CHARACTERS = 300

log = structlog.get_logger()


@dataclass(frozen=True)
class Specialist:
    """An agent that thinks with a model, in rounds of tool calls, until it answers.

    `persona` holds what is true of this domain for every request; rules for everyone come from the brief's phrases. A `Team`
    supplies `model` and `now` where they are left open. A plain function among the tools is one under its own name. `clearance`
    is the most sensitive value that its briefs may carry.
    """

    name: str
    persona: str
    tools: Sequence[Tool | Callable[..., Any]] = ()
    rules: FactRules = field(default_factory=FactRules)
    model: Model | None = None
    description: str = ""
    clearance: Sensitivity = Sensitivity.INTERNAL
    limits: LoopLimits = field(default_factory=LoopLimits)
    now: Callable[[], datetime] = field(default=utc_now, repr=False)

    def __post_init__(self) -> None:
        names = [tool.name for tool in self.toolbox]
        for index, name in enumerate(names):
            path = f"agents.{self.name}.tools.{index}"
            if name in names[:index]:
                raise InvalidTeam(f"tool {name!r} is there twice", path=path)
            if name.startswith(CONCLUDE):
                raise InvalidTeam(f"tools that are called {CONCLUDE}... give a step's outputs", path=path)
            if name in (CONTRADICTION_TOOL, READ_TOOL):
                raise InvalidTeam(f"every specialist has a tool {name!r} already", path=path)
        self.rules.check(self.by_name, path=f"agents.{self.name}.rules")

    @cached_property
    def toolbox(self) -> tuple[Tool, ...]:
        """The tools, functions among them wrapped."""
        return tuple(each if isinstance(each, Tool) else tool(each) for each in self.tools)

    @cached_property
    def by_name(self) -> Mapping[str, Tool]:
        """Tool name -> tool."""
        return {tool.name: tool for tool in self.toolbox}

    @cached_property
    def versions(self) -> AgentVersions:
        """Short hashes of persona, tools with their outputs, rules and model."""
        return AgentVersions(
            persona=digest(self.persona),
            tools=digest([tool.version for tool in self.toolbox]) if self.toolbox else "",
            rules=self.rules.version,
            model="" if self.model is None else self.model.version,
        )

    @cached_property
    def card(self) -> AgentCard:
        """What a plan may ask of it."""
        versions = self.versions
        return AgentCard(
            name=self.name,
            description=self.description,
            tools=tuple(self.by_name),
            facts=self.rules.by_key(),
            clearance=self.clearance,
            version=digest([versions.persona, versions.tools, versions.rules, versions.model, self.clearance.value]),
        )

    def completed_with(self, model: Model | None, now: Callable[[], datetime]) -> Specialist:
        """Return the same specialist with a team's model and clock where it has none of its own."""
        return replace(self, model=self.model or model, now=now if self.now is utc_now else self.now)

    async def run(self, brief: AgentBrief) -> AgentResult:
        """Work on a brief once; the step's timeout and budget end the loop with their own terminations.

        Raises:
            AgentFailed: `AGENT_ERROR`, retryable: the model's server was not there, busy or too slow.
        """
        if self.model is None:
            raise AgentFailed(FailureCode.AGENT_ERROR, "the agent has no model")
        if _LOOP not in sys.modules:
            # The model library takes seconds to import: producers, orchestrators and black boxes never need it, and leases are
            # renewed while a worker's first specialist waits for it.
            await in_thread(lambda: importlib.import_module(_LOOP), "import of the model library")
        from workers.agents.loop import run_loop

        allowed = self.by_name if brief.step.tools is None else {name: self.by_name[name] for name in brief.step.tools}
        concluded, acted = Concluded(brief, lambda: self._grounds(brief)), Acted(brief, lambda: self._grounds(brief), self.now)
        outcome = await run_loop(
            agent=self.name,
            brief=brief,
            instructions="\n\n".join(part for part in (self.persona.strip(), "\n".join(brief.phrases.common_rules)) if part),
            tools={**allowed, **{each.name: each for each in (*concluded.tools, *acted.tools)}},
            model=self.model,
            context=ToolContext(
                constraints=brief.constraints,
                now=self.now,
                shared=brief.shared,
                artifacts=brief.artifacts,
                reservations=brief.reservations,
            ),
            limits=self.limits,
        )
        faults = tuple(f"{each.tool}: {each.error}"[:MAX_FAULT_CHARACTERS] for each in outcome.observations if each.error is not None)
        for fault in faults[:MAX_FAULTS]:
            log.warning("tool_failed", agent=self.name, step=brief.step_id, reason=fault)
        result = self._result(outcome, brief).model_copy(update={"tool_faults": faults[:MAX_FAULTS]})
        if not result.completed:
            return result
        return result.model_copy(update={"packets": concluded.packets, "changes": acted.changes})

    def _grounds(self, brief: AgentBrief) -> Grounds:
        """What evidence may name by now: rules copy facts out of the returns so far."""
        found = self.rules.extract(brief.transcript.observations, step=brief.step_id, tools=self.by_name, now=self.now)
        facts = () if isinstance(found, Failure) else found.facts
        return Grounds(brief, {fact.key: fact for fact in facts}, frozenset(ref.id for ref in brief.artifacts.made))

    def _result(self, outcome: LoopOutcome, brief: AgentBrief) -> AgentResult:
        failure = self._failure(outcome)
        extracted = None
        if failure is None:
            found = self.rules.extract(outcome.observations, step=brief.step_id, tools=self.by_name, now=self.now)
            if isinstance(found, Failure):
                failure = found
            else:
                extracted = found
        if extracted is None or failure is not None:
            return failed(
                self.name,
                brief.step_id,
                failure or Failure(code=FailureCode.AGENT_ERROR, description="no answer"),
                termination=outcome.termination,
                usage=outcome.usage,
                summary=outcome.text[:MAX_SUMMARY_CHARACTERS],
            )
        return AgentResult(
            agent=self.name,
            step_id=brief.step_id,
            status=ResultStatus.COMPLETED,
            summary=outcome.text,
            facts=extracted.facts,
            superseded=extracted.superseded,
            termination=Termination.ANSWERED,
            usage=outcome.usage,
        )

    def _failure(self, outcome: LoopOutcome) -> Failure | None:
        if outcome.contradiction is not None:
            return Failure(code=FailureCode.CONTRADICTORY_TASK, description=outcome.contradiction)
        if outcome.termination is not Termination.ANSWERED:
            return Failure(code=TERMINATION_CODES[outcome.termination], description=outcome.reason)
        if len(outcome.text) > MAX_SUMMARY_CHARACTERS:
            description = f"the answer has {len(outcome.text):,} characters, the limit is {MAX_SUMMARY_CHARACTERS:,}"
            return Failure(code=FailureCode.BAD_RESULT, description=description)
        return None
