"""The plan of this team: one step that listens, and those that it may wake, each with its own scope, rights and form of answer."""

from __future__ import annotations

from schemas.facts import Sensitivity
from schemas.gate import May
from schemas.packets import Kind, OnFailure, Output
from schemas.plans import Step
from workers.teams.negotiation.state import ABILITY_SECONDS

SIGNALS = ("question", "ability", "offer", "complaint", "compliance")
"""What a request may be: a plain question, or what wakes somebody."""

WAKES: dict[str, tuple[str, ...]] = {
    "question": (),
    "ability": ("identity", "profile"),
    "offer": ("identity", "profile", "risk", "draft", "review", "send"),
    "complaint": ("risk",),
    "compliance": ("opinion",),
}
"""Signal -> the steps that it wakes. An offer needs everyone; every other signal one expert, and what that one rests on."""

LISTEN = Step(
    id="lead",
    agent="lead",
    title="协商受理",
    task="判断这次请求属于哪一类；普通问题查知识后直接回答，其余说明已经受理。",
    out_of_scope="方案的金额，身份核对，能力评估。",
    tools=("searchKnowledge",),
    may_plan=True,
    outputs=(
        Output(
            key="signal",
            kind=Kind.DECISION,
            choices=SIGNALS,
            description="请求的类别：普通问题、能力评估、特殊方案、投诉苗头、合规疑问",
            needs_evidence=False,
        ),
    ),
    reads=("identity_status", "ability_tier", "offer", "committed_offers", "session_record", "to_do"),
)

_HANDOVER = Output(key="handover", kind=Kind.ACTION_REQUEST, required=False, description="提请人工处理的事项", needs_evidence=False)


def steps_on_call(ability_seconds: float = ABILITY_SECONDS) -> tuple[Step, ...]:
    """Return the steps that are woken; findings about a customer's means hold for `ability_seconds`."""
    finding = {
        "ttl_seconds": ability_seconds,
        "sensitivity": Sensitivity.RESTRICTED,
        "allowed_use": ("draft_offer",),
        "forbidden_use": ("external_commitment",),
        "on_failure": OnFailure.RECHECK,
    }
    return (
        Step(
            id="identity",
            agent="identity",
            title="身份核对",
            task="核对来者的身份，登记结果。",
            out_of_scope="还款能力，方案。",
            expects=("identityStatus",),
            writes=("identity_status",),
        ),
        Step(
            id="profile",
            agent="profile",
            title="能力评估",
            task="评估还款能力，给出能力档位和建议上限，注明来源与把握。",
            out_of_scope="方案的期数与措辞，情绪与投诉。",
            depends_on=("identity",),
            needs=(),
            expects=("evidenceTable",),
            outputs=(
                Output(key="repayment_ability", choices=("low", "medium", "high"), description="能力档位", **finding),
                Output(key="proposal_limit", type="integer", unit="CNY", description="每月还款的建议上限", **finding),
            ),
            reads=("identity_status",),
            writes=("ability_tier",),
        ),
        Step(
            id="risk",
            agent="risk",
            title="沟通提示",
            task="从用户这次说的话里找出情绪与投诉的信号，各摘一段原话登记。",
            out_of_scope="还款能力，方案，结束会话。",
            needs=(),
            critical=False,
            outputs=(_HANDOVER,),
            writes=("risk_flags",),
        ),
        Step(
            id="draft",
            agent="lead",
            title="方案草案",
            task="按给出的判断拟一版方案草案：写下金额和期数，再给出方案的文字。用户提出了希望的金额时，照他的金额拟。",
            out_of_scope="审查，说给用户。",
            depends_on=("identity", "profile", "risk"),
            needs=("profile.repayment_ability", "profile.proposal_limit", "profile.evidenceTable?"),
            tools=(),
            uses=("draft_offer",),
            outputs=(Output(key="draft_text", kind=Kind.SUGGESTION, description="方案草案的文字"),),
            reads=("identity_status", "risk_flags", "offer", "committed_offers", "compliance_verdict"),
            writes=("offer",),
            on_failure=OnFailure.RECHECK,
            on_stale="rollback",
        ),
        Step(
            id="review",
            agent="compliance",
            title="合规审查",
            task="审查当前方案和它的文字，登记裁定与触发的规则；pass 才批准。",
            out_of_scope="改动方案，评估能力。",
            depends_on=("draft",),
            needs=("draft.draft_text", "profile.proposal_limit"),
            tools=("checkRules",),
            uses=("draft_offer",),
            outputs=(
                Output(key="review_opinion", kind=Kind.DECISION, description="裁定的理由，写明规则编号"),
                Output(key="sent_back", kind=Kind.RETRACTION, required=False, description="要重写的草案文字的名称", needs_evidence=False),
            ),
            reads=("identity_status", "offer", "committed_offers", "compliance_verdict"),
            writes=("offer", "compliance_verdict"),
            on_failure=OnFailure.RECHECK,
        ),
        Step(
            id="send",
            agent="controller",
            title="协商结果",
            task="比较当前方案与已对外承诺；一致且已批准就说给用户并记为承诺，否则转交人工。",
            out_of_scope="拟定方案，审查方案。",
            depends_on=("review",),
            needs=("review.review_opinion", "review.verdictRecord"),
            may=May.COMMIT,
            uses=("external_commitment",),
            outputs=(_HANDOVER,),
            reads=("identity_status", "offer", "committed_offers", "compliance_verdict"),
            writes=("offer", "committed_offers", "session_record", "to_do"),
        ),
        Step(
            id="opinion",
            agent="compliance",
            title="合规说明",
            task="说明用户问到的做法合不合现行规则。",
            out_of_scope="拟定方案，评估能力。",
            tools=("readRules",),
            needs=(),
        ),
    )
