"""The flow of a request, and what turns it: retries, time, cancel, replay, gaps, growth, early acks, lost holds."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from schemas import fields
from schemas.blackboard import Blackboard
from schemas.broker import dead_queue
from schemas.errors import Refused
from schemas.messages import MessageType
from schemas.plans import Step
from schemas.requests import Origin, RequestStatus, StepRecord, StepState
from schemas.results import AgentResult, Failure, ResultStatus
from tests.system.cast import Cast, Deaf, Gate, answers, fails, step, told
from tests.system.conftest import System, expires, happened
from tests.system.reports import code_of, named, states
from tests.system.watched import CutLine
from workers import running
from workers.agents.agent import AgentBrief
from workers.agents.blackbox import BlackBox
from workers.briefing import BriefLimits
from workers.team import Constraint, Team
from workers.worker import Worker

pytestmark = pytest.mark.timeout(40)


@asynccontextmanager
async def worker(system: System, team: Team, *, board: Blackboard | None = None, **options: Any) -> AsyncIterator[Worker]:
    """A worker of the test's own beside the orchestrators that serve."""
    stop, ready = asyncio.Event(), asyncio.Event()
    serves = Worker(board or system.board, system.broker, team, **{"grace_seconds": 0.0, **options})
    async with asyncio.TaskGroup() as group:
        group.create_task(serves.run(stop=stop, ready=ready))
        await ready.wait()
        try:
            yield serves
        finally:
            stop.set()


# What crosses.


async def test_a_given_constraint_wins_over_the_one_in_the_words_and_the_origin_is_kept(system: System) -> None:
    budget = Constraint("budget", "Budget", type="integer", unit="CNY", extract=lambda text: 2000)
    colour = Constraint("colour", "Colour", extract=lambda text: "blue")
    cast = Cast()
    async with system.serve(cast.team(step("a"), constraints=(budget, colour))) as runtime:
        report = await runtime.ask("At most 2000, in blue.", constraints={"budget": 1500})
        snapshot = await system.board.read(report.request_id, (fields.constraint("budget"), fields.constraint("colour")))

    brief = cast.briefs["a"][0]
    assert dict(brief.constraints) == {"budget": 1500, "colour": "blue"}
    assert "- Budget: 1500 CNY\n- Colour: blue" in brief.text
    assert Origin.GIVEN.encode() in (snapshot.value(fields.constraint("budget")) or b"")
    assert Origin.EXTRACTED.encode() in (snapshot.value(fields.constraint("colour")) or b"")


async def test_only_declared_needs_cross_and_what_stayed_behind_is_named(system: System) -> None:
    cast = Cast({"a": lambda brief: _told(brief, colour="blue", size=3), "b": lambda brief: _told(brief, finding=1)})
    team = cast.team(step("a"), step("b", "a", needs=("a.colour",)), step("c", "b", needs=("a.size", "b.*", "a.finding?")))
    async with system.serve(team) as runtime:
        report = await runtime.ask("Please.")

    assert list(cast.briefs["b"][0].facts) == ["a.colour"] and "size" not in cast.briefs["b"][0].text
    assert list(cast.briefs["c"][0].facts) == ["a.size", "b.finding"]
    assert '"Part A" did not supply finding' in cast.briefs["c"][0].text
    left = {each.brief.step_id: {(out.step, out.key, out.reason) for out in each.brief.manifest.left_out} for each in report.briefs}
    assert ("a", "size", "not_needed") in left["b"] and ("a", "finding", "not_supplied") in left["c"]


async def _told(brief: AgentBrief, **facts: Any) -> Any:
    return told(brief, **facts)


async def test_a_required_need_that_nobody_supplied_fails_the_step_by_name_and_its_agent_never_runs(system: System) -> None:
    cast = Cast({"a": lambda brief: _told(brief, colour="blue"), "b": fails()})
    team = cast.team(step("a"), step("b", critical=False), step("c", "a", needs=("a.size",)), step("d", "b", needs=("b.size",)))
    async with system.serve(team) as runtime:
        report = await runtime.ask("Please.")

    assert cast.runs == {"a": 1, "b": 1}
    for step_id, missing in (("c", "a.size"), ("d", "b.size")):
        failure = report.step(step_id).failure
        assert failure is not None and failure.code == "MISSING_FACT" and missing in failure.description


