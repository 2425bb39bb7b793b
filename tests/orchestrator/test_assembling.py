"""The answer: every committed section once, every gap named, nothing else, and no model asked."""

from __future__ import annotations

import random
import re
import time
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, Literal

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from orchestrator.assembling import assemble, gaps_of, sections_in_commit_order
from orchestrator.headings import demote_headings
from orchestrator.phrases import notice
from orchestrator.scheduling import Standing, standings
from orchestrator.views import Outline, View, view_of
from schemas import fields
from schemas.blackboard import Snapshot, Stored
from schemas.frozen import Frozen
from schemas.plans import Step
from schemas.requests import AnswerRecord, Gap, PlanRecord, RequestRecord, RequestStatus, StatusRecord, StepRecord, StepState
from schemas.results import AgentResult, Failure, FailureCode, ResultStatus
from schemas.teams import TeamCard

MARKDOWN = MarkdownIt("commonmark").enable("table")
Language = Literal["en", "zh"]
LANGUAGES: tuple[Language, ...] = ("en", "zh")

DONE, PENDING, RUNNING = StepState.COMPLETED, StepState.PENDING, StepState.RUNNING
TIMEOUT = Failure(code=FailureCode.TIMEOUT, description="secret-description: no answer within 300 s")


def step(name: str, *depends_on: str, title: str | None = None, critical: bool = True) -> Step:
    given_title = title or f"Part {name.removeprefix('step-').upper()}"
    return Step(id=name, title=given_title, agent=f"agent-{name}", task="t", depends_on=depends_on, needs=(), critical=critical)


def viewed(
    steps: Sequence[Step], ends: Mapping[str, StepState | Failure], *, order: Sequence[str] = (), texts: Mapping[str, str] | None = None
) -> tuple[View, Outline, dict[str, Standing]]:
    """A full view of a request whose steps have these ends (PENDING else), committed in `order` (as listed else)."""
    stored: dict[str, Stored] = {}

    def put(name: str, record: Frozen, position: int = 1) -> None:
        stored[name] = Stored(record.to_json(), f"1.{position:06}", position, 1000 + position)

    put(fields.REQUEST, RequestRecord(id="r", tenant="t", team="team", text="x", idempotency_key="k", content_sha256="0"))
    put(fields.STATUS, StatusRecord(status=RequestStatus.RUNNING, deadline_ms=1000))
    put(fields.PLAN, PlanRecord(steps=tuple(each.id for each in steps)))
    put(fields.CARD, TeamCard(name="team", agents={}, steps=()))
    commits = [*order, *(each.id for each in steps if each.id not in order)]
    for each in steps:
        end = ends.get(each.id, PENDING)
        failure = end if isinstance(end, Failure) else None
        state = StepState.FAILED if isinstance(end, Failure) else end
        position = 10 + commits.index(each.id)
        put(fields.definition(each.id), each)
        put(fields.step(each.id), StepRecord(state=state, agent=each.agent, failure=failure), position)
        if state is DONE:
            put(fields.result(each.id), done(each.id, (texts or {}).get(each.id, f"Text of {each.title}.")), position)
    asked = frozenset({*stored, *(fields.result(each.id) for each in steps)})
    view = view_of(Snapshot("r", stored, now_ms=2000, position=99, asked=asked))
    assert view.outline is not None
    return view, view.outline, standings(view, view.outline)


def done(name: str, summary: str) -> AgentResult:
    return AgentResult(agent=f"agent-{name}", step_id=name, status=ResultStatus.COMPLETED, summary=summary)


def answered(steps: Sequence[Step], ends: Mapping[str, StepState | Failure], *, language: Language = "en", **given: Any) -> AnswerRecord:
    ended_by, cancelled = given.pop("ended_by", None), given.pop("cancelled", False)
    view, outline, standing = viewed(steps, ends, **given)
    gaps = gaps_of(view, outline, standing, ended_by=ended_by)
    return assemble(sections_in_commit_order(view, standing), outline, gaps, language=language, cancelled=cancelled)


