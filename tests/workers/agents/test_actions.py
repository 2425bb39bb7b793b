"""Actions: named and typed, about one declared field each; a team whose actions do not fit its fields is refused."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from schemas.errors import InvalidPlan, InvalidTeam
from schemas.gate import BoundaryRules
from schemas.plans import Step
from schemas.shared import Claim, FieldCard, Operation
from workers.agents.actions import Action, actions_of
from workers.agents.blackbox import BlackBox
from workers.agents.models import Say
from workers.agents.specialist import Specialist
from workers.team import Team

from .runs import replies

HOTEL = FieldCard(name="hotel", type="object", members={"name": "text", "cost": "number"}, owner="book", arbiter="judge")
NOTES = FieldCard(name="notes", type="list", members={"value": "text"}, reducer="append")
SEATS = FieldCard(name="seats", capacity=3)
CARDS = {each.name: each for each in (HOTEL, NOTES, SEATS)}


def hotel(name: str, cost: float) -> dict[str, Any]:
    """Record the hotel."""
    return {"name": name, "cost": cost}


def note(text: str) -> str:
    """Note something."""
    return text


RECORD = Action("record_hotel", "hotel", hotel)
WISH = Action("wish_hotel", "hotel", hotel, operation=Operation.PROPOSE)
NOTE = Action("note", "notes", note, operation=Operation.ADD)
SETTLE = Action("settle_hotel", "hotel", operation=Operation.SETTLE)
TAKE_UP = Action("take_up", "hotel", operation=Operation.TAKE_UP)
ALL = (RECORD, WISH, NOTE, SETTLE, TAKE_UP)


def team(*actions: Action, fields: tuple[FieldCard, ...] = (HOTEL, NOTES, SEATS), **given: Any) -> Team:
    """A team of a step that books and one that judges."""
    steps: list[dict[str, Any]] = [
        {"id": "book", "agent": "a", "title": "Book", "task": "x", "writes": ("hotel", "notes")},
        {"id": "judge", "agent": "a", "title": "Judge", "task": "x"},
    ]
    return Team("t", [BlackBox("a", lambda brief: "")], steps, fields=fields, actions=actions, **given)


def step(name: str, **given: Any) -> Step:
    """A step."""
    return Step(id=name, title=name, agent="a", task="x", **given)


@pytest.mark.parametrize(
    ("given", "names"),
    [
        (step("book", reads=("hotel",), writes=("hotel", "notes")), ["record_hotel", "note", "take_up"]),
        (step("book", reads=("hotel",)), []),
        (step("other", writes=("notes",)), ["note"]),
        (step("other", reads=("hotel", "notes")), ["wish_hotel"]),
        (step("judge"), ["settle_hotel"]),
        (step("other"), []),
    ],
)
def test_a_step_has_the_actions_on_what_it_writes_settles_or_may_wish_for_and_no_others(given: Step, names: list[str]) -> None:
    assert [each.name for each in actions_of(given, ALL, CARDS)] == names


def free(value: Any) -> Any:
    """Anything."""
    return value


def anything(value: dict[str, Any]) -> Any:
    """Anything."""
    return value


def untyped(value) -> Any:  # type: ignore[no-untyped-def]  # what is refused
    """Anything."""
    return value


def inside(value: list[Any]) -> Any:
    """Anything."""
    return value


async def waiting(value: str) -> Any:
    """Wait."""
    return value


def reasoned(reason: str) -> Any:
    """Take what every action has already."""
    return reason


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (free, "any shape"),
        (anything, "any shape"),
        (untyped, "any shape"),
        (inside, "any shape"),
        (waiting, "is pure"),
        (reasoned, "has a parameter 'reason' already"),
    ],
)
def test_no_action_takes_a_free_value_or_waits_for_anything(change: Callable[..., Any], said: str) -> None:
    with pytest.raises(InvalidTeam, match=said):
        Action("do", "hotel", change)


def test_an_action_that_sets_needs_a_function() -> None:
    with pytest.raises(InvalidTeam, match="needs a function"):
        Action("do", "hotel")


@pytest.mark.parametrize(
    ("action", "path"),
    [
        (Action("record", "motel", hotel), "actions.record.field"),
        (Action("record", "notes", note), "actions.record.operation"),
        (Action("record", "hotel", hotel, operation=Operation.ADD), "actions.record.operation"),
        (Action("record", "seats", note), "actions.record.operation"),
        (Action("record", "notes", operation=Operation.SETTLE), "actions.record.operation"),
        (Action("conclude_it", "hotel", hotel), "actions.conclude_it.name"),
        (Action("report_contradiction", "hotel", hotel), "actions.report_contradiction.name"),
        (Action("note", "hotel", hotel), "actions.note.name"),
    ],
)
def test_an_action_that_does_not_fit_its_field_is_refused_by_path(action: Action, path: str) -> None:
    with pytest.raises(InvalidTeam) as refused:
        team(NOTE, action)
    assert refused.value.path == path


def test_an_action_is_not_named_like_a_tool_of_the_team() -> None:
    agents = [Specialist("a", "p", [note])]
    with pytest.raises(InvalidTeam, match="taken by a tool of agent 'a'"):
        Team("t", agents, [{"agent": "a", "title": "A", "task": "x"}], model=replies(Say("")), fields=[NOTES], actions=[NOTE])


def test_the_card_carries_fields_and_rules_and_its_version_covers_them_and_the_actions() -> None:
    rules = BoundaryRules(named="policy_v2", max_tokens=500)
    made = team(*ALL, rules=rules)
    assert made.card.fields == CARDS and made.card.rules == rules and made.card.from_json(made.card.to_json()) == made.card
    others = [
        team(*ALL),
        team(*ALL[:4], rules=rules),
        team(*ALL[:4], Action("take_up", "hotel", operation=Operation.TAKE_UP, description="Other."), rules=rules),
        team(*ALL, rules=rules, fields=(HOTEL, NOTES, SEATS.model_copy(update={"capacity": 4}))),
    ]
    assert len({each.card.version for each in (made, *others)}) == 5


def newest(claims: Sequence[Claim]) -> Any:
    """Whoever comes last in the list."""
    return claims[-1].value


def longest(claims: Sequence[Claim]) -> Any:
    """The longest text."""
    return max((each.value for each in claims), key=lambda text: (len(str(text)), str(text)))


def test_a_teams_own_reducers_are_on_its_card_and_a_non_commutative_one_refuses_the_team() -> None:
    said = FieldCard(name="said", reducer="longest")
    made = team(fields=(HOTEL, NOTES, SEATS, said), reducers={"longest": longest, "unused": longest})
    assert made.card.reducers == ("longest",) and made.reducers["longest"] is longest and "sum" in made.reducers
    with pytest.raises(InvalidTeam, match="not commutative"):
        team(fields=(HOTEL, NOTES, SEATS, said), reducers={"longest": newest})
    with pytest.raises(InvalidTeam, match="there is no reducer 'longest'"):
        team(fields=(HOTEL, NOTES, SEATS, said))


def test_a_field_declared_twice_is_refused_and_so_is_a_step_that_writes_anothers() -> None:
    with pytest.raises(InvalidTeam, match="declared twice"):
        team(fields=(HOTEL, NOTES, HOTEL))
    with pytest.raises(InvalidPlan, match="belongs to step 'judge'"):
        team(fields=(HOTEL.model_copy(update={"owner": "judge"}), NOTES))
