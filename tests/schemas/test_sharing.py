"""Shared fields of a team: each kept by one owner, one reducer or one capacity, and every name in steps and fields exists."""

from __future__ import annotations

from typing import Any

import pytest

from schemas.agents import AgentCard
from schemas.errors import InvalidPlan, InvalidTeam
from schemas.packets import Kind, Output
from schemas.plans import Step, validate
from schemas.reducers import REDUCERS
from schemas.shared import FieldCard, Transition
from schemas.sharing import check_fields
from schemas.teams import ConstraintCard, TeamCard, check_card

AGENTS = {"a": AgentCard(name="a", tools=("find",), facts={"price": ("find",)})}
LIMIT = ConstraintCard(name="limit", label="Limit", type="number")
HOTEL = FieldCard(name="hotel", type="object", members={"name": "text", "cost": "number"}, owner="one")
NOTES = FieldCard(name="notes", type="list", members={"value": "text"}, reducer="append")
SEATS = FieldCard(name="seats", capacity_of="limit")


def step(name: str, **given: Any) -> Step:
    """A step of the one agent."""
    return Step(**{"id": name, "title": name, "agent": "a", "task": "Do it.", "needs": (), **given})


def card(*steps: Step, fields: tuple[FieldCard, ...] = (HOTEL, NOTES, SEATS), **given: Any) -> TeamCard:
    """A team of these steps and fields."""
    return TeamCard(
        name="t", agents=AGENTS, constraints=(LIMIT,), steps=steps or (step("one"),), fields={each.name: each for each in fields}, **given
    )


def to_a(**given: Any) -> tuple[Transition, ...]:
    """A state machine with one way."""
    return (Transition(**{"target": "a", "by": ("one",), **given}),)


def test_fields_with_one_keeper_each_pass_and_come_back_the_same() -> None:
    made = card(step("one", reads=("notes",), writes=("hotel", "notes", "seats")))
    check_card(made)
    assert TeamCard.from_json(made.to_json()) == made


@pytest.mark.parametrize(
    ("wrong", "path"),
    [
        (FieldCard(name="x", owner="one", reducer="append"), "fields.x.owner"),
        (FieldCard(name="x"), "fields.x.owner"),
        (FieldCard(name="x", owner="nobody"), "fields.x.owner"),
        (FieldCard(name="x", owner="one", capacity=3), "fields.x.capacity"),
        (FieldCard(name="x", capacity=3, capacity_of="limit"), "fields.x.capacity_of"),
        (FieldCard(name="x", capacity_of="limits"), "fields.x.capacity_of"),
        (FieldCard(name="x", reducer="newest"), "fields.x.reducer"),
        (FieldCard(name="x", reducer="agree", arbiter="nobody"), "fields.x.arbiter"),
        (FieldCard(name="x", owner="one", type="date"), "fields.x.type"),
        (FieldCard(name="x", owner="one", members={"a": "text"}), "fields.x.members"),
        (FieldCard(name="x", owner="one", type="object", members={"a": "date"}), "fields.x.members.a"),
        (FieldCard(name="x", owner="one", type="object", members={"a": "text"}, state_key="b"), "fields.x.state_key"),
        (FieldCard(name="x", owner="one", transitions=(Transition(target="a", by=("nobody",)),)), "fields.x.transitions.0.by"),
        (
            FieldCard(name="x", owner="one", transitions=(Transition(target="a", by=("one",), when={"y": 1}),)),
            "fields.x.transitions.0.when",
        ),
        (FieldCard(name="x", owner="one", transitions=(Transition(target="a", by=("one",), when={"x": 1}),)), "fields.x.transitions"),
        (FieldCard(name="x", reducer="max", transitions=(Transition(target="a", by=("one",)),)), "fields.x.transitions"),
    ],
)
def test_a_field_that_nobody_could_keep_is_refused_by_its_path(wrong: FieldCard, path: str) -> None:
    with pytest.raises(InvalidTeam) as refused:
        check_card(card(fields=(wrong,)))
    assert refused.value.path == path


