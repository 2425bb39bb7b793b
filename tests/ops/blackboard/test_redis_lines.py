"""How the blackboard uses its connections: pipelines, hints, and two versions of its functions on one server."""

from __future__ import annotations

import asyncio
import secrets
from contextlib import ExitStack

import pytest
from redis.asyncio import Redis

from ops.blackboard.connecting import ask, connection_pool, put_library, take_connection
from ops.blackboard.functions import Library, load_library
from ops.blackboard.redis import RedisBlackboard
from ops.blackboard.watching import Hints
from schemas.blackboard import Written
from schemas.errors import InvalidValue, Unreadable
from tests.ops.broker.bench import eventually
from tests.support.boards import Bench, claim, orchestrator
from tests.support.servers import OwnRedis

own_server = pytest.mark.own_server


@own_server
async def test_commands_issued_while_others_are_on_their_way_leave_together(server: OwnRedis) -> None:
    client = Redis.from_url(server.url, protocol=2)
    async with client, RedisBlackboard(server.url, prefix="p") as board:
        bench = Bench(board)
        await bench.put(orchestrator({"plan": b"1"}))
        before = int((await client.info("stats"))["total_reads_processed"])
        await asyncio.gather(*(bench.read("plan") for _ in range(500)))
        reads = int((await client.info("stats"))["total_reads_processed"]) - before
        assert reads < 20


@own_server
async def test_of_commands_that_leave_together_each_has_its_own_error(server: OwnRedis) -> None:
    client = Redis.from_url(server.url, protocol=2)
    async with client, RedisBlackboard(server.url, prefix="p") as board:
        benches = [Bench(board) for _ in range(9)]
        await client.set(f"p:{{{benches[4].request_id}}}:events", "odd")
        outcomes = await asyncio.gather(*(bench.write(orchestrator({"plan": b"1"})) for bench in benches), return_exceptions=True)
        assert [type(outcome) for outcome in outcomes] == [Written] * 4 + [Unreadable] + [Written] * 4


@own_server
async def test_a_line_that_fell_silent_is_replaced_and_every_waiter_looks_again(server: OwnRedis) -> None:
    pool = connection_pool(server.url, size=1, wait_seconds=0.3)
    hints = Hints(pool, call_timeout_seconds=0.3, silence_seconds=0.2)
    listening = asyncio.create_task(hints.run())
    with hints.of("channel") as wake:
        async with asyncio.timeout(10):
            await wake.wait()
            wake.clear()
            server.pause()
            await asyncio.sleep(0.8)  # longer than the silence and the time that a sign of life may take
            server.resume()
            await wake.wait()
    listening.cancel()
    await asyncio.wait([listening])
    await pool.aclose()


async def test_a_quiet_line_is_kept_and_still_brings_hints(redis_url: str, key_prefix: str) -> None:
    pool = connection_pool(redis_url, size=1, wait_seconds=5)
    hints = Hints(pool, call_timeout_seconds=5, silence_seconds=0.05)
    listening = asyncio.create_task(hints.run())
    client = Redis.from_url(redis_url, protocol=2)
    with hints.of(key_prefix) as wake:
        async with asyncio.timeout(10), client:
            await wake.wait()
            wake.clear()
            await asyncio.sleep(0.2)  # some signs of life
            assert not wake.is_set()
            await client.publish(key_prefix, "1")
            await wake.wait()
    listening.cancel()
    await asyncio.wait([listening])
    await pool.aclose()


@own_server
async def test_waiters_that_come_and_go_together_are_told_to_the_server_together(server: OwnRedis) -> None:
    pool = connection_pool(server.url, size=1, wait_seconds=5)
    hints = Hints(pool, call_timeout_seconds=5, silence_seconds=10)
    listening = asyncio.create_task(hints.run())
    async with asyncio.timeout(10), Redis.from_url(server.url, protocol=2) as client:
        with hints.of("first") as wake:
            await wake.wait()
            with ExitStack() as stack:
                await asyncio.gather(*(stack.enter_context(hints.of(f"channel-{number}")).wait() for number in range(500)))

            async def only_the_first() -> bool:
                return bool(await client.pubsub_channels() == [b"first"])

            await eventually(only_the_first)
        stats = await client.info("commandstats")
        assert (stats["cmdstat_subscribe"]["calls"], stats["cmdstat_unsubscribe"]["calls"]) == (2, 1)
    listening.cancel()
    await asyncio.wait([listening])
    await pool.aclose()


