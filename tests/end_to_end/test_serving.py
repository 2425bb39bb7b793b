"""Workers and orchestrators that are killed, told to end, or run somebody's poison; and steps that are replayed afterwards."""

from __future__ import annotations

import signal
import time
from typing import Any

import pytest

from tests.end_to_end.gates import Gate
from tests.end_to_end.processes import System, claims, results
from tests.end_to_end.test_demo import check_happy, check_stuck
from workers.teams.bitmall.demo import REQUEST

GATED = ("--team", "tests.end_to_end.teams:gated")
LEASE_SECONDS = 2


def submitted(system: System, *arguments: str) -> str:
    """Submit a request, and return its id."""
    done = system.run("submit", *arguments)
    assert done.code == 0, done.stderr
    return done.stdout.strip()


def nothing_is_dead(system: System, *agents: str) -> None:
    """No dead letter on the board, none at the broker, and none that the broker made."""
    assert system.json("dead", "list") == []
    for queue in ("dead.broker", "dead.unreadable", *(f"dead.{agent}" for agent in agents)):
        assert system.waiting_messages(queue) == 0, queue


def test_a_worker_killed_while_it_runs_product_is_replaced_within_a_lease(system: System) -> None:
    serve = ("--team", "tests.end_to_end.teams:slow")
    system.orchestrator()
    workers = [system.worker(*serve, lease_seconds=LEASE_SECONDS) for _ in range(2)]
    by_name = {worker.name: worker for worker in workers}
    request_id = submitted(system, REQUEST)
    first = system.wait_for_event(request_id, event="step_claimed", step="product")
    killed, other = by_name.pop(first.writer), next(iter(by_name.values()))
    killed_ms = system.now_ms()
    killed.kill()

    assert system.wait(request_id) == "COMPLETED"
    shown = system.json("show", request_id)
    taken = system.events(request_id, event="step_claimed", step="product")
    assert [(event.writer, event.labels["attempt"]) for event in taken] == [(killed.name, "1"), (other.name, "2")]
    assert sorted(results(shown)) == ["result/aftersales", "result/iot", "result/product"], "one result for each step"
    assert len(claims(shown, "aftersales")) == len(claims(shown, "iot")) == 1
    restarted_after = taken[1].at_ms - killed_ms
    assert restarted_after < (LEASE_SECONDS + 2) * 1000, "a lease, a sweep, and slack for a busy machine"
    shown["steps"][1]["attempt"] = 1
    check_happy(shown)
    nothing_is_dead(system, "product")


def test_a_dead_product_step_replayed_without_its_cause_completes_the_answer_and_runs_nothing_else(system: System) -> None:
    system.orchestrator()
    broken = system.worker(scenario="product-stuck")
    degraded = system.json("submit", REQUEST, "--wait", code=3)
    check_stuck(degraded)
    request_id = degraded["request_id"]
    assert [letter["step"] for letter in system.json("dead", "list")] == ["product"]
    assert system.waiting_messages("dead.product") == 1
    assert broken.end() == 0

    system.worker()
    replayed = system.json("dead", "replay", "--agent", "product", "--reason", "NO_PROGRESS")
    assert replayed == [{"request_id": request_id, "step": "product", "outcome": "replayed", "epoch": 1}]
    assert system.wait(request_id) == "COMPLETED"
    shown = system.json("show", request_id)
    assert [(step["epoch"], step["attempt"]) for step in shown["steps"]] == [(0, 1), (1, 1), (0, 1)]
    check_happy(shown)
    assert [len(claims(shown, step)) for step in ("aftersales", "product", "iot")] == [1, 2, 1]
    assert list(results(shown)) == ["result/aftersales", "result/product", "result/product", "result/iot"]
    assert system.json("dead", "list") == []
    assert system.run("dead", "replay", request_id, "product").code == 2, "there is nothing left to replay"


