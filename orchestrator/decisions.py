"""Decisions: what `advance` says is to be done. Values only; `orchestrator.acting` carries them out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeAlias

from schemas.blackboard import DeadEntry
from schemas.requests import RequestStatus


@dataclass(frozen=True, slots=True)
class RingTask:
    """Tell a step's agent that it is ready (or that its holder is gone)."""

    step_id: str


@dataclass(frozen=True, slots=True)
class RingStatus:
    """Tell whoever listens that the request has reached a status."""

    status: RequestStatus


@dataclass(frozen=True, slots=True)
class RingDead:
    """Tell people and tools that watch the broker of a dead letter."""

    step_id: str


Ring: TypeAlias = RingTask | RingStatus | RingDead


class Verdict(StrEnum):
    """What to make of the bell that was the cause."""

    FITS = "fits"
    LATE = "late"
    """Of an older epoch, or of a request that is over."""
    AHEAD = "ahead"
    """Of a state that the board does not have: it was set back. The board wins; look at the request."""
    VIOLATION = "violation"
    """It contradicts the board in the same epoch and version, or its sender or recipient is wrong: park it."""
    UNKNOWN = "unknown"
    """The board does not have the request: park it, open nothing."""
    REFUSED = "refused"
    """A command that does not fit the state; said to who asked."""


@dataclass(frozen=True, slots=True)
class Change:
    """One write: what it expects, what it puts, and what goes before and after it."""

    event: str
    """Past-tense name for timelines."""
    expect: Mapping[str, str]
    put: Mapping[str, bytes] = field(default_factory=dict)
    details: Mapping[str, str] = field(default_factory=dict)
    unheld: tuple[str, ...] = ()
    expire_after_seconds: int | None = None
    enter_first: bool = False
    """The request is to be in the due index before it is reopened."""
    dead_first: tuple[DeadEntry, ...] = ()
    """Failed steps, indexed before their FAILED is written."""
    dead_after: tuple[DeadEntry, ...] = ()
    """Dead letters that are none any more."""
    rings: tuple[Ring, ...] = ()
    """To be rung once it is written."""


@dataclass(frozen=True, slots=True)
class Decision:
    """What to do now. With `read_more` or `read_source` nothing is decided yet; with `change` the rest is decided again after it."""

    verdict: Verdict = Verdict.FITS
    reason: str = ""
    read_more: tuple[str, ...] = ()
    read_source: tuple[str, ...] = ()
    """Of a fork: fields of the request that it takes up, to be read too."""
    change: Change | None = None
    rings: tuple[Ring, ...] = ()
    next_look_ms: int | None = None
    """In how long to look again (sweeps only)."""
    over: bool = False
    """The request is over: it may leave the due index."""
    look_at: Mapping[str, int] = field(default_factory=dict)
    """Step id -> in how many ms it is to be looked at."""


def refused(reason: str) -> Decision:
    """Say to who sent a command why it does not fit."""
    return Decision(verdict=Verdict.REFUSED, reason=reason)


def by(sender: str) -> dict[str, str]:
    """Who asked, as it stands in the event: the sender's own word, not proof of it."""
    return {"by": sender} if sender else {}
