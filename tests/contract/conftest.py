"""Every implementation of the blackboard, one after the other: in memory, on Redis, on a Redis in cluster mode, on a cluster of three."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio

from ops.own_clusters import RedisCluster
from tests.support.boards import Bench, bench_of
from tests.support.servers import grown

BOARDS = [
    "memory",
    pytest.param("redis", marks=pytest.mark.servers),
    pytest.param("cluster", marks=pytest.mark.own_server),
    pytest.param("nodes", marks=pytest.mark.own_server),
]


@pytest.fixture(scope="session")
def cluster_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A cluster of one node with all slots: it refuses what touches keys of two slots."""
    with RedisCluster(tmp_path_factory.mktemp("cluster")) as cluster:
        grown(cluster)
        yield cluster.url


@pytest.fixture(scope="session")
def nodes_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A cluster of three nodes, each with a third of the slots."""
    with RedisCluster(tmp_path_factory.mktemp("nodes"), nodes=3) as cluster:
        grown(cluster)
        yield cluster.url


@pytest_asyncio.fixture(params=BOARDS)
async def bench(request: pytest.FixtureRequest) -> AsyncIterator[Bench]:
    """A board with a request of the test's own."""
    url = prefix = ""
    if request.param == "redis":
        url, prefix = request.getfixturevalue("redis_url"), request.getfixturevalue("key_prefix")
    elif request.param in ("cluster", "nodes"):
        url, prefix = request.getfixturevalue(f"{request.param}_url"), f"test-{secrets.token_hex(4)}"
    async with bench_of("memory" if request.param == "memory" else "redis", url, prefix) as bench:
        yield bench