async def test_an_optional_need_of_a_step_that_failed_is_a_gap_in_the_brief(system: System) -> None:
    cast = Cast({"a": fails()})
    async with system.serve(cast.team(step("a", critical=False), step("b", "a", needs=("a.size?",)))) as runtime:
        report = await runtime.ask("Please.")

    assert report.status == "DEGRADED" and states(report) == {"a": "FAILED", "b": "COMPLETED"}
    assert '"Part A" did not finish, all of it is unknown' in cast.briefs["b"][0].text


async def test_a_brief_that_cannot_be_made_small_enough_fails_the_step_and_nothing_required_is_cut(system: System) -> None:
    cast = Cast({"a": lambda brief: _told(brief, colour="blue " * 200, size=1)})
    team = cast.team(
        step("a"), step("b", "a", needs=("a.colour",)), step("c", "a", needs=("a.colour?", "a.size")), limits=BriefLimits(characters=1400)
    )
    async with system.serve(team) as runtime:
        report = await runtime.ask("Please.")

    assert code_of(report, "b") == "BRIEF_TOO_LARGE" and "b" not in cast.runs
    assert list(cast.briefs["c"][0].facts) == ["a.size"]
    kept = next(each.brief.manifest for each in report.briefs if each.brief.step_id == "c")
    assert ("colour", "optional_over_limit") in {(each.key, each.reason) for each in kept.left_out}


async def test_a_summary_crosses_only_into_a_step_that_asks_for_it_cut_at_a_sentence_end(system: System) -> None:
    text = "这是给用户看的一句话。" * 60
    cast = Cast({"a": lambda brief: _summary(brief, text)})
    async with system.serve(cast.team(step("a"), step("b", "a"), step("c", "a", share_summary=True))) as runtime:
        report = await runtime.ask("Please.")

    assert "给用户看" not in cast.briefs["b"][0].text
    background = [line for line in cast.briefs["c"][0].text.splitlines() if "给用户看" in line]
    assert len(background) == 1 and background[0].startswith("> ") and background[0].endswith("。") and len(background[0]) <= 302
    assert text in report.answer


async def _summary(brief: AgentBrief, text: str) -> Any:
    return told(brief, text)


# Retries.


async def test_a_passing_error_is_tried_again_after_a_while_and_counted(system: System) -> None:
    cast = Cast({"a": fails("BUSY", times=1, retryable=True)})
    async with system.serve(cast.team(step("a"), step("b", "a"))) as runtime:
        report = await runtime.ask("Please.")

    assert report.status == "COMPLETED" and cast.runs == {"a": 2, "b": 1}
    assert report.step("a").record.attempt == 2 and report.step("a").record.first_error == "BUSY: failed for the 1. time"
    assert [brief.attempt for brief in cast.briefs["a"]] == [1, 2]
    (retried,) = named(report.events, "step_to_be_retried")
    second = named(report.events, "step_claimed")[1]
    waits = int(retried.labels["in_ms"])
    assert 500 <= waits <= 1000 and second.at_ms - retried.at_ms >= waits


async def test_an_error_that_stays_fails_the_step_with_its_own_code_once_the_attempts_are_used_up(system: System) -> None:
    cast = Cast({"a": fails("BUSY", retryable=True)})
    async with system.serve(cast.team(step("a", max_attempts=2), step("b", "a"))) as runtime:
        report = await runtime.ask("Please.")
        (letter,) = await runtime.dead()
        await system.look.has(dead_queue("hand"), 1)

    record = report.step("a").record
    assert cast.runs == {"a": 2} and code_of(report, "a") == "BUSY" and record.attempt == 2
    assert record.failure is not None and "2. time" in record.failure.description and "1. time" in (record.first_error or "")
    assert (letter.step_id, letter.reason, letter.title) == ("a", "BUSY", "Part A")


async def test_a_connection_error_out_of_an_agent_is_tried_again_and_any_other_is_not(system: System) -> None:
    async def cut_off(brief: AgentBrief) -> Any:
        if brief.attempt == 1:
            raise ConnectionResetError("cut off")
        return told(brief)

    async def mistaken(brief: AgentBrief) -> Any:
        raise KeyError("no such thing")

    cast = Cast({"a": cut_off, "b": mistaken})
    async with system.serve(cast.team(step("a"), step("b"))) as runtime:
        report = await runtime.ask("Please.")

    assert cast.runs == {"a": 2, "b": 1} and states(report) == {"a": "COMPLETED", "b": "FAILED"}