def headings(text: str) -> list[tuple[int, str]]:
    """Level and text of every heading, wherever it stands."""
    tokens = MARKDOWN.parse(text)
    return [(int(token.tag[1]), content.content) for token, content in pairwise(tokens) if token.type == "heading_open"]


A, B, C = step("step-a"), step("step-b"), step("step-c", "step-b")


# --- sections --------------------------------------------------------------------------------------------------------


def test_invariant_8_a_whole_answer_is_its_sections_with_one_blank_line_between() -> None:
    record = answered([A, B, C], {"step-a": DONE, "step-b": DONE, "step-c": DONE}, texts={"step-a": "One.\n\nTwo.", "step-b": "\n\nB \n\n"})
    assert record.status is RequestStatus.COMPLETED
    assert record.text == "## Part A\n\nOne.\n\nTwo.\n\n## Part B\n\nB\n\n## Part C\n\nText of Part C."
    assert (record.sections, record.gaps) == (("step-a", "step-b", "step-c"), ())


@given(st.lists(st.booleans(), min_size=1, max_size=8), st.randoms())
def test_invariant_8_each_committed_section_stands_once_in_commit_order(completed: list[bool], order: random.Random) -> None:
    steps = [step(f"step-{index}") for index in range(len(completed))]
    commits = [each.id for each in steps]
    order.shuffle(commits)
    ends = {each.id: DONE if ok else TIMEOUT for each, ok in zip(steps, completed, strict=True)}
    record = answered(steps, ends, order=commits)
    expected = [name for name in commits if ends[name] is DONE]
    assert record.sections == tuple(expected)
    titles = {each.id: each.title for each in steps}
    assert headings(record.text) == [(2, titles[name]) for name in expected]
    for name, title in titles.items():
        assert record.text.count(f"Text of {title}.") == (1 if name in expected else 0)
    assert {gap.step for gap in record.gaps} == set(titles) - set(expected)
    assert "\n\n\n" not in record.text


def test_a_section_of_many_lines_stays_the_markdown_that_it_was() -> None:
    body = "First line.\n\n- one\n- two\n\n1. three\n   - four\n\n| a | b |\n| - | - |\n| 1 | 2 |\n\n> quote\n\n---\n\n**Bold**: end."
    record = answered([A], {"step-a": DONE}, texts={"step-a": body})
    assert record.text == f"## Part A\n\n{body}"  # no prefix of a list, no indentation


@pytest.mark.parametrize("body", ["", " ", "\n\n\n", " \r\n\t\r\n"])
def test_an_empty_summary_leaves_its_heading_alone(body: str) -> None:
    record = answered([A, B], {"step-a": DONE, "step-b": DONE}, texts={"step-a": body})
    assert record.text == "## Part A\n\n## Part B\n\nText of Part B."
    assert record.status is RequestStatus.COMPLETED


def test_a_title_of_several_lines_becomes_one_line() -> None:
    titled = step("step-a", title=" 售后 \n\n# 保修\u2028与\t退货 ")
    record = answered([titled, B], {"step-a": DONE, "step-b": TIMEOUT}, language="zh")
    assert record.text.startswith("## 售后 # 保修 与 退货\n\n")
    other = answered([titled, B], {"step-a": TIMEOUT, "step-b": DONE}, language="zh")
    assert "“售后 # 保修 与 退货”这一部分没有完成" in other.text


def test_what_looks_like_a_template_stays_text() -> None:
    titled = step("step-a", title="{code} {0} %s")
    record = answered([titled, B], {"step-a": TIMEOUT, "step-b": DONE}, texts={"step-b": "{title}"})
    assert "“{code} {0} %s” was not completed" in record.text
    assert "\n\n{title}\n\n" in record.text


# --- gaps and the notice ---------------------------------------------------------------------------------------------

