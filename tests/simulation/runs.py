"""One run from a seed to its verdict."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import structlog
from structlog.typing import EventDict

from tests.simulation import clock, invariants
from tests.simulation.worlds import Wanted, World, seed_everything


@dataclass(frozen=True)
class Run:
    """What came of one seed."""

    seed: int
    violations: tuple[str, ...]
    happened: Counter[str]
    passed: Counter[str]
    crashed_at: Counter[str]
    lines: tuple[tuple[float, str, str, str, str], ...]
    seconds: float
    """Virtual."""

    def told(self, limit: int = 60) -> str:
        """What was broken, and the last lines of what had happened."""
        shown = [f"{at:9.3f}  {who:16} {request:8} {what}  {detail}" for at, who, what, request, detail in self.lines[-limit:]]
        return "\n".join((f"seed {self.seed}:", *self.violations, "", *shown))


def simulate(seed: int, wanted: Wanted | None = None) -> Run:
    """Run one seed to its end and check it. The same seed gives the same run."""
    wanted = wanted or Wanted()
    worlds: list[World] = []

    async def main(loop: clock.VirtualLoop) -> None:
        worlds.append(World(seed, loop, wanted))
        await worlds[0].run()

    undo = seed_everything(seed)
    try:
        with _listening(worlds):
            clock.run(main)
    finally:
        undo()
    world = worlds[0]
    violations = invariants.check(world)
    return Run(seed, tuple(violations), world.happened, world.passed, world.crashed_at, tuple(world.lines), world.loop.time())


@contextmanager
def _listening(worlds: list[World]) -> Iterator[None]:
    """Log nothing, keep warnings in the trace; a handler that raised anything but `Unavailable` is a fault of ours."""

    def keep(_: object, __: str, told: EventDict) -> EventDict:
        if worlds:
            what = str(told.pop("event"))
            told.pop("exc_info", None)
            worlds[0].trace(None, what, detail=str(told))
            if what in ("handler_failed", "handler_failed_after_settling", "request_set_back"):
                worlds[0].ledger.broken(15, f"{what}: {told.get('queue')}: {told.get('error') or told.get('reason')}")
        raise structlog.DropEvent

    before = structlog.get_config()
    wrapper = structlog.make_filtering_bound_logger(logging.WARNING)
    structlog.configure(processors=[keep], wrapper_class=wrapper, cache_logger_on_first_use=False)
    try:
        yield
    finally:
        structlog.configure(**before)
