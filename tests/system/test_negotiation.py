"""The negotiation team through the whole system, on both backends: the one-line checks of its data sheet, and its two turns."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from ops import trails
from ops.reporting import Report
from ops.sessions import Session
from schemas import fields
from schemas.blackboard import Conflict, Write, Written
from schemas.facts import Fact, Provenance, Sensitivity
from schemas.packets import Control, Evidence, Kind, Packet
from schemas.plans import Step
from schemas.requests import Role
from schemas.results import AgentResult, FailureCode, ResultStatus
from schemas.shared import FieldChange, FieldRecord, Operation
from tests.system.conftest import Clock, System
from tests.system.reports import code_of, named, states
from workers.agents.agent import AgentBrief
from workers.agents.blackbox import BlackBox
from workers.agents.models import ModelInput, Reply, Say, Script, Turn
from workers.team import Team
from workers.teams.negotiation import scripts
from workers.teams.negotiation.audit import audit
from workers.teams.negotiation.constraints import CONSTRAINTS
from workers.teams.negotiation.demo import QUESTION, REQUESTS
from workers.teams.negotiation.plan import LISTEN, WAKES
from workers.teams.negotiation.state import ACTIONS, fields_of
from workers.teams.negotiation.team import RULES, Lead, make_team

pytestmark = pytest.mark.timeout(60)

FIRST, SECOND = REQUESTS
UNPROVEN = FIRST.replace("6621", "0000")
CANARY = "金丝雀七三一"
SAID = {"amount": 500, "months": 12, "text": "每月还款 500 元，共 12 期", "state": "said"}


@dataclass
class Inputs:
    """What models were given, by step."""

    seen: list[ModelInput] = field(default_factory=list)

    def of(self, step: str) -> str:
        return "\n".join(each.text for each in self.seen if each.step_id == step)

    def brief(self, step: str, run: int = 0) -> str:
        """The text of one run's brief."""
        firsts = [each for each in self.seen if each.step_id == step and each.round == 1]
        return str(firsts[run].messages[0]["text"])


async def _record(system: System, request_id: str, name: str) -> FieldRecord:
    value = (await system.board.read(request_id, (fields.shared(name),))).value(fields.shared(name))
    return FieldRecord() if value is None else FieldRecord.from_json(value)


async def _values(system: System, team: Team, request_id: str) -> dict[str, Any]:
    found = {name: (await _record(system, request_id, name)).value for name in team.card.fields}
    return {name: value for name, value in found.items() if value is not None}


def _sections(report: Report) -> dict[str, str]:
    return {each.step.title: each.result.summary for each in report.steps if each.result is not None and each.state == "COMPLETED"}


async def _audited(system: System, runtime: Any, report: Report) -> None:
    """Both audits: the one for any team, and this team's."""
    found = await runtime.audit(report.request_id)
    assert found.passed, (found.found, found.unchecked)
    values = await _values(system, runtime.team, report.request_id)
    assert audit(report.request.text, _sections(report), values, [fact for _, fact in report.facts]) == ()


async def test_an_offer_is_made_and_said_and_another_one_is_blocked_against_it_with_both_texts(system: System) -> None:
    team = make_team()
    async with system.serve(team) as runtime:
        first = await runtime.result(await runtime.submit(team, FIRST, session=Session("s")))
        assert first.status == "COMPLETED" and set(states(first)) == {"lead", *WAKES["offer"]}
        assert await _values(system, team, first.request_id) | {"session_record": "", "risk_flags": ""} == {
            "identity_status": "confirmed",
            "ability_tier": "medium",
            "risk_flags": "",
            "offer": {"amount": 500, "months": 12, "state": "communicated"},
            "compliance_verdict": {"verdict": "pass", "rules": ""},
            "committed_offers": SAID,
            "session_record": "",
        }
        (said,) = (await _record(system, first.request_id, "committed_offers")).communicated
        assert (said.channel, said.step) == ("对话窗口", "send") and "pass" in said.approval
        assert [each.ref for each in said.evidence] == ["review.review_opinion", "field/offer"]
        assert "每月还款 500 元" in first.answer and await runtime.desk() == []
        await _audited(system, runtime, first)

        second = await runtime.result(await runtime.submit(team, SECOND, session=Session("s")))
        offer, committed = await _record(system, second.request_id, "offer"), await _record(system, second.request_id, "committed_offers")
        ((request_id, item),) = await runtime.desk()
        await _audited(system, runtime, second)

    assert offer.value == {"amount": 400, "months": 12, "state": "approved"}
    assert (committed.value, committed.communicated, committed.carried_from) == (SAID, (said,), first.request_id)
    assert (request_id, item.id) == (second.request_id, "action:send.handover")
    assert "每月还款 500 元，共 12 期" in item.details[0] and "每月还款 400 元，共 12 期" in item.details[0]
    assert "400" not in second.answer and "仍然有效" in second.answer