async def test_a_failure_that_an_agent_returns_is_tried_again_where_it_says_so(system: System) -> None:
    async def returns(brief: AgentBrief) -> AgentResult:
        failure = Failure(code="BUSY", description="come back later", retryable=True)
        return told(brief) if brief.attempt == 2 else told(brief).model_copy(update={"status": ResultStatus.FAILED, "failure": failure})

    cast = Cast({"a": returns})
    async with system.serve(cast.team(step("a"))) as runtime:
        report = await runtime.ask("Please.")

    assert report.status == "COMPLETED" and cast.runs == {"a": 2}
    assert report.step("a").record.first_error == "BUSY: come back later"


async def test_a_step_whose_workers_all_die_with_it_is_given_up_when_its_attempts_are_used_up(system: System) -> None:
    """A worker that dies is one whose process is gone: its hold ends with the lease, and its task is handed out again."""
    gate = Gate()
    cast = Cast({"a": gate})
    team = cast.team(step("a", max_attempts=2))
    async with system.serve(team, workers=0) as runtime:
        accepted = await runtime.submit(team, "Please.")
        for _ in range(2):
            gate.entered.clear()
            serves = asyncio.create_task(Worker(system.board, system.broker, team, lease_seconds=0.3).run())
            await gate.entered.wait()
            serves.cancel()
            await asyncio.wait({serves})
        async with worker(system, team):
            report = await runtime.result(accepted)

    assert cast.runs == {"a": 2} and code_of(report, "a") == "ATTEMPTS_EXHAUSTED" and report.status == "FAILED"


# Time.


async def test_a_step_that_takes_too_long_is_stopped_and_failed_as_a_timeout(system: System) -> None:
    gate = Gate()
    cast = Cast({"a": gate})
    async with system.serve(cast.team(step("a", timeout_seconds=0.2), step("b"))) as runtime:
        report = await runtime.ask("Please.")

    assert gate.stopped.is_set() and code_of(report, "a") == "TIMEOUT" and report.status == "DEGRADED"
    result = report.step("a").result
    assert result is not None and result.termination == "TIMEOUT" and not result.facts


async def test_an_agent_that_ignores_being_stopped_is_left_behind_and_its_place_is_free(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "_LET_GO_SECONDS", 0.1)
    deaf = Deaf()
    cast = Cast({"a": deaf})
    async with system.serve(cast.team(step("a", timeout_seconds=0.2), step("b", "a", needs=())), concurrency=1) as runtime:
        report = await runtime.ask("Please.")
        cast.acts["a"] = answers
        again = await runtime.ask("And again.")
        deaf.opened.set()

    assert deaf.stopped.is_set() and states(report) == {"a": "FAILED", "b": "SKIPPED"} and code_of(report, "a") == "TIMEOUT"
    assert again.status == "COMPLETED"


async def test_a_deadline_ends_the_request_with_what_is_there_and_counts_anew_after_a_replay(system: System) -> None:
    gate = Gate()
    cast = Cast({"b": gate})
    took: list[float] = []
    async with system.serve(cast.team(step("a"), step("b", "a"), step("c", "b")), lease_seconds=1) as runtime:
        accepted = await runtime.submit(runtime.team, "Please.", deadline_seconds=1.0)
        for epoch in (0, 1):
            began = time.monotonic()
            report = await runtime.result(accepted)
            took.append(time.monotonic() - began)
            await asyncio.wait_for(gate.stopped.wait(), 5)
            assert report.status == "DEGRADED" and "Part A" in report.answer and code_of(report, "b") == "DEADLINE"
            assert [(letter.step_id, letter.reason, letter.record.epoch) for letter in await runtime.dead()] == [("b", "DEADLINE", epoch)]
            gate.stopped.clear()
            cast.acts["b"] = gate if epoch == 0 else answers
            await runtime.replay(report.request_id, "b")
        again = await runtime.result(report.request_id)

    assert all(0.7 < each < 4.5 for each in took), took
    assert again.status == "COMPLETED" and cast.runs == {"a": 1, "b": 3, "c": 1}


