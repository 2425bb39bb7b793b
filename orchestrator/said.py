"""What steps said, and what they or people say of it later: withdrawn, or confirmed from a source of its own. Pure."""

from __future__ import annotations

from orchestrator.absorption import Absorption
from orchestrator.views import View
from schemas import fields
from schemas.boundary import Promotion, Retraction
from schemas.packets import Packet, fingerprint
from schemas.plans import Step
from schemas.results import AgentResult


def withdraw(work: Absorption, step: str, packet: Packet) -> None:
    """A step reports that something it read is wrong."""
    source, _, key = str(packet.payload).partition(".")
    retraction = retraction_of(work.view, source, key, packet.control.reason or "reported wrong", by=step)
    if retraction is None:
        work.refused.append(f"{step}: there is no {packet.payload} to withdraw")
    else:
        work.retractions.append(retraction)


def retraction_of(view: View, step: str, key: str, reason: str, *, by: str) -> Retraction | None:
    """Return the retraction of what a step's present result says of `key`, or None where it says nothing of it."""
    result = view.result(step)
    values = values_of(result)
    if key not in values:
        return None
    version = view.version(fields.result(step))
    return Retraction(step=step, key=key, version=version, reason=reason, value=str(values[key]), by=by, at_ms=view.now_ms)


def values_of(result: AgentResult | None) -> dict[str, object]:
    """Return what a result says: the values of its facts and judgements, by key."""
    if result is None:
        return {}
    return {**{fact.key: fact.value for fact in result.facts}, **{packet.key: packet.payload for packet in result.packets}}


def confirm(work: Absorption, definition: Step, result: AgentResult) -> None:
    """A finding becomes confirmed where this step's fact says the same, from a source of its own."""
    for key, name in definition.confirms.items():
        step, _, wanted = name.partition(".")
        other = work.view.result(step)
        finding = next((each for each in other.packets if each.key == wanted), None) if other is not None else None
        fact = next((each for each in result.facts if each.key == key), None)
        if finding is None or fact is None:
            continue
        source = fact.provenance.source_ref or fact.provenance.tool
        if fingerprint(fact.value) != fingerprint(finding.payload):
            work.refused.append(f"{definition.id}: {key} does not say what {name} says")
        elif {source, f"{definition.id}.{key}"} & {each.ref for each in finding.control.evidence}:
            work.refused.append(f"{definition.id}: {key} comes from the source of {name}, so it confirms nothing")
        else:
            work.promotions.append(
                Promotion(
                    finding=name,
                    version=work.view.version(fields.result(step)),
                    fact=f"{definition.id}.{key}",
                    fact_version=work.view.version(fields.result(definition.id)),
                    source=source,
                )
            )
