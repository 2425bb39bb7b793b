"""Places: how many steps of one agent a worker runs at a time, and the credit that its queue has at the broker for it."""

from __future__ import annotations

import asyncio
import math

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

    async def come(self) -> Place:
        """Take a place for a task that the broker handed out, once there is one: guests may have the last."""
        while self._guests and self._taken >= self._concurrency:
            self._left.clear()
            await self._left.wait()
        self._taken += 1
        return Place(self, guest=False)

    def host(self) -> Place | None:
        """Take a place for a guest, where there is one now and the agent is quick."""
        if not self.is_quick or self._taken >= self._concurrency:
            return None
        self._taken += 1
        self._guests += 1
        return Place(self, guest=True)

    def left(self, place: Place) -> None:
        """Note that a place is free again."""
        self._taken -= 1
        self._guests -= place.guest
        self._left.set()

    @property
    def is_quick(self) -> bool:
        """Whether the agent has lately taken no longer than it may where no other worker is asked to do the step."""
        return self._usual_seconds <= self._quick_seconds

    def took(self, seconds: float) -> None:
        """Note how long a step has taken: what an agent takes usually is what it took lately."""
        known = self._usual_seconds < math.inf
        self._usual_seconds = (self._usual_seconds + seconds) / 2 if known else seconds

    async def lend(self, credits: int) -> None:
        """Take so much less of the broker at a time, or (below zero) so much more again."""
        async with self._changing:
            self._lent += credits
            if self.consumer is not None:
                await self.consumer.resize(self._concurrency - self._lent)


class Place:
    """One place that is taken, until it is left."""

    __slots__ = ("guest", "of")

    def __init__(self, of: Places, *, guest: bool) -> None:
        self.of = of
        self.guest = guest

    def leave(self) -> None:
        """Let somebody else have it."""
        self.of.left(self)
