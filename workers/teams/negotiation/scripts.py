"""Scripted models for this team: what good models would do, and a few that do not.

A script sees what a model sees (the brief and the tool returns) and writes from that alone: other data gives another answer.
Called by the loop in the place of a model; nothing here knows a result beforehand.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import orjson

from workers.agents.models import Call, Reply, Say, Turn
from workers.teams.negotiation.state import offer_text

Row = dict[str, Any]

_SIGNALS = (
    ("compliance", "合规|规定允许|合法"),
    ("offer", "方案|分期|少还|改成"),
    ("complaint", "投诉"),
    ("ability", "评估|还得起"),
)
_FLAGS = (("情绪压力", "[^，。；！]*(?:扛不住|喘不过气)[^，。；！]*"), ("投诉倾向", "[^，。；！]*投诉[^，。；！]*"))
_MONTHS = 12


def lead(turn: Turn) -> Reply:
    """Listen; or, in the step that drafts, draft."""
    return draft(turn) if "draft_offer" in turn.tools else listen(turn)


def listen(turn: Turn) -> Reply:
    """Say what the request is; a plain question is looked up and answered."""
    words = _words(turn.brief)
    signal = next((name for name, pattern in _SIGNALS if re.search(pattern, words)), "question")
    if _return(turn, "conclude_signal") is None:
        look = (("searchKnowledge", {"query": words}),) if signal == "question" else ()
        return Call(*look, ("conclude_signal", {"value": signal, "confidence": 0.95, "reason": "按用户的原话判断。"}))
    if signal != "question":
        return Say("已经受理你的请求，正在逐项核实，结果见下文。")
    found = (_return(turn, "searchKnowledge") or {}).get("documents", [])
    return Say("\n\n".join(each["text"] for each in found) or "这个问题没有查到公开的说明。")


def identity(turn: Turn) -> Reply:
    """Verify, record, say."""
    found = _return(turn, "verifyIdentity")
    if found is None:
        return Call(("verifyIdentity", {}))
    if "error" in found:
        return Say("没有核对到身份。")
    status = found["identityStatus"]
    if _return(turn, "record_identity") is None:
        return Call(("record_identity", {"status": status, "evidence": ["identityStatus"]}))
    return Say("身份已经确认。" if status == "confirmed" else "身份没有确认，请核对客户号和手机尾号。")


def profile(turn: Turn) -> Reply:
    """Assess, then give findings whose evidence is rows of the artifact."""
    found = _return(turn, "assessAbility")
    if found is None:
        return Call(("assessAbility", {}))
    if "error" in found:
        return Say("没有可用的评估。")
    if _return(turn, "conclude_proposal_limit") is None:
        evidence = [f"{found['evidenceTable']}#{','.join(found['items'])}"]
        rest = {"confidence": 0.9, "evidence": evidence, "reason": f"依 {found['ruleTable']}，第 {'、'.join(found['items'])} 行"}
        return Call(
            ("conclude_repayment_ability", {"value": found["tier"], **rest}),
            ("conclude_proposal_limit", {"value": found["limit"], **rest}),
            ("record_tier", {"tier": found["tier"], "evidence": evidence}),
        )
    return Say(f"已按 {found['ruleTable']} 完成评估，明细另存。")


def risk(turn: Turn) -> Reply:
    """Flag what this conversation shows, in its own words; a complaint is put before a person."""
    words = _words(turn.brief)
    flags = [{"kind": kind, "quote": found.group().strip()} for kind, pattern in _FLAGS if (found := re.search(pattern, words))]
    complaint = next((each["quote"] for each in flags if each["kind"] == "投诉倾向"), "")
    if flags and turn.round == 1:
        asks = [("conclude_handover", {"value": "有投诉的苗头，提请人工关注", "confidence": 0.8, "reason": complaint})] if complaint else []
        return Call(("flag_risks", {"flags": flags}), *asks)
    return Say("你的处境已经记下，后续沟通会留意。" if flags else "没有需要特别留意的信号。")


def draft(turn: Turn) -> Reply:
    """Draft what the user asks for, or what the finding allows; in plain words."""
    return _draft(turn, lambda amount: f"建议方案：{offer_text(amount, _MONTHS)}。")


def promising_draft(turn: Turn) -> Reply:
    """Promise too much at first; write it again once compliance has sent it back."""
    sent_back = '"revise"' in _line(turn.brief, "合规裁定")
    return draft(turn) if sent_back else stubborn_draft(turn)


def stubborn_draft(turn: Turn) -> Reply:
    """Promise too much, each time."""
    return _draft(turn, lambda amount: f"保证批准：{offer_text(amount, _MONTHS)}。")


def bold_draft(turn: Turn) -> Reply:
    """Ask for more than the finding allows."""
    return _draft(turn, lambda amount: f"建议方案：{offer_text(amount, _MONTHS)}。", more=100)


def _draft(turn: Turn, words: Callable[[int], str], *, more: int = 0) -> Reply:
    amount = (_number(_line(turn.brief, "希望每月还款")) or _number(_line(turn.brief, "proposal_limit"))) + more
    drafted = _return(turn, "draft_offer")
    if drafted is None:
        return Call(("draft_offer", {"amount": amount, "months": _MONTHS, "evidence": ["proposal_limit"]}))
    if "error" in drafted:
        return Say(f"没有拟成草案：{drafted['error']}")
    if _return(turn, "conclude_draft_text") is None:
        reason = "以建议上限为限，按用户提出的金额拟。"
        given = {"value": words(amount), "confidence": 0.9, "evidence": ["proposal_limit"], "reason": reason}
        return Call(("conclude_draft_text", given))
    return Say("已经拟出一版草案，等待审查。")


def compliance(turn: Turn) -> Reply:
    """Review the draft; or, where somebody only asks, read the rules to them."""
    return review(turn) if "checkRules" in turn.tools else opinion(turn)


def review(turn: Turn) -> Reply:
    """Check, record the verdict, mark; approve only what passed, send back what is to be revised."""
    found = _return(turn, "checkRules")
    if found is None:
        text = re.sub(r"（建议；.*$", "", _line(turn.brief, "draft_text"))
        return Call(("checkRules", {"limit": _number(_line(turn.brief, "proposal_limit")), "text": text}))
    if "error" in found:
        return Say("没有可审查的方案。")
    verdict, rules = found["verdict"], [each["rule"] for each in found["fired"]]
    if _return(turn, "record_verdict") is None:
        why = "；".join(f"{each['rule']} {each['why']}" for each in found["fired"]) or f"按 {found['policy']} 逐条审查，没有触发规则"
        opinion_given = {"value": why, "confidence": 0.95, "evidence": ["ruleVerdict"], "reason": f"裁定为 {verdict}"}
        return Call(
            ("record_verdict", {"verdict": verdict, "rules": rules, "evidence": ["ruleVerdict"]}),
            ("conclude_review_opinion", opinion_given),
        )
    if _return(turn, "mark_reviewed") is None:
        return Call(("mark_reviewed", {}))
    if verdict == "pass" and _return(turn, "approve_offer") is None:
        return Call(("approve_offer", {}))
    if verdict == "revise" and _return(turn, "conclude_sent_back") is None:
        return Call(("conclude_sent_back", {"value": "draft_text", "confidence": 0.95, "reason": f"触发 {'、'.join(rules)}"}))
    said = {"pass": "审查通过。", "revise": "草案需要改写。", "block": "方案没有通过审查。"}
    return Say(said[verdict])


def hasty_review(turn: Turn) -> Reply:
    """Try to approve whatever the verdict is."""
    if _return(turn, "mark_reviewed") is not None and _return(turn, "approve_offer") is None:
        return Call(("approve_offer", {}))
    return review(turn)


def opinion(turn: Turn) -> Reply:
    """Read the rules to whoever asks."""
    found = _return(turn, "readRules")
    if found is None:
        return Call(("readRules", {}))
    return Say("\n".join([f"现行规则（{found['policy']}）：", "", *(f"- {number}：{text}" for number, text in found["rules"].items())]))


def controller(turn: Turn) -> Reply:
    """Say what is approved and contradicts nothing that was said; hand everything else to a person."""
    offer, committed = _object(turn.brief, "当前方案"), _object(turn.brief, "已对外承诺")
    verdict = _object(turn.brief, "合规裁定").get("verdict")
    record = re.search(r"art_[0-9a-f]{32}", _line(turn.brief, "verdictRecord"))
    sources = [record.group()] if record else []
    if verdict != "pass" or offer.get("state") != "approved":
        return _hand_over(turn, sources, f"方案没有批准（裁定：{verdict}）", "方案没有通过审查，已转交人工，会有专人答复你。")
    said = _return(turn, "communicate_offer")
    if said is None:
        given = {"amount": offer["amount"], "months": offer["months"], "evidence": ["review_opinion", "当前方案"]}
        return Call(("communicate_offer", given))
    if "error" in said:
        kept = committed.get("text", "")
        return _hand_over(turn, sources, said["error"], f"之前说过的“{kept}”仍然有效；这次的请求与它不一致，已转交人工核实后答复你。")
    if _return(turn, "mark_communicated") is None:
        return Call(("mark_communicated", {}))
    return _filed(turn, "communicated", sources) or Say(f"经审查批准，方案为：{offer_text(offer['amount'], offer['months'])}。")


def _hand_over(turn: Turn, sources: list[str], reason: str, answer: str) -> Reply:
    if _return(turn, "conclude_handover") is None:
        return Call(
            ("conclude_handover", {"value": "请人工处理这次协商", "confidence": 0.95, "reason": reason}),
            ("note_to_do", {"items": ["人工答复用户"]}),
        )
    return _filed(turn, "handed_over", sources) or Say(answer)


def _filed(turn: Turn, outcome: str, sources: list[str]) -> Reply | None:
    """File the session, then its number; None once both are done, or could not be."""
    found = _return(turn, "fileSession")
    if found is None:
        return Call(("fileSession", {"outcome": outcome, "sources": sources}))
    if "error" not in found and _return(turn, "file_record") is None:
        return Call(("file_record", {"record": found["sessionRecord"]}))
    return None


def _words(brief: str) -> str:
    """The user's own words."""
    return "\n".join(line.removeprefix(">").strip() for line in brief.splitlines() if line.startswith(">"))


