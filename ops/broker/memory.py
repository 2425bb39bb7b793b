"""The broker port in one process: the same words, routing, limits and redelivery as RabbitMQ, and no server.

It is the default of the demo, the bench of users' own teams, and the reference that the contract suite holds RabbitMQ
against. Messages pass through their wire form, so nothing is shared. Timers run on the loop's clock: with a seed, a
fault plan and a virtual clock a whole system can be simulated. Nothing here outlives the process.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from random import Random
from types import TracebackType
from typing import Self

import structlog

from ops.broker.background import Background, background
from ops.broker.dispatching import Dispatcher
from ops.broker.faults import FaultPlan, FaultyHand
from ops.broker.topology import DELIVERY_LIMIT, UNREADABLE, Queue, Topology, takes
from schemas.broker import Address, Consumer, Exchange, Handler, task_queue
from schemas.errors import OutcomeUnknown, Undeliverable, Unreadable
from schemas.messages import AgentMessage, from_wire, to_wire

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class _Stored:
    """One message in a queue."""

    body: bytes
    bell: AgentMessage | None = None
    """What the body says, where it was handed in as a message: nobody can change it, so it need not be read again."""
    reason: str = ""
    """Why it was parked or given up."""
    returns: int = 0
    """How often it came back unsettled."""


class _StoredQueue:
    """One queue: what waits, and who takes it."""

    def __init__(self, declaration: Queue) -> None:
        self.declaration = declaration
        self.ready: deque[_Stored] = deque()
        self.consumers: deque[MemoryConsumer] = deque()
        self.deleted = False

    def free_consumer(self) -> MemoryConsumer | None:
        """Return the next consumer in turn that has credit, or None."""
        for _ in range(len(self.consumers)):
            self.consumers.rotate(-1)
            if self.consumers[-1].free:
                return self.consumers[-1]
        return None


class _Arrived:
    """A message in a consumer's hand (`ops.broker.dispatching.Arrival`)."""

    def __init__(self, broker: MemoryBroker, queue: _StoredQueue, consumer: MemoryConsumer, stored: _Stored) -> None:
        self._broker = broker
        self._consumer = consumer
        self.queue = queue
        self.stored = stored

    def read(self) -> AgentMessage:
        """Return the message that came; see `ops.broker.dispatching.Arrival`."""
        return self.stored.bell or from_wire(self.stored.body)

    @property
    def redelivered(self) -> bool:
        """Whether it was handed out before."""
        return self.stored.returns > 0

    async def ack(self) -> None:
        """Settle it for good."""
        self._let_go()
        self._broker.hand_out(self._consumer.queue)

    async def requeue(self) -> None:
        """Hand it back at once."""
        if self._let_go():
            self._broker.take_back(self.queue, self.stored)
        self._broker.hand_out(self._consumer.queue)

    async def park(self, reason: str) -> None:
        """Store it with the reason among the unreadable ones, then settle it."""
        self._broker.store(UNREADABLE, _Stored(self.stored.body, reason=reason))
        await self.ack()

    def _let_go(self) -> bool:
        """Take it out of the consumer's hand; return whether its queue still exists."""
        self._consumer.in_hand.pop(self, None)
        if self.queue.deleted:
            log.warning("settling_failed", error="the queue was deleted", queue=self.queue.declaration.name)
        return not self.queue.deleted


class MemoryConsumer:
    """The consumption of one queue (`schemas.broker.Consumer`)."""

    def __init__(self, broker: MemoryBroker, queue: _StoredQueue, dispatcher: Dispatcher, tasks: Background, prefetch: int) -> None:
        self._broker = broker
        self._dispatcher = dispatcher
        self._tasks = tasks
        self._prefetch = prefetch
        self._stopped = False
        self.queue = queue
        self.in_hand: dict[_Arrived, None] = {}  # in the order of their coming

    @property
    def consuming(self) -> bool:
        """Whether messages are handed out to this consumer."""
        return not self._stopped

    @property
    def free(self) -> bool:
        """Whether it may take one more."""
        return not self._stopped and len(self.in_hand) < self._prefetch

    async def resize(self, prefetch: int) -> None:
        """Take at most `prefetch` unsettled deliveries from now on."""
        self._prefetch = prefetch
        self._broker.hand_out(self.queue)

    async def stop(self) -> None:
        """Take nothing more."""
        self.refuse()

    def refuse(self) -> None:
        """Take nothing more, at once."""
        self._stopped = True

    def take(self, stored: _Stored) -> None:
        """Handle one message in a task of its own."""
        arrived = _Arrived(self._broker, self.queue, self, stored)
        self.in_hand[arrived] = None
        self._tasks.start(self._dispatcher.dispatch(arrived))

    def leave(self) -> None:
        """Leave the queue and hand back what is unsettled."""
        self._stopped = True
        self.queue.consumers.remove(self)
        for arrived in reversed(self.in_hand):
            if not arrived.queue.deleted:
                self._broker.take_back(arrived.queue, arrived.stored)
        self.in_hand.clear()
        self._broker.hand_out(self.queue)


