"""Reading: the tool by which a model reads what is too big for its brief, in parts, and what it is told of a return that was kept.

An artifact's text reaches a model as one value in the JSON of a tool message, like any other text from outside. Called by the
specialist's loop.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any

from pydantic import Field

from schemas.artifacts import JSON, TEXT, ArtifactRef
from schemas.codec import Json, encode
from schemas.errors import AgentFailed, NotPermitted, UnreadableArtifact
from schemas.results import FailureCode
from workers.agents.tools import READ_TOOL, Tool, ToolObservation
from workers.artifacts import RunArtifacts
from workers.phrases import Phrases


def read_tool(artifacts: RunArtifacts, phrases: Phrases) -> Tool:
    """Return the tool; it reads what the run may read, and says of anything else that this is not permitted."""
    of_id, of_start, of_length = phrases.read_parameters

    async def read_artifact(id: str, start: int = 0, length: int | None = None) -> dict[str, Any]:
        try:
            part = await artifacts.read(id, start, length)
        except NotPermitted:
            return {"error": phrases.not_permitted}
        return {"id": part.ref.id, "start": part.start, "end": part.end, "total": part.total, "text": part.text}

    # What a model reads of the parameters is in the team's language, so it is no text of this module.
    read_artifact.__annotations__ |= {
        "id": Annotated[str, Field(description=of_id)],
        "start": Annotated[int, Field(description=of_start, ge=0)],
        "length": Annotated[int | None, Field(description=of_length, gt=0)],
    }
    return Tool(READ_TOOL, read_artifact, phrases.read_artifact, whole=True)


async def kept(observation: ToolObservation, tool: Tool, artifacts: RunArtifacts) -> ToolObservation:
    """Return the observation with a reference where its return is over the limit.

    Raises:
        LimitExceeded: it is one artifact too many for this run.
        Unavailable: the store is not there.
    """
    returned = observation.returned
    if tool.whole or observation.error is not None:
        return observation
    text = returned if isinstance(returned, str) else encode(returned).decode()
    if not artifacts.too_big(text):
        return observation
    ref = await artifacts.put(text, media_type=TEXT if isinstance(returned, str) else JSON)
    return replace(observation, artifact=ref)


def seen_by_model(observation: ToolObservation, phrases: Phrases) -> str:
    """Return what a model reads of a call: the return as JSON text, a reference in its place, or an object with `error`."""
    value = observation.returned
    if observation.error is not None:
        value = {"error": observation.error}
    elif observation.artifact is not None:
        value = {"artifact": _told(observation.artifact), "note": phrases.kept_return}
    return encode(value).decode()


def _told(ref: ArtifactRef) -> Mapping[str, Json]:
    return {"id": ref.id, "type": ref.media_type, "bytes": ref.size, "summary": ref.summary}


def fail_if_unread(artifacts: RunArtifacts) -> None:
    """End the run where the store did not give or take what it should: a model would go on without, and nobody would know.

    Raises:
        AgentFailed: `UNREADABLE_ARTIFACT` where it is gone or damaged; retryable where the store is away.
    """
    trouble = artifacts.trouble
    if isinstance(trouble, UnreadableArtifact):
        ref = artifacts.ref(trouble.artifact_id)
        made = f", made by step {ref.producer!r}: run that step again" if ref is not None else ""
        raise AgentFailed(FailureCode.UNREADABLE_ARTIFACT, f"{trouble}{made}") from trouble
    if trouble is not None:
        raise AgentFailed(FailureCode.AGENT_ERROR, f"the artifact store: {trouble}", retryable=True) from trouble
