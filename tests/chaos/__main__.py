"""The longer run; ends with one line of JSON, and with status 1 where a promise was broken.

python -m tests.chaos --requests 500 --seed 1 --minutes 3
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import sys
import tempfile
from pathlib import Path

import orjson

from ops.logs import configure
from tests.chaos.running import run


def main() -> int:
    """Run once, and keep the record and all logs where a promise was broken."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.chaos", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--requests", type=int, default=500, help="how many requests")
    parser.add_argument("--seed", type=int, default=1, help="of the users' wishes and of the faults")
    parser.add_argument("--minutes", type=float, default=3.0, help="how long things break")
    parser.add_argument("--keep", type=Path, help="copy the record there")
    asked = parser.parse_args()
    configure("ERROR", "console")
    folder = Path(tempfile.mkdtemp(prefix="briefline-chaos-"))
    figures = asyncio.run(run(folder, requests=asked.requests, seed=asked.seed, chaos_seconds=60 * asked.minutes))
    if asked.keep:
        shutil.copy(folder / "history.jsonl", asked.keep)
    if figures.kept:
        shutil.rmtree(folder)
    else:
        print(f"the record and the logs are in {folder}", file=sys.stderr)
    print(orjson.dumps(figures.as_json()).decode())
    return 0 if figures.kept else 1


if __name__ == "__main__":
    sys.exit(main())
