"""Recovery: how long a step waits for another worker when its own is killed, and how long the first result takes when the
broker is back. Measured by the clock of this process, on the servers of the run, with the settings as they come.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable
from contextlib import AbstractAsyncContextManager, AbstractContextManager, aclosing
from dataclasses import dataclass
from subprocess import Popen
from typing import IO

import uvloop

from ops.bench.children import running
from ops.bench.peers.asking import ask
from ops.bench.peers.on_briefline import WORKER
from ops.bench.peers.peer import payload
from ops.bench.peers.queues import served
from ops.bench.running import Servers
from ops.bench.teams import chain, held
from ops.broker.topology import DEFAULT_PREFIX
from ops.embedded import Runtime
from ops.settings import load_settings
from ops.wiring import connected
from schemas.blackboard import Blackboard
from schemas.broker import Broker

PATIENCE_SECONDS = 60.0
LANES = 8
"""How many clients ask one request after the other while the broker is away."""


@dataclass(frozen=True)
class Recovery:
    """Measures on these servers; what its processes write goes to `log`."""

    servers: Servers
    log: IO[str]

    def killed_worker_seconds(self) -> float:
        """Seconds from kill -9 of the worker that runs a step to the start of that step on another.

        Raises:
            TimeoutError: the step did not start again within a minute.
        """
        with self._process("briefline", "orchestrator"):
            return uvloop.run(_bounded(self._kill()))

    def broker_back_seconds(self) -> float:
        """Seconds from the first answer of a broker that was stopped and started to the first request that is answered then.

        Raises:
            TimeoutError: none was answered within a minute.
        """
        with self._process("briefline", "orchestrator"), self._process(*WORKER), self._process(*WORKER):
            return uvloop.run(_bounded(self._restart()))

    def _process(self, *command: str) -> AbstractContextManager[Popen[bytes]]:
        return running(command, self.servers.environment, self.log)

    def _connected(self) -> AbstractAsyncContextManager[tuple[Blackboard, Broker]]:
        return connected(load_settings({"rabbitmq_url": self.servers.rabbitmq.url, "redis_url": self.servers.redis.url}, env_file=None))

    async def _served(self, agent: str, workers: int) -> None:
        await served(self.servers.rabbitmq.url, {f"{DEFAULT_PREFIX}.results": 1, f"{DEFAULT_PREFIX}.tasks.{agent}": workers})

    async def _kill(self) -> float:
        async with self._connected() as (board, broker):
            runtime = Runtime(board, broker, held)
            with self._process(*WORKER) as first:
                await self._served("holder", 1)
                request = (await runtime.submit(held, "Hold the worker.")).request_id
                claimed = await _claimed(board, request, after=0)
                with self._process(*WORKER):
                    await self._served("holder", 2)
                    first.kill()
                    began = time.perf_counter()
                    await _claimed(board, request, after=claimed)
                    seconds = time.perf_counter() - began
                    await runtime.wait(request)
            return seconds

    async def _restart(self) -> float:
        async with self._connected() as (board, broker):
            runtime = Runtime(board, broker, chain)
            answered: asyncio.Queue[float] = asyncio.Queue()

            async def lane() -> None:
                while True:
                    await ask(runtime, payload(0))
                    answered.put_nowait(time.perf_counter())

            await self._served("a", 2)
            lanes = [asyncio.create_task(lane()) for _ in range(LANES)]
            try:
                for _ in lanes:
                    await answered.get()
                await asyncio.to_thread(self.servers.rabbitmq.stop)
                await asyncio.to_thread(self.servers.rabbitmq.start)
                back = time.perf_counter()
                while (at := await answered.get()) < back:  # what was answered before it was away
                    pass
                return at - back
            finally:
                for each in lanes:
                    each.cancel()
                await asyncio.gather(*lanes, return_exceptions=True)


async def _bounded(measuring: Awaitable[float]) -> float:
    async with asyncio.timeout(PATIENCE_SECONDS):
        return await measuring


async def _claimed(board: Blackboard, request: str, after: int) -> int:
    """Return the position of the next claim of the request's step."""
    async with aclosing(board.watch(request, after)) as events:
        async for event in events:
            if event.labels.get("event") == "step_claimed":
                return event.position
    raise AssertionError("a watch has no end of its own")
