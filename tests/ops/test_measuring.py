"""The metrics of the boundary: each by a request made for it, with parts and wholes that can be counted by hand."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from ops.embedded import embedded
from ops.measuring import measure
from ops.metrics import FORMULAS, Measure, Metrics, Price, together
from ops.reporting import Report, report
from ops.using import use_of
from schemas import fields
from schemas.blackboard import Event
from schemas.boundary import AbsorbedRecord
from schemas.facts import Fact, Provenance
from schemas.packets import Control, Evidence, Kind, Packet
from schemas.results import AgentResult, ReadOf, ResultStatus, Usage
from schemas.shared import FieldChange, FieldRecord, Operation
from tests.system.cast import Act, Cast, fact, fails, step, told
from workers.agents.agent import AgentBrief


def says(summary: str, usage: Usage | None = None, **facts: Any) -> Act:
    """Answer with this text, these facts and this usage."""

    async def act(brief: AgentBrief) -> object:
        return told(brief, summary, **facts).model_copy(update={"usage": usage or Usage()})

    return act


async def run(*steps: dict[str, Any], replay: str = "", **acts: Act) -> Report:
    """A request through these steps; with `replay`, once more from a step that had failed."""
    async with embedded(Cast(acts).team(*steps)) as runtime:
        shown = await runtime.ask("Please look at order 88231.")
        if replay:
            await runtime.replay(shown.request_id, replay)
            await runtime.wait(shown.request_id)
        return await runtime.show(shown.request_id)


def of(shown: Report, name: str, price: Price | None = None) -> Measure:
    """One metric of a request."""
    return measure(shown, price).measures[name]


def with_result(shown: Report, step_id: str, **changes: Any) -> Report:
    """The same request, whose result of a step said something else."""

    def put(event: Event) -> Event:
        name = fields.result(step_id)
        if name not in event.put:
            return event
        version, value = event.put[name]
        return replace(event, put={**event.put, name: (version, AgentResult.from_json(value).model_copy(update=changes).to_json())})

    return report(shown.request_id, [put(each) for each in shown.events])


def with_event(shown: Report, **puts: Any) -> Report:
    """The same request, after one more write."""
    last = shown.events[-1]
    put = {name.replace("__", "/"): (f"{last.position}.added", record.to_json()) for name, record in puts.items()}
    return report(shown.request_id, [*shown.events, replace(last, position=last.position + 1, labels={}, put=put)])


class TestPrecisionAndRecall:
    async def test_a_value_counts_as_used_where_the_result_contains_it_and_as_noise_where_not(self) -> None:
        shown = await run(step("a"), step("b", "a"), a=says("", finding=41, colour="deep blue"), b=says("It is DEEP  BLUE.", size=1))
        assert of(shown, "context_precision") == Measure(1, 2)
        assert of(shown, "context_recall") == Measure(1, 1)

    async def test_a_fact_that_a_step_looked_up_again_though_another_had_it_lowers_recall(self) -> None:
        steps = step("a"), step("b", "a", needs=("a.colour",))
        shown = await run(*steps, a=says("", finding=41, colour="deep blue"), b=says("deep blue", finding=41))
        assert of(shown, "context_recall") == Measure(1, 2)

    async def test_a_fact_that_was_in_the_brief_or_of_another_value_was_not_asked_for_again(self) -> None:
        shown = await run(step("a"), step("b", "a"), step("c", "a", needs=()), b=says("7", finding=7), c=says("", finding=8))
        assert of(shown, "context_recall") == Measure(1, 1)

    async def test_a_fact_that_two_steps_had_and_the_brief_carried_once_was_not_asked_for_again(self) -> None:
        steps = step("a"), step("x"), step("b", "a", "x", needs=("a.finding",))
        shown = await run(*steps, b=says("7", finding=7))
        assert of(shown, "context_recall") == Measure(1, 1)

    async def test_a_need_that_nobody_supplied_lowers_recall(self) -> None:
        shown = await run(step("a"), step("b", "a", needs=("a.size",)))
        assert of(shown, "context_recall") == Measure(0, 1)

    async def test_where_nothing_crossed_there_is_no_precision_and_it_says_why(self) -> None:
        found = measure(await run(step("a")))
        assert found.measures["context_precision"].value is None
        assert found.as_json()["context_precision"]["why_none"] == "no value crossed into a completed step"


class TestUse:
    RESULT = AgentResult(agent="x", step_id="b", status=ResultStatus.COMPLETED, summary="预算 2,000 元，选 比特 S11 Pro。Not 15.")

    @pytest.mark.parametrize(
        ("value", "used"),
        [
            (2000, True),
            (200, False),
            (15.0, True),
            (1, False),
            ("比特S11 pro", True),
            ("S10", False),
            (True, None),
            ("x", None),
            ({"price": 2000, "name": "none"}, True),
            ([3, "none"], False),
        ],
    )
    def test_a_value_is_looked_for_as_what_it_is(self, value: Any, used: bool | None) -> None:
        assert use_of("a.key", value, self.RESULT) is used

    def test_what_is_cited_as_evidence_or_named_as_seen_is_used_whatever_the_text_says(self) -> None:
        packet = Packet(kind=Kind.FINDING, key="k", payload="none", control=Control(producer="b", evidence=(Evidence(ref="a.flag"),)))
        change = FieldChange(field="budget", operation=Operation.SET, value=1, seen="1.x")
        result = self.RESULT.model_copy(update={"packets": (packet,), "changes": (change,)})
        assert use_of("a.flag", True, result) is True
        assert use_of("field/budget", 77, result) is True
        assert use_of("a.other", 77, result) is False


class TestSources:
    async def test_a_judgement_without_evidence_lowers_the_coverage(self) -> None:
        bare = Packet(kind=Kind.DECISION, key="k", payload=1, control=Control(producer="a"))
        shown = with_result(await run(step("a")), "a", packets=(bare,))
        assert of(shown, "provenance_coverage") == Measure(1, 2)

    async def test_a_figure_of_the_answer_that_stands_in_nothing_known_is_counted(self) -> None:
        shown = await run(step("a"), a=says("Order 88231 has 41 pieces, worth 1,234.", finding=41))
        assert of(shown, "figures_covered") == Measure(2, 3)


class TestStaleness:
    async def test_a_value_that_was_replaced_or_had_expired_when_the_result_landed_is_stale(self) -> None:
        shown = await run(step("a"), step("b", "a"))
        assert of(shown, "staleness_rate") == Measure(0, 1)
        provenance = Provenance(step="a", tool="t", call_id="c", path="p")
        long_ago = Fact(key="finding", value=7, provenance=provenance, expires_at=datetime(2020, 1, 1, tzinfo=UTC))
        assert of(with_result(shown, "a", facts=(long_ago,)), "staleness_rate") == Measure(1, 1)
        result = shown.step("b").result
        assert result is not None and result.made_with is not None
        other = result.made_with.model_copy(update={"reads": {"a.finding": ReadOf(version="0.old", fingerprint="other")}})
        assert of(with_result(shown, "b", made_with=other), "staleness_rate") == Measure(1, 1)


class TestHandoffs:
    async def test_the_first_decision_on_each_need_counts(self) -> None:
        shown = await run(step("a"), step("b", "a"), step("c", "a", needs=()))
        assert of(shown, "handoff_success") == Measure(1, 1)

    async def test_what_was_blocked_the_first_time_is_no_success(self) -> None:
        unsure = fact("a", "finding", 7).model_copy(update={"confidence": 0.1})

        async def act(brief: AgentBrief) -> object:
            return told(brief).model_copy(update={"facts": (unsure,)})

        shown = await run(step("a"), step("b", "a", needs=("a.finding",), max_attempts=1), a=act)
        assert shown.step("b").failure is not None
        assert of(shown, "handoff_success") == Measure(0, 1)

    async def test_time_is_counted_from_the_last_input_to_the_claim(self) -> None:
        shown = await run(step("a"), step("b", "a"), step("c"))
        events = {(each.labels.get("event"), each.labels.get("step")): each.at_ms for each in shown.events}
        seconds = (events["step_claimed", "b"] - events["step_completed", "a"]) / 1000
        assert of(shown, "seconds_per_crossing") == Measure(seconds, 1)
        assert of(shown, "tokens_per_crossing") == Measure(1, 1)


class TestConflicts:
    async def test_contested_fields_and_refused_changes_are_conflicts(self) -> None:
        changes = tuple(FieldChange(field="f", operation=Operation.ADD, value=value) for value in (1, 2, 3, 4))
        shown = with_result(await run(step("a")), "a", changes=changes)
        assert of(shown, "conflict_rate") == Measure(0, 4)
        contested = with_event(shown, field__f=FieldRecord(contested=True), absorbed=AbsorbedRecord(refused=("a: it may not",)))
        assert of(contested, "conflict_rate") == Measure(2, 4)
        assert of(with_event(contested, field__f=FieldRecord(contested=True)), "conflict_rate") == Measure(2, 4)


class TestSuccess:
    USAGE = Usage(model_calls=1, tool_calls=3, input_tokens=2_000_000, output_tokens=500_000)

    async def test_tokens_calls_and_time_are_per_request_that_is_completed(self) -> None:
        shown = await run(step("a"), a=says("", self.USAGE, finding=1))
        assert of(shown, "tokens_per_success") == Measure(2_500_000, 1)
        assert of(shown, "external_calls_per_success") == Measure(3, 1)
        assert of(shown, "seconds_per_success") == Measure((shown.events[-1].at_ms - shown.events[0].at_ms) / 1000, 1)

    async def test_a_cost_needs_a_price(self) -> None:
        shown = await run(step("a"), a=says("", self.USAGE, finding=1))
        assert of(shown, "cost_per_success").value is None
        assert of(shown, "cost_per_success", Price(3, 8)) == Measure(10, 1)

    async def test_of_several_requests_the_failed_ones_cost_too(self) -> None:
        good = await run(step("a"), a=says("", self.USAGE, finding=1))
        bad = with_result(await run(step("a"), step("b", "a"), b=fails()), "a", usage=self.USAGE)
        assert of(bad, "tokens_per_success").value is None
        both = together([measure(good), measure(bad)])
        assert both.requests == 2
        assert both.measures["tokens_per_success"] == Measure(5_000_000, 1)


class TestRecovery:
    async def test_a_request_that_finished_after_a_replay_without_a_finished_step_running_again_recovered(self) -> None:
        shown = await run(step("a"), step("b", "a", critical=False), replay="b", b=fails(times=1))
        assert of(shown, "recovery") == Measure(1, 1)

    async def test_one_that_ran_a_finished_step_again_or_never_finished_did_not(self) -> None:
        shown = await run(step("a"), step("b", "a", critical=False), replay="b", b=fails(times=1))
        claim = next(each for each in shown.events if each.labels.get("event") == "step_claimed" and each.labels["step"] == "a")
        again = replace(claim, position=shown.events[-1].position + 1, put={})
        assert of(report(shown.request_id, [*shown.events, again]), "recovery") == Measure(0, 1)
        assert of(await run(step("a"), step("b", "a"), b=fails()), "recovery") == Measure(0, 1)

    async def test_one_that_never_failed_has_none(self) -> None:
        assert of(await run(step("a")), "recovery").value is None


async def test_every_metric_has_a_formula_a_value_or_a_reason_and_adds_up_with_nothing() -> None:
    found = measure(await run(step("a"), step("b", "a")))
    assert set(found.measures) == set(FORMULAS)
    for name, shown in found.as_json().items():
        if name != "requests":
            assert (shown["value"] is None) == ("why_none" in shown)
            assert shown["value"] is None or shown["value"] >= 0
    nothing = together([])
    assert nothing == Metrics(0, dict.fromkeys(FORMULAS, Measure()))
    assert together([found, nothing]).measures == found.measures
