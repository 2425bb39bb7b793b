"""Both ports as one process sees them: with a way to the server and back, on which everything may go wrong.

Behind them stand the board and the broker in memory, which all processes share and no crash touches. Each call passes
the points `<kind>.<call>:before` and `:after` its effect.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import TypeVar

from schemas.blackboard import DeadEntry, Due, Event, Outcome, Snapshot, Write, Written
from schemas.broker import BROKER_DEAD_QUEUE, Address, Consumer, Delivery, Exchange, Handler
from schemas.errors import Unavailable, Undeliverable
from schemas.messages import AgentMessage
from tests.simulation.processes import HANDLING, LIFE, TASK, Died, Life

_T = TypeVar("_T")


class SimulatedBoard:
    """The blackboard's port for one life."""

    def __init__(self, life: Life) -> None:
        self._life = life
        self._board = life.world.board

    async def _call(self, call: str, effect: Callable[[], Awaitable[_T]]) -> _T:
        life, world = self._life, self._life.world
        point = f"{life.kind}.{call}"
        await life.at(f"{point}:before")
        if world.board_away_until > life.now:
            await asyncio.sleep(0.2)
            raise Unavailable("the board is away")
        await life.travel(effect)
        profile, chance = world.profile, life.random.random()
        for fault in ("unsent", "belated", "unanswered", "resent"):
            chance -= getattr(profile, fault)
            if chance < 0:
                break
        else:
            fault = ""
        if fault:
            world.happened[fault] += 1
        if fault == "unsent":
            raise Unavailable("the call did not arrive")
        if fault == "belated":
            world.later(effect, life.random.uniform(0, 3))
            raise Unavailable("no answer in time")
        result = await effect()
        await life.at(f"{point}:after")
        if fault == "unanswered":
            raise Unavailable("the answer was lost")
        if fault == "resent":
            await life.travel(effect)
            result = await effect()
        await life.travel()
        await life.awake()
        return result

    async def read(self, request_id: str, fields: Sequence[str]) -> Snapshot:
        """See the port."""
        return await self._call("read", lambda: self._board.read(request_id, fields))

    async def write(self, request_id: str, write: Write) -> Outcome:
        """See the port."""
        event = write.labels.get("event", "")

        async def take_effect() -> Outcome:
            outcome = await self._board.write(request_id, write)
            self._life.world.ledger.written(request_id, write, outcome)
            return outcome

        outcome = await self._call(f"write.{event}", take_effect)
        if isinstance(outcome, Written) and event == "step_claimed":
            self._life.world.ledger.claimed(HANDLING.get(), write)
        self._life.world.trace(self._life, f"{event}: {type(outcome).__name__}", request_id, str(dict(write.labels)))
        self._life.world.happened[f"outcome_{type(outcome).__name__}"] += 1
        return outcome

    async def renew(self, request_id: str, step_id: str, version: str, milliseconds: int) -> bool:
        """See the port."""

        async def take_effect() -> bool:
            kept = await self._board.renew(request_id, step_id, version, milliseconds)
            if kept:
                self._life.world.ledger.leased(request_id, step_id, version, milliseconds)
            return kept

        return await self._call("renew", take_effect)

    async def events(self, request_id: str, after: int = 0) -> list[Event]:
        """See the port."""
        return await self._call("events", lambda: self._board.events(request_id, after))

    async def watch(self, request_id: str, after: int = 0) -> AsyncGenerator[Event, None]:
        """See the port."""
        await self._life.at(f"{self._life.kind}.watch:before")
        async with aclosing(self._board.watch(request_id, after)) as events:
            async for event in events:
                await self._life.travel()
                yield event

    async def watch_field(
        self, request_id: str, name: str, *, also: Sequence[str] = (), look_seconds: float = 10.0
    ) -> AsyncGenerator[Snapshot, None]:
        """See the port."""
        await self._life.at(f"{self._life.kind}.watch:before")
        async with aclosing(self._board.watch_field(request_id, name, also=also, look_seconds=look_seconds)) as snapshots:
            async for snapshot in snapshots:
                await self._life.travel()
                yield snapshot

    async def enter(self, member: str, delay_ms: int) -> None:
        """See the port."""
        await self._call("enter", lambda: self._board.enter(member, delay_ms))

    async def mark(self, member: str, delay_ms: int) -> None:
        """See the port."""
        await self._call("mark", lambda: self._board.mark(member, delay_ms))

    async def leave(self, member: str) -> None:
        """See the port."""
        await self._call("leave", lambda: self._board.leave(member))

    async def due(self, limit: int, forward_ms: int) -> list[Due]:
        """See the port."""
        return await self._call("due", lambda: self._board.due(limit, forward_ms))

    async def settle(self, due: Due, delay_ms: int | None) -> None:
        """See the port."""
        await self._call("settle", lambda: self._board.settle(due, delay_ms))

    async def dead_add(self, entry: DeadEntry) -> None:
        """See the port."""
        waits = True

        async def add() -> None:
            if not waits:
                self._life.world.ledger.belated_letters.add((entry.request_id, entry.step_id, entry.epoch))
            await self._board.dead_add(entry)

        try:
            await self._call("dead_add", add)
        finally:
            waits = False

    async def dead_list(self, limit: int = 1000) -> list[DeadEntry]:
        """See the port."""
        return await self._call("dead_list", lambda: self._board.dead_list(limit))

    async def dead_remove(self, entry: DeadEntry) -> None:
        """See the port."""
        await self._call("dead_remove", lambda: self._board.dead_remove(entry))

    async def recent_add(self, tenant: str, request_id: str) -> None:
        """See the port."""
        await self._call("recent_add", lambda: self._board.recent_add(tenant, request_id))

    async def recent(self, tenant: str, limit: int = 100) -> list[str]:
        """See the port."""
        return await self._call("recent", lambda: self._board.recent(tenant, limit))


