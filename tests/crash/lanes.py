"""A lane: one orchestrator and one worker as processes over queues and keys of their own, and the clients who use them.

A supervisor starts each process anew whenever it ends, as an operator's would; the next one may be armed to die as well.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import aio_pika
import redis.asyncio

from ops import crash_points
from ops.blackboard.keys import due_keys, shard_of
from ops.blackboard.redis import RedisBlackboard
from ops.broker.rabbitmq import RabbitMQBroker
from ops.client import Client
from ops.commands.exits import DONE, REFUSED
from schemas.blackboard import Event
from schemas.gate import BoundaryRules
from schemas.requests import request_id
from tests.crash import teams
from tests.crash.nursery import Child, Nursery
from workers.team import Team

LEASE_SECONDS = 1.0
SWEEP_SECONDS = 0.2
ACK_AFTER_SECONDS = 0.5
GRACE_SECONDS = 0.2
PATIENCE_SECONDS = 100.0
"""How long a request, or a command, may take before it counts as hung."""
SERVING = ("orchestrator", "worker")
CLIENT = "client"


def environment(redis_url: str, rabbitmq_url: str, key_prefix: str, topology_prefix: str, **more: object) -> dict[str, str]:
    """The environment of a process: nothing of the developer's, short times, and these."""
    settings = {
        "redis_url": redis_url,
        "rabbitmq_url": rabbitmq_url,
        "key_prefix": key_prefix,
        "topology_prefix": topology_prefix,
        "artifacts_url": "memory:",
        "team": "tests.crash.teams:quick",  # the one agent of all of them
        "log_format": "json",
        **more,
    }
    kept = {name: value for name, value in os.environ.items() if not name.startswith("BRIEFLINE_")}
    return {**kept, "NO_COLOR": "1", **{f"BRIEFLINE_{name.upper()}": str(value) for name, value in settings.items()}}


