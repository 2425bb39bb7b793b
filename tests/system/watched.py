"""A broker that is watched, and that loses or doubles what a test tells it to; a board whose leases cannot be prolonged.

Everything else is the real one's.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, TypeAlias

from schemas.blackboard import Blackboard
from schemas.broker import Address, Broker, Consumer, Delivery, Handler
from schemas.errors import Unavailable
from schemas.messages import AgentMessage

Fault: TypeAlias = Callable[[Address, AgentMessage], int]
"""How many copies of a message are handed in: 0 loses it, 1 is right, 2 doubles it."""

OnAck: TypeAlias = Callable[[AgentMessage], Awaitable[None]]


def once(address: Address, bell: AgentMessage) -> int:
    """No fault."""
    return 1


class WatchedDelivery:
    """A delivery whose ack is told of, just before it happens."""

    def __init__(self, inner: Delivery, on_ack: OnAck) -> None:
        self._inner = inner
        self._on_ack = on_ack

    @property
    def message(self) -> AgentMessage:
        return self._inner.message

    @property
    def redelivered(self) -> bool:
        return self._inner.redelivered

    async def ack(self) -> None:
        await self._on_ack(self.message)
        await self._inner.ack()

    async def nack(self, delay_seconds: float = 0.0) -> None:
        await self._inner.nack(delay_seconds)

    async def park(self, reason: str) -> None:
        await self._inner.park(reason)


class WatchedBroker:
    """The port `schemas.broker.Broker` around another one."""

    def __init__(self, inner: Broker) -> None:
        self.inner = inner
        self.fault: Fault = once
        self.on_ack: OnAck | None = None
        self.published: list[tuple[Address, AgentMessage]] = []
        self.handled: Counter[str] = Counter()
        """Message id -> how often a handler has returned from it."""
        self.queues: set[str] = set()
        self._changed = asyncio.Condition()

    async def publish(self, address: Address, bell: AgentMessage, *, confirm: bool = True) -> None:
        self.published.append((address, bell))
        async with self._changed:
            self._changed.notify_all()
        for _ in range(self.fault(address, bell)):
            await self.inner.publish(address, bell, confirm=confirm)

    def consume(self, queue: str, handler: Handler, *, prefetch: int) -> AbstractAsyncContextManager[Consumer]:
        self.queues.add(queue)

        async def watching(delivery: Delivery) -> None:
            await handler(WatchedDelivery(delivery, self.on_ack) if self.on_ack is not None else delivery)
            async with self._changed:
                self.handled[delivery.message.id] += 1
                self._changed.notify_all()

        return self.inner.consume(queue, watching, prefetch=prefetch)

    @property
    def may_ring_tasks(self) -> bool:
        return self.inner.may_ring_tasks

    async def declare_agent(self, agent: str) -> int:
        self.queues |= {f"tasks.{agent}", f"dead.{agent}"}
        return await self.inner.declare_agent(agent)

    async def was_handled(self, bell: AgentMessage, times: int = 1) -> None:
        """Return once a handler has returned from the message so often."""
        async with self._changed:
            await self._changed.wait_for(lambda: self.handled[bell.id] >= times)

    async def was_published(self, fits: Callable[[AgentMessage], bool], times: int = 1) -> AgentMessage:
        """Return the `times`-th message that fits, once it was handed in."""

        def found() -> list[AgentMessage]:
            return [bell for _, bell in self.published if fits(bell)]

        async with self._changed:
            await self._changed.wait_for(lambda: len(found()) >= times)
        return found()[times - 1]


class CutLine:
    """A board over which, while it is `cut`, no lease can be prolonged: the worker behind it looks dead to the others."""

    def __init__(self, inner: Blackboard) -> None:
        self._inner = inner
        self.cut = False
        self.marked = asyncio.Event()
        """Set once a lease was prolonged, so that the step is looked at when it ends."""

    async def renew(self, request_id: str, step_id: str, version: str, milliseconds: int) -> bool:
        self._refuse()
        return await self._inner.renew(request_id, step_id, version, milliseconds)

    async def mark(self, member: str, delay_ms: int) -> None:
        self._refuse()
        await self._inner.mark(member, delay_ms)
        self.marked.set()

    def _refuse(self) -> None:
        if self.cut:
            raise Unavailable("the line is cut")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)
