"""Messages: bells that say where to look. On the wire each is a CloudEvents 1.0 event in structured JSON mode.

A message never carries a result: it has the same size for a ten-word and a ten-page answer.
"""

from __future__ import annotations

from datetime import UTC, datetime
from enum import StrEnum
from typing import Any
from urllib.parse import quote

from pydantic import AwareDatetime, ValidationError

from schemas import codec
from schemas.errors import InvalidValue, Unreadable, UnsupportedVersion
from schemas.frozen import Frozen, first_problem, refuse_other_major
from schemas.ids import new_id
from schemas.limits import MAX_MESSAGE_BYTES, within
from schemas.requests import StepRecord, StepState

SCHEMA_VERSION = "1.0"
CONTENT_TYPE = "application/cloudevents+json"
SCHEMA_URI = "urn:briefline:schema:agent-message:1"
"""Names the schema of a message's `data`."""


ORCHESTRATOR = "orchestrator"
"""Sender and recipient name of every orchestrator."""


RECHECK = "recheck"
"""The choice of a RETRACT that lets the step run again."""


class MessageType(StrEnum):
    """What a message asks for or tells."""

    TASK = "TASK"
    """A step is ready: to its agent's workers."""
    RESULT_READY = "RESULT_READY"
    """A step is COMPLETED: to the orchestrators."""
    RESULT_FAILED = "RESULT_FAILED"
    """A step is FAILED: to the orchestrators; and, as a dead letter's bell, to people and tools."""
    REQUEST = "REQUEST"
    """A request has reached a status: to any subscriber."""
    SUBMIT = "SUBMIT"
    """A request was opened: to the orchestrators."""
    CANCEL = "CANCEL"
    """End the request with what is finished; `content` is the reason, `epoch` how often it has been replayed."""
    REPLAY = "REPLAY"
    """Reopen a failed step; `epoch` is the one that failed."""
    DROP = "DROP"
    """Take a dead letter out of the list; `content` is the reason."""
    RETRACT = "RETRACT"
    """Withdraw what a step said of `about`; `content` is the reason, `choice` may be `recheck`."""
    DECIDE = "DECIDE"
    """Decide the item `about` of the desk as `choice`; `content` is the reason."""
    RULES = "RULES"
    """Let other boundary rules hold for the request; `content` is them as JSON."""


_WIRE_TYPE = {
    MessageType.TASK: "briefline.task.v1",
    MessageType.RESULT_READY: "briefline.result.ready.v1",
    MessageType.RESULT_FAILED: "briefline.result.failed.v1",
    MessageType.REQUEST: "briefline.request.v1",
    MessageType.SUBMIT: "briefline.submit.v1",
    MessageType.CANCEL: "briefline.cancel.v1",
    MessageType.REPLAY: "briefline.replay.v1",
    MessageType.DROP: "briefline.drop.v1",
    MessageType.RETRACT: "briefline.retract.v1",
    MessageType.DECIDE: "briefline.decide.v1",
    MessageType.RULES: "briefline.rules.v1",
}
_FROM_WIRE = {wire: kind for kind, wire in _WIRE_TYPE.items()}


class TaskData(Frozen):
    """What a TASK's sender read: a fitting version proves the copy, so that the claim needs no read before it."""

    record: StepRecord
    fields: tuple[str, ...] = ()
    """The fields that the claim should return, `plan/<id>` included."""


class AgentMessage(Frozen):
    """One bell. `seen` holds the versions its sender decided by: a TASK's step, status and inputs, a RESULT's step."""

    id: str
    type: MessageType
    request_id: str
    step_id: str | None = None
    sender: str
    recipient: str
    content: str = ""
    about: str = ""
    """What of the step or request it is about: the key of a fact, an item of the desk."""
    choice: str = ""
    """What is chosen, where something is."""
    epoch: int = 0
    seen: dict[str, str] = {}
    state: StepState | None = None
    """The step's committed state, in a RESULT."""
    again: bool = False
    """A RESULT of a TASK that was begun before and came back: whoever ended the step may have died over what came next."""
    task: TaskData | None = None
    created_at: AwareDatetime
    """UTC; for people. No decision rests on it."""
    schema_version: str = SCHEMA_VERSION
    trace: str | None = None
    """A W3C `traceparent`."""


