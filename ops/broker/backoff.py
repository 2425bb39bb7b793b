"""How long to wait before the next try: growing, bounded, and spread so that many processes do not come back at once."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random


def delays(first_seconds: float, cap_seconds: float, random: Random) -> Iterator[float]:
    """Yield waiting times in seconds for ever: doubling from `first_seconds` to `cap_seconds`, each cut by up to a half."""
    full = first_seconds
    while True:
        yield min(full, cap_seconds) * (0.5 + random.random() / 2)
        full = min(full * 2, cap_seconds)
