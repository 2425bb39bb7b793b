"""A rolling upgrade: workers of another minor version beside ours, and messages and records of another major one.

The other version is played by a board and a broker that rewrite what a worker writes: an older one that does not know
the newer optional fields, and a newer one that has some that we do not know.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeAlias

import orjson
import pytest
from structlog.testing import capture_logs

from ops.client import Client
from orchestrator.orchestrator import Orchestrator
from schemas import fields
from schemas.blackboard import Blackboard, Outcome, Write
from schemas.broker import COMMANDS_QUEUE, RESULTS_QUEUE, UNREADABLE_QUEUE, task_queue
from schemas.messages import AgentMessage, MessageType, message, to_wire
from tests.fuzz.corrupting import overwrite, restore
from tests.ops.broker.bench import eventually
from tests.system.cast import Cast, step, told
from tests.system.conftest import System
from workers.agents.agent import AgentBrief
from workers.worker import Worker

pytestmark = pytest.mark.timeout(60)

Rewrite: TypeAlias = Callable[[dict[str, Any]], dict[str, Any]]

NEWER_THAN_THEM = {"first_error", "worker", "usage", "superseded", "artifacts", "made_with", "confidence", "sensitivity", "not_before_ms"}
"""Optional fields, as if they had come after the older version."""


def without_what_is_newer(value: Any) -> Any:
    """What a version writes that does not know these fields."""
    match value:
        case dict():
            return {name: without_what_is_newer(each) for name, each in value.items() if name not in NEWER_THAN_THEM}
        case list():
            return [without_what_is_newer(each) for each in value]
        case _:
            return value


MAPPINGS = ("reads",)


def with_what_we_do_not_know(value: Any) -> Any:
    """What a version writes that has fields of its own, at every depth."""
    match value:
        case dict():
            known = {name: _inside(name, each) for name, each in value.items()}
            return {"schema_hint": ["1.9", None], **known, "priority": {"of": 7}}
        case list():
            return [with_what_we_do_not_know(each) for each in value]
        case _:
            return value


def _inside(name: str, value: Any) -> Any:
    """A mapping's keys are data, and no fields that a newer version could add to."""
    if name in MAPPINGS:
        return {key: with_what_we_do_not_know(each) for key, each in value.items()}
    return with_what_we_do_not_know(value)


class OtherBoard:
    """The same board, as a worker of another version writes to it."""

    def __init__(self, inner: Blackboard, rewrite: Rewrite) -> None:
        self._inner = inner
        self._rewrite = rewrite
        self.written: Counter[str] = Counter()

    async def write(self, request_id: str, write: Write) -> Outcome:
        put = {name: orjson.dumps(self._rewrite(orjson.loads(value))) for name, value in write.put.items()}
        self.written.update(name.partition("/")[0] for name in put)
        return await self._inner.write(request_id, replace(write, put=put))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


@pytest.mark.parametrize("rewrite", [without_what_is_newer, with_what_we_do_not_know], ids=["an older one", "a newer one"])
async def test_a_worker_of_another_minor_version_works_beside_ours_and_every_request_ends_well(system: System, rewrite: Rewrite) -> None:
    played: Counter[str] = Counter()

    def cast_of(who: str) -> Cast:
        async def act(brief: AgentBrief) -> Any:
            played[who] += 1
            if brief.step_id == "shaky" and brief.attempt == 1:
                raise ConnectionError("the first line is always cut")
            return told(brief, finding=played.total())

        return Cast({"a": act, "shaky": act, "b": act})

    steps = (step("a"), step("shaky", "a"), step("b", "shaky", share_summary=True))
    ours, theirs = cast_of("ours").team(*steps), cast_of("theirs").team(*steps)
    other_board = OtherBoard(system.board, rewrite)
    async with system.serve(ours, concurrency=1) as runtime, asyncio.TaskGroup() as group:
        stop, ready = asyncio.Event(), asyncio.Event()
        other = Worker(other_board, system.broker, theirs, name="worker/other", concurrency=1, grace_seconds=0.0)
        group.create_task(other.run(ready=ready, stop=stop))
        await ready.wait()
        accepted = await asyncio.gather(*(runtime.submit(ours, f"Please, number {number}.") for number in range(8)))
        waiting = {asyncio.create_task(runtime.wait(each.request_id)) for each in accepted}
        while waiting:
            for each in accepted:
                await system.look_now(each.request_id, 0.2)
            _, waiting = await asyncio.wait(waiting, timeout=0.1)
        reports = [await runtime.show(each.request_id) for each in accepted]
        damaged = [await runtime.damaged(each.request_id) for each in accepted]
        stop.set()
    assert {report.status for report in reports} == {"COMPLETED"} and not any(damaged)
    assert min(played["ours"], played["theirs"]) >= 3, played
    assert other_board.written["step"] and other_board.written["result"]
    for report in reports:
        assert [each.state for each in report.steps] == ["COMPLETED"] * 3
        assert {name for brief in report.briefs for name in brief.facts} == {"a.finding", "shaky.finding"}


