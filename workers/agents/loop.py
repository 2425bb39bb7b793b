"""The loop of a specialist: pydantic-ai's, watched from outside.

The library asks the model, checks what it says, and calls tools side by side. Added here: every call as an observation, the
true termination, usage, pointers in place of repeated returns, and the recorder. With `engines` and `messages` the only module
that imports the library; called by agents.specialist alone, on its first run.

A tool's return reaches the model as the JSON text of a tool message of its own, which is the protocol's fence: no text in it
can end the message or begin another.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pydantic_ai import Agent, AgentRunError, ModelSettings, RunContext
from pydantic_ai import Tool as LibraryTool
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.exceptions import (
    ModelAPIError,
    ModelConnectionError,
    ModelContextWindowExceededError,
    ModelHTTPError,
    ModelOverloadedError,
    ModelRateLimitError,
    ModelServerError,
    ModelUnavailableError,
)
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelRequestPart,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
)
from pydantic_ai.models import ModelRequestContext
from pydantic_ai.usage import UsageLimits

from schemas.codec import Json
from schemas.errors import AgentFailed, LimitExceeded, Unavailable
from schemas.plans import Budget
from schemas.results import FailureCode, Termination, Usage
from workers import tokens
from workers.agents.agent import AgentBrief
from workers.agents.engines import opened, settings_of
from workers.agents.limits import LoopLimits
from workers.agents.messages import part_text, plain, pointer, return_key
from workers.agents.models import Model, ModelInput, OpenAICompatible, ScriptedModel
from workers.agents.reading import fail_if_unread, kept, read_tool, seen_by_model
from workers.agents.tools import CONTRADICTION_TOOL, Tool, ToolContext, ToolFault, ToolObservation

_RETRYABLE = (ModelRateLimitError, ModelUnavailableError, ModelOverloadedError, ModelServerError, ModelConnectionError)
_RETRYABLE_STATUS = frozenset({408, 425, 429, 500, 502, 503, 504, 529})


@dataclass(frozen=True, slots=True)
class LoopOutcome:
    """How a run ended, and what happened in it."""

    termination: Termination
    text: str
    """The answer; without one, the last that the model said along the way."""
    observations: tuple[ToolObservation, ...]
    usage: Usage
    reason: str = ""
    """Why there is no answer, in plain words."""
    contradiction: str | None = None


class _Halt(AgentRunError):
    """Ends the library's run from inside, with the termination that it stands for."""

    def __init__(self, termination: Termination, reason: str, contradiction: str | None = None) -> None:
        super().__init__(reason)
        self.termination = termination
        self.reason = reason
        self.contradiction = contradiction


async def run_loop(
    *,
    agent: str,
    brief: AgentBrief,
    instructions: str,
    tools: Mapping[str, Tool],
    model: Model,
    context: ToolContext,
    limits: LoopLimits,
) -> LoopOutcome:
    """Run one specialist on one brief, until it answers or is stopped.

    Raises:
        AgentFailed: retryable, when the model's server is not there, busy or too slow.
        asyncio.CancelledError: when the caller's task is cancelled.
    """
    watch = _Watch(agent=agent, brief=brief, model=model, context=context, limits=limits)
    brief.transcript.observations = watch.observations
    try:
        async with asyncio.timeout(brief.step.timeout_seconds) as clock, opened(model) as library_model:
            runner: Agent[None, str] = Agent(
                library_model,
                name="specialist",
                instructions=instructions,
                tools=[*(watch.wrapped(tool) for tool in tools.values()), *watch.reading_tool(), watch.contradiction_tool()],
                # Wrong tool names and arguments are ordinary rounds here: the step limit ends them, not a count of their own.
                retries=limits.rounds + 1,
                model_settings=settings_of(model),
            )
            answer = await runner.run(brief.text, capabilities=[watch], usage_limits=UsageLimits(request_limit=None))
    except _Halt as halt:
        return watch.outcome(halt.termination, reason=halt.reason, contradiction=halt.contradiction)
    except TimeoutError as error:
        if not clock.expired():
            raise AgentFailed(FailureCode.AGENT_ERROR, f"the model did not answer in time: {error}", retryable=True) from error
        return watch.outcome(Termination.TIMEOUT, reason=f"no answer within {brief.step.timeout_seconds:g} seconds")
    except ModelContextWindowExceededError:
        return watch.outcome(Termination.BUDGET_EXHAUSTED, reason="the text is longer than the model can read")
    except ModelAPIError as error:
        if _may_succeed_later(error):
            raise AgentFailed(FailureCode.AGENT_ERROR, f"the model's server: {_short(error, model)}", retryable=True) from error
        return watch.outcome(Termination.ERROR, reason=f"the model's server refused: {_short(error, model)}")
    except AgentRunError as error:
        return watch.outcome(Termination.ERROR, reason=_short(error, model))
    return watch.outcome(Termination.ANSWERED, text=answer.output.strip())


