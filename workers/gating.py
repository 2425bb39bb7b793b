"""Gating: what the board offers to a step, each put before the gate. Pure.

The gate (`schemas.gate`) decides; here an offer is made of a fact, a judgement or a shared field, with what the board says of
it now. Called by briefing, for the worker line and for `show`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from schemas import fields
from schemas.blackboard import ABSENT
from schemas.boundary import APPROVE, NO_BOUNDARY, BoundaryRecord, Ruling
from schemas.codec import digest
from schemas.errors import InvalidValue
from schemas.facts import Fact, Sensitivity, Zone
from schemas.gate import BoundaryRules, Check, Consumer, Crossing, Gate, Offer, Outcome, Reason
from schemas.packets import Control, Evidence, Kind, OnFailure, Packet, fingerprint, packet_of
from schemas.plans import Need, Step, needs_of
from schemas.results import AgentResult, ReadOf
from schemas.shared import FieldCard, FieldRecord, check_value
from workers import tokens

SHARED_STEP = "field"
"""What stands for the step in the name of a shared field's crossing (`field.budget`)."""


@dataclass(frozen=True, slots=True)
class Boundary:
    """What holds at the gate of one step at one moment."""

    rules: BoundaryRules = field(default_factory=BoundaryRules)
    record: BoundaryRecord = NO_BOUNDARY
    clearance: Sensitivity = Sensitivity.INTERNAL
    cards: Mapping[str, FieldCard] = field(default_factory=dict)
    shared: Mapping[str, FieldRecord] = field(default_factory=dict)
    """The shared fields that the step reads, as far as they exist."""
    now_ms: int | None = None
    """Board time; None: nothing expires (a brief that nobody runs)."""
    unreadable: frozenset[str] = frozenset()
    """Ids of artifacts that are gone, or are not what their hash says."""

    @property
    def effective(self) -> BoundaryRules:
        """The rules that hold: the request's own, where somebody changed them, else the team's."""
        return self.record.rules or self.rules


@dataclass(frozen=True, slots=True)
class Weighed:
    """One offer and what the gate decided of it."""

    offer: Offer
    crossing: Crossing
    optional: bool
    fact: Fact | None = None
    shared: str = ""
    """The shared field's name, where it is one."""

    @property
    def step(self) -> str:
        """Whose it is."""
        return self.offer.packet.control.producer

    @property
    def key(self) -> str:
        """Of the fact or judgement, or the shared field's name."""
        return self.offer.packet.key

    @property
    def name(self) -> str:
        """`step.key`, or `field/<name>`."""
        return fields.shared(self.shared) if self.shared else self.offer.packet.name

    @property
    def read(self) -> ReadOf:
        """By what a later look finds out whether it still says the same."""
        return ReadOf(version=self.offer.version, fingerprint=fingerprint(self.offer.packet.payload))


def weigh_all(step: Step, results: Mapping[str, AgentResult], versions: Mapping[str, str], boundary: Boundary) -> list[Weighed]:
    """Put before the gate all that completed inputs and shared fields offer to `step`, in the order of results, then of its reads."""
    needs = needs_of(step)
    offers = [each for result in results.values() for each in _offers(needs, result, versions, boundary)]
    offers += [each for name in step.reads for each in _shared_offers(step, name, versions, boundary)]
    if not offers:
        return []
    now = boundary.now_ms if boundary.now_ms is not None else 0
    gate = Gate(consumer_of(step, boundary.clearance), now, boundary.effective)

    def decided(offered: _Offered) -> Weighed:
        offer, optional, fact, shared = offered
        return Weighed(offer, gate.decide(offer), optional, fact, shared)

    weighed = [decided(each) for each in offers]
    if not all(map(_is_of_the_house, weighed)):
        confirmed = _confirmed_by_the_house(weighed)
        weighed = [_with_confirmation(each, confirmed, decided) for each in weighed]
    ruling = ruling_for(step, boundary, weighed)
    return weighed if ruling is None else [_let_through(each, ruling) for each in weighed]


def consumer_of(step: Step, clearance: Sensitivity) -> Consumer:
    """The step as the gate sees it."""
    return Consumer(
        step=step.id,
        may=step.may,
        clearance=clearance,
        uses=step.uses,
        on_failure=step.on_failure,
        min_confidence=step.min_confidence,
    )


def rests_on(weighed: list[Weighed]) -> str:
    """Return the fingerprint of what a person is asked about: every value that was offered, with its version."""
    return digest([[each.name, each.offer.version, each.read.fingerprint] for each in weighed])


def ruling_for(step: Step, boundary: Boundary, weighed: list[Weighed]) -> Ruling | None:
    """Return what a person decided about this step running on these very values, or None where nobody did."""
    ruling = boundary.record.rulings.get(f"step:{step.id}")
    holds = ruling is not None and (ruling.rests_on == rests_on(weighed) or (not ruling.rests_on and not step.irreversible))
    return ruling if holds else None


_NEVER_BY_RULING = frozenset({Reason.RETRACTED, Reason.CONTESTED, Reason.SCHEMA, Reason.UNREADABLE_ARTIFACT, Reason.NOT_NEEDED})


