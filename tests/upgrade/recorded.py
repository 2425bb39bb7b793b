"""What a version wrote, kept as files: `fixtures/<version>/messages/*.json` as on the wire, `requests/*.jsonl` with one event
a line, `reports/*.json` with what they came to, `redis/*.json` with the keys of a request as they stand in Redis.

Files of a released version are never changed. Those of the present one are written by `python -m tests.upgrade.writing`.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path
from types import MappingProxyType
from typing import Any

import orjson

from ops.blackboard.memory import MemoryBlackboard, _Request
from ops.reporting import Report
from schemas.blackboard import Event, fold

FIXTURES = Path(__file__).parent / "fixtures"
VERSIONS = sorted(folder.name for folder in FIXTURES.iterdir()) if FIXTURES.is_dir() else []


def files(kind: str, version: str | None = None) -> list[Path]:
    """The files of a kind, of one version or of all."""
    return sorted(path for each in ([version] if version else VERSIONS) for path in (FIXTURES / each / kind).iterdir())


def events_in(path: Path) -> list[Event]:
    """The events of a recorded request."""
    return [event_of(orjson.loads(line)) for line in path.read_bytes().splitlines()]


def line_of(event: Event) -> bytes:
    """An event as a line of a file."""
    put = {name: [version, value.decode()] for name, (version, value) in event.put.items()}
    shape = {name: getattr(event, name) for name in ("position", "at_ms", "role", "writer", "operation_id", "cause")}
    return orjson.dumps({**shape, "labels": dict(event.labels), "put": put})


def event_of(shape: dict[str, Any]) -> Event:
    """The event that a line stands for."""
    put = {name: (version, value.encode()) for name, (version, value) in shape.pop("put").items()}
    return Event(**{**shape, "labels": MappingProxyType(shape["labels"]), "put": MappingProxyType(put)})


def came_to(report: Report) -> dict[str, Any]:
    """What a user sees of a request, without what depends on the code of its team."""
    whole = report.as_json()
    kept = {name: whole[name] for name in ("request_id", "status", "answer", "facts", "gaps")}
    steps = [{name: each[name] for name in ("id", "title", "state", "epoch", "attempt")} for each in whole["steps"]]
    return {**kept, "steps": steps}


def board_with(events: Iterable[Event]) -> MemoryBlackboard:
    """A board that holds a request as its events left it, at the time when the last one was written."""
    recorded = list(events)
    began, last = time.monotonic(), recorded[-1].at_ms / 1000
    board = MemoryBlackboard(clock=lambda: last + time.monotonic() - began)
    request = _Request()
    request.fields, request.events = fold(recorded), recorded
    request.operations = {event.operation_id: event.position for event in recorded}
    board._requests[request_id_of(recorded)] = request
    return board


def request_id_of(events: Iterable[Event]) -> str:
    """The id of the request that the events are of."""
    first = next(event.put["request"][1] for event in events if "request" in event.put)
    return str(orjson.loads(first)["id"])
