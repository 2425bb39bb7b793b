"""The gate: each reason blocks for its own cause and no other, in a fixed order, purely; and every decision answers five questions."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.facts import Provenance, Sensitivity, Zone
from schemas.gate import REPAIRS, BoundaryRules, Consumer, Crossing, May, Offer, Outcome, Reason, decide
from schemas.packets import Control, Evidence, Kind, OnFailure, Packet

NOW = datetime(2026, 6, 1, 12, 0, 0, tzinfo=UTC)
NOW_MS = int(NOW.timestamp() * 1000)
RULES = BoundaryRules()
PROVENANCE = Provenance(step="a", tool="look", call_id="call-1", path="x", source_ref="table orders, row 7")


def packet(kind: Kind = Kind.FACT, payload: Any = 1, **control: Any) -> Packet:
    """A packet that passes: a fact has its tool call, a judgement its evidence."""
    source: dict[str, Any] = {"provenance": PROVENANCE} if kind is Kind.FACT else {"evidence": (Evidence(ref="a.x"),)}
    return Packet(kind=kind, key="k", payload=payload, control=Control(producer="a", **{**source, **control}))


def offer(of: Packet | None = None, **more: Any) -> Offer:
    """An offer that passes, but for what is said otherwise."""
    return Offer(of or packet(), version="1.abc", **more)


def decided(of: Offer, consumer: Consumer | None = None, rules: BoundaryRules = RULES, now_ms: int = NOW_MS) -> Crossing:
    """What the gate says."""
    return decide(of, consumer or Consumer("b"), now_ms=now_ms, rules=rules)


def external(**control: Any) -> Packet:
    """A fact from outside."""
    return packet(provenance=PROVENANCE.model_copy(update={"zone": Zone.EXTERNAL}), **control)


COMMIT = Consumer("b", may=May.COMMIT)
BLOCKED: dict[Reason, tuple[Offer, Consumer]] = {
    Reason.NOT_NEEDED: (offer(needed=False), Consumer("b")),
    Reason.RETRACTED: (offer(retracted="it was a mistake"), Consumer("b")),
    Reason.CONTESTED: (offer(contested=True), Consumer("b")),
    Reason.SCHEMA: (offer(fits=False), Consumer("b")),
    Reason.NO_SOURCE: (offer(packet(provenance=None)), Consumer("b")),
    Reason.VERSION_BEHIND: (offer(current=False), Consumer("b")),
    Reason.STALE: (offer(packet(expires_at=NOW)), Consumer("b")),
    Reason.NO_PERMISSION: (offer(packet(sensitivity=Sensitivity.RESTRICTED)), Consumer("b")),
    Reason.UNTRUSTED: (offer(external()), COMMIT),
    Reason.LOW_CONFIDENCE: (offer(packet(confidence=0.4)), Consumer("b")),
    Reason.UNREADABLE_ARTIFACT: (offer(artifact=True, readable=False), Consumer("b")),
    Reason.TOO_LARGE: (offer(tokens=2_001), Consumer("b")),
}
"""One offer for each reason, with nothing else wrong, in the order in which the gate asks."""


class TestReasons:
    def test_there_are_twelve_and_each_has_a_repair(self) -> None:
        assert set(BLOCKED) == set(Reason) == set(REPAIRS)
        assert len(Reason) == 12

    @pytest.mark.parametrize("reason", list(BLOCKED))
    def test_each_blocks_by_itself_alone_with_its_repair(self, reason: Reason) -> None:
        crossing = decided(*BLOCKED[reason])
        assert (crossing.outcome, crossing.reason, crossing.blocked) == (Outcome.BLOCK, reason, True)
        assert [each.reason for each in crossing.checks if not each.passed] == [reason]
        assert crossing.recover == f"{REPAIRS[reason]}; on failure: fail"

    def test_the_first_that_does_not_pass_is_the_reason_and_the_rest_is_still_listed(self) -> None:
        everything = offer(
            external(sensitivity=Sensitivity.RESTRICTED, expires_at=NOW, confidence=0.0),
            needed=False,
            retracted="r",
            contested=True,
            fits=False,
            current=False,
            artifact=True,
            readable=False,
        )
        crossing = decided(everything, COMMIT)
        assert crossing.reason is Reason.NOT_NEEDED
        failed = [each.reason for each in crossing.checks if not each.passed]
        assert failed == [reason for reason in BLOCKED if reason not in (Reason.NO_SOURCE, Reason.TOO_LARGE)]

    def test_each_check_says_what_it_found(self) -> None:
        values = {each.name: each.value for each in decided(offer(packet(confidence=0.75), tokens=12)).checks}
        assert values["source"] == "table orders, row 7"
        assert values["confidence"] == "0.75 of 0.5 for propose"
        assert values["size"] == "12 of 2000 tokens"
        assert values["clearance"] == "internal for internal"
        assert values["trust"] == "fact, internal"


class TestOutcomes:
    def test_what_passes_every_check_crosses_whole(self) -> None:
        crossing = decided(offer())
        assert (crossing.outcome, crossing.reason, crossing.recover) == (Outcome.PASS, None, "")
        assert all(each.passed for each in crossing.checks)

    @pytest.mark.parametrize(
        ("more", "outcome"),
        [
            ({"tokens": 2_000}, Outcome.PASS),
            ({"tokens": 2_001, "prose": True}, Outcome.COMPRESS),
            ({"tokens": 2_000, "prose": True}, Outcome.PASS),
            ({"tokens": 9_000, "artifact": True}, Outcome.REFERENCE),
            ({"tokens": 1, "artifact": True}, Outcome.REFERENCE),
            ({"tokens": 9_000, "artifact": True, "prose": True}, Outcome.REFERENCE),
            ({"tokens": 2_001}, Outcome.BLOCK),
        ],
    )
    def test_size_alone_decides_how(self, more: dict[str, Any], outcome: Outcome) -> None:
        assert decided(offer(packet(Kind.DECISION, "text"), **more)).outcome is outcome

    def test_the_limit_is_the_rules(self) -> None:
        assert decided(offer(tokens=11), rules=BoundaryRules(max_tokens=10)).reason is Reason.TOO_LARGE


class TestTime:
    @pytest.mark.parametrize(("seconds", "fresh"), [(-1, False), (0, False), (0.001, True), (60, True)])
    def test_a_value_is_good_until_its_time_on_the_boards_clock(self, seconds: float, fresh: bool) -> None:
        crossing = decided(offer(packet(expires_at=NOW + timedelta(seconds=seconds))))
        assert crossing.blocked is not fresh

    def test_the_clock_of_this_machine_has_no_say(self) -> None:
        lasts = offer(packet(expires_at=datetime(2001, 1, 1, tzinfo=UTC)))
        assert not decided(lasts, now_ms=0).blocked
        assert decided(offer(packet(expires_at=datetime(2999, 1, 1, tzinfo=UTC))), now_ms=2**45).reason is Reason.STALE

    def test_it_is_told_until_when(self) -> None:
        assert decided(offer(packet(expires_at=NOW + timedelta(hours=1)))).until == "2026-06-01T13:00:00Z"
        assert decided(offer()).until is None

    def test_what_is_stale_for_another_cause_says_which(self) -> None:
        crossing = decided(offer(stale="its evidence was withdrawn"))
        assert crossing.reason is Reason.STALE
        assert next(each.value for each in crossing.checks if each.name == "freshness") == "its evidence was withdrawn"


class TestPermission:
    @pytest.mark.parametrize("sensitivity", list(Sensitivity))
    @pytest.mark.parametrize("clearance", list(Sensitivity))
    def test_clearance_reaches_as_far_as_it_says(self, sensitivity: Sensitivity, clearance: Sensitivity) -> None:
        order = [Sensitivity.PUBLIC, Sensitivity.INTERNAL, Sensitivity.RESTRICTED]
        crossing = decided(offer(packet(sensitivity=sensitivity)), Consumer("b", clearance=clearance))
        assert crossing.blocked is (order.index(sensitivity) > order.index(clearance))

    @pytest.mark.parametrize(
        ("allowed", "forbidden", "uses", "passes"),
        [
            ((), (), (), True),
            ((), (), ("pricing",), True),
            (("pricing",), (), ("pricing",), True),
            (("pricing",), (), ("pricing", "marketing"), False),
            (("pricing",), (), (), False),
            ((), ("marketing",), ("pricing",), True),
            ((), ("marketing",), ("pricing", "marketing"), False),
            (("marketing",), ("marketing",), ("marketing",), False),
        ],
    )
    def test_every_use_of_the_step_is_among_the_allowed_and_none_forbidden(
        self, allowed: tuple[str, ...], forbidden: tuple[str, ...], uses: tuple[str, ...], passes: bool
    ) -> None:
        crossing = decided(offer(packet(allowed_use=allowed, forbidden_use=forbidden)), Consumer("b", uses=uses))
        assert crossing.blocked is not passes
        assert crossing.reason in (None, Reason.NO_PERMISSION)


class TestTrust:
    @pytest.mark.parametrize("may", list(May))
    def test_what_is_outside_alone_satisfies_nobody_who_may_commit(self, may: May) -> None:
        assert decided(offer(external()), Consumer("b", may=may)).blocked is (may is May.COMMIT)
        assert not decided(offer(external(), confirmed=True), Consumer("b", may=may)).blocked
        assert not decided(offer(external()), Consumer("b", may=may), BoundaryRules(external_may_commit=True)).blocked

    @pytest.mark.parametrize("kind", [Kind.FINDING, Kind.SUGGESTION])
    def test_what_is_only_supposed_is_confirmed_before_a_commitment(self, kind: Kind) -> None:
        assert decided(offer(packet(kind)), COMMIT).reason is Reason.UNTRUSTED
        assert decided(offer(packet(kind)), COMMIT, BoundaryRules(external_may_commit=True)).reason is Reason.UNTRUSTED
        assert not decided(offer(packet(kind), confirmed=True), COMMIT).blocked
        assert not decided(offer(packet(kind)), Consumer("b")).blocked

    def test_a_decision_and_a_fact_of_the_house_need_no_confirmation(self) -> None:
        assert not decided(offer(packet(Kind.DECISION)), COMMIT).blocked
        assert not decided(offer(), COMMIT).blocked

    @pytest.mark.parametrize("kind", [Kind.ACTION_REQUEST, Kind.ERROR, Kind.RETRACTION])
    @pytest.mark.parametrize("may", list(May))
    def test_what_is_nothing_to_rely_on_crosses_for_nobody(self, kind: Kind, may: May) -> None:
        assert decided(offer(packet(kind), confirmed=True), Consumer("b", may=may)).reason is Reason.UNTRUSTED


class TestConfidence:
    @pytest.mark.parametrize(("may", "least"), [(May.EXPLORE, 0.0), (May.PROPOSE, 0.5), (May.COMMIT, 0.8)])
    def test_more_is_asked_of_what_goes_further(self, may: May, least: float) -> None:
        assert RULES.least_confidence(may) == least
        assert not decided(offer(packet(confidence=least)), Consumer("b", may=may)).blocked
        if least:
            crossing = decided(offer(packet(confidence=least - 0.01)), Consumer("b", may=may))
            assert crossing.reason is Reason.LOW_CONFIDENCE

    def test_a_step_may_ask_for_more_or_less_than_the_rules(self) -> None:
        assert decided(offer(packet(confidence=0.85)), Consumer("b", min_confidence=0.9)).reason is Reason.LOW_CONFIDENCE
        assert not decided(offer(packet(confidence=0.1)), Consumer("b", may=May.COMMIT, min_confidence=0.0)).blocked


class TestSource:
    def test_a_fact_without_a_tool_call_has_no_source_whatever_evidence_it_names(self) -> None:
        assert decided(offer(packet(provenance=None, evidence=(Evidence(ref="a.x"),)))).reason is Reason.NO_SOURCE

    @pytest.mark.parametrize(("kind", "blocked"), [(Kind.FINDING, True), (Kind.DECISION, False), (Kind.SUGGESTION, False)])
    def test_a_finding_names_evidence_a_decision_stands_on_its_maker(self, kind: Kind, blocked: bool) -> None:
        assert (decided(offer(packet(kind, evidence=()))).reason is Reason.NO_SOURCE) is blocked


class TestTheFiveQuestions:
    def test_why_by_whose_right_from_where_good_until_when_and_how_to_recover(self) -> None:
        consumer = Consumer("b", may=May.COMMIT, clearance=Sensitivity.RESTRICTED, on_failure=OnFailure.PERSON)
        crossing = decided(offer(packet(expires_at=NOW)), consumer, BoundaryRules(named="strict"))
        assert crossing.need == "a.k"
        assert crossing.right.startswith("b may commit, cleared for restricted; rules strict-")
        assert crossing.source == "a.k@1.abc from table orders, row 7"
        assert crossing.until == "2026-06-01T12:00:00Z"
        assert crossing.recover == f"{REPAIRS[Reason.STALE]}; on failure: person"

    def test_the_source_of_a_judgement_is_its_evidence(self) -> None:
        evidence = (Evidence(ref="a.x"), Evidence(ref="art_1", items=("row 3", "row 4")))
        assert decided(offer(packet(Kind.FINDING, evidence=evidence))).source == "a.k@1.abc from a.x, art_1#row 3,row 4"

    def test_an_event_keeps_the_decision_without_its_checks_and_without_what_is_empty(self) -> None:
        told = decided(offer()).brief()
        assert set(told) == {"need", "kind", "right", "source", "outcome"}
        assert {"reason", "recover"} <= set(decided(offer(contested=True)).brief())


class TestRules:
    def test_other_rules_are_another_version_and_a_name_stands_before_it(self) -> None:
        assert BoundaryRules().version == RULES.version != BoundaryRules(commit_confidence=0.9).version
        assert BoundaryRules(named="policy_v3").version.startswith("policy_v3-")
        assert BoundaryRules(named="a").version.partition("-")[2] != BoundaryRules(named="b", max_tokens=5).version.partition("-")[2]


consumers = st.builds(
    Consumer,
    step=st.just("b"),
    may=st.sampled_from(May),
    clearance=st.sampled_from(Sensitivity),
    uses=st.sampled_from([(), ("pricing",), ("pricing", "marketing")]),
    on_failure=st.sampled_from(OnFailure),
    min_confidence=st.none() | st.floats(0, 1),
)
words = st.sampled_from([(), ("pricing",), ("marketing",)])
packets = st.builds(
    lambda kind, control: Packet(kind=kind, key="k", payload=1, control=control),
    st.sampled_from(Kind),
    st.builds(
        Control,
        producer=st.just("a"),
        provenance=st.none() | st.builds(lambda zone: PROVENANCE.model_copy(update={"zone": zone}), st.sampled_from(Zone)),
        evidence=st.sampled_from([(), (Evidence(ref="a.x"),)]),
        confidence=st.floats(0, 1),
        expires_at=st.none() | st.sampled_from([NOW - timedelta(1), NOW, NOW + timedelta(1)]),
        sensitivity=st.sampled_from(Sensitivity),
        allowed_use=words,
        forbidden_use=words,
    ),
)
offers = st.builds(
    Offer,
    packet=packets,
    version=st.sampled_from(["", "1.abc"]),
    needed=st.booleans(),
    current=st.booleans(),
    retracted=st.sampled_from(["", "wrong"]),
    stale=st.sampled_from(["", "flagged"]),
    contested=st.booleans(),
    confirmed=st.booleans(),
    readable=st.booleans(),
    tokens=st.sampled_from([0, 2_000, 2_001]),
    artifact=st.booleans(),
    prose=st.booleans(),
    fits=st.booleans(),
)
rules_ = st.builds(BoundaryRules, external_may_commit=st.booleans(), propose_confidence=st.floats(0, 1), commit_confidence=st.floats(0, 1))


@given(offers, consumers, rules_)
def test_nothing_that_is_blocked_ever_passes_and_the_same_question_has_the_same_answer(
    of: Offer, to: Consumer, rules: BoundaryRules
) -> None:
    crossing = decided(of, to, rules)
    failed = [each.reason for each in crossing.checks if not each.passed]
    assert crossing.blocked is bool(failed)
    assert crossing.reason == (failed[0] if failed else None)
    assert (crossing.recover == "") is not bool(failed)
    assert decided(of, to, rules) == crossing
    control = of.packet.control
    if not crossing.blocked:
        assert of.needed and of.current and of.fits and not (of.retracted or of.stale or of.contested)
        assert control.expires_at is None or control.expires_at > NOW
        assert not set(to.uses) & set(control.forbidden_use)
        assert not control.allowed_use or (to.uses and set(to.uses) <= set(control.allowed_use))
        assert of.packet.kind is not Kind.FACT or control.provenance is not None
        assert of.readable or not of.artifact
        assert of.packet.kind not in (Kind.ACTION_REQUEST, Kind.ERROR, Kind.RETRACTION)
        if to.may is May.COMMIT and not of.confirmed:
            assert of.packet.kind not in (Kind.FINDING, Kind.SUGGESTION)


@given(offers, consumers)
def test_taking_a_fault_away_never_blocks_what_had_passed(of: Offer, to: Consumer) -> None:
    sound = replace(of, needed=True, current=True, retracted="", stale="", contested=False, confirmed=True, readable=True, fits=True)
    if not decided(of, to).blocked:
        assert not decided(sound, to).blocked