async def test_a_lease_is_renewed_as_long_as_the_agent_runs(system: System) -> None:
    async def slow(brief: AgentBrief) -> Any:
        await asyncio.sleep(2.0)
        return told(brief)

    cast = Cast({"a": slow})
    async with system.serve(cast.team(step("a")), workers=2, lease_seconds=0.8) as runtime:
        report = await runtime.ask("Please.")

    assert cast.runs == {"a": 1} and report.step("a").record.attempt == 1
    assert len(named(report.events, "step_claimed")) == 1


async def test_a_blocking_agent_runs_in_a_thread_and_the_loop_goes_on(system: System) -> None:
    beats = 0

    def blocking(brief: AgentBrief) -> str:
        time.sleep(0.5)
        return "Done."

    async def heart() -> None:
        nonlocal beats
        while True:
            await asyncio.sleep(0.02)
            beats += 1

    team = Team("slow", [BlackBox("sleeper", blocking)], [{"id": "a", "agent": "sleeper", "title": "A nap", "task": "Sleep."}])
    beating = asyncio.create_task(heart())
    async with system.serve(team) as runtime:
        report = await runtime.ask("Please.")
    beating.cancel()

    assert report.status == "COMPLETED" and "Done." in report.answer and beats > 5


# Cancel.


async def test_a_cancel_stops_the_agent_ends_for_good_and_leaves_no_dead_letter(system: System) -> None:
    gate = Gate()
    cast = Cast({"b": gate})
    async with system.serve(cast.team(step("a"), step("b", "a"), step("c", "b")), lease_seconds=1) as runtime:
        accepted = await runtime.submit(runtime.team, "Please.")
        await gate.entered.wait()
        assert await runtime.cancel(accepted.request_id, "changed my mind") is RequestStatus.CANCELLED
        await asyncio.wait_for(gate.stopped.wait(), 5)  # at the next renewal
        report = await runtime.result(accepted)
        assert await runtime.cancel(accepted.request_id) is RequestStatus.CANCELLED
        with pytest.raises(Refused):
            await runtime.replay(accepted.request_id, "b")
        assert not await runtime.dead()

    assert report.status == "CANCELLED" and cast.runs == {"a": 1, "b": 1}
    assert code_of(report, "b") == "CANCELLED" and states(report)["c"] == "SKIPPED"
    assert "Part A" in report.answer


async def test_a_result_that_comes_after_the_cancel_is_refused_and_noted(system: System) -> None:
    gate = Gate()
    cast = Cast({"a": gate})
    async with system.serve(cast.team(step("a")), lease_seconds=30) as runtime:
        accepted = await runtime.submit(runtime.team, "Please.")
        await gate.entered.wait()
        await runtime.cancel(accepted.request_id)
        gate.opened.set()
        await happened(system.board, accepted.request_id, "late_result_refused")
        report = await runtime.show(accepted.request_id)

    assert report.status == "CANCELLED" and report.step("a").result is None and "found for" not in report.answer


async def test_only_what_runs_can_be_cancelled(system: System) -> None:
    async with system.serve(Cast().team(step("a"))) as runtime:
        report = await runtime.ask("Please.")
        with pytest.raises(Refused, match="COMPLETED"):
            await runtime.cancel(report.request_id)


# Dead letters.


async def test_a_replayed_dead_letter_turns_the_degraded_answer_into_a_complete_one(system: System) -> None:
    gate = Gate()
    cast = Cast({"b": fails("NO_STOCK", times=1, then=gate)})
    async with system.serve(cast.team(step("a"), step("b", "a"), step("c", "b"))) as runtime:
        report = await runtime.ask("Please.")
        assert await expires(system, report.request_id)
        with pytest.raises(Refused, match="epoch 0"):
            await runtime.replay(report.request_id, "b", epoch=1)
        assert await runtime.replay(report.request_id, "b", epoch=0) == 1
        await gate.entered.wait()
        assert not await expires(system, report.request_id)
        assert not await runtime.dead()
        gate.opened.set()
        again = await runtime.result(report.request_id)
        assert await expires(system, report.request_id)
        with pytest.raises(Refused):
            await runtime.replay(report.request_id, "b")

    assert report.status == "DEGRADED" and again.status == "COMPLETED" and not again.gaps
    assert cast.runs == {"a": 1, "b": 2, "c": 1}
    assert (again.step("b").record.epoch, again.step("b").record.attempt) == (1, 1)
    answers_put = [event.put[fields.ANSWER][0] for event in again.events if fields.ANSWER in event.put]
    assert [version.partition(".")[0] for version in answers_put] == ["1", "2"]


