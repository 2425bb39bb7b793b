"""What the board offers passes the gate on its way into a brief: what is blocked stays out, is named as unknown, or stops the step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from schemas import fields
from schemas.artifacts import artifact_of
from schemas.boundary import BoundaryRecord, Promotion, Retraction, Ruling
from schemas.briefs import LineOrigin
from schemas.facts import Fact, Provenance, Sensitivity, Zone
from schemas.gate import BoundaryRules, May, Outcome, Reason
from schemas.packets import Control, Evidence, Kind, OnFailure, Packet
from schemas.plans import Step
from schemas.results import AgentResult, FailureCode, ResultStatus
from schemas.shared import Claim, FieldCard, FieldRecord
from tests.workers.agents.runs import request_of
from workers.briefing import BuiltBrief, NoBrief, build_brief
from workers.gating import Boundary
from workers.phrases import EN, ZH

NOW = datetime(2026, 6, 1, tzinfo=UTC)
VERSIONS = {"result/shop": "1.shop", "result/web": "1.web", "field/offer": "3.field"}
SHOP = Step(id="shop", agent="clerk", title="Order", task="Find the order.")
WEB = Step(id="web", agent="surfer", title="The web", task="Look around.")
OFFER = FieldCard(name="offer", label="The offer", owner="shop")


def fact(step: str = "shop", key: str = "price", value: Any = 1999, *, zone: Zone = Zone.INTERNAL, **more: Any) -> Fact:
    """A fact of one of the two steps."""
    return Fact(key=key, value=value, provenance=Provenance(step=step, tool="t", call_id="c", path="p", zone=zone), **more)


def judged(key: str = "guess", payload: Any = "It will rain.", kind: Kind = Kind.FINDING, **control: Any) -> Packet:
    """A judgement of the web step."""
    return Packet(kind=kind, key=key, payload=payload, control=Control(producer="web", **{"evidence": (Evidence(ref="web.x"),), **control}))


def result(step: str, *brought: Fact | Packet) -> AgentResult:
    """A completed result."""
    facts = tuple(each for each in brought if isinstance(each, Fact))
    packets = tuple(each for each in brought if isinstance(each, Packet))
    return AgentResult(agent="x", step_id=step, status=ResultStatus.COMPLETED, facts=facts, packets=packets)


def attempt(
    *brought: Fact | Packet, web: tuple[Fact | Packet, ...] = (), boundary: Boundary | None = None, **step: Any
) -> BuiltBrief | NoBrief:
    """The brief of a step that depends on the shop, and on the web where that brought anything."""
    inputs = (SHOP, WEB) if web else (SHOP,)
    made = Step.model_validate(
        {"id": "last", "agent": "x", "title": "Last", "task": "Do it.", "depends_on": [each.id for each in inputs], **step}
    )
    return build_brief(
        made,
        request=request_of(),
        constraints=(),
        inputs=inputs,
        results={"shop": result("shop", *brought), **({"web": result("web", *web)} if web else {})},
        versions=VERSIONS,
        boundary=boundary or at(),
        phrases=EN,
    )


def at(moment: datetime = NOW, **more: Any) -> Boundary:
    """What holds at the gate at this time of the board."""
    return Boundary(now_ms=int(moment.timestamp() * 1000), **more)


def built(*brought: Fact | Packet, **more: Any) -> BuiltBrief:
    """The brief, or a failed test."""
    made = attempt(*brought, **more)
    assert isinstance(made, BuiltBrief), made
    return made


def refused(*brought: Fact | Packet, **more: Any) -> NoBrief:
    """Why there is no brief, or a failed test."""
    made = attempt(*brought, **more)
    assert isinstance(made, NoBrief), made.brief.text
    return made


def blocked(made: BuiltBrief | NoBrief) -> dict[str, Reason]:
    """What was blocked, and why."""
    return {each.need: each.reason for each in made.crossings if each.reason is not None}


def unknown(made: BuiltBrief) -> list[str]:
    """The lines of the section of what is unknown."""
    lines = made.brief.text.split("\n")
    return [lines[line.line - 1] for line in made.brief.manifest.lines if line.origin is LineOrigin.GAP]


EXPIRED = fact(expires_at=NOW)
RESTRICTED = fact(sensitivity=Sensitivity.RESTRICTED)
UNSURE = fact(confidence=0.3)
RETRACTED = at(record=BoundaryRecord(retractions=(Retraction(step="shop", key="price", version="1.shop", reason="wrong order"),)))

CASES: list[tuple[Reason, Fact, Boundary]] = [
    (Reason.STALE, EXPIRED, at()),
    (Reason.NO_PERMISSION, RESTRICTED, at()),
    (Reason.LOW_CONFIDENCE, UNSURE, at()),
    (Reason.RETRACTED, fact(), RETRACTED),
]


class TestWhatIsBlocked:
    @pytest.mark.parametrize(("reason", "offered", "boundary"), CASES)
    def test_stays_out_of_the_brief_and_is_named_as_unknown(self, reason: Reason, offered: Fact, boundary: Boundary) -> None:
        made = built(offered, fact(key="colour", value="blue"), boundary=boundary)
        assert blocked(made) == {"shop.price": reason}
        assert "1999" not in made.brief.text and "colour: blue" in made.brief.text
        assert unknown(made) == [f"- {EN.not_crossing[reason].format(title='Order', key='price')}"]
        assert "shop.price" not in made.facts and "shop.price" not in made.reads
        left_out = [(each.step, each.key, each.reason) for each in made.brief.manifest.left_out]
        assert left_out == [("shop", "price", reason), ("shop", "summary", "summary_not_asked")]

    @pytest.mark.parametrize(("reason", "offered", "boundary"), CASES)
    @pytest.mark.parametrize(
        ("on_failure", "code"),
        [(OnFailure.FAIL, FailureCode.BLOCKED), (OnFailure.RECHECK, FailureCode.BLOCKED), (OnFailure.PERSON, FailureCode.NEEDS_PERSON)],
    )
    def test_stops_a_step_that_needs_it(
        self, reason: Reason, offered: Fact, boundary: Boundary, on_failure: OnFailure, code: FailureCode
    ) -> None:
        made = refused(offered, boundary=boundary, needs=("shop.price",), on_failure=on_failure)
        assert made.failure.code == code
        assert f"shop.price is blocked as {reason}" in made.failure.description
        assert blocked(made) == {"shop.price": reason}
        assert bool(made.failure.rests_on) is (code == FailureCode.NEEDS_PERSON)

    @pytest.mark.parametrize(("reason", "offered", "boundary"), CASES)
    def test_lets_a_step_run_with_the_gap_where_it_asked_for_that(self, reason: Reason, offered: Fact, boundary: Boundary) -> None:
        made = built(offered, boundary=boundary, needs=("shop.price",), on_failure=OnFailure.GAP)
        assert unknown(made) == [f"- {EN.not_crossing[reason].format(title='Order', key='price')}"]

    def test_what_nobody_asked_for_is_left_out_and_named_nowhere(self) -> None:
        made = built(fact(), fact(key="colour", value="blue"), needs=("shop.colour",))
        assert blocked(made) == {"shop.price": Reason.NOT_NEEDED}
        assert unknown(made) == []

    def test_every_reason_has_its_words_in_every_language(self) -> None:
        for phrases in (EN, ZH):
            assert set(phrases.not_crossing) == {reason.value for reason in Reason if reason is not Reason.NOT_NEEDED}


class TestTime:
    def test_a_fact_crosses_until_its_time_on_the_boards_clock_and_says_so(self) -> None:
        lasts = fact(expires_at=NOW + timedelta(hours=1))
        assert EN.until.format(time="2026-06-01 01:00Z") in built(lasts).brief.text
        assert blocked(built(lasts, boundary=at(NOW + timedelta(hours=1)))) == {"shop.price": Reason.STALE}

    def test_a_brief_that_nobody_runs_has_no_time(self) -> None:
        assert not blocked(built(EXPIRED, boundary=Boundary()))

    def test_a_retraction_is_of_one_version(self) -> None:
        older = BoundaryRecord(retractions=(Retraction(step="shop", key="price", version="0.older", reason="r"),))
        assert not blocked(built(fact(), boundary=at(record=older)))

    def test_a_judgement_whose_evidence_has_a_newer_version_is_behind(self) -> None:
        late = judged(evidence=(Evidence(ref="shop.price", version="0.older"),))
        assert blocked(built(fact(), web=(late,))) == {"web.guess": Reason.VERSION_BEHIND}
        assert not blocked(built(fact(), web=(judged(evidence=(Evidence(ref="shop.price", version="1.shop"),)),)))


class TestTrust:
    OUTSIDE = fact("web", "price", 1999, zone=Zone.EXTERNAL)

    def commit(self, *brought: Fact | Packet, web: tuple[Fact | Packet, ...], boundary: Boundary | None = None) -> BuiltBrief | NoBrief:
        return attempt(*brought, web=web, boundary=boundary, may=May.COMMIT, needs=("web.*", "shop.*?"))

    def test_what_is_outside_alone_does_not_satisfy_a_step_that_may_commit(self) -> None:
        made = self.commit(web=(self.OUTSIDE,))
        assert isinstance(made, NoBrief) and made.failure.code == FailureCode.BLOCKED
        assert blocked(made) == {"web.price": Reason.UNTRUSTED}

    def test_an_internal_value_that_says_the_same_confirms_it(self) -> None:
        made = self.commit(fact(), web=(self.OUTSIDE,))
        assert isinstance(made, BuiltBrief) and not blocked(made)
        agreement = {each.need: check.value for each in made.crossings for check in each.checks if check.name == "agreement"}
        assert agreement == {"shop.price": "one value", "web.price": "confirmed"}

    @pytest.mark.parametrize(
        "other",
        [
            fact(value=1899),
            fact(key="weight"),
            fact(zone=Zone.EXTERNAL),
            fact(expires_at=NOW),
            fact(confidence=0.1),
            fact(sensitivity=Sensitivity.RESTRICTED),
        ],
    )
    def test_another_value_or_one_that_does_not_cross_itself_confirms_nothing(self, other: Fact) -> None:
        assert blocked(self.commit(other, web=(self.OUTSIDE,)))["web.price"] is Reason.UNTRUSTED

    def test_a_retracted_value_confirms_nothing(self) -> None:
        assert blocked(self.commit(fact(), web=(self.OUTSIDE,), boundary=RETRACTED))["web.price"] is Reason.UNTRUSTED

    def test_rules_may_let_it_in(self) -> None:
        assert not blocked(self.commit(web=(self.OUTSIDE,), boundary=at(rules=BoundaryRules(external_may_commit=True))))

    def test_a_finding_that_nobody_confirmed_commits_nothing_and_is_an_assumption_elsewhere(self) -> None:
        assert blocked(self.commit(web=(judged(),))) == {"web.guess": Reason.UNTRUSTED}
        made = built(web=(judged(),))
        assert "- guess: It will rain." in made.brief.text
        assert unknown(made) == [f"- {EN.assumed.format(title='The web', key='guess')}"]

    def test_a_finding_that_another_step_confirmed_may_be_committed_on_in_that_version_only(self) -> None:
        for version, passes in (("1.web", True), ("0.older", False)):
            confirmed = Promotion(finding="web.guess", version=version, fact="shop.price", fact_version="1.shop")
            made = self.commit(web=(judged(),), boundary=at(record=BoundaryRecord(promotions=(confirmed,))))
            assert (not blocked(made)) is passes


class TestSharedFields:
    def reading(self, record: FieldRecord | None, card: FieldCard = OFFER, **step: Any) -> BuiltBrief | NoBrief:
        shared: Mapping[str, FieldRecord] = {} if record is None else {"offer": record}
        return attempt(fact(), boundary=at(cards={"offer": card}, shared=shared), reads=("offer",), **step)

    def test_a_value_stands_in_the_brief_with_its_version(self) -> None:
        made = self.reading(FieldRecord(value="half price", step="shop"))
        assert isinstance(made, BuiltBrief)
        assert "- The offer: half price" in made.brief.text
        assert made.reads[fields.shared("offer")].version == "3.field"
        assert made.shared == {"offer": "half price"}

    def test_a_contested_value_is_unknown_to_all_but_its_arbiter(self) -> None:
        contested = FieldRecord(
            value="half price", contested=True, claims=(Claim(step="shop", value="half"), Claim(step="web", value="full"))
        )
        made = self.reading(contested)
        assert isinstance(made, BuiltBrief) and "half price" not in made.brief.text
        assert unknown(made) == [f"- {EN.not_crossing[Reason.CONTESTED].format(title='The offer', key='The offer')}"]
        arbiter = self.reading(contested, OFFER.model_copy(update={"arbiter": "last"}))
        assert isinstance(arbiter, BuiltBrief)
        assert "half" in arbiter.brief.text and "full" in arbiter.brief.text

    def test_a_contested_value_that_a_step_would_commit_on_goes_to_a_person(self) -> None:
        made = self.reading(FieldRecord(contested=True), may=May.COMMIT)
        assert isinstance(made, NoBrief) and made.failure.code == FailureCode.NEEDS_PERSON

    @pytest.mark.parametrize(
        ("record", "card", "reason"),
        [
            (FieldRecord(value=7), OFFER, Reason.SCHEMA),
            (FieldRecord(value="x", expires_at_ms=int(NOW.timestamp() * 1000)), OFFER, Reason.STALE),
            (FieldRecord(value="x", flagged="it rests on what was withdrawn"), OFFER, Reason.STALE),
            (FieldRecord(value="x"), OFFER.model_copy(update={"sensitivity": Sensitivity.RESTRICTED}), Reason.NO_PERMISSION),
        ],
    )
    def test_it_passes_the_same_gate(self, record: FieldRecord, card: FieldCard, reason: Reason) -> None:
        made = self.reading(record, card)
        assert isinstance(made, BuiltBrief)
        assert blocked(made) == {"field.offer": reason}

    def test_one_without_a_value_is_unknown(self) -> None:
        made = self.reading(None)
        assert isinstance(made, BuiltBrief)
        assert unknown(made) == [f"- {EN.shared_missing.format(key='The offer')}"]


class TestArtifacts:
    REF = artifact_of(b"much", producer="shop", summary="All orders").ref

    def test_a_reference_crosses_instead_of_what_is_large_and_only_while_it_can_be_read(self) -> None:
        large = fact(value=self.REF.id, artifact=self.REF)
        made = built(large)
        assert [each.outcome for each in made.crossings] == [Outcome.REFERENCE]
        assert self.REF.id in made.brief.text
        gone = at(unreadable=frozenset({self.REF.id}))
        assert blocked(built(large, boundary=gone)) == {"shop.price": Reason.UNREADABLE_ARTIFACT}


class TestAPerson:
    IRREVERSIBLE: Mapping[str, Any] = {"may": May.COMMIT, "irreversible": True}

    def ruled(self, choice: str, rests_on: str) -> Boundary:
        return at(record=BoundaryRecord(rulings={"step:last": Ruling(choice=choice, by="Ann", reason="seen", rests_on=rests_on)}))

    def test_is_asked_before_what_cannot_be_taken_back_however_good_the_facts(self) -> None:
        made = refused(fact(), **self.IRREVERSIBLE)
        assert made.failure.code == FailureCode.NEEDS_PERSON
        assert "shop.price = 1999" in made.failure.description
        assert made.failure.rests_on

    def test_is_not_asked_where_it_can_be_or_where_the_rules_say_so(self) -> None:
        built(fact(), may=May.COMMIT)
        built(fact(), irreversible=True)
        built(fact(), boundary=at(rules=BoundaryRules(irreversible_asks=False)), **self.IRREVERSIBLE)

    def test_who_approved_these_very_values_lets_the_step_run(self) -> None:
        asked = refused(fact(), **self.IRREVERSIBLE).failure
        built(fact(), boundary=self.ruled("approve", asked.rests_on), **self.IRREVERSIBLE)

    def test_who_approved_other_values_or_refused_is_asked_again(self) -> None:
        asked = refused(fact(), **self.IRREVERSIBLE).failure
        again = refused(fact(value=2999), boundary=self.ruled("approve", asked.rests_on), **self.IRREVERSIBLE).failure
        assert again.code == FailureCode.NEEDS_PERSON and again.rests_on != asked.rests_on
        denied = refused(fact(), boundary=self.ruled("refuse", asked.rests_on), **self.IRREVERSIBLE).failure
        assert denied.code == FailureCode.NEEDS_PERSON

    def test_who_approved_lets_a_blocked_value_cross_and_the_decision_says_who(self) -> None:
        asked = refused(UNSURE, needs=("shop.price",), on_failure=OnFailure.PERSON).failure
        made = built(UNSURE, needs=("shop.price",), on_failure=OnFailure.PERSON, boundary=self.ruled("approve", asked.rests_on))
        (crossing,) = made.crossings
        assert (crossing.outcome, crossing.reason) == (Outcome.PASS, None)
        assert crossing.checks[-1].value == "Ann approved: seen"
        assert "price: 1999" in made.brief.text

    def test_nobody_lets_a_withdrawn_value_cross(self) -> None:
        boundary = replace(RETRACTED, record=RETRACTED.record.model_copy(update={"rulings": self.ruled("approve", "").record.rulings}))
        assert blocked(refused(fact(), needs=("shop.price",), boundary=boundary)) == {"shop.price": Reason.RETRACTED}


class TestRules:
    def test_the_requests_own_rules_hold_instead_of_the_teams_and_are_named_in_the_brief(self) -> None:
        strict = BoundaryRules(propose_confidence=0.9, named="strict")
        made = built(fact(confidence=0.8), boundary=at(record=BoundaryRecord(rules=strict)))
        assert blocked(made) == {"shop.price": Reason.LOW_CONFIDENCE}
        assert made.brief.manifest.boundary == strict.version
        assert all(f"rules {strict.version}" in each.right for each in made.crossings)