PARTS: dict[Language, tuple[str, ...]] = {
    "en": (
        "The above is what has been finished.",
        "“Part B” was not completed:",
        "it took longer than it may (TIMEOUT).",
        "Because of it, these parts were stopped: “Part C”, “Part D”.",
        "A person has to follow up on what is open; please do not take this for the full answer.",
    ),
    "zh": (
        "以上是已经完成的部分。",
        "“Part B”这一部分没有完成：",
        "处理超过了允许的时间（TIMEOUT）。",
        "受它影响，以下部分也已停止：“Part C”、“Part D”。",
        "剩余问题需要人工跟进，请不要把目前的内容当作完整答复。",
    ),
}


@pytest.mark.parametrize("language", LANGUAGES)
def test_invariant_8_the_notice_says_its_five_parts_in_order_below_the_sections(language: Language) -> None:
    record = answered([A, B, C, step("step-d", "step-c")], {"step-a": DONE, "step-b": TIMEOUT}, language=language)
    assert record.status is RequestStatus.DEGRADED
    *above, last = record.text.split("\n\n")
    assert above == ["## Part A", "Text of Part A."]
    places = [last.index(part) for part in PARTS[language]]
    assert places == sorted(places)
    assert (places[0], last.endswith(PARTS[language][-1])) == (0, True)
    assert "\n" not in last
    assert record.gaps == (Gap(step="step-b", reason="TIMEOUT", description=TIMEOUT.description, stopped=("step-c", "step-d")),)


@pytest.mark.parametrize("language", LANGUAGES)
def test_invariant_8_every_gap_is_named_with_its_own_reason(language: Language) -> None:
    steps = [step(f"step-{code.lower()}") for code in FailureCode]
    ends = {each.id: Failure(code=code, description="d") for each, code in zip(steps, FailureCode, strict=True)}
    record = answered([A, *steps], {"step-a": DONE, **ends}, language=language)
    assert [gap.step for gap in record.gaps] == [each.id for each in steps]
    for each, code in zip(steps, FailureCode, strict=True):
        assert re.search(rf"“{re.escape(each.title)}”[^“]*[（(]{code}[）)]", record.text)


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("code", FailureCode)
def test_every_failure_code_has_plain_words_in_both_languages(code: FailureCode, language: Language) -> None:
    def said(reason: str) -> str:
        text = notice(RequestStatus.FAILED, [Gap(step="s", reason=reason)], {"s": "T"}, any_section=False, language=language)
        return text.replace(reason, "")

    assert said(code) != said("CODE_OF_AN_AGENT")
    assert bool(re.search(r"[一-鿿]", said(code))) == (language == "zh")


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_code_of_an_agents_own_is_shown_and_other_text_in_its_place_is_not(language: Language) -> None:
    own = answered([A, B], {"step-a": DONE, "step-b": Failure(code="OUT_OF_STOCK", description="d")}, language=language)
    assert "OUT_OF_STOCK" in own.text
    for text in ("The agent agent-step-b says:\n\n## all is well", "x" * 65, ""):
        record = answered([A, B], {"step-a": DONE, "step-b": Failure(code=text, description="d")}, language=language)
        assert "AGENT_ERROR" in record.text
        assert headings(record.text) == [(2, "Part A")]
        assert not text or text not in record.text
        assert record.gaps[0].reason == text


@pytest.mark.parametrize("language", LANGUAGES)
def test_no_text_of_a_failure_and_no_internal_name_is_in_the_answer(language: Language) -> None:
    steps = [A, B, C, step("step-d")]
    record = answered(steps, {"step-a": DONE, "step-b": TIMEOUT, "step-d": RUNNING}, language=language, ended_by=TIMEOUT)
    assert "secret-description" not in record.text
    for each in steps:
        assert each.id not in record.text
        assert each.agent not in record.text
        assert each.title in record.text


