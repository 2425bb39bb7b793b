"""Shared fields: what a team keeps on the blackboard beside facts, each with one owner and a schema. Pure.

A field is written by one step (`owner`), merged from several by a reducer, or reserved from (`capacity`). Agents never write
one: they return changes, which are checked here by the worker when it accepts a result and, with the values of that moment,
by the orchestrator when it takes them in.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any

from pydantic import AwareDatetime, Field

from schemas.codec import encode
from schemas.errors import IllegalTransition, InvalidValue, NotPermitted
from schemas.facts import Sensitivity
from schemas.frozen import Frozen, Name, Scalar
from schemas.packets import Evidence, Payload, fingerprint

SCALAR_TYPES: dict[str, tuple[type, ...]] = {"text": (str,), "integer": (int,), "number": (int, float), "boolean": (bool,)}
"""Name of a scalar type -> what its values are in Python; a boolean is no number."""


PERSON = "person"
"""Who decides at the desk, among those by whom a field's state may change."""


class Transition(Frozen):
    """One allowed change of a field's state: from, to, by whom, and what other fields must say meanwhile."""

    source: Scalar | None = None
    """None: there is no value yet."""
    target: Scalar
    by: tuple[Name, ...]
    """Step ids; `person` for a decision at the desk. Whoever is not the field's owner moves the state, and changes nothing else."""
    when: dict[str, Scalar] = {}
    """Field -> the value (or state) that it must have."""


class FieldCard(Frozen):
    """What a team declares of one shared field."""

    name: Name
    label: str = ""
    """What people and models read; the name where it is empty."""
    type: str = "text"
    """`text`, `integer`, `number`, `boolean`, `list` or `object`."""
    members: dict[str, str] = {}
    """Of an object, or of each element of a list: member -> scalar type. Empty: anything small."""
    unit: str | None = None
    owner: Name | None = None
    """The one step that writes it. Without an owner it has a reducer or a capacity."""
    reducer: str | None = None
    """`append`, `union`, `sum`, `max`, `min`, `last_by_time`, `agree`, or one of the team's own."""
    capacity: float | None = None
    """A resource: reservations together never exceed it."""
    capacity_of: Name | None = None
    """The constraint that says the capacity, for a resource or for the sum of a reducer."""
    state_key: str | None = None
    """Of an object: the member that `transitions` are about; None: the value itself."""
    transitions: tuple[Transition, ...] = ()
    """Empty: any change by the owner."""
    protected: bool = False
    """It says what was told to a user: never changed silently."""
    arbiter: Name | None = None
    """The step that settles a contested value; None: a person."""
    ttl_seconds: Annotated[float, Field(gt=0)] | None = None
    sensitivity: Sensitivity = Sensitivity.INTERNAL
    carry: bool = False
    """Whether the next request of the session starts with it."""

    @property
    def title(self) -> str:
        """What people and models read."""
        return self.label or self.name

    @property
    def merged(self) -> bool:
        """Whether several steps contribute to it."""
        return self.reducer is not None

    @property
    def is_resource(self) -> bool:
        """Whether steps reserve from it."""
        return self.owner is None and self.reducer is None and (self.capacity is not None or self.capacity_of is not None)

    @property
    def movers(self) -> frozenset[str]:
        """The steps that may move its state, each along its own transitions."""
        return frozenset(step for each in self.transitions for step in each.by) - {PERSON}

    @property
    def writers(self) -> frozenset[str]:
        """The steps that change its value or its state; of a merged field none is named."""
        return self.movers | ({self.owner} if self.owner else set())

    def moved(self, value: Payload | None, state: Payload) -> Payload:
        """Return the value with another state, and all else as it was."""
        if self.state_key is None:
            return state
        return {**(value if isinstance(value, dict) else {}), self.state_key: state}

    def content(self, value: Payload | None) -> Payload | None:
        """Return what a value says beside its state; None where the state is all of it."""
        if not self.transitions:
            return value
        if self.state_key is None or not isinstance(value, dict):
            return None
        return {name: each for name, each in value.items() if name != self.state_key}

    @property
    def terminal(self) -> frozenset[Scalar]:
        """The states that nothing leads out of."""
        sources = {each.source for each in self.transitions}
        return frozenset(each.target for each in self.transitions if each.target not in sources)


class Operation(StrEnum):
    """What a change does."""

    SET = "set"
    """By the owner; by anybody else it is a proposal."""
    MOVE = "move"
    """By a step that a transition names: the state alone, which `value` is."""
    ADD = "add"
    """One contribution to a merged field."""
    PROPOSE = "propose"
    """A wish beside the field, for its owner to take up or refuse."""
    SETTLE = "settle"
    """By the arbiter: which of the contested values holds."""
    TAKE_UP = "take_up"
    """By the owner: the proposal named in `value` becomes the value."""
    REFUSE = "refuse"
    """By the owner: the proposal named in `value` is refused, with a reason."""


