"""The traps of the source document, one test each, as far as agents, briefs and the team's data go.

T1, T2, T5, T6, T8 and T12 are also pinned beside the rooms that avoid them; T9, T10, T13, T14, T16, T17 to T23 and T29 need
the whole runtime as well and are pinned again at the end of the line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import date, datetime, time
from typing import Any
from zoneinfo import ZoneInfo

import orjson
import pytest

from schemas.errors import InvalidTeam
from schemas.results import FailureCode, ResultStatus, Termination
from tests.workers.teams.bitmall.walk import REQUEST, Walk, happy, walk
from workers.agents.models import Call, Reply, Say, Turn
from workers.agents.specialist import Specialist
from workers.agents.tools import Tool, ToolContext
from workers.facts import FactRules
from workers.phrases import ZH
from workers.teams.bitmall import data, personas
from workers.teams.bitmall.audit import audit
from workers.teams.bitmall.plan import STEPS
from workers.teams.bitmall.team import AFTERSALES_RULES, LINKAGE_RULES, PRODUCT_RULES, make_team
from workers.teams.bitmall.tools import AFTERSALES_TOOLS, LINKAGE_TOOLS, PRODUCT_TOOLS

ALL_TOOLS = (*AFTERSALES_TOOLS, *PRODUCT_TOOLS, *LINKAGE_TOOLS)
PERSONAS = (personas.AFTERSALES, personas.PRODUCT, personas.LINKAGE)
IN_USE = "比特 S10 Pro 扫地机"


def tool_of(tools: tuple[Tool, ...], name: str) -> Tool:
    """The tool of that name."""
    return next(tool for tool in tools if tool.name == name)


async def returned(tool: Tool, *, budget: int = 2000, **arguments: str) -> Any:
    """What a tool returns on the demo's day."""
    return await tool.call(arguments, ToolContext({"budget": budget}, make_team().clock))