def _let_through(weighed: Weighed, ruling: Ruling) -> Weighed:
    """A person may let a blocked value cross; not one that was withdrawn, is contested or cannot be read."""
    crossing = weighed.crossing
    if ruling.choice != APPROVE or crossing.reason is None or crossing.reason in _NEVER_BY_RULING:
        return weighed
    check = Check(name="person", value=f"{ruling.by or 'a person'} approved: {ruling.reason or 'no reason given'}", passed=True)
    outcome = Outcome.REFERENCE if weighed.offer.artifact else Outcome.PASS
    passed = crossing.model_copy(update={"outcome": outcome, "reason": None, "recover": "", "checks": (*crossing.checks, check)})
    return Weighed(weighed.offer, passed, weighed.optional, weighed.fact, weighed.shared)


_Offered = tuple[Offer, bool, Fact | None, str]


def _offers(needs: Iterable[Need], result: AgentResult, versions: Mapping[str, str], boundary: Boundary) -> Iterator[_Offered]:
    """What one completed step offers: its facts, then its judgements."""
    version = versions.get(fields.result(result.step_id), "")
    declared = {fact.key: fact for fact in result.facts}
    needs = [need for need in needs if need.step == result.step_id]
    for packet in (*map(packet_of, result.facts), *result.packets):
        matching = [need for need in needs if need.key in ("*", packet.key)]
        fact = declared.get(packet.key) if packet.kind is Kind.FACT else None
        artifact = fact.artifact.id if fact is not None and fact.artifact is not None else ""
        offer = Offer(
            packet=packet,
            version=version,
            needed=bool(matching),
            current=_is_current(packet.control.evidence, versions),
            retracted=boundary.record.retracted(result.step_id, packet.key, version),
            confirmed=boundary.record.confirmed(packet.name, version),
            readable=artifact not in boundary.unreadable,
            tokens=tokens.estimate(str(packet.payload)),
            artifact=bool(artifact),
            prose=packet.kind is not Kind.FACT and isinstance(packet.payload, str),
        )
        yield offer, all(need.optional for need in matching), fact, ""


def _is_current(evidence: tuple[Evidence, ...], versions: Mapping[str, str]) -> bool:
    """Whether every fact that a judgement rests on still is of the version that was judged, as far as that can be seen here."""
    for each in evidence:
        now = versions.get(fields.result(each.ref.partition(".")[0]))
        if each.version is not None and now is not None and now != each.version:
            return False
    return True


def _shared_offers(step: Step, name: str, versions: Mapping[str, str], boundary: Boundary) -> Iterator[_Offered]:
    """A shared field's value, where it has one; its arbiter is offered it while it is contested."""
    record, card = boundary.shared.get(name), boundary.cards.get(name)
    if record is None or card is None or (record.value is None and not record.contested):
        return
    yield shared_offer(step, card, record, versions.get(fields.shared(name), ABSENT)), False, None, name


def shared_offer(step: Step, card: FieldCard, record: FieldRecord, version: str) -> Offer:
    """Return what a shared field offers to a step."""
    try:
        if record.value is not None:
            check_value(card, record.value)
        fits = True
    except InvalidValue:
        fits = False
    expires = None if record.expires_at_ms is None else datetime.fromtimestamp(record.expires_at_ms / 1000, UTC)
    packet = Packet(
        kind=Kind.DECISION,
        key=card.name,
        payload="" if record.value is None else record.value,
        unit=card.unit,
        control=Control(
            producer=SHARED_STEP,
            evidence=record.evidence or tuple(Evidence(ref=name, version=seen) for name, seen in record.seen.items()),
            created_at=datetime.fromtimestamp(record.at_ms / 1000, UTC) if record.at_ms else None,
            expires_at=expires,
            sensitivity=card.sensitivity,
            on_failure=OnFailure.GAP,
        ),
    )
    return Offer(
        packet=packet,
        version=version,
        contested=record.contested and card.arbiter != step.id,
        stale=record.flagged if record.flagged and not card.protected else "",
        tokens=tokens.estimate(str(record.value)),
        fits=fits,
    )


def _confirmed_by_the_house(weighed: list[Weighed]) -> dict[str, set[str]]:
    """Key -> fingerprints of the values that an internal source gave, among what crosses: what is blocked itself confirms nothing."""
    found: dict[str, set[str]] = {}
    for each in weighed:
        if _is_of_the_house(each) and not each.crossing.blocked:
            found.setdefault(each.key, set()).add(fingerprint(each.offer.packet.payload))
    return found


def _is_of_the_house(weighed: Weighed) -> bool:
    return weighed.fact is not None and weighed.fact.provenance.zone is Zone.INTERNAL


def _with_confirmation(weighed: Weighed, confirmed: Mapping[str, set[str]], decided: Callable[[_Offered], Weighed]) -> Weighed:
    """A value from elsewhere that an internal one says as well is put before the gate again, as confirmed."""
    says = confirmed.get(weighed.key)
    if says is None or weighed.offer.confirmed or _is_of_the_house(weighed) or fingerprint(weighed.offer.packet.payload) not in says:
        return weighed
    return decided((replace(weighed.offer, confirmed=True), weighed.optional, weighed.fact, weighed.shared))