def _line(brief: str, name: str) -> str:
    """What a line of the brief says under this name."""
    found = re.search(rf"^- {re.escape(name)}：(.*)$", brief, re.MULTILINE)
    return found.group(1) if found else ""


def _number(text: str) -> int:
    found = re.match(r"\d+", text)
    return int(found.group()) if found else 0


def _object(brief: str, name: str) -> Row:
    """A shared field that is an object."""
    found = re.match(r"\{.*?\}", _line(brief, name))
    return orjson.loads(found.group()) if found else {}


def _return(turn: Turn, tool: str) -> Row | None:
    """What a tool returned last in this run; `{"error": ...}` where it gave nothing."""
    texts = [each.text for each in turn.returns if each.tool == tool]
    if not texts:
        return None
    return orjson.loads(texts[-1]) if texts[-1].startswith("{") else {"error": texts[-1]}


_HAPPY: dict[str, Callable[[Turn], Reply]] = {
    "lead": lead,
    "identity": identity,
    "profile": profile,
    "risk": risk,
    "compliance": compliance,
    "controller": controller,
}


def _drafting(drafts: Callable[[Turn], Reply]) -> Callable[[Turn], Reply]:
    return lambda turn: drafts(turn) if "draft_offer" in turn.tools else listen(turn)


SCRIPTS: dict[str, dict[str, Callable[[Turn], Reply]]] = {
    "happy": _HAPPY,
    "promising": {**_HAPPY, "lead": _drafting(promising_draft)},
    "stubborn": {**_HAPPY, "lead": _drafting(stubborn_draft)},
    "bold": {**_HAPPY, "lead": _drafting(bold_draft)},
    "hasty": {**_HAPPY, "lead": _drafting(bold_draft), "compliance": hasty_review},
}
"""Scenario -> script of each agent. `promising`: the first draft promises too much; `stubborn`: every draft does; `bold`: it asks for
more than the finding allows; `hasty`: that, and compliance tries to approve it."""
