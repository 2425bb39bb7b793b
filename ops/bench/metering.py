"""Metering: what all processes of one contender took, between two moments."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ops.bench.processes import cpu_seconds, machine_cpu_seconds, peak_rss_mib, tree


@dataclass
class Meter:
    """Share -> the processes that it counts, descendants included; the client is this process, without its descendants."""

    shares: Mapping[str, Sequence[int]]
    _cpu: dict[str, float] = field(default_factory=dict)
    _machine: float = 0.0
    _began: float = 0.0

    def start(self) -> None:
        """Count from now on."""
        self._cpu, self._machine, self._began = self._taken(), machine_cpu_seconds(), time.perf_counter()

    def stop(self) -> tuple[dict[str, float], float]:
        """Return CPU seconds by share since `start`, and how many cores everything else on the machine took meanwhile."""
        seconds = time.perf_counter() - self._began
        cpu = {share: now - self._cpu[share] for share, now in self._taken().items()}
        foreign = (machine_cpu_seconds() - self._machine - sum(cpu.values())) / seconds
        return cpu, max(0.0, foreign)

    def worker_rss_mib(self) -> float:
        """The most that one worker process has held."""
        return max(map(peak_rss_mib, tree(self.shares.get("workers", ()))), default=0.0)

    def all_rss_mib(self) -> float:
        """The most that client, orchestrator and workers have held, each at its own time."""
        ours = tree([*self.shares.get("workers", ()), *self.shares.get("orchestrator", ())])
        return sum(map(peak_rss_mib, [os.getpid(), *ours]))

    def _taken(self) -> dict[str, float]:
        return {"client": time.process_time(), **{share: cpu_seconds(tree(pids)) for share, pids in self.shares.items()}}
