"""Sharing: whether a team's shared fields fit together, and what its steps may do with them. Pure.

Called where a team is loaded (`teams.check_card`) and where a plan is checked (`plans.validate`). What a running step wants of
a field is checked elsewhere (`schemas.shared`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from itertools import combinations

from schemas.errors import InvalidPlan, InvalidTeam
from schemas.shared import PERSON, SCALAR_TYPES, FieldCard, conditions_of

_TAKES = {
    "sum": ("integer", "number"),
    "max": ("integer", "number", "text"),
    "min": ("integer", "number", "text"),
    "append": ("list",),
    "union": ("list",),
}
"""The types of field that a built-in reducer can merge; the others take any."""


@dataclass(frozen=True, slots=True)
class Sharer:
    """One step, as far as it has to do with shared fields."""

    id: str
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    superstep: str | None = None
    above: frozenset[str] = frozenset()
    """The steps that it depends on, directly or not."""
    path: str = ""
    """Where it stands in the plan; empty for one that was checked before."""


def check_fields(
    cards: Mapping[str, FieldCard],
    *,
    steps: Collection[str] | None,
    numbers: Collection[str],
    reducers: Collection[str],
    path: str = "fields",
) -> None:
    """Refuse fields that nobody could keep.

    `steps` are the ids of the plan, or None where they come at run time; `numbers` the constraints that say a number;
    `reducers` every known name.

    Raises:
        InvalidTeam: with the path of what is wrong.
    """
    for name, card in cards.items():
        where = f"{path}.{name}"
        if name != card.name:
            raise InvalidTeam(f"field {card.name!r} stands under another name", path=where)
        _check_type(card, where)
        _check_keeper(card, numbers, reducers, where)
        _check_transitions(card, cards, steps, where)
        for role, step in (("owner", card.owner), ("arbiter", card.arbiter)):
            if step is not None and steps is not None and step not in steps:
                raise InvalidTeam(f"there is no step {step!r}{_there_are(steps)}", path=f"{where}.{role}")


def _check_type(card: FieldCard, where: str) -> None:
    if card.type not in (*SCALAR_TYPES, "list", "object"):
        raise InvalidTeam(f"there is no type {card.type!r}{_there_are((*SCALAR_TYPES, 'list', 'object'))}", path=f"{where}.type")
    if card.members and card.type in SCALAR_TYPES:
        raise InvalidTeam(f"a {card.type} has no members", path=f"{where}.members")
    for member, kind in card.members.items():
        if kind.removesuffix("?") not in SCALAR_TYPES:
            raise InvalidTeam(f"there is no type {kind!r}{_there_are(SCALAR_TYPES)}", path=f"{where}.members.{member}")
    if card.state_key is not None and (card.type != "object" or (card.members and card.state_key not in card.members)):
        raise InvalidTeam(f"there is no member {card.state_key!r}{_there_are(card.members)}", path=f"{where}.state_key")


def _check_keeper(card: FieldCard, numbers: Collection[str], reducers: Collection[str], where: str) -> None:
    """One owner, or a reducer, or a capacity."""
    has_capacity = card.capacity is not None or card.capacity_of is not None
    if card.owner is not None and card.reducer is not None:
        raise InvalidTeam("has both an owner and a reducer; it has one of them", path=f"{where}.owner")
    if card.owner is None and card.reducer is None and not has_capacity:
        raise InvalidTeam("has no owner, reducer or capacity, so that nobody could change it", path=f"{where}.owner")
    if card.owner is not None and has_capacity:
        raise InvalidTeam("has an owner; a capacity belongs to what is reserved from, or to a merged field", path=f"{where}.capacity")
    if card.capacity is not None and card.capacity_of is not None:
        raise InvalidTeam("has a capacity of its own and one by a constraint; it has one of them", path=f"{where}.capacity_of")
    if card.reducer is not None and card.reducer not in reducers:
        raise InvalidTeam(f"there is no reducer {card.reducer!r}{_there_are(reducers)}", path=f"{where}.reducer")
    if has_capacity and card.reducer not in (None, "sum"):
        raise InvalidTeam(f"a capacity limits reservations or a 'sum', not {card.reducer!r}", path=f"{where}.capacity")
    if card.capacity is not None and card.capacity < 0:
        raise InvalidTeam("a capacity is not negative", path=f"{where}.capacity")
    if card.reducer in _TAKES and card.type not in _TAKES[card.reducer]:
        raise InvalidTeam(f"{card.reducer!r} merges {' or '.join(_TAKES[card.reducer])}, not {card.type}", path=f"{where}.reducer")
    if card.capacity_of is not None and card.capacity_of not in numbers:
        raise InvalidTeam(
            f"there is no constraint {card.capacity_of!r} that says a number{_there_are(numbers)}", path=f"{where}.capacity_of"
        )


def _check_transitions(card: FieldCard, cards: Mapping[str, FieldCard], steps: Collection[str] | None, where: str) -> None:
    for index, transition in enumerate(card.transitions):
        for step in transition.by:
            if steps is not None and step not in steps and step != PERSON:
                raise InvalidTeam(f"there is no step {step!r}{_there_are((*steps, PERSON))}", path=f"{where}.transitions.{index}.by")
        for name in transition.when:
            if name not in cards:
                raise InvalidTeam(f"there is no field {name!r}{_there_are(cards)}", path=f"{where}.transitions.{index}.when")
    if card.transitions and card.merged:
        raise InvalidTeam("is merged, and a merged field has no state machine", path=f"{where}.transitions")
    if card.name in conditions_of(card):
        raise InvalidTeam("names itself in a condition", path=f"{where}.transitions")


def check_sharers(sharers: Sequence[Sharer], cards: Mapping[str, FieldCard]) -> None:
    """Refuse steps that name fields which are not there, that may not write what they say, or whose superstep is none.

    Raises:
        InvalidPlan: with the path of the step and what it says.
    """
    for each in sharers:
        if each.path:
            _check_sharer(each, cards)
    supersteps: dict[str, list[Sharer]] = {}
    for each in sharers:
        if each.superstep is not None:
            supersteps.setdefault(each.superstep, []).append(each)
    for members in supersteps.values():
        _check_superstep(members, sharers, cards)
    _refuse_circle(supersteps)


def _check_sharer(sharer: Sharer, cards: Mapping[str, FieldCard]) -> None:
    for said, names in (("reads", sharer.reads), ("writes", sharer.writes)):
        for index, name in enumerate(names):
            if name not in cards:
                raise InvalidPlan(f"there is no field {name!r}{_there_are(cards)}", path=f"{sharer.path}.{said}.{index}")
    for index, name in enumerate(sharer.writes):
        card = cards[name]
        if not (sharer.id in card.writers or card.arbiter == sharer.id or card.merged or card.is_resource):
            raise InvalidPlan(
                f"field {name!r} belongs to step {card.owner!r}: step {sharer.id!r} neither owns, moves, reserves from nor settles it",
                path=f"{sharer.path}.writes.{index}",
            )
        if card.protected and name not in sharer.reads:
            raise InvalidPlan(
                f"field {name!r} says what a user was told, so who writes it must read it", path=f"{sharer.path}.writes.{index}"
            )


def _check_superstep(members: Sequence[Sharer], sharers: Iterable[Sharer], cards: Mapping[str, FieldCard]) -> None:
    """Members run side by side and see one state: nothing that they read may change between the first and the last of them."""
    for one, other in combinations(members, 2):
        first, second = (one, other) if other.id in one.above else (other, one)
        if second.id in first.above:
            raise InvalidPlan(
                f"steps {first.id!r} and {second.id!r} are of superstep {one.superstep!r}, and one depends on the other",
                path=f"{first.path or second.path}.superstep",
            )
    ids = {each.id for each in members}
    for member in members:
        for name in member.reads:
            card = cards.get(name)
            if card is None or card.is_resource:
                continue
            writers = card.writers if card.owner else {each.id for each in sharers if name in each.writes and not _after(each, ids)}
            if unsettled := sorted(writers - member.above - (ids if card.merged else {member.id})):
                raise InvalidPlan(
                    f"step {member.id!r} of superstep {member.superstep!r} reads field {name!r}, and does not depend on "
                    f"step {unsettled[0]!r}, which writes it: members would see different states",
                    path=f"{member.path}.reads",
                )


def _refuse_circle(supersteps: Mapping[str, Sequence[Sharer]]) -> None:
    """What depends on a member waits for the whole superstep, so two of them that stand above each other would wait for ever."""
    above = {name: {step for member in members for step in member.above} for name, members in supersteps.items()}
    waits = {
        name: [other for other, members in supersteps.items() if other != name and above[name] & {each.id for each in members}]
        for name in supersteps
    }
    try:
        TopologicalSorter(waits).prepare()
    except CycleError as error:
        circle = error.args[1]
        path = next((each.path for name in circle for each in supersteps[name] if each.path), "")
        raise InvalidPlan(
            f"the supersteps wait for each other in a circle: {' -> '.join(reversed(circle))}", path=f"{path}.superstep"
        ) from error


def _after(sharer: Sharer, members: set[str]) -> bool:
    """Whether a step runs when all of a superstep are over; a reservation is no change that a member would see."""
    return members <= sharer.above


def _there_are(known: Iterable[object]) -> str:
    listed = ", ".join(sorted(map(str, known))[:12])
    return f"; there are: {listed}" if listed else ""
