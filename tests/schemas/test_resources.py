"""Resources: never more reserved than there is, the same id once, and what lapsed counts for nothing."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.errors import InvalidValue, NotPermitted
from schemas.resources import available, confirm, release, reserve, taken
from schemas.shared import FieldRecord

NONE = FieldRecord()


def held(record: FieldRecord = NONE, *, step: str = "a", id: str = "a:x", amount: float = 2, now_ms: int = 0) -> FieldRecord:
    """Reserve of five, for a second."""
    return reserve(record, 5, step, id, amount, now_ms, 1_000)


def test_what_is_reserved_is_not_available_until_it_lapses() -> None:
    record = held()
    assert (available(record, 5, 0), available(record, 5, 999), available(record, 5, 1_000)) == (3, 3, 5)


def test_over_the_capacity_is_refused_with_what_is_left() -> None:
    with pytest.raises(NotPermitted, match="4 cannot be reserved: 3 of 5 is left"):
        held(held(), step="b", id="b:x", amount=4)
    assert taken(held(held(), step="b", id="b:x", amount=3), 0) == 5


def test_the_same_id_again_is_one_reservation_of_the_new_amount() -> None:
    assert taken(held(held(), amount=5), 0) == 5
    with pytest.raises(NotPermitted, match="by another step"):
        held(held(), step="b")


@pytest.mark.parametrize("amount", [0, -1, float("nan"), float("inf")])
def test_an_amount_that_is_none_is_refused(amount: float) -> None:
    with pytest.raises(InvalidValue):
        held(amount=amount)


def test_a_confirmed_reservation_stays_and_an_earlier_attempts_leftover_goes() -> None:
    record = confirm(held(held(), id="a:old", amount=1), 5, "a", {"a:x"}, 10)
    assert list(record.reservations) == ["a:x"] and taken(record, 10_000_000) == 2
    assert release(record, "b") == record and release(record, "a").reservations == {}


def test_one_that_lapsed_is_confirmed_only_where_its_part_is_still_there() -> None:
    record = held()
    assert taken(confirm(record, 5, "a", {"a:x"}, 2_000), 2_000) == 2
    taker = held(step="b", id="b:x", amount=4, now_ms=2_000)
    other = record.model_copy(update={"reservations": {**record.reservations, **taker.reservations}})
    with pytest.raises(NotPermitted, match="its part is taken: 1 of 5 is left"):
        confirm(other, 5, "a", {"a:x"}, 2_000)
    with pytest.raises(NotPermitted, match="is gone"):
        confirm(NONE, 5, "a", {"a:x"}, 0)


STEPS = st.sampled_from("abc")
MOVES = st.lists(
    st.tuples(st.sampled_from(["reserve", "confirm", "release", "wait"]), STEPS, st.integers(1, 4), st.integers(0, 1)), max_size=30
)


@given(MOVES)
def test_in_whatever_order_steps_come_no_more_is_held_than_there_is(moves: list[tuple[str, str, int, int]]) -> None:
    record, now = NONE, 0
    for move, step, amount, key in moves:
        id = f"{step}:{key}"
        try:
            match move:
                case "reserve":
                    record = reserve(record, 5, step, id, amount, now, 100)
                case "confirm":
                    record = confirm(record, 5, step, {each for each, held in record.reservations.items() if held.step == step}, now)
                case "release":
                    record = release(record, step)
                case "wait":
                    now += amount * 40
        except NotPermitted:
            pass
        assert taken(record, now) <= 5
