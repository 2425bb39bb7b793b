"""The desk: what of a request waits for a person, and what follows from a decision. Pure.

Nothing is stored for an item: it is read off the board, so that it cannot be forgotten or shown when it is settled. Four things
wait for a person: a step that asks first, an action that was requested, a contested field, and what was said and is no longer
so. A decision is one write, kept with who decided and why.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum

from orchestrator.absorption import WAITS_FOR_A_PERSON
from orchestrator.causes import DecideAsked, RulesAsked
from orchestrator.decisions import Change, Decision, by, refused
from orchestrator.merging import settled
from orchestrator.reopening import expected, going_on, reopened
from orchestrator.scheduling import full_fields
from orchestrator.views import Outline, View, outline_fields
from schemas import fields
from schemas.blackboard import DeadEntry
from schemas.boundary import APPROVE, REFUSE, Ruling
from schemas.errors import Refused
from schemas.packets import Kind
from schemas.reducers import independent_sources
from schemas.requests import RequestStatus, StepState
from schemas.results import Failure, FailureCode


class Asks(StrEnum):
    """Why an item waits."""

    STEP = "step"
    """A step that may not run, or may not rest on what it was offered, before a person says so."""
    ACTION = "action"
    """Something to be done outside. Nothing is executed: the decision is recorded."""
    FIELD = "field"
    """Two values are claimed for one field."""
    SAID = "said"
    """What was said to a user rests on something withdrawn since."""


@dataclass(frozen=True, slots=True)
class DeskItem:
    """One thing that waits for a person."""

    id: str
    """`step:<id>`, `action:<step>.<key>`, `field:<name>` or `said:<name>`."""
    asks: Asks
    title: str
    """Of the step, or what the field is called."""
    question: str
    choices: tuple[str, ...]
    details: tuple[str, ...] = ()
    """Evidence, claims and sources, a line each."""
    version: str = ""
    """Of what it was read off: a decision that names it holds for the item as it was seen."""


def field_of_item(item: str) -> str:
    """Return the field that an item of the desk is read off; empty for what is no item."""
    kind, _, name = item.partition(":")
    match kind:
        case Asks.STEP:
            return fields.step(name)
        case Asks.ACTION:
            return fields.result(name.partition(".")[0])
        case Asks.FIELD | Asks.SAID:
            return fields.shared(name)
        case _:
            return ""


def fields_of_desk(view: View, outline: Outline) -> tuple[str, ...]:
    """Return what has to be read to know the desk of a request; shared fields are those that its card names."""
    shared = view.card.fields if view.card else {}
    return (
        *full_fields(outline),
        *(fields.CARD, fields.BOUNDARY),
        *map(fields.result, outline.definitions),
        *map(fields.shared, shared),
    )


def desk_of(view: View, outline: Outline) -> tuple[DeskItem, ...]:
    """Return what waits for a person, in plan order; `view` holds `fields_of_desk`."""
    items = (*_steps(view, outline), *_actions(view, outline), *_fields(view))
    return tuple(replace(each, version=view.version(field_of_item(each.id))) for each in items)


def _steps(view: View, outline: Outline) -> Iterator[DeskItem]:
    for step, definition in outline.definitions.items():
        seen = view.step(step)
        failure = seen.record.failure if seen is not None and seen.record.state is StepState.FAILED else None
        if failure is None or failure.code != FailureCode.NEEDS_PERSON:
            continue
        yield DeskItem(f"step:{step}", Asks.STEP, definition.title, failure.description, (APPROVE, REFUSE), failure.about)


def _actions(view: View, outline: Outline) -> Iterator[DeskItem]:
    for step, definition in outline.definitions.items():
        result, seen = view.result(step), view.step(step)
        if result is None or seen is None or seen.record.state is not StepState.COMPLETED:
            continue
        for packet in result.packets:
            item = f"action:{packet.name}"
            if packet.kind is Kind.ACTION_REQUEST and item not in view.boundary.rulings:
                details = (packet.control.reason, *map(str, packet.control.evidence))
                yield DeskItem(item, Asks.ACTION, definition.title, f"{packet.key}: {packet.payload}", (APPROVE, REFUSE), details)


def _fields(view: View) -> Iterator[DeskItem]:
    cards = view.card.fields if view.card else {}
    for name, record in view.shared.items():
        card = cards.get(name)
        title = card.title if card else name
        if record.contested:
            sources = independent_sources(record.claims)
            details = tuple(
                f"{each.id}: {each.value!r} from {each.source or 'no named source'} ({', '.join(map(str, each.evidence)) or 'no evidence'})"
                for group in sources
                for each in group
            )
            question = f"{len(record.claims)} claims from {len(sources)} independent sources differ"
            yield DeskItem(f"field:{name}", Asks.FIELD, title, question, tuple(each.id for each in record.claims), details)
        if record.flagged and f"said:{name}" not in view.boundary.rulings:
            said = tuple(f"{each.content!r} by {each.channel}" for each in record.communicated)
            yield DeskItem(f"said:{name}", Asks.SAID, title, record.flagged, (APPROVE, REFUSE), said)


def decide(view: View, cause: DecideAsked) -> Decision:
    """Carry out a person's decision, and go on where it lets the request go on."""
    if view.status.status is RequestStatus.CANCELLED:
        return refused("the request was cancelled, for good")
    outline = view.outline
    if outline is None:
        return Decision(read_more=outline_fields(view)) if view.plan is not None else refused("the request has no plan yet")
    if missing := view.missing((fields.CARD,)):
        return Decision(read_more=missing)
    if missing := view.missing(fields_of_desk(view, outline)):
        return Decision(read_more=missing)
    items = {each.id: each for each in desk_of(view, outline)}
    item = items.get(cause.item)
    if item is None and (again := _refused_again(view, cause)):  # before the version is compared: the refusal itself has changed it
        return again
    if cause.version not in ("", view.version(field_of_item(cause.item))):
        return refused(f"{cause.item!r} has changed since; look at the desk again")
    if item is None:
        return refused(f"there is no {cause.item!r} on the desk of this request; there are: {', '.join(items) or 'none'}")
    if cause.choice not in item.choices and item.asks is not Asks.FIELD:
        return refused(f"{cause.choice!r} is no choice here; there are: {', '.join(item.choices)}")
    try:
        return _decided(view, outline, item, cause, last=len(items) == 1)
    except Refused as error:
        return refused(str(error))


