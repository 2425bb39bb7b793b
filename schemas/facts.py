"""Facts: values with provenance, copied from tool returns by rule. This room never makes one; workers do."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import AwareDatetime, Field

from schemas.artifacts import ArtifactRef
from schemas.frozen import Frozen, Scalar


class Zone(StrEnum):
    """Where a value comes from: a system of the house, or the outside world."""

    INTERNAL = "internal"
    EXTERNAL = "external"


class Sensitivity(StrEnum):
    """Who may see a value."""

    PUBLIC = "public"
    INTERNAL = "internal"
    RESTRICTED = "restricted"


class Provenance(Frozen):
    """How a fact came to be: which call of which tool returned it, and where in the return it stood."""

    step: str
    tool: str
    call_id: str
    path: str
    source_ref: str | None = None
    """What the tool names as its own origin: document, address and access time, table and snapshot."""
    evidence: tuple[str, ...] = ()
    observed_at: AwareDatetime | None = None
    """UTC."""
    rules_version: str | None = None
    zone: Zone = Zone.INTERNAL


class Fact(Frozen):
    """A scalar value with its provenance. `value` keeps type and unit; anything bigger is an artifact reference."""

    key: str
    value: Scalar
    provenance: Provenance
    confidence: Annotated[float, Field(ge=0, le=1)] = 1.0
    unit: str | None = None
    basis: str | None = None
    """What the value counts: per night, with tax, of last month."""
    expires_at: AwareDatetime | None = None
    artifact: ArtifactRef | None = None
    """Where the value was too big: `value` is then the artifact's id."""
    sensitivity: Sensitivity = Sensitivity.INTERNAL
    allowed_use: tuple[str, ...] = ()
    """Empty: any use that is not forbidden."""
    forbidden_use: tuple[str, ...] = ()
