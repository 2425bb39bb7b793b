"""Faults that come at a time of their own: crashes, stops, pauses, outages, lost lines, lost queues, lost writes, foreign messages."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from schemas import fields
from schemas.broker import BROKER_DEAD_QUEUE, COMMANDS_QUEUE, RESULTS_QUEUE, task_queue
from schemas.messages import AgentMessage, MessageType, TaskData, message, to_wire
from schemas.requests import StepRecord, StepState
from tests.simulation.plans import AGENTS
from tests.simulation.rollback import Rollback

if TYPE_CHECKING:
    from tests.simulation.worlds import World

_GARBAGE = (b"", b"\xff\xfe", b"{}", b'{"specversion":"1.0","type":"briefline.unheard.v1","data":{}}', b'{"specversion":"1.0","data":[]}')
_KEEP_SECONDS = 0.25


def strangers() -> tuple[AgentMessage, ...]:
    """Bells in good form, of a request that nobody has opened."""
    unknown, done = "nobody-opened-it", StepState.COMPLETED
    record = StepRecord(state=StepState.PENDING, agent=AGENTS[0])
    seen = {fields.step("a"): "1.aaaaaa", fields.STATUS: "1.aaaaaa"}
    task = TaskData(record=record, fields=(fields.REQUEST,))
    return (
        message(MessageType.CANCEL, unknown, sender="client", recipient="orchestrator"),
        message(MessageType.RESULT_READY, unknown, sender=AGENTS[0], recipient="orchestrator", step_id="a", state=done),
        message(MessageType.TASK, unknown, sender="orchestrator", recipient=AGENTS[0], step_id="a", seen=seen, task=task),
    )


class Happenings:
    """The timed faults of one run."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._random = world.random
        self._rollback = Rollback(world.board) if world.wanted.set_back else None

    async def happen(self, seconds: float) -> None:
        """Let each fault come at its time within the next `seconds`."""
        planned = [(self._random.uniform(0.5, seconds), kind) for kind, count in self._world.profile.timed for _ in range(count)]
        if self._rollback is not None:
            planned += [(self._random.uniform(3, seconds), "set_back") for _ in range(2)]
        for at, kind in sorted(planned):
            await self._until(at)
            self._world.happened[kind] += 1
            self._world.trace(None, kind)
            self._do(kind)

    async def _until(self, at: float) -> None:
        now = self._world.loop.time
        while now() < at:
            if self._rollback is not None:
                self._rollback.keep(now())
            await asyncio.sleep(min(at - now(), _KEEP_SECONDS) if self._rollback is not None else at - now())

    def _do(self, kind: str) -> None:
        world, now = self._world, self._world.loop.time()
        match kind:
            case "amnesia":
                world.broker.forget_everything()
            case "board_outage":
                world.board_away_until = now + self._random.uniform(0.5, 12)
            case "broker_outage":
                world.broker_away_until = now + self._random.uniform(0.5, 12)
            case "garbage":
                for queue in (RESULTS_QUEUE, COMMANDS_QUEUE, BROKER_DEAD_QUEUE, task_queue(AGENTS[0])):
                    if queue in world.broker._queues:
                        world.broker.put(queue, self._random.choice((*_GARBAGE, *map(to_wire, strangers()))))
            case "set_back":
                self._set_back(now)
            case _:
                self._to_a_process(kind, now)

    def _set_back(self, now: float) -> None:
        assert self._rollback is not None
        self._world.set_back = True
        self._world.happened["writes_lost"] += self._rollback.back(now - self._random.uniform(0.3, 1.5))
        self._world.forget_states()

    def _to_a_process(self, kind: str, now: float) -> None:
        lives = [process.life for process in self._world.processes if process.life is not None and not process.life.dead]
        if not lives:
            return
        life = self._random.choice(lives)
        match kind:
            case "crash":
                self._world.crash(life, "anywhere")
            case "stop" if life.kind in ("orchestrator", "worker"):
                life.stop.set()
            case "pause":
                life.paused_until = now + self._random.uniform(1, 3 * self._world.lease_seconds + 3)
            case "line_lost":
                self._world.lose_line(life, 0.0)
