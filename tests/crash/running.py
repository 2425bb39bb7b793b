"""One crash after the other: arm a process, let users do their story, see the process die, and check what came of it.

Lanes run side by side, since most of a trial is waiting for a lease or a mark; a lane tries one crash at a time.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

from schemas.broker import BROKER_DEAD_QUEUE, COMMANDS_QUEUE, RESULTS_QUEUE, task_queue
from schemas.errors import BrieflineError
from tests.crash import teams
from tests.crash.checking import DEAD_LIMIT, Expected, broken_promises
from tests.crash.lanes import CLIENT, SERVING, Lane, lane, until
from tests.crash.nursery import nursery
from tests.crash.scenarios import SCENARIOS

REACHED_SECONDS = 12.0
"""How long after the story the process may take to come to a point of the sweeper's."""
SECOND_SECONDS = 1.0
QUIET_SECONDS = 0.3
"""What follows the end of a request and tells nobody: acks, the last marks. Only the place in the record depends on it."""
SETTLED_SECONDS = 15.0
"""How long an index may be behind the board."""


@dataclass(frozen=True)
class Trial:
    """A story, and the points at which the process dies: at the first one, and after its restart at the second."""

    scenario: str
    points: tuple[str, ...]

    @property
    def role(self) -> str:
        """Who dies."""
        return self.points[0].partition(":")[0]


@dataclass(frozen=True)
class Tried:
    """What came of a trial. `died` is at how many of its points the process died."""

    trial: Trial
    died: int
    broken: tuple[str, ...]
    seconds: float

    @property
    def outcome(self) -> str:
        """In a word."""
        return "BROKEN" if self.broken else "recovered" if self.died else "not reached"


async def attempt(where: Lane, trial: Trial) -> Tried:
    """Try one crash (or two)."""
    began = time.monotonic()
    role = where.roles[trial.role]
    await where.arm(trial.role, *trial.points)
    broken: list[str] = []
    try:
        expected = await SCENARIOS[trial.scenario](where)
        await _died(where, trial)
        broken = await promises_after(where, expected)
    except (AssertionError, BrieflineError, TimeoutError) as error:
        broken.append(f"{type(error).__name__}: {error}")
    died, seconds = role.died, time.monotonic() - began
    if trial.role == CLIENT:
        role.arms.clear()
    elif died < len(trial.points):
        await where.arm(trial.role)
    return Tried(trial, died, tuple(broken), seconds)


async def _died(where: Lane, trial: Trial) -> None:
    role = where.roles[trial.role]

    async def first() -> bool:
        return role.died > 0

    async def second() -> bool:
        return role.died > 1

    if trial.role == CLIENT:
        return
    await until(first, REACHED_SECONDS, pause_seconds=0.05)
    if len(trial.points) > 1:
        await until(second, SECOND_SECONDS, pause_seconds=0.05)


async def promises_after(where: Lane, expected: Sequence[Expected]) -> list[str]:
    """Return what is broken once all is over and the indexes had time to follow the board."""
    found: list[str] = []

    async def all_is_well() -> bool:
        dead = await where.board.dead_list(DEAD_LIMIT)
        found[:] = [f"{each.request_id}: {what}" for each in expected for what in await broken_promises(where.board, each, dead)]
        return not found

    await until(all_is_well, SETTLED_SECONDS)
    return found


async def left_over(where: Lane) -> list[str]:
    """Return what a lane should not have when all of its requests are over: messages that nobody takes, processes that failed."""
    queues = (RESULTS_QUEUE, COMMANDS_QUEUE, BROKER_DEAD_QUEUE, task_queue(teams.AGENT))

    async def emptied() -> bool:
        return not any([await where.waiting(queue) for queue in queues])

    found = [] if await until(emptied, SETTLED_SECONDS) else ["messages lie in a queue of work"]
    return found + [
        f"a process of {role.name} ended with {code}, {count} times" for role in where.roles.values() for code, count in role.ended.items()
    ]


async def attempt_all(
    trials: Iterable[Trial],
    redis_url: str,
    rabbitmq_url: str,
    folder: Path,
    *,
    lanes: int = 8,
    tell: Callable[[Tried], None] = lambda _: None,
) -> tuple[list[Tried], list[str]]:
    """Try all of these, `lanes` at a time; `tell` what came of each at once, return it all, and what was left over."""
    waiting = list(trials)
    tried: list[Tried] = []
    left: list[str] = []
    async with nursery(folder) as forks, AsyncExitStack() as stack, asyncio.TaskGroup() as group:
        for number in range(min(lanes, len(waiting))):
            where = await stack.enter_async_context(lane(forks, redis_url, rabbitmq_url, folder))
            group.create_task(_work_off(where, waiting, tried, left, tell), name=f"lane {number}")
    return tried, left


async def _work_off(where: Lane, waiting: list[Trial], tried: list[Tried], left: list[str], tell: Callable[[Tried], None]) -> None:
    for role in SERVING:
        where.begin(role)
    while waiting:
        tried.append(await attempt(where, waiting.pop(0)))
        tell(tried[-1])
    left += await left_over(where)


async def record(redis_url: str, rabbitmq_url: str, folder: Path, wanted: Collection[str]) -> dict[str, dict[str, list[str]]]:
    """Run the stories without any crash, one after the other: scenario -> role -> the points that were passed, in order.

    What the sweeper does after a story stands under a later one. At the end it is given time to come to what is `wanted`.
    """
    found: dict[str, dict[str, list[str]]] = {}
    async with nursery(folder) as forks, lane(forks, redis_url, rabbitmq_url, folder) as where:
        where.records = folder
        for role in SERVING:
            where.begin(role)
        for name, scenario in SCENARIOS.items():
            if broken := await promises_after(where, await scenario(where)):
                raise AssertionError(f"{name} without any crash: {broken}")
            await asyncio.sleep(QUIET_SECONDS)
            found[name] = {role: _taken(folder / role) for role in where.roles}
        later: dict[str, list[str]] = {role: [] for role in where.roles}
        found["afterwards"] = later

        async def all_passed() -> bool:
            for role, points in later.items():
                points += _taken(folder / role)
            return passed(found).keys() >= set(wanted)

        await until(all_passed, SETTLED_SECONDS)
    return found


def _taken(path: Path) -> list[str]:
    """The lines of a file, which is emptied."""
    if not path.exists():
        return []
    taken = path.with_suffix(".taken")
    path.rename(taken)
    return taken.read_text().split()


def passed(recorded: dict[str, dict[str, list[str]]]) -> Counter[str]:
    """How often each point was passed."""
    return Counter(point for roles in recorded.values() for points in roles.values() for point in points)
