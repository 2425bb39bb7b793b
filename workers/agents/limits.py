"""How far a specialist's loop may go before it is stopped. A step's budget and timeout narrow it further."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LoopLimits:
    """Limits that belong to an agent, whatever the step."""

    rounds: int = 12
    """Model calls; one more would be `MAX_STEPS`."""
    stale_rounds: int = 3
    """Rounds in a row in which every return had been seen before in this run; then it is `NO_PROGRESS`."""
    tokens: int | None = None
    tool_calls: int | None = None
