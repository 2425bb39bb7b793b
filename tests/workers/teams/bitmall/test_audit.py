"""The audit: it finds what contradicts a fact or another section, and leaves right sentences alone."""

from __future__ import annotations

import pytest

from schemas.facts import Fact, Provenance
from workers.teams.bitmall.audit import audit


def facts(**values: str) -> list[Fact]:
    """Facts with these values."""
    return [Fact(key=key, value=value, provenance=Provenance(step="s", tool="t", call_id="c", path="p")) for key, value in values.items()]


KNOWN = facts(
    productName="比特 S10 Pro 扫地机",
    warrantyStatus="IN_WARRANTY",
    candidateB="比特 S10 Lite 扫地机",
    candidateBAppControlStatus="UNKNOWN",
    linkADevice="比特 S11 Pro 扫地机",
    linkAStatus="SUPPORTED",
    linkBDevice="比特 S10 Lite 扫地机",
    linkBStatus="UNKNOWN",
)


@pytest.mark.parametrize(
    "text",
    [
        "S10 Lite 不能通过 App 远程操控。",
        "比特 S10 Lite 扫地机没有 App 控制。",
        "比特 S10 Lite 扫地机支持 App 控制。",
        "S10 Lite 无法与音箱联动。",
        "S10 Lite 可以与 SoundBox Mini 联动。",
    ],
)
def test_an_unknown_that_became_yes_or_no_is_found(text: str) -> None:
    assert [finding.kind for finding in audit({"换新候选": text}, KNOWN)] == ["unknown_rewritten"]


@pytest.mark.parametrize("text", ["S11 Pro 不支持与音箱联动。", "S10 Pro 已过保修期。", "S11 Pro 与音箱的联动未知。"])
def test_a_known_status_that_is_denied_is_found(text: str) -> None:
    assert [finding.kind for finding in audit({"一节": text}, KNOWN)] == ["against_fact"]


@pytest.mark.parametrize(
    "text",
    [
        "比特 S11 Pro 扫地机明确支持与你的音箱联动。",
        "S10 Lite 的 App 控制状态未知。",
        "S10 Lite 与音箱的联动情况未知，清单标明尚未测试。",
        "比特 S10 Pro 扫地机在保修期内。",
        "S10 Lite 售价 1299 元。",
        "| App 控制状态 | 支持 | 未知 |",
        "",
    ],
)
def test_a_sentence_that_says_what_the_fact_says_is_left_alone(text: str) -> None:
    assert audit({"一节": text}, KNOWN) == ()


def test_two_sections_that_contradict_each_other_are_found_without_any_fact() -> None:
    sections = {"换新候选": "S11 Pro 与音箱的联动情况不确定。", "音箱联动": "S11 Pro 明确支持与音箱联动。"}
    findings = audit(sections, [])

    assert [finding.kind for finding in findings] == ["sections_conflict"]
    assert findings[0].claim.section == "音箱联动" and "不确定" in findings[0].against


def test_one_section_is_not_held_against_itself() -> None:
    assert audit({"音箱联动": "S11 Pro 支持与音箱联动。它曾经不支持，S11 Pro 与音箱联动的旧资料未知。"}, []) == ()
