"""Counting: both ports as they are, with a count of what goes through them: calls and bytes to and from the board, messages
and their bytes. Counts are the same on a busy machine as on a quiet one, so growth is held by them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field

from schemas.blackboard import Blackboard, DeadEntry, Due, Event, Outcome, Snapshot, Write
from schemas.broker import Address, Broker, Consumer, Handler
from schemas.messages import AgentMessage, to_wire


@dataclass
class Counts:
    """What has gone through since the start, or the difference of two such."""

    calls: Counter[str] = field(default_factory=Counter)
    """Port call -> how often; looks of the sweeper (`due`) go by time and not by request, and are not among them."""
    asked: int = 0
    """Fields that reads and writes asked to be returned."""
    returned: int = 0
    """Bytes of the values that they returned."""
    written: int = 0
    """Bytes of the values that were written."""
    messages: int = 0
    message_bytes: int = 0
    looks: int = 0

    def a(self, unit: int) -> dict[str, float]:
        """Everything, as so much for each of `unit` requests or steps."""
        return {
            "board calls": sum(self.calls.values()) / unit,
            "fields asked": self.asked / unit,
            "bytes returned": self.returned / unit,
            "bytes written": self.written / unit,
            "messages": self.messages / unit,
            "message bytes": self.message_bytes / unit,
        }


class CountedBoard:
    """The port `schemas.blackboard.Blackboard` around another one."""

    def __init__(self, inner: Blackboard, counts: Counts) -> None:
        self.inner = inner
        self._counts = counts

    async def read(self, request_id: str, fields: Sequence[str]) -> Snapshot:
        """See the port."""
        snapshot = await self.inner.read(request_id, fields)
        self._took("read", fields, snapshot)
        return snapshot

    async def write(self, request_id: str, write: Write) -> Outcome:
        """See the port."""
        outcome = await self.inner.write(request_id, write)
        self._counts.written += sum(len(name) + len(value) for name, value in write.put.items())
        self._counts.written += sum(len(name) + len(text) for name, text in write.labels.items())
        self._took("write", write.returning, outcome.returned)
        return outcome

    def _took(self, call: str, fields: Iterable[str], snapshot: Snapshot) -> None:
        self._counts.calls[call] += 1
        self._counts.asked += sum(1 for _ in fields)
        self._counts.returned += sum(len(stored.value) for stored in snapshot.fields.values())

    async def renew(self, request_id: str, step_id: str, version: str, milliseconds: int) -> bool:
        """See the port."""
        self._counts.calls["renew"] += 1
        return await self.inner.renew(request_id, step_id, version, milliseconds)

    async def events(self, request_id: str, after: int = 0) -> list[Event]:
        """See the port."""
        self._counts.calls["events"] += 1
        found = await self.inner.events(request_id, after)
        self._counts.returned += sum(len(value) for event in found for _, value in event.put.values())
        return found

    def watch(self, request_id: str, after: int = 0) -> AsyncGenerator[Event, None]:
        """See the port."""
        self._counts.calls["watch"] += 1
        return self.inner.watch(request_id, after)

    def watch_field(
        self, request_id: str, name: str, *, also: Sequence[str] = (), look_seconds: float = 10.0
    ) -> AsyncGenerator[Snapshot, None]:
        """See the port."""
        self._counts.calls["watch_field"] += 1
        return self.inner.watch_field(request_id, name, also=also, look_seconds=look_seconds)

    async def enter(self, member: str, delay_ms: int) -> None:
        """See the port."""
        self._counts.calls["enter"] += 1
        await self.inner.enter(member, delay_ms)

    async def mark(self, member: str, delay_ms: int) -> None:
        """See the port."""
        self._counts.calls["mark"] += 1
        await self.inner.mark(member, delay_ms)

    async def leave(self, member: str) -> None:
        """See the port."""
        self._counts.calls["leave"] += 1
        await self.inner.leave(member)

    async def due(self, limit: int, forward_ms: int) -> list[Due]:
        """See the port."""
        self._counts.looks += 1
        return await self.inner.due(limit, forward_ms)

    async def settle(self, due: Due, delay_ms: int | None) -> None:
        """See the port."""
        self._counts.calls["settle"] += 1
        await self.inner.settle(due, delay_ms)

    async def dead_add(self, entry: DeadEntry) -> None:
        """See the port."""
        self._counts.calls["dead_add"] += 1
        await self.inner.dead_add(entry)

    async def dead_list(self, limit: int = 1000) -> list[DeadEntry]:
        """See the port."""
        self._counts.calls["dead_list"] += 1
        return await self.inner.dead_list(limit)

    async def dead_remove(self, entry: DeadEntry) -> None:
        """See the port."""
        self._counts.calls["dead_remove"] += 1
        await self.inner.dead_remove(entry)

    async def recent_add(self, tenant: str, request_id: str) -> None:
        """See the port."""
        self._counts.calls["recent_add"] += 1
        await self.inner.recent_add(tenant, request_id)

    async def recent(self, tenant: str, limit: int = 100) -> list[str]:
        """See the port."""
        self._counts.calls["recent"] += 1
        return await self.inner.recent(tenant, limit)


class CountedBroker:
    """The port `schemas.broker.Broker` around another one."""

    def __init__(self, inner: Broker, counts: Counts) -> None:
        self.inner = inner
        self._counts = counts

    async def publish(self, address: Address, bell: AgentMessage, *, confirm: bool = True) -> None:
        """See the port."""
        self._counts.messages += 1
        self._counts.message_bytes += len(to_wire(bell))
        await self.inner.publish(address, bell, confirm=confirm)

    @property
    def may_ring_tasks(self) -> bool:
        """See the port."""
        return self.inner.may_ring_tasks

    async def declare_agent(self, agent: str) -> int:
        """See the port."""
        return await self.inner.declare_agent(agent)

    def consume(self, queue: str, handler: Handler, *, prefetch: int) -> AbstractAsyncContextManager[Consumer]:
        """See the port."""
        return self.inner.consume(queue, handler, prefetch=prefetch)
