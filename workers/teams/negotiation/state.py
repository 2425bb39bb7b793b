"""What this team keeps beside facts: its shared fields with their states, and the actions by which its models change them.

Every field has one owner. The offer goes through its states by others too, who can change nothing else of it: an offer is
reviewed and approved by compliance, said by the session controller alone, and a new offer is a new version of the field.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from schemas.facts import Sensitivity
from schemas.shared import FieldCard, Operation, Transition
from workers.agents.actions import Action
from workers.teams.negotiation.data import POLICY

ABILITY_SECONDS = 1800.0
"""Half an hour: how long what is known of a customer's means may be used."""
RISK_SECONDS = 600.0

CHANNEL = "对话窗口"
VERDICTS = ("pass", "revise", "block")

Amount = Annotated[int, Field(gt=0, strict=True, description="每月还款，单位元")]
Months = Annotated[int, Field(gt=0, strict=True, description="期数")]


class Flag(BaseModel):
    """One signal of this conversation."""

    model_config = ConfigDict(frozen=True)

    kind: Literal["情绪压力", "投诉倾向", "失联风险"]
    quote: Annotated[str, Field(min_length=1, max_length=60, description="用户的原话，照抄")]


def offer_text(amount: int, months: int) -> str:
    """An offer in words: the same numbers are always the same words."""
    return f"每月还款 {amount} 元，共 {months} 期"


def record_identity(status: Literal["confirmed", "unconfirmed"]) -> str:
    """登记身份核对的结果。"""
    return status


def record_tier(tier: Literal["low", "medium", "high"]) -> str:
    """登记能力档位。"""
    return tier


def flag_risks(flags: list[Flag]) -> list[dict[str, str]]:
    """登记本次对话里的信号，一次写全。"""
    return [each.model_dump() for each in flags]


def draft_offer(amount: Amount, months: Months) -> dict[str, int | str]:
    """写下一版方案草案。"""
    return {"amount": amount, "months": months, "state": "draft"}


def record_verdict(verdict: Literal["pass", "revise", "block"], rules: list[str]) -> dict[str, str]:
    """登记合规裁定和触发的规则。"""
    return {"verdict": verdict, "rules": "、".join(rules)}


def mark_reviewed() -> str:
    """把草案标为已审查。"""
    return "reviewed"


def approve_offer() -> str:
    """批准方案；裁定为 pass 才可以。"""
    return "approved"


def communicate_offer(amount: Amount, months: Months) -> dict[str, int | str]:
    """把方案说给用户，并记为承诺。"""
    return {"amount": amount, "months": months, "text": offer_text(amount, months), "state": "said"}


def mark_communicated() -> str:
    """把方案标为已说出。"""
    return "communicated"


def withdraw_offer() -> str:
    """撤下已说出的方案；此后只能另拟新的一版。"""
    return "withdrawn"


def file_record(record: Annotated[str, Field(pattern="^art_", description="会话纪要的资料编号")]) -> str:
    """登记本次会话纪要的编号。"""
    return record


def note_to_do(items: list[str]) -> list[str]:
    """写下留到下次的待办事项，一次写全。"""
    return list(items)


def _offer_states() -> tuple[Transition, ...]:
    identified = {"identity_status": "confirmed"}
    new_version = [Transition(source=before, target="draft", by=("draft",), when=identified) for before in (None, *_STATES[1:])]
    return (
        *new_version,
        Transition(source="draft", target="reviewed", by=("review",)),
        Transition(source="reviewed", target="approved", by=("review",), when={"compliance_verdict": "pass"}),
        Transition(source="approved", target="communicated", by=("send",)),
        Transition(source="communicated", target="withdrawn", by=("send", "person")),
    )


_STATES = ("draft", "reviewed", "approved", "communicated", "withdrawn")

_ALLOWED = {"offer": "approved", "compliance_verdict": "pass"}


def fields_of(ability_seconds: float = ABILITY_SECONDS, risk_seconds: float = RISK_SECONDS) -> tuple[FieldCard, ...]:
    """Return the team's shared fields; the lengths are in seconds of the board's clock."""
    return (
        FieldCard(name="identity_status", label="身份状态", owner="identity", carry=True),
        FieldCard(
            name="ability_tier",
            label="能力档位",
            owner="profile",
            sensitivity=Sensitivity.RESTRICTED,
            ttl_seconds=ability_seconds,
            carry=True,
        ),
        FieldCard(
            name="risk_flags",
            label="沟通信号",
            type="list",
            members={"kind": "text", "quote": "text"},
            owner="risk",
            ttl_seconds=risk_seconds,
        ),
        FieldCard(
            name="offer",
            label="当前方案",
            type="object",
            members={"amount": "integer", "months": "integer", "state": "text"},
            unit="CNY",
            owner="draft",
            state_key="state",
            transitions=_offer_states(),
            carry=True,
        ),
        FieldCard(
            name="compliance_verdict",
            label="合规裁定",
            type="object",
            members={"verdict": "text", "rules": "text"},
            owner="review",
            state_key="verdict",
            transitions=tuple(Transition(source=one, target=other, by=("review",)) for one in (None, *VERDICTS) for other in VERDICTS),
        ),
        FieldCard(
            name="committed_offers",
            label="已对外承诺",
            type="object",
            members={"amount": "integer", "months": "integer", "text": "text", "state": "text"},
            unit="CNY",
            owner="send",
            protected=True,
            state_key="state",
            transitions=tuple(Transition(source=before, target="said", by=("send",), when=_ALLOWED) for before in (None, "said")),
            carry=True,
        ),
        FieldCard(name="session_record", label="上次会话纪要（资料编号）", owner="send", carry=True),
        FieldCard(name="to_do", label="待办事项", type="list", members={"value": "text"}, owner="send", carry=True),
    )


ACTIONS = (
    Action("record_identity", "identity_status", record_identity, needs_evidence=True),
    Action("record_tier", "ability_tier", record_tier, needs_evidence=True),
    Action("flag_risks", "risk_flags", flag_risks),
    Action("draft_offer", "offer", draft_offer, needs_evidence=True),
    Action("record_verdict", "compliance_verdict", record_verdict, needs_evidence=True),
    Action("mark_reviewed", "offer", mark_reviewed, operation=Operation.MOVE),
    Action("approve_offer", "offer", approve_offer, operation=Operation.MOVE),
    Action(
        "communicate_offer",
        "committed_offers",
        communicate_offer,
        channel=CHANNEL,
        approval=f"合规裁定 pass（{POLICY}）",
        needs_evidence=True,
    ),
    Action("mark_communicated", "offer", mark_communicated, operation=Operation.MOVE),
    Action("withdraw_offer", "offer", withdraw_offer, operation=Operation.MOVE),
    Action("file_record", "session_record", file_record),
    Action("note_to_do", "to_do", note_to_do),
)