@dataclass
class Role:
    """One process that is kept running, and how often it died where it was armed to."""

    name: str
    arms: list[str] = field(default_factory=list)
    """Crash points of the next starts, the first one first."""
    child: Child | None = None
    died: int = 0
    ended: dict[int, int] = field(default_factory=dict)
    """Exit code -> how often, of what nobody wanted."""
    starting: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held until a process that is started has a pid: so none is left behind unknown."""


class Lane:
    """Processes and clients over one topology. Opened by `lane`."""

    def __init__(self, nursery: Nursery, redis_url: str, rabbitmq_url: str, folder: Path) -> None:
        self._nursery = nursery
        self._redis_url = redis_url
        self._rabbitmq_url = rabbitmq_url
        self.folder = folder
        self.key_prefix = f"briefline-crash-{secrets.token_hex(5)}"
        self.topology_prefix = f"briefline.crash.{secrets.token_hex(4)}"
        self.board = RedisBlackboard(redis_url, prefix=self.key_prefix, lease_seconds=LEASE_SECONDS, pool_size=4)
        self.broker = RabbitMQBroker(rabbitmq_url, prefix=self.topology_prefix)
        self.client = Client(self.board, self.broker)
        self.roles = {name: Role(name) for name in (*SERVING, CLIENT)}
        self._supervisors: dict[str, asyncio.Task[None]] = {}
        self.records: Path | None = None
        """Where the processes write which points they pass, one file for each role."""

    def environment(self, role: str, crash_at: str = "") -> dict[str, str]:
        """The environment of one process."""
        given = environment(
            self._redis_url,
            self._rabbitmq_url,
            self.key_prefix,
            self.topology_prefix,
            lease_seconds=LEASE_SECONDS,
            sweep_seconds=SWEEP_SECONDS,
            ack_after_seconds=ACK_AFTER_SECONDS,
            grace_seconds=GRACE_SECONDS,
            pool_size=4,
        )
        if crash_at:
            given[crash_points.CRASH_AT] = crash_at
        if self.records is not None:
            given[crash_points.CRASH_RECORD] = str(self.records / role)
        return given

    # Processes.

    async def arm(self, role: str, *points: str) -> None:
        """Let the role's process die at the first point, the one that is started then at the second, and so on."""
        self.roles[role].arms[:] = points
        self.roles[role].died = 0
        await self.end(role)
        self.begin(role)

    def begin(self, role: str) -> None:
        """Keep a process of this role running, unless it serves nobody."""
        if role in SERVING and role not in self._supervisors:
            self._supervisors[role] = asyncio.create_task(self._supervise(self.roles[role]), name=f"supervisor of {role}")

    async def end(self, role: str) -> None:
        """End the role's process by SIGKILL, and start no other."""
        supervisor, child = self._supervisors.pop(role, None), self.roles[role].child
        if supervisor is not None:
            async with self.roles[role].starting:
                supervisor.cancel()
            await asyncio.wait({supervisor})
            child = self.roles[role].child
        if child is not None:
            await child.kill()

    async def _supervise(self, role: Role) -> None:
        while True:
            crash_at = role.arms.pop(0) if role.arms else ""
            async with role.starting:
                role.child = await self._nursery.start(role.name, environment=self.environment(role.name, crash_at))
            self._note(role, await asyncio.shield(role.child.ended), crash_at)

    def _note(self, role: Role, code: int, crash_at: str) -> None:
        if code == crash_points.EXIT_CODE and crash_at:
            role.died += 1
        elif code not in (DONE, REFUSED, -signal.SIGTERM):
            role.ended[code] = role.ended.get(code, 0) + 1

    def tell_to_end(self, role: str) -> None:
        """Tell the role's process by SIGTERM to end; its supervisor starts another."""
        child = self.roles[role].child
        if child is not None:
            child.send(signal.SIGTERM)

    # Clients: in this process, or a process for each call where the clients are what dies.

    async def _as_process(self, *arguments: str, again: bool = True) -> int:
        """Run a client's command until it ends by itself; one that died is started anew, as a person would (unless not `again`)."""
        role = self.roles[CLIENT]
        while True:
            crash_at = role.arms.pop(0) if role.arms else ""
            async with role.starting:
                role.child = await self._nursery.start(*arguments, environment=self.environment(CLIENT, crash_at))
            code = await asyncio.shield(role.child.ended)
            self._note(role, code, crash_at)
            if crash_at and code != crash_points.EXIT_CODE:  # a point of another command
                role.arms.insert(0, crash_at)
            if code in (DONE, REFUSED) or (code == crash_points.EXIT_CODE and not again):
                return code
            if code != crash_points.EXIT_CODE:
                raise AssertionError(f"{arguments} ended with {code}:\n{role.child.errors.read_text()}")

    @property
    def _clients_die(self) -> bool:
        return bool(self.roles[CLIENT].arms) or self.records is not None

    async def submit(self, team: Team, *, mended: Path | None = None, deadline_seconds: float | None = None, again: bool = True) -> str:
        """Submit a request, and return its id. A client that dies submits again, with the same key, unless told not to."""
        key, constraints = secrets.token_hex(8), {"mended": str(mended)} if mended else {}
        if self._clients_die:
            given = [f"--constraint={name}={value}" for name, value in constraints.items()]
            given += [f"--deadline={deadline_seconds}"] if deadline_seconds else []
            await self._as_process("submit", "Do it.", "--team", f"tests.crash.teams:{team.name}", "--key", key, *given, again=again)
            return request_id("default", key)
        accepted = await self.client.submit(team, "Do it.", constraints=constraints, idempotency_key=key, deadline_seconds=deadline_seconds)
        return accepted.request_id

    async def cancel(self, request_id: str) -> None:
        """Cancel a request, until it is."""
        if self._clients_die:
            await self._as_process("cancel", request_id)
        else:
            await self.client.cancel(request_id)

    async def replay(self, request_id: str, step: str) -> None:
        """Replay a failed step, until it is done. A replay that was done before its client died is refused the second time."""
        if self._clients_die:
            await self._as_process("dead", "replay", request_id, step)
        else:
            await self.client.replay(request_id, step)

    async def drop(self, request_id: str, step: str) -> None:
        """Drop a dead letter, until it is."""
        if self._clients_die:
            await self._as_process("dead", "drop", request_id, step, "--reason", "nobody wants it")
        else:
            await self.client.drop(request_id, step, "nobody wants it")

    async def retract(self, request_id: str, name: str) -> None:
        """Withdraw what a step said and let it run again, until it is done."""
        if self._clients_die:
            await self._as_process("retract", request_id, name, "--reason", "wrong", "--recheck")
        else:
            await self.client.retract(request_id, name, "wrong", recheck=True)

    async def decide(self, request_id: str, item: str, choice: str) -> None:
        """Decide an item of the desk, until it is. One that was decided before its client died is refused the second time."""
        if self._clients_die:
            await self._as_process("desk", "decide", request_id, item, choice, "--reason", "looked at it")
        else:
            await self.client.decide(request_id, item, choice, "looked at it")

    async def set_rules(self, request_id: str) -> None:
        """Let other rules hold from now on, by which what runs begins anew."""
        if self._clients_die:
            await self._as_process("rules", request_id, "--set", "named=other", "--set", "on_rules_change=stop")
        else:
            await self.client.set_rules(request_id, BoundaryRules(named="other", on_rules_change="stop"))

    # What a test looks at.

    async def over(self, request_id: str) -> None:
        """Wait until a request is over."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            await self.client.wait(request_id)

    async def event(self, request_id: str, after: int = 0, **labels: str) -> Event:
        """Return the first event of a request with these labels, as soon as there is one."""
        async with asyncio.timeout(PATIENCE_SECONDS), aclosing(self.board.watch(request_id, after)) as events:
            async for event in events:
                if labels.items() <= event.labels.items():
                    return event
        raise AssertionError("the events ended")

    async def waiting(self, queue: str) -> int:
        """How many messages lie ready in a queue."""
        async with await aio_pika.connect(self._rabbitmq_url) as connection:
            declared = await (await connection.channel()).declare_queue(f"{self.topology_prefix}.{queue}", passive=True)
            return declared.declaration_result.message_count or 0

    async def delete_queue(self, queue: str) -> None:
        """Delete a queue, as an operator may."""
        async with await aio_pika.connect(self._rabbitmq_url) as connection:
            await (await connection.channel()).queue_delete(f"{self.topology_prefix}.{queue}")

    async def mark(self, request_id: str) -> float | None:
        """When a request is to be looked at, by the index of what is due; None: never."""
        async with redis.asyncio.Redis.from_url(self._redis_url) as client:
            found: float | None = await client.zscore(due_keys(self.key_prefix)[shard_of(request_id)], request_id)
            return found

    async def forget(self) -> None:
        """Delete what the lane left at the servers."""
        async with redis.asyncio.Redis.from_url(self._redis_url) as client:
            async for key in client.scan_iter(match=f"{self.key_prefix}*", count=1000):
                await client.delete(key)
        for queue in (f"tasks.{teams.AGENT}", f"dead.{teams.AGENT}", "results", "commands", "dead.broker", "dead.unreadable"):
            await self.delete_queue(queue)


async def until(holds: Callable[[], Awaitable[bool]], seconds: float = PATIENCE_SECONDS, *, pause_seconds: float = 0.1) -> bool:
    """Look again and again at what no event tells of, and say whether it came to hold in time."""
    give_up = time.monotonic() + seconds
    while not await holds():
        if time.monotonic() > give_up:
            return False
        await asyncio.sleep(pause_seconds)
    return True


@asynccontextmanager
async def lane(nursery: Nursery, redis_url: str, rabbitmq_url: str, folder: Path) -> AsyncIterator[Lane]:
    """A lane whose processes run until the context is left."""
    made = Lane(nursery, redis_url, rabbitmq_url, folder)
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(made.board)
        await stack.enter_async_context(made.broker)
        await made.broker.declare_agent(teams.AGENT)
        try:
            yield made
        finally:
            for role in SERVING:
                await made.end(role)
            await made.forget()
