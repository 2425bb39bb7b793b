"""Artifacts in the memory of one process: the embedded runtime's, and the reference for the other shelves."""

from __future__ import annotations

import time
from collections.abc import Callable

from schemas.artifacts import is_private


class MemoryShelf:
    """A shelf that is gone with its process."""

    def __init__(self, *, now: Callable[[], float] = time.time) -> None:
        self._now = now
        self.kept: dict[str, tuple[bytes, float]] = {}

    async def save(self, name: str, data: bytes) -> None:
        """See `ops.artifacts.keeping.Shelf`, here and below."""
        self.kept[name] = data, self._now()

    async def load(self, name: str) -> tuple[bytes, float] | None:
        """Return bytes and time."""
        return self.kept.get(name)

    async def remove(self, name: str) -> None:
        """Take away."""
        self.kept.pop(name, None)

    async def saved_before(self, moment: float, *, private: bool, limit: int) -> list[str]:
        """Return old names."""
        return [name for name, (_, saved) in self.kept.items() if is_private(name) == private and saved < moment][:limit]
