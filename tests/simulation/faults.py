"""What goes wrong in a run: how likely each fault is, drawn from the seed, and a count of every fault that happened.

Each seed switches every kind on or off by itself, so that some runs are quiet and some are full of one kind. When the
faults stop, `calm` takes their place.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, fields
from random import Random

from ops.broker.faults import FaultPlan, FaultyHand

TIMED = ("crash", "stop", "pause", "line_lost", "amnesia", "board_outage", "broker_outage", "garbage")
"""Faults that come at a time, not with a call."""

_NO_FAULTS = FaultPlan()


@dataclass(frozen=True)
class Profile:
    """Probabilities for each call of a port, and how many timed faults of each kind there are."""

    slow: float = 0.0
    """A call takes up to half a second."""
    stall: float = 0.0
    """A call takes up to 8 seconds: longer than a lease."""
    resent: float = 0.0
    """The answer of the board is lost; its client sends the call again, with the same operation id."""
    unanswered: float = 0.0
    """The call took effect and the caller gets `Unavailable`."""
    unsent: float = 0.0
    """The call did not arrive and the caller gets `Unavailable`."""
    belated: float = 0.0
    """The caller gets `Unavailable`, and the call takes effect up to 3 seconds later."""
    crash: float = 0.0
    """The process dies at this point."""
    broker: FaultPlan = _NO_FAULTS
    delivery_limit: int = 20
    timed: tuple[tuple[str, int], ...] = ()


CALM = Profile()


def profile_of(random: Random) -> Profile:
    """Draw a profile."""

    def maybe(highest: float) -> float:
        return random.uniform(highest / 10, highest) if random.random() < 0.5 else 0.0

    if random.random() < 0.05:
        return CALM
    return Profile(
        slow=maybe(0.2),
        stall=maybe(0.01),
        resent=maybe(0.05),
        unanswered=maybe(0.02),
        unsent=maybe(0.02),
        belated=maybe(0.02),
        crash=maybe(0.01),
        broker=FaultPlan(
            duplicate=maybe(0.2),
            lose=maybe(0.1),
            delay=maybe(0.2),
            reorder=maybe(0.3),
            redeliver=maybe(0.3),
            unknown=maybe(0.1),
            longest_delay_seconds=random.choice((1.0, 8.0)),
        ),
        delivery_limit=random.choice((1, 3, 20)),
        timed=tuple((kind, random.choice((0, 0, 1, 2))) for kind in TIMED),
    )


class _Named(float):
    """A probability that knows whose it is."""

    name: str


class CountingHand(FaultyHand):
    """The hand of a broker, whose faults are counted as `broker_<kind>`."""

    def __init__(self, plan: FaultPlan, random: Random, happened: Counter[str]) -> None:
        super().__init__(plan, random)
        self._happened = happened
        self.follow(plan)

    def follow(self, plan: FaultPlan) -> None:
        """Follow another plan from now on."""
        named: dict[str, float] = {}
        for each in fields(FaultPlan):
            value = _Named(getattr(plan, each.name))
            value.name = each.name
            named[each.name] = value
        self.plan = FaultPlan(**named)

    def happens(self, probability: float) -> bool:
        """Whether a fault of this probability happens now."""
        happens = super().happens(probability)
        if happens and isinstance(probability, _Named):
            self._happened[f"broker_{probability.name}"] += 1
        return happens
