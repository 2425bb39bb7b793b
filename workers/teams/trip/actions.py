"""The narrow actions: all that this team's models can do to the shared state. Pure, and each about one field."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from schemas.shared import Operation
from workers.agents.actions import Action

Amount = Annotated[int, Field(ge=0, description="人民币元")]
Place = Annotated[str, Field(pattern=r"^art_[0-9a-f]{32}#\d+-\d+$", description="资料编号与起止位置，如 art_…#120-180")]


class Chosen(BaseModel):
    """One element of the lists: a name, what it costs, and where to read about it."""

    model_config = ConfigDict(frozen=True)

    name: str
    cost: int
    artifact: str


def record_destination(city: Annotated[str, Field(description="城市名")]) -> str:
    """登记目的地。"""
    return city.strip()


def record_budget(amount: Amount) -> int:
    """登记全程预算。"""
    return amount


def record_spot(name: Annotated[str, Field(description="景点全名")], cost: Amount, place: Place) -> Chosen:
    """把一个已留好预算的景点列入行程。"""
    return Chosen(name=name.strip(), cost=cost, artifact=place)


def record_hotel(name: Annotated[str, Field(description="酒店全名")], cost: Amount, place: Place) -> Chosen:
    """把一家已留好预算的酒店列入行程，金额为全部晚数合计。"""
    return Chosen(name=name.strip(), cost=cost, artifact=place)


def add_cost(amount: Amount) -> int:
    """把已列入行程的金额计入已花费。"""
    return amount


ACTIONS = (
    Action("record_destination", "destination", record_destination, needs_evidence=True),
    Action("record_budget", "totalBudget", record_budget, needs_evidence=True),
    Action("record_spot", "attractions", record_spot, operation=Operation.ADD, needs_evidence=True),
    Action("record_hotel", "hotels", record_hotel, operation=Operation.ADD, needs_evidence=True),
    Action("add_cost", "spentBudget", add_cost, operation=Operation.ADD, needs_evidence=True),
)