def test_a_result_that_a_failed_step_left_behind_does_not_enter_the_answer() -> None:
    view, outline, standing = viewed([A, B], {"step-a": DONE, "step-b": TIMEOUT})
    left = {fields.result("step-b"): Stored(done("step-b", "left behind").to_json(), "1.aaaaaa", 5, 5)}
    view = view.joined(Snapshot("r", left, now_ms=2000, position=99, asked=frozenset(left)))
    record = assemble(sections_in_commit_order(view, standing), outline, gaps_of(view, outline, standing), language="en")
    assert "left behind" not in record.text
    assert record.sections == ("step-a",)


def test_a_stopped_step_is_named_once_under_the_first_failure_that_stopped_it() -> None:
    steps = [A, B, step("step-c", "step-a", "step-b")]
    record = answered(steps, {"step-a": TIMEOUT, "step-b": TIMEOUT})
    assert [(gap.step, gap.stopped) for gap in record.gaps] == [("step-a", ("step-c",)), ("step-b", ())]
    assert record.text.count("“Part C”") == 1


def test_invariant_7_a_failure_that_is_not_critical_is_not_said_to_have_stopped_anything() -> None:
    minor = step("step-a", critical=False)
    between = step("step-m", "step-a")
    last = step("step-z", "step-a", "step-m", "step-b")
    record = answered([minor, between, B, last], {"step-a": TIMEOUT, "step-m": DONE, "step-b": TIMEOUT})
    assert [(gap.step, gap.stopped) for gap in record.gaps] == [("step-a", ()), ("step-b", ("step-z",))]


def test_when_the_request_is_ended_from_outside_what_never_ran_is_a_gap_too() -> None:
    deadline = Failure(code=FailureCode.DEADLINE, description="d")
    steps = [A, B, C, step("step-d"), step("step-e", "step-d")]
    record = answered(steps, {"step-a": DONE, "step-b": deadline}, ended_by=deadline)
    assert record.status is RequestStatus.DEGRADED
    assert [(gap.step, gap.stopped) for gap in record.gaps] == [("step-b", ("step-c",)), ("step-d", ()), ("step-e", ())]
    assert all(record.text.count(f"“{each.title}”") == 1 for each in steps[1:])


# --- status ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ends", "cancelled", "status"),
    [
        ({"step-a": DONE, "step-b": DONE}, False, RequestStatus.COMPLETED),
        ({"step-a": DONE, "step-b": TIMEOUT}, False, RequestStatus.DEGRADED),
        ({"step-a": TIMEOUT, "step-b": TIMEOUT}, False, RequestStatus.FAILED),
        ({"step-a": DONE, "step-b": DONE}, True, RequestStatus.CANCELLED),
        ({"step-a": DONE, "step-b": TIMEOUT}, True, RequestStatus.CANCELLED),
        ({}, True, RequestStatus.CANCELLED),
    ],
)
@pytest.mark.parametrize("language", LANGUAGES)
def test_the_status_follows_from_sections_and_gaps(
    ends: dict[str, StepState | Failure], cancelled: bool, status: RequestStatus, language: Language
) -> None:
    record = answered([A, B], ends, cancelled=cancelled, language=language)
    assert record.status is status
    nothing = {"en": "Nothing could be finished.", "zh": "这次没有任何一部分得以完成。"}[language]
    assert (nothing in record.text) == (DONE not in ends.values())
    assert (PARTS[language][0] in record.text) == (DONE in ends.values() and status is not RequestStatus.COMPLETED)
    assert (PARTS[language][-1] in record.text) == (status is not RequestStatus.COMPLETED)
    said = {"en": "The request was cancelled before everything was done.", "zh": "请求在全部完成之前已被取消。"}[language]
    assert (said in record.text) == cancelled


def test_a_failed_step_that_is_not_critical_is_a_gap_like_any_other() -> None:
    record = answered([A, step("step-b", critical=False)], {"step-a": DONE, "step-b": TIMEOUT})
    assert record.status is RequestStatus.DEGRADED