class FieldChange(Frozen):
    """What one step wants of one field. Made by a named action of the team, never by a free hand."""

    field: Name
    operation: Operation
    value: Payload
    action: str = ""
    reason: str = ""
    evidence: tuple[Evidence, ...] = ()
    source: str = ""
    """Where the value comes from, as its tool or artifact names it: claims of one source count once."""
    confidence: Annotated[float, Field(ge=0, le=1)] = 1.0
    at: AwareDatetime | None = None
    seen: str | None = None
    """Version of the field in the step's brief; None: it was not in it."""
    channel: str = ""
    """Of what was said to a user: by which way."""
    approval: str = ""
    """Of what was said to a user: on what approval it rests."""


class Claim(Frozen):
    """One step's contribution, proposal or claim, as it stands beside or in a field."""

    step: str
    epoch: int = 0
    index: int = 0
    value: Payload
    reason: str = ""
    evidence: tuple[Evidence, ...] = ()
    source: str = ""
    confidence: float = 1.0
    at: AwareDatetime | None = None
    refused: str = ""
    """Why the owner refused the proposal, or why the contribution does not count."""

    @property
    def id(self) -> str:
        """By which owner and desk name it."""
        return f"{self.step}.{self.epoch}.{self.index}"


class Communication(Frozen):
    """What was said to a user: content, time, channel, approval and evidence. Kept whatever comes after."""

    content: Payload
    at_ms: int
    channel: str = ""
    approval: str = ""
    evidence: tuple[Evidence, ...] = ()
    step: str = ""


class Reservation(Frozen):
    """A part of a resource, held by a step until `until_ms` (board clock), or for good once confirmed."""

    step: str
    amount: float
    until_ms: int
    confirmed: bool = False


class FieldRecord(Frozen):
    """Field `field/<name>` of the blackboard."""

    value: Payload | None = None
    step: str = ""
    """Who wrote the value; empty for a merged field."""
    epoch: int = 0
    at_ms: int = 0
    """Board time of the value."""
    expires_at_ms: int | None = None
    seen: dict[str, str] = {}
    """Versions that its writer had read: `step.key` -> version."""
    evidence: tuple[Evidence, ...] = ()
    claims: tuple[Claim, ...] = ()
    """Contributions to a merged field; it is their reduction, whatever their order of arrival."""
    proposals: tuple[Claim, ...] = ()
    contested: bool = False
    settled_by: str = ""
    flagged: str = ""
    """What a person should know: that it was said, and rests on something retracted since."""
    communicated: tuple[Communication, ...] = ()
    reservations: dict[str, Reservation] = {}
    carried_from: str = ""
    """The request of the session that it comes from."""

    def state(self, card: FieldCard) -> Scalar | None:
        """The value that the field's transitions are about."""
        if card.state_key is None:
            return self.value if isinstance(self.value, bool | int | float | str) else None
        return self.value.get(card.state_key) if isinstance(self.value, dict) else None


def check_value(card: FieldCard, value: object, *, path: str = "") -> None:
    """Refuse a value that the field's schema does not have.

    Raises:
        InvalidValue: with its path.
    """
    path = path or f"fields.{card.name}"
    kind = "list" if card.type == "list" and isinstance(value, list) else card.type
    if card.type in SCALAR_TYPES:
        if not is_scalar(value, card.type):
            raise InvalidValue(f"must be {card.type}", path=path)
        return
    if kind == "list":
        if not isinstance(value, list):
            raise InvalidValue("must be a list", path=path)
        for index, element in enumerate(value):
            _check_members(card, element, f"{path}.{index}")
        return
    _check_members(card, value, path)


def check_element(card: FieldCard, value: object, *, path: str = "") -> None:
    """Refuse one contribution that the merged field cannot take: an element of a list, or a value of the field's type.

    Raises:
        InvalidValue: with its path.
    """
    if card.type == "list":
        _check_members(card, value, path or f"fields.{card.name}")
    else:
        check_value(card, value, path=path)


def is_scalar(value: object, kind: str) -> bool:
    """Whether a value is of one of the scalar types."""
    return isinstance(value, SCALAR_TYPES[kind]) and isinstance(value, bool) == (kind == "boolean")


def _check_members(card: FieldCard, value: object, path: str) -> None:
    if not card.members:
        return
    if set(card.members) == {"value"}:  # a list of scalars
        if not is_scalar(value, card.members["value"]):
            raise InvalidValue(f"must be {card.members['value']}", path=path)
        return
    if not isinstance(value, dict):
        raise InvalidValue("must be an object", path=path)
    for name in value:
        if name not in card.members:
            raise InvalidValue(f"there is no such member; there are: {', '.join(card.members)}", path=f"{path}.{name}")
    for name, kind in card.members.items():
        optional = kind.endswith("?")
        if name not in value:
            if not optional:
                raise InvalidValue(f"must be {kind}", path=f"{path}.{name}")
        elif not is_scalar(value[name], kind.removesuffix("?")):
            raise InvalidValue(f"must be {kind.removesuffix('?')}", path=f"{path}.{name}")


