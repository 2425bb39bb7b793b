"""The audit and the gate's decisions on whole requests: every shipped team passes, and what was decided is what is shown."""

from __future__ import annotations

import pytest

from ops.commands.demo import REQUESTS
from ops.deciding import QUESTIONS, answers, decisions_of
from schemas.gate import Outcome, Reason
from schemas.packets import Kind
from tests.system.cast import Cast, fails, step
from tests.system.conftest import System
from workers.team import load_team, shipped_teams


@pytest.mark.parametrize("name", shipped_teams())
async def test_every_shipped_team_passes_the_acceptance_audit(name: str, system: System) -> None:
    team = load_team(name)
    async with system.serve(team) as runtime:
        shown = await runtime.ask(REQUESTS[name])
        audited = await runtime.audit(shown.request_id)
    assert audited.passed, audited.as_json()
    assert audited.briefs == len(shown.steps) > 1
    assert audited.sections and audited.values and audited.lines


async def test_a_request_that_was_degraded_and_replayed_passes_with_every_brief_that_was_given(system: System) -> None:
    cast = Cast({"b": fails(times=1)})
    async with system.serve(cast.team(step("a"), step("b", "a", critical=False), step("c", "a"))) as runtime:
        shown = await runtime.ask("please")
        await runtime.replay(shown.request_id, "b")
        await runtime.wait(shown.request_id)
        audited = await runtime.audit(shown.request_id)
    assert audited.passed, audited.as_json()
    assert audited.briefs == 4


@pytest.mark.parametrize("name", shipped_teams())
async def test_the_decisions_that_are_shown_are_those_that_were_made(name: str, system: System) -> None:
    team = load_team(name)
    async with system.serve(team) as runtime:
        shown = await runtime.ask(REQUESTS[name])
    decided = decisions_of(shown, team.card)
    assert sorted(each.attempt.step for each in decided) == sorted(each.step.id for each in shown.steps)
    assert {each.as_decided for each in decided if each.attempt.recorded} == {True}
    assert decisions_of(shown) == decided  # the card on the board says the same
    crossings = [each for step_ in decided for each in step_.crossings if each.outcome is not Outcome.BLOCK]
    assert {each.need for each in crossings if each.kind is Kind.FACT} == {name for each in shown.briefs for name in each.facts}
    assert {each.need for each in crossings if each.need.startswith("field.")} <= {
        f"field.{name}" for each in shown.steps for name in each.step.reads
    }
    for each in (crossing for step_ in decided for crossing in step_.crossings):
        assert [question for question, _ in answers(each)] == list(QUESTIONS)
        assert all(answer for _, answer in answers(each))
        assert len(each.checks) >= 12


async def test_what_nobody_had_asked_for_is_shown_with_its_reason(system: System) -> None:
    cast = Cast()
    async with system.serve(cast.team(step("a"), step("b", "a", needs=()))) as runtime:
        shown = await runtime.ask("please")
    (blocked,) = next(each.crossings for each in decisions_of(shown) if each.attempt.step == "b")
    assert (blocked.need, blocked.reason) == ("a.finding", Reason.NOT_NEEDED)
    assert "declare it" in blocked.recover


async def test_a_rule_that_has_changed_since_is_told_of(system: System) -> None:
    cast = Cast()
    team = cast.team(step("a"), step("b", "a"))
    async with system.serve(team) as runtime:
        shown = await runtime.ask("please")
    other = team.card.model_copy(update={"rules": team.card.rules.model_copy(update={"named": "stricter"})})
    assert [each.as_decided for each in decisions_of(shown, other)] == [None, False]