class SimulatedBroker:
    """The broker's port for one life. Duplicates, losses, delays and the like are the broker's own (`FaultPlan`)."""

    def __init__(self, life: Life) -> None:
        self._life = life
        self._broker = life.world.broker

    async def publish(self, address: Address, bell: AgentMessage, *, confirm: bool = True) -> None:
        """See the port."""
        life, world = self._life, self._life.world
        name = "LETTER" if address.exchange is Exchange.LETTERS else bell.type.value
        point = f"{life.kind}.publish.{name}"
        await life.at(f"{point}:before")
        if world.broker_away_until > life.now:
            await asyncio.sleep(0.2)
            raise Unavailable("the broker is away")
        world.ledger.sent(life, address, bell)

        async def arrive() -> None:
            await self._broker.publish(address, bell, confirm=confirm)

        await life.travel(arrive)
        try:
            await arrive()
        except Undeliverable:
            world.happened["undeliverable"] += 1
            raise
        await life.at(f"{point}:after")
        await life.travel()
        await life.awake()
        if confirm:
            world.ledger.confirmed(life, address, bell)
        world.trace(life, f"rang {name}", bell.request_id, f"{bell.step_id} epoch {bell.epoch}")

    @property
    def may_ring_tasks(self) -> bool:
        """See the port."""
        return self._broker.may_ring_tasks

    async def declare_agent(self, agent: str) -> int:
        """See the port."""
        await self._life.at(f"{self._life.kind}.declare_agent:before")
        await self._life.travel()
        return await self._broker.declare_agent(agent)

    @asynccontextmanager
    async def consume(self, queue: str, handler: Handler, *, prefetch: int) -> AsyncIterator[Consumer]:
        """See the port."""
        life = self._life

        async def handle(delivery: Delivery) -> None:
            LIFE.set(life)
            TASK.set(delivery.message)
            HANDLING.set(next(life.world.ledger.handlings))
            await life.awake()
            await handler(SimulatedDelivery(life, delivery, queue))

        async with self._broker.consume(queue, handle, prefetch=prefetch) as consumer:
            life.consumers.append(consumer)  # type: ignore[arg-type]  # the memory broker's own
            yield SimulatedConsumer(life, consumer)


class SimulatedDelivery:
    """A delivery, settled over a line that may break; what is acked is audited at that moment."""

    def __init__(self, life: Life, delivery: Delivery, queue: str) -> None:
        self._life = life
        self._delivery = delivery
        self._queue = queue
        self._handling = HANDLING.get()
        self._seen = life.world.ledger.delivered(life, delivery.message)

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
        point = f"{self._life.kind}.ack.{self.message.type.value}"
        await self._life.at(f"{point}:before")
        await self._life.travel()
        ledger = self._life.world.ledger
        if self._queue == BROKER_DEAD_QUEUE:
            ledger.notice_acked(self._life, self.message)
        else:
            ledger.acked(self._life, self.message, self._seen, self._handling)
        await self._delivery.ack()
        await self._life.at(f"{point}:after")
        await self._life.travel()

    async def nack(self, delay_seconds: float = 0.0) -> None:
        """See the port."""
        await self._life.at(f"{self._life.kind}.nack:before")
        await self._delivery.nack(delay_seconds)

    async def park(self, reason: str) -> None:
        """See the port."""
        await self._life.at(f"{self._life.kind}.park:before")
        self._life.world.ledger.parked(self._life, self.message, reason)
        await self._delivery.park(reason)
        await self._life.at(f"{self._life.kind}.park:after")


class SimulatedConsumer:
    """A consumption whose changes take their time, as over a wire."""

    def __init__(self, life: Life, consumer: Consumer) -> None:
        self._life = life
        self._consumer = consumer

    @property
    def consuming(self) -> bool:
        """Whether messages are handed out."""
        return self._consumer.consuming

    async def resize(self, prefetch: int) -> None:
        """See the port."""
        await self._life.at(f"{self._life.kind}.resize:before")
        await self._life.travel()
        await self._consumer.resize(prefetch)

    async def stop(self) -> None:
        """See the port."""
        await self._consumer.stop()


__all__ = ["Died", "SimulatedBoard", "SimulatedBroker"]
