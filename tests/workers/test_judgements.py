"""Judgements: typed, with evidence that resolves, completed by what the step declares, and refused by name otherwise."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from schemas.facts import Sensitivity
from schemas.packets import Evidence, Kind, OnFailure, Output
from schemas.results import FailureCode
from tests.workers.said import NOW, REPORT, accepted, briefed, fact, refused, says

CAUSE = Output(key="cause", choices=("wear", "misuse"), ttl_seconds=60, sensitivity=Sensitivity.RESTRICTED, on_failure=OnFailure.GAP)


def brief(*outputs: Output, **given: Any) -> Any:
    """A brief of a step with these outputs."""
    return briefed(outputs=outputs or (CAUSE,), **given)


def test_a_judgement_is_kept_with_all_that_makes_it_a_packet() -> None:
    said = says("wear", "price", confidence=0.9, reason="Old.", allowed_use=("anything",))
    (kept,) = accepted(brief=brief(), packets=(said,)).packets
    control = kept.control

    assert (kept.kind, kept.name, kept.payload) == (Kind.FINDING, "look.cause", "wear")
    assert (control.confidence, control.reason, control.created_at, control.expires_at) == (0.9, "Old.", NOW, NOW + timedelta(seconds=60))
    assert (control.model_version, control.rules_version) == ("m1", "r1") and control.policy_version
    assert (control.sensitivity, control.on_failure, control.allowed_use) == (Sensitivity.RESTRICTED, OnFailure.GAP, ())
    assert control.seen == {"shop.price": "2.abc", "shop.report": "2.abc", "mind.mood": "3.def"}
    assert control.idempotency_key == "req:look:cause:v2"


@pytest.mark.parametrize(
    ("named", "found"),
    [
        ("price", Evidence(ref="shop.price", version="2.abc")),
        ("shop.price", Evidence(ref="shop.price", version="2.abc")),
        ("mood", Evidence(ref="mind.mood", version="3.def")),
        (REPORT.id, Evidence(ref=REPORT.id)),
        ("size", Evidence(ref="look.size")),
        ("look.size", Evidence(ref="look.size")),
    ],
)
def test_evidence_resolves_to_what_the_brief_carried_or_the_run_found(named: str, found: Evidence) -> None:
    (kept,) = accepted(brief=brief(), packets=(says("wear", named),), facts=(fact("size", 3, step="look"),)).packets
    assert kept.control.evidence == (found,)


def resting_on(evidence: Evidence) -> Any:
    """A judgement with this very reference."""
    said = says("wear")
    return said.model_copy(update={"control": said.control.model_copy(update={"evidence": (evidence,)})})


def test_a_version_that_an_agent_claims_counts_for_nothing() -> None:
    forged = resting_on(Evidence(ref="shop.price", version="9.zzz", items=("a",)))
    (kept,) = accepted(brief=brief(), packets=(forged,)).packets
    assert kept.control.evidence == (Evidence(ref="shop.price", version="2.abc"),)


def test_places_in_an_artifact_are_kept() -> None:
    (kept,) = accepted(brief=brief(), packets=(resting_on(Evidence(ref=REPORT.id, items=("r12", "r18"))),)).packets
    assert str(kept.control.evidence[0]) == f"{REPORT.id}#r12,r18"


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (says("rain", "price"), "must be one of: wear, misuse"),
        (says(5, "price"), "must be text"),
        (says("wear"), "names no evidence"),
        (says("wear", "colour"), "nothing here is called 'colour'; there are: price, report, mood"),
        (says("wear", "art_" + "0" * 32), "no material"),
        (says("wear", "prv_" + "0" * 32), "no material"),
        (says("wear", "price", key="reason"), "declares no finding 'reason'"),
        (says("wear", "price", kind=Kind.FACT), "declares no fact 'cause'"),
        (says("wear", "price", kind=Kind.DECISION), "declares no decision 'cause'"),
        (says("wear", "price", producer="shop"), "says that step 'shop' made it"),
    ],
)
def test_what_is_not_declared_or_not_as_declared_is_a_bad_result_by_name(said: Any, told: str) -> None:
    failure = refused(brief=brief(), packets=(said,))
    assert failure.code == FailureCode.BAD_RESULT
    assert told in failure.description


def test_one_judgement_twice_is_a_bad_result() -> None:
    assert "is there twice" in refused(brief=brief(), packets=(says("wear", "price"), says("misuse", "price"))).description


def test_a_required_output_that_is_missing_is_named_and_an_optional_one_may_be() -> None:
    optional = CAUSE.model_copy(update={"key": "other", "required": False})
    assert accepted(brief=brief(CAUSE, optional), packets=(says("wear", "price"),)).packets
    failure = refused(brief=brief(CAUSE, optional), packets=(says("wear", "price", key="other"),))
    assert (failure.code, failure.description) == (FailureCode.MISSING_OUTPUT, "required outputs are missing: cause")


@pytest.mark.parametrize(
    ("kind", "good", "bad"),
    [
        ("text", "x", 1),
        ("integer", 3, True),
        ("integer", 3, 3.5),
        ("number", 3.5, "3"),
        ("boolean", False, 0),
        ("list", [1, "a"], {"a": 1}),
        ("object", {"a": [1]}, [1]),
    ],
)
def test_each_type_takes_its_own_values_only(kind: str, good: Any, bad: Any) -> None:
    output = Output(key="cause", type=kind)
    assert accepted(brief=brief(output), packets=(says(good, "price"),)).packets[0].payload == good
    assert f"must be {kind}" in refused(brief=brief(output), packets=(says(bad, "price"),)).description


def test_a_withdrawal_names_one_value_that_was_read() -> None:
    output = Output(key="cause", kind=Kind.RETRACTION)
    for named in ("price", "shop.price"):
        assert accepted(brief=brief(output), packets=(says(named, kind=Kind.RETRACTION),)).packets[0].payload == "shop.price"
    for named in ("shop.colour", "look.price"):
        assert "cannot be withdrawn" in refused(brief=brief(output), packets=(says(named, kind=Kind.RETRACTION),)).description


def test_material_that_is_passed_on_was_given_to_the_step() -> None:
    output = Output(key="cause", kind=Kind.ARTIFACT_REF)
    assert accepted(brief=brief(output), packets=(says(REPORT.id, kind=Kind.ARTIFACT_REF),)).packets
    assert "no material" in refused(brief=brief(output), packets=(says("art_" + "0" * 32, kind=Kind.ARTIFACT_REF),)).description


def test_an_expected_key_may_be_a_judgement() -> None:
    assert accepted(brief=briefed(outputs=(CAUSE,), expects=("cause",)), packets=(says("wear", "price"),)).packets
