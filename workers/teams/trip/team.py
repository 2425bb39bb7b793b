"""The team itself: four specialists, their rule tables, shared fields, actions and plan; with scripted models, or with a real one.

The demo's clock is pinned to 20 July 2026. Called by whoever loads the team (`trip`, or `workers.teams.trip:team`), and by tests
through `make_team`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, time

from schemas.errors import NotFound
from workers.agents.models import Model, Recorder, ScriptedModel
from workers.agents.specialist import Specialist
from workers.facts import FactRules
from workers.phrases import ZH
from workers.team import Team
from workers.teams.trip import personas, scripts
from workers.teams.trip.actions import ACTIONS
from workers.teams.trip.constraints import CONSTRAINTS
from workers.teams.trip.plan import FIELDS, STEPS
from workers.teams.trip.tools import HOTEL_TOOLS, PROFILE_TOOLS, SPOT_TOOLS

DEMO_TODAY = date(2026, 7, 20)
SLOW_SECONDS = 3.0
"""How long a turn of the hotels model takes in scenario `slow-hotels`."""

PROFILE_RULES = FactRules.of(
    ("readProfile", "destination", "destination"),
    ("readProfile", "days", "days"),
    ("readProfile", "budget", "budget"),
    ("readProfile", "traveler", "traveler"),
)
# The pages cross as one reference; what was chosen of them stands in the shared state.
SPOT_RULES = FactRules.of(("searchSpots", "material", "spotPages"))
HOTEL_RULES = FactRules.of(("comparePrices", "material", "hotelPages"))


def make_team(
    *,
    today: date | None = DEMO_TODAY,
    scenario: str = "happy",
    model: Model | None = None,
    delay_seconds: Mapping[str, float] | None = None,
    recorder: Recorder | None = None,
) -> Team:
    """Make the team.

    `today` pins its clock; None lets the real one run. `model` takes the place of the scenario's scripts. `delay_seconds` is
    what each turn of an agent's scripted model takes. `recorder` gets every model input.

    Raises:
        NotFound: there is no such scenario.
    """
    if scenario not in scripts.SCRIPTS:
        raise NotFound(f"there is no scenario {scenario!r}; there are: {', '.join(scripts.SCRIPTS)}", path="scenario")
    delays = delay_seconds if delay_seconds is not None else {"hotels": SLOW_SECONDS} if scenario == "slow-hotels" else {}

    def thinks_with(agent: str) -> Model:
        return model or ScriptedModel(scripts.SCRIPTS[scenario][agent], f"scripted-{scenario}-{agent}", delays.get(agent, 0.0), recorder)

    agents = (
        Specialist("requirements", personas.REQUIREMENTS, PROFILE_TOOLS, PROFILE_RULES, description="登记旅行需求"),
        Specialist("spots", personas.SPOTS, SPOT_TOOLS, SPOT_RULES, description="检索并挑选景点"),
        Specialist("hotels", personas.HOTELS, HOTEL_TOOLS, HOTEL_RULES, description="比价并挑选住宿"),
        Specialist("final", personas.FINAL, description="排出逐日行程"),
    )
    return Team(
        "trip",
        [agent.completed_with(thinks_with(agent.name), _clock(today)) for agent in agents],
        STEPS,
        CONSTRAINTS,
        phrases=ZH,
        clock=_clock(today),
        fields=FIELDS,
        actions=ACTIONS,
    )


def _clock(today: date | None) -> Callable[[], datetime]:
    if today is None:
        return lambda: datetime.now(UTC)
    noon = datetime.combine(today, time(3), tzinfo=UTC)  # noon in Tokyo
    return lambda: noon


team = make_team()
"""The team with its default: scripted models, no key, no network, the demo's day."""
