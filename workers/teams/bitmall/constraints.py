"""What holds for a whole request to this team, and how it is found in the user's words. Pure functions; no model is asked."""

from __future__ import annotations

import re

from workers.team import Constraint

_ORDER = re.compile(r"订单(?:号|编号)?\s*(?:是|为)?\s*[:：#]?\s*(\d{4,12})")
_AMOUNT = r"(\d+(?:,\d{3})*)\s*(万|千|k|K)?\s*(?:元|块|人民币|rmb|RMB|左右|以内|以下)?"
_BUDGET = re.compile(rf"(?:预算|不超过|最多|控制在)\D{{0,6}}?{_AMOUNT}|{_AMOUNT}\s*(?:以内|以下|之内)")
_FACTORS = {"万": 10_000, "千": 1_000, "k": 1_000, "K": 1_000}
_SPEAKER = re.compile(r"(?:比特\s*)?SoundBox\s*Mini(?:\s*智能音箱|\s*音箱)?", re.IGNORECASE)


def order_number(text: str) -> str | None:
    """Return the number after the word 订单, kept as text."""
    found = _ORDER.search(text)
    return found.group(1) if found else None


def budget(text: str) -> int | None:
    """Return the amount of CNY that the user wants to stay within."""
    found = _BUDGET.search(text)
    if found is None:
        return None
    amount, factor = (found.group(1), found.group(2)) if found.group(1) else (found.group(3), found.group(4))
    return int(amount.replace(",", "")) * _FACTORS.get(factor or "", 1)


def device_owned(text: str) -> str | None:
    """Return the smart speaker that the user names as their own, under its full name."""
    return "比特 SoundBox Mini 智能音箱" if _SPEAKER.search(text) else None


CONSTRAINTS = (
    Constraint("order_number", "订单号", required=True, extract=order_number),
    Constraint("budget", "预算", type="integer", unit="元", extract=budget, wording="换新预算 {value} 元以内"),
    Constraint("device_owned", "已有设备", extract=device_owned),
)
