"""Reducers: how contributions of several steps become one value. Pure, and blind to the order of arrival.

Each gets all claims of a field in one canonical order, so that nothing of who came first shows in the result; a team's own
reducer is held to the same by `check_commutative`, which the test kit runs over permutations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from schemas.errors import InvalidTeam
from schemas.packets import fingerprint
from schemas.shared import Claim

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
    total = sum(_values(claims))
    return total if not isinstance(total, float) else round(total, 9)


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
