"""`briefline demo`, as a newcomer and a script see it: in this process and on servers, both scenarios."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.end_to_end.processes import Commands, System

TOP = ["request_id", "status", "answer", "steps", "facts", "gaps", "briefs", "usage", "events"]
STEP = {
    "id",
    "agent",
    "title",
    "state",
    "epoch",
    "attempt",
    "termination",
    "duration_ms",
    "model_calls",
    "tool_calls",
    "input_tokens",
    "output_tokens",
}
AFTERSALES_FACTS = {
    "orderId": "88231",
    "productName": "比特 S10 Pro 扫地机",
    "originalPrice": 1999,
    "signDate": "2026-06-22",
    "orderStatus": "已签收",
    "warrantyStatus": "IN_WARRANTY",
    "warrantyEndDate": "2027-06-21",
    "noReasonReturnStatus": "EXPIRED",
}
INTERNAL_NAMES = ("aftersales", "product", "iot", "bitmall", "searchKnowledge", "queryOrder", "Traceback")


def check_shape(shown: dict[str, Any]) -> None:
    """Every key that is promised, and none beside those that say more about a failure or a brief."""
    assert list(shown) == TOP
    assert isinstance(shown["events"], int)
    assert [step["id"] for step in shown["steps"]] == ["aftersales", "product", "iot"]
    for step in shown["steps"]:
        assert set(step) - {"failure"} == STEP
    for fact in shown["facts"]:
        assert set(fact) == {"step", "key", "value", "source"}
        assert set(fact["source"]) == {"tool", "path", "call_id"}
        assert all(fact["source"].values())
    for gap in shown["gaps"]:
        assert set(gap) == {"step", "reason", "stopped"}
    for brief in shown["briefs"]:
        assert set(brief) - {"sha256", "as_given"} == {"step", "facts", "left_out", "characters", "tokens"}
    assert set(shown["usage"]) == {"model_calls", "input_tokens", "output_tokens"}
    for counted in shown["usage"]:
        assert shown["usage"][counted] == sum(step[counted] for step in shown["steps"])


def check_happy(shown: dict[str, Any]) -> None:
    """The demo's answer: complete, with the facts of the order, and candidates within the budget."""
    assert shown["status"] == "COMPLETED"
    assert shown["gaps"] == []
    assert [(step["state"], step["termination"], step["attempt"]) for step in shown["steps"]] == [("COMPLETED", "ANSWERED", 1)] * 3
    facts = {(fact["step"], fact["key"]): fact["value"] for fact in shown["facts"]}
    assert {key: value for (step, key), value in facts.items() if step == "aftersales"} == AFTERSALES_FACTS
    prices = [value for (step, key), value in facts.items() if step == "product" and key.endswith("Price")]
    assert prices
    assert all(price <= 2000 for price in prices)
    assert shown["answer"].count("## 保修与掉线处理\n") == 1
    assert [line for line in shown["answer"].splitlines() if line.startswith("## ")] == ["## 保修与掉线处理", "## 换新候选", "## 音箱联动"]
    assert [brief["step"] for brief in shown["briefs"]] == ["aftersales", "product", "iot"]
    assert [fact for fact in shown["briefs"][2]["facts"] if fact.startswith("aftersales.")] == ["aftersales.productName"]


def check_stuck(shown: dict[str, Any]) -> None:
    """The product step went in circles: what is finished stands, the gap is named, and what needed it did not run."""
    assert shown["status"] == "DEGRADED"
    assert [step["state"] for step in shown["steps"]] == ["COMPLETED", "FAILED", "SKIPPED"]
    assert shown["steps"][1]["termination"] == "NO_PROGRESS"
    assert shown["steps"][2]["attempt"] == 0
    assert shown["gaps"] == [{"step": "product", "reason": "NO_PROGRESS", "stopped": ["iot"]}]
    assert {fact["key"]: fact["value"] for fact in shown["facts"]} == AFTERSALES_FACTS
    answer = shown["answer"]
    assert answer.startswith("## 保修与掉线处理\n\n订单 88231 ")
    assert "“换新候选”这一部分没有完成" in answer
    assert "NO_PROGRESS" in answer
    assert "“音箱联动”" in answer
    assert "人工跟进" in answer
    assert "再换个说法" not in answer, "nothing of a failed step's prose is in the answer"


