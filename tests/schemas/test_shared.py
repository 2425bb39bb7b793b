"""Shared fields: a value of the declared shape, a change by who may make it, and a state that only goes where it may."""

from __future__ import annotations

from typing import Any

import pytest

from schemas.errors import IllegalTransition, InvalidValue, NotPermitted
from schemas.shared import (
    Claim,
    FieldCard,
    FieldChange,
    FieldRecord,
    Operation,
    Transition,
    check_change,
    check_element,
    check_transition,
    check_value,
    conditions_of,
)

OFFER = FieldCard(name="offer", type="object", members={"price": "number", "name": "text", "note": "text?"}, owner="a")
OFFERS = FieldCard(name="offers", type="list", members={"price": "number"}, reducer="append")
NAMES = FieldCard(name="names", type="list", members={"value": "text"}, reducer="union")


class TestValues:
    @pytest.mark.parametrize(
        ("card", "value"),
        [
            (FieldCard(name="x", owner="a"), "text"),
            (FieldCard(name="x", type="integer", owner="a"), 3),
            (FieldCard(name="x", type="number", owner="a"), 3),
            (FieldCard(name="x", type="number", owner="a"), 3.5),
            (FieldCard(name="x", type="boolean", owner="a"), False),
            (FieldCard(name="x", type="list", owner="a"), [1, "any", {"thing": True}]),
            (FieldCard(name="x", type="object", owner="a"), {"any": ["thing"]}),
            (OFFER, {"price": 1, "name": "n"}),
            (OFFER, {"price": 1.5, "name": "n", "note": "cheap"}),
            (OFFERS, []),
            (OFFERS, [{"price": 1}, {"price": 2}]),
            (NAMES, ["a", "b"]),
        ],
    )
    def test_what_is_of_the_declared_shape_is_taken(self, card: FieldCard, value: Any) -> None:
        check_value(card, value)

    @pytest.mark.parametrize(
        ("card", "value", "path", "said"),
        [
            (FieldCard(name="x", owner="a"), 3, "fields.x", "must be text"),
            (FieldCard(name="x", type="integer", owner="a"), 3.0, "fields.x", "must be integer"),
            (FieldCard(name="x", type="integer", owner="a"), True, "fields.x", "must be integer"),
            (FieldCard(name="x", type="boolean", owner="a"), 0, "fields.x", "must be boolean"),
            (OFFERS, {"price": 1}, "fields.offers", "must be a list"),
            (OFFERS, [{"price": 1}, {"price": "1"}], "fields.offers.1.price", "must be number"),
            (OFFERS, [1], "fields.offers.0", "must be an object"),
            (OFFER, {"price": 1}, "fields.offer.name", "must be text"),
            (OFFER, {"price": 1, "name": "n", "note": 2}, "fields.offer.note", "must be text"),
            (
                OFFER,
                {"price": 1, "name": "n", "colour": "red"},
                "fields.offer.colour",
                "there is no such member; there are: .*",
            ),
            (OFFER, "cheap", "fields.offer", "must be an object"),
            (NAMES, ["a", 2], "fields.names.1", "must be text"),
        ],
    )
    def test_what_is_not_is_refused_with_its_path(self, card: FieldCard, value: Any, path: str, said: str) -> None:
        with pytest.raises(InvalidValue, match=f"^{path}: {said}$"):
            check_value(card, value)

    def test_a_contribution_to_a_list_is_one_element_and_to_another_field_a_value(self) -> None:
        check_element(OFFERS, {"price": 1})
        check_element(NAMES, "a")
        check_element(FieldCard(name="total", type="number", reducer="sum"), 3)
        with pytest.raises(InvalidValue, match="must be an object"):
            check_element(OFFERS, [{"price": 1}])
        with pytest.raises(InvalidValue, match=r"fields\.total: must be number"):
            check_element(FieldCard(name="total", type="number", reducer="sum"), "3")


