"""A walk through the team's plan without worker line, board or broker: brief, run, next step."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from schemas.results import AgentResult, Failure
from tests.workers.agents.runs import request_of
from workers.agents.agent import AgentBrief
from workers.agents.models import ModelInput, Reply, ScriptedModel, Turn
from workers.agents.specialist import Specialist
from workers.briefing import BuiltBrief, NoBrief, build_brief
from workers.team import Team
from workers.teams.bitmall.scripts import SCRIPTS
from workers.teams.bitmall.team import make_team

REQUEST = (
    "订单 88231 的扫地机老掉线，帮我查保修并给出处理建议；如果要换新，预算 2000 元以内，希望能和家里的比特 SoundBox Mini 智能音箱联动。"
)


@dataclass
class Walk:
    """What a walk left: per step its result or failure, its brief, and every model input."""

    results: dict[str, AgentResult] = field(default_factory=dict)
    failures: dict[str, Failure] = field(default_factory=dict)
    briefs: dict[str, BuiltBrief] = field(default_factory=dict)
    inputs: list[ModelInput] = field(default_factory=list)
    sections: dict[str, str] = field(default_factory=dict)
    """Title -> text of each completed step."""

    def inputs_of(self, step: str) -> str:
        """All that the model of one step was given, as text."""
        return "\n".join(each.text for each in self.inputs if each.step_id == step)

    def values(self, step: str) -> dict[str, object]:
        """Key -> value of the facts of one step."""
        return {fact.key: fact.value for fact in self.results[step].facts}


async def walk(
    *,
    scenario: str = "happy",
    text: str = REQUEST,
    given: Mapping[str, object] | None = None,
    scripts: Mapping[str, Callable[[Turn], Reply]] | None = None,
    names: Mapping[str, str] | None = None,
) -> Walk:
    """Run the plan; `scripts` take the place of the scenario's, by agent."""
    done = Walk()
    team = make_team(scenario=scenario, recorder=done.inputs.append, names=names)
    await walk_on(done, team, text=text, given=given, scripts=scripts)
    return done


async def walk_on(
    done: Walk,
    team: Team,
    *,
    text: str = REQUEST,
    given: Mapping[str, object] | None = None,
    scripts: Mapping[str, Callable[[Turn], Reply]] | None = None,
) -> None:
    """Run every step of a team whose needs are met, in plan order."""
    constraints = team.resolve(text, given)
    values = {record.name: record.value for record in constraints}
    for step in team.steps:
        built = build_brief(
            step, request=request_of(text), constraints=constraints, inputs=team.steps, results=done.results, phrases=team.phrases
        )
        if isinstance(built, NoBrief):
            done.failures[step.id] = built.failure
            continue
        done.briefs[step.id] = built
        agent = team.agent(step.agent)
        if scripts and step.agent in scripts:
            assert isinstance(agent, Specialist)
            agent = replace(agent, model=ScriptedModel(scripts[step.agent], recorder=done.inputs.append))
        result = await agent.run(AgentBrief(built.brief, step, values, built.facts, phrases=team.phrases))
        done.results[step.id] = result
        if result.completed:
            done.sections[step.title] = result.summary


def happy(agent: str) -> Callable[[Turn], Reply]:
    """The script of an agent in the scenario where all goes well."""
    return SCRIPTS["happy"][agent]