async def test_check_1_without_a_confirmed_identity_nothing_is_assessed_and_drafting_is_refused_by_name(system: System) -> None:
    team = make_team()
    async with system.serve(team) as runtime:
        report = await runtime.ask(UNPROVEN)
        values = await _values(system, team, report.request_id)
    assert states(report)["draft"] == "SKIPPED" and code_of(report, "profile") == FailureCode.MISSING_OUTPUT
    assert "identity_status" in report.gaps[0].description
    assert values["identity_status"] == "unconfirmed" and not {"offer", "committed_offers", "ability_tier"} & set(values)


async def _knows_anyway(brief: AgentBrief) -> AgentResult:
    """A profile that asks nobody whether it may."""
    provenance = Provenance(step="profile", tool="memory", call_id="c", path="x")
    said = {"repayment_ability": "medium", "proposal_limit": 500}
    control = Control(producer="profile", evidence=(Evidence(ref="profile.evidenceTable"),), confidence=0.9)
    return AgentResult(
        agent="profile",
        step_id="profile",
        status=ResultStatus.COMPLETED,
        summary="已评估。",
        facts=(Fact(key="evidenceTable", value="none", provenance=provenance),),
        packets=tuple(Packet(kind=Kind.FINDING, key=key, payload=value, control=control) for key, value in said.items()),
    )


async def test_check_1_even_with_an_assessment_the_state_machine_refuses_the_draft_by_name(system: System) -> None:
    profile = BlackBox("profile", _knows_anyway, facts=("evidenceTable", "dataAsOf"), clearance=Sensitivity.RESTRICTED)
    async with system.serve(make_team(others={"profile": profile})) as runtime:
        report = await runtime.ask(UNPROVEN)
        offer = await _record(system, report.request_id, "offer")
    result = report.step("draft").result
    assert result is not None and offer == FieldRecord()
    assert code_of(report, "draft") == FailureCode.MISSING_OUTPUT
    assert "does not go from nothing to 'draft' yet: identity_status is not 'confirmed'" in result.tool_faults[0]


async def test_check_2_what_is_to_be_revised_is_not_approved_and_a_second_refusal_ends_it(system: System) -> None:
    inputs = Inputs()
    async with system.serve(make_team(scenario="stubborn", recorder=inputs.seen.append)) as runtime:
        report = await runtime.ask(FIRST)
        values = await _values(system, runtime.team, report.request_id)
    assert values["offer"]["state"] == "reviewed" and "committed_offers" not in values
    assert values["compliance_verdict"] == {"verdict": "revise", "rules": "R-3"}
    assert states(report)["send"] == "SKIPPED" and "retracted" in report.gaps[0].description
    assert sum(each.step_id == "draft" and each.round == 1 for each in inputs.seen) == 2
    assert '"verdict":"revise"' in inputs.brief("draft", 1)


async def test_check_2_a_draft_that_is_sent_back_is_written_again_and_then_said(system: System) -> None:
    async with system.serve(make_team(scenario="promising")) as runtime:
        report = await runtime.ask(FIRST)
        values = await _values(system, runtime.team, report.request_id)
        await _audited(system, runtime, report)
    assert report.status == "COMPLETED" and values["committed_offers"] == SAID
    (rechecked,) = named(report.events, "rechecked")
    assert (rechecked.labels["step"], rechecked.labels["producers"]) == ("review", "draft")


async def test_check_2_approving_a_blocked_offer_is_refused_and_it_goes_to_a_person(system: System) -> None:
    async with system.serve(make_team(scenario="hasty")) as runtime:
        report = await runtime.ask(FIRST)
        values = await _values(system, runtime.team, report.request_id)
        ((_, item),) = await runtime.desk()
    result = report.step("review").result
    assert result is not None and "compliance_verdict is not 'pass'" in result.tool_faults[0]
    assert (values["offer"]["state"], values["compliance_verdict"]) == ("reviewed", {"verdict": "block", "rules": "R-1"})
    assert item.id == "action:send.handover" and "committed_offers" not in values


