"""Engines: the library's model for one of ours, opened for one run and closed with it. Called by the specialist's loop."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from pydantic_ai import ModelSettings
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, UserPromptPart
from pydantic_ai.models import Model as LibraryModel
from pydantic_ai.models.function import AgentInfo, FunctionModel

from workers.agents.messages import seen_returns
from workers.agents.models import Call, Model, OpenAICompatible, Say, ScriptedModel, Turn


@asynccontextmanager
async def opened(model: Model) -> AsyncIterator[LibraryModel]:
    """Give the library's model for one run; connections end with it."""
    if isinstance(model, ScriptedModel):
        yield FunctionModel(_Script(model), model_name=model.name)
        return
    # The OpenAI client belongs to an extra: a scripted model runs without it.
    from openai import AsyncOpenAI  # type: ignore[import-not-found, unused-ignore]  # in the extra only
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    # The worker repeats a failed attempt, with backoff and on the record; a client that also did would hide it.
    async with AsyncOpenAI(base_url=model.base_url, api_key=model.api_key, timeout=model.timeout_seconds, max_retries=0) as client:
        yield OpenAIChatModel(model.name, provider=OpenAIProvider(openai_client=client))


def settings_of(model: Model) -> ModelSettings:
    if isinstance(model, OpenAICompatible):
        return ModelSettings(temperature=model.temperature, timeout=model.timeout_seconds)
    return ModelSettings(temperature=0.0)


@dataclass
class _Script:
    """Puts a scripted model's function in the place of a model: it sees what a real one would see."""

    model: ScriptedModel

    async def __call__(self, messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        number = 1 + sum(isinstance(message, ModelResponse) for message in messages)
        turn = Turn(
            instructions=info.instructions or "",
            brief=next(str(part.content) for message in messages for part in message.parts if isinstance(part, UserPromptPart)),
            returns=tuple(seen_returns(messages)),
            tools=tuple(tool.name for tool in info.function_tools),
            round=number,
        )
        if self.model.delay_seconds:
            await asyncio.sleep(self.model.delay_seconds)
        reply = self.model.script(turn)
        if inspect.isawaitable(reply):
            reply = await reply
        if not isinstance(reply, Say | Call):
            raise TypeError(f"a script replies with Say(...) or Call(...), not {type(reply).__name__}")
        if isinstance(reply, Say):
            return ModelResponse(parts=[TextPart(reply.text)])
        calls = [
            ToolCallPart(tool, dict(arguments), tool_call_id=f"call-{number}-{index}")
            for index, (tool, arguments) in enumerate(reply.calls, start=1)
        ]
        return ModelResponse(parts=[TextPart(reply.text), *calls] if reply.text else calls)
