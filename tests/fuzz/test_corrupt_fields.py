"""Random bytes in any field of a request: that request is set back alone and named, and everything else goes on."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from random import Random

import pytest
from structlog.testing import capture_logs

from ops.blackboard.memory import MemoryBlackboard
from ops.client import Client
from ops.embedded import Runtime, embedded
from orchestrator.orchestrator import Orchestrator
from schemas import fields
from schemas.errors import Unreadable
from tests.fuzz.corrupting import overwrite, restore
from tests.fuzz.strategies import junk_bytes
from tests.ops.broker.bench import eventually
from tests.system.cast import Cast, Gate, step
from tests.system.conftest import System, happened
from workers.team import Constraint, Team

pytestmark = pytest.mark.timeout(60)

SEED = 20260102
WHAT_THE_SWEEPER_READS = (fields.STATUS, fields.PLAN, fields.REQUEST, fields.definition("b"), fields.step("a"), fields.step("b"))

HEALED = fields.step("a")
"""Its TASK lies in the queue already, with a copy of the record that the field's version proves: the claim writes it anew."""


def team_of(cast: Cast) -> Team:
    """Two steps, one after the other, with a constraint."""
    return cast.team(step("a"), step("b", "a"), constraints=[Constraint("word", "Word")])


async def planned(client: Client, system: System, request_id: str) -> None:
    """Return once an orchestrator has planned a request."""

    async def there() -> bool:
        return fields.PLAN in (await system.board.read(request_id, (fields.PLAN,))).fields

    await eventually(there)


async def test_whatever_stands_in_a_field_only_that_request_waits_and_it_goes_on_once_it_is_put_right(system: System) -> None:
    random, cast = Random(SEED), Cast()
    team = team_of(cast)
    client = Client(system.board, system.broker)

    async def submitted(words: str) -> str:
        return (await client.submit(team, words, constraints={"word": "名"})).request_id

    async with asyncio.TaskGroup() as group:
        stop, ready = asyncio.Event(), asyncio.Event()
        group.create_task(Orchestrator(system.board, system.broker, sweep_seconds=0.1).run(ready=ready, stop=stop))
        await ready.wait()
        broken: dict[str, str] = {}
        for name in WHAT_THE_SWEEPER_READS:
            broken[await submitted(f"Please, {name}.")] = name
        healthy = [await submitted(f"Please, number {number}.") for number in range(3)]
        for request_id in (*broken, *healthy):
            await planned(client, system, request_id)
        stop.set()

    for request_id, name in broken.items():
        good = (await system.board.read(request_id, (name,))).fields[name].value
        await overwrite(system.board, system.redis, request_id, name, b"\xff" + junk_bytes(random, good))
        assert set(await client.damaged(request_id)) == {name}

    with capture_logs() as logs:
        async with system.serve(team) as runtime:
            for request_id in (*broken, *healthy):
                await system.look_now(request_id)
            assert await asyncio.gather(*(runtime.wait(each) for each in healthy)) == ["COMPLETED"] * len(healthy)

            async def set_back() -> bool:
                seen = {broken[entry["request"]] for entry in logs if entry["event"] == "request_set_back"}
                return seen >= {*WHAT_THE_SWEEPER_READS} - {HEALED}

            await eventually(set_back)
            assert [each.request_id for each in await runtime.recent()]
            for request_id in broken:
                await restore(system.board, system.redis, request_id)
                assert not await client.damaged(request_id)
                await system.look_now(request_id, 60)
            ended = await asyncio.wait_for(asyncio.gather(*(ended_well(runtime, each) for each in broken)), 30)
    assert ended == ["COMPLETED"] * len(broken)
    assert all(entry["reason"] for entry in logs if entry["event"] == "request_set_back")
    assert sum(cast.runs.values()) >= 2 * (len(broken) + len(healthy))


async def ended_well(runtime: Runtime, request_id: str) -> str:
    """Wait until a request is over; what a worker gave up while it could not be read is replayed."""
    while True:
        status = await runtime.wait(request_id)
        letters = await runtime.dead(request_id=request_id)
        if not letters:
            return status
        for letter in letters:
            assert letter.reason == "BAD_RESULT" and "cannot be read" in str(letter.record.failure), letter
            await runtime.replay(request_id, letter.step_id)


@pytest.mark.parametrize("name", ["request", "constraint/word", "plan/b", "result/a"])
async def test_what_a_brief_is_built_from_and_nobody_can_read_fails_that_step_with_the_reason(system: System, name: str) -> None:
    gate = Gate()
    cast = Cast({"x": gate})
    team = cast.team(step("a"), step("x"), step("b", "a", "x"), constraints=[Constraint("word", "Word")])
    async with system.serve(team) as runtime:
        request_id = (await runtime.submit(team, "Please.", constraints={"word": "名"})).request_id
        await gate.entered.wait()
        await happened(system.board, request_id, "step_completed")
        await overwrite(system.board, system.redis, request_id, name, b"\xff\x00{")
        gate.opened.set()
        failed = await happened(system.board, request_id, "step_failed")
        assert failed.labels["step"] == "b" and failed.labels["code"] == "BAD_RESULT"
        cast.acts.clear()
        other = await asyncio.wait_for(runtime.ask("Please, another.", constraints={"word": "名"}), 20)
        assert other.status == "COMPLETED"
        assert set(await runtime.damaged(request_id)) == {name}
        await restore(system.board, system.redis, request_id)
        await system.look_now(request_id, 60)
        assert await asyncio.wait_for(ended_well(runtime, request_id), 20) == "COMPLETED"
    assert cast.runs["b"] == 2, "once for the other, once after the replay; never on what nobody could read"


async def test_a_broken_event_is_named_by_its_field_and_lists_go_on_without_the_request() -> None:
    async with embedded(team_of(Cast())) as runtime:
        first, second = [(await runtime.ask(f"Please, {number}.")).request_id for number in range(2)]
        assert isinstance(runtime.board, MemoryBlackboard)
        events = runtime.board._requests[first].events
        at = next(index for index, event in reversed(list(enumerate(events))) if "step/b" in event.put)
        version, _ = events[at].put["step/b"]
        events[at] = replace(events[at], put={**events[at].put, "step/b": (version, b"\x00")})
        with pytest.raises(Unreadable, match=f"request {first} cannot be read: field 'step/b': StepRecord"):
            await runtime.show(first)
        await overwrite(runtime.board, None, first, "request", b"{")
        assert [each.request_id for each in await runtime.recent()] == [second]