CHECKS = {"happy": check_happy, "product-stuck": check_stuck}


@pytest.mark.parametrize("scenario", CHECKS)
def test_the_demo_in_this_process_prints_one_json_object_and_nothing_else(scenario: str, commands: Commands) -> None:
    done = commands.run("demo", "--json", "--scenario", scenario, environment=dict(os.environ))
    assert done.code == 0, done.stderr
    assert done.stderr == ""
    check_shape(done.json)
    CHECKS[scenario](done.json)
    assert not [name for name in INTERNAL_NAMES if name in done.json["answer"]]


@pytest.mark.parametrize("scenario", CHECKS)
def test_the_demo_on_servers_prints_the_same_object_from_processes_of_its_own(scenario: str, system: System) -> None:
    done = system.run("demo", "--json", "--scenario", scenario, "--backend", "servers")
    assert done.code == 0, done.stderr
    assert "Traceback" not in done.stderr
    check_shape(done.json)
    CHECKS[scenario](done.json)
    assert not [name for name in INTERNAL_NAMES if name in done.json["answer"]]
    shown = system.json("show", done.json["request_id"])
    assert {key: shown[key] for key in TOP if key != "briefs"} == {key: done.json[key] for key in TOP if key != "briefs"}
    assert [name for name in sorted(event["writer"] for event in shown["timeline"]) if name.startswith("worker/")], "a worker wrote"


def test_the_demo_on_servers_does_not_wait_for_a_worker_that_is_gone(system: System) -> None:
    demo = system.start("demo", "--json", "--backend", "servers", scenario="slow-product")
    demo.wait_for("orchestrator_started")
    demo.wait_for("worker_started")
    children = [int(pid) for pid in Path(f"/proc/{demo.pid}/task/{demo.pid}/children").read_text().split()]
    (worker,) = [pid for pid in children if b"worker" in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")]
    os.kill(worker, signal.SIGKILL)
    assert demo.wait() == 5
    assert "error: a process of the demo ended before the answer was there (exit code -9)" in demo.output
    assert demo.logged("orchestrator_stopped"), "the other one was ended, and waited for"


def test_the_demo_for_people_shows_plan_facts_briefs_and_answer(commands: Commands) -> None:
    done = commands.run("demo", environment={**os.environ, "COLUMNS": "160"})
    assert done.code == 0, done.stderr
    for said in ("订单 88231", "2026-07-20", "warrantyEndDate", "2027-06-21", "音箱联动", "COMPLETED", "8 model calls"):
        assert said in done.stdout


def test_the_demo_of_an_unknown_scenario_or_team_names_those_there_are(commands: Commands) -> None:
    unknown = commands.run("demo", "--scenario", "no-such", environment=dict(os.environ))
    assert unknown.code == 2
    assert "happy, product-stuck" in unknown.stderr
    assert "Traceback" not in unknown.stderr
    other = commands.run("demo", "--team", "no-such", environment=dict(os.environ))
    assert other.code == 2
    assert "bitmall" in other.stderr


def test_the_demo_on_servers_that_are_not_there_says_so_and_what_to_do(commands: Commands) -> None:
    nowhere = {
        "BRIEFLINE_REDIS_URL": "redis://127.0.0.1:1/0",
        "BRIEFLINE_RABBITMQ_URL": "amqp://127.0.0.1:1/",
        "BRIEFLINE_CALL_DEADLINE_SECONDS": "1",
    }
    quick = {**nowhere, "BRIEFLINE_CALL_TIMEOUT_SECONDS": "0.5"}
    done = commands.run("demo", "--backend", "servers", "--json", environment={**os.environ, **quick})
    assert done.code == 5
    assert done.stdout == ""
    assert done.stderr.startswith("error: ")
    assert "Traceback" not in done.stderr
