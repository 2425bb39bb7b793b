"""The commands of a user and of an operator, each as a process, against one orchestrator and one worker."""

from __future__ import annotations

import hashlib
import json
import signal
from typing import Any

import pytest

from tests.end_to_end.gates import Gate
from tests.end_to_end.processes import System
from tests.end_to_end.test_demo import TOP, check_shape
from workers.teams.bitmall.demo import REQUEST

pytestmark = pytest.mark.xdist_group("commands")
"""One system for all of them: started once, not once in each test process."""

NO_ORDER = "扫地机老掉线，帮我查保修。"
UNKNOWN_ORDER = "订单 99999 的扫地机老掉线。"


@pytest.fixture(scope="module")
def answered(bitmall: System) -> dict[str, Any]:
    """The demo's request, submitted and waited for, as `submit --wait --json` printed it."""
    shown: dict[str, Any] = bitmall.json("submit", REQUEST, "--wait")
    return shown


@pytest.fixture(scope="module")
def failed(bitmall: System) -> dict[str, Any]:
    """A request about an order that the shop does not have: FAILED, with one dead letter."""
    shown: dict[str, Any] = bitmall.json("submit", UNKNOWN_ORDER, "--wait", code=4)
    return shown


def test_submit_wait_json_prints_the_whole_report_and_exits_by_the_status(answered: dict[str, Any], failed: dict[str, Any]) -> None:
    check_shape(answered)
    assert answered["status"] == "COMPLETED"
    assert failed["status"] == "FAILED"
    assert failed["gaps"] == [{"step": "aftersales", "reason": "MISSING_OUTPUT", "stopped": ["product", "iot"]}]
    assert failed["facts"] == []


def test_submit_wait_shows_each_step_as_it_goes_and_then_the_answer(bitmall: System) -> None:
    done = bitmall.run("submit", REQUEST, "--wait")
    assert done.code == 0, done.stderr
    steps = [line for line in done.stderr.splitlines() if not line.startswith("{")]
    for step in ("aftersales", "product", "iot"):
        assert [line for line in steps if line.startswith(step)][-1] == f"{step}: COMPLETED"
    assert steps.index("aftersales: COMPLETED") < steps.index("product: RUNNING") < steps.index("iot: RUNNING")
    assert "2027-06-21" in done.stdout


def test_submit_without_waiting_prints_the_id_and_nothing_else(bitmall: System) -> None:
    done = bitmall.run("submit", "-", input=REQUEST.encode())
    assert (done.code, done.stderr) == (0, "")
    request_id = done.stdout.strip()
    assert done.stdout == f"{request_id}\n"
    assert bitmall.json("show", request_id)["request_id"] == request_id


def test_a_given_constraint_wins_over_the_words(bitmall: System) -> None:
    shown = bitmall.json("submit", REQUEST, "--wait", "--constraint", "budget=1500")
    facts = {fact["key"]: fact["value"] for fact in shown["facts"] if fact["step"] == "product"}
    assert facts["candidateCount"] == 1
    assert facts["candidateAPrice"] <= 1500
    brief = bitmall.run("show", shown["request_id"], "--brief", "product").stdout
    assert "换新预算 1500 元以内" in brief


def test_the_same_key_and_content_is_the_same_request_and_other_content_is_refused(bitmall: System) -> None:
    first = bitmall.json("submit", REQUEST, "--key", "once")
    second = bitmall.json("submit", REQUEST, "--key", "once")
    assert first == {"request_id": first["request_id"], "new": True}
    assert second == {"request_id": first["request_id"], "new": False}
    other = bitmall.run("submit", UNKNOWN_ORDER, "--key", "once", "--json")
    assert (other.code, other.stdout) == (2, "")
    assert "'once'" in other.stderr
    assert first["request_id"] in other.stderr


def test_show_crossings_prints_each_decision_with_its_answers_and_checks(bitmall: System, answered: dict[str, Any]) -> None:
    request = answered["request_id"]
    shown = bitmall.json("show", request, "--crossings")
    assert [each["step"] for each in shown["decisions"]] == ["aftersales", "product", "iot"]
    assert [each["as_decided"] for each in shown["decisions"]] == [None, True, True]
    crossing = next(each for each in shown["decisions"][2]["crossings"] if each["need"] == "product.candidateAPrice")
    assert (crossing["outcome"], crossing["reason"]) == ("pass", None)
    assert {"need", "retraction", "freshness", "confidence", "size"} <= {check["name"] for check in crossing["checks"]}
    printed = bitmall.run("show", request, "--crossings").stdout
    for said in ("product.candidateAPrice", "by whose right", "good until when", "not_needed", "freshness"):
        assert said in printed


