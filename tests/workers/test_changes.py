"""Changes of shared fields, as any agent returns them: refused by name where the team's fields do not take them; then nothing is kept."""

from __future__ import annotations

from typing import Any

import pytest

from schemas.results import FailureCode
from schemas.shared import FieldCard, Operation, Transition
from tests.workers.said import NOW, accepted, briefed, refused, wants
from workers.agents.actions import Action

HOTEL = FieldCard(name="hotel", type="object", members={"name": "text", "cost": "number?"}, owner="look")
FLIGHT = FieldCard(name="flight", owner="fly", arbiter="judge")
NOTES = FieldCard(name="notes", type="list", members={"value": "text"}, reducer="append")
SEATS = FieldCard(name="seats", capacity=3)
STATE = FieldCard(
    name="state",
    owner="look",
    transitions=(
        Transition(target="open", by=("look",)),
        Transition(source="open", target="paid", by=("look",), when={"flight": "booked"}),
        Transition(source="open", target="void", by=("person",)),
    ),
)
TOLD = FieldCard(name="told", owner="look", protected=True)
CARDS = (HOTEL, FLIGHT, NOTES, SEATS, STATE, TOLD)


def brief(reads: tuple[str, ...] = ("state", "flight", "told"), **given: Any) -> Any:
    """A brief of the step that owns the hotel."""
    return briefed(cards=CARDS, reads=reads, writes=("hotel", "notes", "state", "told"), **given)


def test_changes_are_kept_in_order_with_the_version_that_the_brief_carried_and_the_teams_time() -> None:
    wanted = (
        wants("hotel", {"name": "Inn", "cost": 90.5}, seen="9.forged"),
        wants("notes", "late arrival", Operation.ADD),
        wants("flight", "earlier", Operation.PROPOSE, reason="Sooner."),
        wants("state", "open"),
    )
    kept = accepted(brief=brief(shared={"flight": "later"}), changes=wanted).changes

    assert [each.field for each in kept] == ["hotel", "notes", "flight", "state"]
    assert [each.seen for each in kept] == [None, None, "5.fff", "0"]
    assert {each.at for each in kept} == {NOW}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (wants("motel", "x"), "the team declares no field 'motel'"),
        (wants("flight", "x"), "belongs to step 'fly'; step 'look' may propose only"),
        (wants("flight", "look.0.0", Operation.SETTLE), "is settled by judge"),
        (wants("flight", "x", Operation.ADD), "belongs to step 'fly'"),
        (wants("notes", ["x"]), "is merged"),
        (wants("notes", 5, Operation.ADD), "must be text"),
        (wants("seats", 1), "is reserved from"),
        (wants("seats", 1, Operation.ADD), "is reserved from"),
        (wants("hotel", "Inn"), "must be an object"),
        (wants("hotel", {"name": "Inn", "stars": 3}), "there is no such member"),
        (wants("hotel", {"cost": 3}), "must be text"),
        (wants("hotel", {"name": "Inn"}, action="record"), "has no action 'record'"),
        (wants("state", "paid"), "does not go from nothing to 'paid'"),
    ],
)
def test_what_a_field_does_not_take_fails_the_step_by_field_and_reason(change: Any, said: str) -> None:
    failure = refused(brief=brief(), changes=(wants("hotel", {"name": "Inn"}), change))
    assert failure.code == FailureCode.FIELD_REFUSED and not failure.retryable
    assert failure.description.startswith(f"field {change.field!r}: ")
    assert said in failure.description


def test_a_step_that_does_not_say_so_adds_nothing() -> None:
    failure = refused(brief=briefed(cards=CARDS, writes=("hotel",)), changes=(wants("notes", "x", Operation.ADD),))
    assert "its plan does not say writes=('notes',)" in failure.description


def test_a_state_goes_only_where_its_machine_leads_from_what_the_brief_shows() -> None:
    now = brief(shared={"state": "open", "flight": "booked"})
    assert accepted(brief=now, changes=(wants("state", "paid"),)).changes
    early = brief(shared={"state": "open", "flight": "asked"})
    assert "flight is not 'booked'" in refused(brief=early, changes=(wants("state", "paid"),)).description
    assert "by person only" in refused(brief=now, changes=(wants("state", "void"),)).description
    twice = refused(brief=now, changes=(wants("state", "paid"), wants("state", "open")))
    assert "it is final" in twice.description


def test_a_state_that_the_brief_does_not_show_is_left_to_the_board() -> None:
    assert accepted(brief=brief(reads=("state",), shared={"state": "open"}), changes=(wants("state", "paid"),)).changes


def test_what_a_user_was_told_is_written_only_by_who_read_it() -> None:
    assert accepted(brief=brief(), changes=(wants("told", "All is well."),)).changes[0].seen == "0"
    failure = refused(brief=brief(reads=()), changes=(wants("told", "All is well.", seen="5.fff"),))
    assert "who writes it must have read its present version" in failure.description


def test_a_draft_that_differs_from_what_a_user_was_told_is_refused_with_both_texts() -> None:
    now = brief(shared={"told": "Room for two."}, told={"told": "Room for two."})
    assert accepted(brief=now, changes=(wants("told", "Room for two."),)).changes
    failure = refused(brief=now, changes=(wants("told", "Room for three."),))
    assert "told: 'Room for two.'; draft: 'Room for three.'" in failure.description


def test_an_action_that_is_named_is_the_one_that_the_team_has() -> None:
    record = Action("record", "hotel", hotel)
    inn = {"name": "Inn"}
    assert accepted(brief=brief(), actions=(record,), changes=(wants("hotel", inn, action="record"),)).changes
    refused(brief=brief(), actions=(record,), changes=(wants("hotel", inn, Operation.PROPOSE, action="record"),))


def test_evidence_of_a_change_resolves_or_the_change_is_refused() -> None:
    kept = accepted(brief=brief(), changes=(wants("hotel", {"name": "Inn"}, evidence=({"ref": "price"},)),)).changes
    assert kept[0].evidence[0].ref == "shop.price"
    failure = refused(brief=brief(), changes=(wants("hotel", {"name": "Inn"}, evidence=({"ref": "colour"},)),))
    assert "nothing here is called 'colour'" in failure.description


def hotel(name: str) -> dict[str, Any]:
    """Record the hotel."""
    return {"name": name}
