"""What holds for a whole trip, and how it is found in the user's words. Pure functions; no model is asked."""

from __future__ import annotations

import re

from workers.team import Constraint
from workers.teams.trip.data import CITY, FAMILY

_DIGITS = {"一": 1, "两": 2, "二": 2, "三": 3, "四": 4, "五": 5, "六": 6, "七": 7}
_DAYS = re.compile(rf"(\d{{1,2}}|[{''.join(_DIGITS)}])\s*[天日](?!\s*前)")
_BUDGET = re.compile(r"(?:预算|不超过|最多|控制在)\D{0,6}?(\d+(?:[,.]\d+)*|[一两二三四五六七])\s*(万|千|k|K)?")
_FACTORS = {"万": 10_000, "千": 1_000, "k": 1_000, "K": 1_000}
_CHILD = re.compile(r"亲子|孩子|小孩|儿童|带娃|宝宝")


def days(text: str) -> int | None:
    """Return how many days the trip has."""
    found = _DAYS.search(text)
    if found is None:
        return None
    return _DIGITS.get(found.group(1)) or int(found.group(1))


def budget(text: str) -> int | None:
    """Return the amount of CNY that the whole trip may cost."""
    found = _BUDGET.search(text)
    if found is None:
        return None
    amount = _DIGITS.get(found.group(1)) or float(found.group(1).replace(",", ""))
    return round(amount * _FACTORS.get(found.group(2) or "", 1))


def traveler(text: str) -> str | None:
    """Return `亲子` where a child comes along."""
    return FAMILY if _CHILD.search(text) else None


def destination(text: str) -> str | None:
    """Return the city, if it is the one that this team knows."""
    return CITY if CITY in text else None


CONSTRAINTS = (
    Constraint("destination", "目的地", required=True, extract=destination),
    Constraint("days", "天数", type="integer", unit="天", required=True, extract=days),
    Constraint("budget", "预算", type="integer", unit="元", required=True, extract=budget, wording="全程花费合计不超过 {value} 元"),
    Constraint("traveler", "出行人", extract=traveler, wording="{value}（行程必须适合儿童）"),
)
