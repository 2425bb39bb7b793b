"""The audit of an itinerary: does it keep to the days, the budget and the child, and to what was recorded with its source?

Pure, and deterministic: it reads the lines of the answer that name a place or hotel of the data set. It finds what can be checked
without a model; it does not prove that prose is right. Called by this team's acceptance tests, and by the bench on what other ways of
passing things on lead to.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from workers.teams.trip.data import FAMILY, HOTELS, SPOTS, spot

Chosen = Mapping[str, Any]
"""An element of a list of the shared state: name, cost, artifact."""

_DAY = re.compile(r"^#+ 第 (\d+) 天$", re.MULTILINE)
_TOTAL = re.compile(r"合计 (\d+) 元，预算")
_QUOTE = re.compile(r"“([^”]+)”（出处：(art_[0-9a-f]{32})，第 (\d+)-(\d+) 字）")
_NOT_CHOSEN = "未列入"


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that must not stand in an itinerary.

    `kind`: `unfit_for_children`, `over_budget`, `wrong_days`, `wrong_destination`, `not_recorded`, `wrong_cost`, `wrong_total` or
    `not_in_source`.
    """

    kind: str
    what: str


@dataclass(frozen=True, slots=True)
class Quote:
    """Words of a material, and the characters of it at which they are said to stand."""

    text: str
    material: str
    start: int
    end: int


def quotes(answer: str) -> list[Quote]:
    """Return what an answer quotes, with the source that it names."""
    return [Quote(text, material, int(start), int(end)) for text, material, start, end in _QUOTE.findall(answer)]


def named(answer: str) -> list[str]:
    """Return the places and hotels that an answer chooses, in its order; those it says it left out are not among them."""
    names = [each.name for each in (*SPOTS, *HOTELS)]
    lines = [line for line in answer.splitlines() if _NOT_CHOSEN not in line]
    return list(dict.fromkeys(name for line in lines for name in names if name in line))


def against_constraints(answer: str, constraints: Mapping[str, object]) -> Iterator[Finding]:
    """Yield where an itinerary breaks what the user fixed: `destination`, `days`, `budget`, `traveler`."""
    if constraints.get("traveler") == FAMILY:
        for name in named(answer):
            found = spot(name)
            if found is not None and not found.fits_children:
                yield Finding("unfit_for_children", name)
    for total in _TOTAL.findall(answer):
        if int(total) > int(str(constraints["budget"])):
            yield Finding("over_budget", f"{total} of {constraints['budget']}")
    if len(set(_DAY.findall(answer))) != constraints["days"]:
        yield Finding("wrong_days", f"{len(set(_DAY.findall(answer)))} of {constraints['days']}")
    if str(constraints["destination"]) not in answer:
        yield Finding("wrong_destination", str(constraints["destination"]))


def against_records(answer: str, recorded: Sequence[Chosen], materials: Mapping[str, str]) -> Iterator[Finding]:
    """Yield where an itinerary says what was not recorded, another price or sum, or quotes what its source does not say."""
    costs = {row["name"]: row["cost"] for row in recorded}
    for name in named(answer):
        if name not in costs:
            yield Finding("not_recorded", name)
            continue
        for line in answer.splitlines():
            prices = re.findall(r"(\d+) 元", line) if name in line and _NOT_CHOSEN not in line else []
            if prices and str(costs[name]) not in prices:
                yield Finding("wrong_cost", line.strip())
    for total in _TOTAL.findall(answer):
        if int(total) != sum(costs.values()):
            yield Finding("wrong_total", f"{total}, and {sum(costs.values())} was recorded")
    for quote in quotes(answer):
        if materials.get(quote.material, "")[quote.start : quote.end] != quote.text:
            yield Finding("not_in_source", quote.text)


def audit(
    answer: str, constraints: Mapping[str, object], recorded: Iterable[Chosen] = (), materials: Mapping[str, str] | None = None
) -> tuple[Finding, ...]:
    """Return everything that is wrong with an answer; `materials` are the texts of the artifacts by id."""
    return (*against_constraints(answer, constraints), *against_records(answer, list(recorded), materials or {}))