def test_audit_exits_by_what_it_found(bitmall: System, answered: dict[str, Any], failed: dict[str, Any]) -> None:
    for request in (answered, failed):
        assert bitmall.json("audit", request["request_id"])["found"] == []
    done = bitmall.run("audit", answered["request_id"])
    assert (done.code, done.stdout.startswith("passed: 3 briefs of ")) == (0, True)
    unknown = bitmall.run("audit", "nobody")
    assert (unknown.code, "no request 'nobody'" in unknown.stderr) == (2, True)


def test_metrics_are_of_named_requests_or_of_each_team_and_stand_in_show(bitmall: System, answered: dict[str, Any]) -> None:
    request = answered["request_id"]
    named = bitmall.json("metrics", request, "--input-price", "1", "--output-price", "2")
    (one,) = named["requests"]
    assert (one["request_id"], one["team"]) == (request, "bitmall")
    assert one["tokens_per_success"]["value"] == answered["usage"]["input_tokens"] + answered["usage"]["output_tokens"]
    assert one["cost_per_success"]["value"] == (answered["usage"]["input_tokens"] + 2 * answered["usage"]["output_tokens"]) / 1e6
    shown = bitmall.json("show", request)["metrics"]
    assert shown["handoff_success"] == one["handoff_success"]
    assert shown["cost_per_success"]["why_none"].startswith("no price")
    recent = bitmall.json("metrics", "--team", "bitmall")
    assert recent["teams"]["bitmall"]["requests"] == len(recent["requests"]) >= 1
    assert bitmall.json("metrics", "--team", "nobody") == {"requests": [], "teams": {}}
    assert "context precision" in bitmall.run("metrics").stdout
    assert bitmall.run("metrics", "--input-price", "1").code == 2
    assert bitmall.run("metrics", "nobody").code == 2


BAD_INPUT: dict[str, tuple[list[str], bytes, str]] = {
    "a required constraint is missing": (["submit", NO_ORDER], b"", "constraints.order_number: 订单号 is required"),
    "a constraint of another type": (["submit", REQUEST, "--constraint", "budget=much"], b"", "constraints.budget: must be integer"),
    "a constraint that is none": (["submit", REQUEST, "--constraint", "colour=red"], b"", "there are: order_number, budget, device_owned"),
    "a constraint without a value": (["submit", REQUEST, "--constraint", "budget"], b"", "name=value"),
    "an unknown team": (["submit", REQUEST, "--team", "nobody"], b"", "shipped are: bitmall"),
    "no words": (["submit", "  "], b"", "at least one word"),
    "a deadline in the past": (["submit", REQUEST, "--deadline", "-1"], b"", "deadline_seconds"),
    "a deadline that is no number": (["submit", REQUEST, "--deadline", "nan"], b"", "deadline_seconds"),
    "five megabytes": (["submit", "-"], b"\xe8\xae\xa2" * 1_700_000, "the limit is 65,536"),
    "invalid UTF-8": (["submit", "-"], b"\xff\xfe", "not UTF-8"),
    "a lone surrogate": (["submit", "\udcff 订单 88231"], b"", "surrogate"),
    "an unknown agent": (["worker", "--agents", "nobody"], b"", "aftersales, product, iot"),
    "an unknown request": (["show", "nobody"], b"", "no request 'nobody'"),
    "a request id that is none": (["show", "a{b}"], b"", "no request id"),
    "an unknown request to cancel": (["cancel", "nobody"], b"", "no request 'nobody'"),
    "a fork of an unknown request": (["fork", "nobody", "--at", "iot"], b"", "no request 'nobody' to fork"),
    "an unknown request to compare": (["diff", "nobody", "nobody"], b"", "no request 'nobody'"),
    "a private record of an unknown request": (["show", "nobody", "--private", "iot"], b"", "no request 'nobody'"),
    "an attempt of nothing private": (["show", "nobody", "--attempt", "1"], b"", "attempt: an attempt is named with --private STEP"),
    "a session without a name": (["submit", REQUEST, "--session", " "], b"", "session: a session has a name"),
    "a dead letter that is none": (["dead", "show", "nobody", "product"], b"", "no request 'nobody'"),
    "replay of everything, unsaid": (["dead", "replay"], b"", "--all"),
    "a status that is none": (["list", "--status", "SLEEPING"], b"", "SLEEPING"),
}


