"""What each user may do at RabbitMQ, as data for `rabbitmqctl import_definitions`. Pure.

RabbitMQ knows three rights, each a pattern of names of queues and exchanges: *configure* (declare, delete), *write* (publish to
an exchange, bind a queue) and *read* (consume, or bind to an exchange); and for topic exchanges a pattern of routing keys.
The exchanges and queues of the team are part of the data, so that only orchestrators need the right to declare. Called by
`ops.access`.
"""

from __future__ import annotations

import base64
import hashlib
import re
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ops.broker.topology import KINDS, Topology
from ops.users import Duty, User
from schemas.broker import BROKER_DEAD_QUEUE, RESULT_FAILED, RESULT_READY, Exchange, task_queue

NOTHING = "^$"
EVERYTHING = ".*"
_LASTING = {"durable": True, "auto_delete": False}


@dataclass(frozen=True, slots=True)
class Rights:
    """Patterns of the names that a user may configure, write to and read from, and of the keys it may publish to `events`."""

    configure: str
    write: str
    read: str
    events: str


def rights_of(user: User, topology: Topology) -> Rights:
    """Return what a user may do with the exchanges and queues of a topology."""
    everything = f"^{re.escape(topology.prefix)}\\..*$"
    match user.duty:
        case Duty.ORCHESTRATOR:
            # It declares queues that dead-letter, for which RabbitMQ asks for all three rights.
            return Rights(everything, everything, everything, EVERYTHING)
        case Duty.WORKER:
            # `dead` is not among them: what comes from there is the broker's own word that it gave a task up.
            results = _one_of(RESULT_READY.key, RESULT_FAILED.key)
            tasks = (topology.full(task_queue(agent)) for agent in user.agents)
            return Rights(NOTHING, _one_of(topology.full(Exchange.EVENTS), topology.full(Exchange.LETTERS)), _one_of(*tasks), results)
        case Duty.PRODUCER:
            return Rights(NOTHING, _one_of(topology.full(Exchange.COMMANDS)), NOTHING, NOTHING)
        case Duty.OPERATOR:
            dead, notices = topology.full("dead."), topology.full(BROKER_DEAD_QUEUE)
            return Rights(NOTHING, _one_of(topology.full(Exchange.COMMANDS)), f"^(?!{re.escape(notices)}$){re.escape(dead)}.+$", NOTHING)


def definitions(users: Iterable[User], passwords: Mapping[str, str], *, prefix: str, vhost: str = "/") -> dict[str, Any]:
    """Return the definitions of users, rights, exchanges, queues and bindings. Importing them again changes only passwords' hashes."""
    users, topology = list(users), Topology(prefix)
    agents = dict.fromkeys(agent for user in users for agent in user.agents)
    queues = (*topology.fixed, *(queue for agent in agents for queue in topology.of_agent(agent)))
    rights = {user.name: rights_of(user, topology) for user in users}
    return {
        "users": [{**_hashed(passwords[name]), "name": name, "tags": []} for name in rights],
        "vhosts": [{"name": vhost}],
        "permissions": [
            {"user": name, "vhost": vhost, "configure": may.configure, "write": may.write, "read": may.read} for name, may in rights.items()
        ],
        "topic_permissions": [
            {"user": name, "vhost": vhost, "exchange": topology.full(Exchange.EVENTS), "write": may.events, "read": EVERYTHING}
            for name, may in rights.items()
        ],
        "exchanges": [
            {"name": topology.full(name), "vhost": vhost, "type": kind, **_LASTING, "internal": False, "arguments": {}}
            for name, kind in KINDS.items()
        ],
        "queues": [{"name": topology.full(queue.name), "vhost": vhost, **_LASTING, "arguments": dict(queue.arguments)} for queue in queues],
        "bindings": [
            {
                "source": topology.full(binding.exchange),
                "vhost": vhost,
                "destination": topology.full(queue.name),
                "destination_type": "queue",
                "routing_key": binding.key,
                "arguments": {},
            }
            for queue in queues
            for binding in queue.bindings
        ],
    }


def _one_of(*names: str) -> str:
    return f"^({'|'.join(map(re.escape, names))})$" if names else NOTHING


def _hashed(password: str) -> dict[str, str]:
    """The form in which RabbitMQ stores a password: four random bytes, and the SHA-256 of them and the password."""
    salt = secrets.token_bytes(4)
    digest = hashlib.sha256(salt + password.encode()).digest()
    return {"password_hash": base64.b64encode(salt + digest).decode(), "hashing_algorithm": "rabbit_password_hashing_sha256"}
