"""Concluding: for each output that a step declares, the tool by which a model gives it.

A judgement is typed, says how sure the model is and what it rests on; prose is none. A call that gives something else is
answered with what is wrong, and one that is repeated replaces the first. Called by the specialist.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Literal

from pydantic import Field

from schemas.errors import Refused
from schemas.packets import Control, Kind, Output, Packet, output_problem
from workers import judgements
from workers.agents.acting import parameter, signed
from workers.agents.actions import CONCLUDE
from workers.agents.agent import AgentBrief
from workers.agents.tools import Tool, ToolFault
from workers.evidence import Grounds

_TYPES: dict[str, Any] = {
    "text": Annotated[str, Field(strict=True)],
    "integer": Annotated[int, Field(strict=True)],
    "number": Annotated[float, Field(strict=True)],
    "boolean": Annotated[bool, Field(strict=True)],
    "list": Annotated[list[Any], Field(strict=True)],
    "object": Annotated[dict[str, Any], Field(strict=True)],
}
_WITH_REASON = (Kind.DECISION, Kind.SUGGESTION, Kind.ACTION_REQUEST, Kind.RETRACTION)


class Concluded:
    """What one run concludes."""

    def __init__(self, brief: AgentBrief, grounds: Callable[[], Grounds]) -> None:
        self._brief = brief
        self._grounds = grounds
        self._packets: dict[str, Packet] = {}

    @property
    def packets(self) -> tuple[Packet, ...]:
        """The judgements, in the order in which the step declares them."""
        return tuple(self._packets[output.key] for output in self._brief.step.outputs if output.key in self._packets)

    @property
    def tools(self) -> tuple[Tool, ...]:
        """One for each output of the step."""
        return tuple(self._tool(output) for output in self._brief.step.outputs)

    def _tool(self, output: Output) -> Tool:
        async def conclude(value: Any, confidence: float, evidence: Any = (), reason: str = "") -> dict[str, Any]:
            packet = self._checked(output, value, confidence, evidence, reason)
            self._packets[output.key] = packet
            said = {"value": value, "confidence": confidence, "evidence": list(evidence)}
            return {"recorded": said}

        phrases = self._brief.phrases
        of_confidence, of_evidence, of_reason = phrases.judgement_parameters
        known = self._grounds().names
        listed = f"{of_evidence} ({', '.join(known)})" if known else of_evidence
        parameters = [
            parameter("value", Literal[output.choices] if output.choices else _TYPES[output.type]),
            parameter("confidence", Annotated[float, Field(ge=0, le=1, description=of_confidence)]),
            parameter("evidence", Annotated[list[str], Field(description=listed)], needed=output.needs_evidence, otherwise=()),
            parameter("reason", Annotated[str, Field(description=of_reason)], needed=output.kind in _WITH_REASON, otherwise=""),
        ]
        kind = phrases.kinds.get(output.kind, output.kind.value)
        description = phrases.conclude.format(what=output.description or output.key, kind=kind)
        if output.required:
            description = f"{description} {phrases.must_conclude}"
        return Tool(f"{CONCLUDE}{output.key}", signed(conclude, parameters), description, whole=True)

    def _checked(self, output: Output, value: Any, confidence: float, evidence: Any, reason: str) -> Packet:
        grounds = self._grounds()
        if problem := output_problem(output, value):  # before it is a packet, which would say it in other words
            raise ToolFault(problem)
        try:
            control = Control(producer=self._brief.step_id, evidence=grounds.resolve(evidence), confidence=confidence, reason=reason)
            packet = Packet(kind=output.kind, key=output.key, payload=value, unit=output.unit, control=control)
            return judgements.checked(output, packet, grounds)
        except Refused as error:
            raise ToolFault(str(error)) from error
