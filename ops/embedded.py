"""The embedded runtime: board, broker, orchestrator and worker in one process, with no server.

For notebooks, tests and the demo. The orchestrator and worker are the same code as on servers.

    async with embedded(team) as runtime:
        answer = await runtime.ask("...")
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import structlog

from ops.artifacts.keeping import KeptArtifacts
from ops.artifacts.memory import MemoryShelf
from ops.auditing import Audit
from ops.blackboard.memory import MemoryBlackboard
from ops.broker.memory import MemoryBroker
from ops.client import Client
from ops.logs import configure
from ops.opening import Accepted
from ops.reporting import Report
from orchestrator.handing_on import HandingOn
from orchestrator.orchestrator import Orchestrator
from schemas.artifacts import ArtifactStore
from schemas.blackboard import Blackboard
from schemas.broker import Broker
from workers.team import Team
from workers.worker import Worker


class Runtime(Client):
    """A client whose team is at hand, so that it need not be named in each call."""

    def __init__(self, board: Blackboard, broker: Broker, team: Team, artifacts: ArtifactStore | None = None) -> None:
        super().__init__(board, broker)
        self.team = team
        self.artifacts: ArtifactStore = artifacts or KeptArtifacts(MemoryShelf())
        self.board = board
        self.broker = broker

    async def ask(self, text: str, *, constraints: Mapping[str, object] | None = None, deadline_seconds: float | None = None) -> Report:
        """Submit a request, wait until it is over, and return its report: answer, steps, facts, briefs, events.

        Raises:
            Refused: bad input; see `ops.producer.submit`.
        """
        accepted = await self.submit(self.team, text, constraints=constraints, deadline_seconds=deadline_seconds)
        return await self.result(accepted)

    async def result(self, accepted: Accepted | str) -> Report:
        """Wait until a request is over, and return its report."""
        request_id = accepted if isinstance(accepted, str) else accepted.request_id
        await self.wait(request_id)
        return await self.show(request_id)

    async def show(self, request_id: str, team: Team | None = None, *, at: int | None = None) -> Report:
        """Return everything that can be said of a request, now or as it was after an event."""
        return await super().show(request_id, team or self.team, at=at)

    async def audit(self, request_id: str, team: Team | None = None) -> Audit:
        """Return what an acceptance audit finds of a request."""
        return await super().audit(request_id, team or self.team)


@asynccontextmanager
async def embedded(
    team: Team, *, concurrency: int = 8, workers: int = 1, lease_seconds: float = 5.0, artifacts: ArtifactStore | None = None
) -> AsyncIterator[Runtime]:
    """Run a team in this process until the context is left; what then still runs is stopped, and gone with it.

    Artifacts are kept in memory unless there is another store for them. A program that has not set up structlog sees warnings
    only, on standard error.
    """
    if not structlog.is_configured():
        configure("WARNING", "console")
    async with (
        MemoryBlackboard(lease_seconds=lease_seconds) as board,
        MemoryBroker() as broker,
        serving(board, broker, team, concurrency=concurrency, workers=workers, lease_seconds=lease_seconds, artifacts=artifacts) as runtime,
    ):
        yield runtime


@asynccontextmanager
async def serving(
    board: Blackboard,
    broker: Broker,
    team: Team,
    *,
    concurrency: int = 8,
    workers: int = 1,
    orchestrators: int = 1,
    lease_seconds: float = 5.0,
    artifacts: ArtifactStore | None = None,
    quick_seconds: float = 0.1,
) -> AsyncIterator[Runtime]:
    """Run orchestrators and workers in this process, over any board and broker, until the context is left.

    `quick_seconds`: see `workers.worker.Worker`.

    What the block raises comes out as it is, and not in a group.
    """
    failure: Exception | None = None
    artifacts = artifacts or KeptArtifacts(MemoryShelf())
    async with asyncio.TaskGroup() as group:
        stop = asyncio.Event()
        ready: list[asyncio.Event] = []

        def start(serve: Orchestrator | Worker) -> None:
            ready.append(asyncio.Event())
            group.create_task(serve.run(ready=ready[-1], stop=stop), name=serve.name)

        for _ in range(orchestrators):
            start(Orchestrator(board, broker, reducers=team.reducers))
        for _ in range(workers):
            worker = Worker(
                board,
                broker,
                team,
                concurrency=concurrency,
                lease_seconds=lease_seconds,
                grace_seconds=0.0,
                artifacts=artifacts,
                onward=HandingOn(board, broker),
                quick_seconds=quick_seconds,
            )
            start(worker)
        for event in ready:
            await event.wait()
        try:
            yield Runtime(board, broker, team, artifacts)
        except Exception as error:  # kept out of the group, which would wrap it
            failure = error
        finally:
            stop.set()
    if failure is not None:
        raise failure
