"""Black boxes: a user's own function or object as an agent.

What happens inside is not ours to see, so its facts are empty unless it returns them with provenance and its declaration
names them. Called by the worker line through the agent port.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from schemas.agents import AgentCard
from schemas.codec import digest
from schemas.errors import AgentFailed, InvalidTeam
from schemas.facts import Sensitivity
from schemas.limits import MAX_SUMMARY_CHARACTERS
from schemas.results import AgentResult, FailureCode, ResultStatus
from workers.agents.agent import AgentBrief, AgentVersions
from workers.agents.tools import in_thread

_UNKNOWN = AgentVersions()


@dataclass(frozen=True)
class BlackBox:
    """An agent made of `function(brief) -> AgentResult | str`, or of an object whose method `run` is that.

    A text that comes back is the answer, COMPLETED. A plain function runs in a thread, never on the loop. `facts` are the keys
    that the function may return; without them a plan that needs facts of this agent is refused. Judgements and changes it
    returns in `AgentResult.packets` and `changes`; they are held against its step's outputs and the team's fields.
    """

    name: str
    function: Any
    facts: tuple[str, ...] = ()
    description: str = ""
    clearance: Sensitivity = Sensitivity.INTERNAL

    def __post_init__(self) -> None:
        if not callable(self._callable):
            raise InvalidTeam("a black box needs a function, or an object with run(brief)", path=f"agents.{self.name}")

    @cached_property
    def _callable(self) -> Callable[[AgentBrief], Any]:
        run = getattr(self.function, "run", None)
        found: Callable[[AgentBrief], Any] = run if callable(run) else self.function
        return found

    @cached_property
    def _waits(self) -> bool:
        return inspect.iscoroutinefunction(self._callable)

    @property
    def card(self) -> AgentCard:
        """What a plan may ask of it: no tools, and the declared facts."""
        return AgentCard(
            name=self.name,
            description=self.description,
            facts=dict.fromkeys(self.facts, ()),
            clearance=self.clearance,
            version=digest([self.name, self.description, list(self.facts), self.clearance.value]),
        )

    @property
    def versions(self) -> AgentVersions:
        """Nothing is known of what is inside."""
        return _UNKNOWN

    async def run(self, brief: AgentBrief) -> AgentResult:
        """Call the function once.

        Raises:
            AgentFailed: `BAD_RESULT` for anything but a text or a result, or for facts that were not declared.
        """
        function = self._callable
        if self._waits:
            returned = await function(brief)
        else:
            returned = await in_thread(lambda: function(brief), f"agent {self.name}")
            if inspect.isawaitable(returned):
                returned = await returned
        if isinstance(returned, str):
            return AgentResult(agent=self.name, step_id=brief.step_id, status=ResultStatus.COMPLETED, summary=_checked(returned))
        if not isinstance(returned, AgentResult):
            raise AgentFailed(FailureCode.BAD_RESULT, f"the agent returned {type(returned).__name__}, not a text or a result")
        self._check_facts(returned)
        return returned

    def _check_facts(self, result: AgentResult) -> None:
        for fact in result.facts:
            if fact.key not in self.facts:
                raise AgentFailed(FailureCode.BAD_RESULT, f"fact {fact.key!r} was not declared")
            source = fact.provenance
            if not (source.tool.strip() and source.call_id.strip() and source.path.strip()):
                raise AgentFailed(FailureCode.BAD_RESULT, f"fact {fact.key!r} does not say where it was copied from")


def _checked(text: str) -> str:
    if len(text) > MAX_SUMMARY_CHARACTERS:
        raise AgentFailed(FailureCode.BAD_RESULT, f"the text has {len(text):,} characters, the limit is {MAX_SUMMARY_CHARACTERS:,}")
    return text
