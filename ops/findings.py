"""What a look at a server found: one line for a person, with what to do about it.

Findings are values: the rooms that look (`ops.broker.safety`, `ops.blackboard.safety`) never print and never exit.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Level(StrEnum):
    """How bad a finding is."""

    OK = "ok"
    WARN = "warn"
    """It works, but a promise rests on something that should be looked at."""
    FAIL = "fail"
    """It does not work, or a promise would be broken."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at; `advice` says what to do and is empty when there is nothing to do."""

    level: Level
    what: str
    advice: str = ""