async def test_check_3_compliance_is_given_nothing_of_how_the_profile_came_about(system: System) -> None:
    inputs = Inputs()

    def babbling(turn: Turn) -> Reply:
        reply = scripts.profile(turn)
        return Say(f"{CANARY} {reply.text}") if isinstance(reply, Say) else reply

    async with system.serve(make_team(written={"profile": babbling}, recorder=inputs.seen.append)) as runtime:
        report = await runtime.ask(FIRST)
    (table,) = (fact.value for step, fact in report.facts if (step, fact.key) == ("profile", "evidenceTable"))
    assert CANARY in report.answer and str(table) in inputs.of("profile")
    given = inputs.of("review")
    assert "proposal_limit" in given and "rule_table_v3" in given
    for process in (CANARY, str(table), "账户表", "6200", "4200", "arithmetic"):
        assert process not in given


def _lead_that_commits(plan: list[Step]) -> BlackBox:
    async def run(brief: AgentBrief) -> AgentResult:
        done = AgentResult(agent="lead", step_id=brief.step_id, status=ResultStatus.COMPLETED, summary="好。")
        if brief.step_id == "lead":
            signal = Packet(kind=Kind.DECISION, key="signal", payload="offer", control=Control(producer="lead"))
            return done.model_copy(update={"packets": (signal,), "steps": tuple(plan)})
        commit = FieldChange(field="committed_offers", operation=Operation.SET, value=SAID, channel="对话窗口")
        text = Control(producer="draft", evidence=(Evidence(ref="profile.proposal_limit"),))
        draft = Packet(kind=Kind.SUGGESTION, key="draft_text", payload="500 元", control=text)
        return done.model_copy(update={"changes": (commit,), "packets": (draft,)})

    return BlackBox("lead", run, clearance=Sensitivity.RESTRICTED)


async def test_check_4_nobody_but_the_session_controller_writes_what_is_committed(system: System) -> None:
    team = make_team()
    plan = [each.model_copy(update={"tools": None}) if each.agent == "lead" else each for each in team.on_call]
    rogue = _lead_that_commits(plan)
    async with system.serve(_with(team, on_call=plan, listen=LISTEN.model_copy(update={"tools": None}), lead=rogue)) as runtime:
        report = await runtime.ask(FIRST)
        committed = await _record(system, report.request_id, "committed_offers")
    assert code_of(report, "draft") == FailureCode.FIELD_REFUSED
    assert "field 'committed_offers' belongs to step 'send'; step 'draft' may propose only" in report.gaps[0].description
    assert committed == FieldRecord()


def _with(team: Team, *, on_call: list[Step], listen: Step = LISTEN, lead: BlackBox | None = None) -> Team:
    """The team with other steps on call, and maybe another lead."""
    agents = [lead or replace(each, on_call=tuple(on_call)) if isinstance(each, Lead) else each for each in team.agents.values()]
    options: Mapping[str, Any] = {"phrases": team.phrases, "fields": fields_of(), "actions": ACTIONS, "rules": RULES}
    return Team("negotiation", agents, [listen], CONSTRAINTS, on_call=on_call, **options)


async def test_check_5_a_signal_past_its_time_stands_in_no_brief_and_its_event_stays(system: System) -> None:
    inputs = Inputs()
    async with system.serve(make_team(risk_seconds=0.05, delay_seconds=0.15, recorder=inputs.seen.append)) as runtime:
        report = await runtime.ask(FIRST)
    assert report.status == "COMPLETED"
    assert "沟通信号：[" not in inputs.brief("draft") and "沟通信号 已过期" in inputs.brief("draft")
    kept = [event.put["field/risk_flags"][1] for event in report.events if "field/risk_flags" in event.put]
    assert any("情绪压力".encode() in value for value in kept)


async def test_check_6_data_that_is_too_old_is_marked_stale_and_makes_no_offer(system: System) -> None:
    async with system.serve(make_team()) as runtime:
        report = await runtime.ask(FIRST.replace("C-0817", "C-0903").replace("6621", "3307"))
        values = await _values(system, runtime.team, report.request_id)
    assert "stale：账户数据截至" in report.gaps[0].description and states(report)["draft"] == "SKIPPED"
    assert values["identity_status"] == "confirmed" and not {"ability_tier", "offer"} & set(values)


