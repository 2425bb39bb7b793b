"""Briefs: what one step's agent gets to see, with a manifest that says where every line came from.

The words only; `workers.briefing` builds them.
"""

from __future__ import annotations

import hashlib
from enum import StrEnum

from schemas.frozen import Frozen


class LineOrigin(StrEnum):
    """Where a line of a brief came from. There is no other origin."""

    REQUEST = "request"
    CONSTRAINT = "constraint"
    FACT = "fact"
    JUDGEMENT = "judgement"
    SHARED = "shared"
    GAP = "gap"
    SUMMARY = "summary"
    TASK = "task"
    RULE = "rule"
    HEADING = "heading"


class ManifestLine(Frozen):
    """One line of the brief's text, numbered from 1, and its origin."""

    line: int
    origin: LineOrigin
    step: str | None = None
    key: str | None = None
    """Fact key, constraint name or rule name."""
    version: str | None = None
    """Version of the field that the line was read from."""


class LeftOut(Frozen):
    """What exists and did not cross, and why."""

    step: str
    key: str
    reason: str
    """A reason of the gate, or `not_supplied`, `optional_over_limit`, `summary_not_asked`, `summary_over_limit`, `prose_cut`."""


class Manifest(Frozen):
    """Every line's origin, what was left out, and the size against the limit."""

    lines: tuple[ManifestLine, ...]
    left_out: tuple[LeftOut, ...] = ()
    characters: int
    tokens: int
    tokenizer: str
    limit_characters: int
    limit_tokens: int
    boundary: str = ""
    """Version of the boundary rules under which it was built."""


class Brief(Frozen):
    """The text a step's agent gets, its manifest, and the position of the board it was built from."""

    step_id: str
    text: str
    manifest: Manifest
    position: int

    @property
    def sha256(self) -> str:
        """Of the text as UTF-8."""
        return hashlib.sha256(self.text.encode()).hexdigest()