@own_server
async def test_two_versions_of_the_functions_work_side_by_side(server: OwnRedis) -> None:
    source = load_library().source.replace(load_library().name.encode(), b"briefline_older")
    older = Library("briefline_older", source)
    async with RedisBlackboard(server.url, prefix="p") as board:
        bench = Bench(board)
        await bench.put(orchestrator({"plan": b"1"}))
        pool = connection_pool(server.url, size=1, wait_seconds=5)
        connection = await take_connection(pool)
        await put_library(connection, older)
        await put_library(connection, older)
        keys = [f"p:{{{bench.request_id}}}:{name}" for name in ("values", "meta", "leases")]
        reply = await ask(connection, "FCALL", older.function("read"), 3, *keys, "plan")
        assert reply[3] == [b"1"]
        await connection.disconnect()
        await pool.release(connection)
        await pool.aclose()
        await bench.put(orchestrator({"plan": b"2"}))


def test_the_name_of_the_functions_changes_with_their_source() -> None:
    library = load_library()
    assert library.name.encode() in library.source
    assert b"@LIBRARY@" not in library.source
    assert library.function("write").startswith(library.name)


@pytest.mark.parametrize("prefix", ["", "a{b", "a}b"])
def test_a_prefix_that_would_move_the_hash_tag_is_refused(prefix: str) -> None:
    with pytest.raises(InvalidValue, match="prefix"):
        RedisBlackboard("redis://127.0.0.1:1/0", prefix=prefix)


async def test_two_boards_with_different_prefixes_know_nothing_of_each_other(redis_url: str, key_prefix: str) -> None:
    request_id = f"r-{secrets.token_hex(6)}"
    async with RedisBlackboard(redis_url, prefix=f"{key_prefix}1") as one, RedisBlackboard(redis_url, prefix=f"{key_prefix}2") as two:
        await one.write(request_id, orchestrator({"plan": b"1"}))
        await one.enter(request_id, 0)
        assert (await two.read(request_id, ["plan"])).fields == {}
        assert await two.due(10, 1000) == []
        assert [due.member for due in await one.due(10, 1000)] == [request_id]


async def test_every_key_of_a_finished_request_expires_at_the_same_time_also_new_ones(redis_url: str, key_prefix: str) -> None:
    client = Redis.from_url(redis_url, protocol=2)
    async with client, RedisBlackboard(redis_url, prefix=key_prefix) as board:

        async def ends(bench: Bench) -> tuple[int, set[int]]:
            keys = [f"{key_prefix}:{{{bench.request_id}}}:{name}" for name in ("values", "meta", "leases", "operations", "events")]
            times = [int(await client.pexpiretime(key)) for key in keys]
            return len([time for time in times if time != -2]), {time for time in times if time != -2}

        by_claim, by_renewal = Bench(board), Bench(board)
        for bench in (by_claim, by_renewal):
            await bench.put(orchestrator({"answer": b"1"}, expire=3600))
            step = (await bench.put(orchestrator({"step/a": b"1"}))).versions["step/a"]
            written = await bench.put(orchestrator(labels={"event": "note"}))
            count, times = await ends(bench)
            assert (count, len(times)) == (4, 1)
            assert written.at_ms < min(times) <= written.at_ms + 3_600_000
            if bench is by_claim:
                await bench.put(claim("a", step))
            else:
                assert await board.renew(bench.request_id, "a", step, 1000)
            assert await ends(bench) == (5, times)
            await bench.put(orchestrator({"status": b'"RUNNING"'}, expire=0))
            assert await ends(bench) == (5, {-1})
            await bench.put(orchestrator({"answer": b"2"}, expire=60))
            assert (await ends(bench))[0] == 5
            assert max((await ends(bench))[1]) < written.at_ms + 3_600_000
