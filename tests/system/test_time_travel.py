"""Time travel: a request as it was after any of its events, and what differs between two of them."""

from __future__ import annotations

import pytest

from ops.comparing import Difference
from schemas.blackboard import fold
from schemas.errors import NotFound
from tests.system.cast import Act, Cast, fails, step, told
from tests.system.conftest import System
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