def check_change(cards: Mapping[str, FieldCard], change: FieldChange, step: str, writes: tuple[str, ...]) -> None:
    """Refuse a change that no value of any field can make right: an undeclared field, a wrong writer, a value of another type.

    Raises:
        NotPermitted: naming field and step.
        InvalidValue: naming the value's path.
    """
    card = cards.get(change.field)
    if card is None:
        raise NotPermitted(f"the team declares no field {change.field!r}; there are: {', '.join(cards) or 'none'}", path=change.field)
    if change.operation is Operation.PROPOSE:
        check_value(card, change.value)
        return
    if change.operation is Operation.SETTLE:
        if card.arbiter != step:
            raise NotPermitted(f"field {card.name!r} is settled by {card.arbiter or 'a person'}, not by step {step!r}", path=card.name)
        return
    if card.is_resource:
        raise NotPermitted(f"field {card.name!r} is reserved from, never written", path=card.name)
    if card.merged:
        if change.operation is not Operation.ADD or card.name not in writes:
            raise NotPermitted(f"field {card.name!r} is merged; step {step!r} may {_may_add(card, writes)}", path=card.name)
        check_element(card, change.value)
        return
    if change.operation is Operation.MOVE:
        if step not in card.movers:
            by = ", ".join(sorted(card.movers)) or "nobody"
            raise NotPermitted(f"the state of field {card.name!r} is moved by {by}, not by step {step!r}", path=card.name)
        if change.value not in [each.target for each in card.transitions]:
            raise InvalidValue(f"there is no state {change.value!r}", path=f"fields.{card.name}")
        return
    if card.owner != step:
        raise NotPermitted(f"field {card.name!r} belongs to step {card.owner!r}; step {step!r} may propose only", path=card.name)
    if change.operation is Operation.SET:
        check_value(card, change.value)


def _may_add(card: FieldCard, writes: tuple[str, ...]) -> str:
    return "add to it only" if card.name in writes else f"not add to it, since its plan does not say writes=({card.name!r},)"


def check_protected(card: FieldCard, change: FieldChange, told: Payload | None) -> None:
    """Refuse to change silently what a user was told: `told` is the content that was said last, None where nothing was.

    Where the field has a state machine, that says what may become of its state; what stands beside the state stays as it was told.

    Raises:
        NotPermitted: the field did not stand in the writer's brief, or the draft says something else; then with both texts.
    """
    if not card.protected or change.operation not in (Operation.SET, Operation.ADD, Operation.TAKE_UP):
        return
    if change.seen is None:
        raise NotPermitted(
            f"field {card.name!r} says what a user was told; who writes it must have read its present version", path=card.name
        )
    if told is None or change.operation is not Operation.SET:
        return
    if fingerprint(card.content(change.value)) != fingerprint(card.content(told)):
        both = f"told: {_text(told)!r}; draft: {_text(change.value)!r}"
        raise NotPermitted(f"field {card.name!r} would differ from what the user was told ({both})", path=card.name)


def _text(value: Payload) -> str:
    return value if isinstance(value, str) else encode(value).decode()


def check_transition(card: FieldCard, before: FieldRecord | None, value: Any, by: str, others: Mapping[str, FieldRecord]) -> None:
    """Refuse a new value that the field's state machine does not lead to from the present one.

    `others` are the records of the fields that conditions name, as they are now; what a condition read, the write expects.

    Raises:
        IllegalTransition: naming both states, and the condition that does not hold.
    """
    if not card.transitions:
        return
    now = None if before is None else before.state(card)
    then = FieldRecord(value=value).state(card)
    if now == then and now is not None and now not in card.terminal:
        return
    fitting = [each for each in card.transitions if each.source == now and each.target == then]
    if not fitting:
        allowed = sorted({str(each.target) for each in card.transitions if each.source == now})
        raise IllegalTransition(
            f"field {card.name!r} does not go from {_shown(now)} to {_shown(then)}; from there it may go to: "
            f"{', '.join(allowed) or 'nothing, it is final'}",
            path=card.name,
        )
    permitted = [each for each in fitting if by in each.by]
    if not permitted:
        raise IllegalTransition(
            f"field {card.name!r} goes from {_shown(now)} to {_shown(then)} by {', '.join(fitting[0].by)} only, not by {by!r}",
            path=card.name,
        )
    missing = [_unmet(each, others) for each in permitted]
    if all(missing):
        raise IllegalTransition(f"field {card.name!r} does not go from {_shown(now)} to {_shown(then)} yet: {missing[0]}", path=card.name)


def conditions_of(card: FieldCard) -> frozenset[str]:
    """Return the fields that the conditions of a field's transitions name."""
    return frozenset(name for each in card.transitions for name in each.when)


def _unmet(transition: Transition, others: Mapping[str, FieldRecord]) -> str:
    for name, wanted in transition.when.items():
        record = others.get(name)
        values = () if record is None else (record.value, *(record.value.values() if isinstance(record.value, dict) else ()))
        if wanted not in values:
            return f"{name} is not {wanted!r}"
    return ""


def _shown(state: object) -> str:
    return "nothing" if state is None else repr(state)
