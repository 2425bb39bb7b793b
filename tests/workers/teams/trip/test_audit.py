"""The itinerary's audit finds what it is there for, each by one answer that is wrong in that way alone."""

from __future__ import annotations

from typing import Any

import pytest

from workers.teams.trip.audit import audit, named, quotes

MATERIAL = "art_" + "0" * 32
FIXED: dict[str, Any] = {"destination": "东京", "days": 2, "budget": 5_000, "traveler": "亲子"}
RECORDED = [
    {"name": "上野森林动物园", "cost": 120, "artifact": f"{MATERIAL}#4-9"},
    {"name": "浅草川畔酒店", "cost": 1_980, "artifact": f"{MATERIAL}#0-3"},
]
PAGE = "一二三四婴儿车可入。"
RIGHT = f"""东京 2 天。

### 第 1 天

- 上野森林动物园，门票 120 元

### 第 2 天

- 未列入：新宿夜光剧场（不适合儿童）

住宿：浅草川畔酒店，1980 元（共 1 晚）。
合计 2100 元，预算 5000 元。

规定：“婴儿车可入”（出处：{MATERIAL}，第 4-9 字）"""


def kinds(answer: str) -> list[str]:
    """What is found in an answer."""
    return [each.kind for each in audit(answer, FIXED, RECORDED, {MATERIAL: PAGE})]


def test_an_itinerary_that_keeps_to_everything_has_no_finding() -> None:
    assert kinds(RIGHT) == []
    assert named(RIGHT) == ["上野森林动物园", "浅草川畔酒店"] and [each.text for each in quotes(RIGHT)] == ["婴儿车可入"]


@pytest.mark.parametrize(
    ("before", "after", "found"),
    [
        ("未列入：新宿夜光剧场（不适合儿童）", "新宿夜光剧场", ["unfit_for_children", "not_recorded"]),
        ("合计 2100 元，预算", "合计 5100 元，预算", ["over_budget", "wrong_total"]),
        ("合计 2100 元，预算", "合计 2000 元，预算", ["wrong_total"]),
        ("### 第 2 天", "### 第 1 天", ["wrong_days"]),
        ("东京", "大阪", ["wrong_destination"]),
        ("门票 120 元", "门票 12 元", ["wrong_cost"]),
        ("上野森林动物园", "隅田川水族馆", ["not_recorded"]),
        ("婴儿车可入", "婴儿车不可入", ["not_in_source"]),
        ("第 4-9 字", "第 3-8 字", ["not_in_source"]),
    ],
)
def test_what_is_wrong_is_found_by_its_kind(before: str, after: str, found: list[str]) -> None:
    assert before in RIGHT and kinds(RIGHT.replace(before, after)) == found
