"""Places: how many steps of one agent a worker runs at a time, and the credit that its queue has at the broker for it."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from schemas.broker import Consumer
from workers.agents.agent import Agent


class Places:
    """One agent's places: one for each step that runs, whichever way it came here.

    The broker knows of tasks that it has handed out and that are not acked. Its credit shrinks by each that was acked while
    it still runs; it does not by those that the worker goes on with by itself, so that a task may wait for a place here, for as
    long as a quick step takes.
    """

    def __init__(self, agent: Agent, concurrency: int, quick_seconds: float) -> None:
        self.agent = agent
        self.consumer: Consumer | None = None
        self._concurrency = concurrency
        self._free = asyncio.Semaphore(concurrency)
        self._lent = 0
        self._changing = asyncio.Lock()
        self._quick_seconds = quick_seconds
        self._usual_seconds = math.inf

    @asynccontextmanager
    async def taken(self) -> AsyncIterator[None]:
        """Wait for a place, and have it until the block is left."""
        async with self._free:
            yield

    def took(self, seconds: float) -> None:
        """Note how long a step has taken: what an agent takes usually is what it took lately."""
        known = self._usual_seconds < math.inf
        self._usual_seconds = (self._usual_seconds + seconds) / 2 if known else seconds

    def begins(self, *, leaving: Places) -> bool:
        """Whether a further step may be begun here without asking the broker: there is a place, or one is left, and the agent is quick."""
        return self._usual_seconds <= self._quick_seconds and (leaving is self or not self._free.locked())

    async def lend(self, credits: int) -> None:
        """Take so much less of the broker at a time, or (below zero) so much more again."""
        async with self._changing:
            self._lent += credits
            if self.consumer is not None:
                await self.consumer.resize(self._concurrency - self._lent)
