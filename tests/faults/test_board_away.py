"""A Redis that goes away while agents run, cuts off a slow subscriber, or comes back with less than it had."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import pytest_asyncio
from redis.asyncio import Redis
from structlog.testing import capture_logs

from ops.blackboard.redis import RedisBlackboard
from ops.broker.memory import MemoryBroker
from ops.embedded import serving
from schemas import fields
from tests.ops.broker.bench import eventually
from tests.support.boards import Bench, orchestrator
from tests.support.servers import OwnRedis
from tests.system.cast import Cast, Gate, step
from tests.system.conftest import hold_still
from tests.system.reports import named

pytestmark = [pytest.mark.timeout(90), pytest.mark.own_server]

PREFIX = "board"


@pytest_asyncio.fixture
async def server(tmp_path: Path) -> AsyncIterator[OwnRedis]:
    """A Redis of the test's own; one starts in a fraction of a second."""
    async with OwnRedis(tmp_path / "redis") as redis:
        yield redis


@asynccontextmanager
async def board_on(server: OwnRedis, *, lease: float = 1.0) -> AsyncIterator[RedisBlackboard]:
    """A board on the server, whose calls give up soon."""
    async with RedisBlackboard(server.url, prefix=PREFIX, call_timeout_seconds=0.5, deadline_seconds=4.0, lease_seconds=lease) as board:
        yield board


@asynccontextmanager
async def admin_of(server: OwnRedis) -> AsyncIterator[Redis]:
    """A plain client beside the board."""
    client = Redis.from_url(server.url, socket_timeout=5, protocol=2)
    try:
        yield client
    finally:
        await client.aclose()


async def told(server: OwnRedis, *command: str) -> None:
    """Send one command."""
    async with admin_of(server) as admin:
        await admin.execute_command(*command)  # type: ignore[no-untyped-call]  # redis-py leaves it untyped


async def hurt(server: OwnRedis, how: str) -> None:
    """Take the board away in one of the ways in which a board goes."""
    match how:
        case "stopped":
            await asyncio.to_thread(server.stop)
        case "standing still":
            server.pause()
        case "a replica now":
            await told(server, "REPLICAOF", "127.0.0.1", "1")
        case "out of memory":
            await told(server, "CONFIG", "SET", "maxmemory", "1")


async def heal(server: OwnRedis, how: str) -> None:
    """Bring it back."""
    match how:
        case "stopped":
            await asyncio.to_thread(server.start)
        case "standing still":
            server.resume()
        case "a replica now":
            await told(server, "REPLICAOF", "NO", "ONE")
        case "out of memory":
            await told(server, "CONFIG", "SET", "maxmemory", "0")


@pytest.mark.parametrize("how", ["stopped", "standing still", "a replica now", "out of memory"])
async def test_a_result_is_held_until_the_board_is_back_and_lands_once(server: OwnRedis, how: str) -> None:  # F40, F44, F53
    gate, cast = Gate(), Cast()
    cast.acts["a"] = gate
    async with board_on(server) as board, MemoryBroker() as broker:
        async with serving(board, broker, cast.team(step("a"), step("b", "a")), lease_seconds=1.0) as runtime:
            accepted = await runtime.submit(runtime.team, "Please.")
            await gate.entered.wait()
            with capture_logs() as logs:
                await hurt(server, how)
                gate.opened.set()
                await asyncio.sleep(2.5)  # longer than the lease: whoever could be taken for dead would be by now
                assert not [each for each in logs if each["event"] in ("step_completed", "late_result_refused", "step_failed")]
                await heal(server, how)
                report = await runtime.result(accepted)
        await hold_still(board, accepted.request_id)

    assert report.status == "COMPLETED" and cast.runs == {"a": 1, "b": 1}
    assert [event.labels["attempt"] for event in named(report.events, "step_claimed")] == ["1", "1"]
    assert sum(fields.result("a") in event.put for event in report.events) == 1
    assert [each["event"] for each in logs if each.get("step") == "a"] == ["step_completed"]


# What is there after a crash of the server, held against what `briefline check` says of its settings.

HALF = 25
LOSES = {
    "no persistence": "loses everything since its last snapshot, or everything",
    "snapshots": "loses everything since its last snapshot, or everything",
    "everysec": "a crash of the server up to two",
    "always": "an answered write is on disk",
}


@pytest.mark.parametrize("kept", LOSES)
async def test_a_killed_server_comes_back_with_no_less_than_its_settings_promise(tmp_path: Path, kept: str) -> None:  # F43
    off = {"appendonly": "no"}
    options = {"no persistence": off, "snapshots": off, "everysec": {"appendfsync": "everysec"}, "always": {"appendfsync": "always"}}
    async with OwnRedis(tmp_path / "redis", options=options[kept]) as server, board_on(server) as board:
        assert any(LOSES[kept] in finding.what for finding in await board.check())
        bench = Bench(board)
        for number in range(HALF):
            await bench.put(orchestrator({f"plan/{number}": b"1"}))
        if kept == "snapshots":
            await told(server, "SAVE")
        elif kept == "everysec":
            await asyncio.sleep(2.1)
        for number in range(HALF, 2 * HALF):
            await bench.put(orchestrator({f"plan/{number}": b"1"}))
        await asyncio.to_thread(server.kill)
        await asyncio.to_thread(server.start)
        there = (await bench.read("plan/0")).position
        await hold_still(board, bench.request_id)

    least, most = {"no persistence": (0, 0), "snapshots": (HALF, HALF), "everysec": (HALF, 2 * HALF), "always": (2 * HALF, 2 * HALF)}[kept]
    assert least <= there <= most


async def test_a_subscriber_that_the_server_cuts_off_for_being_slow_misses_nothing(server: OwnRedis) -> None:  # F36
    async with board_on(server) as board, admin_of(server) as admin:
        bench = Bench(board)
        await admin.config_set("client-output-buffer-limit", "pubsub 32kb 32kb 1")
        watcher = board.watch(bench.request_id)

        async def subscribers() -> set[str]:
            return {each["id"] for each in await admin.client_list(_type="pubsub")}

        async def subscribed() -> bool:
            return bool(await subscribers())

        async with asyncio.timeout(20):
            for number in range(1, 4):
                waiting = asyncio.ensure_future(anext(watcher))
                await asyncio.sleep(0)
                await eventually(subscribed)
                before = await subscribers()
                await admin.publish(f"{PREFIX}:{{{bench.request_id}}}:events", "x" * 4_000_000)  # nothing that Briefline would send

                async def another(before: set[str] = before) -> bool:
                    return not before & await subscribers()

                await eventually(another)
                await bench.put(orchestrator({"plan": b"%d" % number}))
                assert (await waiting).position == number
        await watcher.aclose()
