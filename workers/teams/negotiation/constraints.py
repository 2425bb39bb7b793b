"""What holds for a whole request to this team, and how it is found in the user's words. Pure functions; no model is asked."""

from __future__ import annotations

import re

from workers.team import Constraint

_NUMBER = re.compile(r"C-\d{4}")
_TAIL = re.compile(r"尾号\s*(\d{4})")
_WANTED = re.compile(r"(?:改成|想|只能|希望)[^，。；]{0,8}?每月(?:只)?(?:能)?还?\s*(\d{2,6})\s*元")


def customer_number(text: str) -> str | None:
    """Return the customer number."""
    found = _NUMBER.search(text)
    return found.group() if found else None


def telephone_tail(text: str) -> str | None:
    """Return the four digits by which the user proves who they are."""
    found = _TAIL.search(text)
    return found.group(1) if found else None


def wanted_amount(text: str) -> int | None:
    """Return the CNY a month that the user asks to pay."""
    found = _WANTED.search(text)
    return int(found.group(1)) if found else None


CONSTRAINTS = (
    Constraint("customer", "客户号", extract=customer_number),
    Constraint("tail", "手机尾号", extract=telephone_tail),
    Constraint("wanted", "希望每月还款", type="integer", unit="元", extract=wanted_amount),
)
