"""The trip team through the whole system: what its data sheet promises, one check after the other.

Two specialists search side by side on one state, and what they add is merged when both have ended; raw pages stay in artifacts, of which
the last step reads one place; the budget is a field that nobody gets past.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from ops.reporting import Report
from schemas.codec import encode
from schemas.messages import to_wire
from schemas.plans import Step
from schemas.results import AgentResult, FailureCode
from schemas.shared import FieldChange, FieldRecord, Operation
from tests.system.cast import told
from tests.system.conftest import System
from tests.system.reports import named, states
from workers import tokens
from workers.agents.agent import Agent, AgentBrief
from workers.agents.blackbox import BlackBox
from workers.agents.models import ModelInput, Reply, ScriptedModel, Turn
from workers.agents.specialist import Specialist
from workers.sentences import sentences_of
from workers.team import Team
from workers.teams.trip import data, pages
from workers.teams.trip.audit import audit, quotes
from workers.teams.trip.audit import named as chosen_in
from workers.teams.trip.demo import REQUEST
from workers.teams.trip.scripts import SCRIPTS
from workers.teams.trip.team import make_team

pytestmark = pytest.mark.timeout(40)

FIXED = {"destination": "东京", "days": 3, "budget": 20_000, "traveler": "亲子"}
SENTENCES = {
    sentence.strip()
    for each in (*map(pages.spot_pages, data.SPOTS), *map(pages.hotel_pages, data.HOTELS))
    for page in each
    for sentence in sentences_of(page.text)
}
"""Of the raw pages."""

Script = Callable[[Turn], Reply | Awaitable[Reply]]


@dataclass
class Done:
    """A request that is over, with what its models were given and what its steps left."""

    report: Report
    inputs: list[ModelInput]
    shared: Mapping[str, FieldRecord]
    materials: Mapping[str, str]
    """Artifact id -> text."""
    stored: list[str] = field(default_factory=list)
    """Every value of every event, and every message."""

    def of(self, step: str) -> list[ModelInput]:
        """The model inputs of one step."""
        return [each for each in self.inputs if each.step_id == step]

    @property
    def recorded(self) -> list[Any]:
        """What the lists of the shared state hold."""
        lists = [self.shared[name].value for name in ("attractions", "hotels") if name in self.shared]
        return [row for each in lists if isinstance(each, list) for row in each]


def cast(scenario: str = "happy", inputs: list[ModelInput] | None = None, scripts: Mapping[str, Script] | None = None) -> Team:
    """The team, with other scripts for some of its agents."""
    team = make_team(scenario=scenario)
    known = SCRIPTS[scenario]

    def thinks(agent: Agent) -> Agent:
        assert isinstance(agent, Specialist)
        record = inputs.append if inputs is not None else None
        return replace(agent, model=ScriptedModel((scripts or known).get(agent.name, known[agent.name]), "scripted", recorder=record))

    return of_agents(team, [thinks(agent) for agent in team.agents.values()])


def of_agents(team: Team, agents: list[Agent], steps: Iterable[Step] | None = None) -> Team:
    """The same team with these agents."""
    card = team.card
    return Team(
        "trip",
        agents,
        team.steps if steps is None else steps,
        team.constraints,
        phrases=team.phrases,
        clock=team.clock,
        fields=card.fields.values(),
        actions=team.actions,
    )


async def done(system: System, scenario: str = "happy", text: str = REQUEST) -> Done:
    """Ask once, and gather what came of it."""
    inputs: list[ModelInput] = []
    async with system.serve(cast(scenario, inputs)) as runtime:
        report = await runtime.ask(text)
        audited = await runtime.audit(report.request_id, runtime.team)
        refs = [ref for each in report.steps if each.result is not None for ref in each.result.artifacts]
        materials = {ref.id: (await runtime.artifacts.read(ref.id)).text for ref in refs}
    assert audited.passed, (audited.found, audited.unchecked)
    messages = [to_wire(bell).decode() for _, bell in system.broker.published if bell.request_id == report.request_id]
    events = [value.decode() for event in report.events for _, value in event.put.values()]
    return Done(report, inputs, report.shared, materials, [*events, *messages])


async def test_the_itinerary_fits_the_child_and_the_budget_and_says_only_what_was_recorded(system: System) -> None:
    happy = await done(system)
    assert happy.report.status == "COMPLETED" and set(states(happy.report).values()) == {"COMPLETED"}
    assert audit(happy.report.answer, FIXED, happy.recorded, happy.materials) == ()
    assert len(happy.recorded) == 7
    assert all(found.fits_children for name in chosen_in(happy.report.answer) if (found := data.spot(name)))  # check 4
    spent = happy.shared["spentBudget"].value  # check 5
    assert isinstance(spent, int) and spent == sum(row["cost"] for row in happy.recorded) <= 20_000
    held = happy.shared["heldBudget"].reservations.values()
    assert sum(each.amount for each in held) == spent and all(each.confirmed for each in held)


async def test_what_does_not_fit_is_refused_to_the_model_itself(system: System) -> None:
    happy = await done(system)
    assert "不适合儿童：未满 18 岁不得入场" in happy.of("spots")[-1].text
    assert "超出预算：需要 21600 元" in happy.of("hotels")[-1].text
    answer = happy.report.answer
    assert "未列入：新宿夜光剧场（不适合儿童" in answer and "未列入：银座云顶大酒店（超出预算" in answer


async def test_two_steps_that_hold_at_once_never_hold_more_than_the_budget(system: System) -> None:
    tight = await done(system, text=REQUEST.replace("2 万", "6000"))
    spent = tight.shared["spentBudget"].value
    assert tight.report.status == "COMPLETED" and isinstance(spent, int) and 0 < spent <= 6_000
    assert audit(tight.report.answer, {**FIXED, "budget": 6_000}, tight.recorded, tight.materials) == ()


async def test_the_merged_state_is_the_same_whichever_of_both_ends_first(system: System) -> None:  # check 1
    ends: list[dict[str, Any]] = []
    for first, last in (("spots", "hotels"), ("hotels", "spots")):
        opened = asyncio.Event()

        async def waits(turn: Turn, script: Script = SCRIPTS["happy"][last], opened: asyncio.Event = opened) -> Reply:
            await opened.wait()
            reply = script(turn)
            assert not isinstance(reply, Awaitable)
            return reply

        async with system.serve(cast(scripts={last: waits})) as runtime:
            accepted = await runtime.submit(runtime.team, REQUEST)
            async with aclosing(system.board.watch(accepted.request_id)) as events:
                async for event in events:
                    if event.labels.get("event") == "step_completed" and event.labels["step"] == first:
                        break
            opened.set()
            report = await runtime.result(accepted)
        merged = {name: report.shared[name] for name in ("attractions", "hotels", "spentBudget")}
        ends.append({name: [record.value, [claim.to_json() for claim in record.claims]] for name, record in merged.items()})
        (absorbed,) = [each for each in named(report.events, "changes_absorbed") if "spots" in each.labels["steps"]]
        assert absorbed.labels["steps"] == "spots,hotels"
    assert ends[0] == ends[1]


async def test_no_text_of_the_pages_stands_in_any_field_event_or_message(system: System) -> None:  # check 2
    happy = await done(system)
    (quote,) = quotes(happy.report.answer)
    raw = "\n".join(happy.materials.values())
    assert len(SENTENCES) > 900 and all(sentence in raw for sentence in SENTENCES)
    leaked = {sentence for sentence in SENTENCES for value in happy.stored if sentence in value}
    assert leaked == {quote.text}, "the one that is quoted, in the section that quotes it"
    assert {each.step.id for each in happy.report.steps if each.result and quote.text in each.result.summary} == {"final"}
    for given in happy.of("final")[:1]:
        assert not [sentence for sentence in SENTENCES if sentence in given.text]


async def test_the_rule_for_strollers_is_quoted_with_the_place_where_it_stands(system: System) -> None:  # check 3
    happy = await done(system)
    (quote,) = quotes(happy.report.answer)
    found = data.spot(happy.recorded[0]["name"])
    assert found is not None and quote.text == found.child_rule and "婴儿车" in quote.text
    assert happy.materials[quote.material][quote.start : quote.end] == quote.text
    assert happy.recorded[0]["artifact"] == f"{quote.material}#{quote.start}-{quote.end}"
    assert sum(tokens.estimate(message["text"]) for message in happy.of("final")[-1].messages if "text" in message) < 2_000


async def test_without_hotels_there_is_an_itinerary_and_a_gap_with_its_name(system: System) -> None:  # check 7
    failing = await done(system, "hotels-failing")
    report = failing.report
    assert report.status == "DEGRADED" and states(report) == {
        "requirements": "COMPLETED",
        "spots": "COMPLETED",
        "hotels": "FAILED",
        "final": "COMPLETED",
    }
    assert [(gap.step, gap.reason, gap.stopped) for gap in report.gaps] == [("hotels", FailureCode.NO_PROGRESS, ())]
    assert audit(report.answer, FIXED, failing.recorded, failing.materials) == ()
    assert "住宿：未定" in report.answer and "“住宿”这一部分没有完成" in report.answer and "### 第 3 天" in report.answer
    assert failing.shared["spentBudget"].value == 2_240 and "hotels" not in failing.shared
    assert not [each for each in failing.shared["heldBudget"].reservations.values() if each.step == "hotels"]


async def test_the_spots_cannot_write_the_hotels(system: System) -> None:  # check 8
    happy = await done(system)
    offered = {tool["name"] for given in happy.of("spots") for tool in given.tools}
    assert "record_spot" in offered and not {"record_hotel", "record_budget"} & offered

    async def reaches_over(brief: AgentBrief) -> AgentResult:
        row = {"name": "浅草川畔酒店", "cost": 1, "artifact": ""}
        return told(brief).model_copy(update={"changes": (FieldChange(field="hotels", operation=Operation.ADD, value=row),)})

    team = cast()
    others = [agent for name, agent in team.agents.items() if name != "spots"]
    steps = [step.model_copy(update={"expects": ()}) if step.id == "spots" else step for step in team.steps]
    team = of_agents(team, [*others, BlackBox("spots", reaches_over, facts=("finding", "spotPages"))], steps)
    async with system.serve(team) as runtime:
        report = await runtime.ask(REQUEST)
    failure = report.step("spots").failure
    assert failure is not None and failure.code == FailureCode.FIELD_REFUSED and "'hotels'" in failure.description
    listed = report.shared["hotels"].value
    assert isinstance(listed, list) and len(listed) == 1 and "上野公园家庭旅馆" in encode(listed).decode()


async def test_what_crosses_is_within_the_table(system: System) -> None:  # check 9
    happy = await done(system)
    facts = {step: [fact for name, fact in happy.report.facts if name == step] for step in states(happy.report)}
    profile = encode([[each.key, each.value] for each in facts["requirements"]]).decode()
    assert tokens.estimate(profile) <= 100
    for step, name in (("spots", "attractions"), ("hotels", "hotels")):
        (fact,) = facts[step]
        assert fact.artifact is not None
        delta = encode([happy.shared[name].value, fact.value, fact.artifact.summary]).decode()
        assert tokens.estimate(delta) <= 500, step
        assert tokens.estimate(happy.materials[fact.artifact.id]) > 12_000
    briefs = {each.brief.step_id: each.brief.manifest.tokens for each in happy.report.briefs}
    assert briefs["final"] <= 2_000 and max(briefs.values()) <= 2_000


async def test_each_claim_says_its_source_its_step_and_its_time(system: System) -> None:  # check 10
    happy = await done(system)
    claims = {name: happy.shared[name].claims for name in ("attractions", "hotels", "spentBudget")}
    assert {name: {each.step for each in found} for name, found in claims.items()} == {
        "attractions": {"spots"},
        "hotels": {"hotels"},
        "spentBudget": {"spots", "hotels"},
    }
    for claim in (each for found in claims.values() for each in found):
        assert claim.source in happy.materials and claim.at is not None and claim.evidence
        for evidence in claim.evidence:
            assert evidence.ref in happy.materials and all(re.fullmatch(r"\d+-\d+", each) for each in evidence.items)
    for name in ("destination", "totalBudget"):
        assert happy.shared[name].step == "requirements" and happy.shared[name].evidence and happy.shared[name].at_ms > 0
