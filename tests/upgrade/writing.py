"""Records what the present version writes: `python -m tests.upgrade.writing [REDIS_URL]`, run before a release and never after.

It runs BitMall, a small team that does all that a plan can say, and every command; then keeps messages, events and keys.
"""

from __future__ import annotations

import asyncio
import secrets
import sys
from collections import Counter
from collections.abc import Awaitable, Callable

import orjson
from redis.asyncio import Redis

from ops.blackboard.keys import request_keys
from ops.blackboard.memory import MemoryBlackboard
from ops.blackboard.redis import RedisBlackboard
from ops.broker.memory import MemoryBroker
from ops.embedded import Runtime, serving
from schemas.blackboard import Blackboard
from schemas.gate import BoundaryRules
from schemas.messages import SCHEMA_VERSION, to_wire
from schemas.requests import session_id
from tests.system.cast import Cast, Gate, step
from tests.system.watched import WatchedBroker
from tests.upgrade.casting import bounded, stage, stuck
from tests.upgrade.recorded import FIXTURES, came_to, line_of
from workers.team import Team
from workers.teams.bitmall.demo import REQUEST
from workers.teams.bitmall.team import make_team

TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
SESSION = "一次对话"
EACH_KIND = 3
"""How many messages of a kind are kept."""


async def asked(runtime: Runtime) -> str:
    """A request to its end."""
    return (await runtime.ask(REQUEST)).request_id


async def staged(runtime: Runtime) -> str:
    """A request with retries, a gap and further steps."""
    return (await runtime.ask("请看一下 🤖", constraints={"budget": 2000, "word": "名"})).request_id


async def replayed(runtime: Runtime) -> str:
    """A request whose failed step was replayed, failed again, and was dropped."""
    report = await runtime.ask("Please.")
    await runtime.replay(report.request_id, "a")
    await runtime.wait(report.request_id)
    await runtime.drop(report.request_id, "a", "不再需要")
    return report.request_id


async def cancelled(runtime: Runtime) -> str:
    """A request that was cancelled while it ran."""
    accepted = await runtime.submit(
        runtime.team, "Please.", idempotency_key="once", trace="00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    )
    async for report in runtime.follow(accepted.request_id):
        if any(each.state == "RUNNING" for each in report.steps):
            break
    await runtime.cancel(accepted.request_id, "no longer wanted")
    return accepted.request_id


async def late(runtime: Runtime) -> str:
    """A request that its deadline ended."""
    return (await runtime.ask("Please.", deadline_seconds=0.6)).request_id


async def withdrawn(runtime: Runtime) -> str:
    """A request with a shared field, whose last step asked a person, under rules that changed, and of which a value was withdrawn."""
    accepted = await runtime.submit(runtime.team, "请看一下", session=SESSION)
    await runtime.set_rules(accepted.request_id, BoundaryRules(named="严格"))
    await runtime.wait(accepted.request_id)
    await runtime.decide(accepted.request_id, "step:b", "approve", "看过了")
    await runtime.wait(accepted.request_id)
    await runtime.retract(accepted.request_id, "a.finding", "查错了", recheck=True)
    await runtime.wait(accepted.request_id)
    return accepted.request_id


RUNS: dict[str, tuple[Callable[[], Team], Callable[[Runtime], Awaitable[str]]]] = {
    "bitmall": (make_team, asked),
    "bitmall-stuck": (lambda: make_team(scenario="product-stuck"), asked),
    "stage": (stage, staged),
    "replayed-and-dropped": (stuck, replayed),
    "cancelled": (lambda: Cast({"a": Gate()}).team(step("a"), step("b", "a")), cancelled),
    "withdrawn": (bounded, withdrawn),
    "past-its-deadline": (lambda: Cast({"a": Gate()}).team(step("a"), step("b", "a")), late),
}


async def write(redis_url: str) -> None:
    """Run everything, and keep it below the present version's folder."""
    folder = FIXTURES / SCHEMA_VERSION
    for kind in ("messages", "requests", "reports", "sessions", "redis"):
        (folder / kind).mkdir(parents=True, exist_ok=True)
    kinds: Counter[str] = Counter()
    for name, (team, play) in RUNS.items():
        async with MemoryBlackboard() as memory:
            request_id, broker = await _run(memory, team(), play)
            events = await memory.events(request_id)
            (folder / "requests" / f"{name}.jsonl").write_bytes(b"\n".join(map(line_of, events)) + b"\n")
            if turns := await memory.events(session_id("default", SESSION)):
                (folder / "sessions" / f"{name}.jsonl").write_bytes(b"\n".join(map(line_of, turns)) + b"\n")
            report = await Runtime(memory, broker, team()).show(request_id)
            (folder / "reports" / f"{name}.json").write_bytes(orjson.dumps(came_to(report), option=orjson.OPT_INDENT_2) + b"\n")
        for _, bell in broker.published:
            kinds[bell.type] += 1
            if kinds[bell.type] <= EACH_KIND:
                (folder / "messages" / f"{bell.type.lower()}-{kinds[bell.type]}.json").write_bytes(to_wire(bell) + b"\n")
    (folder / "redis" / "stage.json").write_bytes(await _keys(redis_url))


async def _run(board: Blackboard, team: Team, play: Callable[[Runtime], Awaitable[str]]) -> tuple[str, WatchedBroker]:
    async with MemoryBroker() as inner:
        broker = WatchedBroker(inner)
        async with serving(board, broker, team) as runtime:
            return await play(runtime), broker


async def _keys(url: str) -> bytes:
    """The keys of one request, each as its type and what is in it; the request's own id and the prefix are left out of their names."""
    prefix = f"briefline-recording-{secrets.token_hex(4)}"
    async with Redis.from_url(url, decode_responses=True) as client:
        async with RedisBlackboard(url, prefix=prefix) as board:
            request_id, _ = await _run(board, stage(), staged)
        keys: dict[str, object] = {}
        for key in request_keys(prefix, request_id):
            short = key.rpartition(":")[2]
            if await client.type(key) == "stream":
                keys[short] = await client.xrange(key)
            else:
                keys[short] = await client.hgetall(key)
        async for key in client.scan_iter(match=f"{prefix}*"):
            await client.delete(key)
    return orjson.dumps({"request_id": request_id, "keys": keys}, option=orjson.OPT_INDENT_2) + b"\n"


if __name__ == "__main__":
    asyncio.run(write(sys.argv[1] if len(sys.argv) > 1 else "redis://127.0.0.1:6379/0"))