CARDS = {
    card.name: card
    for card in (
        OFFER,
        OFFERS,
        FieldCard(name="rooms", type="integer", capacity=10),
        FieldCard(name="verdict", reducer="agree", arbiter="judge"),
        FieldCard(name="plan", owner="a", arbiter="judge"),
    )
}


def change(field: str, operation: Operation, value: Any = "x", step: str = "a", writes: tuple[str, ...] = ()) -> None:
    """One change by a step, held against the cards."""
    check_change(CARDS, FieldChange(field=field, operation=operation, value=value), step, writes)


class TestChanges:
    @pytest.mark.parametrize(
        ("field", "operation", "value", "step", "writes"),
        [
            ("offer", Operation.SET, {"price": 1, "name": "n"}, "a", ()),
            ("offer", Operation.PROPOSE, {"price": 1, "name": "n"}, "b", ()),
            ("offer", Operation.TAKE_UP, "b.0.0", "a", ()),
            ("offer", Operation.REFUSE, "b.0.0", "a", ()),
            ("offers", Operation.ADD, {"price": 1}, "b", ("offers",)),
            ("verdict", Operation.SETTLE, "b.0.0", "judge", ()),
            ("verdict", Operation.PROPOSE, "guilty", "b", ()),
        ],
    )
    def test_who_may_make_a_change_makes_it(self, field: str, operation: Operation, value: Any, step: str, writes: tuple[str, ...]) -> None:
        change(field, operation, value, step, writes)

    @pytest.mark.parametrize(
        ("field", "operation", "step", "writes", "said"),
        [
            ("nothing", Operation.SET, "a", (), "the team declares no field 'nothing'; there are: offer, offers"),
            ("offer", Operation.SET, "b", ("offer",), "belongs to step 'a'; step 'b' may propose only"),
            ("offer", Operation.TAKE_UP, "b", (), "belongs to step 'a'"),
            ("offer", Operation.SETTLE, "a", (), "is settled by a person, not by step 'a'"),
            ("plan", Operation.SETTLE, "a", (), "is settled by judge, not by step 'a'"),
            ("offers", Operation.ADD, "a", (), "may not add to it, since its plan does not say writes=\\('offers',\\)"),
            ("offers", Operation.SET, "a", ("offers",), "is merged; step 'a' may add to it only"),
            ("rooms", Operation.SET, "a", ("rooms",), "is reserved from, never written"),
            ("rooms", Operation.ADD, "a", ("rooms",), "is reserved from, never written"),
        ],
    )
    def test_who_may_not_is_refused(self, field: str, operation: Operation, step: str, writes: tuple[str, ...], said: str) -> None:
        with pytest.raises(NotPermitted, match=said) as refused:
            change(field, operation, step=step, writes=writes)
        assert refused.value.path == field

    @pytest.mark.parametrize(
        ("field", "operation", "writes"),
        [("offer", Operation.SET, ()), ("offer", Operation.PROPOSE, ()), ("offers", Operation.ADD, ("offers",))],
    )
    def test_a_value_of_another_shape_is_refused_by_whomever(self, field: str, operation: Operation, writes: tuple[str, ...]) -> None:
        with pytest.raises(InvalidValue, match=f"fields.{field}"):
            change(field, operation, "text", writes=writes)


DRAFT_SENT = (
    Transition(target="draft", by=("a",)),
    Transition(source="draft", target="sent", by=("a",), when={"approval": "granted"}),
    Transition(source="draft", target="sent", by=("person",)),
    Transition(source="sent", target="closed", by=("a", "person")),
)
LETTER = FieldCard(name="letter", owner="a", transitions=DRAFT_SENT)


def goes(before: Any, after: Any, by: str = "a", card: FieldCard = LETTER, **others: Any) -> None:
    """One step of the state machine, with what other fields say meanwhile."""
    was = None if before is None else FieldRecord(value=before)
    check_transition(card, was, after, by, {name: FieldRecord(value=value) for name, value in others.items()})


