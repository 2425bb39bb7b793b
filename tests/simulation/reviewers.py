"""The person at the desk: withdraws what was said, decides what waits, and changes the rules; now and then twice, or what does not fit."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from random import Random
from typing import TYPE_CHECKING

from ops.client import Client
from schemas.errors import NotFound, Unavailable
from schemas.requests import StepState, request_id
from tests.simulation.ports import SimulatedBoard, SimulatedBroker
from tests.simulation.processes import Life
from tests.simulation.users import both, command

if TYPE_CHECKING:
    from tests.simulation.worlds import World


class Reviewer:
    """Retracts, decides, and sets rules."""

    def __init__(self, world: World, random: Random, keys: list[str]) -> None:
        self._world = world
        self._requests = [request_id("default", key) for key in keys]
        self._looks = random.randint(2, 9)

    @property
    def done(self) -> bool:
        """Whether it wants nothing more."""
        return self._looks <= 0

    async def live(self, life: Life) -> None:
        """Wait for a while or for the end of a request, act, and so on."""
        client = Client(SimulatedBoard(life), SimulatedBroker(life), name=life.name)
        while not self.done:
            request = life.random.choice(self._requests)
            with suppress(Unavailable):
                await self._wait(client, request, life)
                await self._act(client, request, life)
            self._looks -= 1

    async def _wait(self, client: Client, request: str, life: Life) -> None:
        if life.random.random() < 0.6:
            await asyncio.sleep(life.random.uniform(0.2, 8))
            return
        with suppress(TimeoutError, NotFound):
            async with asyncio.timeout(30):
                await client.wait(request)

    async def _act(self, client: Client, request: str, life: Life) -> None:
        kind = life.random.choice(("retract", "retract", "retract", "decide", "decide", "rules"))
        if kind == "retract":
            await self._retract(client, request, life)
        elif kind == "decide":
            await self._decide(client, life)
        else:
            await self._rules(client, request, life)

    async def _retract(self, client: Client, request: str, life: Life) -> None:
        state = self._world.state(request)
        said = sorted(step for step, record in state.steps.items() if record.state is StepState.COMPLETED and step in state.results)
        wrong = life.random.random() < 0.1
        if wrong:
            said = sorted(state.steps)
        if not said:
            return
        step, key = life.random.choice(said), life.random.choice(("out", "out", "tone", "guess" if wrong else "tone"))
        recheck = life.random.random() < 0.6
        await self._send(life, f"retract {step}.{key}", request, lambda: client.retract(request, f"{step}.{key}", "wrong", recheck=recheck))

    async def _decide(self, client: Client, life: Life) -> None:
        items = await client.desk()
        if not items:
            return
        request, item = life.random.choice(items)
        choice = life.random.choice(item.choices if life.random.random() < 0.95 else ("whatever",))
        self._world.happened[f"desk_{item.asks}"] += 1
        await self._send(life, f"decide {item.id} {choice}", request, lambda: client.decide(request, item.id, choice, "looked at it"))

    async def _rules(self, client: Client, request: str, life: Life) -> None:
        with suppress(NotFound):
            rules = (await client.rules(request)).model_copy(
                update={
                    "propose_confidence": life.random.choice((0.3, 0.5, 0.9)),
                    "commit_confidence": life.random.choice((0.3, 0.8, 1.0)),
                    "on_rules_change": life.random.choice(("keep", "regate", "stop")),
                    "named": f"rules-{life.random.randrange(100)}",
                }
            )
            await self._send(life, f"rules {rules.version}", request, lambda: client.set_rules(request, rules))

    async def _send(self, life: Life, what: str, request: str, call: Callable[[], Awaitable[object]]) -> None:
        if life.random.random() < 0.2:  # two people at once
            await command(self._world, life, what, request, lambda: both(call(), call()))
        else:
            await command(self._world, life, what, request, call)
