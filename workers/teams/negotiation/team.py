"""The team itself: six specialists, shared fields, actions and steps on call; with scripted models, or with a real one.

The lead listens first and wakes the others only where there is something for them. Called by whoever loads the team
(`negotiation`, or `workers.teams.negotiation.team:team`), and by tests through `make_team`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime

from schemas.errors import NotFound
from schemas.facts import Sensitivity
from schemas.gate import BoundaryRules
from schemas.plans import Step
from schemas.results import AgentResult
from workers.agents.agent import Agent, AgentBrief
from workers.agents.models import Model, Recorder, Script, ScriptedModel
from workers.agents.specialist import Specialist
from workers.agents.tools import utc_now
from workers.facts import FactRule, FactRules
from workers.phrases import ZH
from workers.team import Team
from workers.teams.negotiation import personas, scripts, state, tools
from workers.teams.negotiation.constraints import CONSTRAINTS
from workers.teams.negotiation.data import POLICY
from workers.teams.negotiation.plan import LISTEN, WAKES, steps_on_call

RULES = BoundaryRules(named=POLICY)

IDENTITY_RULES = FactRules.of(("verifyIdentity", "identityStatus", "identityStatus"))
# The table crosses as a reference; what it means is the specialist's finding, with rows named as evidence.
PROFILE_RULES = FactRules(
    (
        FactRule("assessAbility", "evidenceTable", "evidenceTable", sensitivity=Sensitivity.RESTRICTED),
        FactRule("assessAbility", "dataAsOf", "dataAsOf", sensitivity=Sensitivity.RESTRICTED),
    )
)
COMPLIANCE_RULES = FactRules.of(("checkRules", "verdictRecord", "verdictRecord"), ("checkRules", "verdict", "ruleVerdict"))
CONTROLLER_RULES = FactRules.of(("fileSession", "finalOffer", "finalOffer"), ("fileSession", "sessionRecord", "sessionRecord"))


@dataclass(frozen=True)
class Lead(Specialist):
    """The specialist that listens: its model says what a request is, and that alone decides who is woken."""

    on_call: tuple[Step, ...] = ()

    async def run(self, brief: AgentBrief) -> AgentResult:
        """Work on a brief; a signal wakes its steps. Raises what `Specialist.run` raises."""
        result = await super().run(brief)
        signal = next((str(packet.payload) for packet in result.packets if packet.key == "signal"), "")
        woken = WAKES.get(signal, ())
        return result.model_copy(update={"steps": tuple(step for step in self.on_call if step.id in woken)}) if woken else result


def make_team(
    *,
    scenario: str = "happy",
    model: Model | None = None,
    recorder: Recorder | None = None,
    clock: Callable[[], datetime] = utc_now,
    ability_seconds: float = state.ABILITY_SECONDS,
    risk_seconds: float = state.RISK_SECONDS,
    delay_seconds: float = 0.0,
    written: Mapping[str, Script] | None = None,
    others: Mapping[str, Agent] | None = None,
) -> Team:
    """Make the team.

    `model` takes the place of the scenario's scripts. `recorder` gets every model input. `clock` is the team's: what holds for a
    while is counted from it, and looked at by the board's clock, so the two go together. `ability_seconds` and `risk_seconds`
    are how long findings and signals hold; `delay_seconds` is what each turn of the profile's scripted model takes. `written`
    takes the place of single scripts, `others` that of whole agents, by agent.

    Raises:
        NotFound: there is no such scenario.
    """
    if scenario not in scripts.SCRIPTS:
        raise NotFound(f"there is no scenario {scenario!r}; there are: {', '.join(scripts.SCRIPTS)}", path="scenario")
    shared = state.fields_of(ability_seconds, risk_seconds)
    on_call = steps_on_call(ability_seconds)
    script = {**scripts.SCRIPTS[scenario], **(written or {})}

    def thinks_with(agent: str) -> Model:
        delay = delay_seconds if agent == "profile" else 0.0
        return model or ScriptedModel(script[agent], f"scripted-{scenario}-{agent}", delay, recorder)

    restricted = Sensitivity.RESTRICTED
    agents: tuple[Specialist, ...] = (
        Lead("lead", personas.LEAD, tools.LEAD_TOOLS, description="接待与拟案", clearance=restricted, on_call=on_call),
        Specialist("identity", personas.IDENTITY, tools.IDENTITY_TOOLS, IDENTITY_RULES, description="身份核对"),
        Specialist("profile", personas.PROFILE, tools.PROFILE_TOOLS, PROFILE_RULES, description="能力评估", clearance=restricted),
        Specialist("risk", personas.RISK, description="沟通信号"),
        Specialist(
            "compliance", personas.COMPLIANCE, tools.COMPLIANCE_TOOLS, COMPLIANCE_RULES, description="合规审查", clearance=restricted
        ),
        Specialist("controller", personas.CONTROLLER, tools.CONTROLLER_TOOLS, CONTROLLER_RULES, description="对外一致"),
    )
    replaced = dict(others or {})
    return Team(
        "negotiation",
        [replaced.get(agent.name) or agent.completed_with(thinks_with(agent.name), clock) for agent in agents],
        [LISTEN],
        CONSTRAINTS,
        phrases=ZH,
        clock=clock,
        fields=shared,
        actions=state.ACTIONS,
        rules=RULES,
        on_call=on_call,
    )


team = make_team()
"""The team with its default: scripted models, no key, no network, the real clock."""
