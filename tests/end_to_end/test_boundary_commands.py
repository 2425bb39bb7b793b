"""The desk, retraction and rules from the command line, each command a process, against an orchestrator and a worker on servers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.end_to_end.processes import Commands, System

pytestmark = pytest.mark.xdist_group("commands")
CLAIMS = ("--team", "tests.end_to_end.teams:claims")


@pytest.fixture(scope="module")
def claims(commands: Commands, redis_url: str, rabbitmq_url: str) -> Iterator[System]:
    """The team whose claims may differ."""
    with System(commands, redis_url, rabbitmq_url) as made:
        for process in (made.orchestrator(), made.worker(*CLAIMS)):
            process.wait_until_started()
        yield made


def test_what_waits_for_a_person_is_listed_shown_decided_and_then_goes_on(claims: System) -> None:
    first = claims.json("submit", "Buy it.", *CLAIMS, "--constraint", "front=red", "--constraint", "back=blue", "--wait", code=3)
    request = first["request_id"]
    assert first["status"] == "DEGRADED" and first["shared"]["colour"]["contested"] is True
    listed = {each["item"]: each for each in claims.json("desk", "list", "--request", request)}
    assert set(listed) == {"field:colour", "step:pay"}
    shown = claims.run("desk", "show", request, "field:colour").stdout
    assert "2 independent sources" in shown and "'red'" in shown and "'blue'" in shown and f"briefline desk decide {request}" in shown

    wrong = claims.run("desk", "decide", request, "field:colour", "green")
    assert wrong.code == 2 and "no claim 'green'" in wrong.stderr and "Traceback" not in wrong.stderr
    assert claims.run("desk", "decide", request, "field:nothing", "approve").code == 2
    claims.json("desk", "decide", request, "field:colour", "blue", "--reason", "I looked at it")
    assert claims.wait(request) == "DEGRADED"  # settled; paying still asks first
    assert [each["item"] for each in claims.json("desk", "list", "--request", request)] == ["step:pay"]
    claims.json("desk", "decide", request, "step:pay", "approve", "--reason", "checked")
    assert claims.wait(request) == "COMPLETED"
    assert "paid for a blue one" in claims.json("show", request)["answer"]
    assert "0 things wait" in claims.run("desk", "list", "--request", request).stdout


def test_what_a_step_said_is_withdrawn_and_the_answer_says_what_changed(claims: System) -> None:
    first = claims.json("submit", "Buy it.", *CLAIMS, "--constraint", "front=red", "--constraint", "back=red", "--wait", code=3)
    request = first["request_id"]
    claims.json("desk", "decide", request, "step:pay", "approve")
    assert claims.wait(request) == "COMPLETED"
    assert claims.run("retract", request, "front.size", "--reason", "wrong").code == 2
    assert claims.run("retract", request, "front", "--reason", "wrong").code == 2
    said = claims.run("retract", request, "front.seen", "--reason", "it was another one")
    assert said.code == 0 and "front.seen is withdrawn" in said.stdout
    assert claims.wait(request) == "DEGRADED"
    shown = claims.json("show", request)
    assert "corrects an earlier one" in shown["answer"] and "it was another one" in shown["answer"]
    assert [each["key"] for each in shown["retractions"]] == ["seen"]
    assert claims.run("audit", request, *CLAIMS).code == 0


def test_rules_are_changed_by_name_and_a_wrong_one_is_refused(claims: System) -> None:
    first = claims.json("submit", "Buy it.", *CLAIMS, "--constraint", "front=red", "--constraint", "back=red", "--wait", code=3)
    wrong = claims.run("rules", first["request_id"], "--set", "kindness=1")
    assert wrong.code == 2 and "commit_confidence" in wrong.stderr
    assert claims.run("rules", first["request_id"], "--set", "commit_confidence=7").code == 2
    over = claims.run("rules", first["request_id"], "--set", "commit_confidence=0.9")
    assert over.code == 2 and "over" in over.stderr
