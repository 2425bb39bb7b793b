"""Time travel: a request as it was after any of its events, what differs between two, and a new one from the middle of another."""

from __future__ import annotations

import asyncio
from contextlib import aclosing, suppress

import pytest

from ops.blackboard.memory import MemoryBlackboard
from ops.client import Client
from ops.comparing import Difference
from ops.reporting import Report, brief_report
from schemas import fields
from schemas.blackboard import fold
from schemas.boundary import BoundaryRecord, Retraction
from schemas.errors import KeyReused, NotFound, Refused
from schemas.plans import Step
from schemas.results import AgentResult, Usage
from schemas.shared import FieldCard, FieldChange, FieldRecord, Operation
from tests.support.boards import orchestrator
from tests.system.cast import Act, Cast, Gate, fails, step, told
from tests.system.conftest import System
from tests.system.reports import named, states
from workers.agents.agent import AgentBrief
from workers.team import Constraint, Team

BUDGET = Constraint("budget", "Budget", type="integer", unit="coins")


def _saying(**said: str) -> Act:
    """Answer with a word, by the step's id; else with the id itself."""

    async def act(brief: AgentBrief) -> object:
        return told(brief, said.get(brief.step_id, ""), finding=said.get(brief.step_id, brief.step_id))

    return act


class TestShow:
    async def test_a_request_is_shown_as_it_was_after_each_of_its_events(self, system: System) -> None:
        async with system.serve(Cast().team(step("a"), step("b", "a"))) as runtime:
            whole = await runtime.ask("please")
            seen = [await runtime.show(whole.request_id, at=number) for number in range(1, len(whole.events) + 1)]
        assert [(then.status, then.answer) for then in (seen[0], seen[1])] == [("ACCEPTED", ""), ("RUNNING", "")]
        assert [len(then.events) for then in seen] == [*range(1, len(seen) + 1)]
        names = [event.labels["event"] for event in whole.events]
        after_a = seen[names.index("step_completed")]
        assert {each.step.id: each.state for each in after_a.steps} == {"a": "COMPLETED", "b": "READY"}
        assert [name for name, _ in after_a.facts] == ["a"]
        assert after_a.later == len(seen) - after_a.position
        assert (seen[-1].answer, seen[-1].later) == (whole.answer, 0)

    async def test_the_state_after_an_event_is_the_fold_of_the_events_up_to_it(self, system: System) -> None:
        async with system.serve(Cast().team(step("a"))) as runtime:
            whole = await runtime.ask("please")
            for number in range(1, len(whole.events) + 1):
                then = await runtime.show(whole.request_id, at=number)
                assert fold(then.events) == fold(whole.events[:number])

    async def test_a_moment_that_was_none_is_refused_with_what_there_is(self, system: System) -> None:
        async with system.serve(Cast().team(step("a"))) as runtime:
            whole = await runtime.ask("please")
            last = len(whole.events)
            for number in (0, -1, last + 1):
                with pytest.raises(NotFound, match=rf"events 1 to {last}, and no event {number}"):
                    await runtime.show(whole.request_id, at=number)
            with pytest.raises(NotFound, match="no request 'nobody'"):
                await runtime.show("nobody", at=1)


class TestDiff:
    async def test_a_request_differs_from_itself_in_nothing(self, system: System) -> None:
        async with system.serve(Cast().team(step("a"))) as runtime:
            one = (await runtime.ask("please")).request_id
            assert (await runtime.diff(one, one)).same

    async def test_two_requests_differ_field_by_field(self, system: System) -> None:
        cast = Cast({"a": fails(times=1, then=_saying(a="blue"))})
        team = cast.team(step("a", critical=False), step("b"), constraints=(BUDGET,))
        async with system.serve(team) as runtime:
            first = await runtime.ask("please", constraints={"budget": 10})
            second = await runtime.ask("please", constraints={"budget": 20})
            found = await runtime.diff(first.request_id, second.request_id)
        assert found.differences[:3] == (
            Difference("request", "status", "DEGRADED", "COMPLETED"),
            Difference("constraint", "budget", "10 coins", "20 coins"),
            Difference("step", "a", "FAILED (NO_STOCK)", "COMPLETED"),
        )
        assert Difference("fact", "a.finding", None, "blue  from lookup → finding") in found.differences
        assert [each.name for each in found.differences if each.kind == "version"] == ["b.brief_sha256"]
        assert "+blue" in found.answer
        assert found.same_team

    async def test_two_moments_of_one_request_are_compared(self, system: System) -> None:
        async with system.serve(Cast().team(step("a"))) as runtime:
            one = (await runtime.ask("please")).request_id
            found = await runtime.diff(f"{one}@2", one)
        assert Difference("request", "status", "RUNNING", "COMPLETED") in found.differences
        assert Difference("step", "a", "READY", "COMPLETED") in found.differences
        assert str(found.a) == f"{one}@2"

    async def test_requests_of_two_teams_are_compared_and_it_is_said(self, system: System) -> None:
        cast = Cast()
        one = cast.team(step("a"), step("b", title="Another title"))
        other = Team("other", list(one.agents.values()), [step("b", tools=()), step("c")])
        async with system.serve(one) as runtime:
            first = await runtime.ask("please")
            accepted = await runtime.submit(other, "something else")
            second = await runtime.result(accepted)
            found = await runtime.diff(first.request_id, second.request_id)
        assert not found.same_team
        assert Difference("request", "team", "stage", "other") in found.differences
        assert Difference("step", "a", "COMPLETED", None) in found.differences
        assert Difference("step", "c", None, "COMPLETED") in found.differences
        assert Difference("step", "b.title", "Another title", "Part B") in found.differences

    async def test_a_request_or_moment_that_is_none_is_refused(self, system: System) -> None:
        async with system.serve(Cast().team(step("a"))) as runtime:
            one = (await runtime.ask("please")).request_id
            for other, said in (("nobody", "no request 'nobody'"), (f"{one}@0", "no event 0"), (f"{one}@999", "no event 999")):
                with pytest.raises(NotFound, match=said):
                    await runtime.diff(one, other)


