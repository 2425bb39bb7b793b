"""The bench. It prints ratios, and writes build/bench.json; a whole run writes docs/performance.md and its picture as well.

python -m ops.bench --only briefline,celery --pairs 2 --requests 100
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Sequence

from ops.bench.bar import measured
from ops.bench.contenders import CASES, CONTENDERS
from ops.bench.rendering import bar_table, cases_table
from ops.bench.running import Failed, Plan, own_servers, run
from schemas.errors import BrieflineError


def main(arguments: Sequence[str] | None = None) -> int:
    """Run as asked; 1 when a contender failed or the servers are not to be had."""
    asked = _parser().parse_args(arguments)
    plan = Plan(asked.only, asked.cases, asked.pairs, asked.requests, asked.singles, asked.window)
    try:
        with own_servers() as servers:
            rounds = run(plan, servers, tell=lambda line: print(line, file=sys.stderr, flush=True))
    except (Failed, BrieflineError) as error:
        print(error, file=sys.stderr)
        return 1
    print(cases_table(rounds))
    print(f"\n{bar_table(measured(rounds))}")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="make bench ARGS=...", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", type=_some_of(CONTENDERS), default=tuple(CONTENDERS), metavar="NAME,...", help=", ".join(CONTENDERS))
    parser.add_argument("--cases", type=_some_of(CASES), default=CASES, metavar="CASE,...", help=", ".join(CASES))
    parser.add_argument("--pairs", type=int, default=5, help="rounds of each contender, interleaved")
    parser.add_argument("--requests", type=int, default=100, help="requests of each round under full load")
    parser.add_argument("--singles", type=int, default=20, help="requests of each round one at a time")
    parser.add_argument("--window", type=int, default=32, help="requests under way under full load")
    return parser


def _some_of(known: Iterable[str]) -> Callable[[str], tuple[str, ...]]:
    def some(given: str) -> tuple[str, ...]:
        names = tuple(given.split(","))
        if unknown := [name for name in names if name not in known]:
            raise argparse.ArgumentTypeError(f"no {', '.join(unknown)}; there are: {', '.join(known)}")
        return names

    return some


if __name__ == "__main__":
    sys.exit(main())