async def test_check_6_a_finding_past_its_half_hour_is_blocked_and_its_producer_asked_again(system: System) -> None:
    assessed = asyncio.Event()

    def profile(turn: Turn) -> Reply:
        reply = scripts.profile(turn)
        if isinstance(reply, Say):
            assessed.set()
        return reply

    async def slow(turn: Turn) -> Reply:
        await assessed.wait()
        await asyncio.sleep(2.0)  # longer than the finding holds: its time is what is waited for
        return scripts.risk(turn)

    inputs = Inputs()
    written: dict[str, Script] = {"profile": profile, "risk": slow}
    async with system.serve(make_team(ability_seconds=0.5, written=written, recorder=inputs.seen.append)) as runtime:
        report = await runtime.ask(FIRST)
    rechecked = named(report.events, "rechecked")[0]
    assert (rechecked.labels["step"], rechecked.labels["producers"]) == ("draft", "profile")
    assert "profile.repayment_ability is blocked as stale" in rechecked.labels["why"]
    assert sum(each.step_id == "profile" and each.round == 1 for each in inputs.seen) == 2


async def test_check_7_a_finding_for_drafts_is_blocked_where_it_would_be_told_to_a_user_and_the_repair_is_said(system: System) -> None:
    model = make_team()
    controller = replace(model.agents["controller"], clearance=Sensitivity.RESTRICTED)  # type: ignore[type-var]  # a specialist
    model = make_team(others={"controller": controller})
    plan = [
        each.model_copy(update={"needs": (*(each.needs or ()), "profile.proposal_limit")}) if each.id == "send" else each
        for each in model.on_call
    ]
    async with system.serve(_with(model, on_call=plan)) as runtime:
        report = await runtime.ask(FIRST)
        committed = await _record(system, report.request_id, "committed_offers")
    said = report.gaps[0].description
    assert code_of(report, "send") == FailureCode.BLOCKED and committed == FieldRecord()
    assert "profile.proposal_limit is blocked as no_permission: give the need to an agent with that clearance and use" in said
    assert any(b"external_commitment" in value for event in report.events for _, value in event.put.values())


async def test_check_8_the_same_key_twice_has_one_effect_and_one_answer(system: System) -> None:
    inputs = Inputs()
    team = make_team(recorder=inputs.seen.append)
    async with system.serve(team) as runtime:
        one = await runtime.submit(team, FIRST, idempotency_key="task_2026_0817")
        report = await runtime.result(one)
        calls = len(inputs.seen)
        other = await runtime.submit(team, FIRST, idempotency_key="task_2026_0817")
        again = await runtime.result(other)
        committed = await _record(system, one.request_id, "committed_offers")
    assert (other.request_id, other.new, again.answer, len(inputs.seen)) == (one.request_id, False, report.answer, calls)
    assert len(committed.communicated) == 1
    result = report.step("profile").result
    assert result is not None
    assert {each.control.idempotency_key for each in result.packets} == {
        f"{one.request_id}:profile:{key}:v1" for key in ("repayment_ability", "proposal_limit")
    }


async def test_check_9_of_two_writers_at_version_16_one_wins_and_the_other_is_told_17(system: System) -> None:
    async with system.serve(make_team()) as runtime:
        report = await runtime.ask(FIRST)
        name = fields.shared("offer")
        value = (await system.board.read(report.request_id, (name,))).value(name)
        assert value is not None

        async def write(version: str) -> Any:
            made = Write(Role.ORCHESTRATOR, "orchestrator/test", uuid.uuid4().hex, expect={name: version}, put={name: value})
            return await system.board.write(report.request_id, made)

        version = (await system.board.read(report.request_id, (name,))).version(name)
        while not version.startswith("16."):
            assert isinstance(await write(version), Written)
            version = (await system.board.read(report.request_id, (name,))).version(name)
        outcomes = await asyncio.gather(write(version), write(version))
    (won,) = (each for each in outcomes if isinstance(each, Written))
    (lost,) = (each for each in outcomes if isinstance(each, Conflict))
    assert won.versions[name].startswith("17.")
    assert (lost.field, lost.expected, lost.actual) == (name, version, won.versions[name])


