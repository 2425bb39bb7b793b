"""Absorbing: what completed steps want of the team's shared fields, taken in by one write. Pure.

Steps of one superstep are absorbed together, once all of them have ended: the barrier. A step outside of one is a superstep
of its own. What a step adds stands in the field as claims, and the field is their reduction, so no order of arrival shows and
a step that runs again replaces what it had added. Steps that depend on one wait until it is absorbed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from orchestrator.absorption import WAITS_FOR_A_PERSON, Absorption
from orchestrator.decisions import Change, Decision
from orchestrator.merging import must_ask, over, reduce_all, settled
from orchestrator.reopening import expected
from orchestrator.said import confirm, withdraw
from orchestrator.scheduling import Standing, full_fields
from orchestrator.views import Outline, View
from schemas import fields
from schemas.blackboard import DeadEntry
from schemas.boundary import AbsorbedRecord, BoundaryRecord
from schemas.errors import Refused
from schemas.packets import Kind, Packet
from schemas.reducers import Reducer
from schemas.results import AgentResult
from schemas.shared import (
    Claim,
    Communication,
    FieldCard,
    FieldChange,
    FieldRecord,
    Operation,
    check_change,
    check_transition,
    check_value,
    conditions_of,
)


def absorb(view: View, outline: Outline, standing: Mapping[str, Standing], reducers: Mapping[str, Reducer]) -> Decision | None:
    """Return the write that takes in the next group of steps, what has to be read for it, or None where nothing is left."""
    group = next(_groups(view, outline, standing), None)
    return None if group is None else _take_in(view, outline, standing, group, reducers)


def absorb_late(view: View, outline: Outline, standing: Mapping[str, Standing], reducers: Mapping[str, Reducer]) -> Decision | None:
    """The same for steps whose definition does not say that they change anything, before the answer; every result is read."""
    wanted = [
        step
        for step, state in standing.items()
        if state is Standing.COMPLETED and (result := view.result(step)) and (result.changes or any(map(_is_for_others, result.packets)))
    ]
    if not wanted:
        return None
    if missing := view.missing((fields.ABSORBED,)):
        return Decision(read_more=missing)
    left = [step for step in wanted if not is_absorbed(view, step)]
    return _take_in(view, outline, standing, left, reducers) if left else None


def is_absorbed(view: View, step: str) -> bool:
    """Whether the present epoch of an ended step was taken in."""
    seen = view.step(step)
    return seen is not None and (step, seen.record.epoch) in view.absorbed.steps


def _is_for_others(packet: Packet) -> bool:
    return packet.kind in (Kind.ACTION_REQUEST, Kind.RETRACTION)


def _groups(view: View, outline: Outline, standing: Mapping[str, Standing]) -> Iterator[list[str]]:
    """Every superstep that has ended and is not absorbed, each step without one being its own."""
    seen: set[str] = set()
    for step in outline.graph.order:
        if step not in outline.graph.absorbing or step in seen:
            continue
        name = outline.definitions[step].superstep
        members = [each for each in outline.definitions if name is not None and outline.definitions[each].superstep == name] or [step]
        seen.update(members)
        if all(standing.get(each, Standing.UNKNOWN).settled for each in members):
            left = [each for each in members if _is_left(view, each, standing[each])]
            if left:
                yield left


def _is_left(view: View, step: str, standing: Standing) -> bool:
    """Whether a settled step is still to be taken in: one that will not run again takes back what it had added when it did."""
    if standing is Standing.SKIPPED:
        return any(each == step for each, _ in view.absorbed.steps)
    return not is_absorbed(view, step)


def _take_in(
    view: View, outline: Outline, standing: Mapping[str, Standing], group: Sequence[str], reducers: Mapping[str, Reducer]
) -> Decision:
    completed = [step for step in group if standing[step] is Standing.COMPLETED]
    confirmed = {name.partition(".")[0] for step in completed for name in outline.definitions[step].confirms.values()}
    names = (*full_fields(outline), fields.ABSORBED, fields.CARD, *map(fields.result, (*completed, *confirmed)))
    if missing := view.missing(names):
        return Decision(read_more=missing)
    cards = view.card.fields if view.card else {}
    if missing := view.missing((*_of_fields(view, outline, cards, group, completed), *_of_withdrawn(view, completed))):
        return Decision(read_more=missing)
    work = Absorption(view, outline, cards, reducers, dict(view.shared))
    for step in group:
        result = view.result(step) if step in completed else None
        _withdraw_older(work, step)
        if result is None:
            _release(work, step)
            continue
        _apply(work, step, result)
        confirm(work, outline.definitions[step], result)
    reduce_all(work)
    ended = [step for step in group if standing[step] is not Standing.SKIPPED]
    return Decision(change=_change(work, group, ended, _decided_on(outline, standing, group)))


def _of_fields(
    view: View, outline: Outline, cards: Mapping[str, FieldCard], group: Sequence[str], completed: Sequence[str]
) -> tuple[str, ...]:
    """Every shared field and constraint that decides what becomes of the group's changes."""
    wanted: dict[str, None] = {}
    for step in group:
        wanted |= dict.fromkeys(name for name in outline.definitions[step].writes if name in cards)
    for step in completed:
        result = view.result(step)
        wanted |= dict.fromkeys(change.field for change in (result.changes if result else ()) if change.field in cards)
    conditions = dict.fromkeys(name for each in wanted for name in conditions_of(cards[each]))
    limits = dict.fromkeys(limit for each in wanted if (limit := cards[each].capacity_of))
    return (*map(fields.shared, {**wanted, **conditions}), *map(fields.constraint, limits))


