"""Crash points: a process that dies at a named step, to show that nothing is lost where it does.

Both ports are wrapped, so the code that is tried holds no hooks: every durable call passes one point before it and one
after it, named `<role>:<call>:<what>:<side>`, such as `worker:write:step_completed:after`. With `BRIEFLINE_CRASH_AT` set
to such a name (and, behind one more colon, at which passing), the process ends there by `os._exit(70)`: no finally runs,
no line is closed. `BRIEFLINE_CRASH_RECORD` names a file that receives every point as it is passed. Installed by the wiring
where one of the two is set, and never otherwise.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager

from schemas.blackboard import Blackboard, DeadEntry, Due, Event, Outcome, Snapshot, Write, Written
from schemas.broker import Address, Broker, Consumer, Delivery, Exchange, Handler
from schemas.errors import InvalidSettings
from schemas.messages import AgentMessage

CRASH_AT = "BRIEFLINE_CRASH_AT"
CRASH_RECORD = "BRIEFLINE_CRASH_RECORD"
EXIT_CODE = 70
BEFORE, AFTER = "before", "after"

_ON_THE_WIRE_SECONDS = 0.05
"""An acknowledgement leaves in a window: a process that is to die after one lets it leave first."""
_ENDS_OF_A_HOLD = ("step_completed", "step_failed", "step_to_be_retried", "step_handed_back", "late_result_refused")


class CrashPoints:
    """The points of one process.

    `crash_at` is a point's name, alone or with the number of the passing at which the process dies; empty means nowhere.

    Raises:
        InvalidSettings: `crash_at` is no name of a point.
    """

    def __init__(self, role: str, crash_at: str = "", record: str = "") -> None:
        self._role = role
        self._record = record
        parts = crash_at.split(":")
        self._left = int(parts.pop()) if len(parts) == 5 and parts[-1].isdigit() else 1
        if crash_at and (len(parts) != 4 or parts[3] not in (BEFORE, AFTER) or self._left < 1):
            raise InvalidSettings(f"{CRASH_AT} is no crash point; example: worker:write:step_completed:after", path=CRASH_AT)
        self._crash_at = ":".join(parts)
        self.holds: set[str] = set()
        """Ids of the messages by which this process has claimed a step whose end it has not written yet."""

    def is_here(self, step: str, side: str) -> bool:
        """Whether the process would die if it passed this point now."""
        return self._left == 1 and self._crash_at == f"{self._role}:{step}:{side}"

    def passed(self, step: str, side: str) -> None:
        """Note that this point is passed; it may be the last that this process does."""
        name = f"{self._role}:{step}:{side}"
        if self._record:
            line = os.open(self._record, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            os.write(line, f"{name}\n".encode())
            os.close(line)
        if name == self._crash_at:
            self._left -= 1
            if not self._left:
                os._exit(EXIT_CODE)

    @asynccontextmanager
    async def around(self, step: str) -> AsyncIterator[None]:
        """Pass the points before and after a durable step; one that raises has no after."""
        self.passed(step, BEFORE)
        yield
        self.passed(step, AFTER)


def crash_points(role: str, environment: Mapping[str, str]) -> CrashPoints | None:
    """Return the points that the environment asks for, or None: then the ports stay as they are."""
    crash_at, record = environment.get(CRASH_AT, ""), environment.get(CRASH_RECORD, "")
    return CrashPoints(role, crash_at, record) if crash_at or record else None


class CrashingBlackboard:
    """A blackboard whose durable calls pass crash points; reading changes nothing and passes none."""

    def __init__(self, board: Blackboard, points: CrashPoints) -> None:
        self._board = board
        self._points = points

    async def read(self, request_id: str, fields: Sequence[str]) -> Snapshot:
        """See the port."""
        return await self._board.read(request_id, fields)

    async def write(self, request_id: str, write: Write) -> Outcome:
        """See the port. A write that is refused changes nothing, so it has no after."""
        event = write.labels.get("event", "unnamed")
        self._points.passed(f"write:{event}", BEFORE)
        outcome = await self._board.write(request_id, write)
        if event == "step_claimed" and isinstance(outcome, Written):
            self._points.holds.add(write.cause)
        elif event in _ENDS_OF_A_HOLD:
            self._points.holds.discard(write.cause)
        if isinstance(outcome, Written):
            self._points.passed(f"write:{event}", AFTER)
        return outcome

    async def renew(self, request_id: str, step_id: str, version: str, milliseconds: int) -> bool:
        """See the port."""
        async with self._points.around("renew:lease"):
            return await self._board.renew(request_id, step_id, version, milliseconds)

    async def events(self, request_id: str, after: int = 0) -> list[Event]:
        """See the port."""
        return await self._board.events(request_id, after)

    def watch_field(
        self, request_id: str, name: str, *, also: Sequence[str] = (), look_seconds: float = 10.0
    ) -> AsyncGenerator[Snapshot, None]:
        """See `Blackboard.watch_field`."""
        return self._board.watch_field(request_id, name, also=also, look_seconds=look_seconds)

    def watch(self, request_id: str, after: int = 0) -> AsyncGenerator[Event, None]:
        """See the port."""
        return self._board.watch(request_id, after)

    async def enter(self, member: str, delay_ms: int) -> None:
        """See the port."""
        async with self._points.around(f"enter:{_kind(member)}"):
            await self._board.enter(member, delay_ms)

    async def mark(self, member: str, delay_ms: int) -> None:
        """See the port."""
        async with self._points.around(f"mark:{_kind(member)}"):
            await self._board.mark(member, delay_ms)

    async def leave(self, member: str) -> None:
        """See the port."""
        async with self._points.around(f"leave:{_kind(member)}"):
            await self._board.leave(member)

    async def due(self, limit: int, forward_ms: int) -> list[Due]:
        """See the port. Where nothing was due nothing has moved, and there is no after."""
        self._points.passed("due:marks", BEFORE)
        found = await self._board.due(limit, forward_ms)
        if found:
            self._points.passed("due:marks", AFTER)
        return found

    async def settle(self, due: Due, delay_ms: int | None) -> None:
        """See the port."""
        async with self._points.around(f"settle:{_kind(due.member)}_{'away' if delay_ms is None else 'later'}"):
            await self._board.settle(due, delay_ms)

    async def dead_add(self, entry: DeadEntry) -> None:
        """See the port."""
        async with self._points.around("dead_add:letter"):
            await self._board.dead_add(entry)

    async def dead_list(self, limit: int = 1000) -> list[DeadEntry]:
        """See the port."""
        return await self._board.dead_list(limit)

    async def dead_remove(self, entry: DeadEntry) -> None:
        """See the port."""
        async with self._points.around("dead_remove:letter"):
            await self._board.dead_remove(entry)

    async def recent_add(self, tenant: str, request_id: str) -> None:
        """See the port."""
        async with self._points.around("recent_add:request"):
            await self._board.recent_add(tenant, request_id)

    async def recent(self, tenant: str, limit: int = 100) -> list[str]:
        """See the port."""
        return await self._board.recent(tenant, limit)


class CrashingBroker:
    """A broker whose publishes, declarations and settlements pass crash points."""

    def __init__(self, broker: Broker, points: CrashPoints) -> None:
        self._broker = broker
        self._points = points

    async def publish(self, address: Address, bell: AgentMessage, *, confirm: bool = True) -> None:
        """See the port."""
        what = "letter" if address.exchange is Exchange.LETTERS else bell.type.lower()
        async with self._points.around(f"publish:{what}"):
            await self._broker.publish(address, bell, confirm=confirm)

    @property
    def may_ring_tasks(self) -> bool:
        """See the port."""
        return self._broker.may_ring_tasks

    async def declare_agent(self, agent: str) -> int:
        """See the port."""
        async with self._points.around("declare:agent"):
            return await self._broker.declare_agent(agent)

    @asynccontextmanager
    async def consume(self, queue: str, handler: Handler, *, prefetch: int) -> AsyncIterator[Consumer]:
        """See the port."""

        async def handle(delivery: Delivery) -> None:
            await handler(CrashingDelivery(delivery, self._points))

        async with self._broker.consume(queue, handle, prefetch=prefetch) as consumer:
            yield CrashingConsumer(consumer, self._points)


class CrashingDelivery:
    """A delivery whose settlement passes crash points. The ack of a step that is still being worked on is `task_early`."""

    def __init__(self, delivery: Delivery, points: CrashPoints) -> None:
        self._delivery = delivery
        self._points = points

    @property
    def message(self) -> AgentMessage:
        """The bell."""
        return self._delivery.message

    @property
    def redelivered(self) -> bool:
        """Whether it may have been handed out before."""
        return self._delivery.redelivered

    async def ack(self) -> None:
        """See the port."""
        early = self.message.id in self._points.holds
        step = f"ack:{self.message.type.lower()}{'_early' if early else ''}"
        async with self._points.around(step):
            await self._delivery.ack()
            if self._points.is_here(step, AFTER):
                await asyncio.sleep(_ON_THE_WIRE_SECONDS)

    async def nack(self, delay_seconds: float = 0.0) -> None:
        """See the port."""
        async with self._points.around(f"nack:{self.message.type.lower()}"):
            await self._delivery.nack(delay_seconds)

    async def park(self, reason: str) -> None:
        """See the port."""
        async with self._points.around(f"park:{self.message.type.lower()}"):
            await self._delivery.park(reason)


class CrashingConsumer:
    """A consumption whose changes of credit pass crash points."""

    def __init__(self, consumer: Consumer, points: CrashPoints) -> None:
        self._consumer = consumer
        self._points = points

    @property
    def consuming(self) -> bool:
        """Whether the broker knows this consumer now."""
        return self._consumer.consuming

    async def resize(self, prefetch: int) -> None:
        """See the port."""
        async with self._points.around("resize:credit"):
            await self._consumer.resize(prefetch)

    async def stop(self) -> None:
        """See the port."""
        await self._consumer.stop()


def _kind(member: str) -> str:
    """What a member of the due index stands for."""
    return "step" if "#" in member else "request"
