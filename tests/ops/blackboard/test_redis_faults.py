"""The blackboard on a Redis that is paused, killed, starved, emptied and cut off."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from redis.asyncio import Redis

from ops.blackboard.redis import RedisBlackboard
from schemas.blackboard import ABSENT, Held, Write, Written, fold
from schemas.errors import BoardOutOfMemory, OutcomeUnknown, Unavailable, Unreadable, UnsafeServer
from schemas.fields import step as step_field
from tests.support.boards import Bench, claim, opening, orchestrator
from tests.support.servers import OwnRedis

pytestmark = pytest.mark.own_server

PREFIX = "board"


@asynccontextmanager
async def bench_on(
    server: OwnRedis, *, call: float = 0.5, deadline: float = 8.0, lease: float = 0.4, pool: int = 8
) -> AsyncIterator[Bench]:
    """A bench on the server; with the short lease it does not count as young any more once a test has begun."""
    async with RedisBlackboard(
        server.url, prefix=PREFIX, call_timeout_seconds=call, deadline_seconds=deadline, lease_seconds=lease, pool_size=pool
    ) as board:
        yield Bench(board)


@asynccontextmanager
async def admin_of(server: OwnRedis) -> AsyncIterator[Redis]:
    """A plain client beside the board."""
    client = Redis.from_url(server.url, socket_timeout=5, protocol=2)
    try:
        yield client
    finally:
        await client.aclose()


async def told(admin: Redis, *command: str) -> None:
    """Send a command that redis-py has no method for."""
    await admin.execute_command(*command)  # type: ignore[no-untyped-call]  # redis-py leaves it untyped


async def write_through(server: OwnRedis) -> None:
    """Let an answered write be on disk. With `everysec` Redis also answers while its last fsync is still under way."""
    async with admin_of(server) as admin:
        await admin.config_set("appendfsync", "always")


async def paused(server: OwnRedis, seconds: float) -> None:
    """Pause the server for a time."""
    server.pause()
    try:
        await asyncio.sleep(seconds)
    finally:
        server.resume()


async def test_every_kind_of_write_during_a_stall_takes_effect_once(server: OwnRedis) -> None:
    async with bench_on(server, lease=60.0) as bench:
        steps = (await bench.put(orchestrator({"step/a": b"1", "plan": b"0"}))).versions
        writes = [
            orchestrator({"plan": b"1"}, {"plan": steps["plan"]}),
            orchestrator({"answer": b"1"}, {"answer": ABSENT}, expire=3600),
            orchestrator(labels={"event": "note"}),
            claim("a", steps["step/a"], unheld=False),
            *(orchestrator({f"plan/{n}": b"1"}, {f"plan/{n}": ABSENT}) for n in range(20)),
        ]
        stall = asyncio.create_task(paused(server, 1.8))
        await asyncio.sleep(0.05)
        outcomes = await asyncio.gather(*(bench.write(write) for write in writes))
        await stall
        assert {type(outcome) for outcome in outcomes} == {Written}
        events = await bench.board.events(bench.request_id)
        assert sorted(event.operation_id for event in events[1:]) == sorted(write.operation_id for write in writes)
        answer = outcomes[1]
        assert isinstance(answer, Written)
        assert answer.versions == {"answer": f"1.{writes[1].operation_id[-6:]}"}


async def test_index_commands_during_a_stall_end_as_if_sent_once(server: OwnRedis) -> None:
    async with bench_on(server) as bench:
        stall = asyncio.create_task(paused(server, 1.2))
        await asyncio.sleep(0.05)
        await asyncio.gather(bench.board.enter("r", 0), bench.board.recent_add("t", "r"), bench.board.mark("r#a", 60_000))
        await stall
        assert [due.member for due in await bench.board.due(10, 1000)] == ["r"]
        assert await bench.board.recent("t") == ["r"]


async def test_every_call_answers_within_its_deadline_while_the_server_stands_still(server: OwnRedis) -> None:
    async with bench_on(server, call=0.4, deadline=1.0) as bench:
        server.pause()
        calls = {
            "read": bench.read("plan"),
            "write": bench.write(orchestrator({"plan": b"1"})),
            "renew": bench.board.renew(bench.request_id, "a", "1.abcdef", 1000),
            "events": bench.board.events(bench.request_id),
            "enter": bench.board.enter("r", 0),
            "due": bench.board.due(1, 1),
            "dead": bench.board.dead_list(),
            "recent": bench.board.recent("t"),
            "check": bench.board.check(),
        }
        begun = time.monotonic()
        answers = await asyncio.gather(*calls.values(), return_exceptions=True)
        assert time.monotonic() - begun < 1.5
        assert {name: type(answer) for name, answer in zip(calls, answers, strict=True) if not isinstance(answer, Unavailable)} == {}
        assert isinstance(answers[1], OutcomeUnknown)
        server.resume()
        assert isinstance(await bench.write(orchestrator({"plan": b"2"})), Written)


async def test_a_cancelled_command_gives_nobody_else_its_reply(server: OwnRedis) -> None:
    async with bench_on(server, call=5.0) as bench:
        await bench.put(orchestrator({"plan": b"plan", "answer": b"answer"}))
        server.pause()
        first = [asyncio.create_task(bench.read("plan")) for _ in range(5)]
        await asyncio.sleep(0.05)
        second = [asyncio.create_task(bench.read("answer")) for _ in range(5)]
        await asyncio.sleep(0.05)
        for task in (*first[:3], second[0]):
            task.cancel()
        server.resume()
        assert [(await task).value("plan") for task in first[3:]] == [b"plan"] * 2
        assert [(await task).value("answer") for task in second[1:]] == [b"answer"] * 4
        assert (await bench.read("answer")).value("answer") == b"answer"


async def test_memory_that_is_short_refuses_by_name_and_the_write_succeeds_later_once(server: OwnRedis) -> None:
    async with bench_on(server, lease=60.0) as bench, admin_of(server) as admin:
        pending = (await bench.put(orchestrator({"step/a": b"1"}))).versions["step/a"]
        fence = (await bench.put(claim("a", pending, unheld=False))).versions["step/a"]
        await bench.board.enter("r", 0)
        before = await bench.board.events(bench.request_id)
        await admin.config_set("maxmemory", 1)
        write = orchestrator({"plan": b"result"})
        for _ in range(2):
            with pytest.raises(BoardOutOfMemory, match="nothing was changed"):
                await bench.write(write)
        assert await bench.board.events(bench.request_id) == before
        assert (await bench.read("step/a")).version("step/a") == fence
        assert await bench.board.renew(bench.request_id, "a", fence, 1000)
        assert [due.member for due in await bench.board.due(1, 1000)] == ["r"]
        await bench.board.leave("r")
        await admin.config_set("maxmemory", 0)
        assert not (await bench.put(write)).replayed
        assert len(await bench.board.events(bench.request_id)) == len(before) + 1


@pytest.mark.parametrize("command", [("FUNCTION", "FLUSH"), ("SCRIPT", "FLUSH"), ("FLUSHALL",)])
async def test_an_emptied_function_cache_between_any_two_calls_is_not_noticed(server: OwnRedis, command: tuple[str, ...]) -> None:
    async with bench_on(server) as bench, admin_of(server) as admin:
        step = (await bench.put(orchestrator({"step/a": b"1"}))).versions["step/a"]
        emptied = command == ("FLUSHALL",)
        await told(admin, *command)
        assert (await bench.read("step/a")).version("step/a") == (ABSENT if emptied else step)
        await told(admin, *command)
        await asyncio.gather(*(bench.put(orchestrator({f"plan/{n}": b"1"})) for n in range(30)))
        await told(admin, *command)
        await bench.board.enter("r", 0)
        await told(admin, *command)
        assert [due.member for due in await bench.board.due(1, 1)] == ([] if emptied else ["r"])
        await told(admin, *command)
        assert await bench.board.renew(bench.request_id, "a", step, 1000) is not emptied


async def test_a_watcher_outlives_its_killed_connection_and_misses_nothing(server: OwnRedis) -> None:
    async with bench_on(server) as bench, admin_of(server) as admin:
        watcher = bench.board.watch(bench.request_id)
        async with asyncio.timeout(8):
            for number in range(1, 8):
                waiting = asyncio.ensure_future(anext(watcher))
                await asyncio.sleep(0)
                await told(admin, "CLIENT", "KILL", "TYPE", "pubsub")
                await bench.put(orchestrator({"plan": b"%d" % number}))
                assert (await waiting).position == number
        await watcher.aclose()


async def test_a_closed_watcher_is_not_subscribed_any_more_and_all_share_one_connection(server: OwnRedis) -> None:
    async with bench_on(server) as bench, admin_of(server) as admin:
        channel = f"{PREFIX}:{{{bench.request_id}}}:events"

        async def subscribers(wanted: int) -> None:
            for _ in range(500):
                if [count for _, count in await admin.pubsub_numsub(channel)] == [wanted]:
                    return
                await asyncio.sleep(0.01)
            pytest.fail(f"never {wanted} subscribers")

        watchers = [bench.board.watch(bench.request_id) for _ in range(5)]
        waiting = [asyncio.ensure_future(anext(watcher)) for watcher in watchers]
        await subscribers(1)
        await bench.put(orchestrator({"plan": b"1"}))
        await asyncio.gather(*waiting)
        for watcher in watchers[:4]:
            await watcher.aclose()
        await subscribers(1)
        await watchers[4].aclose()
        await subscribers(0)


@pytest.mark.parametrize("key", ["values", "meta", "leases", "operations", "events"])
async def test_a_key_of_another_type_changes_nothing_and_is_said(server: OwnRedis, key: str) -> None:
    async with bench_on(server) as bench, admin_of(server) as admin:
        start = f"{PREFIX}:{{{bench.request_id}}}:"
        await admin.set(start + key, "odd")
        write = orchestrator({"step/a": b"1", "plan": b"1"}, returning=["step/a"])
        with pytest.raises(Unreadable, match="another kind of value"):
            await bench.write(write)
        assert await admin.keys(start + "*") == [(start + key).encode()]
        await admin.delete(start + key)
        await bench.put(write)


async def test_a_counter_that_fell_behind_its_events_changes_nothing(server: OwnRedis) -> None:
    async with bench_on(server) as bench, admin_of(server) as admin:
        await bench.put(orchestrator({"plan": b"1"}))
        await admin.delete(f"{PREFIX}:{{{bench.request_id}}}:meta")
        with pytest.raises(Unreadable, match="damaged"):
            await bench.write(orchestrator({"plan": b"2"}))
        assert await admin.hgetall(f"{PREFIX}:{{{bench.request_id}}}:values") == {b"plan": b"1"}
        assert not await admin.exists(f"{PREFIX}:{{{bench.request_id}}}:meta")


async def test_a_damaged_field_is_read_as_its_bytes_and_the_rest_stays_readable(server: OwnRedis) -> None:
    async with bench_on(server) as bench, admin_of(server) as admin:
        await bench.put(orchestrator({"plan": b"[]", "step/a": b"{}"}))
        await admin.hset(f"{PREFIX}:{{{bench.request_id}}}:values", "step/a", b"\xff\xfe{")
        seen = await bench.read("plan", "step/a")
        assert (seen.value("plan"), seen.value("step/a")) == (b"[]", b"\xff\xfe{")


@pytest.mark.parametrize("policy", ["allkeys-lru", "volatile-ttl"])
async def test_a_server_that_may_drop_state_is_refused_at_the_start(server: OwnRedis, policy: str) -> None:
    async with admin_of(server) as admin:
        await admin.config_set("maxmemory-policy", policy)
    with pytest.raises(UnsafeServer, match="maxmemory-policy noeviction"):
        async with bench_on(server):
            pass


async def test_the_check_says_what_can_be_lost_also_where_config_is_forbidden(server: OwnRedis) -> None:
    async with bench_on(server) as bench, admin_of(server) as admin:
        found = await bench.board.check()
        assert {finding.level for finding in found} == {"ok"}
        assert any("everysec" in finding.what and "last second" in finding.what for finding in found)
        await told(admin, "ACL", "SETUSER", "default", "-config")
        assert any("could not be read" in finding.what for finding in await bench.board.check() if finding.level == "warn")


async def test_what_was_accepted_survives_a_killed_server_that_starts_again(server: OwnRedis) -> None:
    async with bench_on(server, deadline=15.0) as bench:
        await write_through(server)
        accepted: list[tuple[Write, Written]] = []
        enough = asyncio.Event()

        async def keep_writing() -> None:
            for number in range(400):
                write = orchestrator({f"plan/{number}": b"%d" % number})
                accepted.append((write, await bench.put(write)))
                if len(accepted) >= 100:
                    enough.set()

        writers = [asyncio.create_task(keep_writing()) for _ in range(2)]
        await enough.wait()
        await asyncio.to_thread(server.kill)
        await asyncio.to_thread(server.start)
        await asyncio.gather(*writers)
        events = {event.operation_id: event for event in await bench.board.events(bench.request_id)}
        assert len(events) == len(accepted) == 800
        for write, outcome in accepted:
            assert events[write.operation_id].position == outcome.position
        names = [f"plan/{number}" for number in range(400)]
        assert (await bench.read(*names)).fields == fold(await bench.board.events(bench.request_id))


async def test_500_reads_at_once_on_a_small_pool_lose_no_lease(server: OwnRedis) -> None:
    async with bench_on(server, pool=2, lease=60.0) as bench:
        steps = (await bench.put(orchestrator({f"step/s{n}": b"1" for n in range(50)}))).versions
        await bench.put(orchestrator({f"plan/s{n}": b"x" * 2000 for n in range(50)}))
        claims = await asyncio.gather(*(bench.put(claim(f"s{n}", steps[f"step/s{n}"], unheld=False, lease_ms=1500)) for n in range(50)))
        fences = {name: version for outcome in claims for name, version in outcome.versions.items()}
        names = list(fences) + [f"plan/s{n}" for n in range(50)]
        over = asyncio.Event()
        lowest: list[int] = []

        async def keep(name: str) -> None:
            while not over.is_set():
                assert await bench.board.renew(bench.request_id, name.removeprefix(step_field("")), fences[name], 1500)
                await asyncio.sleep(0.2)

        async def look() -> None:
            seen = await bench.read(*names)
            await bench.board.events(bench.request_id)
            lowest.append(min(seen.leases.values()) - seen.now_ms)
            assert len(seen.leases) == 50

        async with asyncio.TaskGroup() as group:
            for name in fences:
                group.create_task(keep(name))
            await asyncio.gather(*(look() for _ in range(500)))
            over.set()
        assert min(lowest) > 0


async def test_a_primary_that_becomes_a_replica_is_tried_again_until_it_is_one_no_more(server: OwnRedis) -> None:
    async with bench_on(server) as bench, admin_of(server) as admin:
        await bench.put(opening())
        await told(admin, "REPLICAOF", "127.0.0.1", "1")
        writing = asyncio.create_task(bench.write(orchestrator({"plan": b"1"})))
        await asyncio.sleep(0.2)
        assert not writing.done()
        await told(admin, "REPLICAOF", "NO", "ONE")
        assert isinstance(await writing, Written)


async def test_a_closed_board_ends_every_waiting(server: OwnRedis) -> None:
    async with bench_on(server) as bench:
        server.pause()
        reading = asyncio.create_task(bench.read("plan"))
        await asyncio.sleep(0.05)
    with pytest.raises(Unavailable, match="closed"):
        await reading
    with pytest.raises(Unavailable, match="closed"):
        await bench.read("plan")


async def test_a_server_that_is_not_there_is_said_within_the_deadline(server: OwnRedis) -> None:
    await asyncio.to_thread(server.stop)
    begun = time.monotonic()
    with pytest.raises(Unavailable, match="no answer within 1 s: Error"):
        async with bench_on(server, deadline=1.0):
            pass
    assert time.monotonic() - begun < 1.5


class TestGrace:
    """After an absence as long as a lease, holders renew before anybody takes over."""

    async def claimed(self, bench: Bench, lease_ms: int) -> str:
        pending = (await bench.put(orchestrator({"step/a": b"1"}))).versions["step/a"]
        return (await bench.put(claim("a", pending, unheld=False, lease_ms=lease_ms))).versions["step/a"]

    async def test_a_claim_that_was_sent_into_the_stall_robs_no_holder(self, server: OwnRedis) -> None:
        async with bench_on(server, call=5.0, lease=0.8) as bench:
            await asyncio.sleep(1.1)  # the server is no longer young
            fence = await self.claimed(bench, 800)
            stall = asyncio.create_task(paused(server, 1.2))
            await asyncio.sleep(0.1)
            outcome = await bench.write(claim("a", fence))
            await stall
            assert isinstance(outcome, Held)
            assert outcome.until_ms >= outcome.returned.now_ms + 700

    async def test_an_idle_client_notices_the_absence_and_takes_over_one_lease_later(self, server: OwnRedis) -> None:
        async with bench_on(server, call=0.3, lease=0.8) as bench:
            await asyncio.sleep(1.1)
            fence = await self.claimed(bench, 400)
            await paused(server, 1.3)
            outcome = await bench.write(claim("a", fence))
            assert isinstance(outcome, Held)
            async with asyncio.timeout(10):
                while isinstance(outcome, Held):
                    await asyncio.sleep((outcome.until_ms - outcome.returned.now_ms) / 1000 + 0.01)
                    outcome = await bench.write(claim("a", fence))
            assert isinstance(outcome, Written)

    async def test_a_holder_that_renews_during_the_grace_keeps_its_step(self, server: OwnRedis) -> None:
        async with bench_on(server, call=0.3, lease=0.8) as holder, bench_on(server, call=0.3, lease=0.8) as other:
            other.request_id = holder.request_id
            await asyncio.sleep(1.1)
            fence = await self.claimed(holder, 500)
            await paused(server, 1.3)
            assert isinstance(await other.write(claim("a", fence)), Held)
            assert await holder.board.renew(holder.request_id, "a", fence, 60_000)
            await asyncio.sleep(0.9)
            outcome = await other.write(claim("a", fence))
            assert isinstance(outcome, Held)
            assert outcome.until_ms > outcome.returned.now_ms + 50_000

    async def test_a_new_server_begins_with_a_grace(self, server: OwnRedis) -> None:
        async with bench_on(server, lease=0.8) as bench:
            await asyncio.sleep(1.1)
            await write_through(server)
            fence = await self.claimed(bench, 1)
            await asyncio.to_thread(server.kill)
            await asyncio.to_thread(server.start)
            assert isinstance(await bench.write(claim("a", fence)), Held)

    async def test_a_young_server_at_the_first_connection_begins_with_a_grace(self, server: OwnRedis) -> None:
        async with bench_on(server, lease=5.0) as bench:
            fence = await self.claimed(bench, 1)
            await asyncio.sleep(0.01)
            assert isinstance(await bench.write(claim("a", fence)), Held)

    async def test_without_an_absence_a_step_is_taken_over_when_its_lease_ends(self, server: OwnRedis) -> None:
        async with bench_on(server, lease=0.8) as bench:
            await asyncio.sleep(1.1 + 0.8)
            fence = await self.claimed(bench, 100)
            await asyncio.sleep(0.15)
            assert isinstance(await bench.write(claim("a", fence)), Written)
