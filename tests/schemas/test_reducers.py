"""Reducers: what several steps contribute becomes one value, whatever the order of arrival."""

from __future__ import annotations

import random
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.errors import InvalidTeam
from schemas.packets import fingerprint
from schemas.reducers import (
    REDUCERS,
    check_reducer,
    independent_sources,
    is_contested,
    known_reducers,
    reduce_claims,
    sample_claims,
)
from schemas.shared import Claim, FieldCard

AMOUNT = FieldCard(name="amount", type="number", reducer="sum")


@pytest.mark.parametrize("name", sorted(REDUCERS))
@pytest.mark.parametrize("kind", ["number", "text"])
@given(seed=st.integers())
def test_every_built_in_reducer_gives_the_same_in_any_order(name: str, kind: str, seed: int) -> None:
    if (name, kind) == ("sum", "text"):
        return
    claims = sample_claims(FieldCard(name="x", type=kind, reducer=name))
    turned = random.Random(seed).sample(claims, len(claims))
    assert fingerprint(reduce_claims(REDUCERS[name], turned)) == fingerprint(reduce_claims(REDUCERS[name], claims))


def first(claims: Sequence[Claim]) -> Any:
    """Whoever came first: what a reducer must not say."""
    return claims[0].value


def highest(claims: Sequence[Claim]) -> Any:
    """The highest."""
    values: list[Any] = [each.value for each in claims]
    return max(values)


def test_a_reducer_that_depends_on_the_order_is_refused_with_two_orders_that_differ() -> None:
    with pytest.raises(InvalidTeam, match="'first' is not commutative: it differs between the orders") as refused:
        check_reducer("first", first, AMOUNT)
    assert refused.value.path == "reducers.first"


def test_a_reducer_is_held_to_the_claims_that_a_test_gives() -> None:
    check_reducer("first", first, AMOUNT, [Claim(step="a", value=1), Claim(step="b", value=1)])
    with pytest.raises(InvalidTeam, match="not commutative"):
        check_reducer("first", first, AMOUNT, [Claim(step="a", value=1), Claim(step="b", value=2)])


def test_a_reducer_that_cannot_take_what_the_field_is_given_is_refused() -> None:
    named = FieldCard(name="x", type="list", members={"name": "text"}, reducer="highest")
    with pytest.raises(InvalidTeam, match="cannot take what field 'x' is given: TypeError"):
        check_reducer("highest", highest, named)
    check_reducer("highest", highest, FieldCard(name="x", type="object", reducer="highest"))  # nobody knows what it is given


def test_a_team_knows_the_built_in_reducers_and_its_own() -> None:
    assert set(known_reducers({"highest": highest}, [AMOUNT])) == {*REDUCERS, "highest"}
    with pytest.raises(InvalidTeam, match="a reducer 'sum' for every team"):
        known_reducers({"sum": highest}, [])
    wrong: Any = "sum"
    with pytest.raises(InvalidTeam, match="is a function"):
        known_reducers({"highest": wrong}, [])


VALUES = st.integers(-(2**40), 2**40) | st.floats(-1e12, 1e12)
CLAIMS = st.lists(st.tuples(st.sampled_from("abc"), VALUES, st.datetimes(timezones=st.just(UTC)) | st.none()), min_size=1, max_size=6).map(
    lambda made: [Claim(step=step, index=index, value=value, at=at) for index, (step, value, at) in enumerate(made)]
)


@pytest.mark.parametrize("name", sorted(REDUCERS))
@given(claims=CLAIMS, data=st.data())
def test_a_built_in_reducer_is_blind_to_the_order_of_any_numbers(name: str, claims: list[Claim], data: st.DataObject) -> None:
    turned = data.draw(st.permutations(claims))
    assert fingerprint(reduce_claims(REDUCERS[name], turned)) == fingerprint(reduce_claims(REDUCERS[name], claims))


@given(claims=CLAIMS, data=st.data())
def test_a_sum_is_the_same_in_any_order_even_before_it_is_put_in_order(claims: list[Claim], data: st.DataObject) -> None:
    assert REDUCERS["sum"](data.draw(st.permutations(claims))) == REDUCERS["sum"](claims)


def test_what_each_built_in_reducer_says() -> None:
    began = datetime(2026, 1, 1, tzinfo=UTC)
    claims = [
        Claim(step="b", value=2, at=began),
        Claim(step="a", index=1, value=3, at=began + timedelta(1)),
        Claim(step="a", index=0, value=2),
    ]
    said = {name: reduce_claims(reducer, claims) for name, reducer in REDUCERS.items()}
    assert said == {"append": [2, 3, 2], "union": [2, 3], "sum": 7, "max": 3, "min": 2, "last_by_time": 3, "agree": None}
    assert reduce_claims(REDUCERS["agree"], claims[:1] + claims[2:]) == 2
    assert all(reduce_claims(reducer, []) is None for reducer in REDUCERS.values())


def test_different_claims_are_contested_and_those_of_one_source_count_once() -> None:
    claims = [Claim(step="c", value=1, source="wiki"), Claim(step="b", value=2), Claim(step="a", value=1, source="wiki")]
    assert is_contested(claims) and not is_contested([claims[0], claims[2]]) and not is_contested([])
    assert [[each.step for each in group] for group in independent_sources(claims)] == [["a", "c"], ["b"]]
