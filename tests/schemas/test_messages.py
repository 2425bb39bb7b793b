"""Messages: the same on both sides of the wire, a CloudEvents document in between, and never a result inside."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from cloudevents.core.bindings import rabbitmq
from cloudevents.core.formats.json import JSONFormat
from cloudevents.core.v1.event import CloudEvent
from hypothesis import given
from hypothesis import strategies as st

from schemas import fields
from schemas.errors import InvalidValue, LimitExceeded, Unreadable, UnsupportedVersion
from schemas.limits import MAX_MESSAGE_BYTES
from schemas.messages import (
    CONTENT_TYPE,
    SCHEMA_URI,
    AgentMessage,
    MessageType,
    TaskData,
    from_wire,
    message,
    to_wire,
    wire_type,
)
from schemas.requests import StepRecord, StepState
from schemas.results import AgentResult, Failure, ResultStatus
from workers.recording import result_bell

TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
SOME = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=40)
COUNTS = st.integers(0, 2**31)
FAILURES = st.builds(Failure, code=TEXT, description=TEXT, retryable=st.booleans())
RECORDS = st.builds(
    StepRecord,
    state=st.sampled_from(StepState),
    agent=SOME,
    epoch=COUNTS,
    attempt=COUNTS,
    max_attempts=COUNTS,
    not_before_ms=COUNTS,
    failure=st.none() | FAILURES,
    first_error=st.none() | TEXT,
    worker=st.none() | TEXT,
)
MESSAGES = st.builds(
    AgentMessage,
    id=SOME,
    type=st.sampled_from(MessageType),
    request_id=SOME,
    step_id=st.none() | SOME,
    sender=TEXT,
    recipient=TEXT,
    content=TEXT,
    epoch=COUNTS,
    seen=st.dictionaries(TEXT, TEXT, max_size=4),
    state=st.none() | st.sampled_from(StepState),
    task=st.none() | st.builds(TaskData, record=RECORDS, fields=st.lists(TEXT, max_size=4).map(tuple)),
    created_at=st.datetimes(timezones=st.just(UTC)),
    trace=st.none() | SOME,
)


def test_every_field_of_a_message_crosses_the_wire() -> None:
    bell = task(content="text", about="fact", choice="approve", epoch=2, state=StepState.FAILED, trace=TRACE, seen={"status": "1.abcdef"})
    assert {*bell.model_fields_set, "schema_version"} == set(AgentMessage.model_fields), "a new field has a value here too"
    assert from_wire(to_wire(bell)) == bell


def task(**given: Any) -> AgentMessage:
    record = StepRecord(state=StepState.PENDING, agent="aftersales", attempt=1)
    values: dict[str, Any] = {
        "sender": "orchestrator",
        "recipient": "aftersales",
        "step_id": "aftersales",
        "content": "查询订单 🦊",
        "epoch": 2,
        "seen": {"step/aftersales": "7.k3f9aa", "status": "2.aaaaaa"},
        "task": TaskData(record=record, fields=("request", "plan/aftersales")),
        "trace": TRACE,
    }
    return message(MessageType.TASK, "request-1", **{**values, **given})


def document(bell: AgentMessage, **changed: Any) -> dict[str, Any]:
    """The message as others see it, with some attributes changed."""
    found: dict[str, Any] = json.loads(to_wire(bell))
    return {**found, **changed}


def wire(event: object) -> bytes:
    return json.dumps(event).encode()


@given(MESSAGES)
def test_a_message_comes_back_the_same(bell: AgentMessage) -> None:
    assert from_wire(to_wire(bell)) == bell


@given(MESSAGES)
def test_another_library_reads_every_message_as_a_cloudevent(bell: AgentMessage) -> None:
    carried = rabbitmq.RabbitMQMessage(headers={}, content_type=CONTENT_TYPE, body=to_wire(bell))
    event = rabbitmq.from_rabbitmq_event(carried)
    assert isinstance(event, CloudEvent)
    assert (event.get_specversion(), event.get_id(), event.get_type()) == ("1.0", bell.id, wire_type(bell.type))
    assert event.get_time() == bell.created_at
    assert event.get_dataschema() == SCHEMA_URI
    assert event.get_datacontenttype() == "application/json"
    assert event.get_subject() == (f"{bell.request_id}/{bell.step_id}" if bell.step_id else bell.request_id)
    assert event.get_source().startswith("/briefline/")
    assert event.get_source().isascii()
    assert " " not in event.get_source()
    assert event.get_extension("traceparent") == bell.trace


@given(MESSAGES)
def test_what_another_library_writes_of_a_message_is_read_the_same(bell: AgentMessage) -> None:
    event = JSONFormat().read(CloudEvent, to_wire(bell))
    assert from_wire(rabbitmq.to_structured_event(event).body) == bell


def test_the_attributes_of_a_task_are_the_documented_ones() -> None:
    bell = task()
    event = document(bell)
    assert event.pop("data")["task"]["record"] == {"state": "PENDING", "agent": "aftersales", "attempt": 1}
    assert event == {
        "specversion": "1.0",
        "id": bell.id,
        "source": "/briefline/orchestrator",
        "type": "briefline.task.v1",
        "subject": "request-1/aftersales",
        "time": bell.created_at.isoformat().replace("+00:00", "Z"),
        "datacontenttype": "application/json",
        "dataschema": "urn:briefline:schema:agent-message:1",
        "traceparent": TRACE,
    }


def test_every_type_has_a_name_of_its_own_with_the_major_version() -> None:
    names = [wire_type(kind) for kind in MessageType]
    assert len(set(names)) == len(names)
    assert all(name.startswith("briefline.") and name.endswith(".v1") for name in names)
    for kind in MessageType:
        assert from_wire(to_wire(message(kind, "r", sender="a", recipient="b"))).type is kind


def test_each_sending_is_a_message_of_its_own() -> None:
    first, second = task(), task()
    assert first.id != second.id
    assert first.created_at.utcoffset() == timedelta(0)


def test_a_time_of_another_zone_is_the_same_moment() -> None:
    bell = task().model_copy(update={"created_at": datetime(2026, 7, 20, 12, tzinfo=timezone(timedelta(hours=8)))})
    assert from_wire(to_wire(bell)).created_at == datetime(2026, 7, 20, 4, tzinfo=UTC)


def answer(words: int) -> AgentResult:
    return AgentResult(agent="iot", step_id="iot", status=ResultStatus.COMPLETED, summary="十页的答复 " * words)


def test_a_result_message_has_the_same_size_for_a_ten_word_and_a_ten_page_answer() -> None:
    sizes = set()
    for result in (answer(10), answer(5_000)):
        record = StepRecord(state=StepState.COMPLETED, agent=result.agent, attempt=1)
        body = to_wire(result_bell("request-1", result.step_id, record, "7.k3f9aa", TRACE))
        assert result.summary[:5].encode() not in body
        sizes.add(len(body))
    assert len(sizes) == 1
    assert sizes.pop() < 1_000


def test_the_message_of_a_failure_is_cut_however_long_its_reason_is() -> None:
    record = StepRecord(state=StepState.FAILED, agent="iot", failure=Failure(code="AGENT_ERROR", description="错" * 100_000))
    bell = result_bell("request-1", "iot", record, "7.k3f9aa", None)
    assert len(to_wire(bell)) < 2_000
    assert from_wire(to_wire(bell)).content.startswith("AGENT_ERROR: 错")


def test_unknown_fields_are_ignored_wherever_they_stand() -> None:
    bell = task()
    event = document(bell, newextension="x", another={"deep": [1]})
    event["data"]["of_a_newer_minor"] = {"a": 1}
    event["data"]["schema_version"] = "1.7"
    event["data"]["task"]["hint"] = "x"
    event["data"]["task"]["record"]["colour"] = "red"
    assert from_wire(wire(event)) == bell.model_copy(update={"schema_version": "1.7"})


def test_missing_optional_fields_have_their_default() -> None:
    event = {
        "specversion": "1.0",
        "id": "1",
        "source": "/elsewhere",
        "type": "briefline.cancel.v1",
        "time": "2026-07-20T04:00:00Z",
        "data": {"request_id": "request-1", "sender": "a person", "recipient": "orchestrator"},
    }
    bell = from_wire(wire(event))
    assert (bell.type, bell.step_id, bell.content, bell.epoch, bell.seen) == (MessageType.CANCEL, None, "", 0, {})
    assert (bell.state, bell.task, bell.trace, bell.schema_version) == (None, None, None, "1.0")


@pytest.mark.parametrize("version", ["2.0", "0.9", "10.0", "", "x", "v1", None, 2, [1]])
def test_another_major_version_is_refused_clearly(version: object) -> None:
    event = document(task())
    event["data"]["schema_version"] = version
    with pytest.raises(UnsupportedVersion, match=r"is of another major version than 1\.0"):
        from_wire(wire(event))


@pytest.mark.parametrize("kind", ["briefline.task.v2", "com.example.thing", "", None, 7, ["briefline.task.v1"], "x" * 100_000])
def test_an_unknown_type_is_refused_and_the_text_says_which_are_known(kind: object) -> None:
    with pytest.raises(UnsupportedVersion, match=r"knows no message of type .*briefline\.task\.v1") as refused:
        from_wire(wire(document(task(), type=kind)))
    assert len(str(refused.value)) < 500


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        (("id",), None, "id: "),
        (("id",), 5, "id: "),
        (("time",), None, "created_at: "),
        (("time",), "yesterday", "created_at: "),
        (("time",), "2026-07-20T04:00:00", "created_at: "),
        (("traceparent",), 5, "trace: "),
        (("data", "request_id"), None, "request_id: "),
        (("data", "sender"), ["a"], "sender: "),
        (("data", "epoch"), "soon", "epoch: "),
        (("data", "epoch"), 1.5, "epoch: "),
        (("data", "seen"), [], "seen: "),
        (("data", "seen"), {"step/x": 7}, "seen.step/x: "),
        (("data", "state"), "SLEEPING", "state: "),
        (("data", "task"), "x", "task: "),
        (("data", "task", "record"), {}, "task.record.state: "),
        (("data", "task", "record", "agent"), 1, "task.record.agent: "),
        (("data", "task", "fields"), [1], "task.fields.0: "),
    ],
)
def test_a_wrong_field_is_named_by_its_path(path: tuple[str, ...], value: object, said: str) -> None:
    event = document(task())
    *above, last = path
    part = event
    for key in above:
        part = part[key]
    part[last] = value
    with pytest.raises(Unreadable) as refused:
        from_wire(wire(event))
    assert str(refused.value).startswith(f"data of briefline.task.v1: {said}")
    assert not isinstance(refused.value, UnsupportedVersion)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"", "not JSON"),
        (b"hello", "not JSON"),
        (b"\xff\xfe", "not JSON"),
        (b'{"specversion":"1.0"', "not JSON"),
        (b'{"specversion":"1.0","data":{"x":"\xff"}}', "not JSON"),
        (b"null", "not a CloudEvents 1.0 document"),
        (b"[]", "not a CloudEvents 1.0 document"),
        (b"{}", "not a CloudEvents 1.0 document"),
        (b'{"specversion":"0.3","data":{}}', "not a CloudEvents 1.0 document"),
        (b'{"specversion":"1.0","type":"briefline.task.v1"}', "not a CloudEvents 1.0 document"),
        (b'{"specversion":"1.0","type":"briefline.task.v1","data":"text"}', "not a CloudEvents 1.0 document"),
        (b'{"specversion":"1.0","type":"briefline.task.v1","data_base64":"e30="}', "not a CloudEvents 1.0 document"),
        (b'{"specversion":"1.0","data":' + b"[" * 70 + b"]" * 70 + b"}", "nested deeper than 64"),
        (b"[" * 50_000, "not JSON"),
        (b'"' + b"x" * MAX_MESSAGE_BYTES + b'"', "over the limit of 262,144"),
    ],
    ids=range(15),
)
def test_invariant_15_what_cannot_be_understood_is_unreadable_with_a_clear_text(body: bytes, said: str) -> None:
    with pytest.raises(Unreadable, match=said) as refused:
        from_wire(body)
    assert len(str(refused.value)) < 300


@given(st.binary(max_size=80) | st.recursive(st.none() | st.integers() | TEXT, lambda x: st.lists(x) | st.dictionaries(TEXT, x)).map(wire))
def test_invariant_15_any_body_is_a_message_or_unreadable_and_nothing_else(body: bytes) -> None:
    with pytest.raises(Unreadable):
        from_wire(body)


@given(MESSAGES, st.sampled_from(["specversion", "id", "source", "type", "time", "data", "traceparent"]), st.none() | TEXT | st.integers())
def test_invariant_15_a_message_with_any_attribute_broken_is_read_or_unreadable(bell: AgentMessage, name: str, value: object) -> None:
    try:
        from_wire(wire(document(bell, **{name: value})))
    except Unreadable as refused:
        assert str(refused)


def test_a_message_that_is_too_large_or_no_unicode_is_not_sent() -> None:
    with pytest.raises(LimitExceeded, match="message TASK has"):
        to_wire(task(content="x" * MAX_MESSAGE_BYTES))
    with pytest.raises(InvalidValue, match="surrogate") as refused:
        to_wire(task(content="half \ud800"))
    assert refused.value.path == "data.content"


def test_a_task_for_a_step_with_many_inputs_stays_far_below_the_limit() -> None:
    inputs = [f"{index:03}-{'x' * 60}" for index in range(499)]
    seen = {fields.step(name): "12.abcdef" for name in inputs}
    names = tuple(name for each in inputs for name in (fields.definition(each), fields.result(each)))
    record = StepRecord(state=StepState.PENDING, agent="aftersales")
    assert len(to_wire(task(seen=seen, task=TaskData(record=record, fields=names)))) < MAX_MESSAGE_BYTES // 2