def _refused_again(view: View, cause: DecideAsked) -> Decision | None:
    """A step that somebody refused to let run, once more: whoever wrote that may have died before it left the list of dead letters."""
    step = cause.item.removeprefix("step:")
    ruling, seen = view.boundary.rulings.get(cause.item), view.step(step)
    if ruling is None or seen is None or not ruling.choice == cause.choice == REFUSE or seen.record.state is not StepState.FAILED:
        return None
    return Decision(
        change=Change(
            event="decided",
            details=_details(cause),
            expect={fields.step(step): seen.version, fields.BOUNDARY: view.version(fields.BOUNDARY)},
            dead_after=(DeadEntry(view.request_id, step, seen.record.epoch),),
        )
    )


def _details(cause: DecideAsked) -> dict[str, str]:
    return {"item": cause.item, "choice": cause.choice, "reason": cause.reason, **by(cause.sender)}


def _decided(view: View, outline: Outline, item: DeskItem, cause: DecideAsked, *, last: bool) -> Decision:
    name = item.id.partition(":")[2]
    seen = view.step(name) if item.asks is Asks.STEP else None
    failure = seen.record.failure if seen is not None else None
    ruling = Ruling(
        choice=cause.choice, by=cause.sender, reason=cause.reason, at_ms=view.now_ms, rests_on=failure.rests_on if failure else ""
    )
    boundary = view.boundary.model_copy(update={"rulings": {**view.boundary.rulings, item.id: ruling}})
    puts = {fields.BOUNDARY: boundary.to_json()}
    again: list[str] = []
    if item.asks is Asks.FIELD:
        card = view.card.fields[name] if view.card else None
        assert card is not None, "an item of a field has its card"
        puts[fields.shared(name)] = settled(view.shared[name], cause.choice, cause.sender or "a person", view.now_ms, card).to_json()
        again = _stopped_by(view, outline, fields.shared(name))
    elif item.asks is Asks.STEP and cause.choice == APPROVE:
        again = [name]
    dead = [DeadEntry(view.request_id, step, found.record.epoch) for step in again if (found := view.step(step))]
    declined = item.asks is Asks.STEP and cause.choice == REFUSE
    if declined and seen is not None:
        dead.append(DeadEntry(view.request_id, name, seen.record.epoch))
        said = Failure(
            code=FailureCode.REFUSED, description=f"{cause.sender or 'a person'} refused it: {cause.reason or 'no reason given'}"
        )
        puts[fields.step(name)] = seen.record.model_copy(update={"failure": said}).to_json()
    puts |= {fields.step(step): reopened(found.record).to_json() for step in again if (found := view.step(step))}
    goes_on = bool(again) or declined  # a refusal is said in a new answer
    if goes_on:
        puts[fields.STATUS] = going_on(view).to_json()
    elif view.status.status is RequestStatus.RUNNING:
        puts[fields.STATUS] = view.stored[fields.STATUS].value  # every claim expects it
    read = [each for each in view.asked if each.startswith((fields.SHARED_PREFIX, fields.STEP_PREFIX))]
    return Decision(
        change=Change(
            event="decided",
            details=_details(cause),
            expect=expected(view, fields.BOUNDARY, *read),
            put=puts,
            expire_after_seconds=0 if goes_on else None,
            enter_first=goes_on,
            dead_after=(*dead, *((DeadEntry(view.request_id, WAITS_FOR_A_PERSON, 0),) if last else ())),
        )
    )