def test_a_person_may_change_a_state_and_a_planning_team_may_name_steps_to_come() -> None:
    check_card(card(fields=(HOTEL.model_copy(update={"transitions": (Transition(target="a", by=("person",)),)}),)))
    check_card(card(step("plan", may_plan=True), fields=(FieldCard(name="x", owner="later"),)))


def test_a_reducer_of_the_teams_own_is_known_where_the_card_names_it() -> None:
    check_card(card(fields=(FieldCard(name="x", reducer="newest"),), reducers=("newest",)))


@pytest.mark.parametrize(
    ("given", "path"),
    [
        ({"reads": ("motel",)}, "steps.0.reads.0"),
        ({"writes": ("notes", "motel")}, "steps.0.writes.1"),
        ({"writes": ("hotel",)}, "steps.0.writes.0"),
    ],
)
def test_a_step_that_reads_or_writes_what_it_may_not_is_refused_by_path(given: dict[str, Any], path: str) -> None:
    with pytest.raises(InvalidPlan) as refused:
        check_card(card(step("two", **given), step("one")))
    assert refused.value.path == path


def test_a_step_that_a_transition_names_may_write_what_another_owns() -> None:
    moved = HOTEL.model_copy(update={"transitions": (*to_a(), Transition(source="a", target="b", by=("two", "person")))})
    check_card(card(step("two", writes=("hotel",)), step("one"), fields=(moved,)))
    with pytest.raises(InvalidPlan, match="neither owns, moves"):
        check_card(card(step("three", writes=("hotel",)), step("two"), step("one"), fields=(moved,)))


def test_steps_on_call_are_checked_with_the_plan_and_own_fields() -> None:
    owned = HOTEL.model_copy(update={"owner": "later"})
    check_card(card(step("plan", may_plan=True), on_call=(step("later", writes=("hotel",)),), fields=(owned,)))
    with pytest.raises(InvalidTeam, match="nobody could wake") as refused:
        check_card(card(step("one"), on_call=(step("later"),), fields=()))
    assert refused.value.path == "on_call"
    with pytest.raises(InvalidTeam, match="there is no step 'later'"):
        check_card(card(step("plan", may_plan=True), on_call=(step("other"),), fields=(owned,)))
    with pytest.raises(InvalidPlan) as unknown:
        check_card(card(step("plan", may_plan=True), on_call=(step("later", depends_on=("nobody",)),), fields=(owned,)))
    assert unknown.value.path == "on_call.0.depends_on.0"


def test_an_arbiter_may_write_the_field_that_it_settles() -> None:
    check_card(card(step("two", writes=("hotel",)), step("one"), fields=(HOTEL.model_copy(update={"arbiter": "two"}),)))


def test_who_writes_what_a_user_was_told_must_read_it() -> None:
    told = HOTEL.model_copy(update={"protected": True})
    check_card(card(step("one", reads=("hotel",), writes=("hotel",)), fields=(told,)))
    with pytest.raises(InvalidPlan, match="must read it"):
        check_card(card(step("one", writes=("hotel",)), fields=(told,)))


def test_steps_of_one_superstep_do_not_depend_on_each_other_even_through_others() -> None:
    check_card(card(step("one", superstep="s"), step("two", superstep="s"), step("three", depends_on=("one", "two"))))
    with pytest.raises(InvalidPlan, match="one depends on the other") as refused:
        check_card(card(step("one", superstep="s"), step("two", depends_on=("one",)), step("three", superstep="s", depends_on=("two",))))
    assert refused.value.path == "steps.2.superstep"


def test_supersteps_do_not_wait_for_each_other() -> None:
    first = (step("one", superstep="s"), step("two", superstep="t", depends_on=("one",)))
    check_card(card(*first, step("three", superstep="t", depends_on=("one",))))
    with pytest.raises(InvalidPlan, match="in a circle") as refused:
        check_card(card(*first, step("three", superstep="t"), step("four", superstep="s", depends_on=("three",))))
    assert str(refused.value.path).endswith(".superstep")


