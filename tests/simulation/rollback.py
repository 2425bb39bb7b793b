"""A board that loses its last writes, as a Redis does at a power cut: the state of a moment ago comes back, indexes included."""

from __future__ import annotations

from collections import deque

from ops.blackboard.memory import MemoryBlackboard, _Request


class Rollback:
    """Keeps what the board held at the last moments, and brings one of them back."""

    def __init__(self, board: MemoryBlackboard) -> None:
        self._board = board
        self._kept: deque[tuple[float, dict[str, _Request], dict[str, int]]] = deque(maxlen=12)

    def keep(self, now: float) -> None:
        """Keep a copy of now."""
        requests = {name: _copy(request) for name, request in self._board._requests.items()}
        self._kept.append((now, requests, dict(self._board._due._marks)))

    def back(self, moment: float) -> int:
        """Set the board back to the latest copy that is not after `moment`; return how many writes that took away."""
        fitting = [kept for kept in self._kept if kept[0] <= moment]
        if not fitting:
            return 0
        _, requests, marks = fitting[-1]
        before = sum(len(request.events) for request in self._board._requests.values())
        self._board._requests = {name: _copy(request) for name, request in requests.items()}
        self._board._due._marks = dict(marks)
        return before - sum(len(request.events) for request in requests.values())


def _copy(request: _Request) -> _Request:
    copy = _Request()
    copy.fields = dict(request.fields)
    copy.events = list(request.events)
    copy.operations = dict(request.operations)
    copy.leases = dict(request.leases)
    copy.expires_at_ms = request.expires_at_ms
    return copy
