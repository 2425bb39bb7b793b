"""The gate: one pure function that decides each crossing from one step to another, check by check.

Nothing is weighed or scored: each check has a value and a reason, the first that does not pass names the outcome, and the
rest is still listed. What is asked of a crossing comes from two sides: the packet (source, time, sensitivity, allowed use)
and the consuming step (its declared need, its agent's clearance, what it may do).
"""

from __future__ import annotations

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
        hashed = _hash_of(self)
        return f"{self.named}-{hashed}" if self.named else hashed

    def least_confidence(self, may: May) -> float:
        """The confidence that a value must have for a step that may do this."""
        return {May.EXPLORE: self.explore_confidence, May.PROPOSE: self.propose_confidence, May.COMMIT: self.commit_confidence}[may]


@lru_cache(maxsize=256)
def _hash_of(rules: BoundaryRules) -> str:
    """Every brief names the rules that it was built by, and few requests have any of their own."""
    return digest(rules.model_dump(mode="json"))


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


_NOTHING_TO_RELY_ON = frozenset(kind for kind in Kind if admission(kind) in (Admission.DESK, Admission.GAP, Admission.STALE))
_RANK = {Sensitivity.PUBLIC: 0, Sensitivity.INTERNAL: 1, Sensitivity.RESTRICTED: 2}


def decide(offer: Offer, consumer: Consumer, *, now_ms: int, rules: BoundaryRules) -> Crossing:
    """Decide one crossing at board time `now_ms`.

    The first check that does not pass blocks it and gives the reason. What passes all of them crosses whole, or as a
    reference, or compressed, or is blocked as `too_large`, by its size alone.
    """
    return Gate(consumer, now_ms, rules).decide(offer)


class Gate:
    """What `decide` asks of each of many offers, read once: one consumer, at one moment, under one set of rules."""

    def __init__(self, consumer: Consumer, now_ms: int, rules: BoundaryRules) -> None:
        self._consumer = consumer
        self._now_ms = now_ms
        self._rules = rules
        self._least = rules.least_confidence(consumer.may) if consumer.min_confidence is None else consumer.min_confidence
        self._right = f"{consumer.step} may {consumer.may}, cleared for {consumer.clearance}; rules {rules.version}"

    def decide(self, offer: Offer) -> Crossing:
        """Decide one crossing, as the function of that name says."""
        packet, control = offer.packet, offer.packet.control
        checks = self._checks(offer)
        failed = next((each for each in checks if not each.passed), None)
        outcome, reason = (Outcome.BLOCK, failed.reason) if failed else (_by_size(offer, self._rules), None)
        origin = control.provenance.source_ref if control.provenance else ", ".join(map(str, control.evidence))
        name = packet.name
        return Crossing(
            need=name,
            kind=packet.kind,
            right=self._right,
            source=f"{name}@{offer.version}" + (f" from {origin}" if origin else ""),
            until=None if control.expires_at is None else _time(control.expires_at),
            recover="" if reason is None else f"{REPAIRS[reason]}; on failure: {self._consumer.on_failure}",
            outcome=outcome,
            reason=reason,
            checks=checks,
        )

    def _checks(self, offer: Offer) -> tuple[Check, ...]:
        packet, control = offer.packet, offer.packet.control
        consumer, rules = self._consumer, self._rules
        readable = "readable" if offer.readable else "gone, or not what its hash says"
        return (
            _check("need", "declared" if offer.needed else "not declared", offer.needed, Reason.NOT_NEEDED),
            _check("retraction", offer.retracted or "none", not offer.retracted, Reason.RETRACTED),
            _check("agreement", _agreement(offer), not offer.contested, Reason.CONTESTED),
            _check("schema", "fits" if offer.fits else "does not fit", offer.fits, Reason.SCHEMA),
            _check("source", _source(packet), _has_source(packet), Reason.NO_SOURCE),
            _check("version", offer.version or "none", offer.current, Reason.VERSION_BEHIND),
            _freshness(offer, self._now_ms),
            _check(
                "clearance",
                f"{control.sensitivity} for {consumer.clearance}",
                _RANK[control.sensitivity] <= _RANK[consumer.clearance],
                Reason.NO_PERMISSION,
            ),
            _use(packet, consumer),
            _trust(offer, consumer, rules),
            _check(
                "confidence",
                f"{control.confidence:g} of {self._least:g} for {consumer.may}",
                control.confidence >= self._least,
                Reason.LOW_CONFIDENCE,
            ),
            *((_check("artifact", readable, offer.readable, Reason.UNREADABLE_ARTIFACT),) if offer.artifact else ()),
            _check(
                "size",
                f"{offer.tokens} of {rules.max_tokens} tokens",
                offer.tokens <= rules.max_tokens or offer.artifact or offer.prose,
                Reason.TOO_LARGE,
            ),
        )


@lru_cache(maxsize=1024)
def _check(name: str, value: str, passed: bool, reason: Reason | None = None) -> Check:
    """Most checks of most crossings say the same, and making a model costs more than asking the question."""
    return Check(name=name, value=value, passed=passed, reason=reason)


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
        return _check("freshness", offer.stale, False, Reason.STALE)
    if expires is None:
        return _check("freshness", "no expiry", True)
    fresh = expires.timestamp() * 1000 > now_ms
    return _check("freshness", f"{'until' if fresh else 'expired at'} {_time(expires)}", fresh, Reason.STALE)


def _use(packet: Packet, consumer: Consumer) -> Check:
    control = packet.control
    forbidden = [use for use in consumer.uses if use in control.forbidden_use]
    if forbidden:
        return _check("use", f"{forbidden[0]} is forbidden", False, Reason.NO_PERMISSION)
    beyond = [use for use in consumer.uses or ("a step that names no use",) if use not in control.allowed_use]
    if control.allowed_use and beyond:
        allowed = ", ".join(control.allowed_use)
        return _check("use", f"{beyond[0]} is not among: {allowed}", False, Reason.NO_PERMISSION)
    return _check("use", ", ".join(consumer.uses) or "unrestricted", True)


def _trust(offer: Offer, consumer: Consumer, rules: BoundaryRules) -> Check:
    """Who may commit relies on facts of the house and on decisions; what is outside, or only supposed, is to be confirmed first."""
    packet = offer.packet
    zone = packet.control.provenance.zone if packet.control.provenance else Zone.INTERNAL
    if consumer.may is May.COMMIT and not offer.confirmed:
        if zone is Zone.EXTERNAL and not rules.external_may_commit:
            return _check("trust", "external alone", False, Reason.UNTRUSTED)
        if packet.kind in (Kind.FINDING, Kind.SUGGESTION):
            return _check("trust", f"a {packet.kind}, not confirmed", False, Reason.UNTRUSTED)
    if packet.kind in _NOTHING_TO_RELY_ON:
        return _check("trust", f"a {packet.kind} is nothing to rely on", False, Reason.UNTRUSTED)
    return _check("trust", f"{packet.kind}, {zone}{', confirmed' if offer.confirmed else ''}", True)


def _time(moment: datetime) -> str:
    return f"{moment.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"
