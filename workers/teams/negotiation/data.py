"""The house's own small data set: customers, their account tables, the ability table, offer rules and what is said to plain questions.

Made up, and complete. Each part belongs to one domain's tools. How old a table is counts from the team's clock, so that the data
is as fresh on any day. Called by this team's tools.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta

ABILITY_TABLE = "rule_table_v3"
POLICY = "policy_v3"
MAX_TABLE_AGE = timedelta(hours=24)
"""An older table says nothing of today."""

INCOME_ROW, OUTLAY_ROW = "r12", "r18"
"""The two rows that the ability table works with."""

LIMIT_SHARE = 0.25
"""Of what a household has left, how much an offer may ask for."""
LIMIT_STEP = 50
"""CNY; a limit is rounded down to it."""
TIERS = (("high", 0.5), ("medium", 0.2), ("low", float("-inf")))
"""Tier -> the least share of the income that is left."""
MAX_MONTHS = 60
RULES = {
    "R-1": "每月还款不超过建议上限",
    "R-2": f"期数不超过 {MAX_MONTHS} 期",
    "R-3": "文字里没有承诺性的说法",
    "R-4": "每月还款不高于已经承诺的金额",
}
PROMISES = ("保证", "一定", "全部免除", "绝对")
"""Words that no draft may use."""


@dataclass(frozen=True, slots=True)
class Row:
    """One row of an account table: monthly CNY."""

    id: str
    item: str
    amount: int


@dataclass(frozen=True, slots=True)
class Customer:
    """A customer, what proves that it is them, and their account table."""

    number: str
    name: str
    tail: str
    """Last four digits of the telephone number on file."""
    table_age: timedelta
    rows: tuple[Row, ...] = field(repr=False)


@dataclass(frozen=True, slots=True)
class Document:
    """One piece of knowledge; `keywords` are what a search finds it by."""

    id: str
    title: str
    text: str
    keywords: tuple[str, ...]


_OUTGOINGS = ("房租", "水电", "通讯", "交通", "伙食")


def _rows(income: int, outlay: int) -> tuple[Row, ...]:
    """Twenty rows: five months of payslips, five of rent and the like, and two that sum them up."""
    months = [Row(f"r{index:02}", f"近 {index} 月前工资入账", income + (index - 3) * 40) for index in range(1, 6)]
    spent = [Row(f"r{index + 6:02}", f"{item}（月均）", outlay // 5) for index, item in enumerate(_OUTGOINGS)]
    return (
        *months,
        *spent,
        Row("r11", "其他入账（月均）", 0),
        Row(INCOME_ROW, "月收入（近 5 月中位数）", income),
        *(Row(f"r{index}", f"第 {index - 12} 期账单", 900 + index) for index in range(13, 18)),
        Row(OUTLAY_ROW, "月固定支出（近 5 月合计均值）", outlay),
        Row("r19", "其他贷款月供", 0),
        Row("r20", "逾期期数", 1),
    )


CUSTOMERS = (
    Customer("C-0817", "王宁", "6621", timedelta(minutes=5), _rows(6200, 4200)),
    Customer("C-0903", "李叶", "3307", timedelta(days=40), _rows(8000, 5000)),
)

DOCUMENTS = (
    Document(
        "faq-minimum",
        "最低还款额",
        "最低还款额为当期账单的 10%，加上未还清的分期本期应还。只还最低还款额，其余部分按日计息。",
        ("最低还款", "最低", "怎么算"),
    ),
    Document(
        "faq-channels",
        "还款渠道",
        "可以用绑定的银行卡在线还款，也可以到网点还款；入账时间为当天 22 点前。",
        ("渠道", "怎么还", "哪里还", "入账"),
    ),
)
