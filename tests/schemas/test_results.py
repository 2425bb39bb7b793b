"""Facts, results and the other records: what they keep over the wire, and what they refuse."""

from __future__ import annotations

import hashlib
import math
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.artifacts import artifact_of
from schemas.briefs import Brief, LeftOut, LineOrigin, Manifest, ManifestLine
from schemas.errors import InvalidValue, Unreadable
from schemas.facts import Fact, Provenance, Sensitivity, Zone
from schemas.frozen import Frozen, validated
from schemas.limits import MAX_SUMMARY_CHARACTERS
from schemas.plans import Step
from schemas.requests import AnswerRecord, ConstraintRecord, Gap, Origin, PlanRecord, RequestRecord, RequestStatus, StatusRecord
from schemas.results import AgentResult, Failure, FailureCode, MadeWith, ResultStatus, Termination, Usage

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
TIMES = st.none() | st.datetimes(timezones=st.just(UTC))
SCALARS = st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False) | TEXT
PROVENANCES = st.builds(
    Provenance,
    step=TEXT,
    tool=TEXT,
    call_id=TEXT,
    path=TEXT,
    source_ref=st.none() | TEXT,
    evidence=st.lists(TEXT, max_size=2).map(tuple),
    observed_at=TIMES,
    rules_version=st.none() | TEXT,
    zone=st.sampled_from(Zone),
)
REFERENCES = st.builds(
    lambda content, **given: artifact_of(content, **given).ref, st.binary(max_size=20), producer=TEXT, summary=TEXT, private=st.booleans()
)
FACTS = st.builds(
    Fact,
    key=TEXT,
    value=SCALARS,
    provenance=PROVENANCES,
    confidence=st.floats(0, 1),
    unit=st.none() | TEXT,
    expires_at=TIMES,
    artifact=st.none() | REFERENCES,
    sensitivity=st.sampled_from(Sensitivity),
)
COUNTS = st.integers(0, 10**9)
USAGES = st.builds(Usage, model_calls=COUNTS, tool_calls=COUNTS, input_tokens=COUNTS, output_tokens=COUNTS)
FAILURES = st.builds(Failure, code=st.sampled_from(FailureCode) | TEXT, description=TEXT, retryable=st.booleans())
RESULTS = st.builds(
    AgentResult,
    agent=TEXT,
    step_id=TEXT,
    status=st.sampled_from(ResultStatus),
    summary=TEXT,
    facts=st.lists(FACTS, max_size=3).map(tuple),
    superseded=st.lists(FACTS, max_size=1).map(tuple),
    artifacts=st.lists(REFERENCES, max_size=2).map(tuple),
    termination=st.sampled_from(Termination),
    usage=USAGES,
    failure=st.none() | FAILURES,
    made_with=st.none() | st.builds(MadeWith, brief_sha256=TEXT, position=COUNTS, team=TEXT),
)

PROVENANCE = {"step": "iot", "tool": "find_device", "call_id": "1", "path": "device.model"}


@given(FACTS)
def test_a_fact_comes_back_the_same_type_and_all(fact: Fact) -> None:
    again = Fact.from_json(fact.to_json())
    assert again == fact
    assert type(again.value) is type(fact.value)


@given(RESULTS)
def test_a_result_comes_back_the_same(result: AgentResult) -> None:
    again = AgentResult.from_json(result.to_json())
    assert again == result
    assert [type(fact.value) for fact in again.facts] == [type(fact.value) for fact in result.facts]


@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"value": math.nan}, "value"),
        ({"value": None}, "value"),
        ({"value": ["a list"]}, "value"),
        ({"value": 2**63}, "value"),
        ({"confidence": 1.1}, "confidence"),
        ({"confidence": -0.1}, "confidence"),
        ({"confidence": math.nan}, "confidence"),
        ({"provenance": None}, "provenance"),
        ({"provenance": {**PROVENANCE, "zone": "elsewhere"}}, "provenance.zone"),
        ({"provenance": {**PROVENANCE, "observed_at": datetime(2026, 7, 20)}}, "provenance.observed_at"),
        ({"provenance": {key: PROVENANCE[key] for key in ("step", "tool", "path")}}, "provenance.call_id"),
        ({"expires_at": "2026-07-20T00:00:00"}, "expires_at"),
        ({"sensitivity": "secret"}, "sensitivity"),
    ],
)
def test_invariant_5_a_fact_without_a_scalar_value_or_a_whole_provenance_is_refused_by_path(change: dict[str, Any], path: str) -> None:
    fine = {"key": "model", "value": "X1", "provenance": PROVENANCE}
    assert validated(Fact, fine).provenance.zone is Zone.INTERNAL
    with pytest.raises(InvalidValue) as refused:
        validated(Fact, {**fine, **change})
    assert refused.value.path == path


