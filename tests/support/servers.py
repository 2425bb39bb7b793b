"""Throw-away servers for tests that stop, kill or pause one: `async with OwnRedis(tmp_path) as redis: ...`

They run on the configuration that Briefline ships, on a free port of loopback. `start`, `stop` and `kill` block until
the server answers or is gone (a RabbitMQ needs about 5 s to start): on a loop, call them by `asyncio.to_thread`.
Port and folder stay the same over restarts. Mark such tests `own_server`.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
import time
from types import TracebackType
from typing import Self

from ops.own_clusters import RedisCluster
from ops.own_servers import OwnServer, RabbitMQProcess, RedisProcess
from tests.support.boards import LEASE_SECONDS


class _ThrowAway(OwnServer):
    """A server that lives as long as its `with` or `async with` block, and can be hurt."""

    def kill(self) -> None:
        """Ends it by SIGKILL: what was not on disk is lost, clients see a reset."""
        self._end(signal.SIGKILL)

    def pause(self) -> None:
        """Holds it by SIGSTOP: connections stay open and nothing answers, as behind a dead line."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Lets it go on after `pause`."""
        self._signal(signal.SIGCONT)

    def _signal(self, sign: signal.Signals) -> None:
        if self.pid is not None:
            os.kill(self.pid, sign)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.kill()

    async def __aenter__(self) -> Self:
        await asyncio.to_thread(self.start)
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await asyncio.to_thread(self.kill)


class OwnRedis(_ThrowAway, RedisProcess):
    """A Redis of the test's own; `options` win over the shipped redis.conf."""


def grown(cluster: RedisCluster, seconds: int = LEASE_SECONDS) -> None:
    """Wait until each node is that old: a young server counts as one that was away, and nobody takes a step over."""
    for index in range(len(cluster.nodes)):
        while not (told := re.search(rb"uptime_in_seconds:(\d+)", cluster.command(index, "INFO", "server"))) or int(told[1]) < seconds:
            time.sleep(0.05)


class OwnRabbitMQ(_ThrowAway, RabbitMQProcess):
    """A RabbitMQ of the test's own; `options` win over the shipped rabbitmq.conf, `control(...)` is its rabbitmqctl."""
