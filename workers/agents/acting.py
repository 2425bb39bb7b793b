"""Acting: a team's actions as the tools of one run, and the changes that come of their calls.

A call is checked at once, so that a model learns what is refused and may do better; what was accepted becomes part of the
result, in the order of the calls. Nothing is written here. Called by the specialist.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from datetime import datetime
from typing import Annotated, Any

from pydantic import BaseModel, Field, ValidationError

from schemas.errors import InvalidValue, Refused
from schemas.frozen import first_problem, thawed
from schemas.packets import Evidence
from schemas.shared import FieldChange
from workers import changes
from workers.agents.actions import Action
from workers.agents.agent import AgentBrief
from workers.agents.tools import Tool, ToolFault
from workers.evidence import Grounds

MAX_CHANGES = 200
"""Of one run."""


class Acted:
    """What one run does to shared fields."""

    def __init__(self, brief: AgentBrief, grounds: Callable[[], Grounds], now: Callable[[], datetime]) -> None:
        self._brief = brief
        self._grounds = grounds
        self._now = now
        self._changes: list[FieldChange] = []

    @property
    def changes(self) -> tuple[FieldChange, ...]:
        """What was accepted, in the order of the calls."""
        return tuple(self._changes)

    @property
    def tools(self) -> tuple[Tool, ...]:
        """One for each action of the brief."""
        return tuple(self._tool(action) for action in self._brief.actions)

    def _tool(self, action: Action) -> Tool:
        async def act(evidence: Any = (), reason: str = "", **given: Any) -> dict[str, Any]:
            change = self._accepted(action, given, evidence, reason)
            return {"recorded": thawed(change.value), "change": len(self._changes)}

        # The parameters are those of the action's own function, and two that every action has.
        own = inspect.signature(action.change, eval_str=True).parameters.values()
        _, of_evidence, of_reason = self._brief.phrases.judgement_parameters
        parameters = [each.replace(kind=each.KEYWORD_ONLY) for each in own]
        parameters += [
            parameter("evidence", Annotated[list[str], Field(description=of_evidence)], needed=action.needs_evidence, otherwise=()),
            parameter("reason", Annotated[str, Field(description=of_reason)], needed=action.asks_reason, otherwise=""),
        ]
        return Tool(action.name, signed(act, parameters), action.says, whole=True)

    def _accepted(self, action: Action, given: dict[str, Any], evidence: Any, reason: str) -> FieldChange:
        """Check one call, and keep the change."""
        if len(self._changes) >= MAX_CHANGES:
            raise ToolFault(f"there are {MAX_CHANGES} changes already")
        grounds = self._grounds()
        try:
            resolved = grounds.resolve(evidence)
            if action.needs_evidence and not resolved:
                raise InvalidValue("names no evidence")
            change = self._change(action, action.change(**given), resolved, grounds.source(resolved), reason)
            changes.check(change, self._brief, self._changes)
        except Refused as error:
            raise ToolFault(changes.told_to_a_model(error, self._brief)) from error
        self._changes.append(change)
        return change

    def _change(self, action: Action, value: Any, evidence: tuple[Evidence, ...], source: str, reason: str) -> FieldChange:
        try:
            return FieldChange(
                field=action.field,
                operation=action.operation,
                value=value.model_dump(mode="json") if isinstance(value, BaseModel) else thawed(value),
                action=action.name,
                reason=reason,
                evidence=evidence,
                source=source,
                at=self._now(),
                seen=changes.seen_of(self._brief, action.field),
                channel=action.channel,
                approval=action.approval,
            )
        except ValidationError as error:
            raise InvalidValue(first_problem(error)) from error


def parameter(name: str, annotation: Any, *, needed: bool = True, otherwise: Any = None) -> inspect.Parameter:
    """Return a named parameter of a tool that is made at run time."""
    default = inspect.Parameter.empty if needed else otherwise
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def signed(function: Callable[..., Any], parameters: list[inspect.Parameter]) -> Callable[..., Any]:
    """Give a function the signature by which a tool describes and checks its arguments."""
    function.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # functions take it, their type does not say so
    function.__annotations__ = {each.name: each.annotation for each in parameters}
    return function
