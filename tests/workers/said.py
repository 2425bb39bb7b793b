"""A step whose brief holds facts, a judgement and shared fields, and what an agent says of them: what the boundary's tests start from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from schemas import fields
from schemas.artifacts import ArtifactRef, artifact_of
from schemas.facts import Fact, Provenance
from schemas.frozen import deep_frozen
from schemas.packets import Control, Evidence, Kind, Packet
from schemas.results import AgentResult, Failure, MadeWith, ReadOf, ResultStatus
from schemas.shared import FieldCard, FieldChange, Operation
from tests.workers.agents.runs import brief_of
from workers.accepting import Terms, accept
from workers.agents.actions import Action, actions_of
from workers.agents.agent import AgentBrief

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
REPORT: ArtifactRef = artifact_of(b"rows", producer="shop").ref
MADE_WITH = MadeWith(brief_sha256="f" * 64, position=3, model="m1", rules="r1")


def fact(key: str, value: Any = 120, *, step: str = "shop", source: str | None = "catalogue", **given: Any) -> Fact:
    """A fact of another step."""
    provenance = Provenance(step=step, tool="look", call_id="c1", path="x", source_ref=source)
    return Fact(key=key, value=value, provenance=provenance, **given)


def briefed(
    *,
    cards: tuple[FieldCard, ...] = (),
    actions: tuple[Action, ...] = (),
    shared: Mapping[str, Any] | None = None,
    told: Mapping[str, Any] | None = None,
    **step: Any,
) -> AgentBrief:
    """A brief of step `look` with a price and a report of step `shop`, a judgement of step `mind`, and these shared values."""
    brief = brief_of(**step)
    shared = shared or {}
    facts = {"shop.price": fact("price"), "shop.report": fact("report", REPORT.id, artifact=REPORT)}
    judged = Packet(kind=Kind.FINDING, key="mood", payload="good", control=Control(producer="mind"))
    reads = {**dict.fromkeys(facts, ReadOf(version="2.abc")), "mind.mood": ReadOf(version="3.def")}
    known = {card.name: card for card in cards}
    return replace(
        brief,
        facts=facts,
        packets={"mind.mood": judged},
        shared=deep_frozen(shared),
        told=deep_frozen(told or {}),
        empty={name: "0" for name in brief.step.reads if name not in shared},
        reads={**reads, **{fields.shared(name): ReadOf(version="5.fff") for name in shared}},
        cards=known,
        actions=actions_of(brief.step, actions, known),
    )


def says(value: Any, *evidence: str, key: str = "cause", kind: Kind = Kind.FINDING, producer: str = "look", **given: Any) -> Packet:
    """A judgement as a black box returns it."""
    references = tuple(Evidence(ref=each) for each in evidence)
    return Packet(kind=kind, key=key, payload=value, control=Control(producer=producer, evidence=references, **given))


def wants(field: str, value: Any, operation: Operation = Operation.SET, **given: Any) -> FieldChange:
    """A change as a black box returns it."""
    return FieldChange(field=field, operation=operation, value=value, **given)


def answered(*, actions: tuple[Action, ...] = (), brief: AgentBrief, **result: Any) -> tuple[AgentResult | None, Failure | None]:
    """Accept the result of an agent that says all this."""
    made = AgentResult(agent="looker", step_id="look", status=ResultStatus.COMPLETED, summary="Done.", **result)
    return accept(made, Terms(brief, MADE_WITH, "req", 1, NOW, actions))


def accepted(**given: Any) -> AgentResult:
    """Accept a result that is right."""
    kept, failure = answered(**given)
    assert failure is None, failure
    assert kept is not None
    return kept


def refused(**given: Any) -> Failure:
    """Accept a result that is not right; nothing of what it says is kept."""
    kept, failure = answered(**given)
    assert failure is not None
    assert kept is None or (kept.packets, kept.changes) == ((), ())
    return failure
