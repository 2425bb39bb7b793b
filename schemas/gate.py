"""The gate: one pure function that decides each crossing from one step to another, check by check.

Nothing is weighed or scored: each check has a value and a reason, the first that does not pass names the outcome, and the
rest is still listed. What is asked of a crossing comes from two sides: the packet (source, time, sensitivity, allowed use)
and the consuming step (its declared need, its agent's clearance, what it may do).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from functools import lru_cache
from typing import Annotated, Any, Literal

from pydantic import Field

from schemas.codec import digest
from schemas.facts import Sensitivity, Zone
from schemas.frozen import Frozen
from schemas.packets import Admission, Kind, OnFailure, Packet, admission


class May(StrEnum):
    """What a step may do with what it learns, from harmless to binding."""

    EXPLORE = "explore"
    PROPOSE = "propose"
    COMMIT = "commit"


class Reason(StrEnum):
    """Why a crossing is blocked. There is no other reason."""

    NOT_NEEDED = "not_needed"
    NO_SOURCE = "no_source"
    STALE = "stale"
    VERSION_BEHIND = "version_behind"
    NO_PERMISSION = "no_permission"
    UNREADABLE_ARTIFACT = "unreadable_artifact"
    LOW_CONFIDENCE = "low_confidence"
    SCHEMA = "schema"
    TOO_LARGE = "too_large"
    RETRACTED = "retracted"
    CONTESTED = "contested"
    UNTRUSTED = "untrusted"


REPAIRS: dict[Reason, str] = {
    Reason.NOT_NEEDED: "declare it among the step's needs",
    Reason.NO_SOURCE: "let its producer name the tool return, fact or artifact that it rests on",
    Reason.STALE: "run its producer again, or ask a person whether it still holds",
    Reason.VERSION_BEHIND: "read it again: its source has a newer version",
    Reason.NO_PERMISSION: "give the need to an agent with that clearance and use, or let a person decide",
    Reason.UNREADABLE_ARTIFACT: "run its producer again: the artifact is gone or is not what its hash says",
    Reason.LOW_CONFIDENCE: "bring more evidence, or let the step only propose",
    Reason.SCHEMA: "bring a value of the declared type",
    Reason.TOO_LARGE: "store it as an artifact and pass the reference",
    Reason.RETRACTED: "run its producer again: what it said was withdrawn",
    Reason.CONTESTED: "let the field's arbiter or a person settle which value holds",
    Reason.UNTRUSTED: "confirm it by a step with an internal source of its own, or let the step only propose",
}
"""Of each reason, how whoever reads the block gets on."""


class Outcome(StrEnum):
    """What becomes of a crossing."""

    PASS = "pass"
    COMPRESS = "compress"
    REFERENCE = "reference"
    BLOCK = "block"


Confidence = Annotated[float, Field(ge=0, le=1)]


class BoundaryRules(Frozen):
    """The rules of a team's boundary. They have a version, are named in each brief, and no agent can write them."""

    explore_confidence: Confidence = 0.0
    propose_confidence: Confidence = 0.5
    commit_confidence: Confidence = 0.8
    max_tokens: Annotated[int, Field(gt=0)] = 2_000
    """Of one value in a brief; what is larger crosses as a reference."""
    external_may_commit: bool = False
    """Whether a value of zone `external` alone may satisfy a need of a step that may commit."""
    irreversible_asks: bool = True
    """Whether a step that may commit something irreversible asks a person first."""
    on_rules_change: Literal["keep", "regate", "stop"] = "keep"
    """What running steps do when a request gets new rules: end under the old ones, be judged again, or begin anew."""
    named: str = ""
    """A name for people, such as `policy_v3`."""

    @property
    def version(self) -> str:
        """The given name, with a short hash of the rules."""
        hashed = _hash_of(self.to_json())
        return f"{self.named}-{hashed}" if self.named else hashed

    def least_confidence(self, may: May) -> float:
        """The confidence that a value must have for a step that may do this."""
        return {May.EXPLORE: self.explore_confidence, May.PROPOSE: self.propose_confidence, May.COMMIT: self.commit_confidence}[may]


@lru_cache(maxsize=256)
def _hash_of(rules: bytes) -> str:
    """Every brief names the rules that it was built by, and few requests have any of their own."""
    return digest(BoundaryRules.from_json(rules).model_dump(mode="json"))


