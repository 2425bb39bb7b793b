"""Blackboards for tests: every implementation with a way to let time pass, and short ways to say a write."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import secrets
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field

from ops.blackboard.cluster import ClusterBlackboard
from ops.blackboard.memory import MemoryBlackboard
from ops.blackboard.redis import RedisBlackboard
from schemas.blackboard import ABSENT, After, Conflict, Held, Lease, Outcome, Snapshot, Write, Written
from schemas.requests import Role

_COUNT = itertools.count()

LEASE_SECONDS = 2
"""On a server younger than this nobody takes over (tests name lengths of their own for the leases they set)."""


@dataclass
class Clock:
    """A board clock that goes only when a test lets it."""

    seconds: float = 1_800_000_000.0

    def __call__(self) -> float:
        return self.seconds


@dataclass
class Bench:
    """A board under test, with the request that the test works on."""

    board: MemoryBlackboard | RedisBlackboard | ClusterBlackboard
    clock: Clock | None = None
    request_id: str = field(default_factory=lambda: f"r-{secrets.token_hex(6)}")

    async def pass_time(self, milliseconds: int) -> None:
        """Let the board's clock go on."""
        if self.clock is None:
            await asyncio.sleep(milliseconds / 1000)
        else:
            self.clock.seconds += milliseconds / 1000

    async def write(self, write: Write) -> Outcome:
        """Write to the bench's request."""
        return await self.board.write(self.request_id, write)

    async def put(self, write: Write) -> Written:
        """Write to the bench's request what must be taken."""
        outcome = await self.write(write)
        assert isinstance(outcome, Written), outcome
        return outcome

    async def refused(self, write: Write) -> Conflict | Held:
        """Write to the bench's request what must be refused."""
        outcome = await self.write(write)
        assert isinstance(outcome, Conflict | Held), outcome
        return outcome

    async def read(self, *fields: str) -> Snapshot:
        """Read fields of the bench's request."""
        return await self.board.read(self.request_id, fields)


def operation() -> str:
    """A new operation id."""
    return f"op-{os.getpid()}-{next(_COUNT):06d}{secrets.token_hex(3)}"


def orchestrator(
    put: Mapping[str, bytes] | None = None,
    expect: Mapping[str, str] | None = None,
    *,
    role: Role = Role.ORCHESTRATOR,
    id: str | None = None,
    lease: Lease | None = None,
    unheld: Sequence[str] = (),
    after: After | None = None,
    expire: int | None = None,
    returning: Sequence[str] = (),
    labels: Mapping[str, str] | None = None,
    cause: str = "",
) -> Write:
    """A write by the orchestrator, unless another role is named."""
    return Write(
        role=role,
        writer=f"{role.value} 1",
        operation_id=id or operation(),
        expect=expect or {},
        put=put or {},
        labels=labels or {},
        cause=cause,
        lease=lease,
        unheld=tuple(unheld),
        after=after,
        expire_after_seconds=expire,
        returning=tuple(returning),
    )


def opening(text: bytes = b'"hello"') -> Write:
    """The producer's first write."""
    absent = {"request": ABSENT, "status": ABSENT}
    return orchestrator({"request": text, "status": b'"ACCEPTED"'}, absent, role=Role.PRODUCER, labels={"event": "opened"})


def claim(step: str, version: str, *, lease_ms: int = 60_000, unheld: bool = True, returning: Sequence[str] = ()) -> Write:
    """A worker's claim of a step."""
    return orchestrator(
        {f"step/{step}": b'"RUNNING"'},
        {f"step/{step}": version},
        role=Role.WORKER,
        lease=Lease(step, lease_ms),
        unheld=(step,) if unheld else (),
        returning=returning,
    )


@contextlib.asynccontextmanager
async def bench_of(kind: str, url: str = "", prefix: str = "") -> AsyncIterator[Bench]:
    """A bench with a board of the kind `memory` or `redis`."""
    if kind == "memory":
        clock = Clock()
        async with MemoryBlackboard(clock=clock) as memory:
            yield Bench(memory, clock)
    else:
        board = ClusterBlackboard if url.startswith("redis+cluster") else RedisBlackboard
        async with board(url, prefix=prefix, lease_seconds=LEASE_SECONDS) as redis:
            yield Bench(redis)