async def test_the_messages_of_another_minor_version_are_understood(system: System) -> None:
    team = Cast().team(step("a"), step("b", "a"))
    async with system.serve(team) as runtime:
        sent = message(MessageType.SUBMIT, "unknown", sender="producer", recipient="orchestrator")
        body = orjson.dumps(with_what_we_do_not_know(orjson.loads(to_wire(sent))))
        await system.look.put(COMMANDS_QUEUE, body)
        await system.look.has(UNREADABLE_QUEUE, 1)
        (reason,) = await system.look.reasons(UNREADABLE_QUEUE)
        assert "no such request" in reason, "it was read; only the request is unknown"
        assert (await runtime.ask("Please.")).status == "COMPLETED"


def of_major_2(bell: AgentMessage) -> bytes:
    """The message as the next major version may write it."""
    return to_wire(bell).replace(b".v1", b".v2")


def that_says_2(bell: AgentMessage) -> bytes:
    """The message with another major schema version in its data."""
    return to_wire(bell).replace(b'"data":{', b'"data":{"schema_version":"2.0",')


def of_a_new_kind(bell: AgentMessage) -> bytes:
    """A kind of message that this version does not have."""
    return to_wire(bell).replace(b"briefline.submit.v1", b"briefline.pause.v1")


@pytest.mark.parametrize(("write", "said"), [(of_major_2, "v2"), (that_says_2, "2.0"), (of_a_new_kind, "briefline.pause.v1")])
async def test_an_unknown_kind_and_the_next_major_version_are_parked_with_a_clear_reason_and_not_acked_away(
    system: System, write: Callable[[AgentMessage], bytes], said: str
) -> None:  # F64
    team = Cast().team(step("a"))
    async with system.serve(team) as runtime:
        body = write(message(MessageType.SUBMIT, "r", sender="producer", recipient="orchestrator"))
        queues = (COMMANDS_QUEUE, RESULTS_QUEUE, task_queue("hand"))
        for queue in queues:
            await system.look.put(queue, body)
        await system.look.has(UNREADABLE_QUEUE, len(queues))
        assert await system.look.bodies(UNREADABLE_QUEUE) == [body] * len(queues)
        for reason in await system.look.reasons(UNREADABLE_QUEUE):
            assert said in reason and ("knows no message of type" in reason or "another major version than 1.0" in reason)
        assert (await runtime.ask("Please.")).status == "COMPLETED"


async def test_a_record_of_the_next_major_version_sets_its_request_back_and_is_not_misread(system: System) -> None:  # F63
    team = Cast().team(step("a"))
    accepted = (await Client(system.board, system.broker).submit(team, "Please.")).request_id
    good = (await system.board.read(accepted, (fields.STATUS,))).fields[fields.STATUS].value
    await overwrite(system.board, system.redis, accepted, fields.STATUS, b'{"schema_version":"2.0",' + good[1:])
    with capture_logs() as logs:
        async with system.serve(team) as runtime:
            await system.look_now(accepted)

            async def set_back() -> bool:
                return any(entry["event"] == "request_set_back" for entry in logs)

            await eventually(set_back, seconds=10)
            (why,) = (await runtime.damaged(accepted)).values()
            assert "StatusRecord" in why and "2.0" in why and "another major version" in why
            assert (await runtime.ask("Please, another.")).status == "COMPLETED"
            assert len(await runtime.events(accepted)) == 1, "nothing was written over it"
            await restore(system.board, system.redis, accepted)
            await system.look_now(accepted, 60)
            assert await asyncio.wait_for(runtime.wait(accepted), 20) == "COMPLETED"


async def test_two_orchestrators_of_which_one_does_not_know_newer_fields_come_to_the_same_end(system: System) -> None:
    team = Cast().team(step("a"), step("b", "a"), step("c", "b"))
    other_board = OtherBoard(system.board, without_what_is_newer)
    async with system.serve(team) as runtime, asyncio.TaskGroup() as group:
        stop, ready = asyncio.Event(), asyncio.Event()
        group.create_task(Orchestrator(other_board, system.broker, name="orchestrator/other").run(ready=ready, stop=stop))
        await ready.wait()
        reports = await asyncio.gather(*(runtime.ask(f"Please, number {number}.") for number in range(10)))
        stop.set()
    assert {report.status for report in reports} == {"COMPLETED"}
    writers = {event.writer for report in reports for event in report.events if event.role == "orchestrator"}
    assert "orchestrator/other" in writers and len(writers) == 2
