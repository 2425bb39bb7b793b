"""Requests on counted ports: what a number of them costs the board and the broker, whatever the machine does meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ops.bench.counting import CountedBoard, CountedBroker, Counts
from ops.broker.memory import MemoryBroker
from ops.embedded import Runtime, serving
from schemas.blackboard import Blackboard
from schemas.requests import RequestStatus
from workers.agents.agent import AgentBrief
from workers.agents.blackbox import BlackBox
from workers.team import Team

WITHIN = 0.10
"""How much more than at the small size something may cost at the large one."""


async def nothing(brief: AgentBrief) -> str:
    """End well at once."""
    return "done"


def step(name: str, *after: str, agent: str = "hand") -> dict[str, Any]:
    """A step that needs nothing of those before it."""
    return {"id": name, "agent": agent, "title": f"Part {name}", "task": "Do it.", "depends_on": after, "needs": ()}


def team_of(*steps: dict[str, Any], agents: Sequence[str] = ("hand",)) -> Team:
    """A team of agents that end well at once."""
    return Team("stage", [BlackBox(name, nothing) for name in agents], steps)


class Gate:
    """An agent that waits until it is opened."""

    def __init__(self) -> None:
        self.opened = asyncio.Event()

    async def __call__(self, brief: AgentBrief) -> Any:
        await self.opened.wait()
        return await nothing(brief)


@dataclass
class Counted:
    """A runtime on counted ports."""

    runtime: Runtime
    counts: Counts

    async def ask(self, number: int) -> list[str]:
        """Carry out so many requests, all under way at once, and return their ids; each has to end well."""
        accepted = [await self.runtime.submit(self.runtime.team, "Please.") for _ in range(number)]
        ended = await asyncio.gather(*(self.runtime.wait(each.request_id) for each in accepted))
        assert set(ended) == {RequestStatus.COMPLETED}
        return [each.request_id for each in accepted]


async def cost_of(board: Blackboard, team: Team, requests: int = 1, *, unit: int = 1) -> dict[str, float]:
    """Return what so many requests cost, each divided by `unit` (steps), on this board and a broker in memory."""
    counts = Counts()
    async with MemoryBroker() as broker:
        counted = CountedBoard(board, counts)
        async with serving(counted, CountedBroker(broker, counts), team, lease_seconds=60.0) as runtime:
            await Counted(runtime, counts).ask(requests)
    return counts.a(requests * unit)


def grown(small: dict[str, float], large: dict[str, float]) -> dict[str, float]:
    """What costs more at the large size than it may, with the factor."""
    return {name: round(large[name] / small[name], 3) for name in small if large[name] > small[name] * (1 + WITHIN)}