def _of_withdrawn(view: View, completed: Sequence[str]) -> tuple[str, ...]:
    """The results in which a step says that something is wrong."""
    packets = [packet for step in completed if (result := view.result(step)) for packet in result.packets]
    return tuple(fields.result(str(each.payload).partition(".")[0]) for each in packets if each.kind is Kind.RETRACTION)


def _withdraw_older(work: Absorption, step: str) -> None:
    """What an earlier epoch of the step had added is replaced, also where this one adds nothing."""
    for name, record in list(work.records.items()):
        if any(each.step == step for each in record.claims):
            claims = tuple(each for each in record.claims if each.step != step)
            work.put(name, record.model_copy(update={"claims": claims}))


def _release(work: Absorption, step: str) -> None:
    """A failed step holds nothing of a resource."""
    for name, record in list(work.records.items()):
        if any(each.step == step for each in record.reservations.values()):
            left = {key: each for key, each in record.reservations.items() if each.step != step}
            work.put(name, record.model_copy(update={"reservations": left}))


def _apply(work: Absorption, step: str, result: AgentResult) -> None:
    """Take each change in the order it was made; one that does not fit is refused by name, and changes nothing."""
    definition = work.outline.definitions[step]
    seen = work.view.step(step)
    epoch = seen.record.epoch if seen else 0
    for index, change in enumerate(result.changes):
        try:
            check_change(work.cards, change, step, definition.writes)
            _apply_one(work, step, epoch, index, change, result)
        except Refused as error:
            work.refused.append(f"{step}: {error}")
    for packet in result.packets:
        if packet.kind is Kind.ACTION_REQUEST:
            work.asks = True
        elif packet.kind is Kind.RETRACTION:
            withdraw(work, step, packet)


def _apply_one(work: Absorption, step: str, epoch: int, index: int, change: FieldChange, result: AgentResult) -> None:
    card, record = work.cards[change.field], work.records.get(change.field, FieldRecord())
    claim = Claim(
        step=step,
        epoch=epoch,
        index=index,
        value=change.value,
        reason=change.reason,
        evidence=change.evidence,
        source=change.source,
        confidence=change.confidence,
        at=change.at,
    )
    match change.operation:
        case Operation.ADD:
            work.put(card.name, record.model_copy(update={"claims": (*record.claims, claim)}))
        case Operation.PROPOSE:
            others = tuple(each for each in record.proposals if (each.step, each.index) != (step, index))
            work.put(card.name, record.model_copy(update={"proposals": (*others, claim)}))
        case Operation.SETTLE:
            work.put(card.name, settled(record, str(change.value), step, work.view.now_ms, card, asked=must_ask(work, card, record)))
        case Operation.SET:
            _refuse_outdated(work, card, change)
            work.put(card.name, _set(work, card, record, change, step, epoch, result))
        case Operation.MOVE:
            _refuse_outdated(work, card, change)
            work.put(card.name, _moved(work, card, record, change, step))
        case Operation.TAKE_UP:
            proposal = _proposal(record, card, change.value)
            taken = change.model_copy(update={"value": proposal.value, "operation": Operation.SET})
            rest = tuple(each for each in record.proposals if each.id != proposal.id)
            work.put(card.name, _set(work, card, record.model_copy(update={"proposals": rest}), taken, step, epoch, result))
        case Operation.REFUSE:
            proposal = _proposal(record, card, change.value)
            said = proposal.model_copy(update={"refused": change.reason or "refused"})
            rest = tuple(said if each.id == proposal.id else each for each in record.proposals)
            work.put(card.name, record.model_copy(update={"proposals": rest}))


def _refuse_outdated(work: Absorption, card: FieldCard, change: FieldChange) -> None:
    """An owner who had read the field decided on that version of it; a protected one it must have read."""
    now = work.view.version(fields.shared(card.name))
    if change.seen is not None and change.seen != now:
        raise Refused(f"field {card.name!r} is at {now} by now, and was at {change.seen} in the brief", path=card.name)
    if card.protected and change.seen is None:
        raise Refused(f"field {card.name!r} says what was told to a user, and was not in the brief", path=card.name)


