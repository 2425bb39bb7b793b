"""Teams for these tests: BitMall with a slow product model, steps that wait at a gate, and a mix of small plans."""

from __future__ import annotations

import asyncio
from pathlib import Path

from schemas.errors import AgentFailed
from workers.agents.agent import AgentBrief
from workers.agents.blackbox import BlackBox
from workers.team import Constraint, Team
from workers.teams.bitmall.team import make_team

slow = make_team(scenario="slow-product", delay_seconds=1.2)
"""BitMall whose product model takes 1.2 s a turn, so that there is time to kill its worker."""


async def _wait_at_the_gate(brief: AgentBrief) -> str:
    """Say that it has begun, wait until somebody opens, and answer. The gate is a folder that the request names."""
    gate = Path(str(brief.constraints["gate"]))
    (gate / f"{brief.step_id}.begun").touch()
    while not (gate / "open").exists():
        await asyncio.sleep(0.02)
    return f"passed by {brief.step_id}"


def _answer_at_once(brief: AgentBrief) -> str:
    return f"answered {brief.constraints['number']} as {brief.step.title}"


def _fail_for_multiples_of_five(brief: AgentBrief) -> str:
    number = int(brief.constraints["number"] or 0)
    if number % 5 == 0:
        raise AgentFailed("REFUSES_FIVE", "no multiples of five here")
    return _answer_at_once(brief)


async def _succeed_on_the_second_attempt(brief: AgentBrief) -> str:
    if brief.attempt == 1:
        raise ConnectionError("the first line is always cut")
    return _answer_at_once(brief)


gated = Team(
    "gated",
    [BlackBox("keeper", _wait_at_the_gate)],
    [
        {"id": "first", "agent": "keeper", "title": "First gate", "task": "Wait."},
        {"id": "second", "agent": "keeper", "title": "Second gate", "task": "Wait again.", "depends_on": ["first"]},
    ],
    [Constraint("gate", "Gate", required=True)],
)
"""Two steps, one after the other, that end when the test opens the gate."""

diamond = Team(
    "diamond",
    [
        BlackBox("quick", _answer_at_once),
        BlackBox("picky", _fail_for_multiples_of_five),
        BlackBox("shaky", _succeed_on_the_second_attempt),
    ],
    [
        {"id": "top", "agent": "quick", "title": "Top", "task": "Begin."},
        {"id": "left", "agent": "picky", "title": "Left", "task": "Go left.", "depends_on": ["top"]},
        {"id": "right", "agent": "shaky", "title": "Right", "task": "Go right.", "depends_on": ["top"]},
        {"id": "bottom", "agent": "quick", "title": "Bottom", "task": "End.", "depends_on": ["left", "right"]},
    ],
    [Constraint("number", "Number", type="integer", required=True)],
)
"""A diamond: one branch fails for multiples of five, the other passes on its second attempt."""
