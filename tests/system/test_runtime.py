"""The embedded runtime as a program of a user's own would use it: no server, a few lines, and everything at hand."""

from __future__ import annotations

import asyncio

import pytest

from ops.embedded import embedded
from schemas.errors import AgentFailed, NotFound, Refused
from schemas.requests import RequestStatus
from tests.system.cast import Cast, Gate, fails, step
from workers.agents.agent import AgentBrief
from workers.agents.blackbox import BlackBox
from workers.agents.models import Call, Reply, Say, ScriptedModel, Turn
from workers.agents.specialist import Specialist
from workers.agents.tools import tool
from workers.facts import FactRules
from workers.phrases import ZH
from workers.team import Team

pytestmark = pytest.mark.timeout(40)


def stock_of(article: str) -> dict[str, object]:
    """Return how many there are."""
    return {"article": article, "stock": 3}


def looks_up(turn: Turn) -> Reply:
    """A model that looks once and answers."""
    return Say("There are 3 lamps.") if turn.returns else Call(("stock_of", {"article": "lamp"}))


async def writes(brief: AgentBrief) -> str:
    """A black box that writes from its facts."""
    return f"Dear customer, we have {brief.facts['stock.inStock'].value}."


def shop() -> Team:
    """A first team: one specialist, one black box, a plan."""
    rules = FactRules.of(("stock_of", "stock", "inStock"))
    return Team(
        "shop",
        [Specialist("stock", "You know the stock.", [tool(stock_of)], rules, ScriptedModel(looks_up)), BlackBox("letter", writes)],
        [
            {"agent": "stock", "title": "Stock", "task": "Look up what is asked for."},
            {"agent": "letter", "title": "Letter", "task": "Write a letter.", "depends_on": ["stock"], "needs": ["stock.inStock"]},
        ],
    )


async def test_ask_returns_answer_steps_facts_briefs_and_events() -> None:
    async with embedded(shop()) as runtime:
        answer = await runtime.ask("Do you have lamps?")

    assert answer.status is RequestStatus.COMPLETED
    assert answer.text == "## Stock\n\nThere are 3 lamps.\n\n## Letter\n\nDear customer, we have 3."
    assert [(each.step.id, each.state) for each in answer.steps] == [("stock", "COMPLETED"), ("letter", "COMPLETED")]
    ((owner, known),) = answer.facts
    assert (owner, known.key, known.value, known.provenance.tool, known.provenance.path) == ("stock", "inStock", 3, "stock_of", "stock")
    assert [each.facts for each in answer.briefs] == [(), ("stock.inStock",)] and all(each.as_given for each in answer.briefs)
    assert answer.usage.model_calls == 2 and answer.usage.tool_calls == 1
    assert [event.labels["event"] for event in answer.events][:2] == ["request_opened", "plan_written"]
    assert answer.events[-1].labels["event"] == "request_completed"


async def test_show_and_events_give_the_same_again_and_say_when_the_code_has_changed() -> None:
    async with embedded(shop()) as runtime:
        answer = await runtime.ask("Do you have lamps?")
        assert await runtime.show(answer.request_id) == answer
        assert tuple(await runtime.events(answer.request_id)) == answer.events
        changed = Team("shop", shop().agents.values(), shop().steps, phrases=ZH)
        later = await runtime.show(answer.request_id, changed)
        with pytest.raises(NotFound):
            await runtime.show("nobody")

    assert [each.as_given for each in later.briefs] == [False, False]


async def test_a_dead_letter_is_listed_replayed_and_gone() -> None:
    cast = Cast({"b": fails("NO_STOCK", times=1)})
    async with embedded(cast.team(step("a"), step("b", "a"))) as runtime:
        answer = await runtime.ask("Please.")
        (letter,) = await runtime.dead()
        assert (letter.request_id, letter.step_id, letter.reason) == (answer.request_id, "b", "NO_STOCK")
        assert letter.request_status is RequestStatus.DEGRADED and letter.record.attempt == 1
        assert await runtime.replay(letter.request_id, letter.step_id) == 1
        again = await runtime.result(letter.request_id)
        assert not await runtime.dead()

    assert answer.status is RequestStatus.DEGRADED and again.status is RequestStatus.COMPLETED and cast.runs == {"a": 1, "b": 2}


async def test_cancel_and_recent() -> None:
    gate = Gate()
    cast = Cast({"a": gate})
    async with embedded(cast.team(step("a")), lease_seconds=1) as runtime:
        accepted = await runtime.submit(runtime.team, "Please.")
        asking = asyncio.create_task(runtime.ask("And this."))
        await gate.entered.wait()
        assert await runtime.cancel(accepted.request_id) is RequestStatus.CANCELLED
        gate.opened.set()
        assert (await asking).status is RequestStatus.COMPLETED
        assert [each.status for each in await runtime.recent()] == [RequestStatus.COMPLETED, RequestStatus.CANCELLED]
        assert [each.request_id for each in await runtime.recent(status=RequestStatus.CANCELLED)] == [accepted.request_id]


async def test_follow_shows_the_plan_with_the_current_step_until_the_end() -> None:
    gate = Gate()
    cast = Cast({"a": gate})
    async with embedded(cast.team(step("a"), step("b", "a"))) as runtime:
        accepted = await runtime.submit(runtime.team, "Please.")
        seen: list[tuple[str, ...]] = []
        async for report in runtime.follow(accepted.request_id):
            now = tuple(each.state for each in report.steps)
            if now and now not in seen:
                seen.append(now)
            if now == ("RUNNING", "WAITING"):
                gate.opened.set()

    assert seen[0] == ("READY", "WAITING") and ("RUNNING", "WAITING") in seen and seen[-1] == ("COMPLETED", "COMPLETED")


async def test_what_a_program_does_wrong_comes_out_as_it_is_and_not_in_a_group() -> None:
    with pytest.raises(Refused, match="at least one word"):
        async with embedded(shop()) as runtime:
            await runtime.ask("")
    with pytest.raises(ZeroDivisionError):
        async with embedded(shop()):
            _ = 1 / 0


async def test_leaving_stops_what_runs_and_an_agent_may_say_why_it_failed() -> None:
    gate = Gate()
    cast = Cast({"a": gate})
    async with embedded(cast.team(step("a"))) as runtime:
        await runtime.submit(runtime.team, "Please.")
        await gate.entered.wait()
    assert gate.stopped.is_set()

    async def says_why(brief: AgentBrief) -> str:
        raise AgentFailed("SOLD_OUT", "there is none left")

    async with embedded(Cast({"a": says_why}).team(step("a"))) as runtime:
        answer = await runtime.ask("Please.")
    assert answer.status is RequestStatus.FAILED and "SOLD_OUT" in answer.text and "Part A" in answer.text
