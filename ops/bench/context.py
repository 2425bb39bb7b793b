"""What a brief saves: the same trip by passing the whole history on, by summaries, and by briefs, in tokens of a real tokenizer.

python -m ops.bench.context prints the tables, and writes build/context.json and docs/pictures/context.svg. Nothing of it depends on the
machine: two runs say the same.
"""

from __future__ import annotations

import asyncio
import sys
from dataclasses import asdict
from pathlib import Path

import orjson

from ops.bench.context_picture import picture, told
from ops.bench.context_tables import chains_table, left_table, measure, steps_table
from ops.bench.tokenizer import NAME, count
from ops.logs import configure
from ops.rendering import console

ROOT = Path(__file__).parents[2]


def main() -> int:
    """Measure, print and write."""
    configure("WARNING", "console")
    measured = asyncio.run(measure(count))
    out = console()
    out.print(f"[dim]tokens of {NAME}[/dim]")
    for table in (steps_table(measured), left_table(measured), chains_table(measured)):
        out.print(table)
    out.print(told(measured))
    kept = ROOT / "build" / "context.json"
    kept.parent.mkdir(parents=True, exist_ok=True)
    kept.write_bytes(orjson.dumps({"tokenizer": NAME, **asdict(measured)}, option=orjson.OPT_INDENT_2 | orjson.OPT_NON_STR_KEYS))
    (ROOT / "docs" / "pictures" / "context.svg").write_text(picture(measured, NAME), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