def test_a_summary_has_a_limit_in_characters() -> None:
    fine = {"agent": "iot", "step_id": "iot", "status": "COMPLETED", "summary": "长" * MAX_SUMMARY_CHARACTERS}
    assert AgentResult.from_json(validated(AgentResult, fine).to_json()).completed
    with pytest.raises(InvalidValue) as refused:
        validated(AgentResult, {**fine, "summary": fine["summary"] + "了"})
    assert refused.value.path == "summary"


def test_only_a_completed_result_is_completed() -> None:
    made = {status: AgentResult(agent="iot", step_id="iot", status=status).completed for status in ResultStatus}
    assert made == {ResultStatus.COMPLETED: True, ResultStatus.FAILED: False}


@given(USAGES, USAGES, USAGES)
def test_usages_add_up_in_any_order(one: Usage, other: Usage, third: Usage) -> None:
    assert one + other == other + one
    assert (one + other) + third == one + (other + third)
    assert one + Usage() == one
    assert (one + other).input_tokens == one.input_tokens + other.input_tokens


def test_every_failure_code_says_what_it_is_called() -> None:
    assert all(code.value == code.name for code in FailureCode)


def test_every_end_of_a_loop_that_is_no_answer_has_a_failure_code() -> None:
    ends = {termination.value for termination in Termination} - {"ANSWERED", "ERROR"}
    assert ends <= set(FailureCode)


RECORDS: list[Frozen] = [
    RequestRecord(
        id="r", tenant="t", team="bitmall", text="预算两千 🦊\n“引号”", constraints=("budget",), idempotency_key="k", content_sha256="0"
    ),
    ConstraintRecord(name="budget", label="预算", value=2000, unit="元", origin=Origin.GIVEN, text="2000 元"),
    ConstraintRecord(name="gift", label="礼物", value=True, origin=Origin.EXTRACTED, text="是"),
    StatusRecord(status=RequestStatus.DEGRADED, deadline_ms=1, replays=2, failure=Failure(code="DEADLINE", description="late")),
    PlanRecord(steps=("a", "b"), taken_in=(("a", 0), ("b", 3))),
    AnswerRecord(status=RequestStatus.DEGRADED, text="一\n\n二", sections=("a",), gaps=(Gap(step="b", reason="TIMEOUT", stopped=("c",)),)),
    Step(id="a", title="订单", agent="orders", task="查", needs=(), tools=(), expects=("x",)),
    Manifest(
        lines=(
            ManifestLine(line=1, origin=LineOrigin.REQUEST),
            ManifestLine(line=2, origin=LineOrigin.FACT, step="a", key="k", version="1"),
        ),
        left_out=(LeftOut(step="a", key="k", reason="not_needed"),),
        characters=1,
        tokens=1,
        tokenizer="t",
        limit_characters=1,
        limit_tokens=1,
    ),
]


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: type(record).__name__)
def test_every_record_comes_back_the_same_and_chinese_stays_readable_in_it(record: Frozen) -> None:
    data = record.to_json()
    assert type(record).from_json(data) == record
    assert b"\\u" not in data
    with pytest.raises(Unreadable, match=type(record).__name__):
        type(record).from_json(data[:-1])


def test_empty_needs_and_tools_are_not_the_same_as_none() -> None:
    nothing = Step.from_json(Step(id="a", title="T", agent="a", task="t", needs=(), tools=()).to_json())
    assert (nothing.needs, nothing.tools) == ((), ())
    everything = Step.from_json(Step(id="a", title="T", agent="a", task="t").to_json())
    assert (everything.needs, everything.tools) == (None, None)


def test_the_hash_of_a_brief_is_that_of_its_text_as_utf_8() -> None:
    manifest = Manifest(lines=(), characters=0, tokens=0, tokenizer="t", limit_characters=1, limit_tokens=1)
    brief = Brief(step_id="a", text="预算 🦊", manifest=manifest, position=1)
    assert brief.sha256 == hashlib.sha256("预算 🦊".encode()).hexdigest()
