"""Crash points by command, on servers of its own; ends with one line of JSON and, where a promise was broken, with status 1.

python -m tests.crash                          # every point
python -m tests.crash --pairs                  # every point and, after the restart, the one that follows
python -m tests.crash --only write:plan        # the points whose name holds this
python -m tests.crash --record                 # no crash: which points each story passes
python -m tests.crash --write                  # every point, and the matrix into docs/guarantees.md
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import orjson

from ops.logs import configure
from tests.crash import matrix
from tests.crash.points import names, pairs, slow_trials, trials
from tests.crash.running import Trial, Tried, attempt_all, record
from tests.support.servers import OwnRabbitMQ, OwnRedis


def main() -> int:
    """Run what was asked for."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.crash", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pairs", action="store_true", help="two crashes, one after the other")
    parser.add_argument("--only", default="", help="a part of the names of the points")
    parser.add_argument("--record", action="store_true", help="no crash: print the points that each story passes")
    parser.add_argument("--write", action="store_true", help="write the matrix into docs/guarantees.md")
    parser.add_argument("--lanes", type=int, default=8, help="how many trials at a time")
    asked = parser.parse_args()
    configure("ERROR", "console")
    with (
        tempfile.TemporaryDirectory(prefix="briefline-crash-") as folder,
        OwnRedis(Path(folder, "redis")) as redis,
        OwnRabbitMQ(Path(folder, "rabbitmq")) as rabbitmq,
    ):
        return asyncio.run(_run(asked, redis.url, rabbitmq.url, Path(folder)))


async def _run(asked: argparse.Namespace, redis_url: str, rabbitmq_url: str, folder: Path) -> int:
    began = time.monotonic()
    chosen: list[Trial] = [*slow_trials(), *trials()]
    if asked.record or asked.pairs:
        recorded = await record(redis_url, rabbitmq_url, folder / "record", names())
        if asked.record:
            print(orjson.dumps(recorded, option=orjson.OPT_INDENT_2).decode())
            return 0
        chosen = list(pairs(recorded))
    chosen = [trial for trial in chosen if asked.only in " ".join(trial.points)]
    tried, left = await attempt_all(chosen, redis_url, rabbitmq_url, folder / "children", lanes=asked.lanes, tell=_tell)
    for what in left:
        print(what, file=sys.stderr)
    if asked.write:
        with ProcessPoolExecutor(2) as pool:
            memory = dict(zip(points := sorted(names()), pool.map(matrix.in_memory, points), strict=True))
        matrix.put_between(matrix.GUARANTEES, "crash matrix", matrix.table(tried, memory))
    figures = {**matrix.figures(tried), "left_over": left, "seconds": round(time.monotonic() - began, 1)}
    print(orjson.dumps(figures).decode())
    return 1 if figures["failed"] or left else 0


def _tell(tried: Tried) -> None:
    """Say at once of each trial what came of it; all that went wrong in full."""
    print(
        f"{tried.outcome:12} {tried.seconds:5.1f} s  {tried.trial.scenario:12} {', then '.join(tried.trial.points)}",
        file=sys.stderr,
        flush=True,
    )
    for what in tried.broken:
        print(f"    {what}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