def test_members_of_a_superstep_see_one_state_only() -> None:
    check_card(card(step("one", writes=("hotel",)), step("two", superstep="s", depends_on=("one",), reads=("hotel",))))
    for reader in (step("two", superstep="s", reads=("hotel",)), step("two", superstep="s", reads=("notes",))):
        with pytest.raises(InvalidPlan, match="different states") as refused:
            check_card(card(step("one", writes=("hotel", "notes")), reader))
        assert refused.value.path == "steps.1.reads"


def test_what_members_add_themselves_or_steps_below_them_add_later_changes_nothing_that_members_see() -> None:
    members = [step(name, superstep="s", reads=("notes",), writes=("notes",)) for name in ("one", "two")]
    check_card(card(*members, step("below", depends_on=("one", "two"), writes=("notes",))))


@pytest.mark.parametrize(
    ("outputs", "path"),
    [
        ((Output(key="x", kind=Kind.FACT),), "steps.0.outputs.0.kind"),
        ((Output(key="x"), Output(key="x")), "steps.0.outputs.1.key"),
        ((Output(key="price"),), "steps.0.outputs.0.key"),
        ((Output(key="x", type="date"),), "steps.0.outputs.0.type"),
        ((Output(key="x", type="integer", choices=(1, "two")),), "steps.0.outputs.0.choices"),
    ],
)
def test_an_output_that_nobody_could_give_is_refused_by_path(outputs: tuple[Output, ...], path: str) -> None:
    with pytest.raises(InvalidPlan) as refused:
        validate([step("one", outputs=outputs)], AGENTS)
    assert refused.value.path == path


@pytest.mark.parametrize(
    ("confirms", "said"),
    [
        ({"prise": "one.cause"}, "no rule of step 'two' produces fact 'prise'"),
        ({"price": "none.cause"}, "there is no step 'none'"),
        ({"price": "one.reason"}, "declares no output 'reason'"),
        ({"price": "cause"}, "has the form"),
    ],
)
def test_what_is_confirmed_and_by_what_exists(confirms: dict[str, str], said: str) -> None:
    one = step("one", outputs=(Output(key="cause"),))
    validate([one, step("two", confirms={"price": "one.cause"})], AGENTS)
    with pytest.raises(InvalidPlan, match=said):
        validate([one, step("two", confirms=confirms)], AGENTS)


def test_steps_made_at_run_time_are_held_to_the_fields_too() -> None:
    known = {"one": step("one")}
    validate([step("two", writes=("notes",))], AGENTS, known=known, shared=card().fields, path="one.steps")
    with pytest.raises(InvalidPlan) as refused:
        validate([step("two", writes=("hotel",))], AGENTS, known=known, shared=card().fields, path="one.steps")
    assert refused.value.path == "one.steps.0.writes.0"


@pytest.mark.parametrize(
    ("field", "path"),
    [
        (FieldCard(name="x", type="text", reducer="sum"), "fields.x.reducer"),
        (FieldCard(name="x", type="integer", reducer="append"), "fields.x.reducer"),
        (FieldCard(name="x", type="integer", reducer="max", capacity=10), "fields.x.capacity"),
        (FieldCard(name="x", type="integer", reducer="sum", capacity=-5), "fields.x.capacity"),
    ],
)
def test_a_field_that_its_reducer_or_capacity_does_not_fit_is_refused_by_path(field: FieldCard, path: str) -> None:
    with pytest.raises(InvalidTeam) as refused:
        check_fields({"x": field}, steps=None, numbers=(), reducers=tuple(REDUCERS))
    assert refused.value.path == path


def test_what_cannot_be_taken_back_is_for_a_step_that_may_commit() -> None:
    with pytest.raises(InvalidPlan, match="may commit"):
        validate([step("one", irreversible=True)], AGENTS)
