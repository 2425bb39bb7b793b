"""The audit bites: on boards and briefs that were doctored so that they show what must never be, each is found and named."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from ops import auditing
from ops.auditing import Audit, audit
from ops.brief_checks import Found, Given, Kind, check_brief
from ops.deciding import attempts_of
from ops.embedded import embedded
from ops.reporting import Report, report
from schemas import fields
from schemas.blackboard import Event
from schemas.briefs import Brief, LineOrigin, Manifest
from schemas.facts import Fact
from schemas.frozen import Scalar
from schemas.gate import Outcome, Reason
from schemas.plans import Step
from schemas.results import AgentResult
from tests.system.cast import Act, Cast, fails, step, told
from workers.agents.agent import AgentBrief
from workers.agents.blackbox import BlackBox
from workers.phrases import ZH
from workers.team import Team

ENGLISH = "The customer sounded angry and will leave us soon."
CHINESE = "用户语气不满，估计很快就会转到别家去买。"
PROSE = f"{ENGLISH} {CHINESE}"


def says(summary: str = PROSE, **facts: Scalar) -> Act:
    """Answer with this text and these facts."""

    async def act(brief: AgentBrief) -> object:
        return told(brief, summary, **facts)

    return act


async def run(*steps: dict[str, Any], acts: dict[str, Act] | None = None, **options: Any) -> tuple[Report, Team]:
    """A request through a team, and the team."""
    team = Cast({"a": says(finding=7, colour="deep sea blue"), **(acts or {})}).team(*steps, **options)
    async with embedded(team) as runtime:
        return await runtime.ask("Please look."), team


def doctored(shown: Report, name: str, change: Callable[[Any], Any], record: type[Any]) -> Report:
    """The report of a board on which one field had been written otherwise from the start."""

    def put(event: Event) -> Event:
        if name not in event.put:
            return event
        version, value = event.put[name]
        return replace(event, put={**event.put, name: (version, change(record.from_json(value)).to_json())})

    return report(shown.request_id, [put(each) for each in shown.events])


def kinds(found: Audit | list[Found]) -> set[str]:
    """What was found, by name."""
    return {each.kind.value for each in (found.found if isinstance(found, Audit) else found)}


async def given(*steps: dict[str, Any], of: str = "b", acts: dict[str, Act] | None = None, **options: Any) -> Given:
    """The brief of a step as it was given, and what the board said."""
    shown, team = await run(*steps, acts=acts, **options)
    made = auditing._given(
        shown, next(each for each in attempts_of(shown.events) if each.step == of), team, {each.id: each for each in team.steps}
    )
    assert isinstance(made, Given)
    assert list(check_brief(made)) == []
    return made


def with_line(given: Given, line_of: LineOrigin, text: str, **manifest: Any) -> Given:
    """The same brief, whose first line of an origin reads otherwise, in its text or in its manifest."""
    number = next(line.line for line in given.brief.manifest.lines if line.origin is line_of)
    lines = given.lines
    lines[number - 1] = text or lines[number - 1]
    told = [line.model_copy(update=manifest) if line.line == number else line for line in given.brief.manifest.lines]
    brief = given.brief.model_copy(
        update={"text": "\n".join(lines), "manifest": given.brief.manifest.model_copy(update={"lines": tuple(told)})}
    )
    return replace(given, brief=brief)


class TestNothingIsFound:
    async def test_where_everything_was_declared(self) -> None:
        shown, team = await run(step("a"), step("b", "a"), step("c", "a", "b", share_summary=True))
        audited = audit(shown, team)
        assert audited.passed, audited
        assert (audited.briefs, audited.sections, audited.values) == (3, 3, 4)
        assert audited.lines == sum(len(each.brief.text.split("\n")) for each in shown.briefs)

    async def test_where_a_step_was_retried_failed_or_was_skipped(self) -> None:
        acts = {"b": fails(times=1, retryable=True), "c": fails()}
        shown, team = await run(step("a"), step("b", "a", max_attempts=1), step("c", "a"), step("d", "c"), acts=acts)
        audited = audit(shown, team)
        assert audited.passed, audited

    async def test_where_one_agent_says_the_same_key_of_two_things(self) -> None:
        shown, team = await run(step("a"), step("b"), acts={"b": says(finding=8)})
        assert audit(shown, team).passed

    async def test_where_a_fixed_task_is_quoted_by_another_agent(self) -> None:
        task = "Do this part, and say whether the customer will stay with us."
        shown, team = await run(step("a"), step("b", "a", task=task), acts={"a": says(f"{task} That is for others.", finding=7)})
        assert audit(shown, team).passed


class TestTextThatLeaked:
    @pytest.mark.parametrize("text", [ENGLISH, CHINESE, ENGLISH.upper(), CHINESE[7:]])
    @pytest.mark.parametrize("origin", [LineOrigin.TASK, LineOrigin.RULE, LineOrigin.REQUEST, LineOrigin.HEADING])
    async def test_is_found_by_its_words_wherever_the_manifest_says_it_comes_from(self, origin: LineOrigin, text: str) -> None:
        made = with_line(await given(step("a"), step("b", "a")), origin, text)
        assert "leaked_text" in kinds(list(check_brief(made)))

    async def test_is_found_in_a_line_of_gaps_which_has_no_other_check(self) -> None:
        made = with_line(
            await given(step("a", critical=False), step("b", "a", needs=("a.finding", "a.size?"))), LineOrigin.GAP, f"- {ENGLISH}"
        )
        (found,) = check_brief(made)
        assert (found.kind, found.step) == (Kind.LEAKED_TEXT, "b")
        assert "words of a" in found.what and "customer sounded angry" in found.what

    async def test_is_found_on_a_board_whose_definition_was_written_over(self) -> None:
        shown, team = await run(step("a"), step("b", "a"))
        other = doctored(shown, fields.definition("b"), lambda each: each.model_copy(update={"task": f"Do it. {CHINESE}"}), Step)
        audited = audit(other, team)
        assert "leaked_text" in kinds(audited)
        assert any("not as it was given" in said for said in audited.unchecked)

    async def test_of_a_step_that_is_no_input_is_found_as_well(self) -> None:
        made = await given(step("a"), step("x"), step("b", "x", "a", needs=("x.finding",)))
        assert "leaked_text" in kinds(list(check_brief(with_line(made, LineOrigin.TASK, ENGLISH))))

    async def test_a_text_fact_that_was_not_declared_is_found(self) -> None:
        long = "a deep blue like that of the winter sea"
        made = await given(step("a"), step("b", "a", needs=("a.finding",)), acts={"a": says(finding=7, colour=long)})
        assert "leaked_text" in kinds(list(check_brief(with_line(made, LineOrigin.TASK, f"Do it in {long}."))))


class TestAManifestThatLies:
    async def test_a_line_of_another_origin_is_found(self) -> None:
        made = await given(step("a"), step("b", "a"))
        for origin in (LineOrigin.RULE, LineOrigin.TASK, LineOrigin.REQUEST, LineOrigin.HEADING, LineOrigin.CONSTRAINT):
            assert "wrong_origin" in kinds(list(check_brief(with_line(made, LineOrigin.FACT, "", origin=origin)))), origin

    async def test_a_line_of_another_version_is_found(self) -> None:
        made = with_line(await given(step("a"), step("b", "a")), LineOrigin.FACT, "", version="9.other")
        (found,) = check_brief(made)
        assert found.kind is Kind.WRONG_ORIGIN and "9.other" in found.what and found.line is not None

    async def test_a_line_of_another_step_is_found_as_undeclared(self) -> None:
        made = with_line(await given(step("a"), step("x"), step("b", "a", "x", needs=("a.finding",))), LineOrigin.FACT, "", step="x")
        assert "undeclared" in kinds(list(check_brief(made)))

    async def test_text_of_a_step_that_was_not_asked_for_is_found(self) -> None:
        made = with_line(await given(step("a"), step("b", "a")), LineOrigin.FACT, f"> {ENGLISH}", origin=LineOrigin.SUMMARY)
        assert {"undeclared", "leaked_text"} <= kinds(list(check_brief(made)))

    async def test_a_text_with_a_line_too_many_is_found(self) -> None:
        made = await given(step("a"), step("b", "a"))
        brief = made.brief.model_copy(update={"text": made.brief.text + "\nand more"})
        assert "wrong_origin" in kinds(list(check_brief(replace(made, brief=brief))))


class TestAValueTheBoardDoesNotHave:
    @pytest.mark.parametrize("text", ["- finding: 8", "- finding: 77", "- finding: 7.5", "- other: 7", "finding: 7"])
    async def test_is_found(self, text: str) -> None:
        made = with_line(await given(step("a"), step("b", "a")), LineOrigin.FACT, text)
        assert "not_on_the_board" in kinds(list(check_brief(made)))

    async def test_a_key_that_no_result_has_is_found(self) -> None:
        made = with_line(await given(step("a"), step("b", "a")), LineOrigin.FACT, "- size: 7", key="size")
        assert "not_on_the_board" in kinds(list(check_brief(made)))

    async def test_a_value_that_the_gate_had_blocked_is_found(self) -> None:
        made = await given(step("a"), step("b", "a"))
        stale = {"outcome": Outcome.BLOCK, "reason": Reason.STALE}
        blocked = [replace(each, crossing=each.crossing.model_copy(update=stale)) for each in made.weighed]
        assert "undeclared" in kinds(list(check_brief(replace(made, weighed=blocked))))


class TestWhatDidNotArrive:
    async def test_a_need_that_stands_nowhere_in_the_brief_is_found(self) -> None:
        made = await given(step("a"), step("b", "a", needs=("a.finding",)))
        lines = [line for line in made.brief.manifest.lines if line.origin is not LineOrigin.FACT]
        text = [made.lines[line.line - 1] for line in lines]
        manifest = Manifest.model_validate(
            {**made.brief.manifest.model_dump(), "lines": [{**each.model_dump(), "line": number} for number, each in enumerate(lines, 1)]}
        )
        brief = Brief(step_id="b", text="\n".join(text), manifest=manifest, position=made.brief.position)
        (found,) = check_brief(replace(made, brief=brief))
        assert found == Found(Kind.NOT_ARRIVED, "b", "needs a.finding, and nothing of it stands in the brief")

    async def test_a_result_without_what_it_had_to_bring_is_found(self) -> None:
        shown, team = await run(step("a", expects=("finding",)))
        other = doctored(shown, fields.result("a"), lambda each: each.model_copy(update={"facts": ()}), AgentResult)
        assert kinds(audit(other, team)) == {"not_arrived"}

    async def test_a_brief_that_carried_what_was_not_declared_is_found_by_what_its_result_says(self) -> None:
        shown, team = await run(step("a"), step("b", "a", needs=("a.finding",)))

        def reading(result: AgentResult) -> AgentResult:
            assert result.made_with is not None
            reads = {**result.made_with.reads, "a.colour": result.made_with.reads["a.finding"]}
            return result.model_copy(update={"made_with": result.made_with.model_copy(update={"reads": reads})})

        assert "undeclared" in kinds(audit(doctored(shown, fields.result("b"), reading, AgentResult), team))


class TestSectionsThatDiffer:
    async def test_two_agents_that_say_different_values_of_one_key_are_found(self) -> None:
        async def other(brief: AgentBrief) -> object:
            return told(brief, finding=9)

        agents = [BlackBox("other", other, facts=("finding",))]
        shown, team = await run(step("a"), step("b", agent="other"), agents=agents)
        (found,) = audit(shown, team).found
        assert (found.kind, found.step) == (Kind.SECTIONS_DIFFER, "b")
        assert "finding = 9" in found.what and "7" in found.what

    @pytest.mark.parametrize("text", ["The finding is 8.", "finding: 1,007", "**finding**：8 件", "finding 是 70"])
    async def test_a_section_that_states_another_value_than_the_fact_is_found(self, text: str) -> None:
        shown, team = await run(step("a"), step("b", "a"), acts={"b": says(text, size=1)})
        assert kinds(audit(shown, team)) == {"sections_differ"}

    @pytest.mark.parametrize(
        "text",
        ["The finding is 7.", "finding：7 件", "colour: sea blue", "The finding is clear.", "No finding.", "colour is `Deep Sea Blue`"],
    )
    async def test_a_section_that_states_the_value_is_none(self, text: str) -> None:
        shown, team = await run(step("a"), step("b", "a"), acts={"b": says(text, size=1)})
        assert audit(shown, team).passed

    async def test_a_section_written_with_a_value_that_has_changed_since_is_found(self) -> None:
        shown, team = await run(step("a"), step("b", "a"))
        (last,) = [each for each in shown.events if fields.result("b") in each.put]

        def changed(result: AgentResult) -> AgentResult:
            return result.model_copy(update={"facts": tuple(_eight(fact) for fact in result.facts)})

        first = next(each for each in shown.events if fields.result("a") in each.put)
        _, value = first.put[fields.result("a")]
        later = ("2.later", changed(AgentResult.from_json(value)).to_json())
        again = replace(last, position=last.position + 100, put={fields.result("a"): later})
        audited = audit(report(shown.request_id, [*shown.events, again]), team)
        assert any(each.kind is Kind.SECTIONS_DIFFER and "another a.finding" in each.what for each in audited.found)


class TestWhatCannotBeChecked:
    async def test_a_brief_whose_team_has_changed_is_said_and_not_passed(self) -> None:
        shown, team = await run(step("a"))
        other = Team(team.name, list(team.agents.values()), team.steps, phrases=ZH)
        audited = audit(shown, other)
        assert not audited.passed and not audited.found
        assert audited.unchecked == ("a at event 3: its brief is not as it was given; the team has changed since",)


def _eight(fact: Fact) -> Fact:
    return fact.model_copy(update={"value": 8}) if fact.key == "finding" else fact
