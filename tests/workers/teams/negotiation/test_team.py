"""What the negotiation team is by its data sheet: who may what, its figures, and what its own audit finds."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any

import pytest

from schemas.errors import IllegalTransition, NotFound
from schemas.facts import Fact, Provenance
from schemas.shared import FieldRecord, check_transition
from workers.agents.models import Say, Turn
from workers.agents.specialist import Specialist
from workers.agents.tools import ToolContext, ToolFault
from workers.teams.negotiation import data, personas, scripts, tools
from workers.teams.negotiation.audit import audit
from workers.teams.negotiation.constraints import CONSTRAINTS
from workers.teams.negotiation.demo import QUESTION, REQUESTS
from workers.teams.negotiation.plan import LISTEN, WAKES, steps_on_call
from workers.teams.negotiation.team import make_team

TEAM = make_team()
STATES = ("draft", "reviewed", "approved", "communicated", "withdrawn")
CLEAR = {
    "identity_status": FieldRecord(value="confirmed"),
    "compliance_verdict": FieldRecord(value={"verdict": "pass", "rules": ""}),
}


def offered(state: str | None) -> FieldRecord | None:
    """The offer in a state."""
    return None if state is None else FieldRecord(value={"amount": 500, "months": 12, "state": state})


def goes(before: str | None, after: str, by: str, others: dict[str, FieldRecord] | None = None) -> bool:
    """Whether a step may bring the offer from one state to another."""
    record = offered(after)
    assert record is not None
    try:
        check_transition(TEAM.card.fields["offer"], offered(before), record.value, by, CLEAR if others is None else others)
    except IllegalTransition:
        return False
    return True


def test_an_offer_goes_from_draft_to_withdrawn_each_step_by_the_one_who_may() -> None:
    allowed = {
        (before, after, by)
        for before in (None, *STATES)
        for after in STATES
        for by in ("lead", "identity", "profile", "risk", "draft", "review", "send", "person")
        if before != after and goes(before, after, by)
    }
    assert allowed == {
        *((before, "draft", "draft") for before in (None, *STATES[1:])),
        ("draft", "reviewed", "review"),
        ("reviewed", "approved", "review"),
        ("approved", "communicated", "send"),
        ("communicated", "withdrawn", "send"),
        ("communicated", "withdrawn", "person"),
    }


@pytest.mark.parametrize("verdict", ["revise", "block"])
def test_only_what_passed_is_approved_and_only_a_known_customer_gets_a_draft(verdict: str) -> None:
    failed = FieldRecord(value={"verdict": verdict, "rules": "R-1"})
    assert not goes("reviewed", "approved", "review", {**CLEAR, "compliance_verdict": failed})
    assert not goes(None, "draft", "draft", {**CLEAR, "identity_status": FieldRecord(value="unconfirmed")})
    assert not goes(None, "draft", "draft", {})


def test_each_field_has_the_owner_of_the_data_sheet_and_compliance_owns_no_business_fact() -> None:
    owners = {name: card.owner for name, card in TEAM.card.fields.items()}
    assert owners == {
        "identity_status": "identity",
        "ability_tier": "profile",
        "risk_flags": "risk",
        "offer": "draft",
        "compliance_verdict": "review",
        "committed_offers": "send",
        "session_record": "send",
        "to_do": "send",
    }
    assert {name for name, card in TEAM.card.fields.items() if "review" in card.writers} == {"offer", "compliance_verdict"}
    assert {name for name, card in TEAM.card.fields.items() if card.carry} == set(owners) - {"risk_flags", "compliance_verdict"}
    assert [name for name, card in TEAM.card.fields.items() if card.protected] == ["committed_offers"]


def test_the_session_controller_alone_may_commit_and_everybody_else_only_proposes() -> None:
    assert {step.id for step in (*TEAM.steps, *TEAM.on_call) if step.may == "commit"} == {"send"}
    assert TEAM.on_call == steps_on_call() and TEAM.steps == (LISTEN,)
    assert {step for woken in WAKES.values() for step in woken} == {step.id for step in TEAM.on_call}


def test_compliance_needs_the_draft_and_the_key_fact_and_risk_needs_nothing_of_anybody() -> None:
    steps = {step.id: step for step in TEAM.on_call}
    assert steps["review"].needs == ("draft.draft_text", "profile.proposal_limit")
    assert (steps["risk"].needs, steps["risk"].reads) == ((), ())


def context(shared: dict[str, Any] | None = None, **constraints: Any) -> ToolContext:
    """What a tool knows."""
    return ToolContext(constraints=constraints, now=lambda: datetime(2026, 8, 28, 10, 20, tzinfo=UTC), shared=shared or {})


def test_identity_is_confirmed_by_number_and_telephone_alone() -> None:
    assert tools.verify_identity(context(customer="C-0817", tail="6621")).identity_status == "confirmed"
    assert tools.verify_identity(context(customer="C-0817", tail="3307")).identity_status == "unconfirmed"
    with pytest.raises(ToolFault, match="没有客户号"):
        tools.verify_identity(context())


async def test_account_data_is_not_read_before_the_identity_is_confirmed_nor_used_when_it_is_too_old() -> None:
    with pytest.raises(ToolFault, match="identity_status"):
        await tools.assess_ability(context(customer="C-0817"))
    with pytest.raises(ToolFault, match="stale：账户数据截至 2026-07-19 10:20"):
        await tools.assess_ability(context({"identity_status": "confirmed"}, customer="C-0903"))


def test_the_two_rows_of_the_sample_give_its_limit() -> None:
    rows = {row.id: row.amount for row in data.CUSTOMERS[0].rows}
    assert len(rows) == 20 and (rows["r12"] - rows["r18"]) * data.LIMIT_SHARE == 500


@pytest.mark.parametrize(
    ("amount", "months", "text", "committed", "rules"),
    [
        (500, 12, "建议方案", None, {}),
        (550, 12, "建议方案", None, {"R-1": "block"}),
        (500, 61, "保证批准", None, {"R-2": "revise", "R-3": "revise"}),
        (450, 12, "建议方案", 400, {"R-4": "block"}),
        (400, 12, "建议方案", 500, {}),
    ],
)
def test_each_rule_fires_on_its_own_case_alone(amount: int, months: int, text: str, committed: int | None, rules: dict[str, str]) -> None:
    said = None if committed is None else {"amount": committed}
    fired = tools._fired({"amount": amount, "months": months}, said, 500, text)
    assert {each.rule: each.verdict for each in fired} == rules and set(rules) <= set(data.RULES)


def test_what_the_words_of_the_demo_say_is_found_without_a_model() -> None:
    found = {each.name: [each.extract(text) for text in (*REQUESTS, QUESTION)] for each in CONSTRAINTS if each.extract is not None}
    assert found == {"customer": ["C-0817", "C-0817", None], "tail": ["6621", "6621", None], "wanted": [None, 400, None]}


def test_rules_live_where_they_belong_and_no_step_is_named_to_a_model() -> None:
    texts = {name: value for name, value in vars(personas).items() if name.isupper()}
    lines = [line for text in texts.values() for line in text.splitlines()[1:]]
    assert len(lines) == len(set(lines)) and all(len(text.splitlines()) <= 6 for text in texts.values())
    inner = re.compile(r"\b(lead|profile|identity|risk|review|send|controller|compliance|Agent|专家)\b")
    for agent in TEAM.agents.values():
        assert isinstance(agent, Specialist)
        assert not inner.search(agent.persona)
    for step in (*TEAM.steps, *TEAM.on_call):
        assert not inner.search(f"{step.title}{step.task}{step.out_of_scope}") and step.out_of_scope


def test_what_the_controller_is_not_allowed_to_say_it_does_not_say() -> None:
    brief = '- 当前方案：{"amount":600,"months":12,"state":"reviewed"} CNY\n- 合规裁定：{"verdict":"block","rules":"R-1"}'
    reply = scripts.controller(Turn("", brief, (), ("communicate_offer", "conclude_handover"), 1))
    assert not isinstance(reply, Say) and [name for name, _ in reply.calls] == ["conclude_handover", "note_to_do"]


def test_a_scenario_that_is_not_there_is_refused_by_name() -> None:
    with pytest.raises(NotFound, match="there are: happy, promising"):
        make_team(scenario="sad")


def fact(key: str, value: str) -> Fact:
    return Fact(key=key, value=value, provenance=Provenance(step="s", tool="t", call_id="c", path=key))


@pytest.mark.parametrize(
    ("sections", "fields", "facts", "kinds"),
    [
        ({"协商结果": "每月还款 500 元"}, {"committed_offers": {"amount": 500}}, (), []),
        ({"协商结果": "每月还款 400 元"}, {"committed_offers": {"amount": 500}}, (), ["not_committed"]),
        ({"协商结果": "每月还款 500 元"}, {}, (), ["not_committed"]),
        ({"方案草案": "每月 500 元"}, {"committed_offers": {"amount": 500}}, (), ["said_elsewhere"]),
        ({}, {"risk_flags": [{"kind": "情绪压力", "quote": "扛不住"}]}, (), []),
        ({}, {"risk_flags": [{"kind": "投诉倾向", "quote": "要投诉"}]}, (), ["never_said"]),
        ({}, {"identity_status": "confirmed"}, (fact("identityStatus", "unconfirmed"),), ["against_fact"]),
        ({}, {"compliance_verdict": {"verdict": "pass"}}, (fact("ruleVerdict", "block"),), ["against_fact"]),
        ({}, {"compliance_verdict": {"verdict": "pass"}}, (fact("ruleVerdict", "pass"),), []),
    ],
)
def test_the_audit_finds_what_was_said_quoted_or_recorded_wrongly(
    sections: dict[str, str], fields: dict[str, Any], facts: tuple[Fact, ...], kinds: list[str]
) -> None:
    assert [each.kind for each in audit("我快扛不住了。", sections, fields, facts)] == kinds
