"""Growth: what a request costs as numbers grow, on servers of the run's own: `python -m ops.bench.growth [--full]`

Three looks. CPU of each part, with a hundred and with many requests under way at a time. Memory of each part over a long run
whose requests expire after seconds. And counts of board calls, bytes and messages a step, in plans of three to three hundred
steps. Prints tables and writes build/growth.json; the figures of `docs/scaling.md` come from here. Tests hold the counts
(`tests/growth/`); CPU and memory are measured, and worth quoting from a quiet machine only.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import uvloop

from ops.bench.children import running
from ops.bench.counting import CountedBoard, CountedBroker, Counts
from ops.bench.metering import Meter
from ops.bench.peers.on_briefline import WORKER
from ops.bench.peers.queues import served
from ops.bench.processes import rss_mib, tree
from ops.bench.running import Servers, own_servers
from ops.bench.teams import NO_OPS, chain, plan_of
from ops.blackboard.memory import MemoryBlackboard
from ops.blackboard.redis import RedisBlackboard
from ops.broker.memory import MemoryBroker
from ops.broker.topology import DEFAULT_PREFIX
from ops.embedded import Runtime, serving
from ops.logs import configure
from ops.own_servers import LOOPBACK, reply_of
from ops.settings import load_settings
from ops.wiring import connected
from workers.team import Team

ROOT = Path(__file__).parents[2]
RETENTION_SECONDS = 5
ORCHESTRATOR = ("briefline", "orchestrator")
PARTS = ("client", "orchestrator", "workers", "broker", "redis")

Row = dict[str, Any]


@dataclass(frozen=True)
class Sizes:
    """How large the run is: requests under way at a time, requests of the long run, and requests counted at each size."""

    under_way: tuple[int, ...]
    long_run: int
    steps: tuple[int, ...] = (3, 30, 300)


REDUCED = Sizes(under_way=(100, 1000), long_run=3000)
FULL = Sizes(under_way=(100, 1000, 10_000), long_run=100_000)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run as asked, print the tables, and write build/growth.json."""
    parser = argparse.ArgumentParser(
        prog="python -m ops.bench.growth", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--full", action="store_true", help="10,000 requests under way, 100,000 in the long run (an hour)")
    sizes = FULL if parser.parse_args(arguments).full else REDUCED
    configure("CRITICAL", "console")
    found: dict[str, list[Row]] = {"counts a step": uvloop.run(_counts(sizes))}
    _tell(found, "counts a step")
    with own_servers() as servers, _serving(servers) as parts:
        found["CPU ms a request"] = [uvloop.run(_under_way(servers, parts, number)) for number in sizes.under_way]
        _tell(found, "CPU ms a request")
        found["memory in MiB"] = uvloop.run(_long_run(servers, parts, sizes.long_run))
        _tell(found, "memory in MiB")
        found["kept"] = uvloop.run(_kept(servers))
        _tell(found, "kept")
    target = ROOT / "build" / "growth.json"
    target.parent.mkdir(exist_ok=True)
    target.write_bytes(orjson.dumps(found, option=orjson.OPT_INDENT_2))
    return 0


@contextmanager
def _serving(servers: Servers) -> Iterator[dict[str, list[int]]]:
    """An orchestrator and two workers on these servers; their process ids, and the servers', by part."""
    environment = {**servers.environment, "BRIEFLINE_RETENTION_SECONDS": str(RETENTION_SECONDS)}
    with (servers.redis.folder / "growth.log").open("w") as log, ExitStack() as ours:
        orchestrator = ours.enter_context(running(ORCHESTRATOR, environment, log)).pid
        workers = [ours.enter_context(running(WORKER, environment, log)).pid for _ in range(2)]
        consumers = {f"{DEFAULT_PREFIX}.results": 1, **{f"{DEFAULT_PREFIX}.tasks.{each.card.name}": 2 for each in NO_OPS}}
        asyncio.run(served(servers.rabbitmq.url, consumers))
        yield {"orchestrator": [orchestrator], "workers": workers, "broker": [servers.rabbitmq.pid or 0], "redis": [servers.redis.pid or 0]}


async def _under_way(servers: Servers, parts: dict[str, list[int]], number: int) -> Row:
    """CPU of each part while so many requests are under way from the first to the last: all are opened at once."""
    async with _connected(servers) as (board, broker):
        runtime = Runtime(board, broker, chain)
        await _carry_out(runtime, 100, 100)
        meter, began = Meter(parts), time.perf_counter()
        meter.start()
        await _carry_out(runtime, number, number)
        cpu, foreign = meter.stop()
        each = {part: round(1000 * seconds / number, 2) for part, seconds in cpu.items()}
        total = round(1000 * sum(cpu.values()) / number, 2)
        return {
            "under way": number,
            **each,
            "all": total,
            "seconds": round(time.perf_counter() - began, 1),
            "foreign cores": round(foreign, 2),
        }


async def _long_run(servers: Servers, parts: dict[str, list[int]], number: int, looks: int = 5) -> list[Row]:
    """Memory of each part as requests come, end and expire; the first look comes after a fifth of them."""
    rows: list[Row] = []
    async with _connected(servers) as (board, broker):
        runtime = Runtime(board, broker, chain)
        for look in range(1, looks + 1):
            await _carry_out(runtime, number // looks, 64)
            held = {part: round(sum(map(rss_mib, tree(pids))), 1) for part, pids in parts.items()}
            rows.append({"requests": number * look // looks, **held, "Redis' data": round(_redis_mib(servers), 1)})
        await asyncio.sleep(RETENTION_SECONDS + 2)
        rows.append({"requests": "all expired", "Redis' data": round(_redis_mib(servers), 1)})
    return rows


async def _kept(servers: Servers, number: int = 500) -> list[Row]:
    """What Redis holds of each request as long as it is kept: its state and its events."""
    async with (
        RedisBlackboard(servers.redis.url, prefix="kept") as board,
        MemoryBroker() as broker,
        serving(board, broker, chain) as runtime,
    ):
        await _carry_out(runtime, 50, 10)
        before = _redis_mib(servers)
        await _carry_out(runtime, number, 32)
        return [{"requests kept": number, "Redis KiB a request": round(1024 * (_redis_mib(servers) - before) / number, 1)}]


def _connected(servers: Servers) -> Any:
    return connected(load_settings({"rabbitmq_url": servers.rabbitmq.url, "redis_url": servers.redis.url}, env_file=None))


async def _carry_out(runtime: Runtime, number: int, window: int) -> None:
    """So many requests, `window` of them under way at a time."""
    left = iter(range(number))

    async def lane() -> None:
        for each in left:
            await runtime.wait((await runtime.submit(chain, f"Request {each}")).request_id)

    await asyncio.gather(*(lane() for _ in range(window)))


async def _counts(sizes: Sizes) -> list[Row]:
    return [await _count(shape, steps) for shape in ("chain", "fan", "join") for steps in sizes.steps]


async def _count(shape: str, steps: int) -> Row:
    """What one request of so many steps costs, for each step."""
    counts, team = Counts(), Team(shape, NO_OPS, plan_of(shape, steps))
    async with (
        MemoryBlackboard(lease_seconds=60.0) as board,
        MemoryBroker() as broker,
        serving(CountedBoard(board, counts), CountedBroker(broker, counts), team, lease_seconds=60.0) as runtime,
    ):
        began = time.process_time()
        await runtime.wait((await runtime.submit(team, "Count.")).request_id)
        seconds = time.process_time() - began
    return {
        "plan": shape,
        "steps": steps,
        **{name: round(cost, 1) for name, cost in counts.a(steps).items()},
        "CPU ms": round(1000 * seconds / steps, 2),
    }


def _redis_mib(servers: Servers) -> float:
    told = re.search(rb"used_memory:(\d+)", reply_of(LOOPBACK, servers.redis.port, b"INFO memory\r\n", 4096))
    return int(told[1]) / 2**20 if told else 0.0


def _tell(found: dict[str, list[Row]], name: str) -> None:
    columns = list(found[name][0])
    print(f"\n{name}\n\n| {' | '.join(columns)} |\n| {' | '.join('---' for _ in columns)} |")
    for row in found[name]:
        print(f"| {' | '.join(str(row.get(column, '')) for column in columns)} |", flush=True)


if __name__ == "__main__":
    sys.exit(main())
