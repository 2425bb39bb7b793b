"""Teams for processes of these tests: an agent that blocks its worker's loop."""

from __future__ import annotations

import time

from workers.agents.agent import AgentBrief
from workers.agents.blackbox import BlackBox
from workers.team import Team

BLOCKED_SECONDS = 6.0
"""Longer than three heartbeats of a second, after which RabbitMQ gives a line up."""


async def _block_at_first(brief: AgentBrief) -> str:
    if brief.attempt == 1:
        time.sleep(BLOCKED_SECONDS)  # noqa: ASYNC251 - the fault itself
    return f"attempt {brief.attempt}"


blocking = Team("blocking", [BlackBox("sleeper", _block_at_first)], [{"id": "a", "agent": "sleeper", "title": "A nap", "task": "Sleep."}])
