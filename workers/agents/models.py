"""Models: which one a specialist thinks with, as plain values; the library that talks to it is loaded by the loop alone.

`ScriptedModel` is a function in the place of a model: no key, no network, and yet the real loop, tools and extraction run.
`OpenAICompatible` is any endpoint that speaks that protocol. Either can hand every input, byte for byte, to a recorder.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from schemas.codec import Json, digest, encode


@dataclass(frozen=True, slots=True)
class SeenReturn:
    """One tool return as the model sees it in this turn."""

    tool: str
    text: str
    """JSON, a pointer to an earlier round, or an error."""
    round: int


@dataclass(frozen=True, slots=True)
class Turn:
    """What a scripted model may decide by: exactly what a real one would see."""

    instructions: str
    brief: str
    returns: tuple[SeenReturn, ...]
    tools: tuple[str, ...]
    """Names of the tools it may call now."""
    round: int
    """Number of this model call, from 1."""


@dataclass(frozen=True, slots=True)
class Say:
    """The final answer."""

    text: str


@dataclass(frozen=True, slots=True, init=False)
class Call:
    """Tool calls of one turn, `(tool, arguments)` each, with whatever is said along with them."""

    calls: tuple[tuple[str, Mapping[str, Json]], ...]
    text: str

    def __init__(self, *calls: tuple[str, Mapping[str, Json]], text: str = "") -> None:
        given: tuple[Any, ...] = calls
        for call in given:
            if not (isinstance(call, tuple) and len(call) == 2 and isinstance(call[0], str) and isinstance(call[1], Mapping)):
                raise TypeError(f"a call is a pair (tool, arguments), as in Call(('stock', {{'article': 'lamp'}})); got {call!r}")
        object.__setattr__(self, "calls", calls)
        object.__setattr__(self, "text", text)


Reply: TypeAlias = Say | Call
Script: TypeAlias = Callable[[Turn], Reply | Awaitable[Reply]]


@dataclass(frozen=True, slots=True)
class ModelInput:
    """What one model call was given: instructions, messages and tools. `agent` and `step_id` are not part of it."""

    agent: str
    step_id: str
    round: int
    instructions: str
    messages: Sequence[Mapping[str, Json]]
    """Mappings with `role` and what belongs to it, in order."""
    tools: Sequence[Mapping[str, Json]]
    """Name, description and parameters of each tool."""

    @property
    def data(self) -> bytes:
        """All of it as JSON: what may leak stands in here, or nowhere."""
        return encode({"instructions": self.instructions, "messages": list(self.messages), "tools": list(self.tools)})

    @property
    def text(self) -> str:
        """The same as text."""
        return self.data.decode()


Recorder: TypeAlias = Callable[[ModelInput], None]


@dataclass(frozen=True, slots=True)
class ScriptedModel:
    """A model whose replies come from a function; `delay_seconds` is how long it pretends to think."""

    script: Script
    name: str = "scripted"
    delay_seconds: float = 0.0
    recorder: Recorder | None = None

    @property
    def version(self) -> str:
        """Short hash of the name; what the function says has no version of its own."""
        return digest(["scripted", self.name])


@dataclass(frozen=True, slots=True)
class OpenAICompatible:
    """A model behind an OpenAI-compatible endpoint (`base_url` ends in `/v1` for most). Needs the `openai` extra."""

    base_url: str
    name: str
    api_key: str = field(repr=False)
    timeout_seconds: float = 60.0
    temperature: float = 0.0
    recorder: Recorder | None = None
    require_tool_first: bool = False
    """Ask the server to make the first reply a tool call. Small models otherwise answer in prose at once."""

    @property
    def version(self) -> str:
        """Short hash of name, address and temperature."""
        return digest([self.base_url, self.name, self.temperature])


Model: TypeAlias = ScriptedModel | OpenAICompatible
