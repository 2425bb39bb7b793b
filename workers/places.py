"""Places: how many steps of one agent a worker runs at a time, and the credit that its queue has at the broker for it."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterator
from contextlib import contextmanager

from schemas.broker import Consumer
from workers.agents.agent import Agent


class Places:
    """One agent's places: one for each step that runs, whichever way it came here.

    The broker knows of tasks that it has handed out and that are not acked. Its credit shrinks by each that was acked while
    it still runs. Of guests, steps that the worker went on with by itself, it does not know: while one is here, a task may have to
    wait for a place, for as long as a quick step takes.
    """

    def __init__(self, agent: Agent, concurrency: int, quick_seconds: float) -> None:
        self.agent = agent
        self.consumer: Consumer | None = None
        self._concurrency = concurrency
        self._taken = 0
        self._guests = 0
        self._left = asyncio.Event()
        self._lent = 0
        self._changing = asyncio.Lock()
        self._quick_seconds = quick_seconds
        self._usual_seconds = math.inf

    async def room(self) -> None:
        """Return once there is a place, where guests have the last ones."""
        while self._guests and self._taken >= self._concurrency:
            self._left.clear()
            await self._left.wait()

    @contextmanager
    def taken(self, *, guest: bool) -> Iterator[None]:
        """Have a place until the block is left. Come in as soon as there is `room`."""
        self._taken += 1
        self._guests += guest
        try:
            yield
        finally:
            self._taken -= 1
            self._guests -= guest
            self._left.set()

    def took(self, seconds: float) -> None:
        """Note how long a step has taken: what an agent takes usually is what it took lately."""
        known = self._usual_seconds < math.inf
        self._usual_seconds = (self._usual_seconds + seconds) / 2 if known else seconds

    def begins(self, *, leaving: Places) -> bool:
        """Whether a further step may be begun here without asking the broker: there is a place, or one is left, and the agent is quick."""
        return self._usual_seconds <= self._quick_seconds and self._taken - (leaving is self) < self._concurrency

    async def lend(self, credits: int) -> None:
        """Take so much less of the broker at a time, or (below zero) so much more again."""
        async with self._changing:
            self._lent += credits
            if self.consumer is not None:
                await self.consumer.resize(self._concurrency - self._lent)
