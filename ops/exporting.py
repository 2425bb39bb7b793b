"""Exporting: the contracts as files that another language can read, made from the models and never written by hand.

One JSON Schema (2020-12) for the message on the wire, for its data, and for every record of the blackboard, each whole
in itself; and the AsyncAPI document. A schema says what a reader must understand: what has a default may be missing,
and what is not named may be there (a newer minor version). This room never reads a message or a board; the CLI
(`briefline schemas export`) calls it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson

from ops import asyncapi
from ops.describing import described
from schemas import messages
from schemas.briefs import Brief, Manifest
from schemas.facts import Fact
from schemas.frozen import Frozen
from schemas.messages import AgentMessage, MessageType, TaskData, wire_type
from schemas.plans import Step
from schemas.requests import AnswerRecord, ConstraintRecord, PlanRecord, RequestRecord, SessionRecord, StatusRecord, StepRecord
from schemas.results import AgentResult
from schemas.teams import TeamCard

DIALECT = "https://json-schema.org/draft/2020-12/schema"

RECORDS: dict[str, tuple[type[Frozen], str]] = {
    "task-data": (TaskData, "`data.task` of a TASK"),
    "request-record": (RequestRecord, "field `request`"),
    "team-card": (TeamCard, "field `card`"),
    "constraint-record": (ConstraintRecord, "field `constraint/<name>`"),
    "status-record": (StatusRecord, "field `status`"),
    "plan-record": (PlanRecord, "field `plan`"),
    "step": (Step, "field `plan/<id>`"),
    "step-record": (StepRecord, "field `step/<id>`"),
    "agent-result": (AgentResult, "field `result/<id>`"),
    "fact": (Fact, "`facts` of a result"),
    "answer-record": (AnswerRecord, "field `answer`"),
    "session-record": (SessionRecord, "field `session` of a session"),
    "brief": (Brief, "what an agent is given"),
    "manifest": (Manifest, "`manifest` of a brief"),
}
"""Schema name -> the model, and where its values stand."""

EVENT = "agent-message-event"
DATA = "agent-message"
ASYNCAPI = "asyncapi.json"
INDEX = "README.md"

# What stands beside `data` on the wire, and not in it.
_ATTRIBUTES = ("id", "type", "created_at", "trace")

_DEMANDED: dict[MessageType, tuple[str, ...]] = {
    MessageType.TASK: ("step_id", "seen", "task"),
    MessageType.RESULT_READY: ("step_id", "state"),
    MessageType.RESULT_FAILED: ("step_id", "state"),
    MessageType.REPLAY: ("step_id",),
    MessageType.DROP: ("step_id",),
    MessageType.RETRACT: ("step_id", "about"),
    MessageType.DECIDE: ("about", "choice"),
    MessageType.RULES: ("content",),
}
"""What `data` must hold, by type, beside what it always must."""


def export(folder: Path) -> tuple[Path, ...]:
    """Write every document into `folder` and return their paths; a schema there that is no longer exported is deleted."""
    folder.mkdir(parents=True, exist_ok=True)
    written = documents()
    for stray in _strays(folder, written):
        stray.unlink()
    for name, content in written.items():
        (folder / name).write_bytes(content)
    return tuple(folder / name for name in written)


def outdated(folder: Path) -> tuple[str, ...]:
    """Return the names of the documents that are missing in `folder`, not as they would be written now, or too many."""
    expected = documents()
    wrong = [name for name, content in expected.items() if not (path := folder / name).is_file() or path.read_bytes() != content]
    return (*wrong, *(stray.name for stray in _strays(folder, expected)))


def documents() -> dict[str, bytes]:
    """Return every document by its file name."""
    schemas = {EVENT: event_schema(), DATA: data_schema(), **{name: schema_of(name, model) for name, (model, _) in RECORDS.items()}}
    return {
        **{f"{name}.json": _pretty(schema) for name, schema in schemas.items()},
        ASYNCAPI: _pretty(asyncapi.document(schemas[EVENT])),
        INDEX: _index().encode(),
    }


def identifier(name: str) -> str:
    """Return the stable id of a schema; the number is the major version of what it describes."""
    return f"urn:briefline:schema:{name}:1"


def schema_of(name: str, model: type[Frozen]) -> dict[str, Any]:
    """Return the JSON Schema of a model under the id of `name`."""
    return {"$schema": DIALECT, "$id": identifier(name), **described(model)}


def data_schema() -> dict[str, Any]:
    """Return the schema of a message's `data`: the message without what the event's attributes say."""
    schema = schema_of(DATA, AgentMessage)
    assert schema["$id"] == messages.SCHEMA_URI, "messages name the schema of their data by its id"
    for name in _ATTRIBUTES:
        del schema["properties"][name]
    schema["required"] = [name for name in schema["required"] if name not in _ATTRIBUTES]
    del schema["$defs"][MessageType.__name__]
    return schema


def event_schema() -> dict[str, Any]:
    """Return the schema of a whole message on the wire, a CloudEvents 1.0 document in structured JSON mode."""
    data = data_schema()
    definitions = {**data.pop("$defs"), data["title"]: {key: data[key] for key in data if not key.startswith("$")}}
    text = {"type": "string", "minLength": 1}
    return {
        "$schema": DIALECT,
        "$id": identifier(EVENT),
        "title": "AgentMessageEvent",
        "description": f"A message on the wire: a CloudEvents 1.0 document in structured JSON mode ({messages.CONTENT_TYPE}).",
        "type": "object",
        "required": ["specversion", "id", "source", "type", "time", "data"],
        "properties": {
            "specversion": {"const": "1.0"},
            "id": {**text, "description": "New for each sending, also of the same bell."},
            "source": {**text, "format": "uri-reference", "description": "`/briefline/` and the sender."},
            "type": {"enum": [wire_type(kind) for kind in MessageType]},
            "subject": {**text, "description": "The request's id, and `/` with the step's where there is one."},
            "time": {"type": "string", "format": "date-time", "description": "For people. No decision rests on it."},
            "datacontenttype": {"const": "application/json"},
            "dataschema": {"const": messages.SCHEMA_URI},
            "traceparent": {**text, "description": "W3C Trace Context."},
            "data": {"$ref": f"#/$defs/{data['title']}"},
        },
        "allOf": [
            {
                "if": {"properties": {"type": {"const": wire_type(kind)}}},
                "then": {"properties": {"data": {"required": list(demanded)}}},
            }
            for kind, demanded in _DEMANDED.items()
        ],
        "$defs": definitions,
    }


def _strays(folder: Path, expected: dict[str, bytes]) -> list[Path]:
    return sorted(path for path in folder.glob("*.json") if path.name not in expected)


def _pretty(document: dict[str, Any]) -> bytes:
    return orjson.dumps(document, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)


def _index() -> str:
    rows = [(EVENT, "every message on the wire"), (DATA, "`data` of a message"), *((name, where) for name, (_, where) in RECORDS.items())]
    lines = [f"| [{name}.json]({name}.json) | `{identifier(name)}` | {where} |" for name, where in rows]
    return "\n".join(
        (
            "# Contracts",
            "",
            "Made by `briefline schemas export`; do not edit. JSON Schema 2020-12, each file whole in itself. What has a default may",
            "be missing, and fields that are not named here are to be ignored: a newer minor version may send them.",
            f"[{ASYNCAPI}]({ASYNCAPI}) (AsyncAPI 3.0) says which message travels where.",
            "",
            "| file | id | where its values stand |",
            "| --- | --- | --- |",
            *lines,
            "",
        )
    )