def _set(
    work: Absorption, card: FieldCard, record: FieldRecord, change: FieldChange, step: str, epoch: int, result: AgentResult
) -> FieldRecord:
    others = {name: work.records[name] for name in conditions_of(card) if name in work.records}
    check_transition(card, record if record.value is not None else None, change.value, step, others)
    if card.protected and record.value is not None and card.content(record.value) != card.content(change.value):
        raise Refused(f"field {card.name!r} was told as {record.value!r}; {change.value!r} would contradict it", path=card.name)
    now = work.view.now_ms
    said = Communication(
        content=change.value, at_ms=now, channel=change.channel, approval=change.approval, evidence=change.evidence, step=step
    )
    reads = result.made_with.reads if result.made_with else {}
    return record.model_copy(
        update={
            "value": change.value,
            "step": step,
            "epoch": epoch,
            "at_ms": now,
            "expires_at_ms": None if card.ttl_seconds is None else now + int(card.ttl_seconds * 1000),
            "seen": {name: read.version for name, read in reads.items()},
            "evidence": change.evidence,
            "contested": False,
            "flagged": "",
            "communicated": (*record.communicated, said) if card.protected and change.channel else record.communicated,
        }
    )


def _moved(work: Absorption, card: FieldCard, record: FieldRecord, change: FieldChange, step: str) -> FieldRecord:
    """The same value in another state: who wrote it, when, and on what it rests stays as it was."""
    value = card.moved(record.value, change.value)
    check_value(card, value)
    others = {name: work.records[name] for name in conditions_of(card) if name in work.records}
    check_transition(card, record if record.value is not None else None, value, step, others)
    return record.model_copy(update={"value": value})


def _proposal(record: FieldRecord, card: FieldCard, named: object) -> Claim:
    found = next((each for each in record.proposals if each.id == named and not each.refused), None)
    if found is None:
        there = ", ".join(each.id for each in record.proposals if not each.refused)
        raise Refused(f"field {card.name!r} has no proposal {named!r}; there are: {there or 'none'}", path=card.name)
    return found


def _decided_on(outline: Outline, standing: Mapping[str, Standing], group: Sequence[str]) -> set[str]:
    """The steps by which the barrier was found reached: all of the superstep, and what a skipped one was skipped for."""
    barrier = {name for step in group if (name := outline.definitions[step].superstep) is not None}
    found = {step for step, definition in outline.definitions.items() if step in group or definition.superstep in barrier}
    pending = [step for step in found if standing[step] is Standing.SKIPPED]
    while pending:
        further = [each for each in outline.graph.inputs[pending.pop()] if each not in found]
        found.update(further)
        pending += further
    return found


def _change(work: Absorption, group: Sequence[str], ended: Sequence[str], decided_on: set[str]) -> Change:
    view = work.view
    absorbed: AbsorbedRecord = view.absorbed
    taken = tuple((step, seen.record.epoch) for step in ended if (seen := view.step(step)) is not None)
    kept = tuple(each for each in absorbed.steps if each[0] not in group)
    anew = tuple(map(over, work.changed))
    refused = [each for each in absorbed.refused if each.partition(":")[0] not in group and not each.partition(": ")[2].startswith(anew)]
    record = absorbed.model_copy(
        update={
            "steps": (*kept, *taken),
            "refused": (*refused, *work.refused),
        }
    )
    puts = {fields.ABSORBED: record.to_json()}
    puts |= {fields.shared(name): work.records[name].to_json() for name in work.changed}
    details = {"steps": ",".join(group)}
    if work.changed:
        details["fields"] = ",".join(work.changed)
    if work.refused:
        details["refused"] = "; ".join(work.refused)[:1_000]
    if work.retractions or work.promotions:
        boundary: BoundaryRecord = view.boundary
        puts[fields.BOUNDARY] = boundary.model_copy(
            update={
                "retractions": (*boundary.retractions, *work.retractions),
                "promotions": (*boundary.promotions, *work.promotions),
            }
        ).to_json()
        if work.promotions:
            details["promoted"] = ", ".join(f"{each.finding} by {each.fact}" for each in work.promotions)
        if work.retractions:
            details["withdrawn"] = ", ".join(each.name for each in work.retractions)
            puts[fields.STATUS] = view.stored[fields.STATUS].value  # every claim and answer expects it
    read = [name for name in view.asked if name.startswith(fields.SHARED_PREFIX)]
    return Change(
        event="promoted" if work.promotions and not work.changed else "changes_absorbed",
        details=details,
        expect=expected(view, fields.ABSORBED, fields.BOUNDARY, *map(fields.step, sorted(decided_on)), *read),
        put=puts,
        dead_first=(DeadEntry(view.request_id, WAITS_FOR_A_PERSON, 0),) if work.asks else (),
    )