@pytest.mark.parametrize("what", BAD_INPUT)
def test_bad_input_is_refused_with_one_clear_line_and_code_2_and_opens_nothing(what: str, bitmall: System) -> None:
    arguments, given, said = BAD_INPUT[what]
    before = bitmall.json("list", "--limit", "1000")
    done = bitmall.run(*arguments, input=given)
    assert (done.code, done.stdout) == (2, "")
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    after = bitmall.json("list", "--limit", "1000")
    assert [each["request_id"] for each in after] == [each["request_id"] for each in before]


def test_list_shows_recent_requests_and_by_status(bitmall: System, answered: dict[str, Any], failed: dict[str, Any]) -> None:
    listed = bitmall.json("list", "--status", "failed")
    assert {each["status"] for each in listed} == {"FAILED"}
    (mine,) = [each for each in listed if each["request_id"] == failed["request_id"]]
    assert (mine["team"], mine["text"]) == ("bitmall", UNKNOWN_ORDER)
    assert 0 <= mine["age_ms"] < 600_000
    for_people = bitmall.run("list").stdout
    assert answered["request_id"] in for_people
    assert "COMPLETED" in for_people


def test_show_private_prints_what_was_said_in_a_step_and_each_reading_is_an_event(bitmall: System, answered: dict[str, Any]) -> None:
    request_id = bitmall.json("submit", REQUEST, "--wait")["request_id"]
    told = bitmall.json("show", request_id, "--private", "aftersales")
    assert (told["request"], told["step"], told["attempt"]) == (request_id, "aftersales", 1)
    assert told["observations"][0]["tool"] == "queryOrder"
    assert told["observations"][0]["returned"]["orderId"] == "88231"
    assert told["messages"][0]["role"] == "user" and "扫地机" in told["messages"][0]["text"]
    for_people = bitmall.run("show", request_id, "--private", "aftersales", "--attempt", "1")
    assert for_people.code == 0, for_people.stderr
    for said in ("instructions", "assistant calls queryOrder", "保修"):
        assert said in for_people.stdout
    read = [event.labels for event in bitmall.events(request_id, event="private_read")]
    assert [(labels["step"], labels["attempt"]) for labels in read] == [("aftersales", "1")] * 2
    assert all("@" in labels["by"] for labels in read)
    shown = bitmall.run("show", request_id).stdout
    assert "private_read" in shown and told["messages"][-1]["text"][:20] in shown  # the answer; and nothing else of the record
    assert "instructions" not in shown


def test_a_private_record_that_was_swept_away_is_said_to_be_gone(bitmall: System) -> None:
    request_id = bitmall.json("submit", REQUEST, "--wait")["request_id"]
    gone = bitmall.run("show", request_id, "--private", "iot", private_seconds=1, artifacts_url="/nonexistent/artifacts")
    assert gone.code == 1 and "private ones are kept for" in gone.stderr and gone.stdout == ""
    missing = bitmall.run("show", request_id, "--private", "iot", "--attempt", "7")
    assert missing.code == 2 and "left no private record in attempt 7" in missing.stderr


def test_show_json_is_the_report_with_its_timeline(bitmall: System, answered: dict[str, Any]) -> None:
    shown = bitmall.json("show", answered["request_id"])
    timeline, metrics = shown.pop("timeline"), shown.pop("metrics")
    assert shown == answered
    assert list(shown) == TOP
    assert [event["position"] for event in timeline] == list(range(1, shown["events"] + 1))
    assert metrics["provenance_coverage"]["value"] == 1.0
    assert timeline[0]["event"] == "request_opened"
    assert {"at", "writer", "cause", "fields"} <= set(timeline[0])


def test_show_for_people_has_steps_facts_with_sources_briefs_timeline_and_answer(bitmall: System, answered: dict[str, Any]) -> None:
    shown = bitmall.run("show", answered["request_id"]).stdout
    for said in (
        "ANSWERED",
        "checkWarranty",
        "warrantyEndDate",
        "not_needed",
        "step_claimed",
        "音箱联动",
        "已签收",
    ):
        assert said in shown


