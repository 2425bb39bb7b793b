"""What an in-memory broker does wrong on purpose: a plan of probabilities, and a seeded hand that follows it.

Every fault is one that a real broker shows its users: bells that ring twice, late, out of order or never, confirms that
get lost, and consumers that die with a message in hand. The same seed and the same calls give the same faults.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random


@dataclass(frozen=True, slots=True)
class FaultPlan:
    """How likely each fault is, from 0 to 1, for every message or publish by itself."""

    duplicate: float = 0.0
    """The message is stored twice."""
    lose: float = 0.0
    """The message is confirmed and then gone, as after a deleted queue."""
    delay: float = 0.0
    """The message is stored up to `longest_delay_seconds` later."""
    reorder: float = 0.0
    """The message is stored somewhere among those that wait."""
    redeliver: float = 0.0
    """The message is handed to nobody, as to a consumer that died, and comes back as redelivered."""
    unknown: float = 0.0
    """A confirmed publish raises `OutcomeUnknown`; half of those messages are stored."""
    longest_delay_seconds: float = 1.0


class FaultyHand:
    """Draws from one plan."""

    def __init__(self, plan: FaultPlan, random: Random) -> None:
        self.plan = plan
        self._random = random

    def happens(self, probability: float) -> bool:
        """Whether a fault of this probability happens now."""
        return probability > 0 and self._random.random() < probability

    def delay_seconds(self) -> float:
        """Return how late something is that is late."""
        return self._random.uniform(0, self.plan.longest_delay_seconds)

    def place(self, waiting: int) -> int:
        """Return where among `waiting` messages one is put in."""
        return self._random.randint(0, waiting)