@dataclass
class _Watch(AbstractCapability[None]):
    """What happens in one run. The library calls the hooks; one instance serves one run."""

    agent: str
    brief: AgentBrief
    model: Model
    context: ToolContext
    limits: LoopLimits
    observations: list[ToolObservation] = field(default_factory=list)
    order: list[str] = field(default_factory=list)
    """Call ids in the order the model asked for them; tools end in any order."""
    round: int = 0
    stale: int = 0
    seen: set[tuple[str, str]] = field(default_factory=set)
    input_tokens: int = 0
    output_tokens: int = 0
    calls: int = 0
    said: str = ""

    @property
    def budget(self) -> Budget:
        """The step's budget within the agent's own limits."""
        budget = self.brief.step.budget
        return Budget(
            tokens=_smaller(budget.tokens, self.limits.tokens),
            model_calls=budget.model_calls,
            tool_calls=_smaller(budget.tool_calls, self.limits.tool_calls),
        )

    async def before_model_request(self, ctx: RunContext[None], request_context: ModelRequestContext) -> ModelRequestContext:
        """Decide whether there is another round, and settle what the model sees of the last one."""
        self._check_progress(request_context.messages)
        messages = self._with_pointers(request_context.messages)
        given = self._input(messages, request_context)
        self._check_limits(given)
        self.round += 1
        self.brief.transcript.instructions, self.brief.transcript.messages = given.instructions, given.messages
        if self.model.recorder is not None:
            self.model.recorder(given)
        if isinstance(self.model, ScriptedModel):
            self.input_tokens += tokens.estimate(given.text)
        settings = request_context.model_settings
        if isinstance(self.model, OpenAICompatible) and self.model.require_tool_first:
            settings = ModelSettings(**{**(settings or {}), "tool_choice": "required" if self.round == 1 else "auto"})
        return replace(request_context, messages=messages, model_settings=settings)

    async def after_model_request(
        self, ctx: RunContext[None], *, request_context: ModelRequestContext, response: ModelResponse
    ) -> ModelResponse:
        """Count what was used, and remember in which order calls were asked for."""
        if isinstance(self.model, ScriptedModel):
            self.output_tokens += tokens.estimate("".join(part_text(part) for part in response.parts))
        else:
            self.input_tokens += response.usage.input_tokens
            self.output_tokens += response.usage.output_tokens
        self.order += [part.tool_call_id for part in response.parts if isinstance(part, ToolCallPart)]
        text = "".join(part.content for part in response.parts if isinstance(part, TextPart)).strip()
        self.said = text or self.said
        self.brief.transcript.messages = (*self.brief.transcript.messages, *plain([response]))
        return response

    def wrapped(self, tool: Tool) -> LibraryTool[None]:
        """Return the library's tool for ours; arguments are checked by ours, so that a bad call is an observation too."""

        async def call(ctx: RunContext[None], **arguments: Any) -> str:
            self._spend_call()
            observation = await self._observe(tool, arguments, ctx.tool_call_id or "")
            self.observations.append(observation)
            return seen_by_model(observation, self.brief.phrases)

        return LibraryTool.from_schema(call, tool.name, tool.description or None, tool.json_schema, takes_ctx=True)

    def reading_tool(self) -> list[LibraryTool[None]]:
        """Return the tool that reads artifacts, where there may be any; a model sees it once there is one."""
        artifacts = self.brief.artifacts
        if not artifacts.open:
            return []
        wrapped = self.wrapped(read_tool(artifacts, self.brief.phrases))
        wrapped.prepare = lambda ctx, definition: definition if artifacts.readable else None
        return [wrapped]

    def contradiction_tool(self) -> LibraryTool[None]:
        """Return the tool by which a model says that the task cannot be done as it stands."""
        phrases = self.brief.phrases
        schema = {
            "type": "object",
            "properties": {"reason": {"type": "string", "description": phrases.contradiction_reason}},
            "required": ["reason"],
        }

        async def report(**arguments: Any) -> str:
            reason = str(arguments.get("reason", "")).strip()
            raise _Halt(Termination.ANSWERED, "the task contradicts itself", reason or "no reason was given")

        return LibraryTool.from_schema(report, CONTRADICTION_TOOL, phrases.contradiction, schema)

    def outcome(self, termination: Termination, *, text: str = "", reason: str = "", contradiction: str | None = None) -> LoopOutcome:
        """Return how the run ended, with everything seen in it."""
        place = {call_id: index for index, call_id in enumerate(self.order)}
        return LoopOutcome(
            termination=termination,
            text=(text or self.said).encode("utf-8", "replace").decode(),  # an endpoint may send half a surrogate pair
            observations=tuple(sorted(self.observations, key=lambda each: place.get(each.call_id, len(place)))),
            usage=Usage(model_calls=self.round, tool_calls=self.calls, input_tokens=self.input_tokens, output_tokens=self.output_tokens),
            reason=reason,
            contradiction=contradiction,
        )

    def _spend_call(self) -> None:
        allowed = self.budget.tool_calls
        if allowed is not None and self.calls >= allowed:
            raise _Halt(Termination.BUDGET_EXHAUSTED, f"the budget of {allowed} tool calls is used up")
        self.calls += 1

    async def _observe(self, tool: Tool, arguments: Mapping[str, Json], call_id: str) -> ToolObservation:
        number, artifacts = self.round, self.brief.artifacts
        observation = ToolObservation(tool.name, dict(arguments), None, call_id, number)
        try:
            observation = replace(observation, returned=await tool.call(arguments, self.context))
            observation = await kept(observation, tool, artifacts)
        except (ToolFault, LimitExceeded, Unavailable) as fault:
            observation = replace(observation, returned=None, error=str(fault))
        fail_if_unread(artifacts)
        return observation

    def _with_pointers(self, messages: Sequence[ModelMessage]) -> list[ModelMessage]:
        """Replace every return that stood in the conversation before by a pointer to the round of the first."""
        first: dict[tuple[str, str], int] = {}
        shown: list[ModelMessage] = []
        number = 0
        for message in messages:
            if isinstance(message, ModelResponse):
                number += 1
                shown.append(message)
                continue
            parts: list[ModelRequestPart] = []
            for part in message.parts:
                key = return_key(part) if isinstance(part, ToolReturnPart) else None
                if isinstance(part, ToolReturnPart) and key in first:
                    parts.append(pointer(part, self.brief.phrases.same_return.format(round=first[key])))
                    continue
                if key is not None:
                    first[key] = number
                parts.append(part)
            shown.append(replace(message, parts=parts))
        return shown

    def _check_progress(self, messages: Sequence[ModelMessage]) -> None:
        """Count rounds that brought nothing which had not been seen before in this run, whatever the arguments."""
        if self.round == 0:
            return
        returns = {return_key(part) for part in messages[-1].parts if isinstance(part, ToolReturnPart)}
        self.stale = self.stale + 1 if returns <= self.seen else 0
        self.seen |= returns
        if self.stale >= self.limits.stale_rounds:
            raise _Halt(Termination.NO_PROGRESS, f"the last {self.stale} rounds brought nothing new")

    def _input(self, messages: Sequence[ModelMessage], request: ModelRequestContext) -> ModelInput:
        instructions = next((each.instructions for each in reversed(messages) if isinstance(each, ModelRequest)), None)
        return ModelInput(
            agent=self.agent,
            step_id=self.brief.step_id,
            round=self.round + 1,
            instructions=instructions or "",
            messages=tuple(plain(messages)),
            tools=tuple(
                {"name": tool.name, "description": tool.description or "", "parameters": tool.parameters_json_schema}
                for tool in request.model_request_parameters.function_tools
            ),
        )

    def _check_limits(self, given: ModelInput) -> None:
        budget = self.budget
        if budget.model_calls is not None and self.round >= budget.model_calls:
            raise _Halt(Termination.BUDGET_EXHAUSTED, f"the budget of {budget.model_calls} model calls is used up")
        if self.round >= self.limits.rounds:
            raise _Halt(Termination.MAX_STEPS, f"no answer after {self.round} rounds")
        used = self.input_tokens + self.output_tokens
        if budget.tokens is not None and used + tokens.estimate(given.text) > budget.tokens:
            raise _Halt(Termination.BUDGET_EXHAUSTED, f"the budget of {budget.tokens:,} tokens does not reach for another round")


def _may_succeed_later(error: ModelAPIError) -> bool:
    if isinstance(error, _RETRYABLE):
        return True
    return isinstance(error, ModelHTTPError) and error.status_code in _RETRYABLE_STATUS


def _short(error: BaseException, model: Model) -> str:
    """First line of an error's text, without the key: bodies of servers can be pages long, and repeat what they were sent."""
    said = (str(error).strip().splitlines() or [type(error).__name__])[0]
    key = model.api_key if isinstance(model, OpenAICompatible) else ""
    return (said.replace(key, "***") if key else said)[:300]


def _smaller(one: int | None, other: int | None) -> int | None:
    given = [each for each in (one, other) if each is not None]
    return min(given) if given else None
