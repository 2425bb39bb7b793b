"""The whole system under seeded faults keeps its promises (invariants 1 to 15). `python -m tests.simulation` runs more.

A seed that fails here runs again, with all that happened, by `python -m tests.simulation --seed N --trace`.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter

import pytest

from tests.simulation.runs import Run, simulate
from tests.simulation.worlds import Wanted

SEEDS = int(os.environ.get("BRIEFLINE_TEST_SEEDS", "2000"))
AT_A_TIME = 25
SET_BACK_SEEDS = SEEDS // 10
CALM_SEEDS = 25

FAULTS = (
    *("crash", "stop", "pause", "line_lost", "amnesia", "board_outage", "broker_outage", "garbage"),
    *("slow", "stall", "resent", "unanswered", "unsent", "belated", "sent_by_a_caller_that_is_gone", "undeliverable"),
    *(f"broker_{kind}" for kind in ("duplicate", "lose", "delay", "reorder", "redeliver", "unknown")),
    *("outcome_Conflict", "outcome_Held", "outcome_Written"),
    *(f"agent_{kind}" for kind in ("ok", "slow", "very_slow", "plans", "passing", "line_error", "dying", "failing", "raising", "looping")),
    *(f"agent_{kind}" for kind in ("lying", "unsigned", "empty", "hanging", "stubborn", "exits", "failed_result")),
    *("told_cancel_done", "told_cancel_refused", "told_replay_done", "told_replay_refused", "told_replay_unknown", "told_drop_done"),
)
"""Every kind of fault, agent and outcome that a few hundred seeds have to meet."""

WRITES = {
    "orchestrator": (
        *("plan_written", "further_steps_taken_in", "further_steps_refused", "step_failed", "step_replayed", "dead_letter_dropped"),
        *("request_completed", "request_degraded", "request_failed", "request_cancelled", "deadline_passed", "command_refused"),
    ),
    "worker": ("step_claimed", "step_completed", "step_failed", "step_to_be_retried", "step_handed_back", "late_result_refused"),
    "producer": ("request_opened",),
}
CALLS = {
    "orchestrator": (
        *("read", "due", "settle", "enter", "mark", "dead_add", "dead_remove", "publish.TASK", "publish.REQUEST", "publish.LETTER"),
        *("park", "ack.SUBMIT", "ack.CANCEL", "ack.REPLAY", "ack.DROP", "ack.RESULT_READY", "ack.RESULT_FAILED", "ack.TASK"),
    ),
    "worker": (
        *("mark", "renew", "leave", "enter", "dead_add", "publish.RESULT_READY", "publish.RESULT_FAILED", "publish.LETTER"),
        *("park", "ack.TASK"),
    ),
    "producer": ("enter", "recent_add", "publish.SUBMIT"),
    "client": ("read", "dead_list", "publish.CANCEL", "publish.REPLAY", "publish.DROP"),
}
POINTS = (
    *(f"{kind}.{call}:{when}" for kind, calls in CALLS.items() for call in calls for when in ("before", "after")),
    *(f"{kind}.write.{event}:{when}" for kind, events in WRITES.items() for event in events for when in ("before", "after")),
    *("client.watch:before", "worker.resize:before", "worker.declare_agent:before", "orchestrator.declare_agent:before"),
)
"""Where a process can die: before and after the effect of each call of a port."""
FORKING = tuple(
    f"{point}:{when}"
    for point in (
        *("forker.read", "forker.events", "forker.enter", "forker.write.request_opened", "forker.publish.SUBMIT"),
        *("orchestrator.write.step_reused", "orchestrator.write.fork_begun"),
    )
    for when in ("before", "after")
)
"""The same of a fork: its user's calls, and what the orchestrator takes over."""
_AT_THE_BOUNDARY = {
    "orchestrator": (
        *("write.changes_absorbed", "write.promoted", "write.retracted", "write.stale_found", "write.rechecked", "write.decided"),
        *("write.rules_changed", "dead_add", "dead_remove", "ack.RETRACT", "ack.DECIDE", "ack.RULES"),
    ),
    "worker": ("write.step_regated",),
    "reviewer": ("read", "dead_list", "publish.RETRACT", "publish.DECIDE", "publish.RULES"),
}
BOUNDARY = tuple(f"{kind}.{call}:{when}" for kind, calls in _AT_THE_BOUNDARY.items() for call in calls for when in ("before", "after"))
"""The same of what changes shared fields, withdraws and decides."""
AT_THE_BOUNDARY = (
    *("superstep_absorbed", "boundary_refused", "boundary_promoted", "boundary_withdrawn", "state_changed"),
    *("contested", "contested_for_its_arbiter", "settled_by_arbiter", "flagged"),
    *("boundary_retracted", "boundary_reopened", "boundary_given_up", "boundary_to_a_person", "boundary_flagged", "boundary_rechecked"),
    *("boundary_decided", "boundary_rules_changed", "boundary_step_regated", "changed_while_it_ran", "answer_corrected"),
    *("desk_step", "desk_action", "desk_field", "desk_said"),
    *(f"told_{what}_{how}" for what in ("retract", "decide", "rules") for how in ("done", "refused", "unknown")),
)
"""All that has to happen to shared fields, and at the desk, within a few hundred seeds."""
TRIES_AT_A_POINT = 400


