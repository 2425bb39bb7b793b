"""Every process may die before and after every durable step, is started again, and nothing is lost or doubled.

`python -m tests.crash` runs the same by command, and `--pairs` every point together with the one that follows it.
"""

from __future__ import annotations

import os
import random
import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

from ops import crash_points
from ops.crash_points import CrashPoints
from schemas.errors import InvalidSettings
from tests.crash import matrix
from tests.crash.points import names, pairs, trials
from tests.crash.running import Trial, attempt_all, passed, record

PAIRS_IN_CI = 40
CLIENTS, ORCHESTRATORS, WORKERS = "client", "orchestrator", "worker"

pytestmark = pytest.mark.xdist_group("crash")


async def _recover(chosen: Iterable[Trial], redis_url: str, rabbitmq_url: str, folder: Path) -> None:
    tried, left = await attempt_all(chosen, redis_url, rabbitmq_url, folder)
    if missed := [each.trial for each in tried if each.outcome == "not reached"]:
        # A step that another process was quicker to make unnecessary; a crash that did not happen shows nothing yet.
        tried = [each for each in tried if each.outcome != "not reached"]
        again, left_again = await attempt_all(missed, redis_url, rabbitmq_url, folder / "again")
        tried, left = [*tried, *again], [*left, *left_again]
    wrong = [f"{each.outcome}: {each.trial.scenario} {each.trial.points} {each.broken}" for each in tried if each.outcome != "recovered"]
    assert wrong + left == []


@pytest.mark.parametrize("role", [CLIENTS, ORCHESTRATORS, WORKERS])
async def test_nothing_is_lost_or_doubled_whatever_the_step_at_which_a_process_dies(
    role: str, redis_url: str, rabbitmq_url: str, tmp_path: Path
) -> None:
    await _recover([trial for trial in trials() if trial.role == role], redis_url, rabbitmq_url, tmp_path)


async def test_every_crash_point_is_passed_by_a_plain_run_and_none_is_unlisted_and_two_crashes_in_a_row_lose_nothing(
    redis_url: str, rabbitmq_url: str, tmp_path: Path
) -> None:
    recorded = await record(redis_url, rabbitmq_url, tmp_path / "record", names())
    assert set(passed(recorded)) == names()
    every = list(pairs(recorded))
    assert len(every) > len(names())
    sample = random.Random(os.environ.get("BRIEFLINE_TEST_PAIRS", "1")).sample(every, PAIRS_IN_CI)
    await _recover(sample, redis_url, rabbitmq_url, tmp_path / "pairs")


def test_the_matrix_in_the_guarantees_has_every_point_and_no_other() -> None:
    text = matrix.GUARANTEES.read_text(encoding="utf-8")
    steps = {(role, f"{call} {what}") for role, call, what, _ in (name.split(":") for name in names())}
    assert matrix.steps_in(text) == steps
    assert not re.search("BROKEN|not tried|not reached", matrix.between(text, "crash matrix"))


@pytest.mark.parametrize("wrong", ["worker", "worker:write:step_completed:now", "worker:write:step_completed:after:0", "a:b:c:after:x"])
def test_a_point_that_is_none_is_refused(wrong: str) -> None:
    with pytest.raises(InvalidSettings, match="worker:write:step_completed:after"):
        CrashPoints("worker", wrong)


def test_a_process_without_the_variable_has_no_points() -> None:
    assert crash_points.crash_points("worker", {}) is None


def test_a_process_dies_at_the_passing_that_it_was_told_without_any_last_words() -> None:
    program = (
        "from ops.crash_points import CrashPoints\n"
        "points = CrashPoints('worker', 'worker:ack:task:after:2')\n"
        "try:\n"
        "    for n in range(3): print(n, flush=True); points.passed('ack:task', 'before'); points.passed('ack:task', 'after')\n"
        "finally:\n"
        "    print('last words', flush=True)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (crash_points.EXIT_CODE, "0\n1\n")
