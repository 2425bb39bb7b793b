"""Processes of the simulated system: lives that begin, stand still, stop in order, or end at any await.

A crash is no graceful end: from that moment nothing of the life reaches a server any more, and what it had in hand comes
back once the broker notices. The tasks of a dead life are swept away, but whatever they do on their way out reaches nobody.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from random import Random
from typing import TYPE_CHECKING, TypeVar

from ops.broker.memory import MemoryConsumer
from schemas.messages import AgentMessage

if TYPE_CHECKING:
    from tests.simulation.worlds import World

_T = TypeVar("_T")

LIFE: ContextVar[Life] = ContextVar("life")
"""Whose code is running."""
TASK: ContextVar[AgentMessage] = ContextVar("task")
"""The message that is being handled."""
HANDLING: ContextVar[int] = ContextVar("handling")
"""Which call of a handler this is: a message that comes twice is handled twice."""


class Died(BaseException):
    """The process is dead: nothing after this line happens."""


class Life:
    """One life of one process. Every way to the outside passes `at` and `travel`."""

    def __init__(self, world: World, process: str, number: int) -> None:
        self.world = world
        self.process = process
        self.kind = process.partition("-")[0]
        self.name = f"{process}.{number}"
        self.random = Random(f"{world.seed}/{self.name}")
        self.dead = False
        self.paused_until = 0.0
        self.stop = asyncio.Event()
        self.consumers: list[MemoryConsumer] = []
        self.task: asyncio.Task[None] | None = None

    @property
    def now(self) -> float:
        """The loop's time in seconds."""
        return self.world.loop.time()

    async def at(self, point: str) -> None:
        """Pass a point where the process may die, or stand still for a while.

        Raises:
            Died: it died here, or before.
        """
        if self.dead:
            raise Died
        self.world.passes(self, point)
        await self.awake()

    async def awake(self) -> None:
        """Wait while the process stands still."""
        while self.paused_until > self.now:  # noqa: ASYNC110 - a pause may be made longer meanwhile
            await asyncio.sleep(self.paused_until - self.now)
        if self.dead:
            raise Died

    async def travel(self, effect: Callable[[], Awaitable[object]] | None = None) -> None:
        """Be on the way to a server or back. If the caller goes away meanwhile, `effect` may take place all the same."""
        profile = self.world.profile
        seconds = self.random.uniform(0.0002, 0.003)
        if profile.slow and self.random.random() < profile.slow:
            self.world.happened["slow"] += 1
            seconds = self.random.uniform(0.003, 0.5)
        if profile.stall and self.random.random() < profile.stall:
            self.world.happened["stall"] += 1
            seconds = self.random.uniform(0.5, 8.0)
        try:
            await asyncio.sleep(seconds)
        except asyncio.CancelledError:
            if effect is not None and self.random.random() < 0.5:
                self.world.happened["sent_by_a_caller_that_is_gone"] += 1
                self.world.later(effect, self.random.uniform(0, 0.05))
            raise
        if self.dead:
            raise Died
