"""Team cards: the pure data of a team, all that producer and orchestrator ever know of it.

A card is made by the team's code (`workers.teams`), checked here, and written into the request when it is opened.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from schemas import plans
from schemas.agents import AgentCard
from schemas.errors import InvalidTeam
from schemas.frozen import Frozen, Name
from schemas.gate import BoundaryRules
from schemas.plans import Step
from schemas.shared import FieldCard


class ConstraintCard(Frozen):
    """A value that holds for the whole request, shown to every agent under its label."""

    name: Name
    label: str
    type: Literal["text", "integer", "number", "boolean"] = "text"
    unit: str = ""
    required: bool = False


class TeamCard(Frozen):
    """Named agents, declared constraints in order, and the plan a request starts with.

    A team that plans at run time starts with one step declared `may_plan`.
    """

    name: Name
    agents: dict[str, AgentCard]
    constraints: tuple[ConstraintCard, ...] = ()
    steps: tuple[Step, ...]
    deadline_seconds: Annotated[float, Field(gt=0)] = 3600.0
    language: Literal["en", "zh"] = "en"
    """Of what the runtime itself says to the user: the notice of an answer with gaps."""
    fields: dict[str, FieldCard] = {}
    """Shared fields by name."""
    rules: BoundaryRules = BoundaryRules()
    """What the gate asks of a crossing."""
    version: str = ""


def check_card(card: TeamCard) -> None:
    """Refuse a card whose parts do not fit together.

    Raises:
        InvalidTeam: no agents, or a constraint named twice.
        InvalidPlan: see `plans.validate`.
    """
    if not card.agents:
        raise InvalidTeam(f"team {card.name!r} has no agents", path="agents")
    names = [constraint.name for constraint in card.constraints]
    for index, name in enumerate(names):
        if name in names[:index]:
            raise InvalidTeam(f"constraint {name!r} is declared twice", path=f"constraints.{index}.name")
    plans.validate(card.steps, card.agents)
