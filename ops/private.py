"""Private records: what was said and called in one attempt of a step, read by a person, and told of in the request's events.

The worker keeps them as private artifacts (`workers.transcripts`). No agent's tool reads one. Called by `show --private`.
"""

from __future__ import annotations

import getpass
import os
import socket
from dataclasses import dataclass

import orjson

from schemas import fields
from schemas.artifacts import ArtifactRef, ArtifactStore
from schemas.blackboard import Blackboard, Event, Write, Written
from schemas.codec import Json
from schemas.errors import NotFound, NotPermitted, UnreadableArtifact
from schemas.ids import new_id
from schemas.requests import Role
from schemas.results import PRIVATE_LABEL

READ_EVENT = "private_read"
"""Name of the event that says who has read a private record."""


@dataclass(frozen=True, slots=True)
class PrivateRecord:
    """A record and the event of the attempt that it is of."""

    ref: ArtifactRef
    told: dict[str, Json]
    attempts: tuple[str, ...]
    """Every attempt of the step that left a record, oldest first."""


async def read_private(
    board: Blackboard, store: ArtifactStore, request_id: str, step_id: str, *, attempt: int | None = None, reader: str | None = None
) -> PrivateRecord:
    """Return the record of a step's last attempt, or of the one named. That it was read, and by whom, is an event before it is shown.

    Raises:
        NotFound: no such request, or the attempt left no record.
        UnreadableArtifact: the record is past its time, or damaged.
        NotPermitted: the reader may not write that event, and so may not read.
        Unavailable: board or store is away.
    """
    snapshot = await board.read(request_id, (fields.REQUEST,))
    if fields.REQUEST not in snapshot.fields:
        raise NotFound(f"the board has no request {request_id!r}: never opened, or past its retention", path="request")
    kept = [each for each in await board.events(request_id) if each.labels.get("step") == step_id and _keeps(each)]
    chosen = [each for each in kept if attempt is None or each.labels.get("attempt") == str(attempt)]
    if not chosen:
        which = "" if attempt is None else f" in attempt {attempt}"
        raise NotFound(f"step {step_id!r} left no private record{which}: only a specialist that has run leaves one", path="step")
    artifact = await store.read(chosen[-1].labels[PRIVATE_LABEL])
    told = orjson.loads(artifact.content)
    if not isinstance(told, dict) or (told.get("request"), told.get("step")) != (request_id, step_id):
        raise UnreadableArtifact(artifact.ref.id, "it is no record of this step")  # whoever may write a note may name any
    await _say(board, request_id, snapshot.version(fields.REQUEST), chosen[-1], reader or who())
    return PrivateRecord(artifact.ref, told, tuple(each.labels.get("attempt", "") for each in kept))


def _keeps(event: Event) -> bool:
    """Whether an event names a record that its attempt has left; one that says who read it names it too."""
    return PRIVATE_LABEL in event.labels and event.labels.get("event") != READ_EVENT


async def _say(board: Blackboard, request_id: str, version: str, event: Event, reader: str) -> None:
    note = Write(
        role=Role.PRODUCER,
        writer=f"reader/{reader}",
        operation_id=new_id(),
        expect={fields.REQUEST: version},  # a note on a request that is gone would open it anew
        labels={
            "event": READ_EVENT,
            "step": event.labels["step"],
            "attempt": event.labels.get("attempt", ""),
            PRIVATE_LABEL: event.labels[PRIVATE_LABEL],
            "by": reader,
        },
        cause="show --private",
    )
    outcome = await board.write(request_id, note)
    if not isinstance(outcome, Written):
        raise NotPermitted("that the record is read could not be noted, so it is not shown")


def who() -> str:
    """Return who runs this process, as far as the machine knows: user and host."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container's user may have no name
        user = f"uid-{os.getuid()}"
    return f"{user}@{socket.gethostname()}"[:200]
