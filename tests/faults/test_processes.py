"""Processes that stand still, and processes whose clocks are wrong."""

from __future__ import annotations

import signal
import time
from collections import Counter
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import pytest

from tests.end_to_end.gates import Gate
from tests.end_to_end.processes import Commands, System, claims, results

pytestmark = pytest.mark.timeout(90)

GATED = ("--team", "tests.end_to_end.teams:gated")
REQUESTS = 4
CLOCKS = Path(__file__).parent / "clocks"
"""On a process's path, its `sitecustomize` shifts the wall clock by BRIEFLINE_TEST_CLOCK_SHIFT_SECONDS."""


@pytest.fixture
def processes(commands: Commands, redis_url: str, rabbitmq_url: str) -> Iterator[System]:
    """Processes whose lines to RabbitMQ are given up after three silent seconds."""
    with System(commands, redis_url, f"{rabbitmq_url}?heartbeat=1") as made:
        yield made


def test_an_orchestrator_that_stood_still_does_nothing_again_that_another_has_done(processes: System, gate: Gate) -> None:  # F51
    paused, other = processes.orchestrator(), processes.orchestrator()
    processes.worker(*GATED)
    for process in (paused, other):
        process.wait_until_started()
    requests = [processes.run("submit", f"request {number}", *GATED, *gate.constraint).stdout.strip() for number in range(REQUESTS)]
    firsts = [gate.visitor() for _ in requests]
    for visitor in firsts[: REQUESTS // 2]:
        visitor.let_in("before")
    paused.send(signal.SIGSTOP)
    try:
        for visitor in firsts[REQUESTS // 2 :]:
            visitor.let_in("while it stood")
        seconds = [gate.visitor() for _ in requests]
    finally:
        paused.send(signal.SIGCONT)
    for visitor in (*firsts, *seconds):
        assert visitor.attempt == 1
    for visitor in seconds:
        visitor.let_in("and on")

    assert [processes.wait(request) for request in requests] == ["COMPLETED"] * REQUESTS
    for request in requests:
        shown = processes.json("show", request)
        assert [len(claims(shown, each)) for each in ("first", "second")] == [1, 1]
        assert sorted(results(shown)) == ["result/first", "result/second"]
        happened = Counter(event.get("event") for event in shown["timeline"])
        assert (happened["plan_written"], happened["request_completed"]) == (1, 1)
    assert processes.json("dead", "list") == []
    assert paused.code is None, "it goes on"


def test_workers_whose_clocks_are_an_hour_off_hold_their_steps_like_any_other(
    processes: System, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:  # F50
    monkeypatch.setenv("PYTHONPATH", str(CLOCKS))
    processes.orchestrator()
    shifts = (3600, -3600)
    wrong = [processes.worker(*GATED, lease_seconds=1, test_clock_shift_seconds=shift) for shift in shifts]
    shown = [datetime.fromisoformat(each.wait_for("worker_started")["timestamp"]).timestamp() for each in wrong]
    assert abs(shown[0] - shown[1] - 7200) < 60, "their clocks are really off"
    requests = [processes.run("submit", f"request {number}", *GATED, *gate.constraint).stdout.strip() for number in range(REQUESTS)]
    firsts = [gate.visitor() for _ in requests]
    time.sleep(2.5)  # two leases and more: nobody may take a step over, and only time can show it
    for visitor in firsts:
        assert visitor.attempt == 1
        visitor.let_in("two leases later")
    for visitor in [gate.visitor() for _ in requests]:
        assert visitor.attempt == 1
        visitor.let_in("and on")
    assert [processes.wait(request) for request in requests] == ["COMPLETED"] * REQUESTS
    claimed = [event for request in requests for event in processes.events(request, event="step_claimed")]
    assert len(claimed) == 2 * REQUESTS and {event.labels["attempt"] for event in claimed} == {"1"}
    assert {event.writer for event in claimed} == {each.name for each in wrong}, "both had some"