@pytest.mark.parametrize("step", ["aftersales", "product", "iot"])
def test_show_brief_prints_to_the_byte_what_the_model_was_given(step: str, bitmall: System, answered: dict[str, Any]) -> None:
    (kept,) = [brief for brief in answered["briefs"] if brief["step"] == step]
    done = bitmall.run("show", answered["request_id"], "--brief", step)
    assert (done.code, done.stderr) == (0, "")
    assert hashlib.sha256(done.stdout.encode()).hexdigest() == kept["sha256"]
    assert len(done.stdout) == kept["characters"]


def test_show_brief_says_when_the_teams_code_has_changed_since(bitmall: System, answered: dict[str, Any]) -> None:
    done = bitmall.run("show", answered["request_id"], "--brief", "iot", "--team", "tests.end_to_end.teams:bitmall_in_english")
    assert done.code == 0
    assert done.stdout
    assert "the team's code has changed" in done.stderr
    shown = bitmall.json("show", answered["request_id"], "--team", "tests.end_to_end.teams:bitmall_in_english")
    assert [brief["as_given"] for brief in shown["briefs"]] == [False, False, False]


def test_show_brief_of_a_step_that_was_never_claimed_says_so(bitmall: System, failed: dict[str, Any]) -> None:
    done = bitmall.run("show", failed["request_id"], "--brief", "iot")
    assert (done.code, done.stdout) == (2, "")
    assert "never claimed" in done.stderr


def test_a_request_that_is_over_cannot_be_cancelled(bitmall: System, answered: dict[str, Any]) -> None:
    done = bitmall.run("cancel", answered["request_id"])
    assert (done.code, done.stdout) == (2, "")
    assert "COMPLETED" in done.stderr


def test_dead_letters_are_listed_shown_rehearsed_replayed_and_dropped(bitmall: System, failed: dict[str, Any]) -> None:
    request_id = failed["request_id"]
    (letter,) = bitmall.json("dead", "list", "--request", request_id)
    assert (letter["step"], letter["agent"], letter["epoch"], letter["reason"]) == ("aftersales", "aftersales", 0, "MISSING_OUTPUT")
    assert letter["attempts"] == 1
    assert "productName" in letter["first_error"]
    assert bitmall.json("dead", "list", "--request", request_id, "--reason", "TIMEOUT") == []
    assert bitmall.json("dead", "list", "--request", request_id, "--agent", "iot") == []
    assert request_id in bitmall.run("dead", "list", "--agent", "aftersales", "--reason", "MISSING_OUTPUT").stdout
    shown = bitmall.json("dead", "show", request_id, "aftersales")
    assert {**shown, "age_ms": 0} == {**letter, "age_ms": 0}

    rehearsed = bitmall.json("dead", "replay", request_id, "--dry-run")
    assert [(each["outcome"], each["runs_again"]) for each in rehearsed] == [("would be replayed", ["aftersales", "product", "iot"])]
    for_people = bitmall.run("dead", "replay", request_id, "--dry-run").stdout
    assert for_people.splitlines()[0] == f"{request_id} aftersales would be replayed: aftersales, product, iot"
    assert bitmall.json("show", request_id)["events"] == failed["events"], "a rehearsal writes nothing"

    assert bitmall.run("dead", "replay", request_id, "aftersales").stdout == f"{request_id} aftersales replayed: epoch 1\n"
    assert bitmall.wait(request_id) == "FAILED"
    (again,) = bitmall.json("dead", "list", "--request", request_id)
    assert again["epoch"] == 1, "the cause is still there: it failed again, once"

    dropped = bitmall.run("dead", "drop", request_id, "aftersales", "--reason", "no such order")
    assert (dropped.code, dropped.stdout) == (0, f"{request_id} aftersales dropped\n")
    assert bitmall.json("dead", "list", "--request", request_id) == []
    timeline = bitmall.json("show", request_id)["timeline"]
    assert [event for event in timeline if "no such order" in str(event)], "who dropped it, and why, is kept"
    assert bitmall.run("dead", "replay", request_id).stdout == "no dead letters fit\n"


def test_check_is_content_with_these_servers_and_names_every_queue(bitmall: System) -> None:
    found = bitmall.json("check")
    assert {each["server"] for each in found} == {"redis", "rabbitmq", "artifacts"}
    assert all(each["level"] in ("ok", "warn") for each in found)
    queues = [each for each in found if f"queue {bitmall.topology_prefix}." in each["found"]]
    assert len(queues) == 10
    assert all(each["level"] == "ok" for each in queues)