@pytest.mark.parametrize(
    ("language", "said"),
    [
        ("en", "The request could not be carried out: the further work that was planned could not be carried out (REFUSED_PLAN)."),
        ("zh", "这次请求无法处理：后续安排无法执行（REFUSED_PLAN）。"),
    ],
)
def test_a_request_without_a_plan_fails_with_the_reason_as_its_answer(language: Language, said: str) -> None:
    gap = Gap(step="", reason=FailureCode.REFUSED_PLAN, description="steps.0.agent: the team has no agent 'x'")
    record = assemble([], None, [gap], language=language)
    assert record.status is RequestStatus.FAILED
    assert said in record.text
    assert "steps.0" not in record.text
    assert record.text.endswith(PARTS[language][-1])


def test_the_same_board_gives_the_same_answer() -> None:
    ends: dict[str, StepState | Failure] = {"step-a": DONE, "step-b": TIMEOUT}
    assert answered([A, B, C], ends).to_json() == answered([A, B, C], ends).to_json()


# --- headings --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "shown"),
    [
        ("# one", "### one"),
        ("## two ##", "### two ##"),
        ("### three", "### three"),
        ("###### six", "###### six"),
        ("#", "###"),
        ("   # up to three spaces", "   ### up to three spaces"),
        ("#\ttab", "###\ttab"),
        ("#hashtag", "#hashtag"),
        ("####### seven", "####### seven"),
        ("\\# escaped", "\\# escaped"),
        ("    # code", "    # code"),
        ("\n\n    # code at the start", "    # code at the start"),
        ("\t# code", "\t# code"),
        ("text\n# interrupts", "text\n### interrupts"),
        ("结论\n===", "### 结论"),
        ("Two\n---", "### Two"),
        ("  Two  \n ---  ", "  ### Two"),
        ("of two\nlines\n---\nmore", "### of two lines\nmore"),
        ("**Bold**\n---", "### **Bold**"),
        ("+86 123\n---", "### +86 123"),
        ("-5 degrees\n===", "### -5 degrees"),
        ("1.5 litres\n===", "### 1.5 litres"),
        ("#hashtag\n---", "### #hashtag"),
        ("C #\n---", "### C # ###"),
        ("text\n\n---\n\nmore", "text\n\n---\n\nmore"),
        ("---\ntext", "---\ntext"),
        ("***\n___", "***\n___"),
        ("- item\n---", "- item\n---"),
        ("- item\nlazy\n---", "- item\nlazy\n---"),
        ("1. item\n---", "1. item\n---"),
        ("> quote\n---", "> quote\n---"),
        ("# one\n---", "### one\n---"),
        ("text\n- - -", "text\n- - -"),
        ("===", "==="),
        ("| a | b |\n|---|---|\n| 1 | 2 |\n\n---", "| a | b |\n|---|---|\n| 1 | 2 |\n\n---"),
        ("a | b\n--- | ---\n1 | 2", "a | b\n--- | ---\n1 | 2"),
        ("a | b\n--- | ---\n1 | 2\n---", "a | b\n--- | ---\n1 | 2\n---"),
        ("- # in a list", "- ### in a list"),
        ("- a\n  ---", "- ### a"),
        ("> # in a quote", "> ### in a quote"),
        ("> of two\n> lines\n> ===", "> ### of two lines"),
        ("1. > ## both", "1. > ### both"),
        ("```sh\n# comment\ntext\n---\n```\n# after", "```sh\n# comment\ntext\n---\n```\n### after"),
        ("~~~\n# comment\n```\n# comment\n~~~\n# after", "~~~\n# comment\n```\n# comment\n~~~\n### after"),
        ("````\n```\n# comment\n````\n# after", "````\n```\n# comment\n````\n### after"),
        ("```\n```sh\n# still code\n```\n# after", "```\n```sh\n# still code\n```\n### after"),
        ("``` not `a` fence\n# after", "``` not `a` fence\n### after"),
        ("- ```\n  # comment\n  ```\n\n# after", "- ```\n  # comment\n  ```\n\n### after"),
        (
            "1. step\n\n   ```sh\n   # comment\n   ```\n2. next\n\n## after",
            "1. step\n\n   ```sh\n   # comment\n   ```\n2. next\n\n### after",
        ),
        ("<!--\n# comment\n-->\n\n# after", "<!--\n# comment\n-->\n\n### after"),
        ("one\r\n===\r\n\r\ntwo\r# three", "### one\n\ntwo\n### three"),
        ("a\u2028# no line of its own\x0b# nor this\x85# nor this", "a\u2028# no line of its own\x0b# nor this\x85# nor this"),
    ],
)
def test_headings_of_level_1_and_2_become_level_3_and_nothing_else_changes(body: str, shown: str) -> None:
    assert demote_headings(body) == shown


