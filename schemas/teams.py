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
from schemas.reducers import REDUCERS
from schemas.shared import FieldCard
from schemas.sharing import check_fields


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
    on_call: tuple[Step, ...] = ()
    """Steps with rights of the team's own that a planning step wakes; where there are any, it plans no others."""
    deadline_seconds: Annotated[float, Field(gt=0)] = 3600.0
    language: Literal["en", "zh"] = "en"
    """Of what the runtime itself says to the user: the notice of an answer with gaps."""
    fields: dict[str, FieldCard] = {}
    """Shared fields by name."""
    rules: BoundaryRules = BoundaryRules()
    """What the gate asks of a crossing."""
    reducers: tuple[Name, ...] = ()
    """The reducers of the team's own that its fields use."""
    version: str = ""


def check_card(card: TeamCard) -> None:
    """Refuse a card whose parts do not fit together.

    Raises:
        InvalidTeam: no agents, a constraint named twice, or a shared field that nobody could keep.
        InvalidPlan: see `plans.validate`.
    """
    if not card.agents:
        raise InvalidTeam(f"team {card.name!r} has no agents", path="agents")
    names = [constraint.name for constraint in card.constraints]
    for index, name in enumerate(names):
        if name in names[:index]:
            raise InvalidTeam(f"constraint {name!r} is declared twice", path=f"constraints.{index}.name")
    every = (*card.steps, *card.on_call)
    if card.on_call and not any(step.may_plan for step in every):
        raise InvalidTeam("no step may plan, so nobody could wake these", path="on_call")
    plans_freely = not card.on_call and any(step.may_plan for step in card.steps)
    check_fields(
        card.fields,
        steps=None if plans_freely else [step.id for step in every],
        numbers=[each.name for each in card.constraints if each.type in ("integer", "number")],
        reducers=(*REDUCERS, *card.reducers),
    )
    plans.validate(card.steps, card.agents, shared=card.fields)
    if card.on_call:
        plans.validate(card.on_call, card.agents, known={step.id: step for step in card.steps}, shared=card.fields, path="on_call")
