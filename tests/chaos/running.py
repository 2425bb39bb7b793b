"""One run: users come all through the chaos, then everything is mended, then every accepted request has to end and is checked."""

from __future__ import annotations

import asyncio
import signal
import time
from collections import Counter
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path

from ops.blackboard.redis import RedisBlackboard
from ops.broker.rabbitmq import RabbitMQBroker
from ops.client import Client
from ops.commands.exits import DONE, UNREACHABLE
from schemas.blackboard import Blackboard
from tests.chaos.faults import Breaker
from tests.chaos.history import History
from tests.chaos.users import User
from tests.chaos.world import KEY_PREFIX, LEASE_SECONDS, TOPOLOGY_PREFIX, World, world
from tests.crash import teams
from tests.crash.checking import DEAD_LIMIT, broken_promises

LEAST_OK = 0.95
"""The share of the submits that have to succeed in the end: a run in which everything fails proves nothing."""
HEALING_SECONDS = 75.0
"""After the chaos, besides its own length: a bell that was lost is rung again after as long as its step has waited, or 30 s."""


@dataclass
class Figures:
    """What a run came to. `lost`, `doubled`, `without_answer`, `unfinished` and `wrong` count requests, and have to be 0."""

    requests: int
    seed: int
    accepted: int = 0
    answered: int = 0
    lost: int = 0
    doubled: int = 0
    without_answer: int = 0
    unfinished: int = 0
    wrong: int = 0
    kills: int = 0
    restarts: int = 0
    faults: dict[str, int] = field(default_factory=dict)
    operations: dict[str, int] = field(default_factory=dict)
    chaos_seconds: float = 0.0
    seconds: float = 0.0
    broken: list[str] = field(default_factory=list)

    @property
    def kept(self) -> bool:
        """Whether every promise was kept, by enough requests to mean something."""
        return not self.broken and self.accepted >= LEAST_OK * self.requests

    def as_json(self) -> dict[str, object]:
        """Return the figures as a JSON object."""
        return asdict(self)


async def run(folder: Path, *, requests: int, seed: int, chaos_seconds: float) -> Figures:
    """Run once. The record is `history.jsonl` in the folder."""
    began = time.monotonic()
    history = History(folder / "history.jsonl")
    figures = Figures(requests, seed)
    async with AsyncExitStack() as stack:
        where = await stack.enter_async_context(world(folder))
        board = await stack.enter_async_context(
            RedisBlackboard(where.redis.url, prefix=KEY_PREFIX, lease_seconds=LEASE_SECONDS, call_timeout_seconds=2, deadline_seconds=6)
        )
        broker = await stack.enter_async_context(RabbitMQBroker(where.rabbitmq.url, prefix=TOPOLOGY_PREFIX, call_timeout_seconds=2))
        await broker.declare_agent(teams.AGENT)
        client = Client(board, broker)
        users = [User(client, history, number, seed, folder) for number in range(requests)]
        breaker = Breaker(where, history, seed)
        living = asyncio.create_task(_live(users, 0.9 * chaos_seconds), name="users")
        try:
            figures.chaos_seconds = await _break(breaker, chaos_seconds)
            await asyncio.wait({living}, timeout=HEALING_SECONDS + chaos_seconds)
        finally:
            living.cancel()
        figures.broken += [str(error) for error in (await asyncio.gather(living, return_exceptions=True)) if isinstance(error, Exception)]
        await _check(board, users, history, figures)
        figures.faults = dict(sorted(breaker.happened.items()))
        figures.kills = breaker.kills
        figures.restarts = sum(each.starts - 1 for each in where.processes)
        figures.broken += _strange_ends(where)
    figures.operations = {
        f"{what}_{outcome}": count for (what, outcome), count in sorted(history.counts.items()) if what not in breaker.happened
    }
    history.close()
    figures.seconds = round(time.monotonic() - began, 1)
    return figures


async def _live(users: list[User], seconds: float) -> None:
    """Let users come one after the other over this time, and stay until they have what they want."""
    async with asyncio.TaskGroup() as group:
        for user in users:
            group.create_task(user.live(), name=user.request_id)
            await asyncio.sleep(seconds / len(users))


async def _break(breaker: Breaker, seconds: float) -> float:
    """Break processes and servers side by side for this time; return how long it took, the last mending included."""
    began, stop = time.monotonic(), asyncio.Event()
    asyncio.get_running_loop().call_later(seconds, stop.set)
    async with asyncio.TaskGroup() as group:
        group.create_task(breaker.run(breaker.processes, 0.6, stop, shuffled=True), name="breaker of processes")
        group.create_task(breaker.run(breaker.servers, 1.0, stop, shuffled=False), name="breaker of servers")
    return round(time.monotonic() - began, 1)


async def _check(board: Blackboard, users: list[User], history: History, figures: Figures) -> None:
    """Hold the record against the board."""
    figures.accepted, figures.answered = len(history.opened), len(history.observed)
    dead = await board.dead_list(DEAD_LIMIT)
    wrong: Counter[str] = Counter()
    for user in users:
        if user.request_id not in history.opened:
            continue
        if user.expected is None:
            wrong["unfinished"] += 1
            status = (await board.read(user.request_id, ("status",))).value("status")
            figures.broken.append(f"{user.request_id}: {user.wish.__name__} did not end; its status is {status!r}")
            continue
        found = await broken_promises(board, user.expected, dead)
        figures.broken += [f"{user.request_id} ({user.wish.__name__}): {what}" for what in found]
        wrong["lost"] += any(what.startswith("lost") for what in found)
        wrong["doubled"] += any("results in epoch" in what or "times in epoch" in what for what in found)
        wrong["without_answer"] += any("without an answer" in what for what in found)
        wrong["unfinished"] += any(what.startswith("not finished") for what in found)
        wrong["wrong"] += bool(found)
    for name, count in wrong.items():
        setattr(figures, name, count)
    known = set(await board.recent("default", 10 * len(users)))
    figures.broken += [f"{request}: nobody has submitted it" for request in known - history.asked]


def _strange_ends(where: World) -> list[str]:
    """Processes that ended as none should: told to end, without a server at the start, or by a signal of ours are as they should."""
    fine = {DONE, UNREACHABLE, -signal.SIGKILL, -signal.SIGTERM}
    return [
        f"{each.name} ended with {code}, {count} times" for each in where.processes for code, count in each.ends.items() if code not in fine
    ]
