"""An absorption: what one write is to put, while `orchestrator.absorbing` and its rooms work it out. No decision is made here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from orchestrator.views import Outline, View
from schemas.boundary import Promotion, Retraction
from schemas.reducers import Reducer
from schemas.shared import FieldCard, FieldRecord

WAITS_FOR_A_PERSON = ""
"""Stands for the step in the index entry of a request that has something on the desk."""


@dataclass
class Absorption:
    """What one write is to put, while it is worked out."""

    view: View
    outline: Outline
    cards: Mapping[str, FieldCard]
    reducers: Mapping[str, Reducer]
    records: dict[str, FieldRecord] = field(default_factory=dict)
    """The fields that were read, as they will be."""
    changed: dict[str, None] = field(default_factory=dict)
    refused: list[str] = field(default_factory=list)
    retractions: list[Retraction] = field(default_factory=list)
    promotions: list[Promotion] = field(default_factory=list)
    asks: bool = False
    """Whether something of it waits for a person."""

    def put(self, name: str, record: FieldRecord) -> None:
        """Let a field be as this record says."""
        self.records[name] = record
        self.changed[name] = None
