"""How many deliveries a consumer may still take: pure arithmetic over what it has, what it may have and what it asked for.

In AMQP a consumer's prefetch is fixed when it begins. A smaller one means cancelling it and consuming anew, while what is
in hand stays to be settled; a larger one means a further consumer beside it. Called by the RabbitMQ consumer.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Adjustment:
    """What to do next: cancel what is consumed now, or take up further credit."""

    cancel: bool = False
    add: int = 0


def adjustment(*, prefetch: int, granted: int, retired: int) -> Adjustment:
    """Return the next step towards at most `prefetch` unsettled deliveries.

    `granted` is the credit of the running consumption, `retired` the deliveries in hand from consumptions that were
    cancelled: they count, and their places come back one by one as they are settled.
    """
    wanted = max(0, prefetch - retired)
    if granted > wanted:
        return Adjustment(cancel=True)
    return Adjustment(add=wanted - granted)
