"""What is the memory board's own: its clock, and that nothing it hands out can change it."""

from __future__ import annotations

from typing import Any, cast

import pytest

from ops.blackboard.memory import MemoryBlackboard
from schemas.blackboard import Held, Written
from tests.support.boards import Bench, Clock, claim, orchestrator


async def test_a_virtual_clock_decides_leases_marks_and_expiry_to_the_millisecond() -> None:
    clock = Clock()
    async with MemoryBlackboard(clock=clock) as board:
        bench = Bench(board, clock)
        step = (await bench.put(orchestrator({"step/a": b"1"}))).versions["step/a"]
        fence = (await bench.put(claim("a", step, lease_ms=5000))).versions["step/a"]
        await board.enter(bench.request_id, 5000)
        await bench.pass_time(4999)
        assert isinstance(await bench.write(claim("a", fence)), Held)
        assert await board.due(1, 1) == []
        await bench.pass_time(1)
        assert isinstance(await bench.write(claim("a", fence)), Written)
        assert len(await board.due(1, 1)) == 1
        await bench.put(orchestrator({"answer": b"1"}, expire=60))
        await bench.pass_time(59_999)
        assert (await bench.read("answer")).value("answer") == b"1"
        await bench.pass_time(1)
        assert (await bench.read("answer")).fields == {}


async def test_what_a_caller_does_to_what_it_got_changes_nothing() -> None:
    async with MemoryBlackboard() as board:
        bench = Bench(board)
        await bench.put(orchestrator({"plan": b"1"}, labels={"event": "x"}))
        seen = await bench.read("plan")
        cast(dict[str, Any], seen.fields).clear()
        events = await board.events(bench.request_id)
        with pytest.raises(TypeError):
            cast(dict[str, Any], events[0].put)["plan"] = ("9.x", b"forged")
        with pytest.raises(TypeError):
            cast(dict[str, Any], events[0].labels)["event"] = "forged"
        events.clear()
        assert (await bench.read("plan")).value("plan") == b"1"
        assert len(await board.events(bench.request_id)) == 1


async def test_the_check_says_that_it_ends_with_the_process() -> None:
    async with MemoryBlackboard() as board:
        [finding] = await board.check()
        assert finding.level == "warn"


async def test_a_holders_mark_that_falls_on_the_looks_mark_is_not_settled_with_it() -> None:
    clock = Clock()
    async with MemoryBlackboard(clock=clock) as board:
        await board.enter("r", 0)
        [look] = await board.due(10, 200)
        await board.mark("r", 200)
        await board.settle(look, None)
        clock.seconds += 1
        assert [due.member for due in await board.due(10, 1000)] == ["r"]
