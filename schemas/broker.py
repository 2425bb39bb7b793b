"""The broker's port: what to do next. Every message is a bell that may ring twice, late or never.

Implementations: `ops.broker.rabbitmq` and `ops.broker.memory`, held to one contract suite (`tests/contract`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol, TypeAlias

from schemas.messages import AgentMessage


class Exchange(StrEnum):
    """Where a message is handed in."""

    TASKS = "tasks"
    EVENTS = "events"
    COMMANDS = "commands"
    LETTERS = "letters"
    """Dead letters of agents and what nobody could read, handed in by processes; `dead` is the broker's own."""
    DEAD = "dead"


@dataclass(frozen=True, slots=True)
class Address:
    """An exchange and a routing key."""

    exchange: Exchange
    key: str


RESULTS_QUEUE = "results"
COMMANDS_QUEUE = "commands"
BROKER_DEAD_QUEUE = "dead.broker"
"""What the broker itself gave up: a hint for the orchestrator."""
UNREADABLE_QUEUE = "dead.unreadable"
"""Protocol violations, and what nobody could read."""

COMMANDS = Address(Exchange.COMMANDS, "commands")
RESULT_READY = Address(Exchange.EVENTS, "result.ready")
RESULT_FAILED = Address(Exchange.EVENTS, "result.failed")


def task_queue(agent: str) -> str:
    """Queue of an agent's tasks."""
    return f"tasks.{agent}"


def dead_queue(agent: str) -> str:
    """Queue of an agent's dead letters, for people and tools that watch RabbitMQ."""
    return f"dead.{agent}"


def to_agent(agent: str) -> Address:
    """Address of an agent's tasks."""
    return Address(Exchange.TASKS, agent)


def to_dead(agent: str) -> Address:
    """Address of an agent's dead letters."""
    return Address(Exchange.LETTERS, agent)


def request_event(status: str) -> Address:
    """Address of a request's status event, `request.<status>` in lower case."""
    return Address(Exchange.EVENTS, f"request.{status.lower()}")


class Delivery(Protocol):
    """One message handed to a consumer, to be settled exactly once; settling on a line that was lost is logged, never raised."""

    @property
    def message(self) -> AgentMessage:
        """The bell."""
        ...

    @property
    def redelivered(self) -> bool:
        """Whether it may have been handed out before."""
        ...

    async def ack(self) -> None:
        """It is done with."""
        ...

    async def nack(self, delay_seconds: float = 0.0) -> None:
        """Hand it back, to be delivered again after at least `delay_seconds`."""
        ...

    async def park(self, reason: str) -> None:
        """Move it to `dead.unreadable` with the reason (confirmed), then ack it."""
        ...


Handler: TypeAlias = Callable[[Delivery], Awaitable[None]]
"""Handles one delivery and settles it. If it raises `Unavailable`, it is called again with backoff, for as long as it takes;
if it raises anything else five times, the message is parked."""


class Consumer(Protocol):
    """A running consumption of one queue."""

    async def resize(self, prefetch: int) -> None:
        """Take at most `prefetch` unsettled deliveries from now on (the consumer starts anew with that credit)."""
        ...

    async def stop(self) -> None:
        """Take nothing more. Deliveries in hand can still be settled; leaving the context hands back the unsettled ones."""
        ...

    @property
    def consuming(self) -> bool:
        """Whether the broker knows this consumer now."""
        ...


class Broker(Protocol):
    """The port. Every call has a deadline and raises `Unavailable` past it."""

    async def publish(self, address: Address, bell: AgentMessage, *, confirm: bool = True) -> None:
        """Hand a message in; with `confirm`, return once the broker has it safely in a queue.

        Without `confirm` the message is not mandatory either: nobody has to listen.

        Raises:
            Undeliverable: no queue takes it.
            OutcomeUnknown: no confirm came; send a new message.
            Unavailable: the broker is not there.
        """
        ...

    def consume(self, queue: str, handler: Handler, *, prefetch: int) -> AbstractAsyncContextManager[Consumer]:
        """Hand out the queue's messages to `handler`, at most `prefetch` at a time, over lost connections and deleted queues.

        Each delivery is handled in a task of the consumer's own, which no lost line cancels. What cannot be read is
        parked, and the consumer goes on.
        """
        ...

    @property
    def may_ring_tasks(self) -> bool:
        """Whether this process may hand in TASKs, as far as it knows: where each role has a user of its own, workers may not."""
        ...

    async def declare_agent(self, agent: str) -> int:
        """Make sure that an agent's queues exist, so that a TASK to it can wait there; return how many wait that nobody has."""
        ...
