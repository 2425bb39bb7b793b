"""Team cards: refused where their parts do not fit together, the same after a round over the board."""

from __future__ import annotations

from typing import Any

import pytest

from schemas.agents import AgentCard
from schemas.errors import InvalidPlan, InvalidTeam, InvalidValue
from schemas.frozen import validated
from schemas.plans import Step
from schemas.teams import ConstraintCard, TeamCard, check_card

ORDERS = AgentCard(name="orders", tools=("find",), facts={"order": ("find",)})
STEP = Step(id="orders", title="Orders", agent="orders", task="Find it.")
BUDGET = ConstraintCard(name="budget", label="Budget", type="number", unit="CNY", required=True)


def card(**given: Any) -> TeamCard:
    return TeamCard(**{"name": "team", "agents": {"orders": ORDERS}, "steps": (STEP,), "constraints": (BUDGET,), **given})


def test_a_card_whose_parts_fit_passes_and_comes_back_the_same() -> None:
    check_card(card())
    assert TeamCard.from_json(card().to_json()) == card()


def test_a_team_without_agents_is_refused() -> None:
    with pytest.raises(InvalidTeam, match="has no agents"):
        check_card(card(agents={}))


def test_a_constraint_declared_twice_is_refused_by_its_path() -> None:
    other = ConstraintCard(name="colour", label="Colour")
    with pytest.raises(InvalidTeam, match="'budget' is declared twice") as refused:
        check_card(card(constraints=(BUDGET, other, BUDGET)))
    assert refused.value.path == "constraints.2.name"


def test_a_plan_that_could_not_be_carried_out_refuses_the_team() -> None:
    with pytest.raises(InvalidPlan) as refused:
        check_card(card(steps=(STEP, STEP.model_copy(update={"id": "more", "agent": "nobody"}))))
    assert refused.value.path == "steps.1.agent"


@pytest.mark.parametrize(
    ("field", "bad"),
    [("name", "a team"), ("deadline_seconds", 0), ("deadline_seconds", float("nan")), ("language", "fr"), ("constraints", [{"name": "x"}])],
)
def test_a_value_that_makes_no_sense_is_refused_by_path(field: str, bad: object) -> None:
    with pytest.raises(InvalidValue) as refused:
        validated(TeamCard, {"name": "t", "agents": {}, "steps": [], field: bad})
    assert refused.value.path.startswith(field)
