"""The AsyncAPI 3.0 document: which message travels through which exchange and queue, and who sends and takes it.

Made from the topology and the models. A channel is either a routing key that somebody sends to or a queue that somebody
takes from; which messages come to a queue follows from its bindings and from what dead-letters into it. This room
never talks to a broker; `ops.exporting` calls it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from ops.broker.topology import KINDS, UNREADABLE, Queue, Topology, takes
from ops.describing import field_words
from schemas import codec
from schemas.boundary import APPROVE
from schemas.broker import (
    BROKER_DEAD_QUEUE,
    COMMANDS,
    COMMANDS_QUEUE,
    RESULT_FAILED,
    RESULT_READY,
    RESULTS_QUEUE,
    UNREADABLE_QUEUE,
    Address,
    Exchange,
    dead_queue,
    request_event,
    task_queue,
    to_agent,
    to_dead,
)
from schemas.messages import CONTENT_TYPE, RECHECK, AgentMessage, MessageType, TaskData, to_wire, wire_type
from schemas.requests import RequestStatus, StepRecord, StepState

AGENT = "{agent}"
STATUS = "{status}"
_BINDING = {"bindingVersion": "0.3.0"}
_EVENT = "AgentMessageEvent"


@dataclass(frozen=True, slots=True)
class Traffic:
    """What is sent to one routing key, and by whom; `confirmed` messages are mandatory and wait for the broker's confirm."""

    name: str
    address: Address
    kinds: tuple[MessageType, ...]
    senders: str
    summary: str
    confirmed: bool = True


TRAFFIC = (
    Traffic("tasks", to_agent(AGENT), (MessageType.TASK,), "orchestrator, worker", "A step is ready, for the workers of one agent."),
    Traffic(
        "result.ready", RESULT_READY, (MessageType.RESULT_READY,), "worker", "A step is COMPLETED, and an orchestrator has to act on it."
    ),
    Traffic("result.failed", RESULT_FAILED, (MessageType.RESULT_FAILED,), "worker", "A step is FAILED."),
    Traffic(
        "request.status",
        request_event(STATUS),
        (MessageType.REQUEST,),
        "orchestrator",
        "A request has reached a status; nobody has to listen.",
        confirmed=False,
    ),
    Traffic(
        "commands",
        COMMANDS,
        (
            *(MessageType.SUBMIT, MessageType.CANCEL, MessageType.REPLAY, MessageType.DROP),
            *(MessageType.RETRACT, MessageType.DECIDE, MessageType.RULES),
        ),
        "producer, people",
        "What an orchestrator is asked to do.",
    ),
    Traffic(
        "dead",
        to_dead(AGENT),
        (MessageType.RESULT_FAILED,),
        "worker, orchestrator",
        "A step was given up; the dead letter itself is the FAILED step on the blackboard.",
    ),
    Traffic(
        "unreadable",
        UNREADABLE,
        tuple(MessageType),
        "worker, orchestrator",
        "What nobody could read or what contradicts the board, as it came, with the reason. It may be no message at all.",
    ),
)

TAKERS = {
    task_queue(AGENT): ("worker", "The tasks of one agent."),
    dead_queue(AGENT): ("people", "The dead letters of one agent."),
    RESULTS_QUEUE: ("orchestrator", "The ends of steps that a worker did not hand on by itself, for scheduling and for the answer."),
    COMMANDS_QUEUE: ("orchestrator", "What orchestrators are asked to do."),
    BROKER_DEAD_QUEUE: ("orchestrator", "What the broker itself gave up; a hint to look at the request."),
    UNREADABLE_QUEUE: ("people", "What nobody could read, kept for a person."),
}
"""Queue -> who takes from it, and what for."""


