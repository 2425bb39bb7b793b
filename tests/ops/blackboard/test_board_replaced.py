"""A board that comes back as another one, or as itself: what a client notices, and what becomes of those who wait."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio import Redis
from structlog.testing import capture_logs

from ops.blackboard.memory import MemoryBlackboard
from ops.blackboard.redis import RedisBlackboard
from ops.broker.memory import MemoryBroker
from ops.client import Client
from ops.embedded import serving
from schemas.blackboard import Blackboard
from schemas.broker import UNREADABLE_QUEUE
from schemas.errors import NotFound, Unavailable
from tests.ops.broker.bench import eventually
from tests.support.boards import Bench, opening, orchestrator
from tests.support.servers import OwnRedis
from tests.system.cast import Cast, Gate, step

PREFIX = "board"


def board_on(server: OwnRedis) -> RedisBlackboard:
    """A client that notices quickly that its server is gone."""
    return RedisBlackboard(server.url, prefix=PREFIX, call_timeout_seconds=0.5, deadline_seconds=8.0, lease_seconds=0.4)


def replaced(logs: list[Any]) -> list[tuple[str, str]]:
    """Old and new id of each change that was logged."""
    return [(entry["old"], entry["new"]) for entry in logs if entry["event"] == "board_replaced"]


async def answers(board: Blackboard) -> None:
    """Return once the board answers again."""

    async def answered() -> bool:
        try:
            await board.read("nothing", ("request",))
        except Unavailable:
            return False
        return True

    await eventually(answered, seconds=20)


async def board_id(server: OwnRedis) -> str:
    """The id as it stands in the server."""
    client = Redis.from_url(server.url, socket_timeout=5)
    try:
        found = await client.get(f"{PREFIX}:board")
    finally:
        await client.aclose()
    return found.decode() if isinstance(found, bytes) else ""


@pytest.mark.own_server
async def test_a_request_on_a_board_that_comes_back_empty_is_reported_gone_and_nothing_is_pretended(tmp_path: Path) -> None:
    gate, cast = Gate(), Cast()
    cast.acts["a"] = gate
    with OwnRedis(tmp_path / "redis", options={"appendonly": "no"}) as server, capture_logs() as logs:
        team = cast.team(step("a"), step("b", "a"))
        async with board_on(server) as board, MemoryBroker() as broker, serving(board, broker, team) as runtime:
            before = await board_id(server)
            client = Client(board, broker, look_seconds=0.2)
            accepted = await client.submit(runtime.team, "Please.")
            waiting = asyncio.create_task(client.wait(accepted.request_id))
            begun = asyncio.Event()
            following = asyncio.create_task(follow_to_the_end(client, accepted.request_id, begun))
            await asyncio.gather(gate.entered.wait(), begun.wait())
            await asyncio.to_thread(server.kill)
            await asyncio.to_thread(server.start)
            for told in (waiting, following):
                with pytest.raises(NotFound, match="no longer has request"):
                    await asyncio.wait_for(told, 20)
            gate.opened.set()
            await answers(board)
            with pytest.raises(NotFound):
                await client.show(accepted.request_id)
            with pytest.raises(NotFound):
                await client.replay(accepted.request_id, "a")
            assert not await client.recent() and not await client.dead()
            assert (await board.read(accepted.request_id, ("status",))).position == 0, "nobody opened it anew"

            after = await board_id(server)
            assert replaced(logs) == [(before, after)], "once per change"
            said = [finding for finding in await board.check() if before in finding.what]
            assert [finding.level for finding in said] == ["warn"] and after in said[0].what

            fresh = await client.submit(runtime.team, "Please, once more.")
            assert await asyncio.wait_for(client.wait(fresh.request_id), 20) == "COMPLETED"
            assert cast.runs["b"] == 1
            parked = [bell for bell in broker.bodies(UNREADABLE_QUEUE) if fresh.request_id.encode() in bell]
            assert not parked
            assert replaced(logs) == [(before, after)]


async def follow_to_the_end(client: Client, request_id: str, begun: asyncio.Event) -> None:
    """Follow a request to its end; `begun` is set at the first report."""
    async for _ in client.follow(request_id):
        begun.set()


@pytest.mark.own_server
async def test_a_task_of_a_request_that_the_new_board_does_not_have_is_parked_with_the_reason(tmp_path: Path) -> None:
    cast = Cast()
    with OwnRedis(tmp_path / "redis", options={"appendonly": "no"}) as server:
        async with board_on(server) as board, MemoryBroker() as broker:
            client = Client(board, broker)
            team = cast.team(step("a"))
            accepted = await client.submit(team, "Please.")
            await asyncio.to_thread(server.kill)
            await asyncio.to_thread(server.start)
            await answers(board)
            async with serving(board, broker, team):

                async def parked() -> bool:
                    return broker.depth(UNREADABLE_QUEUE) == 1

                await eventually(parked, seconds=20)
            assert accepted.request_id.encode() in broker.bodies(UNREADABLE_QUEUE)[0]
            assert "no such request" in broker.reasons(UNREADABLE_QUEUE)[0]
    assert not cast.runs


@pytest.mark.own_server
async def test_a_board_that_comes_back_with_its_data_is_the_same_and_nothing_is_reported(tmp_path: Path) -> None:
    with OwnRedis(tmp_path / "redis", options={"appendfsync": "always"}) as server, capture_logs() as logs:
        async with board_on(server) as board:
            bench = Bench(board)
            await bench.put(opening())
            before = await board_id(server)
            await asyncio.to_thread(server.kill)
            await asyncio.to_thread(server.start)
            await answers(board)
            assert (await bench.read("request")).position == 1
            assert await board_id(server) == before
            (said,) = [finding for finding in await board.check() if before in finding.what]
            assert said.level == "ok"
        assert not replaced(logs)


@pytest.mark.own_server
async def test_a_board_without_memory_left_can_still_be_connected_to_and_its_id_be_read(tmp_path: Path) -> None:
    with OwnRedis(tmp_path / "redis") as server:
        async with board_on(server) as board:
            await Bench(board).put(orchestrator({"plan": b"1"}))
        client = Redis.from_url(server.url, socket_timeout=5)
        await client.config_set("maxmemory", "1")
        async with board_on(server) as board:
            before = await board_id(server)
            assert any(before in finding.what for finding in await board.check())
        await client.aclose()


async def test_every_client_of_one_prefix_meets_the_same_board_and_other_prefixes_are_other_boards(redis_url: str, key_prefix: str) -> None:
    async def met(prefix: str) -> str:
        async with RedisBlackboard(redis_url, prefix=prefix) as board:
            (said,) = [finding.what for finding in await board.check() if finding.what.startswith("board ")]
            return said

    together = await asyncio.gather(*(met(key_prefix) for _ in range(8)))
    assert len(set(together)) == 1
    assert await met(f"{key_prefix}-other") not in together


async def test_a_wait_on_a_request_that_the_board_forgets_ends_and_says_so() -> None:
    async with MemoryBlackboard() as board, MemoryBroker() as broker:
        client = Client(board, broker, look_seconds=0.02)
        accepted = await client.submit(Cast().team(step("a")), "Please.")
        waiting = asyncio.create_task(client.wait(accepted.request_id))
        await asyncio.sleep(0)
        del board._requests[accepted.request_id]
        with pytest.raises(NotFound, match="no longer has request"):
            await asyncio.wait_for(waiting, 5)


async def test_a_wait_on_a_board_that_was_set_back_begins_anew() -> None:
    async with MemoryBlackboard() as board, MemoryBroker() as broker:
        client = Client(board, broker, look_seconds=0.02)
        cast = Cast()
        team = cast.team(step("a"))
        accepted = await client.submit(team, "Please.")
        kept = board._requests[accepted.request_id]
        await board.write(accepted.request_id, orchestrator(labels={"event": "a note that is lost"}))
        waiting = asyncio.create_task(client.wait(accepted.request_id))
        await asyncio.sleep(0)
        del kept.events[1:]
        async with serving(board, broker, team):
            assert await asyncio.wait_for(waiting, 10) == "COMPLETED"
