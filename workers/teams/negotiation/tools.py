"""The tools of this team, over its data. A domain's tools see that domain's data only.

Who the customer is comes from the constraints, what was drafted and said from the shared fields, today from the clock: a model
chooses none of them. Tables and arithmetic go into artifacts; a model gets a reference. Called by the specialists' loop.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

from pydantic import Field

from schemas.artifacts import JSON, ArtifactRef
from schemas.codec import encode
from schemas.frozen import thawed
from workers.agents.tools import Tool, ToolContext, ToolFault
from workers.teams.negotiation import data
from workers.teams.negotiation.returns import (
    AbilityReturn,
    DocumentsReturn,
    FiledReturn,
    Fired,
    FoundDocument,
    IdentityReturn,
    RulesReturn,
    VerdictReturn,
)

Query = Annotated[str, Field(description="要查的内容，几个关键词")]
Limit = Annotated[int, Field(description="给出的建议上限，单位元")]
DraftText = Annotated[str, Field(description="方案草案的文字，照抄")]
Outcome = Annotated[Literal["communicated", "handed_over"], Field(description="方案已说出，还是已转交人工")]
Sources = Annotated[list[str], Field(description="依据的资料编号（art_…）")]


def search_knowledge(query: Query) -> DocumentsReturn:
    """检索对所有人公开的还款知识。"""
    found = (each for each in data.DOCUMENTS if any(keyword in query for keyword in each.keywords))
    return DocumentsReturn(documents=tuple(FoundDocument(id=each.id, title=each.title, text=each.text) for each in found))


def verify_identity(context: ToolContext) -> IdentityReturn:
    """用客户号和手机尾号核对身份。"""
    customer = _customer(context)
    proven = context.constraints.get("tail") == customer.tail
    return IdentityReturn(customer=customer.number, identity_status="confirmed" if proven else "unconfirmed")


async def assess_ability(context: ToolContext) -> AbilityReturn:
    """读取客户的账户表，按能力表算出能力档位和建议上限；明细存为资料。"""
    if context.shared.get("identity_status") != "confirmed":
        raise ToolFault("identity_status 不是 confirmed，不读取账户数据")
    customer, now = _customer(context), context.now()
    as_of = now - customer.table_age
    if customer.table_age > data.MAX_TABLE_AGE:
        raise ToolFault(f"stale：账户数据截至 {as_of:%Y-%m-%d %H:%M}，太旧，不用于方案")
    amounts = {row.id: row.amount for row in customer.rows}
    income, outlay = amounts[data.INCOME_ROW], amounts[data.OUTLAY_ROW]
    left = income - outlay
    limit = int(left * data.LIMIT_SHARE) // data.LIMIT_STEP * data.LIMIT_STEP
    tier = next(name for name, least in data.TIERS if left / income >= least)
    content = {
        "table": f"profile_{customer.number}",
        "asOf": as_of.isoformat(),
        "rows": [{"id": row.id, "item": row.item, "amount": row.amount, "unit": "CNY"} for row in customer.rows],
        "arithmetic": f"{data.INCOME_ROW} {income} - {data.OUTLAY_ROW} {outlay} = {left}；{left} × {data.LIMIT_SHARE:g} → {limit}",
        "ruleTable": data.ABILITY_TABLE,
    }
    kept = await _kept(context, content, f"{customer.number} 的账户表与计算明细，{len(customer.rows)} 行")
    return AbilityReturn(
        tier=tier,
        limit=limit,
        rule_table=data.ABILITY_TABLE,
        evidence_table=kept.id,
        items=(data.INCOME_ROW, data.OUTLAY_ROW),
        data_as_of=as_of,
    )


def read_rules() -> RulesReturn:
    """读取现行规则的全文。"""
    return RulesReturn(policy=data.POLICY, rules=data.RULES)


async def check_rules(context: ToolContext, limit: Limit, text: DraftText) -> VerdictReturn:
    """按现行规则逐条审查当前方案和它的文字，给出裁定和触发的规则。"""
    offer = context.shared.get("offer")
    if not isinstance(offer, Mapping):
        raise ToolFault("没有可审查的方案")
    fired = tuple(_fired(offer, context.shared.get("committed_offers"), limit, text))
    verdicts = {each.verdict for each in fired}
    verdict = "block" if "block" in verdicts else "revise" if "revise" in verdicts else "pass"
    content = {
        "offer": thawed(offer),
        "verdict": verdict,
        "fired": [each.model_dump(by_alias=True) for each in fired],
        "policy": data.POLICY,
    }
    kept = await _kept(context, content, f"合规裁定 {verdict}，{data.POLICY}")
    return VerdictReturn(verdict=verdict, fired=fired, policy=data.POLICY, verdict_record=kept.id)


def _fired(offer: Mapping[str, Any], committed: object, limit: int, text: str) -> Iterator[Fired]:
    if offer["amount"] > limit:
        yield Fired(rule="R-1", verdict="block", why=f"每月 {offer['amount']} 元超过建议上限 {limit} 元")
    if offer["months"] > data.MAX_MONTHS:
        yield Fired(rule="R-2", verdict="revise", why=f"{offer['months']} 期超过 {data.MAX_MONTHS} 期")
    if used := [word for word in data.PROMISES if word in text]:
        yield Fired(rule="R-3", verdict="revise", why=f"用了承诺性的说法：{'、'.join(used)}")
    if isinstance(committed, Mapping) and offer["amount"] > committed["amount"]:
        yield Fired(rule="R-4", verdict="block", why=f"每月 {offer['amount']} 元高于已经承诺的 {committed['amount']} 元")


async def file_session(context: ToolContext, outcome: Outcome, sources: Sources) -> FiledReturn:
    """把最终方案和本次会话的纪要存为资料，并写明依据。"""
    known = tuple(each for each in sources if context.artifacts.ref(each) is not None)
    if len(known) != len(sources):
        raise ToolFault("有的资料编号不在本次任务给出的内容里")
    offer = thawed(context.shared.get("offer"))
    final = await _kept(context, {"offer": offer, "outcome": outcome}, f"最终方案（{outcome}）", depends_on=known)
    record = {
        "outcome": outcome,
        "offer": offer,
        "verdict": thawed(context.shared.get("compliance_verdict")),
        "saidBefore": thawed(context.shared.get("committed_offers")),
        "finalOffer": final.id,
    }
    session = await _kept(context, record, f"会话纪要（{outcome}）", depends_on=(*known, final.id))
    return FiledReturn(final_offer=final.id, session_record=session.id)


async def _kept(context: ToolContext, content: object, summary: str, depends_on: tuple[str, ...] = ()) -> ArtifactRef:
    return await context.artifacts.put(encode(content), media_type=JSON, summary=summary, depends_on=depends_on)


def _customer(context: ToolContext) -> data.Customer:
    number = context.constraints.get("customer")
    found = next((each for each in data.CUSTOMERS if each.number == number), None)
    if found is None:
        raise ToolFault(f"没有客户号 {number}" if number else "请求里没有客户号")
    return found


LEAD_TOOLS = (Tool("searchKnowledge", search_knowledge, source="documents.0.id"),)
IDENTITY_TOOLS = (Tool("verifyIdentity", verify_identity),)
PROFILE_TOOLS = (Tool("assessAbility", assess_ability, source="evidenceTable"),)
COMPLIANCE_TOOLS = (Tool("checkRules", check_rules, source="policy"), Tool("readRules", read_rules, source="policy"))
CONTROLLER_TOOLS = (Tool("fileSession", file_session, source="sessionRecord"),)
