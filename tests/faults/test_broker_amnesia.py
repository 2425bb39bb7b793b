"""A broker that forgets everything, with requests in every state: the board alone brings each of them to its end."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from ops import opening
from ops.broker.memory import MemoryBroker
from ops.broker.topology import Topology
from ops.embedded import Runtime
from orchestrator import advancing, scheduling
from schemas import fields
from schemas.broker import task_queue
from schemas.messages import MessageType
from schemas.requests import StepState
from tests.faults.conftest import served_by, worker
from tests.support.servers import OwnRabbitMQ
from tests.system.cast import FACTS, Act, Cast, Gate, fails, step
from tests.system.conftest import System, hold_still
from tests.system.reports import states
from workers import recording
from workers.agents.blackbox import BlackBox
from workers.team import Team

pytestmark = [pytest.mark.timeout(120), pytest.mark.xdist_group("faults-rabbitmq")]

LATE = "late"
"""An agent whose worker comes only after the loss: until then its steps are ready, and their tasks lie in its queue."""

PLANS: dict[str, tuple[dict[str, Any], ...]] = {
    "opened": (step("open"),),
    "ready": (step("lies", agent=LATE),),
    "running": (step("runs"), step("waits", "runs", needs=())),
    "retrying": (step("again"),),
    "failed": (step("fails"), step("stopped", "fails", needs=()), step("goes-on")),
    "over": (step("done"),),
}
ENDS = {
    "opened": {"open": "COMPLETED"},
    "ready": {"lies": "COMPLETED"},
    "running": {"runs": "COMPLETED", "waits": "COMPLETED"},
    "retrying": {"again": "COMPLETED"},
    "failed": {"fails": "FAILED", "stopped": "SKIPPED", "goes-on": "COMPLETED"},
    "over": {"done": "COMPLETED"},
}


@dataclass
class States:
    """One request in each state, and what holds them there."""

    system: System
    runtime: Runtime
    cast: Cast
    gates: dict[str, Gate]
    requests: dict[str, str] = field(default_factory=dict)

    def team(self, state: str) -> Team:
        """The team whose plan comes to that state."""
        return self.cast.team(*PLANS[state], agents=(BlackBox(LATE, self.cast.play, facts=FACTS),))

    async def reach(self) -> None:
        """Open the requests, and return once each is where its name says."""
        for state in PLANS:
            if state == "opened":
                self.system.broker.fault = lambda address, bell: int(bell.type is not MessageType.SUBMIT)
            self.requests[state] = (await self.runtime.submit(self.team(state), f"Please: {state}.")).request_id
            self.system.broker.fault = lambda address, bell: 1
        await asyncio.gather(*(gate.entered.wait() for gate in self.gates.values()))
        await self.runtime.wait(self.requests["over"])
        await self._is("retrying", "again", StepState.PENDING, attempt=1)
        await self._is("failed", "fails", StepState.FAILED, attempt=1)
        await self.system.look.has(task_queue(LATE), 1)

    async def _is(self, state: str, step_id: str, wanted: StepState, attempt: int) -> None:
        async for report in self.runtime.follow(self.requests[state]):
            if any(each.step.id == step_id and (each.record.state, each.record.attempt) == (wanted, attempt) for each in report.steps):
                return
        raise AssertionError(f"{step_id} was never {wanted}")

    async def check_all_finish(self) -> None:
        """Let everything go on, and hold what every request has come to against what it should."""
        for gate in self.gates.values():
            gate.opened.set()
        async with worker(self.system, self.team("ready"), agents=[LATE]):
            await asyncio.gather(*map(self.runtime.wait, self.requests.values()))
        for state, request_id in self.requests.items():
            report = await self.runtime.show(request_id)
            assert states(report) == ENDS[state]
            assert report.status == ("DEGRADED" if state == "failed" else "COMPLETED")
            await hold_still(self.system.board, request_id)
            written = [name for event in report.events for name in event.put if name.startswith(fields.RESULT_PREFIX)]
            assert len(set(written)) == len(written) == list(ENDS[state].values()).count("COMPLETED")
        runs = {each["id"]: 1 for plan in PLANS.values() for each in plan if each["id"] != "stopped"}
        assert self.cast.runs == runs | {"again": 2}, "no agent ran twice but the one that had to"
        assert [(letter.request_id, letter.step_id) for letter in await self.runtime.dead()] == [(self.requests["failed"], "fails")]


async def check_amnesia(system: System, monkeypatch: pytest.MonkeyPatch, forget: Callable[[], Awaitable[None]]) -> None:
    """Bring requests into every state, let the broker forget, and check that each finishes by what the board knows."""
    for module in (advancing, scheduling, opening):
        monkeypatch.setattr(module, "FIRST_LOOK_MS", 1_000)  # the sweeper's own looks, in less than 30 seconds
    monkeypatch.setattr(recording, "RETRY_FIRST_MS", 4_000)
    gates = {"runs": Gate(), "goes-on": Gate()}
    acts: dict[str, Act] = {**gates, "again": fails("BUSY", times=1, retryable=True), "fails": fails("NO_STOCK")}
    cast = Cast(acts)
    hands = cast.team(step("any"))
    async with system.serve(hands) as runtime:
        reached = States(system, runtime, cast, gates)
        await reached.reach()
        await forget()
        await reached.check_all_finish()


async def test_with_every_queue_deleted_requests_in_every_state_still_finish(system: System, monkeypatch: pytest.MonkeyPatch) -> None:
    async def forget() -> None:
        if isinstance(system.broker.inner, MemoryBroker):
            system.broker.inner.forget_everything()
            return
        fixed = [queue.name for queue in Topology("any").fixed]
        for queue in (*fixed, *(f"{kind}.{agent}" for kind in ("tasks", "dead") for agent in ("hand", LATE))):
            await system.look.delete(queue)

    await check_amnesia(system, monkeypatch, forget)


@pytest.mark.own_server
async def test_with_a_broker_that_starts_with_an_empty_folder_requests_in_every_state_still_finish(
    rabbitmq: OwnRabbitMQ, redis_url: str, key_prefix: str, topology_prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start_empty() -> None:
        rabbitmq.stop()
        shutil.rmtree(rabbitmq.folder / "data")
        rabbitmq.start()

    async with served_by(rabbitmq.url, rabbitmq.url, topology_prefix, redis_url, key_prefix) as system:
        await check_amnesia(system, monkeypatch, lambda: asyncio.to_thread(start_empty))
