"""The bench. It prints ratios and writes build/bench.json; a whole run writes docs/performance.md and its picture as well.

python -m ops.bench --only briefline,celery --pairs 2 --requests 100 is a quick look.
"""

from __future__ import annotations

import argparse
import signal
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import orjson

from ops.bench.bar import measured
from ops.bench.contenders import CASES, CONTENDERS
from ops.bench.machine import machine, versions
from ops.bench.page import page
from ops.bench.picture import picture
from ops.bench.recovery import Recovery
from ops.bench.rendering import QUIET_CORES, Conditions, as_json, bar_table, cases_table, foreign_cores, ratios_table
from ops.bench.running import Failed, Plan, Servers, own_servers, run
from ops.bench.starting import help_walls
from ops.logs import configure
from schemas.errors import BrieflineError

ROOT = Path(__file__).parents[2]
RECOVERIES = 3


def main(arguments: Sequence[str] | None = None) -> int:
    """Run as asked; 1 when a contender failed or the servers are not to be had."""
    asked = _parser().parse_args(arguments)
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))  # so that servers and processes end with us
    configure("CRITICAL", "console")  # what a client of ours complains of while the broker is away is expected
    recoveries = asked.recoveries if asked.recoveries is not None else RECOVERIES * (asked.only == tuple(CONTENDERS))
    plan = Plan(asked.only, asked.cases, asked.pairs, asked.requests, asked.singles, asked.window)
    began = time.monotonic()
    try:
        with own_servers() as servers:
            rounds = run(plan, servers, tell=_tell)
            measures = _measures(servers, recoveries, asked.pairs)
            conditions = Conditions(plan, machine(), versions(servers), foreign_cores(rounds), time.monotonic() - began)
    except (Failed, BrieflineError, TimeoutError) as error:
        _tell(str(error) or "recovery took longer than a minute")
        return 1
    rows = measured(rounds, measures)
    _write(ROOT / "build" / "bench.json", orjson.dumps(as_json(rows, rounds, conditions), option=orjson.OPT_INDENT_2).decode())
    if plan.is_whole and recoveries:
        _write(ROOT / "docs" / "performance.md", page(rows, rounds, conditions))
        _write(ROOT / "docs" / "pictures" / "performance.svg", picture(rounds))
    print("\n\n".join((cases_table(rounds), ratios_table(rounds), bar_table(rows))))
    print(f"\n{conditions.seconds / 60:.1f} minutes, foreign cores {conditions.foreign_cores:.2f}")
    if not conditions.is_quiet:
        _tell(f"others took more than {QUIET_CORES} cores: run it again on a quiet machine before a figure is quoted")
    return 0


def _measures(servers: Servers, recoveries: int, pairs: int) -> dict[str, list[float]]:
    """What is no ratio of two contenders; nothing where it was not asked for."""
    if not recoveries:
        return {}
    with (servers.rabbitmq.folder / "recovery.log").open("w") as log:
        recovery = Recovery(servers, log)
        killed = [recovery.killed_worker_seconds() for _ in range(recoveries)]
        _tell(f"a killed worker's step started again after {', '.join(f'{each:.2f}' for each in killed)} s")
        back = [recovery.broker_back_seconds() for _ in range(recoveries)]
        _tell(f"the first result after the broker was back took {', '.join(f'{each:.2f}' for each in back)} s")
    return {"killed_worker_seconds": killed, "broker_back_seconds": back, "help_wall": help_walls(pairs)}


def _tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m ops.bench", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", type=_some_of(CONTENDERS), default=tuple(CONTENDERS), metavar="NAME,...", help=", ".join(CONTENDERS))
    parser.add_argument("--cases", type=_some_of(CASES), default=CASES, metavar="CASE,...", help=", ".join(CASES))
    parser.add_argument("--pairs", type=_positive, default=5, help="rounds of each contender, interleaved")
    parser.add_argument("--requests", type=_positive, default=150, help="requests of each round under full load")
    parser.add_argument("--singles", type=_positive, default=25, help="requests of each round one at a time")
    parser.add_argument("--window", type=_positive, default=32, help="requests under way under full load")
    parser.add_argument("--recoveries", type=int, help="kills of a worker and restarts of the broker; 0 with --only, else 3")
    return parser


def _positive(given: str) -> int:
    number = int(given)
    if number < 1:
        raise argparse.ArgumentTypeError("must be 1 or more")
    return number


def _some_of(known: Iterable[str]) -> Callable[[str], tuple[str, ...]]:
    def some(given: str) -> tuple[str, ...]:
        names = tuple(given.split(","))
        if unknown := [name for name in names if name not in known]:
            raise argparse.ArgumentTypeError(f"no {', '.join(unknown)}; there are: {', '.join(known)}")
        return names

    return some


if __name__ == "__main__":
    sys.exit(main())
