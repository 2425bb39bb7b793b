"""The record of a run, a JSON line for each thing that users or breakers did: first that it is begun, then how it ended.

An operation whose outcome nobody knows is `unknown`: it may have happened, or may still. The checker reads this record and
the board, and nothing else.
"""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path
from typing import Literal

import orjson

Outcome = Literal["invoke", "ok", "fail", "unknown"]


class History:
    """A record that is written as things happen, and can be counted."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = path.open("wb", buffering=0)
        self._began = time.monotonic()
        self.counts: Counter[tuple[str, Outcome]] = Counter()
        self.opened: set[str] = set()
        """Requests of which a submit has returned ok."""
        self.asked: set[str] = set()
        """Requests that somebody has tried to submit."""
        self.observed: dict[str, str] = {}
        """Request -> the status in which somebody saw it over, last."""

    def note(self, what: str, outcome: Outcome, request: str = "", **details: str | int | float | None) -> None:
        """Write down one line."""
        self.counts[what, outcome] += 1
        if what == "submit":
            self.asked.add(request)
            if outcome == "ok":
                self.opened.add(request)
        if what == "observe" and outcome == "ok":
            self.observed[request] = str(details["status"])
        line = {"at": round(time.monotonic() - self._began, 3), "what": what, "type": outcome, "request": request, **details}
        self._file.write(orjson.dumps(line) + b"\n")

    def close(self) -> None:
        """Write no more."""
        self._file.close()
