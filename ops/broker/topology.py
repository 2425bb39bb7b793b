"""Every exchange, queue and binding as data: what exists in RabbitMQ, under which name, with which arguments.

Names begin with a prefix that carries the topology's version, so that a changed declaration never meets an old queue.
Lengths, times to live and whatever else may be tuned are policies, never arguments: an argument cannot be changed
later. This room knows no client library; both brokers and the check of a server read it.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from schemas.broker import (
    BROKER_DEAD_QUEUE,
    COMMANDS,
    COMMANDS_QUEUE,
    RESULT_FAILED,
    RESULT_READY,
    RESULTS_QUEUE,
    UNREADABLE_QUEUE,
    Address,
    Exchange,
    dead_queue,
    task_queue,
    to_agent,
    to_dead,
)
from schemas.errors import InvalidValue

DEFAULT_PREFIX = "briefline.v1"
DELIVERY_LIMIT = 20
"""How often the broker hands a message out again before it gives it up (it is handed out once more than that)."""

# No agent's name begins with a dot, so these keys never meet an agent's.
BROKER_DEAD_KEY = ".broker"
UNREADABLE_KEY = ".unreadable"
UNREADABLE = Address(Exchange.LETTERS, UNREADABLE_KEY)
"""Where a process parks what it cannot read."""

KINDS = {exchange: "topic" if exchange is Exchange.EVENTS else "direct" for exchange in Exchange}
"""The type of each exchange; all are durable."""

Argument = str | int


@dataclass(frozen=True, slots=True)
class Queue:
    """One queue, durable and quorum: its name without the prefix, what it takes, and its arguments."""

    name: str
    bindings: tuple[Address, ...]
    arguments: dict[str, Argument] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Topology:
    """The names and declarations under one prefix."""

    prefix: str = DEFAULT_PREFIX

    def full(self, name: str) -> str:
        """Return the name in RabbitMQ of a queue or an exchange."""
        return f"{self.prefix}.{name}"

    @property
    def fixed(self) -> tuple[Queue, ...]:
        """The queues that exist whatever agents there are, each after the ones that it dead-letters to."""
        return (
            self._dead(UNREADABLE_QUEUE, UNREADABLE, Address(Exchange.DEAD, UNREADABLE_KEY)),
            self._notices(),
            self._work(RESULTS_QUEUE, RESULT_READY, RESULT_FAILED),
            self._work(COMMANDS_QUEUE, COMMANDS),
        )

    def of_agent(self, agent: str) -> tuple[Queue, Queue]:
        """Return the queues of an agent's dead letters and of its tasks."""
        return self._dead_of(agent), self._work(task_queue(agent), to_agent(agent))

    def queue(self, name: str) -> Queue:
        """Return the declaration of a queue by its name without the prefix.

        Raises:
            InvalidValue: there is no such queue.
        """
        for known in self.fixed:
            if known.name == name:
                return known
        kind, _, agent = name.partition(".")
        if agent and kind == "tasks":
            return self._work(name, to_agent(agent))
        if agent and kind == "dead":
            return self._dead_of(agent)
        names = ", ".join(queue.name for queue in self.fixed)
        raise InvalidValue(f"there is no queue {name!r}; there are {names}, tasks.<agent> and dead.<agent>")

    def _work(self, name: str, *bindings: Address) -> Queue:
        arguments: dict[str, Argument] = {
            "x-queue-type": "quorum",
            "x-delivery-limit": DELIVERY_LIMIT,
            "x-dead-letter-exchange": self.full(Exchange.DEAD),
            "x-dead-letter-routing-key": BROKER_DEAD_KEY,
            # At-least-once dead-lettering holds only together with reject-publish: without it the broker takes the
            # argument and falls back to at most once, without a word.
            "x-dead-letter-strategy": "at-least-once",
            "x-overflow": "reject-publish",
        }
        return Queue(name, bindings, arguments)

    def _notices(self) -> Queue:
        """What the broker gave up. It is consumed, so a message that no client can read must leave it some day too."""
        arguments: dict[str, Argument] = {
            "x-queue-type": "quorum",
            "x-delivery-limit": DELIVERY_LIMIT,
            "x-dead-letter-exchange": self.full(Exchange.DEAD),
            "x-dead-letter-routing-key": UNREADABLE_KEY,
        }
        return Queue(BROKER_DEAD_QUEUE, (Address(Exchange.DEAD, BROKER_DEAD_KEY),), arguments)

    def _dead_of(self, agent: str) -> Queue:
        name = dead_queue(agent)
        for known in self.fixed:
            if known.name == name:  # an agent called `broker`: its bells lie among the notices, which are hints as well
                return replace(known, bindings=(*known.bindings, to_dead(agent)))
        return self._dead(name, to_dead(agent))

    def _dead(self, name: str, *bindings: Address) -> Queue:
        return Queue(name, bindings, {"x-queue-type": "quorum"})


def takes(binding: Address, address: Address) -> bool:
    """Whether a message to `address` goes through this binding; a topic key may hold `*` (one word) and `#` (any words)."""
    if binding.exchange != address.exchange:
        return False
    if KINDS[binding.exchange] != "topic" or binding.key == address.key:
        return binding.key == address.key
    return _matches(binding.key.split("."), address.key.split("."))


def _matches(pattern: list[str], words: list[str]) -> bool:
    if not pattern:
        return not words
    if pattern[0] == "#":
        return any(_matches(pattern[1:], words[skip:]) for skip in range(len(words) + 1))
    return bool(words) and pattern[0] in ("*", words[0]) and _matches(pattern[1:], words[1:])
