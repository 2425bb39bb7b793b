"""What every contender shares: what it declares of itself, and the payload that its steps hand on.

A payload is a dictionary: `id` (number of the request), `t0` (when it was submitted) and `ts` (when each step ran), all in
seconds of one clock. The steps stamp it themselves, so that a client which looks in order does not hide who was done first.
It imports no library, because worker processes of all contenders import it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ops.bench.figures import Figures
    from ops.bench.loads import Load

Payload = dict[str, Any]

RABBITMQ_URL = os.environ.get("BRIEFLINE_RABBITMQ_URL", "")
REDIS_URL = os.environ.get("BRIEFLINE_REDIS_URL", "")


@dataclass(frozen=True)
class Peer:
    """One contender: how its processes are started, how one knows that they all serve, and how it is driven.

    Commands begin with a program of the environment that the bench itself runs in. `drive` puts the load on one case.
    """

    drive: Callable[[str, Load], Figures]
    workers: Sequence[Sequence[str]] = ()
    orchestrators: Sequence[Sequence[str]] = ()
    consumers: Mapping[str, int] = field(default_factory=dict)
    """Queue -> how many consumers it has once every process serves."""


def payload(number: int) -> Payload:
    """A request as it is submitted now."""
    return {"id": number, "t0": time.time(), "ts": []}


def stamped(given: Payload) -> Payload:
    """The no-op step: the same payload, with the time at which it ran."""
    return {**given, "ts": [*given["ts"], time.time()]}


def joined(branches: Sequence[Payload]) -> Payload:
    """The no-op step that waits for several: the first branch, stamped."""
    return stamped(branches[0])
