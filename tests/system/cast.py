"""A small team for tests: one black-box agent, `hand`, whose behaviour each step chooses, and what it was given."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeAlias

from schemas.errors import AgentFailed
from schemas.facts import Fact, Provenance
from schemas.frozen import Scalar
from schemas.results import AgentResult, ResultStatus
from workers.agents.agent import AgentBrief
from workers.agents.blackbox import BlackBox
from workers.team import Team

Act: TypeAlias = Callable[[AgentBrief], Awaitable[Any]]

FACTS = ("finding", "colour", "size")
"""What the agent declares that it may return."""


def step(step_id: str, *after: str, **more: Any) -> dict[str, Any]:
    """A step of `hand`, after others. Its title is no name of anything inside."""
    return {"id": step_id, "agent": "hand", "title": f"Part {step_id.upper()}", "task": "Do this part.", "depends_on": after, **more}


def fact(step_id: str, key: str, value: Scalar) -> Fact:
    """A fact that says where it was copied from."""
    return Fact(key=key, value=value, provenance=Provenance(step=step_id, tool="lookup", call_id="call-1", path=key))


def told(brief: AgentBrief, summary: str = "", **facts: Scalar) -> AgentResult:
    """A completed result with these facts; with `finding` alone where none are given."""
    values = facts or {"finding": 7}
    return AgentResult(
        agent=brief.step.agent,
        step_id=brief.step_id,
        status=ResultStatus.COMPLETED,
        summary=summary or f"What was found for {brief.step.title}.",
        facts=tuple(fact(brief.step_id, key, value) for key, value in values.items()),
    )


async def answers(brief: AgentBrief) -> AgentResult:
    """End well."""
    return told(brief)


def fails(code: str = "NO_STOCK", *, times: int | None = None, retryable: bool = False, then: Act = answers) -> Act:
    """Fail, always or so many times; then do something else."""
    count = 0

    async def act(brief: AgentBrief) -> Any:
        nonlocal count
        count += 1
        if times is None or count <= times:
            raise AgentFailed(code, f"failed for the {count}. time", retryable=retryable)
        return await then(brief)

    return act


class Gate:
    """An act that waits until it is opened, and knows whether it was stopped meanwhile."""

    def __init__(self, then: Act = answers) -> None:
        self.entered = asyncio.Event()
        self.opened = asyncio.Event()
        self.stopped = asyncio.Event()
        self._then = then

    async def __call__(self, brief: AgentBrief) -> Any:
        self.entered.set()
        try:
            await self.opened.wait()
        except asyncio.CancelledError:
            self.stopped.set()
            raise
        return await self._then(brief)


class Deaf(Gate):
    """A gate that does not care about being cancelled."""

    async def __call__(self, brief: AgentBrief) -> Any:
        self.entered.set()
        while not self.opened.is_set():
            try:
                await self.opened.wait()
            except asyncio.CancelledError:
                self.stopped.set()
        return await self._then(brief)


class Cast:
    """What each step does (`answers` unless said otherwise), how often it ran, and the briefs it was given."""

    def __init__(self, acts: Mapping[str, Act] | None = None) -> None:
        self.acts = dict(acts or {})
        self.runs: Counter[str] = Counter()
        self.briefs: defaultdict[str, list[AgentBrief]] = defaultdict(list)

    async def play(self, brief: AgentBrief) -> Any:
        self.runs[brief.step_id] += 1
        self.briefs[brief.step_id].append(brief)
        return await self.acts.get(brief.step_id, answers)(brief)

    def team(self, *steps: Mapping[str, Any], **options: Any) -> Team:
        """The team that plays these steps."""
        return Team("stage", [BlackBox("hand", self.play, facts=FACTS), *options.pop("agents", ())], steps, **options)
