"""Dead letters as a tool: exhausted, listed, replayed by several at once, dropped; on both pairs, and as processes."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson
import pytest

from ops.client import Client
from ops.embedded import Runtime
from schemas import fields
from schemas.blackboard import DeadEntry
from schemas.errors import NotFound, Refused
from schemas.messages import AgentMessage, MessageType
from tests.fuzz.corrupting import overwrite, restore
from tests.system.cast import Act, Cast, Gate, answers, fails, step
from tests.system.conftest import System
from workers.agents.agent import AgentBrief

pytestmark = pytest.mark.timeout(60)

ROOT = Path(__file__).parent.parent.parent
ON_SERVERS = pytest.mark.parametrize("system", [pytest.param("servers", marks=pytest.mark.servers)], indirect=True)


class PerRequest:
    """An act that fails the first run of each request, and then does something else."""

    def __init__(self, then: Act = answers) -> None:
        self.runs: Counter[str] = Counter()
        self._then = then

    async def __call__(self, brief: AgentBrief) -> Any:
        request = brief.brief.text
        self.runs[request] += 1
        return await (fails("NO_STOCK") if self.runs[request] == 1 else self._then)(brief)


async def opened(runtime: Runtime, count: int) -> list[str]:
    """Open requests, each with words of its own, and wait until all are over."""
    accepted = await asyncio.gather(*(runtime.submit(runtime.team, f"Please, number {number}.") for number in range(count)))
    await asyncio.gather(*(runtime.wait(each.request_id) for each in accepted))
    return [each.request_id for each in accepted]


async def replayed(client: Client, request_id: str, step_id: str = "a", epoch: int = 0) -> str:
    """Replay, and say what came of it."""
    try:
        return f"epoch {await client.replay(request_id, step_id, epoch)}"
    except Refused as error:
        return str(error)


async def test_what_used_all_attempts_is_listed_once_and_has_a_full_new_set_after_a_replay(system: System) -> None:  # F29, F31
    cast = Cast({"a": fails("LINE_CUT", retryable=True)})
    async with system.serve(cast.team(step("a", max_attempts=2))) as runtime:
        accepted = await runtime.submit(runtime.team, "Please.")
        for epoch in (0, 1):
            if epoch:
                assert await runtime.replay(accepted.request_id, "a") == epoch
            waiting = asyncio.create_task(runtime.wait(accepted.request_id))
            while not waiting.done():
                await system.look_now(accepted.request_id, 0.5)
                await asyncio.wait({waiting}, timeout=0.1)
            (letter,) = await runtime.dead()
            assert (letter.record.epoch, letter.record.attempt, letter.record.max_attempts) == (epoch, 2, 2)
            assert (letter.reason, letter.title, letter.record.agent) == ("LINE_CUT", "Part A", "hand")
            assert letter.record.first_error == f"LINE_CUT: failed for the {2 * epoch + 1}. time"
            assert letter.record.failure is not None and letter.record.failure.description == f"failed for the {2 * epoch + 2}. time"
            assert letter.now_ms >= letter.failed_at_ms
    assert cast.runs == {"a": 4}
    assert len(await system.board.dead_list()) == 1, "the index keeps nothing of what was replayed"


async def test_of_two_operators_who_replay_the_same_one_is_told_that_it_was_done_already(system: System) -> None:  # F32
    act = PerRequest()
    async with system.serve(Cast({"a": act}).team(step("a")), orchestrators=2) as runtime:
        requests = await opened(runtime, 12)
        operators = [Client(system.board, system.broker, name=name) for name in ("ada", "eve")]
        came = await asyncio.gather(*(replayed(operator, each) for each in requests for operator in operators))
        for first, second in zip(came[::2], came[1::2], strict=True):
            done, refused = sorted((first, second), key=lambda each: each != "epoch 1")
            assert done == "epoch 1"
            assert "replayed already" in refused or "only a failed step is replayed" in refused, refused
        assert {await runtime.wait(each) for each in requests} == {"COMPLETED"}
        assert not await runtime.dead()
        events = [event for each in requests for event in await runtime.events(each)]
        by = Counter(event.labels["by"] for event in events if event.labels.get("event") == "step_replayed")
    assert set(act.runs.values()) == {2}
    assert by.keys() <= {"ada", "eve"} and by.total() == 12


async def test_a_replay_of_what_has_completed_meanwhile_is_refused_and_says_so(system: System) -> None:  # F32
    async with system.serve(Cast({"a": PerRequest()}).team(step("a"))) as runtime:
        (request_id,) = await opened(runtime, 1)
        assert (await runtime.dead_letter(request_id, "a")).reason == "NO_STOCK"
        assert await runtime.replay(request_id, "a", 0) == 1
        await runtime.wait(request_id)
        with pytest.raises(Refused, match="COMPLETED in epoch 1"):
            await runtime.dead_letter(request_id, "a")
        with pytest.raises(Refused, match="COMPLETED in epoch 1"):
            await runtime.replay(request_id, "a", 0)
        with pytest.raises(Refused, match="COMPLETED in epoch 1"):
            await runtime.replay(request_id, "a")
        with pytest.raises(NotFound, match="no step 'z'"):
            await runtime.dead_letter(request_id, "z")


async def test_a_drop_is_listed_no_more_kept_with_who_and_why_and_can_no_longer_be_found_as_a_letter(system: System) -> None:
    async with system.serve(Cast({"a": fails("NO_STOCK"), "b": fails("TOO_HOT")}).team(step("a"), step("b"))) as runtime:
        (request_id,) = await opened(runtime, 1)
        assert {each.step_id for each in await runtime.dead(request_id=request_id)} == {"a", "b"}
        assert [each.step_id for each in await runtime.dead(step_id="b")] == ["b"]
        assert [each.step_id for each in await runtime.dead(reason="NO_STOCK")] == ["a"]
        assert not await runtime.dead(agent="nobody") and not await runtime.dead(request_id="another")
        assert len(await runtime.dead(limit=1)) == 1
        await Client(system.board, system.broker, name="ada").drop(request_id, "a", "不再需要")
        assert [each.step_id for each in await runtime.dead()] == ["b"]
        with pytest.raises(Refused, match="was dropped: 不再需要"):
            await runtime.dead_letter(request_id, "a")
        (dropped,) = [event for event in await runtime.events(request_id) if event.labels.get("event") == "dead_letter_dropped"]
        assert (dropped.labels["by"], dropped.labels["reason"], dropped.labels["step"]) == ("ada", "不再需要", "a")
        assert not dropped.put, "a drop changes no state"
        assert (await runtime.show(request_id)).step("a").state == "FAILED"


async def test_an_old_letter_is_found_behind_thousands_and_one_that_nobody_can_read_hides_none(system: System) -> None:
    async with system.serve(Cast({"a": fails("NO_STOCK")}).team(step("a"))) as runtime:
        first, broken = await opened(runtime, 2)
        await asyncio.gather(*(system.board.dead_add(DeadEntry(f"gone-{number}", "a", 0)) for number in range(1_500)))
        await overwrite(system.board, system.redis, broken, fields.step("a"), b"\xff{")
        assert [each.request_id for each in await runtime.dead()] == [first]
        assert [each.request_id for each in await runtime.dead(request_id=first)] == [first]
        await restore(system.board, system.redis, broken)


# As processes.


class Commands:
    """`briefline` commands as processes, on the servers and under the names of a test."""

    def __init__(self, system: System, environment: Mapping[str, str]) -> None:
        self.system = system
        self._environment = {**os.environ, **environment, "NO_COLOR": "1", "COLUMNS": "300"}

    async def start(self, *arguments: str) -> asyncio.subprocess.Process:
        """Start a command."""
        return await asyncio.create_subprocess_exec(
            sys.executable, "-m", "ops", *arguments,
            cwd=ROOT, env=self._environment, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip

    async def run(self, *arguments: str, code: int = 0) -> str:
        """Run a command to the exit code that is expected, and return its standard output."""
        process = await self.start(*arguments)
        out, err = await process.communicate()
        assert process.returncode == code, (process.returncode, out.decode(), err.decode())
        return out.decode()

    async def refused(self, *arguments: str) -> str:
        """Run a command that is refused, and return what it says about it."""
        process = await self.start(*arguments)
        out, err = await process.communicate()
        assert (process.returncode, out) == (2, b""), (process.returncode, out.decode(), err.decode())
        return err.decode()

    async def json(self, *arguments: str, code: int = 0) -> Any:
        """Run a command with --json."""
        return orjson.loads(await self.run(*arguments, "--json", code=code))


@pytest.fixture
def commands(system: System, redis_url: str, rabbitmq_url: str, key_prefix: str, topology_prefix: str) -> Commands:
    """Commands on the same servers as `system`."""
    given = {"redis_url": redis_url, "rabbitmq_url": rabbitmq_url, "key_prefix": key_prefix, "topology_prefix": topology_prefix}
    return Commands(system, {f"BRIEFLINE_{name.upper()}": value for name, value in given.items()})


def of_epoch_1(bell: AgentMessage) -> bool:
    """Whether a message is a task that somebody replayed."""
    return bell.type is MessageType.TASK and bell.epoch == 1


@ON_SERVERS
async def test_two_processes_replay_fifty_and_one_is_killed_and_each_runs_once_more(system: System, commands: Commands) -> None:  # F32
    gate = Gate()
    act = PerRequest(then=gate)
    async with system.serve(Cast({"a": act}).team(step("a")), concurrency=50) as runtime:
        requests = await opened(runtime, 50)
        killed, other = await asyncio.gather(
            commands.start("dead", "replay", "--all", "--json"), commands.start("dead", "replay", "--all", "--json")
        )
        await system.broker.was_published(of_epoch_1, times=5)
        killed.send_signal(signal.SIGKILL)
        out, err = await other.communicate()
        assert await killed.wait() == -signal.SIGKILL
        said = orjson.loads(out)
        outcomes = Counter(each["outcome"] for each in said)
        assert {each["request_id"] for each in said} <= set(requests), err
        assert outcomes.keys() <= {"replayed", "refused"}
        assert other.returncode == (2 if outcomes["refused"] else 0)
        assert all("epoch" in each["reason"] for each in said if each["outcome"] == "refused")
        assert await commands.json("dead", "list") == []
        gate.opened.set()
        assert {await runtime.wait(each) for each in requests} == {"COMPLETED"}
        records = [(await runtime.show(each)).step("a").record for each in requests]
    assert {(record.epoch, record.attempt) for record in records} == {(1, 1)}
    assert len(act.runs) == 50 and set(act.runs.values()) == {2}


@ON_SERVERS
async def test_the_commands_replay_by_agent_by_reason_and_by_id_and_refuse_what_is_none(system: System, commands: Commands) -> None:
    cast = Cast({"a": PerRequest(), "b": PerRequest()})
    async with system.serve(cast.team(step("a"), step("b", "a"))) as runtime:
        one, two = await opened(runtime, 2)
        nothing, listed, said = await asyncio.gather(
            commands.run("dead", "replay", "--agent", "nobody"),
            commands.json("dead", "list", "--request", two, "--step", "a"),
            commands.run("dead", "replay", one, "a"),
        )
        assert nothing == "no dead letters fit\n"
        assert [(each["request_id"], each["step"]) for each in listed] == [(two, "a")]
        assert said == f"{one} a replayed: epoch 1\n"
        await runtime.wait(one)
        refused, by_reason = await asyncio.gather(
            commands.refused("dead", "replay", one, "a"), commands.json("dead", "replay", "--reason", "NO_STOCK")
        )
        assert "COMPLETED in epoch 1" in refused
        assert {(each["request_id"], each["step"], each["outcome"]) for each in by_reason} == {
            (one, "b", "replayed"),
            (two, "a", "replayed"),
        }
        await asyncio.gather(runtime.wait(one), runtime.wait(two))
        (last,) = await commands.json("dead", "replay", "--agent", "hand", "--dry-run")
        assert (last["request_id"], last["step"], last["runs_again"]) == (two, "b", ["b"])
        events = len(await runtime.events(two))
        assert await commands.run("dead", "drop", two, "b", "--reason", "too late") == f"{two} b dropped\n"
        assert len(await runtime.events(two)) == events + 1
        refused, shown = await asyncio.gather(commands.refused("dead", "show", two, "b"), commands.json("show", two))
        assert "was dropped: too late" in refused
        (dropped,) = [event for event in shown["timeline"] if event.get("event") == "dead_letter_dropped"]
        assert dropped["reason"] == "too late" and dropped["by"].startswith("cli")
