"""Packets: small payloads, one admission for each kind, and a fact that becomes a packet without losing what it may be used for."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from schemas.facts import Fact, Provenance, Sensitivity
from schemas.limits import MAX_PAYLOAD_BYTES, MAX_PAYLOAD_DEPTH
from schemas.packets import Admission, Control, Evidence, Kind, Output, Packet, admission, fingerprint, output_problem, packet_of


def nested(depth: int) -> Any:
    """A list in a list, so deep."""
    return [nested(depth - 1)] if depth else 1


def packet(payload: Any, kind: Kind = Kind.DECISION) -> Packet:
    """A packet with this payload."""
    return Packet(kind=kind, key="k", payload=payload, control=Control(producer="a"))


SMALL = ["", 0, 1.5, True, [], {}, [1, "a", {"b": [True]}], "x" * MAX_PAYLOAD_BYTES, nested(MAX_PAYLOAD_DEPTH)]
LARGE = ["x" * (MAX_PAYLOAD_BYTES + 1), "字" * MAX_PAYLOAD_BYTES, ["x" * MAX_PAYLOAD_BYTES], [0] * MAX_PAYLOAD_BYTES]


class TestPayload:
    @pytest.mark.parametrize(
        "payload", ["", 0, 1.5, True, [], {}, [1, "a", {"b": [True]}], "x" * MAX_PAYLOAD_BYTES, nested(MAX_PAYLOAD_DEPTH)]
    )
    def test_small_values_of_json_come_back_as_they_went(self, payload: Any) -> None:
        again = Packet.from_json(packet(payload).to_json()).payload
        assert again == payload and type(again) is type(payload)

    @pytest.mark.parametrize(
        "payload", ["x" * (MAX_PAYLOAD_BYTES + 1), "字" * MAX_PAYLOAD_BYTES, ["x" * MAX_PAYLOAD_BYTES], [0] * MAX_PAYLOAD_BYTES]
    )
    def test_what_is_larger_is_an_artifact(self, payload: Any) -> None:
        with pytest.raises(ValidationError, match="what is larger is an artifact"):
            packet(payload)

    def test_what_is_deeper_is_refused(self) -> None:
        with pytest.raises(ValidationError, match=f"nested more than {MAX_PAYLOAD_DEPTH} deep"):
            packet(nested(MAX_PAYLOAD_DEPTH + 1))

    @pytest.mark.parametrize("payload", [None, b"bytes", object()])
    def test_what_is_no_json_is_refused(self, payload: Any) -> None:
        with pytest.raises(ValidationError):
            packet(payload)


class TestKinds:
    def test_each_kind_may_go_to_one_place(self) -> None:
        assert {kind: admission(kind) for kind in Kind} == {
            Kind.FACT: Admission.STATE,
            Kind.ARTIFACT_REF: Admission.STATE,
            Kind.FINDING: Admission.BRIEF,
            Kind.DECISION: Admission.BRIEF,
            Kind.SUGGESTION: Admission.CANDIDATES,
            Kind.ACTION_REQUEST: Admission.DESK,
            Kind.ERROR: Admission.GAP,
            Kind.RETRACTION: Admission.STALE,
        }

    def test_a_packet_is_named_by_its_step_and_key(self) -> None:
        assert packet(1).name == "a.k"

    def test_evidence_reads_as_its_reference_and_the_places_in_it(self) -> None:
        assert str(Evidence(ref="a.x")) == "a.x"
        assert str(Evidence(ref="art_1", items=("row 1", "row 9"))) == "art_1#row 1,row 9"

    @pytest.mark.parametrize("confidence", [-0.1, 1.1])
    def test_confidence_is_between_nothing_and_certainty(self, confidence: float) -> None:
        with pytest.raises(ValidationError):
            Control(producer="a", confidence=confidence)


class TestFacts:
    def test_a_fact_keeps_as_a_packet_all_that_the_gate_asks_of_it(self) -> None:
        observed, expires = datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 2, tzinfo=UTC)
        provenance = Provenance(step="a", tool="t", call_id="c", path="p", source_ref="s", observed_at=observed, rules_version="r1")
        fact = Fact(
            key="k",
            value=7,
            provenance=provenance,
            confidence=0.5,
            unit="pieces",
            basis="per day",
            expires_at=expires,
            sensitivity=Sensitivity.RESTRICTED,
            allowed_use=("pricing",),
            forbidden_use=("marketing",),
        )
        made = packet_of(fact, policy_version="v1")
        assert (made.kind, made.name, made.payload, made.unit, made.basis) == (Kind.FACT, "a.k", 7, "pieces", "per day")
        control = made.control
        assert (control.provenance, control.confidence, control.created_at, control.expires_at) == (provenance, 0.5, observed, expires)
        assert (control.sensitivity, control.allowed_use, control.forbidden_use) == (Sensitivity.RESTRICTED, ("pricing",), ("marketing",))
        assert (control.rules_version, control.policy_version) == ("r1", "v1")


class TestOutputs:
    @pytest.mark.parametrize(
        ("type_", "fits", "wrong"),
        [
            ("text", "x", 1),
            ("integer", 1, 1.5),
            ("integer", 1, True),
            ("number", 1.5, "1.5"),
            ("boolean", False, 0),
            ("list", [1], {"a": 1}),
            ("object", {"a": 1}, [1]),
        ],
    )
    def test_a_value_is_of_the_declared_type(self, type_: str, fits: Any, wrong: Any) -> None:
        output = Output(key="k", type=type_)
        assert output_problem(output, fits) == ""
        assert output_problem(output, wrong) == f"must be {type_}"

    def test_it_is_one_of_the_choices_and_one_is_not_true(self) -> None:
        assert output_problem(Output(key="k", type="integer", choices=(1, 2)), 2) == ""
        assert output_problem(Output(key="k", type="integer", choices=(1, 2)), 3) == "must be one of: 1, 2"
        assert output_problem(Output(key="k", type="boolean", choices=(True,)), True) == ""
        assert output_problem(Output(key="k", type="integer", choices=(True,)), 1) == "must be one of: True"

    def test_it_is_small(self) -> None:
        assert "is larger is an artifact" in output_problem(Output(key="k"), "x" * (MAX_PAYLOAD_BYTES + 1))


JSON = st.recursive(
    st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(JSON, JSON)
def test_a_fingerprint_is_of_what_is_said_and_of_nothing_else(one: Any, other: Any) -> None:
    assert fingerprint(one) == fingerprint(one)
    if fingerprint(one) == fingerprint(other):
        assert one == other
    assert fingerprint({"a": one, "b": other}) == fingerprint({"b": other, "a": one})