def test_ctrl_c_on_a_wait_is_quiet_and_leaves_the_request_alone(bitmall: System, gate: Gate) -> None:
    nobody_serves = ("--team", "tests.end_to_end.teams:gated", *gate.constraint)
    waiting = bitmall.start("submit", "wait for me", *nobody_serves, "--wait", log_level="WARNING")
    waiting.wait_for_line("first: READY")
    (request_id,) = [line for line in waiting.lines if len(line) == 36]
    waiting.send(signal.SIGINT)
    assert waiting.wait() == 130
    goes_on = f"request {request_id} goes on; see: briefline show {request_id}"
    assert set(waiting.lines) == {request_id, "first: READY", "second: WAITING", goes_on}
    assert bitmall.json("show", request_id)["status"] == "RUNNING"
    assert bitmall.run("cancel", request_id, "--reason", "tired").stdout == f"{request_id} CANCELLED\n"
    shown = bitmall.json("show", request_id)
    assert shown["status"] == "CANCELLED"
    assert [event["reason"] for event in shown["timeline"] if event["event"] == "request_cancelled"] == ["tired"]
    assert bitmall.run("cancel", request_id).code == 0, "once more is no error"


def test_a_request_is_shown_as_it_was_compared_and_forked(bitmall: System, answered: dict[str, Any]) -> None:
    request_id = answered["request_id"]
    then = bitmall.json("show", request_id, "--at", "3")
    assert (then["status"], then["at"], len(then["timeline"])) == ("RUNNING", 3, 3)
    assert "as it was after event 3 of" in bitmall.run("show", request_id, "--at", "3").stdout.replace("\n", " ")
    for number in ("0", "999"):
        refused = bitmall.run("show", request_id, "--at", number)
        assert (refused.code, refused.stdout) == (2, "")
        assert f"has events 1 to {answered['events']}, and no event {number}" in refused.stderr

    forked = bitmall.run("fork", request_id, "--at", "product", "--constraint", "budget=1500", "--key", "what if", "--wait", "--json")
    assert forked.code == 0, forked.stderr
    assert "reused: aftersales" in forked.stderr
    assert "what is reused was made with budget: 换新预算 2000 元以内" in forked.stderr
    told = json.loads(forked.stdout)
    assert told["forked_from"]["request"] == request_id
    assert [step.get("reused_from", "").partition("@")[0] for step in told["steps"]] == [request_id, "", ""]
    again = bitmall.json("fork", request_id, "--at", "product", "--constraint", "budget=1500", "--key", "what if")
    assert again == {"request_id": told["request_id"], "new": False}
    assert f"forked from {request_id}@" in bitmall.run("show", told["request_id"]).stdout.replace("\n", "")

    found = bitmall.json("diff", request_id, told["request_id"])
    assert {"kind": "constraint", "name": "budget", "a": "换新预算 2000 元以内", "b": "换新预算 1500 元以内"} in found["differences"]
    assert "换新预算 1500 元以内" in bitmall.run("diff", request_id, told["request_id"]).stdout


def test_requests_of_a_session_are_listed_with_their_turn_and_come_one_after_the_other(bitmall: System, gate: Gate) -> None:
    nobody_serves = ("--team", "tests.end_to_end.teams:gated", *gate.constraint)
    first = bitmall.json("submit", "one", *nobody_serves, "--session", "sofa")["request_id"]
    busy = bitmall.run("submit", "two", *nobody_serves, "--session", "sofa")
    assert (busy.code, busy.stdout) == (2, "")
    assert f"session 'sofa' is busy: its request {first} is not over" in busy.stderr
    waiting = bitmall.start("submit", "two", *nobody_serves, "--session", "sofa", "--session-wait", log_level="WARNING")
    assert bitmall.run("cancel", first).code == 0
    assert waiting.wait() == 0
    (second,) = [line for line in waiting.lines if len(line) == 36]
    turns = {each["request_id"]: each.get("session") for each in bitmall.json("list")}
    assert (turns[first], turns[second]) == ({"name": "sofa", "turn": 1}, {"name": "sofa", "turn": 2})
    assert bitmall.json("show", second)["session"]["previous"] == first
    assert f"session sofa, turn 2, after {first}" in bitmall.run("show", second).stdout.replace("\n", "")
    assert bitmall.run("cancel", second).code == 0
