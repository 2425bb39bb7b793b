"""The user who takes requests up from their middle: while they run, when they are over, and forks of forks."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING

from ops.client import Client
from schemas.errors import NotFound, Unavailable
from schemas.requests import request_id
from tests.simulation.ledger import Told
from tests.simulation.ports import SimulatedBoard, SimulatedBroker
from tests.simulation.processes import Life

if TYPE_CHECKING:
    from tests.simulation.worlds import World


@dataclass
class _Wish:
    """One fork that is wanted: of which request and at which step is drawn when its time comes, and kept until it is done."""

    key: str
    after_seconds: float
    source: str = ""
    at: str = ""


class Forker:
    """Forks."""

    def __init__(self, world: World, random: Random, keys: list[str]) -> None:
        self._world = world
        self._known = [request_id("default", key) for key in keys]
        count = random.randint(1, 3)
        self._wishes = [_Wish(f"fork-{world.seed}-{number}", random.uniform(0.5, 30)) for number in range(count)]

    @property
    def done(self) -> bool:
        """Whether it wants nothing more."""
        return not self._wishes

    async def live(self, life: Life) -> None:
        """Fork one after the other, and again under the same key where no answer came."""
        client = Client(SimulatedBoard(life), SimulatedBroker(life), name=life.name)
        while self._wishes:
            wish = self._wishes[0]
            if not wish.source:
                await asyncio.sleep(wish.after_seconds)
                wish.source, wish.at = self._drawn(life.random)
            if not wish.source or await self._fork(client, wish):
                self._wishes.pop(0)
            else:
                await asyncio.sleep(life.random.uniform(0.2, 3))

    def _drawn(self, random: Random) -> tuple[str, str]:
        """A request that is there, and one of its steps; nothing where there is none."""
        there = [(request, sorted(state.steps)) for request in self._known if (state := self._world.state(request)).steps]
        if not there:
            return "", ""
        source, steps = random.choice(there)
        return source, random.choice(steps)

    async def _fork(self, client: Client, wish: _Wish) -> bool:
        told = Told("fork", request_id("default", wish.key), "", f"{wish.source} at {wish.at}")
        before = self._world.state(wish.source).status
        running = before is not None and not before.status.over
        try:
            made = await client.fork(wish.source, wish.at, idempotency_key=wish.key)
            told.outcome = "new" if made.new else "known"
            self._known.append(made.request_id)
            self._world.happened["forked_while_it_ran" if running else "forked_when_it_was_over"] += made.new
        except Unavailable as error:
            told.outcome, told.detail = "unknown", str(error)
        except NotFound as error:
            told.outcome, told.detail = "refused", str(error)
            if not self._world.set_back:
                self._world.ledger.broken(1, f"a fork of {wish.source} at {wish.at} was refused: {error}")
        self._world.happened[f"told_fork_{told.outcome}"] += 1
        self._world.ledger.told.append(told)
        return told.outcome != "unknown"
