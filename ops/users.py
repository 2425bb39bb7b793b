"""The users that the processes of a team log in as: one for each role, and one for each agent's workers. Pure data.

Read by what turns them into rights: `ops.rabbitmq.permissions` and `ops.redis.rules`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from schemas.broker import BROKER_DEAD_QUEUE, dead_queue
from schemas.errors import InvalidSettings


class Duty(StrEnum):
    """What a process is there for. Three of them are the roles that write to the blackboard."""

    PRODUCER = "producer"
    """Opens requests, cancels and replays them, and looks at them."""
    ORCHESTRATOR = "orchestrator"
    WORKER = "worker"
    OPERATOR = "operator"
    """Looks at everything, cancels, replays and drops; opens nothing."""


@dataclass(frozen=True, slots=True)
class User:
    """A login at both servers. `agents` are those whose steps a worker may take."""

    name: str
    duty: Duty
    agents: tuple[str, ...] = ()


ADMIN = "briefline-admin"
"""Redis' administrator: loads the functions and changes the access list. No process of Briefline logs in as it."""


def users_of(agents: Iterable[str]) -> tuple[User, ...]:
    """Return the users of a team with these agents.

    Raises:
        InvalidSettings: the dead letters of an agent of this name would lie where the broker's own word is expected.
    """
    agents = tuple(agents)
    for agent in agents:
        if dead_queue(agent) == BROKER_DEAD_QUEUE:
            raise InvalidSettings(f"an agent called {agent!r} cannot be kept apart from the broker's own notices: call it otherwise")
    fixed = (Duty.PRODUCER, Duty.ORCHESTRATOR, Duty.OPERATOR)
    return (*(User(f"briefline-{duty}", duty) for duty in fixed), *(worker_user(agent) for agent in agents))


def worker_user(*agents: str, name: str = "") -> User:
    """Return the user of workers that serve these agents and no other."""
    return User(name or f"briefline-worker-{'-'.join(agents)}", Duty.WORKER, agents)