@dataclass(frozen=True, slots=True)
class Offer:
    """A packet at the gate, with what the board says of it now."""

    packet: Packet
    version: str = ""
    """Of the result or field that it was read from."""
    needed: bool = True
    current: bool = True
    """Whether nothing newer has replaced what it was read from."""
    retracted: str = ""
    """Why it was withdrawn; empty where it was not."""
    stale: str = ""
    """What made it stale other than time; empty where nothing did."""
    contested: bool = False
    confirmed: bool = False
    """Whether a step with a source of its own, or an internal value beside it, says the same."""
    readable: bool = True
    """Whether the artifact that it refers to is there and is what its hash says."""
    tokens: int = 0
    artifact: bool = False
    """Whether it is, or has beside it, a reference to an artifact."""
    prose: bool = False
    """Whether it is text that may be cut at a sentence end."""
    fits: bool = True
    """Whether its value is of the declared type."""


@dataclass(frozen=True, slots=True)
class Consumer:
    """The step at the other side of the gate."""

    step: str
    may: May = May.PROPOSE
    clearance: Sensitivity = Sensitivity.INTERNAL
    uses: tuple[str, ...] = ()
    """What it does with what it learns, in the words of allowed and forbidden use."""
    on_failure: OnFailure = OnFailure.FAIL
    min_confidence: float | None = None


class Check(Frozen):
    """One question that was asked of a crossing, what was found, and whether that is enough."""

    name: str
    value: str
    passed: bool
    reason: Reason | None = None


class Crossing(Frozen):
    """A decision of the gate. Its fields answer why, by whose right, from where, good until when, and how to recover."""

    need: str
    """Why: the need of the consuming step, `step.key`."""
    kind: Kind
    right: str
    """By whose right: the step's clearance and permission, and the version of the rules."""
    source: str
    """From where: step and key with their version, and what the producer names as its own source."""
    until: str | None = None
    """Good until when: a time in UTC, or None: until its source changes."""
    recover: str = ""
    """How to recover: the repair of a block, and what the consuming step does about it."""
    outcome: Outcome
    reason: Reason | None = None
    checks: tuple[Check, ...] = ()

    @property
    def blocked(self) -> bool:
        """Whether nothing crosses."""
        return self.outcome is Outcome.BLOCK

    def brief(self) -> dict[str, Any]:
        """The decision without its checks, as it stands in an event."""
        return self.model_dump(mode="json", exclude={"checks"}, exclude_none=True, exclude_defaults=True)


_RANK = {Sensitivity.PUBLIC: 0, Sensitivity.INTERNAL: 1, Sensitivity.RESTRICTED: 2}


def decide(offer: Offer, consumer: Consumer, *, now_ms: int, rules: BoundaryRules) -> Crossing:
    """Decide one crossing at board time `now_ms`.

    The first check that does not pass blocks it and gives the reason. What passes all of them crosses whole, or as a
    reference, or compressed, or is blocked as `too_large`, by its size alone.
    """
    control = offer.packet.control
    checks = tuple(_checks(offer, consumer, now_ms, rules))
    failed = next((each for each in checks if not each.passed), None)
    outcome, reason = (Outcome.BLOCK, failed.reason) if failed else (_by_size(offer, rules), None)
    recover = "" if reason is None else f"{REPAIRS[reason]}; on failure: {consumer.on_failure}"
    origin = control.provenance.source_ref if control.provenance else ", ".join(map(str, control.evidence))
    return Crossing(
        need=offer.packet.name,
        kind=offer.packet.kind,
        right=f"{consumer.step} may {consumer.may}, cleared for {consumer.clearance}; rules {rules.version}",
        source=f"{offer.packet.name}@{offer.version}" + (f" from {origin}" if origin else ""),
        until=None if control.expires_at is None else _time(control.expires_at),
        recover=recover,
        outcome=outcome,
        reason=reason,
        checks=checks,
    )