def sections(report: Report) -> list[str]:
    """The titles of an answer's sections, in order."""
    return [line.removeprefix("## Part ").lower() for line in report.answer.splitlines() if line.startswith("## ")]


class TestFork:
    async def test_a_fork_reuses_what_came_before_and_runs_the_step_and_what_is_below_it_anew(self, system: System) -> None:
        cast = Cast()
        team = cast.team(step("a"), step("b"), step("c", "a", "b"), step("d", "c"), step("e", "a"))
        async with system.serve(team) as runtime:
            source = await runtime.ask("please")
            before = await runtime.events(source.request_id)
            made = await runtime.fork(source.request_id, "c")
            fork = await runtime.result(made)
            assert await runtime.events(source.request_id) == before, "the source is not touched"
        assert (made.new, fork.status) == (True, "COMPLETED")
        assert cast.runs == {"a": 1, "b": 1, "c": 2, "d": 2, "e": 1}
        reused = [each for each in sections(source) if each in ("a", "b", "e")]
        assert sections(fork) == [*reused, "c", "d"], "in commit order: reused ones in that of the source"
        origin = fork.request.forked_from
        assert origin is not None
        assert (origin.request, origin.position, origin.step, list(origin.reused)) == (source.request_id, len(before), "c", reused)
        for each in reused:
            assert fork.step(each).result == source.step(each).result, "facts with their provenance, as they were"
            came = fork.step(each).record.reused
            assert came is not None
            assert came.request == source.request_id
            assert fields.result(each) in before[came.position - 1].put
        assert fork.step("c").record.reused is None
        assert [event.labels["step"] for event in named(fork.events, "step_reused")] == reused
        assert fork.events[0].labels["forked_from"] == f"{source.request_id}@{len(before)}"
        assert named(fork.events, "fork_begun")[0].labels["reused"] == "3"
        assert fork.usage == sum((fork.step(each).result.usage for each in "cd"), Usage())  # type: ignore[union-attr]

    async def test_a_fork_with_another_constraint_runs_with_it_and_says_what_the_reused_steps_saw(self, system: System) -> None:
        cast = Cast()
        size = Constraint("size", "Size", type="integer")
        team = cast.team(step("a"), step("b", "a"), constraints=(size, BUDGET))
        async with system.serve(team) as runtime:
            source = await runtime.ask("please", constraints={"budget": 2000})
            fork = await runtime.result(await runtime.fork(source.request_id, "b", team=team, constraints={"budget": "3,000", "size": 4}))
        assert [record.text for record in fork.constraints] == ["4", "3000 coins"]
        assert fork.request.forked_from is not None
        assert fork.request.forked_from.changed == {"size": "", "budget": "2000 coins"}
        assert fork.request.text == source.request.text
        assert "3000 coins" in cast.briefs["b"][1].text
        assert "2000 coins" not in cast.briefs["b"][1].text
        assert cast.runs["a"] == 1

    async def test_a_fork_of_a_running_request_reuses_what_was_committed_then_and_leaves_it_alone(self, system: System) -> None:
        gate = Gate()
        cast = Cast({"b": gate})
        async with system.serve(cast.team(step("a"), step("b", "a"), step("c"), step("d", "b", "c"))) as runtime:
            source = await runtime.submit(runtime.team, "please")
            await gate.entered.wait()
            await happened_to(system, source.request_id, "a", "c")
            made = await runtime.fork(source.request_id, "d")
            origin = (await runtime.show(made.request_id)).request.forked_from
            gate.opened.set()
            both = await runtime.result(source), await runtime.result(made)
        assert origin is not None
        assert set(origin.reused) == {"a", "c"}
        assert [report.status for report in both] == ["COMPLETED", "COMPLETED"]
        assert cast.runs == {"a": 1, "b": 2, "c": 1, "d": 2}
        assert {event.labels["event"] for event in both[0].events} & {"step_reused", "fork_begun"} == set()

    async def test_a_fork_of_a_fork_names_where_each_result_was_made(self, system: System) -> None:
        cast = Cast()
        async with system.serve(cast.team(step("a"), step("b", "a"), step("c", "b"))) as runtime:
            first = await runtime.ask("please")
            second = await runtime.result(await runtime.fork(first.request_id, "b"))
            third = await runtime.result(await runtime.fork(second.request_id, "c"))
            with pytest.raises(NotFound, match=f"its result is that of {first.request_id}@"):
                brief_report(third, "a", runtime.team)
        assert cast.runs == {"a": 1, "b": 2, "c": 3}
        made = {each: third.step(each).record.reused for each in "ab"}
        assert {each: came.request for each, came in made.items() if came} == {"a": first.request_id, "b": second.request_id}
        assert [each.brief.step_id for each in third.briefs] == ["c"]

    async def test_a_step_of_whose_result_something_was_withdrawn_runs_anew(self, system: System) -> None:
        cast = Cast()
        async with system.serve(cast.team(step("a"), step("b"), step("c", "a", "b"))) as runtime:
            source = (await runtime.ask("please")).request_id
            version = (await system.board.read(source, (fields.result("a"),))).version(fields.result("a"))
            withdrawn = Retraction(step="a", key="finding", version=version, reason="a misread label")
            record = BoundaryRecord(retractions=(withdrawn, withdrawn.model_copy(update={"step": "b", "version": "9.abcdef"})))
            await system.board.write(source, orchestrator({fields.BOUNDARY: record.to_json()}))
            await runtime.result(await runtime.fork(source, "c"))
        assert cast.runs == {"a": 2, "b": 1, "c": 2}

    async def test_what_a_reused_step_did_to_a_shared_field_is_taken_in_again(self, system: System) -> None:
        async def sets(brief: AgentBrief) -> AgentResult:
            change = FieldChange(field="mood", operation=Operation.SET, value="calm")
            return told(brief).model_copy(update={"changes": (change,)})

        cast = Cast({"a": sets})
        team = cast.team(step("a", writes=("mood",)), step("b", "a", reads=("mood",)), fields=[FieldCard(name="mood", owner="a")])
        async with system.serve(team) as runtime:
            source = await runtime.ask("please")
            fork = await runtime.result(await runtime.fork(source.request_id, "b"))
            found = (await system.board.read(fork.request_id, (fields.shared("mood"),))).value(fields.shared("mood"))
        assert found is not None
        assert FieldRecord.from_json(found).value == "calm"
        assert cast.runs == {"a": 1, "b": 2}
        assert all("calm" in brief.text for brief in cast.briefs["b"])

    async def test_a_reused_step_that_is_reopened_is_no_longer_a_reused_one(self, system: System) -> None:
        cast = Cast()
        async with system.serve(cast.team(step("a"), step("b", "a"))) as runtime:
            source = await runtime.ask("please")
            fork = await runtime.result(await runtime.fork(source.request_id, "b"))
            await runtime.retract(fork.request_id, "a.finding", "a misread label", recheck=True)
            again = await runtime.result(fork.request_id)
        assert (again.step("a").record.epoch, again.step("a").record.reused) == (1, None)
        assert cast.runs["a"] == 2

    async def test_a_failed_step_runs_anew_and_so_does_what_was_made_without_it(self, system: System) -> None:
        cast = Cast({"a": fails(times=1)})
        async with system.serve(cast.team(step("a", critical=False), step("b", "a"), step("c"), step("d", "c"))) as runtime:
            source = await runtime.ask("please")
            fork = await runtime.result(await runtime.fork(source.request_id, "d"))
        assert (source.status, fork.status) == ("DEGRADED", "COMPLETED")
        assert cast.runs == {"a": 2, "b": 2, "c": 1, "d": 2}

    async def test_steps_planned_by_a_reused_step_are_taken_in_and_reused_too(self, system: System) -> None:
        async def plan(brief: AgentBrief) -> AgentResult:
            further = tuple(Step.model_validate(step(each, *after)) for each, after in (("x", ("a",)), ("y", ("x",))))
            return told(brief).model_copy(update={"steps": further})

        cast = Cast({"a": plan})
        async with system.serve(cast.team(step("a", may_plan=True), step("b", "a"))) as runtime:
            source = await runtime.ask("please")
            at_y = await runtime.result(await runtime.fork(source.request_id, "y"))
            assert cast.runs == {"a": 1, "x": 1, "y": 2, "b": 1}
            at_a = await runtime.result(await runtime.fork(source.request_id, "a"))
            assert cast.runs == {"a": 2, "x": 2, "y": 3, "b": 2}
        assert states(at_y) == states(at_a) == dict.fromkeys("abxy", "COMPLETED")
        assert sections(at_y) == [*(each for each in sections(source) if each != "y"), "y"]

    async def test_the_same_key_is_the_same_fork_also_once_the_source_is_gone(self, system: System) -> None:
        cast = Cast()
        async with system.serve(cast.team(step("a"), step("b", "a"))) as runtime:
            source = await runtime.ask("please")
            first = await runtime.fork(source.request_id, "b", idempotency_key="what if")
            await runtime.result(first)
            await forget(system, source.request_id)
            again = await runtime.fork(source.request_id, "b", idempotency_key="what if")
            assert (again.request_id, first.new, again.new) == (first.request_id, True, False)
            with pytest.raises(KeyReused, match="'what if'"):
                await runtime.fork(source.request_id, "a", idempotency_key="what if")
            with pytest.raises(NotFound, match=r"no request .* to fork"):
                await runtime.fork(source.request_id, "b")
        assert cast.runs == {"a": 1, "b": 2}

    async def test_two_forks_of_one_key_at_once_are_one(self, system: System) -> None:
        async with system.serve(Cast().team(step("a"), step("b", "a"))) as runtime:
            source = await runtime.ask("please")
            made = await asyncio.gather(*(runtime.fork(source.request_id, "b", idempotency_key="k") for _ in range(4)))
            assert len({each.request_id for each in made}) == 1
            assert sum(each.new for each in made) == 1
            assert (await runtime.result(made[0])).status == "COMPLETED"

    async def test_what_the_source_lost_before_it_was_taken_over_runs_anew(self, system: System) -> None:
        cast = Cast()
        team = cast.team(step("a"), step("b", "a"), step("c", "b"))
        async with system.serve(team) as runtime:
            source = await runtime.ask("please")
        client = Client(system.board, system.broker)
        made = await client.fork(source.request_id, "c")
        await forget(system, source.request_id)
        async with system.serve(team) as runtime:
            fork = await runtime.result(made)
        assert (fork.status, sections(fork)) == ("COMPLETED", ["a", "b", "c"])
        assert named(fork.events, "fork_begun")[0].labels == {"event": "fork_begun", "reused": "0", "run_anew": "a, b"}
        assert cast.runs == {"a": 2, "b": 2, "c": 2}

    async def test_a_fork_that_is_cancelled_before_anybody_saw_it_ends(self, system: System) -> None:
        team = Cast().team(step("a"), step("b", "a"))
        async with system.serve(team) as runtime:
            source = await runtime.ask("please")
        client = Client(system.board, system.broker)
        made = await client.fork(source.request_id, "b")
        cancelling = asyncio.create_task(client.cancel(made.request_id))
        async with system.serve(team):
            with suppress(Refused):  # the fork may have been faster
                assert await cancelling == "CANCELLED"
            assert (await client.wait(made.request_id)).over

    async def test_what_cannot_be_forked_is_refused_by_name(self, system: System) -> None:
        team = Cast().team(step("a"), constraints=(BUDGET,))
        async with system.serve(team) as runtime:
            source = (await runtime.ask("please")).request_id
            before = await system.board.recent("default")
            for call, said in (
                (runtime.fork("nobody", "a"), "no request 'nobody' to fork"),
                (runtime.fork(source, "z"), "no step 'z' to fork at; it has: a"),
                (runtime.fork(source, "a", constraints={"budget": 1}), "name the team"),
                (runtime.fork(source, "a", team=team, constraints={"colour": 1}), "there are: budget"),
                (runtime.fork(source, "a", team=team, constraints={"budget": "much"}), "must be integer"),
                (runtime.fork(source, "a", deadline_seconds=0), "deadline"),
            ):
                with pytest.raises(Refused, match=said):
                    await call
            assert await system.board.recent("default") == before


async def happened_to(system: System, request_id: str, *steps: str) -> None:
    """Return once these steps are completed."""
    missing = set(steps)
    async with asyncio.timeout(15), aclosing(system.board.watch(request_id)) as events:
        async for event in events:
            if event.labels.get("event") == "step_completed":
                missing.discard(event.labels["step"])
            if not missing:
                return


async def forget(system: System, request_id: str) -> None:
    """Let a request be gone, as after its retention."""
    if isinstance(system.board, MemoryBlackboard):
        del system.board._requests[request_id]
        return
    assert system.redis is not None
    await system.redis.delete(*[key async for key in system.redis.scan_iter(match=f"*{{{request_id}}}*", count=1000)])
