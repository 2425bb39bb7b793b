"""Transcripts: what was said and called in one attempt. A run's own, for people who look into it; no agent ever gets one.

The specialist's loop writes into it as it goes, so that a run that raised or was stopped leaves what there was. The worker
line keeps it as a private artifact when the attempt has ended. Nothing of it stands in a field, an event or a message.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import structlog

from schemas.artifacts import JSON, ArtifactStore, artifact_of
from schemas.codec import Json, encode
from workers.agents.tools import ToolObservation

KEEP_SECONDS = 20.0
"""How long keeping a transcript may take: it is worth less than the result that waits for it."""

log = structlog.get_logger()


@dataclass(slots=True)
class Transcript:
    """Instructions and messages as the model read them, and each tool call as it really was."""

    instructions: str = ""
    messages: Sequence[Mapping[str, Json]] = ()
    observations: Sequence[ToolObservation] = ()

    @property
    def empty(self) -> bool:
        """Whether nothing happened that could be told."""
        return not (self.messages or self.observations)

    def to_json(self, about: Mapping[str, Json]) -> bytes:
        """Return it as JSON, with what it is about at the head.

        Raises:
            InvalidValue: it holds what JSON cannot.
        """
        return encode(
            {
                **about,
                "instructions": self.instructions,
                "messages": [dict(message) for message in self.messages],
                "observations": [_as_json(each) for each in self.observations],
            }
        )


async def keep(store: ArtifactStore, transcript: Transcript, about: Mapping[str, Json], *, step: str) -> str | None:
    """Keep a transcript as a private artifact and return its id; None where that failed.

    It never fails: whatever the store does is logged, and the step goes on.
    """
    try:
        artifact = artifact_of(transcript.to_json(about), producer=step, media_type=JSON, summary="messages and tool calls", private=True)
        async with asyncio.timeout(KEEP_SECONDS):
            await store.put(artifact)
    except Exception as error:
        log.warning("transcript_not_kept", step=step, reason=f"{type(error).__name__}: {error}"[:300])
        return None
    return artifact.ref.id


def _as_json(each: ToolObservation) -> dict[str, Json]:
    shape: dict[str, Json] = {"round": each.round, "tool": each.tool, "call_id": each.call_id, "arguments": each.arguments}
    if each.error is not None:
        return {**shape, "error": each.error}
    if each.artifact is not None:  # it is kept already, and for longer
        return {**shape, "artifact": each.artifact.id}
    return {**shape, "returned": each.returned}
