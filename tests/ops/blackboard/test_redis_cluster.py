"""A Redis Cluster of three nodes: requests are spread over them, and slots and nodes may come and go.

What the port promises is shown by the contract suite, which runs on such a cluster too.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing

import pytest
import pytest_asyncio
from redis.crc import key_slot

from ops.blackboard.cluster import ClusterBlackboard
from ops.blackboard.keys import request_keys
from ops.blackboard.redis import RedisBlackboard
from ops.broker.memory import MemoryBroker
from ops.embedded import serving
from ops.findings import Level
from ops.own_clusters import RedisCluster
from ops.settings import load_settings
from ops.wiring import board_of
from schemas.blackboard import Written
from schemas.errors import Unavailable, UnsafeServer
from schemas.requests import RequestStatus
from tests.support.boards import opening, orchestrator
from tests.support.servers import grown
from tests.system.cast import Cast, step

pytestmark = [pytest.mark.own_server, pytest.mark.timeout(120)]
PREFIX = "p"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisCluster]:
    """Three nodes, each with a third of the slots."""
    with RedisCluster(tmp_path_factory.mktemp("nodes"), nodes=3) as cluster:
        grown(cluster)
        yield cluster


@pytest_asyncio.fixture
async def board(cluster: RedisCluster) -> AsyncIterator[ClusterBlackboard]:
    """A board on them."""
    async with ClusterBlackboard(cluster.url, prefix=PREFIX, call_timeout_seconds=0.5, deadline_seconds=4.0, lease_seconds=1.0) as board:
        yield board


NAMES = itertools.count()


def request_on(node: int) -> str:
    """A new request whose slot this node was given at first, of three."""
    return next(name for name in (f"r{n}" for n in NAMES) if slot_of(name) * 3 // 16_384 == node)


def slot_of(request_id: str) -> int:
    """The slot of all keys of a request."""
    slots = {key_slot(key.encode()) for key in request_keys(PREFIX, request_id)}
    assert len(slots) == 1
    return slots.pop()


def told(cluster: RedisCluster, node: int, *words: object) -> str:
    """What a node answers to a command, without its first line where that is a length."""
    answer = cluster.command(node, *words).decode()
    assert not answer.startswith("-"), answer
    return answer.partition("\r\n")[2].strip() if answer.startswith("$") else answer.strip()


def begin_move(cluster: RedisCluster, slot: int, source: int, target: int) -> None:
    """Let a slot be on its way."""
    told(cluster, target, "CLUSTER", "SETSLOT", slot, "IMPORTING", told(cluster, source, "CLUSTER", "MYID"))
    told(cluster, source, "CLUSTER", "SETSLOT", slot, "MIGRATING", told(cluster, target, "CLUSTER", "MYID"))


def end_move(cluster: RedisCluster, request_id: str, source: int, target: int) -> None:
    """Carry the request's keys over, and let the slot be there."""
    port, slot = cluster.nodes[target].port, slot_of(request_id)
    for key in request_keys(PREFIX, request_id):
        told(cluster, source, "MIGRATE", "127.0.0.1", port, key, 0, 5000)
    for node in (target, source, ({0, 1, 2} - {source, target}).pop()):
        told(cluster, node, "CLUSTER", "SETSLOT", slot, "NODE", told(cluster, target, "CLUSTER", "MYID"))


async def test_requests_are_spread_over_the_nodes_and_each_lies_on_one_whole(cluster: RedisCluster, board: ClusterBlackboard) -> None:
    for node in range(3):
        request_id = request_on(node)
        assert isinstance(await board.write(request_id, opening()), Written)
        for other in range(3):
            there = b":1\r\n" if other == node else b"-MOVED"
            assert all(cluster.command(other, "EXISTS", key).startswith(there) for key in request_keys(PREFIX, request_id)[:2])


async def test_whole_requests_run_on_a_cluster_of_three_nodes(board: ClusterBlackboard) -> None:
    team = Cast().team(step("a"), step("b", "a"), step("c", "a"), step("d", "b", "c"))
    async with MemoryBroker() as broker, serving(board, broker, team) as runtime:
        reports = await asyncio.gather(*(runtime.ask("please") for _ in range(20)))
        assert {report.status for report in reports} == {RequestStatus.COMPLETED}
        listed = {each.request_id for each in await runtime.recent()}
        assert {report.request_id for report in reports} <= listed
    assert len({slot_of(report.request_id) * 3 // 16_384 for report in reports}) == 3


async def test_a_request_whose_slot_moves_waits_for_its_arrival_and_goes_on_there(cluster: RedisCluster, board: ClusterBlackboard) -> None:
    request_id = request_on(0)
    begin_move(cluster, slot_of(request_id), 0, 1)
    writing = asyncio.create_task(board.write(request_id, opening()))  # no key of it is at the source: ASK
    done, _ = await asyncio.wait({writing}, timeout=0.3)
    assert not done
    end_move(cluster, request_id, 0, 1)
    written = await writing
    assert isinstance(written, Written)
    assert (await board.read(request_id, ("request",))).value("request") == b'"hello"'


async def test_a_watch_goes_along_when_the_slot_moves_and_misses_nothing(cluster: RedisCluster, board: ClusterBlackboard) -> None:
    request_id = request_on(1)
    await board.write(request_id, opening())
    async with asyncio.timeout(30), aclosing(board.watch(request_id)) as events, aclosing(board.watch_field(request_id, "status")) as seen:
        assert (await anext(events)).position == 1
        assert (await anext(seen)).position == 1
        begin_move(cluster, slot_of(request_id), 1, 2)
        end_move(cluster, request_id, 1, 2)
        await board.write(request_id, orchestrator({"status": b'"RUNNING"'}))
        assert (await anext(events)).position == 2
        assert (await anext(seen)).value("status") == b'"RUNNING"'


async def test_a_node_that_is_away_stops_its_own_requests_alone(cluster: RedisCluster, board: ClusterBlackboard) -> None:
    here, there = request_on(0), request_on(2)
    await asyncio.gather(*(board.write(each, opening()) for each in (here, there)))
    gone = cluster.nodes[2]
    for node in range(3):
        told(cluster, node, "CONFIG", "SET", "cluster-require-full-coverage", "no")
    await asyncio.to_thread(gone.stop)
    try:
        with pytest.raises(Unavailable):
            await board.read(there, ("request",))
        assert (await board.read(here, ("request",))).position == 1
        await board.due(10, 1000)
    finally:
        await asyncio.to_thread(gone.start)
    async with asyncio.timeout(30):
        while True:
            try:
                assert (await board.read(there, ("request",))).position == 1
            except Unavailable:
                continue
            break


async def test_one_node_of_several_under_a_plain_url_says_how_to_name_a_cluster(cluster: RedisCluster) -> None:
    async with RedisBlackboard(cluster.nodes[0].url, prefix=PREFIX) as plain:
        with pytest.raises(UnsafeServer, match=r"redis\+cluster://"):
            await plain.read(request_on(2), ("request",))


async def test_check_judges_every_node_and_the_settings_take_a_cluster(cluster: RedisCluster) -> None:
    board = board_of(load_settings({"redis_url": cluster.url}, env_file=None))
    assert isinstance(board, ClusterBlackboard)
    found = await board.check()
    assert found[0].what == "Redis Cluster of 3 nodes with slots"
    assert {finding.level for finding in found} == {Level.OK}
    for node in cluster.nodes:
        assert any(finding.what.startswith(f"127.0.0.1:{node.port}: Redis 7") for finding in found)