async def test_a_dropped_dead_letter_leaves_the_list_with_a_reason_on_record_and_the_answer_stays(system: System) -> None:
    cast = Cast({"a": fails("NO_STOCK")})
    async with system.serve(cast.team(step("a"), step("b"))) as runtime:
        report = await runtime.ask("Please.")
        assert [letter.step_id for letter in await runtime.dead(agent="hand", reason="NO_STOCK")] == ["a"]
        assert not await runtime.dead(reason="TIMEOUT")
        await runtime.drop(report.request_id, "a", "known, not worth it")
        assert not await runtime.dead()
        with pytest.raises(Refused):
            await runtime.drop(report.request_id, "b", "it is none")
        again = await runtime.show(report.request_id)

    (dropped,) = named(again.events, "dead_letter_dropped")
    assert dropped.labels["reason"] == "known, not worth it" and again.answer == report.answer


# Growth.


def grown(*steps: dict[str, Any]) -> Any:
    """An act that plans further steps."""

    async def act(brief: AgentBrief) -> Any:
        return told(brief).model_copy(update={"steps": tuple(Step.model_validate(each) for each in steps)})

    return act


async def test_steps_planned_at_run_time_are_taken_in_and_run(system: System) -> None:
    cast = Cast({"plan": grown(step("x", "plan"), step("y", "x", "plan", needs=("plan.finding", "x.*")))})
    async with system.serve(cast.team(step("plan", may_plan=True), step("z", "plan")), workers=2, orchestrators=2) as runtime:
        report = await runtime.ask("Please.")

    assert report.status == "COMPLETED" and cast.runs == {"plan": 1, "x": 1, "y": 1, "z": 1}
    assert [each.step.id for each in report.steps] == ["plan", "z", "x", "y"]
    assert len(named(report.events, "further_steps_taken_in")) == 1


UNFIT = {
    "unknown dependency": (step("x", "nobody"), "depends_on"),
    "taken id": (step("plan"), "used twice"),
    "unknown agent": (step("x", agent="somebody"), "no agent"),
    "wider needs": (step("x", "old", needs=("old.colour",), budget={"tokens": 500}), "no need of"),
    "wider budget": (step("x", budget={"tokens": 5_000}), "tokens"),
    "circle": (step("x", "x"), "circle"),
}
"""Further steps that do not fit, and what the reason says."""


async def test_steps_planned_at_run_time_that_do_not_fit_end_the_request_with_the_reason(system: System) -> None:
    planned = iter(UNFIT.values())

    async def act(brief: AgentBrief) -> Any:
        return await grown(next(planned)[0])(brief)

    cast = Cast({"plan": act})
    planning = step("plan", "old", needs=("old.finding",), may_plan=True, budget={"tokens": 1_000})
    async with system.serve(cast.team(step("old"), planning)) as runtime:
        reports = {kind: await runtime.ask("Please.") for kind in UNFIT}

    for kind, report in reports.items():
        assert report.status == "FAILED" and report.failure is not None, kind
        assert report.failure.code == "REFUSED_PLAN" and "REFUSED_PLAN" in report.answer
        assert report.failure.description.startswith("plan.steps") and UNFIT[kind][1] in report.failure.description
    assert cast.runs == {"old": 6, "plan": 6}


async def test_steps_from_a_step_that_may_not_plan_are_dropped_and_recorded(system: System) -> None:
    cast = Cast({"a": grown(step("x"), step("y"))})
    async with system.serve(cast.team(step("a"))) as runtime:
        report = await runtime.ask("Please.")

    assert report.status == "COMPLETED" and [each.step.id for each in report.steps] == ["a"]
    (done,) = named(report.events, "step_completed")
    assert done.labels["refused_steps"] == "2" and report.step("a").result is not None
    assert report.step("a").result.steps == ()  # type: ignore[union-attr]  # asserted above


# The outbox: early acks, hand-backs, lost holds.


