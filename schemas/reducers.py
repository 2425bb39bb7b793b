"""Reducers: how contributions of several steps become one value. Pure, and blind to the order of arrival.

Each gets all claims of a field in one canonical order, so that nothing of who came first shows in the result; a team's own
reducer is held to the same by `check_reducer`, when the team is loaded and in its own tests.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, TypeAlias

from schemas.errors import InvalidTeam
from schemas.packets import fingerprint
from schemas.shared import Claim, FieldCard

Reducer: TypeAlias = Callable[[Sequence[Claim]], Any]
"""From claims in the order of step id and index to a value; None where there is none."""

AGREE = "agree"
"""The name of the reducer that makes different claims contested instead of choosing."""


def in_order(claims: Iterable[Claim]) -> list[Claim]:
    """Return claims in the one order that reducers see: step id, then index."""
    return sorted(claims, key=lambda each: (each.step, each.epoch, each.index))


def _append(claims: Sequence[Claim]) -> Any:
    return [each.value for each in in_order(claims)]


def _union(claims: Sequence[Claim]) -> Any:
    found = {fingerprint(each.value): each.value for each in claims}
    return [found[key] for key in sorted(found, key=lambda key: (str(found[key]), key))]


def _sum(claims: Sequence[Claim]) -> Any:
    values = _values(claims)
    return round(math.fsum(values), 9) if any(isinstance(each, float) for each in values) else sum(values)


def _max(claims: Sequence[Claim]) -> Any:
    return max(_values(claims))


def _min(claims: Sequence[Claim]) -> Any:
    return min(_values(claims))


def _values(claims: Sequence[Claim]) -> list[Any]:
    return [each.value for each in claims]


def _last_by_time(claims: Sequence[Claim]) -> Any:
    timed = [each for each in claims if each.at is not None]
    return max(timed or claims, key=lambda each: (each.at.timestamp() if each.at else 0.0, each.step, each.index)).value


def _agree(claims: Sequence[Claim]) -> Any:
    return claims[0].value if len({fingerprint(each.value) for each in claims}) == 1 else None


REDUCERS: Mapping[str, Reducer] = {
    "append": _append,
    "union": _union,
    "sum": _sum,
    "max": _max,
    "min": _min,
    "last_by_time": _last_by_time,
    AGREE: _agree,
}
"""The reducers that every team has."""


def reduce_claims(reducer: Reducer, claims: Iterable[Claim]) -> Any:
    """Return the value of a merged field, or None where nobody contributed."""
    ordered = in_order(claims)
    return reducer(ordered) if ordered else None


def independent_sources(claims: Iterable[Claim]) -> list[list[Claim]]:
    """Return claims grouped by where they come from: steps that read the same source count once.

    A claim that names no source is a source of its own.
    """
    groups: dict[str, list[Claim]] = {}
    for each in in_order(claims):
        groups.setdefault(each.source or f"step {each.step}", []).append(each)
    return list(groups.values())


def is_contested(claims: Sequence[Claim]) -> bool:
    """Whether claims say different things."""
    return len({fingerprint(each.value) for each in claims}) > 1


def check_commutative(name: str, reducer: Reducer, claims: Sequence[Claim]) -> None:
    """Refuse a reducer whose result depends on the order in which it is given these claims.

    Raises:
        InvalidTeam: with two orders that differ.
    """
    expected = fingerprint(reducer(list(claims)))
    for shift in range(1, len(claims)):
        for turned in ([*claims[shift:], *claims[:shift]], list(reversed([*claims[shift:], *claims[:shift]]))):
            if fingerprint(reducer(turned)) != expected:
                orders = " and ".join(", ".join(each.id for each in order) for order in (claims, turned))
                raise InvalidTeam(f"reducer {name!r} is not commutative: it differs between the orders {orders}", path=f"reducers.{name}")


_SAMPLES: Mapping[str, tuple[Any, ...]] = {
    "text": ("b", "a", "c", "a", "", "b"),
    "integer": (2, -1, 3, 2, 0, 7),
    "number": (1.5, -0.25, 3.0, 1.5, 0.0, 12.75),  # binary fractions: their sums have no rounding to differ by
    "boolean": (True, False, True, True, False, False),
}


def sample_claims(card: FieldCard) -> list[Claim]:
    """Return contributions to a field as several steps might make them: of its type, some of them equal, at different times."""
    began = datetime(2026, 1, 1, tzinfo=UTC)
    return [
        Claim(
            step=f"step-{index % 4}",
            index=index,
            value=_sample(card, index),
            source="" if index % 3 else f"source-{index % 2}",
            confidence=1 - index / 10,
            at=began + timedelta(seconds=(index * 7) % 5),
        )
        for index in range(len(_SAMPLES["text"]))
    ]


def _sample(card: FieldCard, index: int) -> Any:
    if card.type in _SAMPLES:
        return _SAMPLES[card.type][index]
    if set(card.members) == {"value"} and card.type == "list":
        return _SAMPLES[card.members["value"]][index]
    members = card.members or {"name": "text", "amount": "number"}
    return {name: _SAMPLES[kind.removesuffix("?")][(index + place) % 6] for place, (name, kind) in enumerate(members.items())}


def check_reducer(name: str, reducer: Reducer, card: FieldCard, claims: Sequence[Claim] | None = None) -> None:
    """Refuse a reducer that depends on the order of contributions to this field, or that cannot take them.

    For a team's own tests: `claims` are contributions as its steps make them; without any, some of the field's type are
    made up (a field of type list or object that names no members has no type to go by, and only what is given is held to).

    Raises:
        InvalidTeam: with two orders that differ, or what the reducer raised.
    """
    known = claims is not None or card.type in _SAMPLES or bool(card.members)
    every = list(claims) if claims is not None else sample_claims(card)
    for count in range(1, len(every) + 1):
        try:
            check_commutative(name, reducer, every[:count])
        except InvalidTeam:
            raise
        except Exception as error:
            if known:
                raise InvalidTeam(
                    f"reducer {name!r} cannot take what field {card.name!r} is given: {type(error).__name__}: {error}",
                    path=f"reducers.{name}",
                ) from error
            return


def known_reducers(own: Mapping[str, Reducer], cards: Iterable[FieldCard]) -> Mapping[str, Reducer]:
    """Return every reducer that a team has, its own ones held to what reducers promise.

    Raises:
        InvalidTeam: one that is named like a built-in one, is no function, or depends on the order of contributions.
    """
    for name, reducer in own.items():
        if name in REDUCERS:
            raise InvalidTeam(f"there is a reducer {name!r} for every team", path=f"reducers.{name}")
        if not callable(reducer):
            raise InvalidTeam("a reducer is a function from claims to a value", path=f"reducers.{name}")
    for card in cards:
        if card.reducer is not None and card.reducer in own:
            check_reducer(card.reducer, own[card.reducer], card)
    return {**REDUCERS, **own}
