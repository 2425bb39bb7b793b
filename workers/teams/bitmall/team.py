"""The team itself: three specialists, their rule tables, constraints and plan; with scripted models, or with a real one.

The demo's clock is pinned to 20 July 2026, a day on which the order of the demo is in warranty. Called by whoever loads the
team (`bitmall`, or `workers.teams.bitmall:team`), and by tests through `make_team`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, date, datetime, time

from schemas.errors import NotFound
from schemas.plans import Step
from workers.agents.models import Model, Recorder, ScriptedModel
from workers.agents.specialist import Specialist
from workers.facts import FactRules
from workers.phrases import ZH
from workers.team import Team
from workers.teams.bitmall import personas, scripts
from workers.teams.bitmall.constraints import CONSTRAINTS
from workers.teams.bitmall.plan import STEPS
from workers.teams.bitmall.tools import AFTERSALES_TOOLS, LINKAGE_TOOLS, PRODUCT_TOOLS

DEMO_TODAY = date(2026, 7, 20)
SLOW_SECONDS = 3.0
"""How long a turn of the product model takes in scenario `slow-product`."""

# Orders say what was bought; the warranty is a verdict on this order, so it comes from the check and never from a policy text.
AFTERSALES_RULES = FactRules.of(
    ("queryOrder", "orderId", "orderId"),
    ("queryOrder", "product", "productName"),
    ("queryOrder", "price", "originalPrice"),
    ("queryOrder", "signTime", "signDate"),
    ("queryOrder", "status", "orderStatus"),
    ("checkWarranty", "warrantyStatus", "warrantyStatus"),
    ("checkWarranty", "warrantyEndDate", "warrantyEndDate"),
    ("checkWarranty", "noReasonReturnStatus", "noReasonReturnStatus"),
)

# A comparison says what was compared, not what is a candidate: the catalogue alone gives candidates, compareProducts no fact.
PRODUCT_RULES = FactRules.of(
    ("searchKnowledge", "candidates.0.name", "candidateA"),
    ("searchKnowledge", "candidates.0.price", "candidateAPrice"),
    ("searchKnowledge", "candidates.0.appControlStatus", "candidateAAppControlStatus"),
    ("searchKnowledge", "candidates.1.name", "candidateB"),
    ("searchKnowledge", "candidates.1.price", "candidateBPrice"),
    ("searchKnowledge", "candidates.1.appControlStatus", "candidateBAppControlStatus"),
    ("searchKnowledge", "catalogScope", "catalogScope"),
    ("searchKnowledge", "catalogComplete", "candidateSetComplete"),
    ("searchKnowledge", "candidateCount", "candidateCount"),
)

# The device stands beside its status, so that a place in the list never decides which device a status belongs to.
LINKAGE_RULES = FactRules.of(
    ("searchKnowledge", "bundles.0.device", "linkADevice"),
    ("searchKnowledge", "bundles.0.status", "linkAStatus"),
    ("searchKnowledge", "bundles.1.device", "linkBDevice"),
    ("searchKnowledge", "bundles.1.status", "linkBStatus"),
)


def make_team(
    *,
    today: date | None = DEMO_TODAY,
    scenario: str = "happy",
    model: Model | None = None,
    delay_seconds: float | None = None,
    recorder: Recorder | None = None,
    names: Mapping[str, str] | None = None,
) -> Team:
    """Make the team.

    `today` pins its clock; None lets the real one run. `model` takes the place of the scenario's scripts. `delay_seconds` is
    what each turn of the scripted product model takes. `recorder` gets every model input. `names` gives agents and steps other
    names (`aftersales`, `product`, `iot` -> new ones), for whoever runs two of these teams, or looks for a name that leaks.

    Raises:
        NotFound: there is no such scenario.
    """
    if scenario not in scripts.SCRIPTS:
        raise NotFound(f"there is no scenario {scenario!r}; there are: {', '.join(scripts.SCRIPTS)}", path="scenario")
    if delay_seconds is None:
        delay_seconds = SLOW_SECONDS if scenario == "slow-product" else 0.0

    def thinks_with(agent: str) -> Model:
        delay = delay_seconds if agent == "product" else 0.0
        return model or ScriptedModel(scripts.SCRIPTS[scenario][agent], f"scripted-{scenario}-{agent}", delay, recorder)

    named = dict(names or {})
    agents = (
        Specialist("aftersales", personas.AFTERSALES, AFTERSALES_TOOLS, AFTERSALES_RULES, description="订单、保修与故障处理"),
        Specialist("product", personas.PRODUCT, PRODUCT_TOOLS, PRODUCT_RULES, description="在售型号与规格"),
        Specialist("iot", personas.LINKAGE, LINKAGE_TOOLS, LINKAGE_RULES, description="设备与音箱的联动"),
    )
    return Team(
        "bitmall",
        [_renamed(agent, named).completed_with(thinks_with(agent.name), _clock(today)) for agent in agents],
        [_renamed_step(step, named) for step in STEPS],
        CONSTRAINTS,
        phrases=ZH,
        clock=_clock(today),
    )


def _clock(today: date | None) -> Callable[[], datetime]:
    if today is None:
        return lambda: datetime.now(UTC)
    noon = datetime.combine(today, time(4), tzinfo=UTC)  # noon in China, where the shop's days are counted
    return lambda: noon


def _renamed(agent: Specialist, names: Mapping[str, str]) -> Specialist:
    return replace(agent, name=names.get(agent.name, agent.name))


def _renamed_step(step: Step, names: Mapping[str, str]) -> Step:
    def need(text: str) -> str:
        before, dot, key = text.partition(".")
        return f"{names.get(before, before)}{dot}{key}"

    return step.model_copy(
        update={
            "id": names.get(step.id, step.id),
            "agent": names.get(step.agent, step.agent),
            "depends_on": tuple(names.get(each, each) for each in step.depends_on),
            "needs": None if step.needs is None else tuple(need(each) for each in step.needs),
        }
    )


team = make_team()
"""The team with its default: scripted models, no key, no network, the demo's day."""
