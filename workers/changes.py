"""Changes: what an agent wants of shared fields, held against the team's fields and what stood in the brief. Pure.

Nothing is written here. The orchestrator takes accepted changes in, and checks them once more against the values of that moment.
Called when a result is accepted; for each single change also while a model runs, so that it learns at once what is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

from schemas import fields
from schemas.errors import IllegalTransition, InvalidValue, NotPermitted, Refused
from schemas.frozen import thawed
from schemas.packets import Payload
from schemas.results import AgentResult, Failure, FailureCode
from schemas.shared import FieldCard, FieldChange, FieldRecord, Operation, check_change, check_protected, check_transition, conditions_of
from workers.agents.actions import Action
from workers.agents.agent import AgentBrief
from workers.evidence import Grounds


def seen_of(brief: AgentBrief, name: str) -> str | None:
    """Return the version at which a brief carried a shared field, or said that it has no value yet; None where it did neither."""
    read = brief.reads.get(fields.shared(name))
    return read.version if read is not None else brief.empty.get(name)


def check(change: FieldChange, brief: AgentBrief, before: Sequence[FieldChange] = ()) -> None:
    """Refuse a change that cannot be right: by the field's card, by what a user was told, or by the state that the brief shows.

    `before` are the changes that the same run made earlier.

    Raises:
        NotPermitted: naming field and step; with both texts where a user was told something else.
        InvalidValue: naming the value's path.
        IllegalTransition: naming both states.
    """
    step = brief.step
    check_change(brief.cards, change, step.id, step.writes)
    card = brief.cards[change.field]
    check_protected(card, change, thawed(brief.told.get(card.name)))
    if change.operation in (Operation.SET, Operation.MOVE) and _is_known(brief, card):
        now = _record(brief, card.name, before)
        check_transition(card, now, _then(card, now, change), step.id, _others(brief, card, before))


def _is_known(brief: AgentBrief, card: FieldCard) -> bool:
    """Whether the brief shows all that the field's state machine asks; where it does not, only the board can say."""
    return all(name in brief.shared or name in brief.empty for name in (card.name, *conditions_of(card)))


def _others(brief: AgentBrief, card: FieldCard, before: Sequence[FieldChange]) -> Mapping[str, FieldRecord]:
    found = {name: _record(brief, name, before) for name in conditions_of(card)}
    return {name: record for name, record in found.items() if record is not None}


def _record(brief: AgentBrief, name: str, before: Sequence[FieldChange]) -> FieldRecord | None:
    value: Payload | None = thawed(brief.shared.get(name))
    for each in before:
        if each.field == name and each.operation in (Operation.SET, Operation.MOVE):
            value = _then(brief.cards[name], None if value is None else FieldRecord(value=value), each)
    return None if value is None else FieldRecord(value=value)


def _then(card: FieldCard, now: FieldRecord | None, change: FieldChange) -> Payload:
    """The field's value after a change that sets or moves it."""
    return change.value if change.operation is Operation.SET else card.moved(None if now is None else now.value, change.value)


def changes(result: AgentResult, grounds: Grounds, actions: Iterable[Action], *, now: datetime) -> tuple[FieldChange, ...] | Failure:
    """Return a result's changes as they are kept, or `FIELD_REFUSED` naming field and reason.

    Whatever an agent says that it saw, `seen` is the version that its brief carried.
    """
    brief = grounds.brief
    named = {each.name: each for each in actions}
    kept: list[FieldChange] = []
    for change in result.changes:
        try:
            _check_action(change, named)
            found = change.model_copy(
                update={
                    "evidence": grounds.again(change.evidence),
                    "seen": seen_of(brief, change.field),
                    "at": change.at or now,
                }
            )
            check(found, brief, kept)
        except Refused as error:
            return Failure(code=FailureCode.FIELD_REFUSED, description=f"field {change.field!r}: {error}")
        kept.append(found)
    return tuple(kept)


def _check_action(change: FieldChange, actions: Mapping[str, Action]) -> None:
    if not change.action:
        return
    action = actions.get(change.action)
    if action is None or action.field != change.field or action.operation is not change.operation:
        raise NotPermitted(f"the team has no action {change.action!r} that does {change.operation} on it", path=change.field)


def told_to_a_model(error: Refused, brief: AgentBrief) -> str:
    """Return why a change is refused, in words without the name of a step."""
    if isinstance(error, IllegalTransition) and f"not by {brief.step_id!r}" in str(error):
        return "this change of state is for somebody else to make; propose it, or leave it"
    if isinstance(error, InvalidValue | IllegalTransition) or brief.step_id not in str(error):
        return str(error)
    return "this change is not permitted here"