def test_a_worker_told_to_end_finishes_what_runs_and_leaves_the_rest_to_others(system: System, gate: Gate) -> None:
    system.orchestrator()
    leaving = system.worker(*GATED, concurrency=1, grace_seconds=30)
    leaving.wait_until_started()
    requests = [submitted(system, f"request {number}", *GATED, *gate.constraint) for number in range(3)]
    running = gate.visitor()
    leaving.send(signal.SIGTERM)
    assert leaving.wait_for("worker_draining")["running"] == 1
    staying = system.worker(*GATED)
    others = [gate.visitor() for _ in range(2)]
    for visitor in (running, *others):
        assert (visitor.step, visitor.attempt) == ("first", 1)
        visitor.let_in("opened")
    assert leaving.wait() == 0
    for visitor in (gate.visitor() for _ in range(3)):
        assert (visitor.step, visitor.attempt) == ("second", 1)
        visitor.let_in("opened")
    assert [system.wait(request) for request in requests] == ["COMPLETED"] * 3
    firsts = [event.writer for request in requests for event in system.events(request, event="step_completed", step="first")]
    assert sorted(firsts) == sorted([leaving.name, staying.name, staying.name]), "what ran was finished where it ran, and once"
    nothing_is_dead(system, "keeper")


@pytest.mark.parametrize("how", ["the grace time is over", "a second signal"])
def test_a_worker_without_time_hands_its_step_back_with_the_attempt(how: str, system: System, gate: Gate) -> None:
    system.orchestrator()
    leaving = system.worker(*GATED, grace_seconds=0.3 if how == "the grace time is over" else 600)
    leaving.wait_until_started()
    request_id = submitted(system, "let me in", *GATED, *gate.constraint)
    visitor = gate.visitor()
    leaving.send(signal.SIGTERM)
    leaving.wait_for("worker_draining")
    if how == "a second signal":
        leaving.send(signal.SIGTERM)
    assert visitor.is_gone()
    assert leaving.wait() == 0
    (back,) = system.events(request_id, event="step_handed_back", step="first")
    assert back.writer == leaving.name

    staying = system.worker(*GATED)
    for step in ("first", "second"):
        visitor = gate.visitor()
        assert (visitor.step, visitor.attempt) == (step, 1), "the attempt was returned"
        visitor.let_in("opened")
    assert system.wait(request_id) == "COMPLETED"
    assert [event.writer for event in system.events(request_id, event="step_claimed")] == [leaving.name, staying.name, staying.name]
    nothing_is_dead(system, "keeper")


def test_an_orchestrator_that_ends_or_is_killed_leaves_its_requests_to_the_other(system: System, gate: Gate) -> None:
    killed, told, staying = (system.orchestrator() for _ in range(3))
    staying.wait_until_started()
    system.worker(*GATED)
    request_id = submitted(system, "whoever is there", *GATED, *gate.constraint)
    first = gate.visitor()
    killed.wait_until_started()
    killed.kill()
    first.let_in("with two left")
    second = gate.visitor()
    begun = time.monotonic()
    assert told.end() == 0
    assert time.monotonic() - begun < 10
    assert told.logged("orchestrator_stopped")
    second.let_in("with one left")
    assert system.wait(request_id) == "COMPLETED"
    answer = system.json("show", request_id)["answer"]
    assert answer == "## First gate\n\nwith two left\n\n## Second gate\n\nwith one left"


def test_a_step_that_kills_its_workers_is_given_up_after_its_attempts(system: System) -> None:
    system.orchestrator()
    serve: dict[str, Any] = {"lease_seconds": 1, "sweep_seconds": 0.2}
    request_id = submitted(system, "who dares", "--team", "tests.end_to_end.teams:poison")
    for _ in range(2):
        victim = system.worker("--team", "tests.end_to_end.teams:poison", **serve)
        assert victim.wait() == -signal.SIGKILL
    survivor = system.worker("--team", "tests.end_to_end.teams:poison", **serve)
    assert system.wait(request_id) == "FAILED"
    (letter,) = system.json("dead", "list")
    assert (letter["reason"], letter["attempts"]) == ("ATTEMPTS_EXHAUSTED", 2)
    assert survivor.code is None
    assert len(system.events(request_id, event="step_claimed")) == 2
