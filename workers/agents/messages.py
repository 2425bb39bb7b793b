"""The library's messages as plain values: what a model reads, without the library's bookkeeping. Pure; called by the loop."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart, UserPromptPart

from schemas.codec import Json
from workers.agents.models import SeenReturn


def seen_returns(messages: Sequence[ModelMessage]) -> list[SeenReturn]:
    found = []
    number = 0
    for message in messages:
        if isinstance(message, ModelResponse):
            number += 1
            continue
        found += [
            SeenReturn(part.tool_name, part.model_response_str(), number) for part in message.parts if isinstance(part, ToolReturnPart)
        ]
    return found


def return_key(part: ToolReturnPart) -> tuple[str, str]:
    return part.tool_name, part.model_response_str()


def pointer(part: ToolReturnPart, text: str) -> ToolReturnPart:
    return ToolReturnPart(part.tool_name, text, tool_call_id=part.tool_call_id, timestamp=part.timestamp, outcome=part.outcome)


def plain(messages: Sequence[ModelMessage]) -> list[dict[str, Json]]:
    """Messages as roles and texts: what any model reads, without the library's bookkeeping."""
    plain: list[dict[str, Json]] = []
    for message in messages:
        for part in message.parts:
            match part:
                case UserPromptPart():
                    plain.append({"role": "user", "text": str(part.content)})
                case ToolReturnPart():
                    plain.append({"role": "tool", "tool": part.tool_name, "text": part.model_response_str()})
                case ToolCallPart():
                    plain.append({"role": "assistant", "call": part.tool_name, "arguments": part.args_as_json_str()})
                case TextPart():
                    plain.append({"role": "assistant", "text": part.content})
                case _:
                    plain.append({"role": part.part_kind, "text": str(getattr(part, "content", ""))})
    return plain


def part_text(part: Any) -> str:
    if isinstance(part, ToolCallPart):
        return part.tool_name + part.args_as_json_str()
    return str(getattr(part, "content", ""))
