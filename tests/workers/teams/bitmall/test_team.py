"""The team as a whole: what the demo promises, what its constraints find, and that other data gives another answer."""

from __future__ import annotations

from datetime import date
from typing import Any

import pytest

from schemas.errors import InvalidValue, MissingConstraint, NotFound
from tests.workers.teams.bitmall.walk import REQUEST, walk
from workers.agents.models import ScriptedModel
from workers.agents.specialist import Specialist
from workers.teams.bitmall.constraints import budget, device_owned, order_number
from workers.teams.bitmall.team import AFTERSALES_RULES, make_team, team
from workers.teams.bitmall.warranty import return_status, warranty_end, warranty_status


async def test_the_happy_request_gives_three_sections_and_the_facts_of_the_data_sheet() -> None:
    done = await walk()

    assert list(done.sections) == ["保修与掉线处理", "换新候选", "音箱联动"]
    assert done.values("aftersales") == {
        "orderId": "88231",
        "productName": "比特 S10 Pro 扫地机",
        "originalPrice": 1999,
        "signDate": "2026-06-22",
        "orderStatus": "已签收",
        "warrantyStatus": "IN_WARRANTY",
        "warrantyEndDate": "2027-06-21",
        "noReasonReturnStatus": "EXPIRED",
    }
    assert list(done.values("aftersales")) == [rule.key for rule in AFTERSALES_RULES]
    product = done.values("product")
    assert product == {
        "candidateA": "比特 S11 Pro 扫地机",
        "candidateAPrice": 1899,
        "candidateAAppControlStatus": "SUPPORTED",
        "candidateB": "比特 S10 Lite 扫地机",
        "candidateBPrice": 1299,
        "candidateBAppControlStatus": "UNKNOWN",
        "catalogScope": "在售扫地机",
        "candidateSetComplete": True,
        "candidateCount": 2,
    }
    assert done.values("iot")["linkAStatus"] == "SUPPORTED" and done.values("iot")["linkBStatus"] == "UNKNOWN"


async def test_the_sections_say_what_the_facts_say() -> None:
    sections = (await walk()).sections

    for part in ("88231", "比特 S10 Pro 扫地机", "2026-06-22", "已签收", "2027-06-21", "免费维修", "重启"):
        assert part in sections["保修与掉线处理"]
    for part in ("比特 S11 Pro 扫地机，1899 元", "比特 S10 Lite 扫地机，1299 元", "6000 Pa", "机身按键"):
        assert part in sections["换新候选"]
    assert "比特 S11 Pro 扫地机：明确支持" in sections["音箱联动"]
    assert "比特 S10 Lite 扫地机：与你的比特 SoundBox Mini 智能音箱的联动情况未知" in sections["音箱联动"]


async def test_the_model_calls_are_those_of_the_three_loops() -> None:
    done = await walk()

    assert len(done.inputs) == sum(result.usage.model_calls for result in done.results.values()) == 8


@pytest.mark.parametrize(
    ("limit", "names"),
    [(2000, ["S11 Pro", "S10 Lite"]), (1500, ["S10 Lite"]), (1899, ["S11 Pro", "S10 Lite"]), (1000, [])],
)
async def test_the_budget_is_enforced_in_code_whatever_the_model_asks(limit: int, names: list[str]) -> None:
    done = await walk(given={"budget": limit})
    product = done.values("product")

    found = [product[key] for key in ("candidateA", "candidateB") if key in product]
    assert found == [f"比特 {name} 扫地机" for name in names] and product["candidateCount"] == len(names)
    assert all(price <= limit for key, price in product.items() if key.endswith("Price") and isinstance(price, int))
    assert ("S11 Pro" in done.sections["音箱联动"]) == ("S11 Pro" in names)


async def test_another_order_gives_another_answer_out_of_the_same_script() -> None:
    done = await walk(given={"order_number": "88107"})

    assert done.values("aftersales")["warrantyStatus"] == "OUT_OF_WARRANTY"
    assert "比特 S9 扫地机" in done.sections["保修与掉线处理"] and "已过保修期" in done.sections["保修与掉线处理"]


def test_the_constraints_of_the_demo_come_from_the_users_words_in_their_order() -> None:
    records = team.resolve(REQUEST)

    assert [(record.label, record.value, record.text) for record in records] == [
        ("订单号", "88231", "88231"),
        ("预算", 2000, "换新预算 2000 元以内"),
        ("已有设备", "比特 SoundBox Mini 智能音箱", "比特 SoundBox Mini 智能音箱"),
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("订单 88231 坏了", "88231"),
        ("订单号：88231", "88231"),
        ("我的订单编号是88231，", "88231"),
        ("订单#88231", "88231"),
        ("预算 88231 元", None),
        ("订单 12", None),
        ("", None),
    ],
)
def test_an_order_number_is_what_follows_the_word(text: str, expected: str | None) -> None:
    assert order_number(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("预算 2000 元以内", 2000),
        ("预算大概在2000左右", 2000),
        ("不超过 1,500 元", 1500),
        ("最多2千", 2000),
        ("预算 1 万元", 10_000),
        ("2000 元以内的都行", 2000),
        ("订单 88231 的扫地机", None),
        ("花了 1999 元买的", None),
        ("", None),
    ],
)
def test_a_budget_is_an_amount_that_the_user_wants_to_stay_within(text: str, expected: int | None) -> None:
    assert budget(text) == expected


@pytest.mark.parametrize("text", ["家里有 SoundBox Mini", "比特soundbox mini音箱", "比特 SoundBox Mini 智能音箱联动"])
def test_the_speaker_is_known_under_its_full_name(text: str) -> None:
    assert device_owned(text) == "比特 SoundBox Mini 智能音箱"
    assert device_owned("家里有智能音箱") is None


def test_without_an_order_number_the_request_is_refused() -> None:
    with pytest.raises(MissingConstraint, match="订单号"):
        team.resolve("扫地机坏了")
    with pytest.raises(InvalidValue) as refused:
        team.resolve(REQUEST, {"budget": "两千"})
    assert refused.value.path == "constraints.budget"


def test_an_unknown_scenario_is_refused_with_those_there_are() -> None:
    with pytest.raises(NotFound, match="happy, product-stuck"):
        make_team(scenario="sad")


def test_only_the_product_model_is_slow_in_the_slow_scenario() -> None:
    def delays(**options: Any) -> list[float]:
        agents = [agent for agent in make_team(**options).agents.values() if isinstance(agent, Specialist)]
        return [agent.model.delay_seconds for agent in agents if isinstance(agent.model, ScriptedModel)]

    assert delays(scenario="slow-product") == [0.0, 3.0, 0.0]
    assert delays(delay_seconds=0.5) == [0.0, 0.5, 0.0]
    assert delays() == [0.0, 0.0, 0.0]


@pytest.mark.parametrize(
    ("signed", "end"),
    [
        (date(2026, 6, 22), date(2027, 6, 21)),
        (date(2024, 2, 29), date(2025, 2, 28)),
        (date(2023, 3, 1), date(2024, 2, 29)),
        (date(2026, 1, 1), date(2026, 12, 31)),
    ],
)
def test_the_warranty_ends_the_day_before_the_anniversary(signed: date, end: date) -> None:
    assert warranty_end(signed) == end
    assert warranty_status(signed, end) == "IN_WARRANTY"
    assert return_status(signed, signed) == "AVAILABLE"
