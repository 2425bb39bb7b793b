"""What a brief saves, counted anew by the runtime's own estimate, so that what the documents say cannot rot."""

from __future__ import annotations

import asyncio
import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from ops.bench.context_picture import picture
from ops.bench.context_tables import Measured, chains_table, left_table, measure, saved, steps_table
from ops.bench.passing import CHAINS, Way, summary
from ops.bench.surviving import FIXED, STATEMENTS, itinerary, survival, within
from ops.rendering import console
from workers.teams.trip.audit import audit
from workers.tokens import estimate

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def measured() -> Measured:
    """Once for all tests of this file."""
    return asyncio.run(measure(estimate))


def test_briefs_hand_on_at_least_nine_tenths_less_than_the_whole_history(measured: Measured) -> None:
    history, briefs = Way.HISTORY, Way.BRIEFS
    assert measured.last(history) > 35_000 and measured.last(briefs) < 2_000
    for what in (measured.last, measured.handed, measured.calls):
        assert saved(what(history), what(briefs)) >= 0.9, what
    assert [each.step for each in measured.steps[briefs]] == ["requirements", "spots", "hotels", "final"]


def test_every_constraint_stands_in_the_last_brief_and_is_kept_and_a_source_can_be_quoted(measured: Measured) -> None:
    brief = measured.left_by(Way.BRIEFS)
    assert brief.quotable and len(brief.of) == 4 and all(each.stands and each.kept for each in brief.of.values())


def test_the_history_has_every_constraint_far_from_its_end_and_its_end_has_not(measured: Measured) -> None:
    whole, end = (each for each in measured.left if each.way is Way.HISTORY)
    assert all(each.stands and each.kept for each in whole.of.values())
    child = whole.of["traveler"].before_end
    assert child is not None and child > 35_000
    assert end.tokens <= 8_000 and not end.of["traveler"].stands and not end.of["traveler"].kept


def test_a_summary_loses_the_source_and_a_short_one_the_constraints(measured: Measured) -> None:
    long, short = (each for each in measured.left if each.way is Way.SUMMARIES)
    assert all(each.kept for each in long.of.values()) and not long.quotable
    assert not short.of["traveler"].kept and not short.quotable


def test_history_grows_with_the_square_of_the_steps_and_briefs_with_their_number(measured: Measured) -> None:
    assert [each.steps for each in measured.chains] == list(CHAINS) == list(range(2, 13))
    history, briefs = measured.growth
    assert history > 4 and briefs < 2.3
    steps = [after.briefs - before.briefs for before, after in zip(measured.chains, measured.chains[1:], strict=False)]
    assert max(steps) - min(steps) < 20, "each further step costs the same"


def test_tables_and_picture_say_the_same_figures(measured: Measured) -> None:
    out = console()
    with out.capture() as captured:
        for table in (steps_table(measured), left_table(measured), chains_table(measured)):
            out.print(table, width=160)
    drawn = picture(measured, "an estimate")
    assert ElementTree.fromstring(drawn).tag.endswith("svg")
    for figure in (measured.last(Way.HISTORY), measured.last(Way.BRIEFS), measured.chains[-1].history, measured.chains[-1].briefs):
        assert f"{figure:,}" in captured.get() and f"{figure:,}" in drawn


def test_the_readme_quotes_the_figures_of_the_picture() -> None:
    described = (ROOT / "docs" / "pictures" / "context.svg").read_text(encoding="utf-8")
    section = (ROOT / "README.md").read_text(encoding="utf-8").partition("## What a brief saves")[2].partition("\n## ")[0]
    figures = re.findall(r"\d{1,3}(?:,\d{3})+|\d+\.\d %", section)
    assert len(figures) >= 6
    assert not [each for each in figures if each.replace(" %", "%") not in described and each != "8,000"]


@pytest.mark.parametrize("name", STATEMENTS)
def test_an_answer_from_a_text_without_a_constraint_breaks_it_and_no_other(name: str) -> None:
    stated = {"days": "天数：3 天", "budget": "总预算：20000 元", "traveler": "出行人：亲子", "destination": "目的地：东京"}
    listed = "- 上野森林动物园（上野），门票合计 120 元"
    everything = "\n".join((listed, *stated.values()))
    assert all(each.kept and each.stands for each in survival(everything, estimate).values())
    without = survival(everything.replace(stated[name], ""), estimate)
    assert [each for each, found in without.items() if not found.kept] == [name] == [each for each in without if not without[each].stands]


def test_the_scripted_answer_keeps_to_what_the_text_lists() -> None:
    text = (
        "3 天东京亲子游，预算 2 万元\n- 上野森林动物园（上野），门票合计 120 元\n- 浅草川畔酒店（浅草），双床加沙发床房，2 晚合计 3960 元"
    )
    answer = itinerary(text)
    rows = [{"name": "上野森林动物园", "cost": 120}, {"name": "浅草川畔酒店", "cost": 3_960}]
    assert audit(answer, FIXED, rows) == ()


def test_a_summary_drops_its_oldest_sentences_and_stays_within_its_limit() -> None:
    kept = summary(["第一句话在这里。第二句话在这里。", "第三句话在这里。"], estimate, 18)
    assert "第一句" not in kept and "第三句" in kept and estimate(kept) <= 18


def test_the_end_of_a_text_is_as_long_as_its_limit_allows() -> None:
    text = "一二三四五六七八九十"
    assert within(text, estimate, 4) == "七八九十" and within(text, estimate, 40) == text
