"""A thousand who wait: while nothing happens they ask nothing, and what one look tells is told to all."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from redis.asyncio import Redis

from ops.bench.counting import CountedBoard, CountedBroker, Counts
from ops.blackboard import redis as room
from ops.blackboard.memory import MemoryBlackboard
from ops.blackboard.redis import RedisBlackboard
from ops.broker.memory import MemoryBroker
from ops.client import Client
from schemas.errors import NotFound
from tests.growth.running import step, team_of
from tests.ops.broker.bench import eventually
from tests.support.servers import OwnRedis

WAITERS = 1000
LOOK_SECONDS = 0.4


async def followed(client: Client, request_id: str) -> None:
    """Watch a request, as `briefline watch` does."""
    async for _ in client.follow(request_id):
        pass


async def waited(client: Client, request_id: str) -> None:
    """Wait for the end of a request, as `briefline submit --wait` does."""
    await client.wait(request_id)


async def waiting(client: Client, number: int) -> list[asyncio.Task[None]]:
    """So many who wait for requests that nobody carries out: half of them as `submit --wait`, half as `watch`."""
    team = team_of(step("a"))
    accepted = [(await client.submit(team, "Please.")).request_id for _ in range(number)]

    begun = [followed(client, each) if n % 2 else waited(client, each) for n, each in enumerate(accepted)]
    return [asyncio.create_task(each) for each in begun]


async def calls(client: Redis) -> dict[str, int]:
    """How often each command was carried out."""
    return {name.removeprefix("cmdstat_"): each["calls"] for name, each in (await client.info("commandstats")).items()}


@pytest.mark.own_server
async def test_a_thousand_waiters_on_redis_ask_no_more_than_one_look_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "SAFETY_SECONDS", LOOK_SECONDS)
    with OwnRedis(tmp_path) as server:
        async with RedisBlackboard(server.url, stays_in_touch=False) as board, MemoryBroker() as broker, Redis.from_url(server.url) as look:
            tasks = await waiting(Client(board, broker, look_seconds=LOOK_SECONDS), WAITERS)

            async def quiet() -> bool:
                before = await looked(look, 2)
                after = await looked(look, 2)
                return after.get("fcall_ro") == before.get("fcall_ro")

            await eventually(quiet, seconds=60)
            before = await looked(look, 0)
            after = await looked(look, 4)
            told = {name: after[name] - before.get(name, 0) for name in after if after[name] != before.get(name, 0)}
            assert set(told) <= {"get", "info", "ping"}, told
            assert told["get"] <= 8, told

            await look.flushall()  # no line breaks: the look alone tells
            for ended in await asyncio.gather(*tasks, return_exceptions=True):
                assert isinstance(ended, NotFound)


async def looked(client: Redis, times: int) -> dict[str, int]:
    """The commands carried out, once the board's id was looked at so many times more."""
    first = (await calls(client)).get("get", 0)

    async def done() -> bool:
        return (await calls(client)).get("get", 0) >= first + times

    await eventually(done, seconds=30)
    return await calls(client)


async def test_a_thousand_waiters_in_memory_ask_the_board_once_each() -> None:
    counts = Counts()
    async with MemoryBlackboard() as board, MemoryBroker() as broker:
        client = Client(CountedBoard(board, counts), CountedBroker(broker, counts))
        tasks = await waiting(client, WAITERS)

        async def begun() -> bool:
            return counts.calls["watch_field"] + counts.calls["watch"] == WAITERS

        await eventually(begun)
        before = dict(counts.calls)
        for _ in range(100):
            await asyncio.sleep(0)
        assert dict(counts.calls) == before
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
