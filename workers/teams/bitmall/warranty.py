"""Dates of warranty and return: pure arithmetic on a signing date and a day, both given."""

from __future__ import annotations

from datetime import date, timedelta

RETURN_DAYS = 7
"""No-reason return: the signing day and these many days after it."""


def warranty_end(signed: date) -> date:
    """Return the last day of the one-year warranty: the day before the signing day's anniversary."""
    try:
        anniversary = signed.replace(year=signed.year + 1)
    except ValueError:  # signed on 29 February
        anniversary = date(signed.year + 1, 3, 1)
    return anniversary - timedelta(days=1)


def warranty_status(signed: date, today: date) -> str:
    """Return `IN_WARRANTY`, `OUT_OF_WARRANTY`, or `UNKNOWN` on a day before the signing."""
    if today < signed:
        return "UNKNOWN"
    return "IN_WARRANTY" if today <= warranty_end(signed) else "OUT_OF_WARRANTY"


def return_status(signed: date, today: date) -> str:
    """Return `AVAILABLE` through the seventh day after the signing, `EXPIRED` later, `UNKNOWN` on a day before it."""
    if today < signed:
        return "UNKNOWN"
    return "AVAILABLE" if today <= signed + timedelta(days=RETURN_DAYS) else "EXPIRED"