def kept(*runs: Run) -> None:
    broken = [run for run in runs if run.violations]
    assert not broken, "\n\n".join(run.told() for run in broken)


@pytest.mark.parametrize("first", range(0, SEEDS, AT_A_TIME))
def test_invariants_1_to_15_hold_whatever_breaks(first: int) -> None:
    kept(*(simulate(seed) for seed in range(first, first + AT_A_TIME)))


@pytest.mark.parametrize("first", range(0, SET_BACK_SEEDS, AT_A_TIME))
def test_invariants_hold_when_the_board_loses_its_last_second(first: int) -> None:
    runs = [simulate(seed, Wanted(set_back=True)) for seed in range(first, first + AT_A_TIME)]
    kept(*runs)
    assert sum(run.happened["writes_lost"] for run in runs) > 0


@pytest.mark.parametrize("first", range(0, SET_BACK_SEEDS, AT_A_TIME))
def test_invariants_hold_when_everything_that_failed_is_replayed_again_and_again(first: int) -> None:
    kept(*(simulate(seed, Wanted(replays=True)) for seed in range(first, first + AT_A_TIME)))


@pytest.mark.parametrize("first", range(0, SET_BACK_SEEDS, AT_A_TIME))
@pytest.mark.parametrize("set_back", [False, True], ids=["", "set back"])
def test_invariants_hold_when_requests_are_forked_while_they_run_and_afterwards(first: int, set_back: bool) -> None:
    runs = [simulate(seed, Wanted(forks=True, set_back=set_back)) for seed in range(first, first + AT_A_TIME)]
    kept(*runs)
    happened = sum((run.happened for run in runs), Counter[str]())
    assert {"step_reused", "forked_while_it_ran", "forked_when_it_was_over"} <= happened.keys()


@pytest.mark.parametrize("first", range(0, SET_BACK_SEEDS, AT_A_TIME))
@pytest.mark.parametrize(
    "wanted",
    [Wanted(boundary=True), Wanted(boundary=True, set_back=True), Wanted(boundary=True, forks=True)],
    ids=["", "set back", "forks"],
)
def test_invariants_hold_when_values_are_merged_contested_withdrawn_and_decided(first: int, wanted: Wanted) -> None:
    kept(*(simulate(seed, wanted) for seed in range(first, first + AT_A_TIME)))


def test_all_that_can_happen_at_the_boundary_does() -> None:
    happened: Counter[str] = Counter()
    for seed in range(52_000, 53_600):
        run = simulate(seed, Wanted(boundary=True))
        kept(run)
        happened += run.happened
        if happened.keys() >= set(AT_THE_BOUNDARY):
            return
    assert set(AT_THE_BOUNDARY) - happened.keys() == set()


@pytest.mark.parametrize("point", BOUNDARY)
def test_invariants_hold_at_the_boundary_when_a_process_dies_at(point: str) -> None:
    for seed in range(40_000, 40_000 + TRIES_AT_A_POINT):
        run = simulate(seed, Wanted(boundary=True, crash_at=point))
        kept(run)
        if run.crashed_at[point]:
            return
    pytest.fail(f"no process came to {point} in {TRIES_AT_A_POINT} seeds")


@pytest.mark.parametrize("point", FORKING)
def test_invariants_hold_when_a_process_dies_while_forking_at(point: str) -> None:
    for seed in range(30_000, 30_000 + TRIES_AT_A_POINT):
        run = simulate(seed, Wanted(forks=True, crash_at=point))
        kept(run)
        if run.crashed_at[point]:
            return
    pytest.fail(f"no process came to {point} in {TRIES_AT_A_POINT} seeds")


def test_where_nothing_breaks_nothing_is_late_or_repeated() -> None:
    runs = [simulate(seed, Wanted(calm=True)) for seed in range(CALM_SEEDS)]
    kept(*runs)
    happened = sum((run.happened for run in runs), Counter[str]())
    assert not {"resent", "unanswered", "stall", "broker_duplicate", "broker_lose", "pause"} & happened.keys()


def test_every_kind_of_fault_is_met() -> None:
    happened: Counter[str] = Counter()
    for seed in range(10_000, 10_400):
        run = simulate(seed)
        kept(run)
        happened += run.happened
        if happened.keys() >= set(FAULTS):
            return
    assert set(FAULTS) - happened.keys() == set()


@pytest.mark.parametrize("point", POINTS)
def test_invariants_hold_when_a_process_dies_at(point: str) -> None:
    for seed in range(20_000, 20_000 + TRIES_AT_A_POINT):
        run = simulate(seed, Wanted(crash_at=point))
        kept(run)
        if run.crashed_at[point]:
            return
    pytest.fail(f"no process came to {point} in {TRIES_AT_A_POINT} seeds")


def test_a_seed_runs_the_same_again_in_another_process() -> None:
    again = [
        subprocess.run(
            [sys.executable, "-m", "tests.simulation", "--seed", "17", "--trace"],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            check=True,
        ).stdout
        for hash_seed in ("1", "2")
    ]
    assert again[0] == again[1]
    assert again[0].decode() == simulate(17).told(100_000) + "\n"