def keys_of(value: Any) -> Iterator[str]:
    """Every key of a JSON value, at any depth."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield key
            yield from keys_of(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from keys_of(inner)


def answer_of(done: Walk) -> str:
    """All sections as one text."""
    return "\n\n".join(done.sections.values())


async def test_trap_T02_a_product_model_that_goes_round_in_circles_is_failed() -> None:
    done = await walk(scenario="product-stuck")

    product = done.results["product"]
    assert (product.status, product.termination) == (ResultStatus.FAILED, Termination.NO_PROGRESS)
    assert product.facts == () and product.summary
    assert done.failures["iot"].code == FailureCode.MISSING_FACT
    assert list(done.sections) == ["保修与掉线处理"]


async def test_trap_T03_a_warranty_date_that_the_model_tells_changes_no_fact() -> None:
    def script(turn: Turn) -> Reply:
        reply = happy("aftersales")(turn)
        return Say(reply.text.replace("2027-06-21", "2029-01-01")) if isinstance(reply, Say) else reply

    done = await walk(scripts={"aftersales": script})

    assert "2029-01-01" in done.results["aftersales"].summary
    assert done.values("aftersales")["warrantyEndDate"] == "2027-06-21"
    assert "2029" not in done.inputs_of("product") + done.inputs_of("iot")


async def test_trap_T04_no_verdict_is_taken_out_of_a_policy_text() -> None:
    assert {rule.tool for rule in AFTERSALES_RULES if "warranty" in rule.key.lower()} == {"checkWarranty"}
    assert "searchKnowledge" not in {rule.tool for rule in AFTERSALES_RULES}

    def only_reads(turn: Turn) -> Reply:
        return Call(("searchKnowledge", {"query": "保修"})) if turn.round == 1 else Say("你的机器在保修期内。")

    assert (await walk(scripts={"aftersales": only_reads})).results["aftersales"].facts == ()


async def test_trap_T05_an_order_that_does_not_exist_gives_no_fact() -> None:
    def script(turn: Turn) -> Reply:
        calls = Call(("queryOrder", {"orderId": "99999"}), ("checkWarranty", {"orderId": "99999"}))
        return calls if turn.round == 1 else Say("没有查到。")

    assert (await walk(scripts={"aftersales": script})).results["aftersales"].facts == ()


async def test_trap_T06_after_a_wrong_order_number_the_facts_are_the_right_orders() -> None:
    def script(turn: Turn) -> Reply:
        number = {1: "88107", 2: "88231"}.get(turn.round)
        return Call(("queryOrder", {"orderId": number}), ("checkWarranty", {"orderId": number})) if number else Say("好了。")

    result = (await walk(scripts={"aftersales": script})).results["aftersales"]

    assert {fact.key: fact.value for fact in result.facts}["productName"] == IN_USE
    assert {fact.provenance.call_id for fact in result.facts} == {"call-2-1", "call-2-2"}
    assert ("productName", "比特 S9 扫地机", "call-1-1") in {(each.key, each.value, each.provenance.call_id) for each in result.superseded}


async def test_trap_T07_comparing_the_model_in_use_twice_moves_no_candidate() -> None:
    def script(turn: Turn) -> Reply:
        compare = ("compareProducts", {"modelA": IN_USE, "modelB": "比特 S11 Pro 扫地机"})
        return {1: Call(("searchKnowledge", {"query": "在售"})), 2: Call(compare), 3: Call(compare, compare)}.get(turn.round, Say("好了。"))

    values = (await walk(scripts={"product": script})).values("product")

    assert (values["candidateA"], values["candidateB"]) == ("比特 S11 Pro 扫地机", "比特 S10 Lite 扫地机")
    assert "compareProducts" not in {rule.tool for rule in PRODUCT_RULES}


def test_trap_T08_a_misspelt_path_is_refused_when_the_team_loads() -> None:
    with pytest.raises(InvalidTeam, match="nmae") as refused:
        Specialist("product", "", PRODUCT_TOOLS, FactRules.of(("searchKnowledge", "candidates.0.nmae", "candidateA")))
    assert refused.value.path == "agents.product.rules.0.path"


async def test_trap_T09_what_aftersales_writes_is_in_no_later_model_input() -> None:
    def script(turn: Turn) -> Reply:
        reply = happy("aftersales")(turn)
        return Say(reply.text + "\n\n暗号：金丝雀七号。") if isinstance(reply, Say) else reply

    done = await walk(scripts={"aftersales": script})

    assert "金丝雀七号" in done.results["aftersales"].summary
    assert "金丝雀七号" not in done.inputs_of("product") + done.inputs_of("iot")


async def test_trap_T10_no_aftersales_fact_leaks_along_the_chain() -> None:
    given = (await walk()).inputs_of("iot")

    assert "candidateA" in given
    for absent in ("warranty", "IN_WARRANTY", "2027-06-21", "orderStatus", "已签收", "signDate", "EXPIRED", "originalPrice", "1999"):
        assert absent not in given


async def test_trap_T11_nothing_that_a_model_reads_or_writes_speaks_of_networks() -> None:
    done = await walk()
    network = re.compile(r"wi-?fi|信道|频段|路由|5\s*GHz|2\.4\s*GHz", re.IGNORECASE)
    everything = [each.text for each in done.inputs] + [answer_of(done)] + [repr(vars(data))]

    assert [text for text in everything if network.search(text)] == []


async def test_trap_T13_the_scope_rule_follows_the_task_in_every_brief_and_product_says_nothing_on_compatibility() -> None:
    done = await walk()

    for built in done.briefs.values():
        text = built.brief.text
        assert text.index(ZH.task) < text.index("\n".join(ZH.scope_rule)) < text.index("\n".join(ZH.style_rule))
    assert not re.search(r"兼容|联动|音箱|SoundBox", done.sections["换新候选"])
    assert all(step.out_of_scope for step in STEPS)


async def test_trap_T14_no_inner_name_is_in_any_model_input_or_section() -> None:
    names = {"aftersales": "kanarie-eins", "product": "kanarie-zwei", "iot": "kanarie-drei"}
    done = await walk(names=names)

    everything = "\n".join(each.text for each in done.inputs) + answer_of(done)
    assert list(done.sections) == ["保修与掉线处理", "换新候选", "音箱联动"], "it runs to the end under any names"
    for word in (*names.values(), "aftersales", "iot", "专家", "agent", "specialist", "orchestrator"):  # `product` is a field of orders too
        assert word not in everything.lower()


def test_trap_T15_each_persona_has_five_rules_at_most_of_its_own_and_no_other_domains_word() -> None:
    rules = [line for persona in PERSONAS for line in persona.splitlines() if line.startswith("- ")]
    assert all(1 <= persona.count("\n- ") <= 5 for persona in PERSONAS)
    assert len(rules) == len(set(rules))
    shared = set(ZH.common_rules + ZH.scope_rule + ZH.style_rule)
    assert not shared & set(rules)
    own = {
        personas.AFTERSALES: r"保修|退货|维修|checkWarranty|queryOrder",
        personas.PRODUCT: r"candidates|规格|compareProducts",
        personas.LINKAGE: r"联动|SUPPORTED|语音",
    }
    for persona, words in own.items():
        others = [other for other in PERSONAS if other != persona]
        assert re.search(words, persona) and not any(re.search(words, other) for other in others)
    assert "UNKNOWN" not in "".join(PERSONAS), "a rule for everyone, so it stands in the phrases"


async def test_trap_T16_no_section_has_a_heading_of_level_one_or_two_and_all_address_the_user_in_one_way() -> None:
    done = await walk()

    assert not re.search(r"^#{1,2}\s", answer_of(done), re.MULTILINE)
    assert "您" not in answer_of(done) + "".join(each.text for each in done.inputs)


async def test_trap_T23_the_text_of_a_failed_step_reaches_nobody_else() -> None:
    done = await walk(scenario="product-stuck")

    assert done.results["product"].summary not in answer_of(done)


async def test_trap_T24_the_knowledge_of_one_domain_opens_no_back_door_to_another() -> None:
    slices = [{document.id for document in documents} for documents in (data.AFTERSALES_DOCUMENTS, data.LINKAGE_DOCUMENTS)]
    assert not slices[0] & slices[1]

    for query in ("SoundBox", "音箱 联动", "在售 扫地机 候选 价格"):
        assert (await returned(tool_of(AFTERSALES_TOOLS, "searchKnowledge"), query=query))["documents"] == []
    found = await returned(tool_of(LINKAGE_TOOLS, "searchKnowledge"), query="保修 退货 价格")
    assert found == {"documents": [], "bundles": []}
    catalogue = orjson.dumps(await returned(tool_of(PRODUCT_TOOLS, "searchKnowledge"), query="保修 SoundBox")).decode()
    assert "保修" not in catalogue and "SoundBox" not in catalogue


async def test_trap_T25_a_comparison_has_no_field_on_compatibility() -> None:
    models = list(data.SPECIFICATIONS)
    for one in models:
        for other in models:
            found = await returned(tool_of(PRODUCT_TOOLS, "compareProducts"), modelA=one, modelB=other)
            for key in keys_of(found):
                assert not re.search(r"compat|link|speaker|soundbox|network", key, re.IGNORECASE)


async def test_trap_T26_no_field_claims_that_two_models_can_be_compared_where_they_cannot() -> None:
    lite = data.SPECIFICATIONS["比特 S10 Lite 扫地机"]
    assert "control" not in lite and lite["appControlStatus"] == data.UNKNOWN
    done = await walk()
    findings = audit(done.sections, [fact for result in done.results.values() for fact in result.facts])

    assert findings == ()
    assert not re.search(r"Lite[^。\n]*(不支持|不能|无法|没有)[^。\n]*(App|远程)", answer_of(done))


def test_trap_T27_no_status_field_says_the_same_of_every_model() -> None:
    keys = {key for row in data.SPECIFICATIONS.values() for key in row}
    for key in keys:
        values = [row.get(key) for row in data.SPECIFICATIONS.values()]
        assert len(set(values)) > 1, key
    assert len({linkage.status for linkage in data.LINKAGES}) == len({each.app_control_status for each in data.CATALOGUE}) == 2


async def test_trap_T28_two_wordings_that_find_one_document_give_the_same_bytes_and_the_model_a_pointer() -> None:
    search = tool_of(AFTERSALES_TOOLS, "searchKnowledge")
    one, other = await returned(search, query="扫地机保修政策"), await returned(search, query="保修期限扫地机")
    assert orjson.dumps(one) == orjson.dumps(other)
    assert all("query" not in tool.output.model_fields for tool in ALL_TOOLS if tool.output is not None)

    def script(turn: Turn) -> Reply:
        wording = {1: "扫地机保修政策", 2: "保修期限扫地机"}.get(turn.round)
        return Call(("searchKnowledge", {"query": wording})) if wording else Say("好了。")

    done = await walk(scripts={"aftersales": script})
    seen = [each["text"] for each in done.inputs[2].messages if each["role"] == "tool"]
    assert "免费维修" in seen[0] and seen[1] == "与第 1 轮的返回完全相同，不再重复。"


async def test_trap_T29_linkage_learns_the_model_in_use_and_exactly_one_fact_of_aftersales() -> None:
    done = await walk()

    crossed = [name for name in done.briefs["iot"].facts if name.startswith("aftersales.")]
    assert crossed == ["aftersales.productName"]
    assert f"- productName：{IN_USE}" in done.briefs["iot"].brief.text
    assert len(done.briefs["product"].facts) == 8 and len(done.briefs["iot"].facts) == 10


async def test_trap_T30_the_model_in_use_is_offered_nowhere() -> None:
    for budget in (2000, 100_000):
        found = await returned(tool_of(PRODUCT_TOOLS, "searchKnowledge"), budget=budget, query="S10 Pro")
        assert IN_USE not in [candidate["name"] for candidate in found["candidates"]]
    linked = await returned(tool_of(LINKAGE_TOOLS, "searchKnowledge"), query="音箱")
    assert IN_USE not in [bundle["device"] for bundle in linked["bundles"]]
    assert IN_USE not in (await walk()).sections["音箱联动"]


async def test_trap_T31_an_unknown_that_a_model_rewrites_is_found_by_the_audit() -> None:
    def script(turn: Turn) -> Reply:
        reply = happy("iot")(turn)
        return Say("- 比特 S10 Lite 扫地机不支持与你的音箱联动。") if isinstance(reply, Say) else reply

    done = await walk(scripts={"iot": script})
    facts = [fact for result in done.results.values() for fact in result.facts]

    assert [finding.kind for finding in audit(done.sections, facts)] == ["unknown_rewritten"]
    assert audit((await walk()).sections, facts) == ()


@pytest.mark.parametrize(
    ("today", "warranty", "no_reason_return"),
    [
        (date(2026, 6, 21), "UNKNOWN", "UNKNOWN"),
        (date(2026, 6, 22), "IN_WARRANTY", "AVAILABLE"),
        (date(2026, 6, 29), "IN_WARRANTY", "AVAILABLE"),
        (date(2026, 6, 30), "IN_WARRANTY", "EXPIRED"),
        (date(2027, 6, 21), "IN_WARRANTY", "EXPIRED"),
        (date(2027, 6, 22), "OUT_OF_WARRANTY", "EXPIRED"),
    ],
)
async def test_trap_T32_today_is_the_teams_and_no_argument_of_a_model_changes_it(today: date, warranty: str, no_reason_return: str) -> None:
    check = tool_of(AFTERSALES_TOOLS, "checkWarranty")
    context = ToolContext(now=make_team(today=today).clock)

    found = await check.call({"orderId": "88231"}, context)

    assert (found["warrantyStatus"], found["noReasonReturnStatus"], found["asOf"]) == (warranty, no_reason_return, today.isoformat())
    assert list(check.json_schema["properties"]) == ["orderId"]


async def test_trap_T32_a_day_begins_at_midnight_where_the_shop_is() -> None:
    midnight = datetime.combine(date(2027, 6, 22), time(0, 0, 1), tzinfo=ZoneInfo("Asia/Shanghai"))
    found = await tool_of(AFTERSALES_TOOLS, "checkWarranty").call({"orderId": "88231"}, ToolContext(now=lambda: midnight))

    assert found["warrantyStatus"] == "OUT_OF_WARRANTY"


def test_the_rule_tables_are_those_of_the_data_sheet() -> None:
    assert [(rule.tool, rule.path, rule.key) for rule in AFTERSALES_RULES][:3] == [
        ("queryOrder", "orderId", "orderId"),
        ("queryOrder", "product", "productName"),
        ("queryOrder", "price", "originalPrice"),
    ]
    assert (len(AFTERSALES_RULES.rules), len(PRODUCT_RULES.rules), len(LINKAGE_RULES.rules)) == (8, 9, 4)
    assert "预算 2000 元以内" in REQUEST
