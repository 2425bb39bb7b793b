"""A rehearsal of a replay: what would run again, and what is different since the failed attempt."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from ops.dead_letters import Comparison, FactChange, Rehearsal, rehearse
from ops.embedded import Runtime, embedded
from schemas.errors import NotFound
from schemas.results import AgentResult
from tests.system.cast import FACTS, Cast, Gate, fails, step, told
from workers.agents.agent import AgentBrief
from workers.agents.blackbox import BlackBox
from workers.phrases import ZH
from workers.team import Team
from workers.teams.bitmall.demo import REQUEST
from workers.teams.bitmall.team import make_team

SAME, CHANGED, UNKNOWN = Comparison.SAME, Comparison.CHANGED, Comparison.UNKNOWN


@asynccontextmanager
async def ended(cast: Cast, *steps: dict[str, Any]) -> AsyncIterator[tuple[Runtime, str]]:
    """A request of these steps that is over."""
    async with embedded(cast.team(*steps)) as runtime:
        yield runtime, (await runtime.ask("Please.")).request_id


async def rehearsed(runtime: Runtime, request_id: str, step_id: str, team: Team | None = None, together: tuple[str, ...] = ()) -> Rehearsal:
    """Rehearse with the runtime's team, or another one."""
    return rehearse(request_id, await runtime.events(request_id), step_id, team or runtime.team, together)


async def test_what_a_failure_stopped_runs_again_and_what_another_failure_stops_does_not() -> None:
    cast = Cast({"a": fails(), "b": fails()})
    steps = (step("a"), step("b"), step("c", "a"), step("d", "c", "b"), step("e", "b"), step("f"))
    async with ended(cast, *steps) as (runtime, request_id):
        alone = await rehearsed(runtime, request_id, "a")
        both = await rehearsed(runtime, request_id, "a", together=("a", "b"))
        assert (alone.runs_again, alone.still_stopped) == (("a", "c"), ("d",))
        assert (both.runs_again, both.still_stopped) == (("a", "c", "d"), ())
        cast.acts = {}
        await runtime.replay(request_id, "a")
        again = await runtime.result(request_id)
        assert {each for each, runs in cast.runs.items() if runs == 2 or each == "c"} == {"a", "c"}, "as it was said"
        assert again.step("d").state == "SKIPPED"


async def test_a_failure_that_is_not_critical_runs_again_alone() -> None:
    async with ended(Cast({"a": fails()}), step("a", critical=False), step("b", "a", needs=["a.finding?"])) as (runtime, request_id):
        assert (await rehearsed(runtime, request_id, "a")).runs_again == ("a",)


async def test_nothing_has_changed_where_nothing_has_changed_also_where_an_error_left_no_result() -> None:
    async with ended(Cast({"b": fails()}), step("a"), step("b", "a")) as (runtime, request_id):
        assert (await runtime.show(request_id)).step("b").result is None
        said = await rehearsed(runtime, request_id, "b")
    assert (said.brief, said.facts, said.notes) == (SAME, (), ())
    assert dict(said.made_with) == {"persona": SAME, "model": SAME, "tools": SAME, "rules": SAME, "team": SAME}


async def test_a_fact_that_a_replayed_input_gives_now_is_named_with_before_and_now() -> None:
    cast = Cast({"a": fails(), "b": fails()})
    async with ended(cast, step("a", critical=False), step("b", "a", needs=["a.finding?", "a.size?"])) as (runtime, request_id):
        before = await rehearsed(runtime, request_id, "b", together=("a", "b"))
        assert before.facts == () and before.notes == ("its inputs are replayed too: a",)

        async def measures(brief: AgentBrief) -> AgentResult:
            return told(brief, finding=7, size=True)

        cast.acts["a"] = measures
        await runtime.replay(request_id, "a")
        await runtime.wait(request_id)
        now = await rehearsed(runtime, request_id, "b")
    assert now.brief is CHANGED
    assert now.facts == (FactChange("a.finding", None, 7), FactChange("a.size", None, True))


