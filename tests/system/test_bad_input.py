"""Bad input of every kind: a clear error to who gave it, nothing opened, nothing lost, and the system goes on."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import orjson
import pytest

from ops.embedded import Runtime
from schemas.broker import COMMANDS_QUEUE, RESULTS_QUEUE, UNREADABLE_QUEUE
from schemas.errors import InvalidPlan, InvalidValue, KeyReused, LimitExceeded, MissingConstraint, NotFound, OutcomeUnknown, Refused
from schemas.facts import Fact
from schemas.messages import MessageType, message, to_wire
from tests.system.cast import Cast, step
from tests.system.conftest import System
from workers.agents.blackbox import BlackBox
from workers.agents.models import Call, Reply, Say, ScriptedModel, Turn
from workers.agents.specialist import Specialist
from workers.agents.tools import Tool
from workers.briefing import BriefLimits
from workers.facts import FactRules
from workers.team import Constraint, Team, load_team

pytestmark = pytest.mark.timeout(40)

DEEP: Any = []
for _ in range(200):
    DEEP = [DEEP]


# Teams and plans.


def test_an_unknown_team_is_refused_with_those_there_are() -> None:
    with pytest.raises(NotFound, match="bitmall"):
        load_team("bitmal")


@pytest.mark.parametrize(
    ("steps", "said"),
    [
        ([step("a", agent="hnad")], "there are: hand"),
        ([step("a", "b"), step("b", "a")], "circle: "),
        ([step("a", "a")], "circle"),
        ([step("a", "nobody")], "no step 'nobody'"),
        ([step("a"), step("a")], "used twice"),
        ([step("a"), step("b", "a", needs=("a.weight",))], "no rule of step 'a' produces fact 'weight'"),
        ([step("a"), step("b", needs=("a.size",))], "no step that 'b' depends on"),
        ([step("a", expects=("weight",))], "produces fact 'weight'"),
        ([step("a"), step("b", "a", needs=("size",))], "of the form|has the form"),
        ([], "at least one step"),
        ([step(f"s{index}") for index in range(501)], "500"),
    ],
    ids=["agent", "circle", "self", "dependency", "twice", "need", "no-ancestor", "expects", "form", "empty", "too-many"],
)
def test_a_plan_that_cannot_be_carried_out_is_refused_where_it_is_made(steps: list[dict[str, Any]], said: str) -> None:
    with pytest.raises((InvalidPlan, LimitExceeded), match=said):
        Cast().team(*steps)


def test_a_plan_that_needs_facts_of_an_agent_that_declares_none_is_refused() -> None:
    silent = BlackBox("silent", Cast().play)
    with pytest.raises(InvalidPlan, match="declares no facts"):
        Cast().team({**step("a"), "agent": "silent"}, step("b", "a"), agents=[silent])


# Requests.

BUDGET = Constraint("budget", "Budget", type="number", required=True)
NOTE = Constraint("note", "Note")

REFUSED: dict[str, tuple[Callable[[Runtime], Any], type[Refused], str]] = {
    "missing constraint": (lambda runtime: runtime.ask("Please."), MissingConstraint, "constraints.budget: Budget is required"),
    "unknown constraint": (lambda runtime: runtime.ask("Please.", constraints={"budgt": 5}), InvalidValue, "constraints.budgt"),
    "not a number": (lambda runtime: runtime.ask("Please.", constraints={"budget": float("nan")}), InvalidValue, "constraints.budget"),
    "infinite": (lambda runtime: runtime.ask("Please.", constraints={"budget": "inf"}), InvalidValue, "constraints.budget"),
    "beyond 64 bits": (lambda runtime: runtime.ask("Please.", constraints={"budget": 2**70}), InvalidValue, "64 bits"),
    "another type": (lambda runtime: runtime.ask("Please.", constraints={"budget": "many"}), InvalidValue, "must be number"),
    "deep": (lambda runtime: runtime.ask("Please.", constraints={"budget": DEEP}), InvalidValue, "constraints.budget"),
    "surrogate in a constraint": (
        lambda runtime: runtime.ask("Please.", constraints={"budget": 5, "note": "\ud83d"}),
        InvalidValue,
        "constraints.note",
    ),
    "five megabytes": (
        lambda runtime: runtime.ask("x" * 5_000_000, constraints={"budget": 5}),
        LimitExceeded,
        "text: the request has 5,000,000",
    ),
    "no word": (lambda runtime: runtime.ask(" \n\t ", constraints={"budget": 5}), InvalidValue, "text"),
    "lone surrogate": (lambda runtime: runtime.ask("half of a \ud83d", constraints={"budget": 5}), InvalidValue, "text: a lone surrogate"),
    "no UTF-8": (
        lambda runtime: runtime.ask(b"\xff\xfe words".decode("utf-8", "surrogateescape"), constraints={"budget": 5}),
        InvalidValue,
        "text",
    ),
    "no text": (lambda runtime: runtime.ask(b"bytes", constraints={"budget": 5}), InvalidValue, "text"),  # type: ignore[arg-type]  # on purpose
    "deadline": (lambda runtime: runtime.ask("Please.", constraints={"budget": 5}, deadline_seconds=-1), InvalidValue, "deadline_seconds"),
    "endless deadline": (
        lambda runtime: runtime.ask("Please.", constraints={"budget": 5}, deadline_seconds=float("nan")),
        InvalidValue,
        "deadline_seconds",
    ),
    "surrogate in a key": (
        lambda runtime: runtime.submit(runtime.team, "Please.", constraints={"budget": 5}, idempotency_key="\ud83d"),
        InvalidValue,
        "idempotency_key",
    ),
    "a value over the limit": (
        lambda runtime: runtime.ask("Please.", constraints={"budget": 5, "note": "x" * 300_000}),
        LimitExceeded,
        "limit",
    ),
}
"""What is asked, the error, and what it says."""


async def test_a_bad_request_is_refused_by_name_opens_nothing_and_the_next_one_is_served(system: System) -> None:
    cast = Cast()
    async with system.serve(cast.team(step("a"), constraints=(BUDGET, NOTE))) as runtime:
        for kind, (ask, error, said) in REFUSED.items():
            with pytest.raises(error) as caught:
                await ask(runtime)
            assert said in str(caught.value), (kind, str(caught.value))
            assert len(str(caught.value)) < 1_000, kind
        assert not await runtime.recent() and not system.broker.published
        report = await runtime.ask("Please. 🏠 预算", constraints={"budget": "1999.5"})

    assert report.status == "COMPLETED" and cast.runs == {"a": 1} and cast.briefs["a"][0].constraints["budget"] == 1999.5


async def test_what_a_refused_request_raises_is_the_refusal_itself_when_it_leaves_the_block(system: System) -> None:
    with pytest.raises(MissingConstraint):
        async with system.serve(Cast().team(step("a"), constraints=(BUDGET,))) as runtime:
            await runtime.ask("Please.")


async def test_a_request_as_long_as_allowed_is_served_whole(system: System) -> None:
    cast = Cast()
    text = "预" * (64 * 1024 // 3)
    async with system.serve(cast.team(step("a"), limits=BriefLimits(characters=200_000, tokens=200_000))) as runtime:
        report = await runtime.ask(text)

    assert report.status == "COMPLETED" and f"> {text}" in cast.briefs["a"][0].text


async def test_the_same_key_and_content_is_the_same_request_and_other_content_is_refused(system: System) -> None:
    cast = Cast()
    team = cast.team(step("a"), constraints=(NOTE,))
    async with system.serve(team) as runtime:
        first = await runtime.submit(team, "Please.", constraints={"note": "x"}, idempotency_key="key-1")
        report = await runtime.result(first)
        again = await runtime.submit(team, "Please.", constraints={"note": "x"}, idempotency_key="key-1")
        for text, note in (("Please!", "x"), ("Please.", "y")):
            with pytest.raises(KeyReused, match="key-1"):
                await runtime.submit(team, text, constraints={"note": note}, idempotency_key="key-1")
        other = await runtime.submit(team, "Please.", constraints={"note": "x"}, idempotency_key="key-2")
        await runtime.result(other)
        after = await runtime.show(first.request_id)

    assert first.new and not again.new and again.request_id == first.request_id != other.request_id
    assert cast.runs == {"a": 2} and after.events == report.events


# Commands.


async def test_commands_for_what_is_not_there_are_refused_by_name(system: System) -> None:
    nobody = "00000000-0000-0000-0000-000000000000"
    async with system.serve(Cast().team(step("a"))) as runtime:
        report = await runtime.ask("Please.")
        for call in (runtime.show, runtime.cancel, runtime.wait, runtime.status):
            with pytest.raises(NotFound, match=nobody):
                await call(nobody)
        with pytest.raises(NotFound, match=nobody):
            await runtime.replay(nobody, "a")
        with pytest.raises(NotFound, match="no step 'b'"):
            await runtime.replay(report.request_id, "b")
        with pytest.raises(Refused, match="COMPLETED in epoch 0"):
            await runtime.replay(report.request_id, "a")
        assert not await system.board.events(nobody)


async def test_a_command_that_nobody_answers_is_said_to_be_unknown(system: System, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ops.client.ANSWER_SECONDS", 0.1)
    async with system.serve(Cast().team(step("a")), orchestrators=0, workers=0) as runtime:
        accepted = await runtime.submit(runtime.team, "Please.")
        with pytest.raises(OutcomeUnknown, match="may still take effect"):
            await runtime.cancel(accepted.request_id)
    async with system.serve(Cast().team(step("a"))) as runtime:
        report = await runtime.result(accepted)

    assert report.status in ("CANCELLED", "COMPLETED")


async def test_what_nobody_can_read_among_results_and_commands_is_parked_and_orchestrators_go_on(system: System) -> None:
    event = orjson.loads(to_wire(message(MessageType.SUBMIT, "r", sender="producer", recipient="orchestrator")))
    bad = [
        b"\xff\xfe",
        json.dumps(DEEP).encode(),
        b'{"specversion": "1.0", "data": {"epoch": NaN}}',
        orjson.dumps({**event, "type": "briefline.submit.v9"}),
        orjson.dumps({**event, "data": {**event["data"], "schema_version": "7.1"}}),
        orjson.dumps({**event, "data": {**event["data"], "request_id": ["a", "list"]}}),
        b'"' + b"x" * 300_000 + b'"',
    ]
    async with system.serve(Cast().team(step("a"))) as runtime:
        for body in bad:
            for queue in (RESULTS_QUEUE, COMMANDS_QUEUE):
                await system.look.put(queue, body)
        await system.look.has(UNREADABLE_QUEUE, 2 * len(bad))
        assert all(await system.look.reasons(UNREADABLE_QUEUE))
        report = await runtime.ask("Please.")

    assert report.status == "COMPLETED"


async def test_a_request_id_that_is_none_is_parked_once_its_handler_has_failed_often_enough(system: System) -> None:
    async with system.serve(Cast().team(step("a"))) as runtime:
        odd = message(MessageType.SUBMIT, "a{b}c", sender="producer", recipient="orchestrator")
        await system.look.put(COMMANDS_QUEUE, to_wire(odd))
        await system.look.has(UNREADABLE_QUEUE, 1, seconds=15)
        (reason,) = await system.look.reasons(UNREADABLE_QUEUE)
        report = await runtime.ask("Please.")

    assert "InvalidValue" in reason and report.status == "COMPLETED"


# Tools.


def nothing() -> None:
    """Return nothing."""


def raises() -> str:
    """Raise."""
    raise RuntimeError("the tool broke")


def exits() -> str:
    """End the process, or try to."""
    raise SystemExit(3)


def no_json() -> object:
    """Return an object."""
    return object()


def not_a_number() -> dict[str, float]:
    """Return what JSON cannot hold."""
    return {"price": float("nan")}


def too_large() -> dict[str, str]:
    """Return a megabyte."""
    return {"text": "x" * 1_000_000}


def too_deep() -> Any:
    """Return lists in lists."""
    return DEEP


def surrogate() -> dict[str, str]:
    """Return half a character."""
    return {"text": "\ud83d"}


def good() -> dict[str, int]:
    """Return a price."""
    return {"price": 5}


async def test_a_tool_that_breaks_in_any_way_is_an_error_that_the_model_reads_and_never_a_fact(system: System) -> None:
    broken = (nothing, raises, exits, no_json, not_a_number, too_large, too_deep, surrogate)
    seen: list[str] = []

    def script(turn: Turn) -> Reply:
        if turn.round == 1:
            return Call(*((each.__name__, {}) for each in (*broken, good)), ("good", {"surplus": 1}))
        seen.extend(each.text for each in turn.returns)
        return Say("The price is 5.")

    rules = FactRules.of(("good", "price", "price"), ("not_a_number", "price", "wrong"), ("too_large", "text", "large"))
    tools = [Tool(each.__name__, each, whole=True) for each in (*broken, good)]  # else a megabyte would be kept as an artifact
    agent = Specialist("looker", "You look.", tools, rules, ScriptedModel(script))
    team = Team("tools", [agent], [{"id": "a", "agent": "looker", "title": "Prices", "task": "Look."}])
    async with system.serve(team) as runtime:
        report = await runtime.ask("Please.")

    assert report.status == "COMPLETED" and len(seen) == len(broken) + 2
    errors = [str(orjson.loads(text)["error"]) for text in seen if "error" in orjson.loads(text)]
    assert len(errors) == len(broken) + 1 and all(errors)
    for said in ("returned nothing", "the tool broke", "SystemExit", "not JSON", "1,000,0", "bad arguments"):
        assert any(said in error for error in errors), (said, errors)
    assert [(known.key, known.value) for _, known in report.facts] == [("price", 5)]


def test_a_fact_whose_value_is_no_scalar_cannot_be_made() -> None:
    for value in (float("nan"), 2**70, [1], {"a": 1}, None):
        with pytest.raises(ValueError, match="value"):
            Fact.model_validate({"key": "k", "value": value, "provenance": {"step": "s", "tool": "t", "call_id": "c", "path": "p"}})