def document(event_schema: dict[str, Any]) -> dict[str, Any]:
    """Return the AsyncAPI document; `event_schema` is that of a message on the wire."""
    topology = Topology()
    queues = (*topology.of_agent(AGENT), *topology.fixed)
    return {
        "asyncapi": "3.0.0",
        "info": {
            "title": "Briefline",
            "version": "1.0.0",
            "description": (
                "Every message is a bell: it says where to look on the blackboard, and may ring twice, late or never. "
                f"Names begin with `{topology.prefix}`, unless set otherwise."
            ),
            "license": {"name": "Apache-2.0"},
        },
        "defaultContentType": CONTENT_TYPE,
        "channels": {
            **{_sent(traffic): _address_channel(traffic, topology) for traffic in TRAFFIC},
            **{_taken(queue): _queue_channel(queue, queues, topology) for queue in queues},
        },
        "operations": {
            **{f"send.{traffic.name}": _sending(traffic) for traffic in TRAFFIC},
            **{f"take.{_plain(queue.name)}": _taking(queue, queues) for queue in queues},
        },
        "components": {
            "messages": {kind.value: _message(kind) for kind in MessageType},
            "schemas": _schemas(event_schema),
        },
    }


def example(kind: MessageType) -> AgentMessage:
    """Return a message of this kind as it could be sent, the same each time."""
    step = "aftersales"
    of_request = (MessageType.REQUEST, MessageType.SUBMIT, MessageType.CANCEL, MessageType.DECIDE, MessageType.RULES)
    of_step = kind not in of_request
    abouts = {MessageType.RETRACT: "productName", MessageType.DECIDE: f"step:{step}"}
    choices = {MessageType.RETRACT: RECHECK, MessageType.DECIDE: APPROVE}
    result = {MessageType.RESULT_READY: StepState.COMPLETED, MessageType.RESULT_FAILED: StepState.FAILED}.get(kind)
    pending = StepRecord(state=StepState.PENDING, agent=step)
    task = TaskData(record=pending, fields=("request", f"plan/{step}", "constraint/budget")) if kind is MessageType.TASK else None
    seen = {f"step/{step}": "1.5be1c7", "status": "2.5be1c7"} if task else {f"step/{step}": "3.9f04d2"} if result else {}
    contents = {
        MessageType.RESULT_FAILED: "TIMEOUT: no answer within 300 s",
        MessageType.REQUEST: RequestStatus.COMPLETED,
        MessageType.CANCEL: "no longer needed",
        MessageType.DROP: "answered by phone",
        MessageType.RETRACT: "the order belongs to somebody else",
        MessageType.DECIDE: "checked by hand",
        MessageType.RULES: '{"commit_confidence":0.9}',
    }
    return AgentMessage(
        id=f"6f1c9b1e3a0b4b579f0c0b6d1f2e7a{[*MessageType].index(kind):02}",
        type=kind,
        request_id="0b54b2ae-6c1c-5d0f-8d0e-3a0e1a8f7c11",
        step_id=step if of_step else None,
        sender=step if result else "orchestrator" if task or kind is MessageType.REQUEST else "producer",
        recipient=step if task else "*" if kind is MessageType.REQUEST else "orchestrator",
        content=contents.get(kind, ""),
        about=abouts.get(kind, ""),
        choice=choices.get(kind, ""),
        seen=seen,
        state=result,
        task=task,
        created_at=datetime(2026, 1, 1, 12, tzinfo=UTC),
    )


def kinds_in(queue: Queue, queues: Iterable[Queue]) -> tuple[MessageType, ...]:
    """Return what can come to a queue: what its bindings take, and what the broker moves into it from others."""
    found = {kind for traffic in TRAFFIC for kind in traffic.kinds if any(takes(binding, traffic.address) for binding in queue.bindings)}
    for other in queues:
        key = other.arguments.get("x-dead-letter-routing-key")
        if other.name != queue.name and any(binding == Address(Exchange.DEAD, str(key)) for binding in queue.bindings):
            found.update(kinds_in(other, queues))
    return tuple(kind for kind in MessageType if kind in found)