@pytest.mark.parametrize(
    ("body", "end"),
    [
        ("```sh\n# comment", "```"),
        ("text\n~~~~\ncode\n~~~", "~~~~"),
        ("```", "```"),
        ("text <b>\n\n<!-- note", "-->"),
        ("<PRE>\nx", "</pre>"),
        ("<script>\n\n1", "</script>"),
        ("<![CDATA[ x", "]]>"),
    ],
)
def test_invariant_8_what_a_section_leaves_open_does_not_swallow_what_follows(body: str, end: str) -> None:
    steps = [A, B, C]
    record = answered(steps, {"step-a": DONE, "step-b": DONE, "step-c": TIMEOUT}, texts={"step-a": body, "step-b": body})
    assert record.text.startswith(f"## Part A\n\n{body}\n{end}\n\n## Part B\n\n{body}\n{end}\n\n")
    assert headings(record.text) == [(2, "Part A"), (2, "Part B")]
    last = MARKDOWN.parse(record.text)[-2]
    assert last.type == "inline"
    assert last.content.startswith("The above is")


FRAGMENTS = ["# one", "## two", "### three", "#", "#hash", "   ## x", "    # code", "text", "标题", "**bold**", "+86 123", "C #", "a\\"]
FRAGMENTS += ["===", "---", "--", "-", "***", "- - -", "  ===", "- item", "1. item", "  nested", "- # in list", "> quote", "> ---"]
FRAGMENTS += ["> # in quote", "> - # both", "```", "```sh", "~~~", "````", "  ```", "- ```", "# comment", "\x0b# vt", "x\u2028# ls"]
FRAGMENTS += ["| a | b |", "|---|---|", "a | b", "--- | ---", "[a]: http://x", "<div>", "</div>", "<b>", "", "", "", ""]


def blocks(text: str) -> list[tuple[str, str, str]]:
    """What a reader sees, block by block, with headings of level 1 and 2 taken for level 3."""
    lowered = {"h1": "h3", "h2": "h3"}
    return [(token.type, lowered.get(token.tag, token.tag), " ".join(token.content.split())) for token in MARKDOWN.parse(text)]


@settings(max_examples=300)
@given(st.lists(st.sampled_from(FRAGMENTS), max_size=9).map("\n".join))
@example("- item\n\n  ```\n  # comment")
@example("\x0b# vt\n---")
@example("a | b\n===\n|---|---|")
def test_any_body_reads_as_before_except_for_the_level_of_its_headings(body: str) -> None:
    shown = demote_headings(body)
    assert blocks(shown) == blocks(body)
    assert all(level >= 3 for level, _ in headings(shown))
    assert demote_headings(shown) == shown
    assert headings(f"## Above\n\n{shown}\n\n## Below")[-1] == (2, "Below")


@pytest.mark.parametrize(
    "body", ["# a\n" * 15_000, ">" * 60_000, "- " * 30_000, "[" * 60_000, "```\n" * 15_001, "a\n=\n" * 15_000], ids=range(6)
)
def test_the_longest_bodies_are_read_in_good_time(body: str) -> None:
    began = time.process_time()
    demote_headings(body)
    assert time.process_time() - began < 10  # it is well below a second; reading in quadratic time would take minutes
