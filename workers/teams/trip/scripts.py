"""Scripted models for the four specialists: what a good model would do, and one whose comparison leads nowhere.

A script sees what a model sees (the brief and the tool returns) and writes from that alone: other data gives another answer.
It takes the best rated first, as a model without care would; the tools say what does not fit the child or the budget.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import orjson

from workers.agents.models import Call, Reply, Say, Turn

Row = Mapping[str, Any]

SPOTS_A_DAY = 2
QUERIES = (
    "东京 亲子 演出",
    "东京 动物园 婴儿车",
    "东京 水族馆 亲子",
    "东京 科学馆 儿童",
    "东京 室内 乐园",
    "东京 铁道 亲子",
    "东京 手作 儿童",
    "东京 观景台 亲子",
)
STUCK_WORDINGS = ("东京 酒店 亲子", "东京 家庭房 比价", "东京 三人房", "东京 亲子 住宿")


def requirements(turn: Turn) -> Reply:
    """Read what the user fixed, record it, then say it."""
    profile = _return(turn, "readProfile")
    if profile is None:
        return Call(("readProfile", {}))
    if _return(turn, "record_budget") is None:
        return Call(
            ("record_destination", {"city": profile["destination"], "evidence": ["destination"]}),
            ("record_budget", {"amount": profile["budget"], "evidence": ["budget"]}),
        )
    return Say(f"{profile['destination']} {profile['days']} 天，出行人：{profile['traveler']}，全程预算 {profile['budget']} 元。")


def spots(turn: Turn) -> Reply:
    """Search, hold the best rated until there are enough for the days, record those, then say what was chosen and what not."""
    found = _return(turn, "searchSpots")
    if found is None:
        return Call(("searchSpots", {"queries": list(QUERIES)}))
    rows = sorted(found["spots"], key=lambda row: -row["rating"])
    held, refused = _held(turn, "holdTicket")
    wanted = int(_line(turn.brief, "days").split()[0]) * SPOTS_A_DAY
    untried = [row for row in rows if row["name"] not in held and row["name"] not in refused]
    if len(held) < wanted and untried:
        return Call(*(("holdTicket", {"name": row["name"]}) for row in untried[: wanted - len(held)]))
    chosen = [row for row in rows if row["name"] in held]
    if chosen and _return(turn, "add_cost") is None:
        return _recorded("record_spot", chosen, [row["cost"] for row in chosen], found["material"])
    lines = [f"- {row['name']}（{row['area']}），门票合计 {row['cost']} 元" for row in chosen]
    return Say("\n".join([*lines, *_left_out(refused)]) or "没有可以列入的景点。")


def hotels(turn: Turn) -> Reply:
    """Compare, hold the best rated that the budget allows, record it, then say it."""
    found = _return(turn, "comparePrices")
    if found is None:
        return Call(("comparePrices", {"wanted": "东京 家庭房 含税"}))
    rows = sorted(found["hotels"], key=lambda row: -row["rating"])
    held, refused = _held(turn, "holdRoom")
    untried = [row for row in rows if row["name"] not in held and row["name"] not in refused]
    if not held and untried:
        return Call(("holdRoom", {"name": untried[0]["name"]}))
    chosen = [row for row in rows if row["name"] in held]
    if chosen and _return(turn, "add_cost") is None:
        return _recorded("record_hotel", chosen, [row["total"] for row in chosen], found["material"])
    lines = [f"- {row['name']}（{row['area']}），{row['room']}，{row['nights']} 晚合计 {row['total']} 元" for row in chosen]
    return Say("\n".join([*lines, *_left_out(refused)]) or "没有可以列入的酒店。")


def stuck_hotels(turn: Turn) -> Reply:
    """Compare for ever, in other words each time."""
    return Call(
        ("comparePrices", {"wanted": f"{STUCK_WORDINGS[turn.round % len(STUCK_WORDINGS)]} {turn.round}"}), text="再换个条件比一次。"
    )


def final(turn: Turn) -> Reply:
    """Read the rule for children of the first place where the list says it stands, then write the days."""
    chosen = _listed(turn.brief, "景点")
    if not chosen:
        return Say("没有列入任何景点，排不出行程。")
    material, _, place = chosen[0]["artifact"].partition("#")
    part = _return(turn, "read_artifact")
    if part is None:
        start, _, end = place.partition("-")
        return Call(("read_artifact", {"id": material, "start": int(start), "length": int(end) - int(start)}))
    days = int(_line(turn.brief, "days").split()[0])
    rooms = _listed(turn.brief, "酒店")
    lines = [f"{_line(turn.brief, '目的地')} {days} 天，出行人：{_line(turn.brief, 'traveler')}。", ""]
    for day in range(days):
        today = chosen[day::days]
        lines += [f"### 第 {day + 1} 天", "", *(f"- {row['name']}，门票 {row['cost']} 元" for row in today), ""]
    lines += [f"住宿：{row['name']}，{row['cost']} 元（共 {days - 1} 晚）。" for row in rooms] or ["住宿：未定，还没有列入的酒店。"]
    total = sum(row["cost"] for row in (*chosen, *rooms))
    lines += [f"合计 {total} 元，预算 {_line(turn.brief, '总预算')}。", ""]
    quoted = f"“{part['text']}”" if part.get("text") else "原文没有读到"
    lines += [f"{chosen[0]['name']}对儿童和婴儿车的规定：{quoted}（出处：{material}，第 {part.get('start')}-{part.get('end')} 字）"]
    return Say("\n".join(lines))


def _recorded(action: str, rows: Sequence[Row], costs: Sequence[int], material: str) -> Call:
    """Record each of these with its place in the material, and what they cost together."""
    places = [f"{material}#{row['at']}" for row in rows]
    records = (
        (action, {"name": row["name"], "cost": cost, "place": place, "evidence": [place]})
        for row, cost, place in zip(rows, costs, places, strict=True)
    )
    return Call(*records, ("add_cost", {"amount": sum(costs), "evidence": places}))


def _held(turn: Turn, tool: str) -> tuple[dict[str, int], dict[str, str]]:
    """What a tool holds by now, name to cost; and what it refused, name to reason."""
    answers = _returns(turn, tool)
    return (
        {each["name"]: each["cost"] for each in answers if each.get("name") and not each.get("error")},
        {each["name"]: each["error"] for each in answers if each.get("name") and each.get("error")},
    )


def _left_out(refused: Mapping[str, str]) -> list[str]:
    return [f"- 未列入：{name}（{reason}）" for name, reason in refused.items()]


def _returns(turn: Turn, tool: str) -> list[Row]:
    """What a tool returned in this run, pointers left out."""
    return [orjson.loads(each.text) for each in turn.returns if each.tool == tool and each.text.startswith("{")]


def _return(turn: Turn, tool: str) -> Row | None:
    found = _returns(turn, tool)
    return found[-1] if found else None


def _line(brief: str, name: str) -> str:
    """What a line of the brief says of a constraint, fact or shared field."""
    found = re.search(rf"^- {re.escape(name)}：([^（\n]*)", brief, re.MULTILINE)
    return found.group(1).strip() if found else ""


def _listed(brief: str, label: str) -> list[Row]:
    """What a list of the shared state holds; nothing where it has no value."""
    found = re.search(rf"^- {re.escape(label)}：(\[.*\])", brief, re.MULTILINE)
    return list(orjson.loads(found.group(1))) if found else []


_GOOD: dict[str, Callable[[Turn], Reply]] = {"requirements": requirements, "spots": spots, "hotels": hotels, "final": final}
SCRIPTS: dict[str, dict[str, Callable[[Turn], Reply]]] = {
    "happy": _GOOD,
    "hotels-failing": {**_GOOD, "hotels": stuck_hotels},
    "slow-hotels": _GOOD,
}
"""Scenario -> script of each agent. In `slow-hotels` every turn of the hotels model takes seconds."""
