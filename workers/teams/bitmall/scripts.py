"""Scripted models for the three specialists: what a good model would do, and one that goes round in circles.

A script sees what a model sees (the brief and the tool returns) and writes from that alone: other data gives another answer.
Called by the loop in the place of a model; nothing here knows a result beforehand.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import orjson

from workers.agents.models import Call, Reply, Say, Turn

Row = dict[str, Any]

STUCK_WORDINGS = ("在售扫地机", "扫地机 在售 型号", "换新 扫地机", "预算内 扫地机")
STUCK_APOLOGY = "抱歉，我再换个说法查一遍。"

_LABELS = {
    "suction": "吸力",
    "battery": "续航",
    "control": "操控方式",
    "onDeviceOperation": "机身操作",
    "appControlStatus": "App 控制状态",
}
_STATUS_WORDS = {
    "IN_WARRANTY": "在保修期内",
    "OUT_OF_WARRANTY": "已过保修期",
    "AVAILABLE": "仍可办理",
    "EXPIRED": "已过期",
    "SUPPORTED": "支持",
    "UNKNOWN": "未知",
}


def aftersales(turn: Turn) -> Reply:
    """Look the order up, then its warranty and what to do, then answer."""
    order = _return(turn, "queryOrder")
    if order is None:
        return Call(("queryOrder", {"orderId": _line(turn.brief, "订单号")}))
    if order.get("error"):
        return Say(f"没有查到这个订单：{order['error']}。请核对订单号。")
    warranty, knowledge = _return(turn, "checkWarranty"), _return(turn, "searchKnowledge")
    if warranty is None or knowledge is None:
        return Call(("checkWarranty", {"orderId": order["orderId"]}), ("searchKnowledge", {"query": "扫地机 掉线 保修 维修"}))
    advice = {document["id"]: document["text"] for document in knowledge["documents"]}
    inside = warranty["warrantyStatus"] == "IN_WARRANTY"
    paragraphs = [
        f"订单 {order['orderId']} 购买的是{order['product']}，{order['signTime']} 签收，订单状态为{order['status']}。",
        f"截至 {warranty['asOf']}，它{_word(warranty['warrantyStatus'])}，保修截止日是 {warranty['warrantyEndDate']}；"
        f"七天无理由退货{_word(warranty['noReasonReturnStatus'])}。",
        f"频繁掉线的处理：{advice['after-dropouts']}" if "after-dropouts" in advice else "",
        advice.get("after-warranty", "") if inside else "",
    ]
    return Say("\n\n".join(filter(None, paragraphs)))


def product(turn: Turn) -> Reply:
    """Read the catalogue, compare each candidate with the model in use, then answer."""
    catalogue = _return(turn, "searchKnowledge")
    if catalogue is None:
        return Call(("searchKnowledge", {"query": "在售 扫地机"}))
    in_use = _line(turn.brief, "productName")
    candidates = catalogue["candidates"]
    if not candidates:
        return Say(f"按你的预算，{catalogue['catalogScope']}中没有可选的型号。")
    compared = [comparison for comparison in _returns(turn, "compareProducts") if not comparison.get("error")]
    if not compared and turn.round == 2:
        return Call(*(("compareProducts", {"modelA": in_use, "modelB": each["name"]}) for each in candidates))
    lines = [f"{catalogue['catalogScope']}里，预算内有 {catalogue['candidateCount']} 款：", ""]
    lines += [f"- {each['name']}，{each['price']} 元，App 控制状态{_word(each['appControlStatus'])}" for each in candidates]
    for comparison in compared:
        lines += ["", *_comparison(comparison)]
    return Say("\n".join(lines))


def linkage(turn: Turn) -> Reply:
    """Look up what is known of linkage, then say it of each candidate."""
    found = _return(turn, "searchKnowledge")
    speaker = _line(turn.brief, "已有设备")
    if not speaker:
        return Say("请求里没有写明家里的设备型号，无从核对联动。")
    if found is None:
        return Call(("searchKnowledge", {"query": f"{speaker} 联动"}))
    known = {bundle["device"]: bundle for bundle in found["bundles"]}
    candidates = [name for key in ("candidateA", "candidateB") if (name := _line(turn.brief, key))]
    return Say("\n".join(_linkage(name, speaker, known.get(name)) for name in candidates) or "没有需要核实的候选。")


def stuck_product(turn: Turn) -> Reply:
    """Search the catalogue for ever, in other words each time, politely."""
    wording = STUCK_WORDINGS[turn.round % len(STUCK_WORDINGS)]
    return Call(("searchKnowledge", {"query": f"{wording} {turn.round}"}), text=STUCK_APOLOGY)


def _linkage(name: str, speaker: str, bundle: Row | None) -> str:
    match bundle["status"] if bundle else "UNKNOWN":
        case "SUPPORTED":
            return f"- {name}：明确支持与你的{speaker}联动，可以用语音启动、暂停和回充。"
        case _:
            return f"- {name}：与你的{speaker}的联动情况未知，清单标明尚未测试。"


def _comparison(comparison: Row) -> Iterator[str]:
    """A table of what both sides state; what one side does not state is listed under it, and not compared."""
    one, other = comparison["productA"], comparison["productB"]
    both = [key for key in one["specification"] if key in other["specification"]]
    yield f"| 规格 | {one['name']}（在用） | {other['name']} |"
    yield "| --- | --- | --- |"
    for key in both:
        yield f"| {_LABELS.get(key, key)} | {_word(one['specification'][key])} | {_word(other['specification'][key])} |"
    for side in (one, other):
        alone = [f"{_LABELS.get(key, key)}为 {value}" for key, value in side["specification"].items() if key not in both]
        if alone:
            yield ""
            yield f"{side['name']}的{'，'.join(alone)}。"


def _word(value: str) -> str:
    return _STATUS_WORDS.get(value, value)


def _returns(turn: Turn, tool: str) -> list[Row]:
    """What a tool returned in this run, pointers left out."""
    return [orjson.loads(each.text) for each in turn.returns if each.tool == tool and each.text.startswith("{")]


def _return(turn: Turn, tool: str) -> Row | None:
    found = _returns(turn, tool)
    return found[-1] if found else None


def _line(brief: str, name: str) -> str:
    """What a constraint or fact line of the brief says."""
    found = re.search(rf"^- {re.escape(name)}：(.*)$", brief, re.MULTILINE)
    return found.group(1) if found else ""


SCRIPTS: dict[str, dict[str, Callable[[Turn], Reply]]] = {
    "happy": {"aftersales": aftersales, "product": product, "iot": linkage},
    "product-stuck": {"aftersales": aftersales, "product": stuck_product, "iot": linkage},
    "slow-product": {"aftersales": aftersales, "product": product, "iot": linkage},
}
"""Scenario -> script of each agent. In `slow-product` every turn of the product model takes seconds."""