async def test_a_task_that_outlasts_the_brokers_patience_is_acked_early_and_its_credit_comes_back(system: System) -> None:
    gate = Gate()
    cast = Cast({"a": gate})
    team = cast.team(step("a"), step("b", "a"), step("c", "a"))
    async with system.serve(team, workers=0) as runtime, worker(system, team, concurrency=2, ack_after_seconds=0.1, lease_seconds=1):
        acked: asyncio.Queue[str | None] = asyncio.Queue()

        async def on_ack(bell: Any) -> None:
            if bell.type is MessageType.TASK:
                acked.put_nowait(bell.step_id)

        system.broker.on_ack = on_ack
        accepted = await runtime.submit(team, "Please.")
        await gate.entered.wait()
        assert await asyncio.wait_for(acked.get(), 5) == "a" and not gate.opened.is_set()
        gate.opened.set()
        report = await runtime.result(accepted)
        both = Gate(), Gate()  # as many at once as before: two
        cast.acts |= {"a": answers, "b": both[0], "c": both[1]}
        accepted = await runtime.submit(team, "Again.")
        await asyncio.wait_for(asyncio.gather(*(each.entered.wait() for each in both)), 5)
        for each in both:
            each.opened.set()
        again = await runtime.result(accepted)

    assert report.status == again.status == "COMPLETED" and cast.runs == {"a": 2, "b": 2, "c": 2}
    assert sum(fields.result("a") in event.put for event in report.events) == 1


async def test_a_worker_that_stops_hands_its_step_back_and_the_attempt_with_it(system: System) -> None:
    gate = Gate()
    cast = Cast({"a": gate})
    team = cast.team(step("a"))
    async with system.serve(team, workers=0) as runtime:
        async with worker(system, team, lease_seconds=30):
            accepted = await runtime.submit(team, "Please.")
            await gate.entered.wait()
        assert gate.stopped.is_set()
        snapshot = await system.board.read(accepted.request_id, (fields.step("a"),))
        record = StepRecord.from_json(snapshot.value(fields.step("a")) or b"")
        assert (record.state, record.attempt, record.not_before_ms) == (StepState.PENDING, 0, 0)
        gate.opened.set()
        async with worker(system, team):
            report = await runtime.result(accepted)

    assert report.status == "COMPLETED" and cast.runs == {"a": 2} and report.step("a").record.attempt == 1


async def test_a_worker_that_drains_finishes_what_it_has(system: System) -> None:
    gate = Gate()
    cast = Cast({"a": gate})
    team = cast.team(step("a"))
    async with system.serve(team, workers=0) as runtime:
        stop, ready = asyncio.Event(), asyncio.Event()
        serves = asyncio.create_task(Worker(system.board, system.broker, team, grace_seconds=20).run(stop=stop, ready=ready))
        await ready.wait()
        accepted = await runtime.submit(team, "Please.")
        await gate.entered.wait()
        stop.set()
        await asyncio.sleep(0)
        gate.opened.set()
        await serves
        report = await runtime.result(accepted)

    assert report.status == "COMPLETED" and cast.runs == {"a": 1}


async def test_a_hold_that_is_lost_stops_the_agent(system: System) -> None:
    gate, other = Gate(), Gate()
    cast, takes_over = Cast({"a": gate}), Cast({"a": other})
    team = cast.team(step("a"))
    board = CutLine(system.board)
    async with (
        system.serve(team, workers=0) as runtime,
        worker(system, team, board=board, lease_seconds=0.5, name="worker/first", concurrency=1),
    ):
        accepted = await runtime.submit(team, "Please.")
        await gate.entered.wait()
        await board.marked.wait()
        board.cut = True
        async with worker(system, takes_over.team(step("a")), name="worker/second"):
            await other.entered.wait()
            assert not gate.stopped.is_set()
            board.cut = False
            await asyncio.wait_for(gate.stopped.wait(), 5)
            other.opened.set()
            report = await runtime.result(accepted)

    assert report.status == "COMPLETED" and cast.runs["a"] == takes_over.runs["a"] == 1
    assert [event.writer for event in report.events if fields.result("a") in event.put] == ["worker/second"]


async def test_a_trace_passes_from_the_submission_to_every_task_and_result(system: System) -> None:
    trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    async with system.serve(Cast().team(step("a"), step("b", "a"))) as runtime:
        accepted = await runtime.submit(runtime.team, "Please.", trace=trace)
        report = await runtime.result(accepted)

    assert report.request.trace == trace
    told_of = {(bell.type, bell.trace) for _, bell in system.broker.published if bell.type is not MessageType.REQUEST}
    assert told_of == {(kind, trace) for kind in (MessageType.SUBMIT, MessageType.TASK, MessageType.RESULT_READY)}