def _address_channel(traffic: Traffic, topology: Topology) -> dict[str, Any]:
    exchange = traffic.address.exchange
    binding = {
        "is": "routingKey",
        "exchange": {"name": topology.full(exchange), "type": KINDS[exchange], "durable": True, "autoDelete": False},
        **_BINDING,
    }
    return {
        "address": traffic.address.key,
        "title": f"{exchange} {traffic.address.key}",
        "summary": traffic.summary,
        "messages": _references(traffic.kinds),
        **_parameters(traffic.address.key),
        "bindings": {"amqp": binding},
    }


def _queue_channel(queue: Queue, queues: Iterable[Queue], topology: Topology) -> dict[str, Any]:
    name = topology.full(queue.name)
    binding = {"is": "queue", "queue": {"name": name, "durable": True, "exclusive": False, "autoDelete": False}, **_BINDING}
    return {
        "address": name,
        "title": queue.name,
        "summary": TAKERS[queue.name][1],
        "messages": _references(kinds_in(queue, queues)),
        **_parameters(name),
        "bindings": {"amqp": binding},
        "x-arguments": queue.arguments,
        "x-bindings": [{"exchange": topology.full(bound.exchange), "routingKey": bound.key} for bound in queue.bindings],
    }


def _sending(traffic: Traffic) -> dict[str, Any]:
    binding = {"deliveryMode": 2, "mandatory": traffic.confirmed, **_BINDING}
    return _operation("send", _sent(traffic), traffic.summary, traffic.senders, traffic.kinds, binding)


def _taking(queue: Queue, queues: Iterable[Queue]) -> dict[str, Any]:
    taker, summary = TAKERS[queue.name]
    return _operation("receive", _taken(queue), summary, taker, kinds_in(queue, queues), {"ack": True, **_BINDING})


def _operation(
    action: str, channel: str, summary: str, roles: str, kinds: Iterable[MessageType], binding: dict[str, Any]
) -> dict[str, Any]:
    return {
        "action": action,
        "channel": {"$ref": f"#/channels/{channel}"},
        "summary": summary,
        "tags": [{"name": role} for role in roles.split(", ")],
        "messages": [{"$ref": f"#/channels/{channel}/messages/{kind}"} for kind in kinds],
        "bindings": {"amqp": binding},
    }


def _message(kind: MessageType) -> dict[str, Any]:
    payload = {"allOf": [{"$ref": f"#/components/schemas/{_EVENT}"}, {"properties": {"type": {"const": wire_type(kind)}}}]}
    return {
        "name": wire_type(kind),
        "title": kind.value,
        "summary": field_words(MessageType.__name__)[kind.value],
        "contentType": CONTENT_TYPE,
        "payload": payload,
        "examples": [{"name": kind.value.lower(), "payload": codec.decode(to_wire(example(kind)))}],
    }


def _schemas(event_schema: dict[str, Any]) -> dict[str, Any]:
    """The event's schema and its parts, as components that refer to each other by their place in this document."""
    parts = {**event_schema["$defs"], _EVENT: {key: value for key, value in event_schema.items() if not key.startswith("$")}}
    moved: dict[str, Any] = codec.decode(codec.encode(parts).replace(b'"#/$defs/', b'"#/components/schemas/'))
    return moved


def _references(kinds: Iterable[MessageType]) -> dict[str, Any]:
    return {kind.value: {"$ref": f"#/components/messages/{kind}"} for kind in kinds}


def _parameters(address: str) -> dict[str, Any]:
    known: dict[str, dict[str, Any]] = {
        AGENT: {"description": "Name of an agent of the team."},
        STATUS: {"description": "The status reached.", "enum": [status.lower() for status in RequestStatus]},
    }
    found = {name.strip("{}"): words for name, words in known.items() if name in address}
    return {"parameters": found} if found else {}


def _sent(traffic: Traffic) -> str:
    return f"to.{traffic.name}"


def _taken(queue: Queue) -> str:
    return f"queue.{_plain(queue.name)}"


def _plain(queue: str) -> str:
    return queue.replace(AGENT, "agent")