class MemoryBroker:
    """A broker for one process, open inside `async with`.

    With `faults`, messages go wrong as the plan says, drawn from `seed`; without, each is handed out in order, once.
    `delivery_limit` is how often a message may come back before it lies in `dead.broker`.
    """

    def __init__(self, *, seed: int | None = None, faults: FaultPlan | None = None, delivery_limit: int = DELIVERY_LIMIT) -> None:
        self._random = Random(seed)
        self._faults = FaultyHand(faults or FaultPlan(), self._random)
        self._delivery_limit = delivery_limit
        self._topology = Topology()
        self._queues: dict[str, _StoredQueue] = {}
        self._timers: set[asyncio.TimerHandle] = set()
        self._takers: dict[Address, tuple[_StoredQueue, ...]] = {}
        """Which queues take a message to an address; forgotten when a queue comes or goes."""
        for queue in self._topology.fixed:
            self._declare(queue)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()

    async def publish(self, address: Address, bell: AgentMessage, *, confirm: bool = True) -> None:
        """Hand a message in; see `schemas.broker.Broker.publish`."""
        stored = _Stored(to_wire(bell), bell)
        await asyncio.sleep(0)  # as over a wire, others run before it is stored
        if confirm and self._faults.happens(self._faults.plan.unknown):
            if self._faults.happens(0.5):
                self.store(address, stored)
            raise OutcomeUnknown(f"no confirm for a message to {address.exchange} {address.key}")
        if not self.store(address, stored) and confirm:
            raise Undeliverable(f"no queue takes a message to {address.exchange} {address.key}")

    @property
    def may_ring_tasks(self) -> bool:
        """Everybody may do everything here."""
        return True

    async def declare_agent(self, agent: str) -> int:
        """Make sure that an agent's queues exist, and return how many TASKs wait there that nobody has."""
        for queue in self._topology.of_agent(agent):
            self._declare(queue)
        return len(self._queues[task_queue(agent)].ready)

    @asynccontextmanager
    async def consume(self, queue: str, handler: Handler, *, prefetch: int) -> AsyncIterator[Consumer]:
        """Hand out a queue's messages to `handler`; see `schemas.broker.Broker.consume`. Leaving cancels the handlers that still run.

        Raises:
            InvalidValue: there is no such queue.
        """
        stored_queue = self._queues.get(queue) or self._declare(self._topology.queue(queue))
        consumer: MemoryConsumer | None = None
        try:
            async with background() as handling:
                consumer = MemoryConsumer(self, stored_queue, Dispatcher(queue, handler, self._random), handling, prefetch)
                stored_queue.consumers.append(consumer)
                self.hand_out(stored_queue)
                try:
                    yield consumer
                finally:
                    consumer.refuse()
        finally:
            if consumer is not None:
                consumer.leave()

    # What a test or a simulation looks at, and does to it.

    def subscribe(self, queue: str, *addresses: Address) -> None:
        """Declare a queue of a subscriber's own; a key of an event may hold `*` (one word) and `#` (any words)."""
        self._declare(Queue(queue, addresses))

    def depth(self, queue: str) -> int:
        """Return how many messages wait in a queue; 0 when there is no such queue."""
        return len(self._queues[queue].ready) if queue in self._queues else 0

    def bodies(self, queue: str) -> list[bytes]:
        """Return what waits in a queue, first come first."""
        return [stored.body for stored in self._queues[queue].ready] if queue in self._queues else []

    def messages(self, queue: str) -> list[AgentMessage]:
        """Return the messages that wait in a queue and can be read, first come first."""
        readable = []
        for body in self.bodies(queue):
            try:
                readable.append(from_wire(body))
            except Unreadable:
                continue
        return readable

    def reasons(self, queue: str) -> list[str]:
        """Return why each message that waits in a queue was parked or given up; empty for one that was not."""
        return [stored.reason for stored in self._queues[queue].ready] if queue in self._queues else []

    def put(self, queue: str, body: bytes) -> None:
        """Store any bytes in a declared queue, as a foreign publisher might."""
        self._keep(self._queues[queue], _Stored(body))

    def purge(self, queue: str) -> None:
        """Drop what waits in a queue; what is in hand stays there."""
        if queue in self._queues:
            self._queues[queue].ready.clear()

    def delete(self, queue: str) -> None:
        """Delete a queue with all that waits or is in hand. Its consumers, and the fixed topology, declare it again."""
        gone = self._queues.pop(queue, None)
        self._takers.clear()
        if gone is None:
            return
        gone.deleted = True
        if gone.consumers or any(queue == fixed.name for fixed in self._topology.fixed):
            anew = self._declare(gone.declaration)
            anew.consumers = gone.consumers
            for consumer in anew.consumers:
                consumer.queue = anew

    def forget_everything(self) -> None:
        """Delete every queue, as if the broker had been set up anew."""
        for queue in list(self._queues):
            self.delete(queue)

    # What the rooms of this file say to each other.

    def store(self, address: Address, stored: _Stored) -> bool:
        """Store a message in every queue that takes it, as far as the fault plan lets it; return whether there is one."""
        takers = self._takers.get(address)
        if takers is None:
            queues = self._queues.values()
            takers = tuple(queue for queue in queues if any(takes(binding, address) for binding in queue.declaration.bindings))
            self._takers[address] = takers
        plan = self._faults.plan
        for queue in takers:
            if self._faults.happens(plan.lose):
                continue
            for _ in range(2 if self._faults.happens(plan.duplicate) else 1):
                copy = _Stored(stored.body, stored.bell, stored.reason)
                if self._faults.happens(plan.delay):
                    self._later(partial(self._keep, queue, copy))
                else:
                    self._keep(queue, copy)
        return bool(takers)

    def hand_out(self, queue: _StoredQueue) -> None:
        """Give what waits to consumers that have credit."""
        while queue.ready and (consumer := queue.free_consumer()) is not None:
            stored = queue.ready.popleft()
            if self._faults.happens(self._faults.plan.redeliver):
                self._later(partial(self.take_back, queue, stored))
            else:
                consumer.take(stored)

    def take_back(self, queue: _StoredQueue, stored: _Stored) -> None:
        """Put an unsettled message back to where it was, or give it up when it came back too often."""
        stored.returns += 1
        arguments = queue.declaration.arguments
        key = arguments.get("x-dead-letter-routing-key")
        if key is not None and stored.returns > self._delivery_limit:
            self.store(Address(Exchange.DEAD, str(key)), _Stored(stored.body, stored.bell, "delivery_limit"))
            return
        queue.ready.appendleft(stored)
        self.hand_out(queue)

    def _keep(self, queue: _StoredQueue, stored: _Stored) -> None:
        if self._faults.happens(self._faults.plan.reorder):
            queue.ready.insert(self._faults.place(len(queue.ready)), stored)
        else:
            queue.ready.append(stored)
        self.hand_out(queue)

    def _declare(self, declaration: Queue) -> _StoredQueue:
        queue = self._queues.setdefault(declaration.name, _StoredQueue(declaration))
        bindings = dict.fromkeys((*queue.declaration.bindings, *declaration.bindings))
        queue.declaration = replace(queue.declaration, bindings=tuple(bindings))
        self._takers.clear()
        return queue

    def _later(self, action: Callable[[], None]) -> None:
        def run() -> None:
            self._timers.discard(timer)
            action()

        timer = asyncio.get_running_loop().call_later(self._faults.delay_seconds(), run)
        self._timers.add(timer)
