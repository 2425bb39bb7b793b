"""What is left of the hard constraints in the last step's input, and in an answer that is written from that input alone. Pure.

A constraint *stands* in a text where one of the sentences or values that state it does, word for word. The answer is written by rule
(`itinerary`): it keeps to what it can read, and without a constraint does what one would do without. It says nothing about what a model
overlooks in a text that holds everything.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from ops.bench.passing import Count
from workers.teams.trip.audit import audit
from workers.teams.trip.data import HOTELS, SPOTS

FIXED: Mapping[str, object] = {"days": 3, "budget": 20_000, "traveler": "亲子", "destination": "东京"}
STATEMENTS: Mapping[str, tuple[str, ...]] = {
    "days": ("3 天东京", "天数：3 天", '"days":3,', "东京 3 天"),
    "budget": ("预算 2 万元", "不超过 20000 元", '"budget":20000', "全程预算 20000 元", "总预算：20000 元"),
    "traveler": ("亲子游", "出行人：亲子", '"traveler":"亲子"', "traveler：亲子"),
    "destination": ("东京亲子游", "目的地：东京", '"destination":"东京"', "东京 3 天"),
}
"""Constraint -> the words that state it: the user's, a brief's, the profile's, and those of its section."""
BROKEN_BY = {
    "days": "wrong_days",
    "budget": "over_budget",
    "traveler": "unfit_for_children",
    "destination": "wrong_destination",
}
WITHOUT_DAYS = 5
_CHOSEN = re.compile(
    r"^- (\S+?)（\S+?），(?:门票合计|\S+?，\d+ 晚合计) (\d+) 元|\"name\":\"([^\"]+)\",\"cost\":(\d+),\"artifact\"", re.MULTILINE
)


@dataclass(frozen=True)
class Survival:
    """Of one constraint in one input: whether it stands there, how far from the end, and whether the answer keeps to it."""

    stands: bool
    before_end: int | None
    """Tokens between where it is stated last and the end."""
    kept: bool


def survival(text: str, count: Count) -> dict[str, Survival]:
    """Return what is left of each constraint in the input of the last step."""
    found = {each.kind for each in audit(itinerary(text), FIXED)}
    return {name: _survival(name, text, count, kept=BROKEN_BY[name] not in found) for name in STATEMENTS}


def _survival(name: str, text: str, count: Count, *, kept: bool) -> Survival:
    at = max(text.rfind(each) for each in STATEMENTS[name])
    return Survival(at >= 0, count(text[at:]) if at >= 0 else None, kept)


def within(text: str, count: Count, limit: int) -> str:
    """Return the end of a text that has at most so many tokens."""
    low, high = 0, len(text)
    while low < high:
        middle = (low + high) // 2
        if count(text[middle:]) <= limit:
            high = middle
        else:
            low = middle + 1
    return text[low:]


def can_quote(text: str, materials: Mapping[str, str]) -> bool:
    """Whether the rule for children of a chosen place can be quoted: it stands in the text, or a reference to its place does."""
    rules = [each.child_rule for each in SPOTS if each.fits_children]
    places = re.findall(r"(art_[0-9a-f]{32})#(\d+)-(\d+)", text)
    return any(rule in text for rule in rules) or any(materials.get(ref, "")[int(a) : int(b)] in rules for ref, a, b in places)


def itinerary(text: str) -> str:
    """Write an itinerary from what stands in a text, by rule.

    Places and hotels are those that it lists with a price. Without the traveler the best rated place of the data set is added, without
    the budget the best rated hotel is taken, without days there are five, without a destination none is named.
    """
    known = {name: any(each in text for each in statements) for name, statements in STATEMENTS.items()}
    listed = {name or other: int(cost or price) for name, cost, other, price in _CHOSEN.findall(text)}
    places = {each.name: listed[each.name] for each in SPOTS if each.name in listed}
    houses = {each.name: listed[each.name] for each in HOTELS if each.name in listed}
    if not known["traveler"]:
        best = max(SPOTS, key=lambda each: each.rating)
        places[best.name] = best.cost
    days = 3 if known["days"] else WITHOUT_DAYS
    if not known["budget"]:
        finest = max(HOTELS, key=lambda each: each.rating)
        houses = {finest.name: finest.nightly * (days - 1)}
    lines = [f"{'东京' if known['destination'] else '目的地未知'} {days} 天。"]
    for day in range(days):
        lines += [f"### 第 {day + 1} 天", *(f"- {name}，门票 {cost} 元" for name, cost in list(places.items())[day::days])]
    lines += [f"住宿：{name}，{cost} 元。" for name, cost in houses.items()]
    lines.append(f"合计 {sum(places.values()) + sum(houses.values())} 元，预算 {20000 if known['budget'] else '未知'} 元。")
    return "\n".join(lines)