async def test_a_brief_that_could_not_be_built_and_now_can_is_told_apart() -> None:
    cast = Cast({"a": fails()})
    async with ended(cast, step("a", critical=False), step("b", "a", needs=["a.finding"])) as (runtime, request_id):
        stuck = await rehearsed(runtime, request_id, "b")
        assert stuck.brief is SAME and "MISSING_FACT" in stuck.notes[0] and "none can now" in stuck.notes[0]
        cast.acts = {}
        await runtime.replay(request_id, "a")
        await runtime.wait(request_id)
        freed = await rehearsed(runtime, request_id, "b")
    assert freed.brief is CHANGED and "it can be now" in freed.notes[0]


async def test_other_wording_and_another_agent_are_seen_by_their_hashes_and_an_agent_that_is_gone_too() -> None:
    cast = Cast({"a": fails()})
    async with ended(cast, step("a")) as (runtime, request_id):
        worded = await rehearsed(runtime, request_id, "a", cast.team(step("a"), phrases=ZH))
        assert worded.brief is CHANGED and worded.facts == ()
        assert worded.notes == ("the code that words the brief has changed since",)
        gone = await rehearsed(
            runtime, request_id, "a", Team("stage", [BlackBox("foot", cast.play, facts=FACTS)], [{**step("a"), "agent": "foot"}])
        )
        assert set(gone.made_with.values()) == {CHANGED}


async def test_only_the_model_is_named_where_only_the_model_is_another() -> None:
    async with embedded(make_team(scenario="product-stuck")) as runtime:
        report = await runtime.ask(REQUEST)
        said = await rehearsed(runtime, report.request_id, "product", make_team())
    assert said.runs_again == ("product", "iot")
    assert (said.brief, said.facts) == (SAME, ())
    assert {name for name, comparison in said.made_with.items() if comparison is CHANGED} == {"model", "team"}


async def test_without_the_code_or_without_a_claim_it_says_unknown_and_never_same() -> None:
    async with ended(Cast({"a": fails()}), step("a")) as (runtime, request_id):
        blind = rehearse(request_id, await runtime.events(request_id), "a", None)
        assert (blind.brief, blind.facts, set(blind.made_with.values())) == (UNKNOWN, None, {UNKNOWN})
        assert blind.runs_again == ("a",)
    gate = Gate()
    async with embedded(Cast({"a": gate}).team(step("a"), step("b"), agents=()), concurrency=1) as runtime:
        report = await runtime.ask("Please.", deadline_seconds=0.3)
        never = [
            each
            for each in ("a", "b")
            if not any(event.labels.get("step") == each for event in report.events if "claimed" in str(event.labels))
        ]
        for each in never:
            said = await rehearsed(runtime, report.request_id, each)
            assert (said.brief, said.facts) == (UNKNOWN, None) and "nobody had taken the step" in said.notes[0]
        assert never, "one place, two ready steps: one was never claimed"
        gate.opened.set()


async def test_an_older_epochs_result_is_never_taken_for_the_failed_attempt() -> None:
    cast = Cast()

    async def says_that_it_failed(brief: AgentBrief) -> AgentResult:
        return told(brief).model_copy(update={"facts": ()})

    cast.acts["a"] = says_that_it_failed
    async with ended(cast, step("a", expects=["finding"])) as (runtime, request_id):
        first = await runtime.show(request_id)
        assert first.step("a").result is not None
        cast.acts["a"] = fails()
        await runtime.replay(request_id, "a")
        await runtime.wait(request_id)
        events = await runtime.events(request_id)
        claims = [event.position for event in events if event.labels.get("event") == "step_claimed"]
        briefs = (await runtime.show(request_id)).briefs
        assert [each.brief.position for each in briefs] == claims[-1:]
        said = await rehearsed(runtime, request_id, "a")
    assert (said.brief, said.facts) == (SAME, ())


async def test_an_unknown_request_or_step_is_refused() -> None:
    async with ended(Cast({"a": fails()}), step("a")) as (runtime, request_id):
        with pytest.raises(NotFound, match="no step 'z'"):
            await rehearsed(runtime, request_id, "z")
        with pytest.raises(NotFound, match="no request"):
            rehearse("nobody", [], "a", None)
