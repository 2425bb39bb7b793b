"""Tools: parameters out of a signature, and what a team may not declare."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel

from schemas.errors import InvalidTeam
from tests.workers.agents.runs import replies
from workers.agents.models import Say
from workers.agents.specialist import Specialist
from workers.agents.tools import Tool, ToolContext, ToolFault, tool


class Price(BaseModel):
    """A price."""

    amount: int


def price(name: str, quantity: int = 1) -> Price:
    """Return a price."""
    return Price(amount=quantity)


def test_parameters_description_and_output_come_from_the_function() -> None:
    made = tool(price)

    assert (made.name, made.description, made.output) == ("price", "Return a price.", Price)
    assert made.json_schema["required"] == ["name"]
    assert made.json_schema["properties"]["quantity"]["default"] == 1


def test_a_tools_version_changes_with_what_a_model_or_a_rule_sees() -> None:
    def other(name: str, quantity: int = 2) -> Price:
        """Return a price."""
        return Price(amount=quantity)

    assert tool(price).version == tool(price).version
    assert tool(price).version != tool(other, name="price").version
    assert tool(price).version != tool(price, description="Another.").version


async def test_a_return_that_does_not_fit_the_declared_output_is_a_fault() -> None:
    made = Tool("price", lambda: {"amount": "much"}, output=Price)

    with pytest.raises(ToolFault, match="amount"):
        await made.call({}, ToolContext())


async def test_what_a_tool_does_with_its_object_later_changes_no_return() -> None:
    shared: dict[str, Any] = {"value": 1}
    returned = await Tool("look", lambda: shared).call({}, ToolContext())
    shared["value"] = 2

    assert returned == {"value": 1}


def test_two_tools_of_one_name_are_refused() -> None:
    with pytest.raises(InvalidTeam, match="there twice") as refused:
        Specialist("a", "", [tool(price), Tool("price", price)], model=replies(Say("")))

    assert refused.value.path == "agents.a.tools.1"


def test_a_tool_cannot_take_the_name_of_the_one_that_every_specialist_has() -> None:
    with pytest.raises(InvalidTeam):
        Specialist("a", "", [Tool("report_contradiction", price)])


def test_parameters_without_names_are_refused() -> None:
    def anything(*values: int) -> None:
        """Take anything."""

    with pytest.raises(InvalidTeam, match="has no name"):
        tool(anything)