async def test_check_10_what_was_said_stays_is_flagged_and_goes_to_a_person_when_the_ability_is_withdrawn(system: System) -> None:
    inputs = Inputs()
    async with system.serve(make_team(recorder=inputs.seen.append)) as runtime:
        first = await runtime.ask(FIRST)
        sent = sum(each.step_id == "send" for each in inputs.seen)
        await runtime.retract(first.request_id, "profile.proposal_limit", "能力表用错了客户")
        report = await runtime.result(first.request_id)
        committed = await _record(system, first.request_id, "committed_offers")
        ((_, item),) = await runtime.desk()
    assert committed.value == SAID and len(committed.communicated) == 1 and "withdrawn" in committed.flagged
    assert item.id == "said:committed_offers" and "500" in item.details[0]
    assert sum(each.step_id == "send" for each in inputs.seen) == sent
    assert code_of(report, "draft") == FailureCode.STALE and "能力表用错了客户" in report.answer


async def test_check_11_a_commitment_is_walked_back_to_the_rows_of_the_table_and_a_row_forward_to_it(system: System) -> None:
    async with system.serve(make_team()) as runtime:
        report = await runtime.ask(FIRST)
        (table,) = (str(fact.value) for step, fact in report.facts if (step, fact.key) == ("profile", "evidenceTable"))
        kept = (await runtime.artifacts.read(table)).text
    rows = {f"{table}#r12", f"{table}#r18"}
    assert rows | {"profile.proposal_limit"} <= set(trails.basis(report, "offer").names())
    back = set(trails.basis(report, "committed_offers").names())
    assert rows | {"profile.proposal_limit", "review.review_opinion", "draft.draft_text", "field/offer"} <= back
    for place in rows:
        assert f'"id":"{place.partition("#")[2]}"' in kept
        forward = set(trails.touched(report, place).names())
        assert {"profile.proposal_limit", "draft.draft_text", "field/offer", "review.review_opinion", "field/committed_offers"} <= forward


@pytest.mark.parametrize(
    ("text", "woken"),
    [
        (QUESTION, WAKES["question"]),
        ("我是客户 C-0817，尾号 6621，请评估我现在还得起多少。", WAKES["ability"]),
        ("再这样催我就要投诉了。", WAKES["complaint"]),
        ("你们这样催收合规吗？", WAKES["compliance"]),
    ],
)
async def test_check_12_a_plain_question_wakes_nobody_and_anything_else_only_whom_it_needs(
    system: System, text: str, woken: tuple[str, ...]
) -> None:
    inputs = Inputs()
    async with system.serve(make_team(recorder=inputs.seen.append)) as runtime:
        report = await runtime.ask(text)
        await _audited(system, runtime, report)
    assert report.status == "COMPLETED" and set(states(report)) == {"lead", *woken}
    if not woken:
        assert {each.agent for each in inputs.seen} == {"lead"} and "10%" in report.answer


async def test_the_finding_is_the_sample_packet_by_a_scripted_clock(system: System) -> None:
    clock, begins = system.clock or Clock(), datetime.now(UTC)
    if system.clock is not None:  # a server's clock is its own
        begins = datetime(2026, 8, 28, 10, 20, tzinfo=UTC)
        system.clock.passed = begins.timestamp() - time.time()
    async with system.serve(make_team(clock=lambda: datetime.fromtimestamp(clock(), UTC))) as runtime:
        report = await runtime.ask(FIRST)
    result = report.step("profile").result
    assert result is not None and report.status == "COMPLETED"
    ability, limit = result.packets
    assert (ability.payload, limit.payload, limit.unit) == ("medium", 500, "CNY")
    (evidence,) = limit.control.evidence
    created = limit.control.created_at
    assert evidence.items == ("r12", "r18") and created is not None and limit.control.expires_at is not None
    assert begins <= created < begins + timedelta(minutes=1) and limit.control.expires_at - created == timedelta(minutes=30)
    control = limit.control
    assert (control.confidence, control.sensitivity, control.allowed_use, control.forbidden_use, control.on_failure) == (
        *(0.9, Sensitivity.RESTRICTED),
        *(("draft_offer",), ("external_commitment",), "recheck"),
    )
    assert control.policy_version.startswith("policy_v3-") and "rule_table_v3" in control.reason
