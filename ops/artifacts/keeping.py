"""Keeping: the artifact store over any shelf. A shelf holds bytes under a name; what they mean is known here.

Every content is compared with its id on reading. What is past its time is unreadable at once, whether it was swept away yet or
not. Called by the worker and by `show --private`; the shelves are `ops.artifacts.folder`, `.s3` and `.memory`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Protocol

from schemas.artifacts import Artifact, is_artifact_id, is_private, pack, unpack
from schemas.errors import NotFound, UnreadableArtifact

DAY_SECONDS = 24 * 60 * 60
PRIVATE_SECONDS = 3 * DAY_SECONDS
SHARED_SECONDS = 30 * DAY_SECONDS


class Shelf(Protocol):
    """Bytes under names. A name is an artifact's id, checked before it comes here. Every call may raise `Unavailable`."""

    async def save(self, name: str, data: bytes) -> None:
        """Keep bytes: all of them or, whatever happens, what was there before."""
        ...

    async def load(self, name: str) -> tuple[bytes, float] | None:
        """Return the bytes and the time they were saved (seconds since the epoch), or None."""
        ...

    async def remove(self, name: str) -> None:
        """Take away what is there, if anything is."""
        ...

    async def saved_before(self, moment: float, *, private: bool, limit: int) -> list[str]:
        """Return up to `limit` names of one kind that were saved before a moment."""
        ...


class KeptArtifacts:
    """An artifact store. `private_seconds` and `shared_seconds` say how long each kind is kept after it was put last."""

    def __init__(
        self,
        shelf: Shelf,
        *,
        private_seconds: float = PRIVATE_SECONDS,
        shared_seconds: float = SHARED_SECONDS,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._shelf = shelf
        self._private_seconds = private_seconds
        self._shared_seconds = shared_seconds
        self._now = now

    async def put(self, artifact: Artifact) -> None:
        """See `schemas.artifacts.ArtifactStore`, here and below."""
        await self._shelf.save(artifact.ref.id, pack(artifact))

    async def read(self, artifact_id: str) -> Artifact:
        """Return an artifact that is as it was put."""
        loaded = await self._shelf.load(_checked(artifact_id))
        if loaded is None:
            raise UnreadableArtifact(artifact_id, f"the store does not have it: never put there, or taken away ({self._told(artifact_id)})")
        data, saved = loaded
        if saved < self._oldest(private=is_private(artifact_id)):
            raise UnreadableArtifact(artifact_id, f"it is of {_moment(saved)}, and past its time ({self._told(artifact_id)})")
        return unpack(artifact_id, data)

    async def delete(self, artifact_id: str) -> None:
        """Take an artifact away."""
        await self._shelf.remove(_checked(artifact_id))

    async def sweep(self, limit: int = 1000) -> int:
        """Take away what is past its time."""
        swept = 0
        for private in (True, False):
            for name in await self._shelf.saved_before(self._oldest(private=private), private=private, limit=limit):
                await self._shelf.remove(name)
                swept += 1
        return swept

    def _oldest(self, *, private: bool) -> float:
        return self._now() - (self._private_seconds if private else self._shared_seconds)

    def _told(self, artifact_id: str) -> str:
        kind, seconds = ("private ones", self._private_seconds) if is_private(artifact_id) else ("artifacts", self._shared_seconds)
        return f"{kind} are kept for {seconds / DAY_SECONDS:g} days"


def _checked(artifact_id: str) -> str:
    if not is_artifact_id(artifact_id):
        raise NotFound(f"{artifact_id[:100]!r} is no artifact's id", path="artifact")
    return artifact_id


def _moment(seconds: float) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M}Z"
