"""Merging: the value of a shared field that several steps contribute to, from their claims in one order. Pure."""

from __future__ import annotations

from orchestrator.absorption import Absorption
from schemas.errors import Refused
from schemas.gate import May
from schemas.packets import fingerprint
from schemas.reducers import AGREE, in_order, independent_sources, is_contested, reduce_claims
from schemas.shared import Claim, FieldCard, FieldRecord, check_value


def settled(record: FieldRecord, choice: str, by: str, now_ms: int, card: FieldCard, *, asked: bool = False) -> FieldRecord:
    """Return a contested field with one of its claims as its value; the others stay beside it.

    Raises:
        Refused: it is not contested, has no such claim, or (`asked`) only a person may settle it.
    """
    if not record.contested:
        raise Refused(f"field {card.name!r} is not contested", path=card.name)
    if asked:
        raise Refused(f"field {card.name!r} is for a person: independent sources differ, and a step may commit on it", path=card.name)
    chosen = next((each for each in record.claims if choice in (each.id, fingerprint(each.value), str(each.value))), None)
    if chosen is None:
        there = ", ".join(f"{each.id} ({each.value!r})" for each in record.claims)
        raise Refused(f"field {card.name!r} has no claim {choice!r}; there are: {there}", path=card.name)
    return record.model_copy(
        update={"value": chosen.value, "contested": False, "settled_by": by, "at_ms": now_ms, "evidence": chosen.evidence}
    )


def must_ask(work: Absorption, card: FieldCard, record: FieldRecord) -> bool:
    """Whether independent sources differ on a field that a step which may commit reads: then no agent settles it."""
    commits = any(each.may is May.COMMIT and card.name in each.reads for each in work.outline.definitions.values())
    return commits and len(independent_sources(record.claims)) > 1


def reduce_all(work: Absorption) -> None:
    """Work out every merged field anew from its claims."""
    for name in list(work.changed):
        card, record = work.cards.get(name), work.records[name]
        if card is None or card.reducer is None or (record.settled_by and not record.contested and not _has_new(work, name, record)):
            continue
        claims = tuple(in_order(record.claims))
        if card.reducer == "sum":
            claims = _within_capacity(work, card, claims)
        counted = [each for each in claims if not each.refused]
        contested = card.reducer == AGREE and is_contested(claims)
        try:
            value = None if contested else reduce_claims(work.reducers[card.reducer], counted)
            if value is not None:
                check_value(card, value)
        except Exception as error:  # a team's own reducer may raise anything, and must not keep the request from its end
            _keep(work, name, claims, error)
            continue
        work.asks |= contested and (card.arbiter is None or must_ask(work, card, record))
        merged = {"claims": claims, "value": value, "contested": contested, "at_ms": work.view.now_ms, "settled_by": ""}
        if card.ttl_seconds is not None:
            merged["expires_at_ms"] = work.view.now_ms + int(card.ttl_seconds * 1000)
        work.records[name] = record.model_copy(update=merged)


def _keep(work: Absorption, name: str, claims: tuple[Claim, ...], error: Exception) -> None:
    """What cannot be merged changes nothing: the field stays as it was, and each contribution that is new is refused."""
    before = work.view.shared.get(name, FieldRecord())
    said = " ".join(str(error).split())[:200]
    for step in dict.fromkeys(each.step for each in claims if each not in before.claims):
        work.refused.append(f"{step}: {name} cannot be merged: {type(error).__name__}: {said}")
    work.records[name] = before


def _has_new(work: Absorption, name: str, record: FieldRecord) -> bool:
    before = work.view.shared.get(name)
    return before is None or in_order(before.claims) != in_order(record.claims)


def _within_capacity(work: Absorption, card: FieldCard, claims: tuple[Claim, ...]) -> tuple[Claim, ...]:
    """Contributions in their one order; those with which the sum would go over the limit stay beside it, refused.

    They are kept since they may fit when an earlier one is taken back: else who came first would show.
    """
    limit = card.capacity
    if card.capacity_of and (constraint := work.view.constraint(card.capacity_of)) and isinstance(constraint.value, int | float):
        limit = float(constraint.value)
    if limit is None:
        return claims
    kept: list[Claim] = []
    total = 0.0
    for each in claims:
        amount = float(each.value) if isinstance(each.value, int | float) else 0.0
        if total + amount > limit:
            why = f"{over(card.name)}{total + amount:g}, and may be {limit:g} at most"
            work.refused.append(f"{each.step}: {why}")
            kept.append(each.model_copy(update={"refused": why}))
            continue
        total += amount
        kept.append(each.model_copy(update={"refused": ""}))
    return tuple(kept)


def over(name: str) -> str:
    """How a refusal begins that is said anew each time the field is worked out."""
    return f"{name} would be "
