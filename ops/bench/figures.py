"""Figures: what one contender came to in one case of one round, and the plain statistics over several. Pure."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

SHARES = ("client", "orchestrator", "workers", "broker", "redis")
"""Where CPU is spent: the client's process, ours that decides, those that run the steps, RabbitMQ, Redis."""


@dataclass(frozen=True)
class Figures:
    """One contender, one case, one round. CPU, rate and the loaded times are of the full load; the single ones of one at a time."""

    requests: int
    seconds: float
    single_p50_ms: float
    single_p99_ms: float
    loaded_p50_ms: float
    loaded_p99_ms: float
    cpu_seconds: dict[str, float] = field(default_factory=dict)
    """Share -> CPU seconds of all requests."""
    worker_rss_mib: float = 0.0
    """The largest that one worker process has been; 0 where the client's process does it all."""
    all_rss_mib: float = 0.0
    """Client, orchestrator and workers together, each at its largest."""
    foreign_cores: float = 0.0
    """CPU seconds a second that other processes of the machine took meanwhile."""

    @property
    def requests_per_second(self) -> float:
        """How many requests a second were answered under full load."""
        return self.requests / self.seconds

    @property
    def cpu_ms_per_request(self) -> float:
        """CPU of all processes together, in milliseconds a request."""
        return 1000 * sum(self.cpu_seconds.values()) / self.requests

    def share_ms(self, share: str) -> float:
        """CPU of one share, in milliseconds a request."""
        return 1000 * self.cpu_seconds.get(share, 0.0) / self.requests

    def as_json(self) -> dict[str, Any]:
        """All of it as a JSON object, with what is derived."""
        return {**asdict(self), "requests_per_second": self.requests_per_second, "cpu_ms_per_request": self.cpu_ms_per_request}


def figures_of(given: dict[str, Any]) -> Figures:
    """Read back what `as_json` gave."""
    derived = ("requests_per_second", "cpu_ms_per_request")
    return Figures(**{name: value for name, value in given.items() if name not in derived})


def percentile(values: Iterable[float], percent: float) -> float:
    """The smallest value that at least `percent` of all do not exceed (nearest rank).

    Raises:
        ValueError: there are no values.
    """
    ordered = sorted(values)
    if not ordered:
        raise ValueError("no values")
    return ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)]


def median_of(rounds: Sequence[Figures], what: Callable[[Figures], float]) -> float:
    """The median of one figure over the rounds."""
    return statistics.median(what(each) for each in rounds)


def ratios(ours: Sequence[Figures], theirs: Sequence[Figures], what: Callable[[Figures], float]) -> list[float]:
    """One figure of ours over theirs, round by round: both stood under the same foreign load then."""
    return [what(mine) / what(other) for mine, other in zip(ours, theirs, strict=True)]