def _stopped_by(view: View, outline: Outline, name: str) -> list[str]:
    """The failed steps that could not run because of a field."""
    found = []
    for step in outline.definitions:
        seen = view.step(step)
        failure = seen.record.failure if seen is not None and seen.record.state is StepState.FAILED else None
        if failure is not None and failure.code in (FailureCode.BLOCKED, FailureCode.NEEDS_PERSON) and name in failure.about:
            found.append(step)
    return found


def change_rules(view: View, cause: RulesAsked) -> Decision:
    """Let other boundary rules hold from now on; what running steps do about it is said by the rules themselves.

    `keep`: they end under the rules of their brief. `stop`: they begin anew at once. `regate`: each is judged again when it ends,
    by its worker, and begins anew where the gate would now decide otherwise.
    """
    status = view.status
    if status.status.over:
        return refused(f"the request is over ({status.status}); its rules matter no more")
    if cause.replays is not None and cause.replays < status.replays:
        return refused("the request was over and goes on since; look at its rules again")
    outline = view.outline
    if outline is None and view.plan is not None:
        return Decision(read_more=outline_fields(view))
    if missing := view.missing((*(full_fields(outline) if outline is not None else ()), fields.BOUNDARY)):
        return Decision(read_more=missing)
    steps = tuple(outline.definitions) if outline is not None else ()
    puts = {fields.BOUNDARY: view.boundary.model_copy(update={"rules": cause.rules}).to_json()}
    running = [step for step in steps if (seen := view.step(step)) and seen.record.state is StepState.RUNNING]
    if cause.rules.on_rules_change == "stop":
        puts |= {fields.step(step): reopened(seen.record).to_json() for step in running if (seen := view.step(step))}
    if status.status is RequestStatus.RUNNING:
        puts[fields.STATUS] = view.stored[fields.STATUS].value  # every claim expects it
    return Decision(
        change=Change(
            event="rules_changed",
            details={"rules": cause.rules.version, "running": ",".join(running), **by(cause.sender)},
            expect=expected(view, fields.BOUNDARY, *map(fields.step, steps)),
            put=puts,
        )
    )
