"""The longer run, and the closer look.

python -m tests.simulation --seeds 10000 --from 0     # many seeds; ends with one line of JSON
python -m tests.simulation --seed 4711 --trace        # one seed again, with all that happened in it
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from functools import partial

import orjson

from tests.simulation.runs import Run, simulate
from tests.simulation.worlds import Wanted


def main() -> int:
    """Run what was asked for; 1 if a promise was broken."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--seeds", type=int, default=2000, help="how many seeds")
    parser.add_argument("--from", type=int, default=0, dest="start", help="the first one")
    parser.add_argument("--seed", type=int, help="this one alone")
    parser.add_argument("--trace", action="store_true", help="with --seed: print everything that happened")
    parser.add_argument("--set-back", action="store_true", help="the board loses its last second")
    parser.add_argument("--replays", action="store_true", help="everything that failed is replayed again and again")
    parser.add_argument("--forks", action="store_true", help="a third user forks requests")
    parser.add_argument("--boundary", action="store_true", help="shared fields, and a person who withdraws, decides and changes rules")
    parser.add_argument("--crash-at", default="", help="a point at which processes die")
    parser.add_argument("--jobs", type=int, default=2, help="processes to use")
    asked = parser.parse_args()
    wanted = Wanted(crash_at=asked.crash_at, set_back=asked.set_back, forks=asked.forks, replays=asked.replays, boundary=asked.boundary)
    if asked.seed is not None:
        run = simulate(asked.seed, wanted)
        print(run.told(100_000 if asked.trace else 60))
        return 1 if run.violations else 0
    return _many(range(asked.start, asked.start + asked.seeds), wanted, asked.jobs)


def _many(seeds: range, wanted: Wanted, jobs: int) -> int:
    began = time.perf_counter()
    happened: Counter[str] = Counter()
    crashed: Counter[str] = Counter()
    failed: list[Run] = []
    with ProcessPoolExecutor(jobs) as pool:
        for run in pool.map(partial(simulate, wanted=wanted), seeds, chunksize=10):
            happened += run.happened
            crashed += run.crashed_at
            if run.violations:
                failed.append(run)
                print(f"seed {run.seed}: {run.violations[0]}", file=sys.stderr, flush=True)
    figures = {
        "seeds": len(seeds),
        "violations": len(failed),
        "failed_seeds": [run.seed for run in failed],
        "seconds": round(time.perf_counter() - began, 1),
        "faults": dict(sorted(happened.items())),
        "crash_points": dict(sorted(crashed.items())),
    }
    print(orjson.dumps(figures).decode())
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
