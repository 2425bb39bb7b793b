"""Every implementation of the blackboard, one after the other: in memory, on Redis, on a Redis in cluster mode."""

from __future__ import annotations

import secrets
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio
import redis

from tests.support.boards import LEASE_SECONDS, Bench, bench_of
from tests.support.servers import OwnRedis

BOARDS = ["memory", pytest.param("redis", marks=pytest.mark.servers), pytest.param("cluster", marks=pytest.mark.own_server)]


@pytest.fixture(scope="session")
def cluster_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A cluster of one node with all slots: it refuses what touches keys of two slots."""
    folder: Path = tmp_path_factory.mktemp("cluster")
    options = {"cluster-enabled": "yes", "cluster-require-full-coverage": "no", "cluster-port": "0"}
    with OwnRedis(folder, options=options) as server, redis.Redis.from_url(server.url, socket_timeout=10) as client:
        client.execute_command("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
        while b"cluster_state:ok" not in client.execute_command("CLUSTER", "INFO"):
            time.sleep(0.05)
        # A young server counts as one that was away: nobody takes a step over.
        while int(client.info("server")["uptime_in_seconds"]) < LEASE_SECONDS:
            time.sleep(0.05)
        yield server.url


@pytest_asyncio.fixture(params=BOARDS)
async def bench(request: pytest.FixtureRequest) -> AsyncIterator[Bench]:
    """A board with a request of the test's own."""
    url = prefix = ""
    if request.param == "redis":
        url, prefix = request.getfixturevalue("redis_url"), request.getfixturevalue("key_prefix")
    elif request.param == "cluster":
        url, prefix = request.getfixturevalue("cluster_url"), f"test-{secrets.token_hex(4)}"
    async with bench_of("memory" if request.param == "memory" else "redis", url, prefix) as bench:
        yield bench
