"""The small team whose requests are recorded, and played on by later versions: it fails, retries, plans, and leaves gaps."""

from __future__ import annotations

import asyncio
from typing import Any

from schemas.errors import AgentFailed
from schemas.plans import Step
from schemas.shared import FieldCard, FieldChange, Operation
from tests.system.cast import Cast, fails, step, told
from workers.agents.agent import AgentBrief
from workers.team import Constraint, Team

STEPS = (
    step("a", needs=[], expects=["finding"], tools=None),
    step("shaky", "a", max_attempts=3, share_summary=True, budget={"tokens": 1000, "tool_calls": 3}),
    step("optional", "a", critical=False, max_attempts=2),
    step("more", "shaky", "optional", needs=["a.finding", "optional.size?"], may_plan=True),
)


async def _shaky(brief: AgentBrief) -> Any:
    if brief.attempt == 1:
        raise ConnectionError("the first line is always cut")
    return told(brief, finding=1.5, colour="蓝", size=True)


async def _plans_more(brief: AgentBrief) -> Any:
    further = Step.model_validate(step("last", "more", out_of_scope="Nothing else."))
    return told(brief).model_copy(update={"steps": (further,)})


async def _ends_without_an_answer(brief: AgentBrief) -> Any:
    raise AgentFailed("NO_STOCK", "没有库存")


def stage() -> Team:
    """The team, anew."""
    acts = {"shaky": _shaky, "optional": _ends_without_an_answer, "more": _plans_more}
    constraints = [Constraint("budget", "Budget", type="integer", unit="yuan"), Constraint("word", "Word")]
    return Cast(acts).team(*STEPS, constraints=constraints)


def stuck(code: str = "NO_STOCK") -> Team:
    """A team whose one step fails."""
    return Cast({"a": fails(code)}).team(step("a"))


async def _adds(brief: AgentBrief) -> Any:
    await asyncio.sleep(0.3)  # so that the rules change while it runs
    spent = FieldChange(field="spent", operation=Operation.ADD, value=40, source="价目表", reason="门票")
    return told(brief).model_copy(update={"changes": (spent,)})


def bounded() -> Team:
    """A team with a shared field, whose last step asks a person first."""
    spent = FieldCard(name="spent", label="已花费", type="integer", unit="元", reducer="sum", carry=True)
    last = step("b", "a", needs=["a.finding"], reads=["spent"], may="commit", irreversible=True)
    return Cast({"a": _adds}).team(step("a", writes=["spent"]), last, fields=[spent])
