"""One step, briefed and run without a worker line: what the tests of agents start from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from schemas.facts import Fact
from schemas.frozen import Scalar
from schemas.plans import Step
from schemas.requests import RequestRecord
from schemas.results import AgentResult
from workers.agents.agent import AgentBrief
from workers.agents.models import Call, Reply, Say, ScriptedModel, Turn
from workers.agents.specialist import Specialist
from workers.agents.tools import Tool
from workers.briefing import BuiltBrief, build_brief
from workers.phrases import EN


def request_of(text: str = "Please look.") -> RequestRecord:
    """A request with these words."""
    return RequestRecord(id="r", tenant="t", team="t", text=text, idempotency_key="k", content_sha256="")


def brief_of(
    text: str = "Please look.", *, constraints: Mapping[str, Scalar] | None = None, facts: Mapping[str, Fact] | None = None, **step: Any
) -> AgentBrief:
    """A brief of a single step; keyword arguments go to the step."""
    made = Step.model_validate({"id": "look", "agent": "looker", "title": "Looking", "task": "Look it up.", **step})
    built = build_brief(made, request=request_of(text), constraints=())
    assert isinstance(built, BuiltBrief)
    return AgentBrief(built.brief, made, constraints or {}, facts or {}, phrases=EN)


def replies(*given: Reply) -> ScriptedModel:
    """A model that gives these replies in turn, and then repeats the last."""
    return ScriptedModel(lambda turn: given[min(turn.round, len(given)) - 1])


def asks(tool: str, then: str = "done", **arguments: Any) -> ScriptedModel:
    """A model that calls one tool once and then answers."""
    return replies(Call((tool, arguments)), Say(then))


async def run(*tools: Tool, model: ScriptedModel, brief: AgentBrief | None = None, **specialist: Any) -> AgentResult:
    """Run a specialist with these tools once."""
    return await Specialist("looker", "You look things up.", tools, model=model, **specialist).run(brief or brief_of())


def endless(tool: str) -> ScriptedModel:
    """A model that calls the same tool for ever, with another argument each time, and is polite about it."""

    def script(turn: Turn) -> Reply:
        return Call((tool, {"query": f"wording {turn.round}"}), text="Sorry, one moment.")

    return ScriptedModel(script)
