"""The indexes of the blackboard in memory: what is due, and what arrived in which order. Called by `ops.blackboard.memory`."""

from __future__ import annotations

from typing import Generic, TypeVar

from schemas.blackboard import Due

Item = TypeVar("Item")


class DueIndex:
    """Members and their marks: when (board clock, ms) each is to be looked at."""

    def __init__(self) -> None:
        self._marks: dict[str, int] = {}

    def enter(self, member: str, at_ms: int) -> None:
        """Set a mark; the earlier one wins, and it always changes."""
        before = self._marks.get(member)
        self._marks[member] = at_ms if before is None else min(before - 1, at_ms)

    def mark(self, member: str, at_ms: int) -> None:
        """Set a mark whatever it was; it always changes, so that a look begun before cannot settle it."""
        self._marks[member] = at_ms + 1 if self._marks.get(member) == at_ms else at_ms

    def leave(self, member: str) -> None:
        """Take a mark away."""
        self._marks.pop(member, None)

    def due(self, now_ms: int, limit: int, forward_ms: int) -> list[Due]:
        """Return up to `limit` members whose time has come, longest waiting first, each moved `forward_ms` on from now."""
        waiting = sorted((mark, member) for member, mark in self._marks.items() if mark <= now_ms)
        found = [Due(member, now_ms + forward_ms) for _, member in waiting[: max(0, limit)]]
        self._marks.update((due.member, due.mark) for due in found)
        return found

    def settle(self, due: Due, at_ms: int | None) -> None:
        """Set the next mark, or none, unless it has changed since `due`."""
        if self._marks.get(due.member) == due.mark:
            if at_ms is None:
                del self._marks[due.member]
            else:
                self.mark(due.member, at_ms)


class Arrivals(Generic[Item]):
    """Items in order of arrival; the newest `keep` stay (0: all)."""

    def __init__(self, keep: int = 0) -> None:
        self._keep = keep
        self._items: dict[Item, None] = {}

    def add(self, item: Item) -> None:
        """Add an item; adding it again changes nothing."""
        self._items.setdefault(item)
        if self._keep and len(self._items) > self._keep:
            del self._items[next(iter(self._items))]

    def remove(self, item: Item) -> None:
        """Take an item out."""
        self._items.pop(item, None)

    def newest(self, limit: int) -> list[Item]:
        """Return up to `limit` items, newest first."""
        newest = reversed(self._items)
        return [item for item, _ in zip(newest, range(max(0, limit)), strict=False)]
