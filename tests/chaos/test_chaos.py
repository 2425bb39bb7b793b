"""Everything breaks while many requests run: none is lost, none is doubled, each ends with an answer.

`python -m tests.chaos` runs longer.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.chaos.faults import Breaker
from tests.chaos.running import run

REQUESTS = 60
CHAOS_SECONDS = 28.0
SEED = int(os.environ.get("BRIEFLINE_TEST_CHAOS_SEED", "1"))

pytestmark = [pytest.mark.own_server, pytest.mark.xdist_group("chaos")]


async def test_nothing_is_lost_or_doubled_and_everything_ends_with_an_answer_while_processes_servers_and_lines_break(
    tmp_path: Path,
) -> None:
    figures = await run(tmp_path, requests=REQUESTS, seed=SEED, chaos_seconds=CHAOS_SECONDS)
    assert figures.broken == [], figures
    assert (figures.lost, figures.doubled, figures.without_answer, figures.unfinished) == (0, 0, 0, 0)
    assert figures.kept, "too few requests were accepted for this to mean anything"
    assert figures.kills >= 3
    assert len(figures.faults) >= 10, f"too few kinds of faults came to pass: {figures.faults}"
    assert set(figures.faults) <= {name for name in dir(Breaker) if not name.startswith("_")}