def _checks(offer: Offer, consumer: Consumer, now_ms: int, rules: BoundaryRules) -> Iterator[Check]:
    packet, control = offer.packet, offer.packet.control
    yield Check(name="need", value="declared" if offer.needed else "not declared", passed=offer.needed, reason=Reason.NOT_NEEDED)
    yield Check(name="retraction", value=offer.retracted or "none", passed=not offer.retracted, reason=Reason.RETRACTED)
    yield Check(name="agreement", value=_agreement(offer), passed=not offer.contested, reason=Reason.CONTESTED)
    yield Check(name="schema", value="fits" if offer.fits else "does not fit", passed=offer.fits, reason=Reason.SCHEMA)
    yield Check(name="source", value=_source(packet), passed=_has_source(packet), reason=Reason.NO_SOURCE)
    yield Check(name="version", value=offer.version or "none", passed=offer.current, reason=Reason.VERSION_BEHIND)
    yield _freshness(offer, now_ms)
    yield Check(
        name="clearance",
        value=f"{control.sensitivity} for {consumer.clearance}",
        passed=_RANK[control.sensitivity] <= _RANK[consumer.clearance],
        reason=Reason.NO_PERMISSION,
    )
    yield _use(packet, consumer)
    yield _trust(offer, consumer, rules)
    least = rules.least_confidence(consumer.may) if consumer.min_confidence is None else consumer.min_confidence
    yield Check(
        name="confidence",
        value=f"{control.confidence:g} of {least:g} for {consumer.may}",
        passed=control.confidence >= least,
        reason=Reason.LOW_CONFIDENCE,
    )
    if offer.artifact:
        said = "readable" if offer.readable else "gone, or not what its hash says"
        yield Check(name="artifact", value=said, passed=offer.readable, reason=Reason.UNREADABLE_ARTIFACT)
    fits = offer.tokens <= rules.max_tokens or offer.artifact or offer.prose
    yield Check(name="size", value=f"{offer.tokens} of {rules.max_tokens} tokens", passed=fits, reason=Reason.TOO_LARGE)


def _by_size(offer: Offer, rules: BoundaryRules) -> Outcome:
    if offer.artifact:
        return Outcome.REFERENCE
    return Outcome.COMPRESS if offer.prose and offer.tokens > rules.max_tokens else Outcome.PASS


def _agreement(offer: Offer) -> str:
    return "contested" if offer.contested else "confirmed" if offer.confirmed else "one value"


def _source(packet: Packet) -> str:
    control = packet.control
    if control.provenance is not None:
        return control.provenance.source_ref or f"{control.provenance.tool}, call {control.provenance.call_id}"
    return ", ".join(map(str, control.evidence)) or "none"


def _has_source(packet: Packet) -> bool:
    """A fact names its tool call; a finding names evidence. A decision, suggestion or field stands on its maker."""
    if packet.kind is Kind.FACT:
        return packet.control.provenance is not None
    return packet.kind is not Kind.FINDING or bool(packet.control.evidence)


def _freshness(offer: Offer, now_ms: int) -> Check:
    expires = offer.packet.control.expires_at
    if offer.stale:
        return Check(name="freshness", value=offer.stale, passed=False, reason=Reason.STALE)
    if expires is None:
        return Check(name="freshness", value="no expiry", passed=True)
    fresh = expires.timestamp() * 1000 > now_ms
    return Check(name="freshness", value=f"{'until' if fresh else 'expired at'} {_time(expires)}", passed=fresh, reason=Reason.STALE)


def _use(packet: Packet, consumer: Consumer) -> Check:
    control = packet.control
    forbidden = [use for use in consumer.uses if use in control.forbidden_use]
    if forbidden:
        return Check(name="use", value=f"{forbidden[0]} is forbidden", passed=False, reason=Reason.NO_PERMISSION)
    beyond = [use for use in consumer.uses or ("a step that names no use",) if control.allowed_use and use not in control.allowed_use]
    if beyond:
        allowed = ", ".join(control.allowed_use)
        return Check(name="use", value=f"{beyond[0]} is not among: {allowed}", passed=False, reason=Reason.NO_PERMISSION)
    return Check(name="use", value=", ".join(consumer.uses) or "unrestricted", passed=True)


def _trust(offer: Offer, consumer: Consumer, rules: BoundaryRules) -> Check:
    """Who may commit relies on facts of the house and on decisions; what is outside, or only supposed, is to be confirmed first."""
    packet = offer.packet
    zone = packet.control.provenance.zone if packet.control.provenance else Zone.INTERNAL
    if consumer.may is May.COMMIT and not offer.confirmed:
        if zone is Zone.EXTERNAL and not rules.external_may_commit:
            return Check(name="trust", value="external alone", passed=False, reason=Reason.UNTRUSTED)
        if packet.kind in (Kind.FINDING, Kind.SUGGESTION):
            return Check(name="trust", value=f"a {packet.kind}, not confirmed", passed=False, reason=Reason.UNTRUSTED)
    if admission(packet.kind) in (Admission.DESK, Admission.GAP, Admission.STALE):
        return Check(name="trust", value=f"a {packet.kind} is nothing to rely on", passed=False, reason=Reason.UNTRUSTED)
    return Check(name="trust", value=f"{packet.kind}, {zone}{', confirmed' if offer.confirmed else ''}", passed=True)


def _time(moment: datetime) -> str:
    return f"{moment.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"
