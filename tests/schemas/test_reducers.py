"""Reducers: what several steps contribute becomes one value, whatever the order of arrival."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.errors import InvalidTeam
from schemas.packets import fingerprint
from schemas.reducers import REDUCERS, check_reducer, known_reducers, reduce_claims, sample_claims
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
