"""The trip team as a newcomer sees it, in this process and on servers; and its worker killed in the middle of a superstep."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tests.end_to_end.processes import Commands, System, claims, results
from workers.teams.trip.demo import REQUEST

LEASE_SECONDS = 2
STEPS = ["requirements", "spots", "hotels", "final"]


def check_happy(shown: dict[str, Any]) -> None:
    """A whole itinerary, within the budget, that quotes its source."""
    assert (shown["status"], shown["gaps"]) == ("COMPLETED", [])
    assert [(step["id"], step["state"]) for step in shown["steps"]] == [(step, "COMPLETED") for step in STEPS]
    for said in ("## 逐日行程", "### 第 3 天", "合计 7600 元，预算 20000 元", "婴儿车可以推入全园", "（出处：art_"):
        assert said in shown["answer"]


def check_hotels_failing(shown: dict[str, Any]) -> None:
    """An itinerary all the same, and the gap by its name."""
    assert shown["status"] == "DEGRADED"
    assert shown["gaps"] == [{"step": "hotels", "reason": "NO_PROGRESS", "stopped": []}]
    for said in ("### 第 3 天", "住宿：未定", "“住宿”这一部分没有完成", "NO_PROGRESS"):
        assert said in shown["answer"]


CHECKS = {"happy": check_happy, "hotels-failing": check_hotels_failing}


@pytest.mark.parametrize("scenario", CHECKS)
def test_the_demo_of_the_trip_in_this_process(scenario: str, commands: Commands) -> None:
    done = commands.run("demo", "--team", "trip", "--json", "--scenario", scenario, environment=dict(os.environ))
    assert done.code == 0, done.stderr
    assert done.stderr == ""
    CHECKS[scenario](done.json)


def test_the_demo_of_the_trip_for_people_shows_the_state_that_its_steps_share(commands: Commands) -> None:
    done = commands.run("demo", "--team", "trip", environment={**os.environ, "COLUMNS": "160"})
    assert done.code == 0, done.stderr
    for said in ("team trip", "shared state", "spentBudget", "7600", "5360 reserved by hotels", "未列入：新宿夜光剧场", "COMPLETED: "):
        assert said in done.stdout


@pytest.mark.parametrize("scenario", CHECKS)
def test_the_demo_of_the_trip_on_servers(scenario: str, system: System) -> None:
    done = system.run("demo", "--team", "trip", "--json", "--scenario", scenario, "--backend", "servers")
    assert done.code == 0, done.stderr
    CHECKS[scenario](done.json)
    audited = system.json("audit", done.json["request_id"], "--team", "trip")
    assert audited["passed"], audited


def test_a_worker_killed_while_it_runs_the_hotels_is_replaced_and_the_spots_do_not_run_again(system: System, tmp_path: Path) -> None:
    serve = ("--team", "tests.end_to_end.teams:slow_trip")
    system.orchestrator()
    workers = [system.worker(*serve, lease_seconds=LEASE_SECONDS, artifacts_url=str(tmp_path / "artifacts")) for _ in range(2)]
    by_name = {worker.name: worker for worker in workers}
    submitted = system.run("submit", "--team", "trip", REQUEST)
    assert submitted.code == 0, submitted.stderr
    request_id = submitted.stdout.strip()
    spots = system.wait_for_event(request_id, event="step_completed", step="spots")
    killed = by_name[system.events(request_id, event="step_claimed", step="hotels")[0].writer]
    assert not system.events(request_id, event="step_completed", step="hotels")
    killed.kill()

    assert system.wait(request_id) == "COMPLETED"
    shown = system.json("show", request_id)
    check_happy(shown)
    taken = [event.writer for event in system.events(request_id, event="step_claimed", step="hotels")]
    assert len(taken) == 2 and taken[0] == killed.name and taken[1] != killed.name
    assert [len(claims(shown, step)) for step in STEPS] == [1, 1, 2, 1]
    assert sorted(results(shown)) == sorted(f"result/{step}" for step in STEPS), "one result for each step"
    (absorbed,) = [event for event in system.events(request_id, event="changes_absorbed") if "hotels" in event.labels["steps"]]
    assert absorbed.labels["steps"] == "spots,hotels" and absorbed.position > spots.position