class TestTransitions:
    def test_a_field_goes_where_its_transitions_lead(self) -> None:
        goes(None, "draft")
        goes("draft", "sent", approval="granted")
        goes("draft", "sent", "person")
        goes("sent", "closed")

    @pytest.mark.parametrize(
        ("before", "after", "by", "said"),
        [
            (None, "sent", "a", "does not go from nothing to 'sent'; from there it may go to: draft"),
            ("draft", "closed", "a", "does not go from 'draft' to 'closed'; from there it may go to: sent"),
            ("closed", "draft", "a", "from there it may go to: nothing, it is final"),
            ("closed", "closed", "a", "it is final"),
            ("sent", "draft", "a", "from there it may go to: closed"),
            (None, "draft", "b", "goes from nothing to 'draft' by a only, not by 'b'"),
            ("draft", "sent", "a", "does not go from 'draft' to 'sent' yet: approval is not 'granted'"),
        ],
    )
    def test_it_goes_nowhere_else_and_by_nobody_else(self, before: Any, after: Any, by: str, said: str) -> None:
        with pytest.raises(IllegalTransition, match=said) as refused:
            goes(before, after, by)
        assert refused.value.path == "letter"

    def test_a_condition_holds_by_the_value_of_the_other_field_or_by_a_member_of_it(self) -> None:
        goes("draft", "sent", approval={"state": "granted", "by": "someone"})
        for wrong in ("asked", {"state": "asked"}, ["granted"]):
            with pytest.raises(IllegalTransition, match="approval is not 'granted'"):
                goes("draft", "sent", approval=wrong)
        assert conditions_of(LETTER) == {"approval"}

    def test_one_of_several_ways_whose_condition_holds_is_enough(self) -> None:
        ways = (
            Transition(target="sent", by=("a",), when={"approval": "granted"}),
            Transition(target="sent", by=("a",), when={"urgent": True}),
        )
        card = FieldCard(name="letter", owner="a", transitions=ways)
        goes(None, "sent", card=card, urgent=True)
        goes(None, "sent", card=card, approval="granted")
        with pytest.raises(IllegalTransition, match="yet: approval is not 'granted'"):
            goes(None, "sent", card=card, urgent=False)

    def test_a_state_that_stays_is_no_transition_unless_it_is_final(self) -> None:
        goes("draft", "draft", "b")
        assert LETTER.terminal == {"closed"}

    def test_the_state_of_an_object_is_one_of_its_members(self) -> None:
        card = LETTER.model_copy(update={"type": "object", "state_key": "state"})
        goes({"state": "draft", "text": "one"}, {"state": "draft", "text": "two"}, card=card)
        with pytest.raises(IllegalTransition, match="from 'draft' to 'closed'"):
            goes({"state": "draft"}, {"state": "closed"}, card=card)
        with pytest.raises(IllegalTransition, match="from 'draft' to nothing"):
            goes({"state": "draft"}, "no object", card=card)

    def test_a_field_without_transitions_goes_anywhere(self) -> None:
        goes("draft", "anything", "whoever", FieldCard(name="x", owner="a"))


class TestCards:
    def test_a_field_is_kept_merged_or_reserved_from(self) -> None:
        assert [(each.merged, each.is_resource) for each in (OFFER, OFFERS, CARDS["rooms"])] == [
            (False, False),
            (True, False),
            (False, True),
        ]
        assert FieldCard(name="x", reducer="sum", capacity=5).is_resource is False
        assert FieldCard(name="x", capacity_of="budget").is_resource

    def test_it_is_called_by_its_label_where_it_has_one(self) -> None:
        assert (OFFER.title, FieldCard(name="x", label="The offer").title) == ("offer", "The offer")

    def test_a_claim_is_named_by_step_epoch_and_index(self) -> None:
        assert Claim(step="a", epoch=1, index=2, value=3).id == "a.1.2"
