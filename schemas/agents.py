"""Agent cards: what a plan may ask of an agent, as pure data."""

from __future__ import annotations

from schemas.facts import Sensitivity
from schemas.frozen import Frozen, Name


class AgentCard(Frozen):
    """What a plan may ask of an agent: its tools, and the facts that its rules can produce."""

    name: Name
    description: str = ""
    tools: tuple[str, ...] = ()
    facts: dict[str, tuple[str, ...]] = {}
    """Fact key -> the tools whose returns can give it; an empty tuple when the agent gives it itself (a black box)."""
    clearance: Sensitivity = Sensitivity.INTERNAL
    """The most sensitive value that may stand in its briefs."""
    version: str = ""
    """Short hash of persona, tools, rules and model."""