def message(
    kind: MessageType,
    request_id: str,
    *,
    sender: str,
    recipient: str,
    step_id: str | None = None,
    content: str = "",
    about: str = "",
    choice: str = "",
    epoch: int = 0,
    seen: dict[str, str] | None = None,
    state: StepState | None = None,
    again: bool = False,
    task: TaskData | None = None,
    trace: str | None = None,
) -> AgentMessage:
    """Return a new message with an id of its own; each sending of the same bell is a new message."""
    return AgentMessage(
        id=new_id(),
        type=kind,
        request_id=request_id,
        step_id=step_id,
        sender=sender,
        recipient=recipient,
        content=content,
        about=about,
        choice=choice,
        epoch=epoch,
        seen=seen or {},
        state=state,
        again=again,
        task=task,
        created_at=datetime.now(UTC),
        trace=trace,
    )


def wire_type(kind: MessageType) -> str:
    """Return the CloudEvents `type` of a kind of message."""
    return _WIRE_TYPE[kind]


def to_wire(bell: AgentMessage) -> bytes:
    """Return the message as a CloudEvents JSON document.

    Raises:
        InvalidValue: it holds text that is not UTF-8.
        LimitExceeded: it is larger than a message may be.
    """
    event: dict[str, Any] = {
        "specversion": "1.0",
        "id": bell.id,
        "source": f"/briefline/{quote(bell.sender)}",
        "type": _WIRE_TYPE[bell.type],
        "subject": f"{bell.request_id}/{bell.step_id}" if bell.step_id else bell.request_id,
        "time": bell.created_at.isoformat().replace("+00:00", "Z"),
        "datacontenttype": "application/json",
        "dataschema": SCHEMA_URI,
    }
    if bell.trace:
        event["traceparent"] = bell.trace
    event["data"] = _data(bell)
    body = codec.encode(event)
    within(len(body), MAX_MESSAGE_BYTES, f"message {bell.type}")
    return body


_IN_DATA = {
    name: field.is_required()
    for name, field in AgentMessage.model_fields.items()
    if name not in {"id", "type", "created_at", "trace", "schema_version"}
}
"""Field -> whether it is there also when it is empty."""


def _data(bell: AgentMessage) -> dict[str, Any]:
    """What is not at its default, field by field: a dump by the model's own means costs as much as the whole rest."""
    data = {name: value for name, always in _IN_DATA.items() if (value := getattr(bell, name)) or always}
    if bell.task is not None:
        data["task"] = bell.task.model_dump(mode="json", exclude_defaults=True)
    return data


def from_wire(body: bytes) -> AgentMessage:
    """Read a message. Unknown fields are ignored within this major version.

    Raises:
        Unreadable: not JSON, no CloudEvents document, or a field that is missing or wrong, named by its path.
        UnsupportedVersion: another major schema version, or a type unknown here.
    """
    if len(body) > MAX_MESSAGE_BYTES:
        raise Unreadable(f"a message of {len(body):,} bytes is over the limit of {MAX_MESSAGE_BYTES:,}")
    try:
        event = codec.decode(body)
    except InvalidValue as error:
        raise Unreadable(str(error)) from error
    if not isinstance(event, dict) or event.get("specversion") != "1.0" or not isinstance(event.get("data"), dict):
        raise Unreadable("not a CloudEvents 1.0 document with JSON data")
    kind = _FROM_WIRE.get(str(event.get("type")))
    if kind is None:
        named = repr(event.get("type"))[:100]
        raise UnsupportedVersion(f"this version knows no message of type {named}; it reads {', '.join(_FROM_WIRE)}")
    data = event["data"]
    refuse_other_major(data.get("schema_version", SCHEMA_VERSION), "the message")
    try:
        return AgentMessage.model_validate(
            {**data, "id": event.get("id"), "type": kind, "created_at": event.get("time"), "trace": event.get("traceparent")}
        )
    except ValidationError as error:
        raise Unreadable(f"data of {event['type']}: {first_problem(error)}") from error
